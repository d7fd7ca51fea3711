#include "controller/reconcilers/rebalancing/loans.h"

#include <algorithm>
#include <optional>

#include "controller/kube/json_fields.h"

namespace tidepool::reconcilers {
namespace {

using kube::TextAt;

constexpr std::string_view kPhases[] = {"Switching", "Lent", "Returning"};

std::optional<Loan> ReadLoan(const Json& entry) {
  if (!entry.is_object()) return std::nullopt;
  Loan loan{.pod = TextAt(entry, "pod"),
            .uid = TextAt(entry, "podUID"),
            .since = TextAt(entry, "since")};
  const std::string role = TextAt(entry, "role");
  const auto* const phase =
      std::ranges::find(kPhases, std::string_view(TextAt(entry, "phase")));
  if (loan.uid.empty() || phase == std::end(kPhases) ||
      (role != "Prefill" && role != "Decode"))
    return std::nullopt;
  loan.role = role == "Prefill" ? WorkerRole::kPrefill : WorkerRole::kDecode;
  loan.phase = static_cast<Loan::Phase>(phase - std::begin(kPhases));
  return loan;
}

const WorkerSeen* Find(const std::map<std::string, WorkerSeen>& workers,
                       const PodView& pod) {
  const auto found = workers.find(pod.key.name);
  // A pod that was replaced has its name, and another address.
  return found == workers.end() || found->second.host != pod.ip ||
                 !found->second.role.has_value()
             ? nullptr
             : &found->second;
}

bool Has(const WorkerSeen& worker, WorkerRole role) {
  return worker.role == role && !worker.target.has_value();
}

// Those that serve it and were not told to leave it.
std::ptrdiff_t CountServing(const std::map<std::string, WorkerSeen>& workers,
                            WorkerRole role) {
  return std::ranges::count_if(workers, [role](const auto& entry) {
    return Has(entry.second, role) && entry.second.ready &&
           !entry.second.draining;
  });
}

}  // namespace

std::vector<Loan> ReadLoans(const Json& status) {
  std::vector<Loan> loans;
  if (!status.is_object()) return loans;
  const auto list = status.find("lent");
  if (list == status.end() || !list->is_array()) return loans;
  for (const Json& entry : *list)
    if (auto loan = ReadLoan(entry)) loans.push_back(*std::move(loan));
  return loans;
}

Json ToJson(const std::vector<Loan>& loans) {
  Json list = Json::array();
  for (const Loan& loan : loans)
    list.push_back({{"pod", loan.pod},
                    {"podUID", loan.uid},
                    {"role", ApiNameOf(loan.role)},
                    {"since", loan.since},
                    {"phase", kPhases[static_cast<size_t>(loan.phase)]}});
  return list;
}

std::string_view LabelOf(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "prefill" : "decode";
}

std::string_view ApiNameOf(WorkerRole role) {
  return role == WorkerRole::kPrefill ? "Prefill" : "Decode";
}

WorkerRole RoleOf(const PoolState& pool) {
  return pool.spec.is_prefill ? WorkerRole::kPrefill : WorkerRole::kDecode;
}

std::map<std::string, WorkerSeen> MergeWorkers(const FleetSnapshot& fleet,
                                               TimePoint now,
                                               Duration age_max) {
  std::vector<const ConductorSeen*> by_age;
  for (const ConductorSeen& conductor : fleet)
    if (now - conductor.at <= age_max) by_age.push_back(&conductor);
  std::ranges::stable_sort(by_age, std::ranges::greater(), &ConductorSeen::at);
  std::map<std::string, WorkerSeen> workers;
  for (const ConductorSeen* conductor : by_age) {
    for (const WorkerSeen& worker : conductor->workers) {
      const auto [known, is_new] = workers.emplace(worker.name, worker);
      if (!is_new && !known->second.connected && worker.connected)
        known->second = worker;
    }
  }
  std::erase_if(workers,
                [](const auto& entry) { return !entry.second.connected; });
  return workers;
}

LoanStep SettleLoans(const PoolState& pool,
                     const std::map<std::string, WorkerSeen>& workers,
                     bool all_return) {
  LoanStep step;
  const std::vector<Loan> loans = ReadLoans(pool.observed->status);
  std::map<WorkerRole, std::ptrdiff_t> serving;
  for (const WorkerRole role : {WorkerRole::kPrefill, WorkerRole::kDecode})
    serving[role] = CountServing(workers, role);
  for (const auto& pod : pool.observed->pods) {
    if (pod->finished) continue;
    const auto entry = std::ranges::find(loans, pod->uid, &Loan::uid);
    std::optional<Loan> loan;
    if (entry != loans.end()) loan = *entry;
    if (loan.has_value() && all_return) loan->phase = Loan::Phase::kReturning;
    const bool is_lent =
        loan.has_value() && loan->phase != Loan::Phase::kReturning;
    const WorkerRole wanted = is_lent ? loan->role : RoleOf(pool);
    const WorkerSeen* const worker = Find(workers, *pod);
    if (worker != nullptr && Has(*worker, wanted)) {
      if (is_lent) {
        loan->phase = Loan::Phase::kLent;
      } else {
        loan.reset();
      }
      if (pod->role != LabelOf(wanted))
        step.labels.push_back({pod.get(), worker->incarnation, wanted});
    } else if (worker != nullptr && worker->target != wanted && worker->ready &&
               !pod->terminating) {
      // One that started anew in its pool's role may have become the last that
      // serves it, and one under way be the first of a role, on the word of
      // somebody whose writes have not reached us yet.
      const WorkerRole left = worker->target.value_or(*worker->role);
      const bool serves = Has(*worker, left);
      if (!all_return && serving[left] <= (serves ? 1 : 0)) {
        if (loan.has_value()) step.loans.push_back(*std::move(loan));
        continue;
      }
      if (serves) --serving[left];
      step.asks.push_back({pod.get(), worker->incarnation, wanted});
    }
    if (loan.has_value()) step.loans.push_back(*std::move(loan));
  }
  return step;
}

}  // namespace tidepool::reconcilers
