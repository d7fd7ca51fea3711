// What the Hugging Face hub's HTTP interface says, and how it is asked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::model {

// `ORG/NAME` and a branch, tag or commit.
struct HubModel {
  std::string repository;
  std::string revision = "main";
};

// Parses `ORG/NAME[@REV]`. Both parts are held to the hub's own rules for
// names, so that neither can become another path or URL.
// Errors: kInvalidArgument.
StatusOr<HubModel> ParseHubModel(std::string_view text);

// How a file's bytes are named: large files by SHA-256, others by the hash git
// gives a blob (SHA-1 over "blob SIZE\0" and the bytes).
enum class HubHash { kSha256, kGitSha1 };

struct HubFile {
  std::string path;
  uint64_t size = 0;
  HubHash hash_kind = HubHash::kGitSha1;
  std::string hash;  // lower-case hex
};

struct HubListing {
  std::string commit;  // what the revision means now: 40 hex digits
  std::vector<HubFile> files;

  // nullptr if there is none.
  const HubFile* Find(std::string_view path) const;
};

// The answer to ListingUrl. Files without size or hash are left out, as are
// those in folders: nothing we need is there, and nothing unchecked is loaded.
// Errors: kInvalidArgument, kResourceExhausted.
StatusOr<HubListing> ParseHubListing(std::string_view json);

// `endpoint` without a slash at its end.
std::string ListingUrl(std::string_view endpoint, const HubModel& model);
std::string FileUrl(std::string_view endpoint, std::string_view repository,
                    std::string_view commit, std::string_view path);

bool IsCommit(std::string_view revision);  // 40 lower-case hex digits

}  // namespace tidepool::model
