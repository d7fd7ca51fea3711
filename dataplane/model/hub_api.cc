#include "dataplane/model/hub_api.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "dataplane/model/http_get.h"
#include "dataplane/model/strict_json.h"

namespace tidepool::model {
namespace {

using nlohmann::json;

constexpr size_t kMaxNameLength = 96;
constexpr size_t kMaxRevisionLength = 120;
constexpr size_t kMaxFiles = 100'000;
constexpr size_t kSha1Digits = 40;
constexpr size_t kSha256Digits = 64;

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

bool ConsistsOf(std::string_view text, std::string_view also) {
  return std::ranges::all_of(text, [also](char c) {
    return IsAlphanumeric(c) || also.find(c) != std::string_view::npos;
  });
}

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength &&
         ConsistsOf(name, "-_.") &&
         std::string_view("-.").find(name.front()) == std::string_view::npos &&
         std::string_view("-.").find(name.back()) == std::string_view::npos &&
         name.find("..") == std::string_view::npos &&
         name.find("--") == std::string_view::npos;
}

bool IsRevision(std::string_view revision) {
  return !revision.empty() && revision.size() <= kMaxRevisionLength &&
         ConsistsOf(revision, "-_./") && IsAlphanumeric(revision.front()) &&
         revision.back() != '/' &&
         revision.find("..") == std::string_view::npos &&
         revision.find("//") == std::string_view::npos;
}

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

bool IsPlainFileName(std::string_view path) {
  return !path.empty() && path.size() <= 255 && path.front() != '.' &&
         ConsistsOf(path, "-_.+=@ ");
}

// nullopt for an entry that cannot be loaded and checked.
StatusOr<std::optional<HubFile>> ParseFile(const json& entry) {
  if (!entry.is_object()) return InvalidArgument("siblings: expected objects");
  const JsonFields fields(entry, "siblings.");
  constexpr int64_t kMaxSize = std::numeric_limits<int64_t>::max();
  ASSIGN_OR_RETURN(const auto path, fields.OptionalString("rfilename"));
  ASSIGN_OR_RETURN(const auto size, fields.OptionalInt("size", 0, kMaxSize));
  ASSIGN_OR_RETURN(const auto blob, fields.OptionalString("blobId"));
  if (!path.has_value() || !IsPlainFileName(*path)) return std::nullopt;
  HubFile file{.path = *path};
  if (const json* lfs = fields.Find("lfs"); lfs != nullptr) {
    if (!lfs->is_object())
      return InvalidArgument("siblings.lfs: expected an object");
    const JsonFields lfs_fields(*lfs, "siblings.lfs.");
    ASSIGN_OR_RETURN(const auto sha256, lfs_fields.OptionalString("sha256"));
    ASSIGN_OR_RETURN(const auto lfs_size,
                     lfs_fields.OptionalInt("size", 0, kMaxSize));
    if (!sha256.has_value() || !IsHex(*sha256, kSha256Digits))
      return std::nullopt;
    const auto real_size = lfs_size.has_value() ? lfs_size : size;
    if (!real_size.has_value()) return std::nullopt;
    file.hash_kind = HubHash::kSha256;
    file.hash = *sha256;
    file.size = static_cast<uint64_t>(*real_size);
    return file;
  }
  if (!size.has_value() || !blob.has_value() || !IsHex(*blob, kSha1Digits))
    return std::nullopt;
  file.hash = *blob;
  file.size = static_cast<uint64_t>(*size);
  return file;
}

}  // namespace

StatusOr<HubModel> ParseHubModel(std::string_view text) {
  HubModel model;
  const size_t at = text.find('@');
  model.repository = text.substr(0, at);
  if (at != std::string_view::npos) model.revision = text.substr(at + 1);
  const size_t slash = model.repository.find('/');
  const std::string_view repository = model.repository;
  if (slash == std::string_view::npos || !IsName(repository.substr(0, slash)) ||
      !IsName(repository.substr(slash + 1))) {
    return InvalidArgument(
        "{:?} is not ORG/NAME: each part has letters, digits, '-', '_' and "
        "'.', none of '-' and '.' at an end or doubled, and at most {} "
        "characters",
        model.repository, kMaxNameLength);
  }
  if (!IsRevision(model.revision))
    return InvalidArgument("{:?} is not a branch, tag or commit",
                           model.revision);
  return model;
}

const HubFile* HubListing::Find(std::string_view path) const {
  const auto it = std::ranges::find(files, path, &HubFile::path);
  return it == files.end() ? nullptr : &*it;
}

StatusOr<HubListing> ParseHubListing(std::string_view text) {
  ASSIGN_OR_RETURN(const json document, ParseStrictJson(text));
  if (!document.is_object()) return InvalidArgument("expected a JSON object");
  const JsonFields fields(document);
  ASSIGN_OR_RETURN(const auto commit, fields.OptionalString("sha"));
  if (!commit.has_value() || !IsCommit(*commit))
    return InvalidArgument("sha: expected a commit of 40 hex digits");
  const json* siblings = fields.Find("siblings");
  if (siblings == nullptr || !siblings->is_array())
    return InvalidArgument("siblings: expected a list of files");
  if (siblings->size() > kMaxFiles)
    return InvalidArgument("siblings: more than {} files", kMaxFiles);
  HubListing listing{.commit = *commit};
  for (const json& entry : *siblings) {
    ASSIGN_OR_RETURN(const auto file, ParseFile(entry));
    if (!file.has_value()) continue;
    listing.files.push_back(*file);
  }
  return listing;
}

std::string ListingUrl(std::string_view endpoint, const HubModel& model) {
  return fmt::format("{}/api/models/{}/revision/{}?blobs=true", endpoint,
                     model.repository, PercentEncode(model.revision));
}

std::string FileUrl(std::string_view endpoint, std::string_view repository,
                    std::string_view commit, std::string_view path) {
  return fmt::format("{}/{}/resolve/{}/{}", endpoint, repository, commit,
                     PercentEncode(path));
}

bool IsCommit(std::string_view revision) {
  return IsHex(revision, kSha1Digits);
}

}  // namespace tidepool::model
