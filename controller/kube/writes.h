// Writes that every reconciler needs, in terms of Client.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/kube/client.h"
#include "dataplane/base/status.h"

namespace tidepool::kube {

// apiVersion, kind and metadata.{name, namespace} of an object to be applied.
Json Skeleton(const ResourceType& type, const ObjectKey& key);

// {apiVersion, kind, name, uid, controller: true, blockOwnerDeletion: true}.
Json OwnerReference(const ResourceType& type, std::string_view name,
                    std::string_view uid);

// Applies `status` to the object's status subresource; fields of ours that it
// does not name any more go. With `resource_version` the object must still be
// that one: kAborted otherwise.
StatusOr<Json> ApplyStatus(Client& client, const ResourceType& type,
                           const ObjectKey& key, const Json& status,
                           std::optional<std::string> resource_version = {});

// Sets spec.replicas through the scale subresource.
Status Scale(Client& client, const ResourceType& type, const ObjectKey& key,
             int64_t replicas);

// "2026-01-31T12:00:00Z", and with six digits of the second as Lease and Event
// want it.
std::string FormatTime(double unix_seconds);
std::string FormatMicroTime(double unix_seconds);
// Takes both forms. Errors: kInvalidArgument.
StatusOr<double> ParseTime(std::string_view text);

}  // namespace tidepool::kube
