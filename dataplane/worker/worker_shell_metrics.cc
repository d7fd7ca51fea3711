#include "dataplane/worker/worker_shell_metrics.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>
#include <prometheus/metric_type.h>
#include <prometheus/text_serializer.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <utility>
#include <vector>

namespace tidepool::worker {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

struct Sample {
  double value = 0;
  std::vector<ClientMetric::Label> labels;
};

class Families {
 public:
  void Gauge(const char* name, const char* help,
             std::initializer_list<Sample> samples) {
    Add(name, help, MetricType::Gauge, samples);
  }
  void Counter(const char* name, const char* help,
               std::initializer_list<Sample> samples) {
    Add(name, help, MetricType::Counter, samples);
  }
  std::vector<MetricFamily> Take() { return std::move(families_); }

 private:
  void Add(const char* name, const char* help, MetricType type,
           std::initializer_list<Sample> samples) {
    MetricFamily family;
    family.name = name;
    family.help = help;
    family.type = type;
    for (const Sample& sample : samples) {
      ClientMetric metric;
      metric.label = sample.labels;
      (type == MetricType::Gauge ? metric.gauge.value : metric.counter.value) =
          sample.value;
      family.metric.push_back(std::move(metric));
    }
    families_.push_back(std::move(family));
  }

  std::vector<MetricFamily> families_;
};

Sample In(const char* state, double value) {
  return {value, {{"state", state}}};
}

Sample Moved(const char* direction, const char* transport, uint64_t bytes) {
  return {static_cast<double>(bytes),
          {{"direction", direction}, {"transport", transport}}};
}

void AddEngine(const engine::EngineStats& stats, Families& out) {
  out.Gauge(
      "tidepool_worker_pages", "KV pages by what they are used for.",
      {In("free", stats.pages_free), In("cached", stats.pages_cached),
       In("running", stats.pages_running), In("reserved", stats.pages_reserved),
       In("held", stats.pages_held)});
  out.Gauge("tidepool_worker_sequences", "Sequences in the engine.",
            {In("waiting", stats.waiting), In("running", stats.running),
             In("reserved", stats.reserved), In("held", stats.held)});
  const auto count = [&](const char* name, const char* help, int64_t value) {
    out.Counter(name, help, {{static_cast<double>(value), {}}});
  };
  out.Gauge("tidepool_worker_queued_prefill_tokens",
            "Prompt tokens not computed yet.",
            {{static_cast<double>(stats.queued_prefill_tokens), {}}});
  out.Gauge("tidepool_worker_context_tokens",
            "Context of the running sequences.",
            {{static_cast<double>(stats.context_tokens), {}}});
  count("tidepool_worker_steps_total", "Iterations of the batch.", stats.steps);
  count("tidepool_worker_computed_tokens_total", "Tokens computed.",
        stats.computed_tokens);
  count("tidepool_worker_preemptions_total",
        "Sequences that gave their pages back.", stats.preemptions);
  count("tidepool_worker_prefix_query_tokens_total",
        "Tokens looked up in the prefix cache.", stats.prefix_query_tokens);
  count("tidepool_worker_prefix_hit_tokens_total",
        "Tokens found in the prefix cache.", stats.prefix_hit_tokens);
}

void AddCore(const WorkerCoreStats& stats, Families& out) {
  const auto gauge = [&](const char* name, const char* help, uint32_t value) {
    out.Gauge(name, help, {{static_cast<double>(value), {}}});
  };
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    out.Counter(name, help, {{static_cast<double>(value), {}}});
  };
  gauge("tidepool_worker_conductor_connections", "Conductors connected.",
        stats.sessions);
  gauge("tidepool_worker_requests", "Requests here, ending ones included.",
        stats.requests);
  gauge("tidepool_worker_reserved_requests", "Reservations not committed.",
        stats.reservations);
  gauge("tidepool_worker_quarantined_requests", "Capabilities being revoked.",
        stats.quarantined);
  gauge("tidepool_worker_streaming_requests", "Handovers being sent.",
        stats.streams);
  count("tidepool_worker_submitted_total", "Requests taken.",
        stats.submitted_total);
  count("tidepool_worker_handed_over_total",
        "Requests handed to a decode worker.", stats.handed_over_total);
  count("tidepool_worker_received_total",
        "Requests taken over from a prefill worker.", stats.received_total);
  count("tidepool_worker_expired_reservations_total",
        "Reservations nobody renewed.", stats.expired_reservations_total);
  count("tidepool_worker_peer_retries_total",
        "Calls to other workers repeated.", stats.peer_retries_total);
  count("tidepool_worker_stale_calls_total",
        "Calls refused for an old attempt.", stats.stale_calls_total);
  count("tidepool_worker_digest_failures_total",
        "Commits whose KV was not what was sent.", stats.digest_failures_total);
  count("tidepool_worker_session_gaps_total", "Sessions ended for a gap.",
        stats.session_gaps_total);
  count("tidepool_worker_role_switches_total", "Changes of role.",
        stats.role_switches_total);
  count("tidepool_worker_handed_back_total",
        "Requests handed back, not done when there was no more time.",
        stats.handed_back_total);
}

