#include "controller/check_install.h"

#include "controller/kube/json_fields.h"
#include "controller/kube/resource_types.h"
#include "controller/runtime/leader_elector.h"

namespace tidepool::controller {
namespace {

using kube::At;
using kube::Json;
using kube::TextAt;

// "KVCachePool models/demo: Ready is True: Serving: …".
std::string Line(const Json& fleet) {
  const Json& metadata = At(fleet, "metadata");
  const std::string name =
      fmt::format("{} {}/{}", kube::kKVCachePool.kind,
                  TextAt(metadata, "namespace"), TextAt(metadata, "name"));
  for (const Json& condition : At(At(fleet, "status"), "conditions"))
    if (TextAt(condition, "type") == "Ready")
      return fmt::format(
          "{}: Ready is {}: {}: {}", name, TextAt(condition, "status"),
          TextAt(condition, "reason"), TextAt(condition, "message"));
  return fmt::format("{}: nobody has looked at it yet", name);
}

StatusOr<std::vector<std::string>> ListFleets(kube::Client& client,
                                              const std::string& space) {
  std::vector<std::string> lines;
  for (const kube::ResourceType* type :
       {&kube::kKVCachePool, &kube::kPrefillPool, &kube::kDecodePool}) {
    const Status listed = client
                              .List(*type, {.space = space},
                                    [&](Json& object) {
                                      if (type == &kube::kKVCachePool)
                                        lines.push_back(Line(object));
                                    })
                              .status();
    if (listed.code() == Code::kNotFound)
      return FailedPrecondition("the kind {} is not installed", type->kind);
    RETURN_IF_ERROR(listed);
  }
  return lines;
}

// Who holds the Lease and was seen to renew it. Wall clocks are not compared.
StatusOr<std::string> FindLeader(kube::Client& client,
                                 const CheckInstallOptions& options) {
  std::string version;
  for (int looks = 0; looks < options.looks_max; ++looks) {
    if (looks > 0) options.pause();
    const StatusOr<Json> lease = client.Get(kube::kLease, options.lease);
    if (lease.status().code() == Code::kNotFound) continue;
    RETURN_IF_ERROR(lease.status());
    ASSIGN_OR_RETURN(const runtime::LeaseState state,
                     runtime::ParseLease(*lease));
    const bool is_renewed =
        !version.empty() && version != state.resource_version;
    if (is_renewed && !state.holder.empty()) return state.holder;
    version = state.resource_version;
  }
  return FailedPrecondition("no controller leads: nobody renews the Lease {}",
                            options.lease.ToString());
}

}  // namespace

StatusOr<std::vector<std::string>> CheckInstall(
    kube::Client& client, const CheckInstallOptions& options) {
  ASSIGN_OR_RETURN(const std::vector<std::string> fleets,
                   ListFleets(client, options.space));
  ASSIGN_OR_RETURN(const std::string leader, FindLeader(client, options));
  std::vector<std::string> lines = {fmt::format("{} leads", leader)};
  lines.insert(lines.end(), fleets.begin(), fleets.end());
  return lines;
}

}  // namespace tidepool::controller
