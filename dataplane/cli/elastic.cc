#include "dataplane/cli/elastic.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "dataplane/cli/elastic_core.h"
#include "dataplane/fleet/fleet_client.h"

namespace tidepool::cli {
namespace {

constexpr std::chrono::milliseconds kReportInterval(500);

}  // namespace

class Elastic::Impl {
 public:
  // The term: this start's roles are newer than those of any earlier one.
  Impl(const ElasticConfig& config, std::vector<ElasticWorker> workers)
      : core_(config, std::move(workers),
              static_cast<uint64_t>(UnixSeconds() * 1000), clock_.Now()),
        client_(fleet::FleetClient::Create({.report_interval = kReportInterval},
                                           clock_)) {}

  std::vector<std::string> Tend(const std::string& control_address) {
    std::vector<std::string> lines;
    const TimePoint now = clock_.Now();
    for (const auto& answer : client_->TakeAnswers()) {
      std::string line = core_.OnAnswer(answer, now);
      if (!line.empty()) lines.push_back(std::move(line));
    }
    if (now < next_) return lines;
    next_ = now + kReportInterval;
    std::vector<std::string> conductors;
    if (!control_address.empty()) conductors.push_back(control_address);
    client_->Watch(conductors);
    ElasticCore::Turn turn = core_.Decide(client_->Reports(), now);
    for (const fleet::RoleCall& call : turn.calls) client_->SetRole(call);
    std::ranges::move(turn.lines, std::back_inserter(lines));
    return lines;
  }

 private:
  const Clock& clock_ = Clock::Monotonic();
  ElasticCore core_;
  TimePoint next_{};
  const std::unique_ptr<fleet::FleetClient> client_;
};

Elastic::Elastic(const ElasticConfig& config,
                 std::vector<ElasticWorker> workers)
    : impl_(std::make_unique<Impl>(config, std::move(workers))) {}
Elastic::~Elastic() = default;

std::vector<std::string> Elastic::Tend(const std::string& control_address) {
  return impl_->Tend(control_address);
}

}  // namespace tidepool::cli
