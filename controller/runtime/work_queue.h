// The keys that a reconciler has to look at.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/random.h"
#include "dataplane/base/wake_queue.h"

namespace tidepool::runtime {

struct WorkQueueOptions {
  // Of a key that failed n times in a row: min · 2^(n-1), at most max, jittered
  // by up to a quarter.
  Duration backoff_min = std::chrono::milliseconds(100);
  Duration backoff_max = std::chrono::seconds(60);
  // Distinct keys. Beyond, new ones are dropped and counted: whoever fills the
  // queue from a list must do so periodically.
  size_t keys_max = 200'000;
  uint64_t seed = 0;  // of jitter
};

// First come first served, but for deferred keys, which come after the others:
// a new leader looks at everything once more, and what changes meanwhile shall
// not wait for that. So that they come at all, each fourth key is one of them.
//
// A key waits at most once, and is never handed out while somebody still holds
// it: added meanwhile, it comes again afterwards. Thread-safe.
class WorkQueue {
 public:
  // Holds one key; nobody else gets it before this is destroyed, which must be
  // before the queue is.
  class Item {
   public:
    Item(Item&& other) noexcept
        : queue_(std::exchange(other.queue_, nullptr)),
          key_(std::move(other.key_)) {}
    Item& operator=(Item&&) = delete;
    ~Item() {
      if (queue_ != nullptr) queue_->Done(key_);
    }
    const kube::ObjectKey& key() const { return key_; }

   private:
    friend class WorkQueue;
    Item(WorkQueue* queue, kube::ObjectKey key)
        : queue_(queue), key_(std::move(key)) {}

    WorkQueue* queue_;
    kube::ObjectKey key_;
  };

  // `clock` must outlive it.
  WorkQueue(const WorkQueueOptions& options, const Clock& clock);

  void Add(const kube::ObjectKey& key);
  // Adds behind everything else; a key that waits deferred moves to the end.
  void AddDeferred(const kube::ObjectKey& key);
  // Everything that waits is deferred from now on.
  void DeferAll();
  // The earliest time asked for wins; a key that waits already is not delayed.
  // Handing the key out before then ends the wish: its holder has a new one.
  void AddAfter(const kube::ObjectKey& key, Duration delay);
  // Adds after the key's backoff, which grows with each call.
  void AddFailed(const kube::ObjectKey& key);
  // Ends the key's backoff: call when it succeeded.
  void Forget(const kube::ObjectKey& key);

  // The next key; nullopt after `timeout` of real time, or once closed.
  std::optional<Item> Pop(Duration timeout);
  // The next key that is due by the clock, without waiting.
  std::optional<Item> TryPop();

  // Wakes all waiters; nothing comes out any more.
  void Close();

  // When the next delayed key is due; TimePoint::max() if there is none.
  TimePoint next_due() const;
  size_t waiting() const;  // due, not handed out
  size_t delayed() const;
  size_t running() const;
  // Nothing is waiting, delayed or in anybody's hands.
  bool idle() const;
  uint64_t dropped_total() const;
  uint32_t failures(const kube::ObjectKey& key) const;

 private:
  void Done(const kube::ObjectKey& key);
  void AddLocked(const kube::ObjectKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Undefer(const kube::ObjectKey& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<kube::ObjectKey> NextLocked()
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DelayLocked(const kube::ObjectKey& key, Duration delay)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HasRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveDue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<Item> TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const WorkQueueOptions options_;
  const Clock& clock_;
  mutable Mutex mutex_;
  Random random_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<kube::ObjectKey> ready_ ABSL_GUARDED_BY(mutex_);
  std::list<kube::ObjectKey> deferred_ ABSL_GUARDED_BY(mutex_);
  std::map<kube::ObjectKey, std::list<kube::ObjectKey>::iterator> deferred_at_
      ABSL_GUARDED_BY(mutex_);
  uint32_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
  // Everything in ready_ and deferred_, and what must follow once its holder is
  // done.
  std::set<kube::ObjectKey> dirty_ ABSL_GUARDED_BY(mutex_);
  std::set<kube::ObjectKey> held_ ABSL_GUARDED_BY(mutex_);
  WakeQueue<kube::ObjectKey> delayed_ ABSL_GUARDED_BY(mutex_);
  std::map<kube::ObjectKey, uint32_t> failures_ ABSL_GUARDED_BY(mutex_);
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::runtime
