#pragma once

#include "controller/reconcilers/model_spec.h"
#include "controller/reconcilers/pod_template.h"

namespace tidepool::reconcilers {

// What a pod needs to read the model: its volume, or the folder it is
// downloaded to and the hub's token.
void AddModelVolumes(const ModelSpec& model, PodParts& parts);

}  // namespace tidepool::reconcilers
