#include "controller/runtime/work_queue.h"

#include <algorithm>

namespace tidepool::runtime {
namespace {

constexpr uint32_t kDeferredShare = 4;  // every so many

}  // namespace

WorkQueue::WorkQueue(const WorkQueueOptions& options, const Clock& clock)
    : options_(options), clock_(clock), random_(options.seed) {}

bool WorkQueue::HasRoom() {
  if (dirty_.size() + delayed_.size() < options_.keys_max) return true;
  ++dropped_;
  return false;
}

void WorkQueue::AddLocked(const kube::ObjectKey& key) {
  if (closed_) return;
  if (deferred_at_.contains(key)) {
    Undefer(key);
    ready_.push_back(key);
    return;
  }
  if (dirty_.contains(key) || !HasRoom()) return;
  dirty_.insert(key);
  if (!held_.contains(key)) ready_.push_back(key);
}

void WorkQueue::AddDeferred(const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  if (deferred_at_.contains(key)) {
    Undefer(key);
  } else {
    if (closed_ || dirty_.contains(key) || !HasRoom()) return;
    dirty_.insert(key);
    if (held_.contains(key)) return;
  }
  deferred_at_[key] = deferred_.insert(deferred_.end(), key);
}

void WorkQueue::DeferAll() {
  const MutexLock lock(&mutex_);
  for (const kube::ObjectKey& key : ready_)
    deferred_at_[key] = deferred_.insert(deferred_.end(), key);
  ready_.clear();
}

void WorkQueue::Undefer(const kube::ObjectKey& key) {
  const auto at = deferred_at_.find(key);
  deferred_.erase(at->second);
  deferred_at_.erase(at);
}

void WorkQueue::Add(const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  AddLocked(key);
}

void WorkQueue::DelayLocked(const kube::ObjectKey& key, Duration delay) {
  if (delay <= Duration::zero()) return AddLocked(key);
  if (closed_ || dirty_.contains(key) || !HasRoom()) return;
  delayed_.Arm(key, clock_.Now() + delay);
}

void WorkQueue::AddAfter(const kube::ObjectKey& key, Duration delay) {
  const MutexLock lock(&mutex_);
  DelayLocked(key, delay);
}

void WorkQueue::AddFailed(const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  uint32_t& failures = failures_[key];
  const uint32_t doublings = std::min(failures, 30u);
  ++failures;
  Duration backoff = options_.backoff_max;
  // Compared so that the product cannot overflow.
  if (options_.backoff_min < options_.backoff_max / (int64_t{1} << doublings))
    backoff = options_.backoff_min * (int64_t{1} << doublings);
  DelayLocked(key, std::chrono::duration_cast<Duration>(
                       backoff * (0.75 + 0.25 * random_.Unit())));
}

void WorkQueue::Forget(const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  failures_.erase(key);
}

void WorkQueue::MoveDue() {
  const TimePoint now = clock_.Now();
  while (const auto key = delayed_.PopDue(now)) AddLocked(*key);
}

std::optional<kube::ObjectKey> WorkQueue::NextLocked() {
  const bool is_their_turn = ++taken_ % kDeferredShare == 0;
  if (!deferred_.empty() && (ready_.empty() || is_their_turn)) {
    kube::ObjectKey key = deferred_.front();
    Undefer(key);
    return key;
  }
  if (ready_.empty()) return std::nullopt;
  kube::ObjectKey key = std::move(ready_.front());
  ready_.pop_front();
  return key;
}

std::optional<WorkQueue::Item> WorkQueue::TakeLocked() {
  if (closed_) return std::nullopt;
  std::optional<kube::ObjectKey> key = NextLocked();
  if (!key) return std::nullopt;
  dirty_.erase(*key);
  delayed_.Disarm(*key);
  held_.insert(*key);
  return Item(this, *std::move(key));
}

std::optional<WorkQueue::Item> WorkQueue::TryPop() {
  const MutexLock lock(&mutex_);
  MoveDue();
  return TakeLocked();
}

std::optional<WorkQueue::Item> WorkQueue::Pop(Duration timeout) {
  const TimePoint end = Clock::Monotonic().Now() + timeout;
  const MutexLock lock(&mutex_);
  while (!closed_) {
    MoveDue();
    if (auto item = TakeLocked()) return item;
    const Duration left = end - Clock::Monotonic().Now();
    if (left <= Duration::zero()) break;
    const TimePoint due = delayed_.next();
    const Duration wait = due == TimePoint::max()
                              ? left
                              : std::min(left, Duration(due - clock_.Now()));
    const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !ready_.empty() || !deferred_.empty() ||
             delayed_.next() < due;
    };
    mutex_.AwaitWithTimeout(absl::Condition(&changed), absl::FromChrono(wait));
  }
  return std::nullopt;
}

void WorkQueue::Done(const kube::ObjectKey& key) {
  const MutexLock lock(&mutex_);
  held_.erase(key);
  if (dirty_.contains(key)) ready_.push_back(key);
}

void WorkQueue::Close() {
  const MutexLock lock(&mutex_);
  closed_ = true;
}

TimePoint WorkQueue::next_due() const {
  const MutexLock lock(&mutex_);
  return delayed_.next();
}

size_t WorkQueue::waiting() const {
  const MutexLock lock(&mutex_);
  return dirty_.size();
}

size_t WorkQueue::delayed() const {
  const MutexLock lock(&mutex_);
  return delayed_.size();
}

size_t WorkQueue::running() const {
  const MutexLock lock(&mutex_);
  return held_.size();
}

bool WorkQueue::idle() const {
  const MutexLock lock(&mutex_);
  return dirty_.empty() && held_.empty() && delayed_.size() == 0;
}

uint64_t WorkQueue::dropped_total() const {
  const MutexLock lock(&mutex_);
  return dropped_;
}

uint32_t WorkQueue::failures(const kube::ObjectKey& key) const {
  const MutexLock lock(&mutex_);
  const auto it = failures_.find(key);
  return it == failures_.end() ? 0 : it->second;
}

}  // namespace tidepool::runtime
