// tidepool-dummy-model: writes the weights of `--load-format dummy` to a model
// folder, so that other servers can be measured on the very same ones.
#include <cstdio>
#include <filesystem>
#include <limits>

#include "dataplane/base/config.h"
#include "dataplane/model/config.h"
#include "dataplane/model/weights.h"

namespace tidepool::model {
namespace {

struct DummyModelConfig {
  std::string model;
  std::string output;
  int64_t seed = 0;
};

Status WriteModel(const DummyModelConfig& config) {
  ASSIGN_OR_RETURN(const ModelDescription description,
                   LoadModelDescription(config.model));
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string copy = config.output + "/config.json";
  fs::create_directories(config.output, error);
  if (!error) {
    fs::copy_file(config.model + "/config.json", copy,
                  fs::copy_options::overwrite_existing, error);
  }
  // The original may be read-only, and the copy should survive a second run.
  if (!error) {
    fs::permissions(copy, fs::perms::owner_write, fs::perm_options::add, error);
  }
  if (error) return ErrnoError(error.value(), fmt::format("write {}", copy));
  const auto weights =
      MakeDummyWeights(description.config, static_cast<uint64_t>(config.seed));
  return WriteSafetensors(description.config, *weights,
                          config.output + "/model.safetensors");
}

Status Main(int argc, char** argv) {
  DummyModelConfig config;
  OptionSet options("tidepool-dummy-model",
                    "Writes a model folder of seeded weights.");
  options.AddString("model", config.model,
                    "folder with the config.json to use");
  options.AddString("output", config.output, "folder to write");
  options.AddInt("seed", config.seed, {0, std::numeric_limits<int64_t>::max()},
                 "seed of the weights");
  ASSIGN_OR_RETURN(const OptionSet::Outcome outcome, options.Parse(argc, argv));
  if (outcome == OptionSet::Outcome::kExit) return OkStatus();
  if (config.model.empty()) return InvalidArgument("--model: missing");
  if (config.output.empty()) return InvalidArgument("--output: missing");
  return WriteModel(config);
}

}  // namespace
}  // namespace tidepool::model

int main(int argc, char** argv) {
  const tidepool::Status status = tidepool::model::Main(argc, argv);
  if (status.ok()) return 0;
  fmt::print(stderr, "tidepool-dummy-model: {}\n", tidepool::MessageOf(status));
  return 1;
}
