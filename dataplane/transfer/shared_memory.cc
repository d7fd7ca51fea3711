#include "dataplane/transfer/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <limits>
#include <utility>

namespace tidepool::transfer {
namespace {

constexpr uint64_t kMaxBytes = std::numeric_limits<int64_t>::max();

}  // namespace

StatusOr<SharedMemory> SharedMemory::Create(const std::string& name,
                                            uint64_t bytes) {
  if (bytes == 0 || bytes > kMaxBytes)
    return InvalidArgument("shared memory {}: size {} is out of range", name,
                           bytes);
  UniqueFd fd(memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return ErrnoError(errno, "shared memory: memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0)
    return ErrnoError(errno, fmt::format("shared memory of {} bytes", bytes));
  void* address =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED)
    return ErrnoError(errno, fmt::format("mapping {} bytes", bytes));
  SharedMemory shared(std::move(fd), {static_cast<std::byte*>(address), bytes});
  // Sealed after our own mapping: later ones can only read.
  if (fcntl(shared.fd(), F_ADD_SEALS,
            F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) !=
      0)
    return ErrnoError(errno, "shared memory: sealing");
  return shared;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::move(other.fd_)), memory_(std::exchange(other.memory_, {})) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    Unmap();
    fd_ = std::move(other.fd_);
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

SharedMemory::~SharedMemory() { Unmap(); }

void SharedMemory::Unmap() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
}

StatusOr<PeerMapping> PeerMapping::Map(UniqueFd fd, uint64_t bytes) {
  struct stat status;
  if (fstat(fd.get(), &status) != 0)
    return ErrnoError(errno, "peer's memory: fstat");
  if (bytes == 0 || bytes > kMaxBytes ||
      static_cast<uint64_t>(status.st_size) != bytes)
    return InvalidArgument("peer's memory: {} bytes announced, {} there", bytes,
                           status.st_size);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return InvalidArgument("peer's memory: not sealed against shrinking");
  void* address = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED)
    return ErrnoError(errno, fmt::format("peer's memory: mapping {}", bytes));
  return PeerMapping({static_cast<const std::byte*>(address), bytes});
}

PeerMapping::PeerMapping(PeerMapping&& other) noexcept
    : memory_(std::exchange(other.memory_, {})) {}

PeerMapping& PeerMapping::operator=(PeerMapping&& other) noexcept {
  if (this != &other) {
    Unmap();
    memory_ = std::exchange(other.memory_, {});
  }
  return *this;
}

PeerMapping::~PeerMapping() { Unmap(); }

void PeerMapping::Unmap() {
  if (!memory_.empty())
    munmap(const_cast<std::byte*>(memory_.data()), memory_.size());
}

}  // namespace tidepool::transfer
