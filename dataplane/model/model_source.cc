#include "dataplane/model/model_source.h"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

namespace tidepool::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefix = "hf:";
constexpr int kMaxFoldersUp = 6;  // a build tree inside the source tree

bool IsModelFolder(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "config.json", error);
}

StatusOr<std::string> ResolveFolder(const LocalFolder& folder) {
  std::error_code error;
  if (IsModelFolder(folder.path)) return folder.path;
  if (fs::is_directory(folder.path, error))
    return NotFound("--model {}: the folder has no config.json", folder.path);
  if (ParseHubModel(folder.path).ok()) {
    return NotFound(
        "--model {0}: no such folder; for the model of that name on the "
        "Hugging Face hub say hf:{0}",
        folder.path);
  }
  return NotFound("--model {}: no such folder", folder.path);
}

std::vector<fs::path> DemoCandidates() {
  if (const char* models = std::getenv("TIDEPOOL_MODELS_DIR");
      models != nullptr && *models != '\0') {
    return {fs::path(models) / "demo"};
  }
  std::vector<fs::path> candidates;
  std::error_code error;
  fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    candidates.push_back(folder.parent_path() / "share/tidepool/models/demo");
    for (int i = 0; i < kMaxFoldersUp && folder.has_relative_path(); ++i) {
      candidates.push_back(folder / "models/demo");
      folder = folder.parent_path();
    }
  }
  candidates.push_back(fs::path(TIDEPOOL_MODELS_SOURCE_DIR) / "demo");
  return candidates;
}

StatusOr<std::string> ResolveDemo() {
  const std::vector<fs::path> candidates = DemoCandidates();
  for (const fs::path& candidate : candidates) {
    if (IsModelFolder(candidate)) return candidate.string();
  }
  return NotFound(
      "--model demo: not in {}; TIDEPOOL_MODELS_DIR names the folder that "
      "holds it",
      candidates.front().string());
}

}  // namespace

StatusOr<ModelSource> ParseModelSource(std::string_view text) {
  if (text.empty()) return InvalidArgument("--model: empty");
  if (text == "demo") return DemoModel{};
  if (!text.starts_with(kHubPrefix)) return LocalFolder{std::string(text)};
  auto model = ParseHubModel(text.substr(kHubPrefix.size()));
  if (!model.ok())
    return Annotate(model.status(), fmt::format("--model {}", text));
  return *std::move(model);
}

StatusOr<std::string> ResolveModel(const ModelSource& source,
                                   const HubOptions& options) {
  if (const auto* folder = std::get_if<LocalFolder>(&source))
    return ResolveFolder(*folder);
  if (const auto* model = std::get_if<HubModel>(&source))
    return DownloadModel(*model, options);
  return ResolveDemo();
}

std::string DefaultModelName(const ModelSource& source) {
  if (const auto* model = std::get_if<HubModel>(&source))
    return model->repository;
  if (std::holds_alternative<DemoModel>(source)) return "demo";
  const std::string& path = std::get<LocalFolder>(source).path;
  std::error_code error;
  fs::path folder = fs::absolute(path, error).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path();  // "llama/"
  return folder.filename().empty() ? path : folder.filename().string();
}

}  // namespace tidepool::model
