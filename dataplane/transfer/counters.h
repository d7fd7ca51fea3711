#pragma once

#include <atomic>
#include <cstdint>

namespace tidepool::transfer::internal {

// See MessengerStats. Written by the messenger's thread, read by any.
struct Counters {
  std::atomic<uint64_t> sent_bytes_tcp = 0, sent_bytes_shm = 0;
  std::atomic<uint64_t> received_bytes_tcp = 0, received_bytes_shm = 0;
  std::atomic<uint64_t> failed_slices = 0, refused_slices = 0;
  std::atomic<uint64_t> corrupt_slices = 0, rejected_connections = 0;
  std::atomic<uint64_t> inbound_connections = 0, pending_slices = 0;
};

}  // namespace tidepool::transfer::internal
