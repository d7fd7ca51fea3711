#include "controller/reconcilers/model_volumes.h"

#include "controller/reconcilers/names.h"

namespace tidepool::reconcilers {

void AddModelVolumes(const ModelSpec& model, PodParts& parts) {
  if (model.source == ModelSpec::Source::kClaim) {
    parts.volumes.push_back(
        {{"name", "tidepool-model"},
         {"persistentVolumeClaim",
          {{"claimName", model.claim}, {"readOnly", true}}}});
    parts.mounts.push_back({{"name", "tidepool-model"},
                            {"mountPath", kClaimFolder},
                            {"readOnly", true}});
  }
  if (model.cache_claim.empty()) {
    AddFolder(parts, "tidepool-cache", kCacheFolder, model.cache_bytes_max);
  } else {
    parts.volumes.push_back(
        {{"name", "tidepool-cache"},
         {"persistentVolumeClaim", {{"claimName", model.cache_claim}}}});
    parts.mounts.push_back(
        {{"name", "tidepool-cache"}, {"mountPath", kCacheFolder}});
  }
  if (!model.token_secret.empty())
    parts.env.push_back(
        {{"name", "HF_TOKEN"},
         {"valueFrom",
          {{"secretKeyRef",
            {{"name", model.token_secret}, {"key", model.token_key}}}}}});
}

}  // namespace tidepool::reconcilers
