// What `--model` may say, and the local folder it means.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include "dataplane/base/status.h"
#include "dataplane/model/hub_download.h"

namespace tidepool::model {

struct LocalFolder {
  std::string path;
};
struct DemoModel {};
using ModelSource = std::variant<LocalFolder, DemoModel, HubModel>;

// `DIR`, `demo` or `hf:ORG/NAME[@REV]`. A folder called `demo` is `./demo`.
// Errors: kInvalidArgument.
StatusOr<ModelSource> ParseModelSource(std::string_view text);

// The folder with the model's config.json and the files beside it; hub models
// are downloaded first (see DownloadModel). The demo model lies in
// TIDEPOOL_MODELS_DIR, in the `models` folder nearest above the executable, in
// its `../share/tidepool/models`, or in the source tree this was built from.
// Blocks. Errors: kNotFound; those of DownloadModel.
StatusOr<std::string> ResolveModel(const ModelSource& source,
                                   const HubOptions& options);

// A short name for the model, as `/v1/models` shows it when none is set: the
// folder's name, `demo`, or ORG/NAME.
std::string DefaultModelName(const ModelSource& source);

}  // namespace tidepool::model
