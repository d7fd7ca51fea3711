#include "dataplane/conductor/gateway_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "dataplane/base/mutex.h"
#include "dataplane/conductor/fleet_report.h"
#include "dataplane/conductor/http_server.h"

namespace tidepool::conductor {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Buckets = prometheus::Histogram::BucketBoundaries;

namespace {

const Buckets kTtftBuckets = {.001, .0025, .005, .01, .02, .04, .06,
                              .08,  .1,    .25,  .5,  .75, 1,   2.5,
                              5,    7.5,   10,   20,  40,  80,  160};
const Buckets kTbtBuckets = {.0005, .001, .0025, .005, .01, .025, .05, .075,
                             .1,    .15,  .2,    .3,   .4,  .5,   .75, 1,
                             2.5,   5,    7.5,   10,   20,  40,   80};
const Buckets kEndToEndBuckets = {.005, .01, .025, .05, .1,  .3,  .5,  .8,
                                  1,    1.5, 2,    2.5, 5,   10,  15,  20,
                                  30,   40,  50,   60,  120, 240, 480, 960};

constexpr std::array<std::string_view, 6> kEndpoints = {
    "/v1/completions", "/v1/chat/completions", "/v1/models",
    "/tokenize",       "/detokenize",          "other"};
// Others are counted as "other".
constexpr std::array<int, 12> kStatuses = {200, 400, 401, 404, 405, 413,
                                           429, 499, 500, 503, 504, 408};
constexpr std::array<std::string_view, 4> kOutcomes = {"stop", "length",
                                                       "abort", "error"};

// The same figures under the names that boards made for vLLM read.
struct Twin {
  std::string_view name, vllm_name;
};
constexpr Twin kTwins[] = {
    {"tidepool_gateway_ttft_seconds", "vllm:time_to_first_token_seconds"},
    {"tidepool_gateway_tbt_seconds", "vllm:time_per_output_token_seconds"},
    {"tidepool_gateway_tbt_seconds", "vllm:inter_token_latency_seconds"},
    {"tidepool_gateway_e2e_seconds", "vllm:e2e_request_latency_seconds"},
    {"tidepool_gateway_choices_running", "vllm:num_requests_running"},
    {"tidepool_gateway_choices_waiting", "vllm:num_requests_waiting"},
    {"tidepool_gateway_prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"tidepool_gateway_generated_tokens_total", "vllm:generation_tokens_total"},
    {"tidepool_gateway_choices_total", "vllm:request_success_total"},
    {"tidepool_gateway_prompt_tokens_total", "vllm:prefix_cache_queries_total"},
    {"tidepool_gateway_cached_tokens_total", "vllm:prefix_cache_hits_total"},
    {"tidepool_fleet_kv_used_ratio", "vllm:kv_cache_usage_perc"},
    {"tidepool_fleet_worker_preemptions_total", "vllm:num_preemptions_total"},
};

MetricFamily FamilyOf(std::string name, std::string help, MetricType type) {
  MetricFamily family;
  family.name = std::move(name);
  family.help = std::move(help);
  family.type = type;
  return family;
}

using Labels = std::vector<ClientMetric::Label>;

void AddSample(MetricFamily& family, Labels labels, double value) {
  ClientMetric metric;
  metric.label = std::move(labels);
  (family.type == MetricType::Counter ? metric.counter.value
                                      : metric.gauge.value) = value;
  family.metric.push_back(std::move(metric));
}

// What boards for vLLM select by stands on every sample of a twin.
void AddModelName(MetricFamily& family, const std::string& model_name) {
  for (ClientMetric& metric : family.metric)
    if (std::ranges::find(metric.label, "model_name",
                          &ClientMetric::Label::name) == metric.label.end())
      metric.label.push_back({"model_name", model_name});
}

std::vector<MetricFamily> WorkerFamilies(const FleetSnapshot& fleet) {
  struct Column {
    const char *name, *help;
    MetricType type;
    double (*value)(const WorkerStatus&);
  };
  static constexpr Column kColumns[] = {
      {"tidepool_fleet_ready_workers", "1 if the worker takes requests.",
       MetricType::Gauge,
       [](const WorkerStatus& w) { return w.ready ? 1.0 : 0.0; }},
      {"tidepool_fleet_worker_running_requests", "In the worker's batch.",
       MetricType::Gauge,
       [](const WorkerStatus& w) { return double(w.load.running_requests()); }},
      {"tidepool_fleet_worker_waiting_requests", "Waiting in the worker.",
       MetricType::Gauge,
       [](const WorkerStatus& w) { return double(w.load.waiting_requests()); }},
      {"tidepool_fleet_worker_queued_prefill_tokens",
       "Prompt tokens that the worker has still to compute.", MetricType::Gauge,
       [](const WorkerStatus& w) {
         return double(w.load.queued_prefill_tokens());
       }},
      {"tidepool_fleet_worker_pages", "KV pages of the worker.",
       MetricType::Gauge,
       [](const WorkerStatus& w) { return double(w.load.pages_total()); }},
      {"tidepool_fleet_worker_free_pages", "KV pages free or evictable.",
       MetricType::Gauge,
       [](const WorkerStatus& w) { return double(w.load.pages_free()); }},
      {"tidepool_fleet_worker_preemptions_total",
       "Requests preempted since the worker started.", MetricType::Counter,
       [](const WorkerStatus& w) {
         return double(w.load.preemptions_total());
       }},
      {"tidepool_fleet_worker_sessions_lost_total",
       "Sessions that ended in error.", MetricType::Counter,
       [](const WorkerStatus& w) { return double(w.failures); }},
  };
  std::vector<MetricFamily> families;
  for (const Column& column : kColumns) {
    families.push_back(FamilyOf(column.name, column.help, column.type));
    for (const WorkerStatus& worker : fleet.workers)
      AddSample(
          families.back(),
          {{"worker", worker.name}, {"role", std::string(RoleName(worker))}},
          column.value(worker));
  }
  return families;
}

double KvUsedRatio(const FleetSnapshot& fleet) {
  double total = 0, free = 0;
  for (const WorkerStatus& worker : fleet.workers) {
    if (worker.description.role() == wire::ROLE_PREFILL) continue;
    total += worker.load.pages_total();
    free += worker.load.pages_free();
  }
  return total > 0 ? 1 - free / total : 0;
}

}  // namespace

struct GatewayMetrics::Impl {
  explicit Impl(std::string name)
      : model{{"model_name", std::move(name)}},
        ttft(Histogram("tidepool_gateway_ttft_seconds",
                       "From arrival to the first token.", kTtftBuckets)),
        tbt(Histogram("tidepool_gateway_tbt_seconds",
                      "Between one token and the next.", kTbtBuckets)),
        e2e(Histogram("tidepool_gateway_e2e_seconds",
                      "From arrival to the last token.", kEndToEndBuckets)),
        prompt_tokens(Counter("tidepool_gateway_prompt_tokens_total",
                              "Prompt tokens of requests that got a token.")),
        cached_tokens(Counter("tidepool_gateway_cached_tokens_total",
                              "Prompt tokens that were not computed.")),
        generated_tokens(Counter("tidepool_gateway_generated_tokens_total",
                                 "Tokens that reached the gateway.")),
        migrations(Counter("tidepool_gateway_migrations_total",
                           "Streams continued on another worker.")),
        waiting(Gauge("tidepool_gateway_choices_waiting",
                      "Choices without a first token.")),
        running(Gauge("tidepool_gateway_choices_running",
                      "Choices being generated.")) {
    auto& requests = prometheus::BuildCounter()
                         .Name("tidepool_gateway_requests_total")
                         .Help(
                             "Requests answered, by status; 499: the client "
                             "left first.")
                         .Register(registry);
    for (size_t e = 0; e < kEndpoints.size(); ++e)
      for (size_t s = 0; s <= kStatuses.size(); ++s) {
        prometheus::Labels labels = model;
        labels["endpoint"] = kEndpoints[e];
        labels["code"] = s < kStatuses.size() ? std::to_string(kStatuses[s])
                                              : std::string("other");
        requests_total[e][s] = &requests.Add(labels);
      }
    auto& choices = prometheus::BuildCounter()
                        .Name("tidepool_gateway_choices_total")
                        .Help("Choices ended, by reason.")
                        .Register(registry);
    for (size_t i = 0; i < kOutcomes.size(); ++i) {
      prometheus::Labels labels = model;
      labels["finished_reason"] = kOutcomes[i];
      choices_total[i] = &choices.Add(labels);
    }
  }

