#include "controller/runtime/leading_client.h"

namespace tidepool::runtime {

using kube::Json;
using kube::ObjectKey;
using kube::ResourceType;

Status LeadingClient::MayWrite(const ObjectKey& key) const {
  if (may_write_()) return OkStatus();
  return MakeError(Code::kCancelled, "{} is not written: no longer the leader",
                   key.ToString());
}

StatusOr<Json> LeadingClient::Get(const ResourceType& type,
                                  const ObjectKey& key) {
  return client_.Get(type, key);
}

StatusOr<std::string> LeadingClient::List(
    const ResourceType& type, const kube::ListOptions& options,
    const std::function<void(Json&)>& take) {
  return client_.List(type, options, take);
}

Status LeadingClient::Watch(
    const ResourceType& type, const kube::WatchOptions& options,
    const std::function<bool(kube::WatchEvent&)>& take) {
  return client_.Watch(type, options, take);
}

StatusOr<Json> LeadingClient::Apply(const ResourceType& type,
                                    const ObjectKey& key, const Json& object,
                                    std::string_view subresource) {
  RETURN_IF_ERROR(MayWrite(key));
  return client_.Apply(type, key, object, subresource);
}

StatusOr<Json> LeadingClient::Create(const ResourceType& type,
                                     std::string_view space,
                                     const Json& object) {
  RETURN_IF_ERROR(MayWrite({std::string(space), std::string(type.plural)}));
  return client_.Create(type, space, object);
}

StatusOr<Json> LeadingClient::Replace(const ResourceType& type,
                                      const ObjectKey& key, const Json& object,
                                      std::string_view subresource) {
  RETURN_IF_ERROR(MayWrite(key));
  return client_.Replace(type, key, object, subresource);
}

StatusOr<Json> LeadingClient::Patch(const ResourceType& type,
                                    const ObjectKey& key,
                                    kube::PatchType patch_type,
                                    const Json& patch,
                                    std::string_view subresource) {
  RETURN_IF_ERROR(MayWrite(key));
  return client_.Patch(type, key, patch_type, patch, subresource);
}

Status LeadingClient::Delete(const ResourceType& type, const ObjectKey& key,
                             const kube::DeleteOptions& options) {
  RETURN_IF_ERROR(MayWrite(key));
  return client_.Delete(type, key, options);
}

}  // namespace tidepool::runtime
