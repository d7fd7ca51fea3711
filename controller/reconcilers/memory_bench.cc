// What a controller keeps of each fleet, besides connections, stacks and what
// lies free between: as much memory as comes free when a controller that has
// looked at some fleets begins anew.
#include <benchmark/benchmark.h>
#include <malloc.h>

#include <string>

#include "controller/kube/resource_types.h"
#include "controller/reconcilers/family_test_util.h"
#include "dataplane/base/check.h"

namespace tidepool::reconcilers {
namespace {

double BytesInUse() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd);
}

// As those of the end-to-end tests: 3 pools, 2 conductors and 28 workers.
void CreateFleet(FamilyWorld& world, const std::string& name) {
  const auto create_pool = [&](const kube::ResourceType& type,
                               const std::string& pool, int replicas) {
    world.Create(
        type, pool,
        {{"kvCachePoolRef", {{"name", name}}}, {"replicas", replicas}});
  };
  world.Create(
      kube::kKVCachePool, name,
      {{"model", {{"uri", "demo"}}}, {"conductor", {{"replicas", 2}}}});
  create_pool(kube::kPrefillPool, name + "-prefill", 9);
  create_pool(kube::kDecodePool, name + "-decode", 19);
}

void BM_KeptOfAFleet(benchmark::State& state) {
  const int64_t fleets = state.range(0);
  for (auto _ : state) {
    FamilyWorld world;
    for (int64_t i = 0; i < fleets; ++i)
      CreateFleet(world, "fleet" + std::to_string(i));
    CHECK(world.Run());
    const double with = BytesInUse();
    world.Restart();
    state.counters["bytes_per_fleet"] =
        (with - BytesInUse()) / static_cast<double>(fleets);
  }
}
BENCHMARK(BM_KeptOfAFleet)->Arg(4)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace tidepool::reconcilers

BENCHMARK_MAIN();
