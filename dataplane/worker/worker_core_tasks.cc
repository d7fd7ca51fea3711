// Attempts: which are admitted, how they end, and what is remembered of them.
#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/worker/worker_core_impl.h"

namespace tidepool::worker {

std::string WorkerCore::Impl::KeyOf(const wire::RequestHeader& header) {
  // With the first part's length, no two of them read alike.
  return fmt::format("{}:{}/{:x}/{}", header.conductor_id().size(),
                     header.conductor_id(), header.conductor_incarnation(),
                     header.request_id());
}

Task* WorkerCore::Impl::FindLive(const wire::RequestHeader& header) {
  const auto it = live_.find(KeyOf(header));
  if (it == live_.end()) return nullptr;
  Task& task = tasks_.at(it->second);
  return task.header.attempt() == header.attempt() ? &task : nullptr;
}

const WorkerCore::Impl::Ended* WorkerCore::Impl::FindEnded(
    const std::string& key) const {
  const auto it = ended_.find(key);
  return it == ended_.end() ? nullptr : &it->second;
}

void WorkerCore::Impl::RememberEnded(const std::string& key, uint32_t attempt,
                                     bool committed) {
  const auto [it, added] = ended_.try_emplace(key);
  if (!added && it->second.attempt > attempt) return;
  it->second = {.attempt = attempt, .committed = committed};
  if (!added) return;
  ended_order_.push_back(key);
  if (ended_order_.size() <= config_.max_ended_attempts) return;
  ended_.erase(ended_order_.front());
  ended_order_.pop_front();
}

Status WorkerCore::Impl::AdmitAttempt(const wire::RequestHeader& header,
                                      TimePoint now) {
  const std::string key = KeyOf(header);
  const Ended* ended = FindEnded(key);
  if (ended != nullptr && ended->attempt >= header.attempt()) {
    ++stats_.stale_calls_total;
    return FailedPrecondition("attempt {} of request {} is over",
                              header.attempt(), header.request_id());
  }
  const auto live = live_.find(key);
  if (live != live_.end()) {
    Task& task = tasks_.at(live->second);
    if (task.header.attempt() >= header.attempt()) {
      ++stats_.stale_calls_total;
      return FailedPrecondition("attempt {} of request {} is running already",
                                task.header.attempt(), header.request_id());
    }
    End(task, now);
  }
  if (tasks_.size() >= config_.max_requests) {
    return ResourceExhausted("{} requests are here", tasks_.size());
  }
  return OkStatus();
}

Task& WorkerCore::Impl::AddTask(const wire::RequestHeader& header,
                                SessionId session, TimePoint now) {
  const TaskId id = next_task_++;
  Task& task = tasks_[id];
  task.id = id;
  task.key = KeyOf(header);
  task.header = header;
  task.session = session;
  task.deadline = now + std::chrono::milliseconds(header.timeout_ms());
  live_[task.key] = id;
  sessions_.at(session).tasks.insert(id);
  wakes_.Arm(id, task.deadline);
  return task;
}

void WorkerCore::Impl::Refuse(SessionId session,
                              const wire::RequestHeader& header,
                              wire::RequestFailure::Kind kind,
                              const std::string& message) {
  wire::SessionResponse response;
  wire::RequestFailure& failure = *response.mutable_failure();
  failure.set_request_id(header.request_id());
  failure.set_attempt(header.attempt());
  failure.set_kind(kind);
  failure.set_message(message);
  Send(session, std::move(response));
}

void WorkerCore::Impl::Fail(Task& task, wire::RequestFailure::Kind kind,
                            const std::string& message, TimePoint now) {
  if (!task.ended) Refuse(task.session, task.header, kind, message);
  End(task, now);
}

void WorkerCore::Impl::End(Task& task, TimePoint now) {
  if (!task.ended) {
    task.ended = true;
    const bool committed = task.reception != nullptr &&
                           task.reception->phase == Reception::Phase::kActive;
    RememberEnded(task.key, task.header.attempt(), committed);
    live_.erase(task.key);
    const auto session = sessions_.find(task.session);
    if (session != sessions_.end()) session->second.tasks.erase(task.id);
    engine_.Cancel(task.id);
    if (task.handover != nullptr) {  // what is due now is to clean up
      task.handover->retry_at.reset();
      task.handover->call_tries = 0;
    }
  }
  if (task.handover != nullptr) {
    EndHandover(task, now);
  } else if (task.reception != nullptr) {
    EndReception(task);
  } else {
    Erase(task);
  }
}

void WorkerCore::Impl::Erase(Task& task) {
  CHECK(task.ended);
  if (task.handover != nullptr) calls_.erase(task.handover->call);
  wakes_.Disarm(task.id);
  tasks_.erase(task.id);
}

void WorkerCore::Impl::Arm(const Task& task) {
  TimePoint at = task.ended ? TimePoint::max() : task.deadline;
  if (task.handover != nullptr) {
    const Handover& handover = *task.handover;
    at = std::min(at, handover.retry_at.value_or(TimePoint::max()));
    if (!task.ended) {
      at = std::min({at, handover.renew_at.value_or(TimePoint::max()),
                     handover.transfer_deadline.value_or(TimePoint::max())});
    }
  }
  if (task.reception != nullptr && !task.ended &&
      task.reception->phase == Reception::Phase::kReserved) {
    at = std::min(at, task.reception->expires);
  }
  if (at != TimePoint::max()) wakes_.Arm(task.id, at);
}

void WorkerCore::Impl::WakeTask(TaskId id, TimePoint now) {
  using Failure = wire::RequestFailure;
  Task& task = tasks_.at(id);
  if (!task.ended && task.deadline <= now) {
    return Fail(task, Failure::KIND_EXPIRED, "the deadline passed", now);
  }
  if (Handover* handover = task.handover.get()) {
    if (!task.ended && handover->transfer_deadline.has_value() &&
        *handover->transfer_deadline <= now && !handover->committed) {
      return Fail(
          task, Failure::KIND_PEER,
          fmt::format("handover to {} not done in time, {} of {} "
                      "slices acknowledged",
                      handover->peer.control_address(), handover->acknowledged,
                      handover->checksums.size()),
          now);
    }
    if (handover->retry_at.has_value() && *handover->retry_at <= now) {
      RepeatCall(task, now);
    } else if (!task.ended && handover->renew_at.has_value() &&
               *handover->renew_at <= now) {
      handover->renew_at.reset();
      if (handover->call == 0 && !handover->retry_at.has_value()) {
        handover->call_tries = 0;
        CallReserve(task, now);
      }
    }
  }
  if (task.reception != nullptr && !task.ended &&
      task.reception->phase == Reception::Phase::kReserved &&
      task.reception->expires <= now) {
    ++stats_.expired_reservations_total;
    return End(task, now);
  }
  Arm(task);
}

}  // namespace tidepool::worker