void AddRole(const wire::RoleState& role, Families& out) {
  const auto is = [](bool yes) { return yes ? 1.0 : 0.0; };
  out.Gauge("tidepool_worker_role_info", "1 for the role that is served.",
            {{is(role.role() == wire::ROLE_PREFILL), {{"role", "prefill"}}},
             {is(role.role() == wire::ROLE_DECODE), {{"role", "decode"}}}});
  out.Gauge("tidepool_worker_role_switches_running", "1 during a switch.",
            {{is(role.target() != wire::ROLE_UNSPECIFIED), {}}});
}

void AddTransfer(const transfer::MessengerStats& stats, Families& out) {
  out.Counter("tidepool_worker_transfer_bytes_total",
              "KV moved and acknowledged.",
              {Moved("sent", "tcp", stats.sent_bytes_tcp),
               Moved("sent", "shm", stats.sent_bytes_shm),
               Moved("received", "tcp", stats.received_bytes_tcp),
               Moved("received", "shm", stats.received_bytes_shm)});
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    out.Counter(name, help, {{static_cast<double>(value), {}}});
  };
  const auto gauge = [&](const char* name, const char* help, uint64_t value) {
    out.Gauge(name, help, {{static_cast<double>(value), {}}});
  };
  count("tidepool_worker_transfer_failed_slices_total", "Slices not delivered.",
        stats.failed_slices);
  count("tidepool_worker_transfer_refused_slices_total", "Slices refused here.",
        stats.refused_slices);
  count("tidepool_worker_transfer_corrupt_slices_total",
        "Slices that arrived damaged.", stats.corrupt_slices);
  count("tidepool_worker_transfer_rejected_connections_total",
        "Connections refused or closed for misbehaviour.",
        stats.rejected_connections);
  gauge("tidepool_worker_transfer_granted_requests",
        "Windows that may be written.", stats.grants);
  gauge("tidepool_worker_transfer_slices_waiting", "Slices not yet delivered.",
        stats.pending_slices);
  gauge("tidepool_worker_transfer_connections",
        "Connections from other workers.", stats.inbound_connections);
}

void AddProcess(Families& out) {
  std::error_code error;
  double descriptors = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd", error)) {
    (void)entry;
    ++descriptors;
  }
  out.Gauge("process_open_fds", "Open file descriptors.", {{descriptors, {}}});
  std::ifstream file("/proc/self/statm");
  double total = 0, resident = 0;
  file >> total >> resident;
  out.Gauge("process_resident_memory_bytes", "Resident memory.",
            {{resident * static_cast<double>(sysconf(_SC_PAGESIZE)), {}}});
}

}  // namespace

std::string RenderMetrics(const MetricsSource& source) {
  Families families;
  families.Gauge("tidepool_worker_model_loaded_ratio",
                 "Share of the model that is loaded; 1 when ready.",
                 {{source.loaded, {}}});
  if (source.worker) {
    AddEngine(source.worker->engine, families);
    AddCore(source.worker->core, families);
    AddRole(source.worker->role, families);
  }
  AddTransfer(source.transfer, families);
  AddProcess(families);
  return prometheus::TextSerializer().Serialize(families.Take());
}

}  // namespace tidepool::worker
