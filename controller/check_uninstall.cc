#include "controller/check_uninstall.h"

#include <fmt/ranges.h>

#include "controller/kube/resource_types.h"

namespace tidepool::controller {

StatusOr<std::vector<std::string>> RemainingResources(
    kube::Client& client, const std::string& space) {
  std::vector<std::string> remaining;
  for (const kube::ResourceType* type :
       {&kube::kKVCachePool, &kube::kPrefillPool, &kube::kDecodePool}) {
    const auto name = [&](const kube::Json& object) {
      const kube::Json metadata = object.value("metadata", kube::Json());
      remaining.push_back(fmt::format("{} {}/{}", type->kind,
                                      metadata.value("namespace", ""),
                                      metadata.value("name", "")));
    };
    StatusOr<std::string> listed =
        client.List(*type, {.space = space}, [&](kube::Json& o) { name(o); });
    if (listed.status().code() == Code::kOutOfRange) {
      // The pages grew too old; what was named twice still remains.
      listed =
          client.List(*type, {.space = space}, [&](kube::Json& o) { name(o); });
    }
    if (!listed.ok() && listed.status().code() != Code::kNotFound)
      return listed.status();
  }
  return remaining;
}

std::string Refusal(const std::vector<std::string>& remaining) {
  return fmt::format(
      "refused: without the controller nobody would look after these "
      "resources:\n{}\n"
      "Delete them and run `helm uninstall` again. Or keep the release, which "
      "Helm takes for one that is being uninstalled until `helm rollback NAME "
      "REVISION`, REVISION being the last that `helm history NAME` shows.\n",
      fmt::join(remaining, "\n"));
}

}  // namespace tidepool::controller
