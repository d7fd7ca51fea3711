#include "controller/runtime/controller_loop.h"

#include <exception>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/log.h"

namespace tidepool::runtime {
namespace {

// Close wakes whoever waits; this only bounds a wait for its own sake.
constexpr Duration kPopTimeout = std::chrono::minutes(1);

// What the next try settles without anybody's doing.
bool IsNoNews(Code code) {
  return code == Code::kAborted || code == Code::kCancelled;
}

}  // namespace

ControllerLoop::ControllerLoop(ControllerLoopOptions options,
                               Reconciler& reconciler, const Clock& clock)
    : options_(std::move(options)),
      reconciler_(reconciler),
      clock_(clock),
      queue_(options_.queue, clock) {}

ControllerLoop::~ControllerLoop() { Stop(); }

void ControllerLoop::Start(std::function<bool()> may_run) {
  CHECK(threads_.empty());
  may_run_ = std::move(may_run);
  for (int i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this] { Work(); });
}

void ControllerLoop::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  queue_.Close();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void ControllerLoop::SetRunning(bool running) {
  const MutexLock lock(&mutex_);
  running_ = running;
}

// False when stopping.
bool ControllerLoop::AwaitRunning() {
  const MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return running_ || stopping_;
  };
  mutex_.Await(absl::Condition(&ready));
  return !stopping_;
}

void ControllerLoop::Work() {
  while (AwaitRunning()) {
    std::optional<WorkQueue::Item> item = queue_.Pop(kPopTimeout);
    if (!item) continue;
    bool running = false;
    {
      const MutexLock lock(&mutex_);
      running = running_;
    }
    if (running && may_run_()) {
      Process(*std::move(item));
    } else {
      // Paused since: it waits for the next term, at its end of the queue. The
      // short delay is for leadership that ended before Pause was called.
      queue_.AddAfter(item->key(), std::chrono::milliseconds(100));
    }
  }
}

bool ControllerLoop::RunOne() {
  std::optional<WorkQueue::Item> item = queue_.TryPop();
  if (!item) return false;
  Process(*std::move(item));
  return true;
}

StatusOr<Result> ControllerLoop::Call(const kube::ObjectKey& key) {
  // One object that breaks an assumption must not end the others' controller.
  try {
    return reconciler_.Reconcile(key);
  } catch (const std::exception& error) {
    return Internal("{}", error.what());
  }
}

void ControllerLoop::Process(WorkQueue::Item item) {
  const kube::ObjectKey& key = item.key();
  const TimePoint began = clock_.Now();
  {
    const MutexLock lock(&mutex_);
    calls_.insert(began);
  }
  const StatusOr<Result> result = Call(key);
  {
    const MutexLock lock(&mutex_);
    calls_.erase(calls_.find(began));
  }
  if (result.ok()) {
    queue_.Forget(key);
    if (result->requeue_after) queue_.AddAfter(key, *result->requeue_after);
  } else {
    queue_.AddFailed(key);
    if (!IsNoNews(result.status().code()))
      LOG_WARNING("{} {}: {}", options_.name, key.ToString(),
                  MessageOf(result.status()));
  }
  if (observer_) observer_(result.status(), clock_.Now() - began);
}

TimePoint ControllerLoop::oldest_call() const {
  const MutexLock lock(&mutex_);
  return calls_.empty() ? TimePoint::max() : *calls_.begin();
}

}  // namespace tidepool::runtime
