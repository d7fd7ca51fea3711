// Throughput against the ceiling measured beside it: memcpy for shm; for TCP, a
// plain loop of send and recv over the same loopback.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <memory>
#include <numeric>
#include <thread>

#include "dataplane/base/digest.h"
#include "dataplane/transfer/messenger_testing.h"
#include "dataplane/transfer/socket.h"

namespace tidepool::transfer {
namespace {

constexpr uint64_t kSlice = 64 << 10;
constexpr uint32_t kSlices = 128;
constexpr uint64_t kBytes = kSlice * kSlices;

std::shared_ptr<const Capability> GrantPages(TestNode& node, uint32_t pages,
                                             uint64_t slice_bytes) {
  std::vector<uint32_t> ids(pages);
  std::iota(ids.begin(), ids.end(), 0);
  return std::make_shared<Capability>(
      *node.messenger->Grant({.region = node.region.id(),
                              .page_ids = std::move(ids),
                              .num_layers = 1,
                              .layer_stride_bytes = pages * slice_bytes,
                              .slice_bytes = slice_bytes},
                             In(std::chrono::hours(1))));
}

void Transfer(benchmark::State& state, TransportPolicy policy) {
  spdlog::set_level(spdlog::level::warn);
  TestNode source(kBytes), destination(kBytes);
  source.FillRandomly(1);
  const auto capability = GrantPages(destination, kSlices, kSlice);
  const PeerId peer =
      *source.messenger->Connect(destination.peer_address(), policy);
  for (auto _ : state) {
    PendingBatch pending;
    CHECK(source.messenger
              ->Submit({.peer = peer,
                        .capability = capability,
                        .local_region = source.region.id(),
                        .slices = SlicesInOrder(*capability),
                        .deadline = In(std::chrono::minutes(1))},
                       pending.completion())
              .ok());
    CHECK(pending.Wait().status.ok());
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}

void BM_Tcp(benchmark::State& state) { Transfer(state, TransportPolicy::kTcp); }
void BM_Shm(benchmark::State& state) { Transfer(state, TransportPolicy::kShm); }
BENCHMARK(BM_Tcp)->UseRealTime();
BENCHMARK(BM_Shm)->UseRealTime();

void BM_Memcpy(benchmark::State& state) {
  SharedMemory from = *SharedMemory::Create("from", kBytes);
  SharedMemory to = *SharedMemory::Create("to", kBytes);
  for (auto _ : state) {
    for (uint64_t at = 0; at < kBytes; at += kSlice)
      std::memcpy(to.memory().data() + at, from.memory().data() + at, kSlice);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}
BENCHMARK(BM_Memcpy)->UseRealTime();

void BM_Checksum(benchmark::State& state) {
  SharedMemory from = *SharedMemory::Create("from", kBytes);
  for (auto _ : state) {
    for (uint64_t at = 0; at < kBytes; at += kSlice)
      benchmark::DoNotOptimize(Checksum64(from.memory().subspan(at, kSlice)));
  }
  state.SetBytesProcessed(state.iterations() * kBytes);
}
BENCHMARK(BM_Checksum)->UseRealTime();

void BM_PlainSocket(benchmark::State& state) {
  auto listener = ListenTcp("127.0.0.1", 0);
  UniqueFd out = *internal::ConnectTcp(
      *ResolveAddress("127.0.0.1", *BoundPort(listener->get())),
      std::chrono::seconds(10));
  pollfd waiting{.fd = listener->get(), .events = POLLIN};
  CHECK(poll(&waiting, 1, 10000) == 1);
  UniqueFd in = *internal::Accept(listener->get());
  for (const int fd : {out.get(), in.get()}) {
    const int flags = fcntl(fd, F_GETFL);
    CHECK(fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0);
  }
  std::thread receiver([fd = in.get()] {
    std::vector<std::byte> buffer(kBytes);
    size_t at = 0;
    while (true) {
      const ssize_t got = recv(fd, buffer.data() + at, buffer.size() - at, 0);
      if (got <= 0) return;
      at = (at + static_cast<size_t>(got)) % kBytes;
      if (at == 0 && send(fd, "k", 1, MSG_NOSIGNAL) != 1) return;
    }
  });
  const std::vector<std::byte> data(kBytes);
  for (auto _ : state) {
    for (uint64_t at = 0; at < kBytes;)
      at += send(out.get(), data.data() + at, kBytes - at, MSG_NOSIGNAL);
    char done;
    CHECK(recv(out.get(), &done, 1, 0) == 1);
  }
  shutdown(out.get(), SHUT_RDWR);
  receiver.join();
  state.SetBytesProcessed(state.iterations() * kBytes);
}
BENCHMARK(BM_PlainSocket)->UseRealTime();

// What the submitting thread pays for a batch of 15,000 descriptors.
void BM_Submit15000(benchmark::State& state) {
  spdlog::set_level(spdlog::level::warn);
  constexpr uint32_t kDescriptors = 15000;
  TestNode source(kDescriptors * 64), destination(kDescriptors * 64);
  const auto capability = GrantPages(destination, kDescriptors, 64);
  const PeerId peer = *source.messenger->Connect(destination.peer_address(),
                                                 TransportPolicy::kShm);
  for (auto _ : state) {
    PendingBatch pending;
    Batch batch{.peer = peer,
                .capability = capability,
                .local_region = source.region.id(),
                .slices = SlicesInOrder(*capability),
                .deadline = In(std::chrono::minutes(1))};
    const TimePoint begin = Clock::Monotonic().Now();
    CHECK(
        source.messenger->Submit(std::move(batch), pending.completion()).ok());
    state.SetIterationTime(Seconds(Clock::Monotonic().Now() - begin).count());
    CHECK(pending.Wait().status.ok());
  }
}
BENCHMARK(BM_Submit15000)->UseManualTime();

}  // namespace
}  // namespace tidepool::transfer

BENCHMARK_MAIN();
