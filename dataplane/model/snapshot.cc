#include "dataplane/model/snapshot.h"

#include <algorithm>
#include <filesystem>

#include "dataplane/base/digest.h"
#include "dataplane/base/file.h"
#include "dataplane/model/file_io.h"
#include "dataplane/model/http_get.h"
#include "dataplane/model/strict_json.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

constexpr char kDefaultEndpoint[] = "https://huggingface.co";

const char* ManifestName(bool weights) {
  return weights ? ".complete.json" : ".complete-without-weights.json";
}

std::optional<uint64_t> SizeOf(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return std::nullopt;
  return size;
}

// In a folder that it makes.
Status WriteFile(const std::string& path, std::string_view content) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(),
                                      error);
  if (error) return ErrnoError(error.value(), "make the folder of " + path);
  return WriteFileAtomically(path, content);
}

bool ManifestHolds(const std::string& folder, bool weights) {
  const auto text = ReadSmallFile(folder + "/" + ManifestName(weights));
  if (!text.ok()) return false;
  const auto manifest = ParseStrictJson(*text);
  if (!manifest.ok() || !manifest->is_object()) return false;
  return std::ranges::all_of(manifest->items(), [&](const auto& item) {
    return item.value().is_number_unsigned() &&
           SizeOf(folder + "/" + item.key()) ==
               item.value().template get<uint64_t>();
  });
}

}  // namespace

SnapshotStore::SnapshotStore(std::string_view cache_folder,
                             std::string_view endpoint,
                             std::string_view repository)
    : endpoint_(endpoint) {
  while (endpoint_.ends_with('/')) endpoint_.pop_back();
  // Another endpoint may hold another model under the same name.
  std::string hub = "hub";
  if (endpoint_ != kDefaultEndpoint)
    hub += "-" + Sha256Of(endpoint_).Hex().substr(0, 12);
  const size_t slash = repository.find('/');
  root_ =
      fmt::format("{}/{}/models--{}--{}", cache_folder, hub,
                  repository.substr(0, slash), repository.substr(slash + 1));
}

std::string SnapshotStore::PartPath(const HubFile& file) const {
  return PartFolder() + "/" + file.hash;
}

std::string SnapshotStore::SnapshotFolder(std::string_view commit) const {
  return fmt::format("{}/snapshots/{}", root_, commit);
}

bool SnapshotStore::HasFile(std::string_view commit,
                            const HubFile& file) const {
  return SizeOf(SnapshotFolder(commit) + "/" + file.path) == file.size;
}

uint64_t SnapshotStore::PartSize(const HubFile& file) const {
  return std::min(SizeOf(PartPath(file)).value_or(0), file.size);
}

bool SnapshotStore::IsComplete(std::string_view commit, bool weights) const {
  const std::string folder = SnapshotFolder(commit);
  return ManifestHolds(folder, true) ||
         (!weights && ManifestHolds(folder, false));
}

std::optional<std::string> SnapshotStore::FindComplete(
    std::string_view revision, bool weights) const {
  std::string commit(revision);
  if (!IsCommit(commit)) {
    const auto text =
        ReadSmallFile(root_ + "/refs/" + PercentEncode(revision), 1024);
    if (!text.ok() || !IsCommit(*text)) return std::nullopt;
    commit = *text;
  }
  if (!IsComplete(commit, weights)) return std::nullopt;
  return SnapshotFolder(commit);
}

Status SnapshotStore::WriteManifest(std::string_view commit, bool weights,
                                    const std::vector<HubFile>& files) const {
  json manifest = json::object();
  for (const HubFile& file : files) manifest[file.path] = file.size;
  return WriteFile(SnapshotFolder(commit) + "/" + ManifestName(weights),
                   manifest.dump(1) + "\n");
}

Status SnapshotStore::WriteReference(std::string_view revision,
                                     std::string_view commit) const {
  return WriteFile(root_ + "/refs/" + PercentEncode(revision), commit);
}

}  // namespace tidepool::model
