// Where downloaded models lie.
//
//   CACHE/hub/models--ORG--NAME/        (a mirror's models: hub-HASH)
//     .lock                 held while downloading
//     refs/REVISION         the commit it meant last ('/' as "%2F")
//     parts/HASH            unfinished files, named by what they shall be
//     snapshots/COMMIT/     finished files, and a manifest once all are there
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/base/status.h"
#include "dataplane/model/hub_api.h"

namespace tidepool::model {

// One repository's folder in the cache. Thread-safe; writers hold the lock.
class SnapshotStore {
 public:
  // `repository` has passed ParseHubModel.
  SnapshotStore(std::string_view cache_folder, std::string_view endpoint,
                std::string_view repository);

  const std::string& root() const { return root_; }
  const std::string& endpoint() const { return endpoint_; }
  std::string LockPath() const { return root_ + "/.lock"; }
  std::string PartFolder() const { return root_ + "/parts"; }
  std::string PartPath(const HubFile& file) const;
  std::string SnapshotFolder(std::string_view commit) const;

  bool HasFile(std::string_view commit, const HubFile& file) const;
  // What of `file` an earlier download left; at most its size.
  uint64_t PartSize(const HubFile& file) const;

  // All files of the manifest are there with their sizes. A manifest with
  // weights serves both.
  bool IsComplete(std::string_view commit, bool weights) const;
  // The complete snapshot that `revision` meant last, if there is one.
  std::optional<std::string> FindComplete(std::string_view revision,
                                          bool weights) const;

  // Errors: those of `errno`.
  Status WriteManifest(std::string_view commit, bool weights,
                       const std::vector<HubFile>& files) const;
  Status WriteReference(std::string_view revision,
                        std::string_view commit) const;

 private:
  std::string endpoint_, root_;
};

}  // namespace tidepool::model
