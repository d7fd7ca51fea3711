// The loop of one kind of object: queue, worker threads, reconciler.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/client.h"
#include "controller/runtime/reconciler.h"
#include "controller/runtime/work_queue.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"

namespace tidepool::runtime {

struct ControllerLoopOptions {
  std::string name;  // of the kind, in logs and metrics: "PrefillPool"
  int threads = 2;
  WorkQueueOptions queue;
};

// Reconciles the keys of its queue while it is told to run (leadership); what
// is added meanwhile waits. Thread-safe.
class ControllerLoop {
 public:
  // After each call: how it ended and how long it took.
  using Observer = std::function<void(const Status& status, Duration took)>;

  // All must outlive it.
  ControllerLoop(ControllerLoopOptions options, Reconciler& reconciler,
                 const Clock& clock);
  ~ControllerLoop();  // stops

  const std::string& name() const { return options_.name; }
  WorkQueue& queue() { return queue_; }
  void set_observer(Observer observer) { observer_ = std::move(observer); }

  // At most once; paused. `may_run` is asked before each call, so that nothing
  // begins between the end of leadership and Pause.
  void Start(std::function<bool()> may_run);
  void Resume() { SetRunning(true); }
  // Calls that run go on.
  void Pause() { SetRunning(false); }
  // Waits for the calls that run; idempotent.
  void Stop();

  // For drivers without threads: reconciles one key that is due; false if there
  // is none.
  bool RunOne();

  // When the longest of the calls that run began; TimePoint::max() if none.
  TimePoint oldest_call() const;

 private:
  void Work();
  bool AwaitRunning();
  void SetRunning(bool running);
  void Process(WorkQueue::Item item);
  StatusOr<Result> Call(const kube::ObjectKey& key);

  const ControllerLoopOptions options_;
  Reconciler& reconciler_;
  const Clock& clock_;
  WorkQueue queue_;
  Observer observer_;
  std::function<bool()> may_run_;
  mutable Mutex mutex_;
  bool running_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::multiset<TimePoint> calls_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace tidepool::runtime
