// What the API server does to every object on its way in.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::fakes {

// "group/plural".
std::string TypeId(const kube::ResourceType& type);
bool HasStatus(const kube::ResourceType& type);

// What a write of `subresource` may change of `before`, taken from `after`.
// Errors: kNotFound (no such subresource).
StatusOr<kube::Json> Restricted(const kube::ResourceType& type,
                                std::string_view subresource,
                                const kube::Json& before, kube::Json after);

// kAborted if `write` names another version or uid than `stored` has.
Status CheckPreconditions(const kube::Json& stored, const kube::Json& write);

// True if they differ in more than metadata and status.
bool SpecChanged(const kube::Json& before, const kube::Json& after);
bool SameButVersion(const kube::Json& before, const kube::Json& after);

// Text at metadata.`field`; "" if there is none.
std::string MetadataText(const kube::Json& object, const char* field);
bool IsTerminating(const kube::Json& object);
bool HasFinalizers(const kube::Json& object);
// Of metadata.ownerReferences.
std::vector<std::string> OwnerUids(const kube::Json& object);

}  // namespace tidepool::fakes