  prometheus::Histogram& Histogram(const char* name, const char* help,
                                   const Buckets& buckets) {
    return prometheus::BuildHistogram()
        .Name(name)
        .Help(help)
        .Register(registry)
        .Add(model, buckets);
  }
  prometheus::Counter& Counter(const char* name, const char* help) {
    return prometheus::BuildCounter()
        .Name(name)
        .Help(help)
        .Register(registry)
        .Add(model);
  }
  prometheus::Gauge& Gauge(const char* name, const char* help) {
    return prometheus::BuildGauge()
        .Name(name)
        .Help(help)
        .Register(registry)
        .Add(model);
  }
  std::vector<MetricFamily> Derived(const FleetSnapshot& fleet,
                                    const HttpServerStats& http) const;

  prometheus::Registry registry;
  const prometheus::Labels model;
  prometheus::Histogram &ttft, &tbt, &e2e;
  prometheus::Counter &prompt_tokens, &cached_tokens, &generated_tokens,
      &migrations;
  prometheus::Gauge &waiting, &running;
  std::array<std::array<prometheus::Counter*, kStatuses.size() + 1>,
             kEndpoints.size()>
      requests_total{};
  std::array<prometheus::Counter*, kOutcomes.size()> choices_total{};

  mutable Mutex mutex;
  LatencyWindow ttft_window ABSL_GUARDED_BY(mutex);
  LatencyWindow tbt_window ABSL_GUARDED_BY(mutex);
};

GatewayMetrics::GatewayMetrics(std::string model_name)
    : impl_(std::make_unique<Impl>(std::move(model_name))) {}
GatewayMetrics::~GatewayMetrics() = default;

void GatewayMetrics::CountRequest(Endpoint endpoint, int status) {
  const auto known = std::ranges::find(kStatuses, status);
  impl_
      ->requests_total[static_cast<size_t>(endpoint)]
                      [static_cast<size_t>(known - kStatuses.begin())]
      ->Increment();
}
void GatewayMetrics::CountChoice(Outcome outcome) {
  impl_->choices_total[static_cast<size_t>(outcome)]->Increment();
}
void GatewayMetrics::CountPrompt(int64_t prompt_tokens, int64_t cached_tokens) {
  impl_->prompt_tokens.Increment(static_cast<double>(prompt_tokens));
  impl_->cached_tokens.Increment(static_cast<double>(cached_tokens));
}
void GatewayMetrics::CountGenerated(int64_t tokens) {
  impl_->generated_tokens.Increment(static_cast<double>(tokens));
}
void GatewayMetrics::CountMigration() { impl_->migrations.Increment(); }

void GatewayMetrics::ObserveTtft(Duration time, TimePoint now) {
  impl_->ttft.Observe(Seconds(time).count());
  const MutexLock lock(&impl_->mutex);
  impl_->ttft_window.Add(time, 1, now);
}
void GatewayMetrics::ObserveEndToEnd(Duration time) {
  impl_->e2e.Observe(Seconds(time).count());
}
void GatewayMetrics::ObserveTbt(Duration time, int64_t tokens, TimePoint now) {
  const double each = Seconds(time).count() / static_cast<double>(tokens);
  for (int64_t i = 0; i < tokens; ++i) impl_->tbt.Observe(each);
  const MutexLock lock(&impl_->mutex);
  impl_->tbt_window.Add(time / tokens, static_cast<uint64_t>(tokens), now);
}

ServingReport GatewayMetrics::Report(TimePoint now) const {
  ServingReport report;
  for (const Endpoint endpoint :
       {Endpoint::kCompletions, Endpoint::kChatCompletions}) {
    const auto& by_status =
        impl_->requests_total[static_cast<size_t>(endpoint)];
    for (size_t i = 0; i < by_status.size(); ++i) {
      const auto count = static_cast<uint64_t>(by_status[i]->Value());
      report.requests_total += count;
      if (i < kStatuses.size() && (kStatuses[i] == 429 || kStatuses[i] == 503))
        report.rejected_total += count;
    }
  }
  const auto whole = [](const prometheus::Counter& counter) {
    return static_cast<uint64_t>(counter.Value());
  };
  report.prompt_tokens_total = whole(impl_->prompt_tokens);
  report.cached_prompt_tokens_total = whole(impl_->cached_tokens);
  report.output_tokens_total = whole(impl_->generated_tokens);
  const MutexLock lock(&impl_->mutex);
  report.ttft = impl_->ttft_window.Quantiles(now);
  report.tbt = impl_->tbt_window.Quantiles(now);
  return report;
}

void GatewayMetrics::AddWaiting(int64_t delta) {
  impl_->waiting.Increment(static_cast<double>(delta));
}
void GatewayMetrics::AddRunning(int64_t delta) {
  impl_->running.Increment(static_cast<double>(delta));
}

// What others count, in our families.
std::vector<MetricFamily> GatewayMetrics::Impl::Derived(
    const FleetSnapshot& fleet, const HttpServerStats& http) const {
  std::vector<MetricFamily> families = WorkerFamilies(fleet);
  const auto add = [&](const char* name, const char* help, MetricType type,
                       double value) {
    families.push_back(FamilyOf(name, help, type));
    AddSample(families.back(), {}, value);
  };
  families.push_back(FamilyOf("tidepool_fleet_kv_used_ratio",
                              "Share of the decode workers' KV pages in use.",
                              MetricType::Gauge));
  AddSample(families.back(), {{"model_name", model.at("model_name")}},
            KvUsedRatio(fleet));
  add("tidepool_conductor_retries_total",
      "Attempts that failed and were "
      "retried.",
      MetricType::Counter, double(fleet.stats.retries));
  add("tidepool_conductor_overloads_total",
      "Attempts that a worker refused for want of room.", MetricType::Counter,
      double(fleet.stats.overloads));
  add("tidepool_conductor_handed_back_total",
      "Attempts that a worker gave back, draining or changing its role.",
      MetricType::Counter, double(fleet.stats.hand_backs));
  const scheduling::PoolPressure saturation = SaturationOf(fleet);
  families.push_back(FamilyOf("tidepool_conductor_saturation_ratio",
                              "How full the workers of each role are, 1 being "
                              "full: the signal for autoscalers.",
                              MetricType::Gauge));
  AddSample(families.back(), {{"role", "prefill"}}, saturation.prefill);
  AddSample(families.back(), {{"role", "decode"}}, saturation.decode);
  add("tidepool_conductor_stale_outputs_total",
      "Outputs of attempts that were over.", MetricType::Counter,
      double(fleet.stats.stale_outputs));
  add("tidepool_conductor_requests", "Requests that the conductor tracks.",
      MetricType::Gauge, fleet.stats.requests);
  add("tidepool_conductor_waiting_requests", "Requests without a worker.",
      MetricType::Gauge, fleet.stats.waiting);
  families.push_back(FamilyOf("tidepool_conductor_requests_ended_total",
                              "Requests ended, by reason.",
                              MetricType::Counter));
  for (size_t i = 0; i < std::size(fleet.stats.ended); ++i)
    AddSample(families.back(),
              {{"reason", std::string(NameOf(static_cast<EndReason>(i)))}},
              double(fleet.stats.ended[i]));
  add("tidepool_gateway_connections", "Open client connections.",
      MetricType::Gauge, double(http.connections));
  add("tidepool_gateway_connections_refused_total",
      "Connections beyond the limit.", MetricType::Counter,
      double(http.connections_refused_total));
  add("tidepool_gateway_slow_readers_cut_total",
      "Clients cut for not reading their answer.", MetricType::Counter,
      double(http.slow_readers_cut_total));
  return families;
}

std::string GatewayMetrics::Render(const FleetSnapshot& fleet,
                                   const HttpServerStats& http) const {
  std::vector<MetricFamily> families = impl_->registry.Collect();
  for (MetricFamily& family : impl_->Derived(fleet, http))
    families.push_back(std::move(family));
  std::vector<MetricFamily> twins;
  for (const Twin& twin : kTwins) {
    const auto found =
        std::ranges::find(families, twin.name, &MetricFamily::name);
    if (found == families.end()) continue;
    twins.push_back(*found);
    twins.back().name = twin.vllm_name;
    AddModelName(twins.back(), impl_->model.at("model_name"));
  }
  for (MetricFamily& twin : twins) families.push_back(std::move(twin));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace tidepool::conductor
