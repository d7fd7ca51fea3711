#include "dataplane/model/part_file.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "dataplane/base/check.h"

namespace tidepool::model {
namespace {

constexpr size_t kReadBytes = 1 << 20;

}  // namespace

class PartFile::Hasher {
 public:
  explicit Hasher(const HubFile& target) : context_(EVP_MD_CTX_new()) {
    const bool git = target.hash_kind == HubHash::kGitSha1;
    CHECK(EVP_DigestInit_ex(context_, git ? EVP_sha1() : EVP_sha256(),
                            nullptr) == 1);
    if (git) {
      const std::string prefix = fmt::format("blob {}", target.size);
      Update(prefix.c_str(), prefix.size() + 1);  // with its terminating zero
    }
  }
  ~Hasher() { EVP_MD_CTX_free(context_); }
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;

  void Update(const void* data, size_t size) {
    CHECK(EVP_DigestUpdate(context_, data, size) == 1);
  }
  std::string FinishHex() {
    std::array<uint8_t, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    CHECK(EVP_DigestFinal_ex(context_, digest.data(), &size) == 1);
    return fmt::format("{:02x}",
                       fmt::join(digest.begin(), digest.begin() + size, ""));
  }

 private:
  EVP_MD_CTX* context_;
};

PartFile::PartFile(std::string path, const HubFile& target, UniqueFd file)
    : path_(std::move(path)),
      target_(target),
      file_(std::move(file)),
      hasher_(std::make_unique<Hasher>(target)) {}
PartFile::PartFile(PartFile&&) noexcept = default;
PartFile& PartFile::operator=(PartFile&&) noexcept = default;
PartFile::~PartFile() = default;

StatusOr<PartFile> PartFile::Open(std::string path, const HubFile& target) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!file) return ErrnoError(errno, fmt::format("open {}", path));
  PartFile part(std::move(path), target, std::move(file));
  RETURN_IF_ERROR(part.HashWhatIsThere());
  return part;
}

Status PartFile::HashWhatIsThere() {
  std::vector<std::byte> buffer(kReadBytes);
  while (true) {
    const ssize_t got = ::read(file_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, fmt::format("read {}", path_));
    if (got == 0) return OkStatus();
    const auto count = static_cast<uint64_t>(got);
    if (count > target_.size - size_) return Restart();
    hasher_->Update(buffer.data(), count);
    size_ += count;
  }
}

Status PartFile::Append(std::span<const std::byte> bytes) {
  if (bytes.size() > target_.size - size_) {
    return DataLoss("{}: more than the announced {} bytes came", target_.path,
                    target_.size);
  }
  while (!bytes.empty()) {
    const ssize_t wrote = ::write(file_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
      return ResourceExhausted("write {}: no room after {} of {} bytes: {}",
                               path_, size_, target_.size,
                               std::strerror(errno));
    }
    if (wrote < 0) return ErrnoError(errno, fmt::format("write {}", path_));
    const auto count = static_cast<size_t>(wrote);
    hasher_->Update(bytes.data(), count);
    size_ += count;
    bytes = bytes.subspan(count);
  }
  return OkStatus();
}

Status PartFile::Restart() {
  if (::ftruncate(file_.get(), 0) != 0 ||
      ::lseek(file_.get(), 0, SEEK_SET) != 0) {
    return ErrnoError(errno, fmt::format("truncate {}", path_));
  }
  size_ = 0;
  hasher_ = std::make_unique<Hasher>(target_);
  return OkStatus();
}

Status PartFile::Publish(const std::string& path) {
  CHECK(complete());
  const std::string hash = hasher_->FinishHex();
  if (hash != target_.hash) {
    RETURN_IF_ERROR(Restart());
    return DataLoss("{}: the bytes have hash {}, the hub names {}",
                    target_.path, hash, target_.hash);
  }
  if (::fsync(file_.get()) != 0)
    return ErrnoError(errno, fmt::format("sync {}", path_));
  if (std::rename(path_.c_str(), path.c_str()) != 0)
    return ErrnoError(errno, fmt::format("rename {} to {}", path_, path));
  return OkStatus();
}

}  // namespace tidepool::model
