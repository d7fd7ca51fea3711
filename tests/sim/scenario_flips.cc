// Planners that change the roles of workers, more than one at a time.
#include <algorithm>

#include "tests/sim/scenario.h"

namespace tidepool::sim {

using std::chrono::milliseconds;

namespace {

constexpr auto kDrainMax = milliseconds(500);
constexpr auto kRestorePause = milliseconds(200);
constexpr size_t kLeadersMax = 2;

}  // namespace

void Scenario::DrawFlips() {
  if (kind_ == ScenarioKind::kFlips) {
    flip_pause_ = milliseconds(Between(10, 60));
  } else if (random_.Chance(0.4)) {
    flip_pause_ = milliseconds(Between(50, 1500));
  }
  leaders_.push_back({.term = ++last_term_});
}

bool Scenario::MayFlip(const Node& node) const {
  const auto anchor = std::ranges::find_if(nodes_, [&](const auto& other) {
    return other->config.role == wire::ROLE_DECODE &&
           other->config.model.weights == node.config.model.weights;
  });
  return anchor != nodes_.end() && anchor->get() != &node;
}

void Scenario::Flip() {
  if (healed_) return;
  if (random_.Chance(0.05)) {
    leaders_.push_back({.term = ++last_term_});
    if (leaders_.size() > kLeadersMax) leaders_.erase(leaders_.begin());
  }
  Leader& leader = leaders_[random_.Below(leaders_.size())];
  Node& node = *nodes_[random_.Below(nodes_.size())];
  if (MayFlip(node)) {
    Command(leader, node,
            random_.Chance(0.5) ? wire::ROLE_PREFILL : wire::ROLE_DECODE,
            random_.Chance(0.2) ? Duration(0) : RandomDuration(kDrainMax));
  }
  queue_.In(RandomDuration(2 * flip_pause_), [this] { Flip(); });
}

void Scenario::Command(Leader& leader, Node& node, wire::Role role,
                       Duration drain) {
  wire::SetRoleRequest request;
  request.set_role(role);
  request.mutable_epoch()->set_term(leader.term);
  request.mutable_epoch()->set_sequence(++leader.sequence);
  request.set_incarnation(node.config.incarnation);
  request.set_drain_timeout_ms(static_cast<uint32_t>(
      std::chrono::duration_cast<milliseconds>(drain).count()));
  // Whoever lives at the address when it arrives gets it.
  const auto deliver = [this, &node, request] {
    PostAt(
        queue_, node.process, queue_.now(),
        [process = node.process.get(), request] { process->SetRole(request); });
  };
  if (!random_.Chance(network_.config.call_loss)) {
    queue_.In(network_.Delay(), deliver);
  }
  if (random_.Chance(network_.config.call_repeat)) {
    queue_.In(RandomDuration(std::chrono::seconds(12)), deliver);
  }
}

void Scenario::RestoreRoles() {
  bool done = true;
  for (const auto& node : nodes_) {
    const wire::RoleState& state = node->process->core().role_state();
    // A role that is right without the last leader's word may not stay so:
    // commands of others are still on their way.
    if (node->process->alive && state.role() == node->config.role &&
        state.target() == wire::ROLE_UNSPECIFIED &&
        state.epoch().term() == leaders_.back().term) {
      continue;
    }
    done = false;
    Command(leaders_.back(), *node, node->config.role,
            RandomDuration(kDrainMax));
  }
  if (!done) queue_.In(kRestorePause, [this] { RestoreRoles(); });
}

void Scenario::CheckRoles() {
  for (const auto& node : nodes_) {
    const wire::RoleState& state = node->process->core().role_state();
    if (state.role() != node->config.role ||
        state.target() != wire::ROLE_UNSPECIFIED) {
      Fail(fmt::format("{}: its role is {}, to become {}", node->config.name,
                       static_cast<int>(state.role()),
                       static_cast<int>(state.target())));
    }
    for (const auto& replica : replicas_) {
      for (const conductor::WorkerStatus& worker :
           replica->process->core().Workers()) {
        if (worker.address != node->config.address || !worker.connected ||
            worker.description.role() == node->config.role) {
          continue;
        }
        Fail(fmt::format("{}: believes {} to have role {}",
                         replica->config.conductor_id, worker.name,
                         static_cast<int>(worker.description.role())));
      }
    }
  }
}

}  // namespace tidepool::sim
