#include "controller/runtime/manager_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <utility>

namespace tidepool::runtime::internal {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::map<std::string, std::string>;

prometheus::Histogram::BucketBoundaries TimeBuckets() {
  return {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};
}

class Levels {
 public:
  Levels(const std::string& name, const std::string& help, MetricType type) {
    family_.name = name;
    family_.help = help;
    family_.type = type;
  }
  void Add(double value, const Labels& labels = {}) {
    ClientMetric metric;
    for (const auto& [name, text] : labels)
      metric.label.push_back({name, text});
    (family_.type == MetricType::Gauge ? metric.gauge.value
                                       : metric.counter.value) = value;
    family_.metric.push_back(std::move(metric));
  }
  MetricFamily Take() { return std::move(family_); }

 private:
  MetricFamily family_;
};

void AddLoops(const ManagerLevels& levels, std::vector<MetricFamily>& out) {
  Levels keys("tidepool_controller_keys_waiting",
              "Objects to reconcile, by what they wait for.",
              MetricType::Gauge);
  Levels dropped("tidepool_controller_keys_dropped_total",
                 "Keys beyond the queue's capacity.", MetricType::Counter);
  for (const ManagerLevels::Loop& loop : levels.loops) {
    const auto in = [&](const char* state, size_t count) {
      keys.Add(static_cast<double>(count),
               {{"kind", loop.name}, {"state", state}});
    };
    in("ready", loop.waiting);
    in("delayed", loop.delayed);
    in("reconciling", loop.running);
    dropped.Add(static_cast<double>(loop.dropped_total), {{"kind", loop.name}});
  }
  out.push_back(keys.Take());
  out.push_back(dropped.Take());
}

void AddInformers(const ManagerLevels& levels, std::vector<MetricFamily>& out) {
  Levels objects("tidepool_controller_cached_objects",
                 "Objects in the copy of the API server's.", MetricType::Gauge);
  Levels silence("tidepool_controller_informer_silence_seconds",
                 "Since the API server last told of this kind.",
                 MetricType::Gauge);
  Levels lists("tidepool_controller_informer_lists_total",
               "Times that all objects of a kind were read.",
               MetricType::Counter);
  Levels failures("tidepool_controller_informer_failures_total",
                  "Lists and watches that failed.", MetricType::Counter);
  Levels rejected("tidepool_controller_informer_rejected_total",
                  "Objects that were not understood.", MetricType::Counter);
  for (const auto& [kind, stats] : levels.informers) {
    const Labels labels = {{"kind", kind}};
    objects.Add(static_cast<double>(stats.objects), labels);
    if (stats.heard_at != TimePoint())
      silence.Add(Seconds(levels.now - stats.heard_at).count(), labels);
    lists.Add(static_cast<double>(stats.lists_total), labels);
    failures.Add(static_cast<double>(stats.failures_total), labels);
    rejected.Add(static_cast<double>(stats.rejected_total), labels);
  }
  for (Levels* family : {&objects, &silence, &lists, &failures, &rejected})
    out.push_back(family->Take());
}

void AddProcess(const ManagerLevels& levels, std::vector<MetricFamily>& out) {
  Levels leading("tidepool_controller_leading_ratio",
                 "1 while this process holds the Lease.", MetricType::Gauge);
  leading.Add(levels.leading ? 1 : 0);
  Levels terms("tidepool_controller_terms_total",
               "Times that this process became the leader.",
               MetricType::Counter);
  terms.Add(static_cast<double>(levels.terms_total));
  Levels memory("process_resident_memory_bytes", "Resident memory.",
                MetricType::Gauge);
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  memory.Add(resident * static_cast<double>(sysconf(_SC_PAGESIZE)));
  for (Levels* family : {&leading, &terms, &memory})
    out.push_back(family->Take());
  for (const ManagerLevels::Gauge& gauge : levels.gauges) {
    Levels family(gauge.name, gauge.help, MetricType::Gauge);
    family.Add(gauge.level);
    out.push_back(family.Take());
  }
}

}  // namespace

struct ManagerMetrics::Impl {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Counter>& reconciles =
      prometheus::BuildCounter()
          .Name("tidepool_controller_reconciles_total")
          .Help("Reconciliations, by how they ended.")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& reconcile_seconds =
      prometheus::BuildHistogram()
          .Name("tidepool_controller_reconcile_seconds")
          .Help("Time of a reconciliation.")
          .Register(registry);
  prometheus::Family<prometheus::Counter>& calls =
      prometheus::BuildCounter()
          .Name("tidepool_controller_api_calls_total")
          .Help("Calls of the API server, by how they ended.")
          .Register(registry);
  prometheus::Family<prometheus::Histogram>& call_seconds =
      prometheus::BuildHistogram()
          .Name("tidepool_controller_api_call_seconds")
          .Help("Time of a call of the API server, retries included.")
          .Register(registry);
};

ManagerMetrics::ManagerMetrics() : impl_(std::make_unique<Impl>()) {}
ManagerMetrics::~ManagerMetrics() = default;

void ManagerMetrics::CountReconcile(std::string_view kind, Code code,
                                    Duration took) {
  const std::string name(kind);
  impl_->reconciles
      .Add({{"kind", name}, {"code", absl::StatusCodeToString(code)}})
      .Increment();
  impl_->reconcile_seconds.Add({{"kind", name}}, TimeBuckets())
      .Observe(Seconds(took).count());
}

void ManagerMetrics::CountCall(const kube::CallRecord& call) {
  const std::string verb(call.verb);
  impl_->calls
      .Add({{"verb", verb},
            {"kind", std::string(call.type.kind)},
            {"code", absl::StatusCodeToString(call.code)}})
      .Increment();
  // A watch lasts as long as it was asked to.
  if (call.verb != "watch")
    impl_->call_seconds.Add({{"verb", verb}}, TimeBuckets())
        .Observe(Seconds(call.took).count());
}

std::string ManagerMetrics::Text(const ManagerLevels& levels) const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  AddLoops(levels, families);
  AddInformers(levels, families);
  AddProcess(levels, families);
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tidepool::runtime::internal
