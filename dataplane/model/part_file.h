// A file that is being downloaded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "dataplane/base/status.h"
#include "dataplane/base/unique_fd.h"
#include "dataplane/model/hub_api.h"

namespace tidepool::model {

// `path` while it grows towards `target`'s size; what an earlier process left
// there counts. The hash is kept up to date, so that finishing reads nothing
// again. Externally synchronized.
class PartFile {
 public:
  // Reads what is there already. A part longer than `target` starts afresh.
  // Errors: those of `errno`, naming `path`.
  static StatusOr<PartFile> Open(std::string path, const HubFile& target);

  PartFile(PartFile&&) noexcept;
  PartFile& operator=(PartFile&&) noexcept;
  ~PartFile();

  uint64_t size() const { return size_; }
  bool complete() const { return size_ == target_.size; }

  // Errors: kDataLoss beyond the target's size; kResourceExhausted if the disk
  // is full.
  Status Append(std::span<const std::byte> bytes);

  // Forgets all bytes.
  Status Restart();

  // Moves the complete file to `path`, on disk first, if its hash is the
  // target's. Otherwise kDataLoss with both hashes, and the part is empty.
  Status Publish(const std::string& path);

 private:
  class Hasher;

  PartFile(std::string path, const HubFile& target, UniqueFd file);
  Status HashWhatIsThere();

  std::string path_;
  HubFile target_;
  UniqueFd file_;
  uint64_t size_ = 0;
  std::unique_ptr<Hasher> hasher_;
};

}  // namespace tidepool::model
