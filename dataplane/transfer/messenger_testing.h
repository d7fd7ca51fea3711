// A messenger with a pool of its own, as a worker would have, for tests and
// benchmarks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/check.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/random.h"
#include "dataplane/transfer/messenger.h"
#include "dataplane/transfer/shared_memory.h"

namespace tidepool::transfer {

inline TimePoint In(Duration duration) {
  return Clock::Monotonic().Now() + duration;
}

// Of a test that does not wait for time to pass: how long it takes on a busy
// machine, with a sanitizer, must not matter.
inline constexpr Duration kPatience = std::chrono::minutes(10);
inline MessengerOptions Patient(MessengerOptions options = {}) {
  options.hello_timeout = options.stall_timeout = kPatience;
  return options;
}

struct TestNode {
  explicit TestNode(uint64_t pool_bytes, MessengerOptions options = Patient())
      : pool(*SharedMemory::Create("tidepool-test-pool", pool_bytes)) {
    if (options.incarnation == 0) options.incarnation = SystemRandom64() | 1;
    auto created = CreateSocketMessenger(options);
    CHECK(created.ok());
    messenger = *std::move(created);
    region = *messenger->RegisterMemory(pool.memory(), pool.fd());
  }

  std::span<std::byte> memory() { return pool.memory(); }
  void FillRandomly(uint64_t seed) {
    Random random(seed);
    const std::span<std::byte> bytes = memory();
    for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
      const uint64_t value = random.Next();
      std::memcpy(bytes.data() + i, &value, sizeof(value));
    }
  }
  PeerAddress peer_address() const {
    return {.address = messenger->address(),
            .incarnation = messenger->incarnation()};
  }

  SharedMemory pool;
  std::unique_ptr<Messenger> messenger;
  MemoryRegion region;
};

// A completion that can be waited for.
class PendingBatch {
 public:
  Completion completion() {
    return [this](BatchResult result) {
      result_ = std::move(result);
      done_.Notify();
    };
  }
  const BatchResult& Wait() {
    done_.Wait();
    return result_;
  }
  bool done() const { return done_.happened(); }

 private:
  Notification done_;
  BatchResult result_;
};

// Waits until no write of `capability` can land any more.
inline StatusOr<Received> RevokeAndWait(Messenger& messenger,
                                        uint64_t capability) {
  Notification done;
  StatusOr<Received> received = Internal("not called");
  messenger.Revoke(capability, [&](StatusOr<Received> result) {
    received = std::move(result);
    done.Notify();
  });
  done.Wait();
  return received;
}

// All slices of `pages` pages, from `local_offset` on in order.
inline std::vector<Slice> SlicesInOrder(const Capability& capability,
                                        uint64_t local_offset = 0) {
  std::vector<Slice> slices(*capability.window.NumExtents());
  for (uint32_t i = 0; i < slices.size(); ++i)
    slices[i] = {
        .extent = i,
        .local_offset = local_offset + i * capability.window.slice_bytes};
  return slices;
}

}  // namespace tidepool::transfer
