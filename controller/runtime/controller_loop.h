// The loop of one kind of object: queue, worker threads, reconciler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "controller/kube/client.h"
#include "controller/runtime/reconciler.h"
#include "controller/runtime/work_queue.h"
#include "dataplane/base/clock.h"

namespace tidepool::runtime {

struct ControllerLoopOptions {
  std::string name;  // of the kind, in logs and metrics: "PrefillPool"
  int threads = 2;
  WorkQueueOptions queue;
};

// Reconciles the keys of its queue while `may_run` says so (leadership); what
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

  // At most once. `may_run` is asked before each call.
  void Start(std::function<bool()> may_run);
  // Waits for the calls that run; idempotent.
  void Stop();

  // For drivers without threads: reconciles one key that is due; false if there
  // is none.
  bool RunOne();

 private:
  void Work(std::stop_token stop);
  void Process(WorkQueue::Item item);

  const ControllerLoopOptions options_;
  Reconciler& reconciler_;
  const Clock& clock_;
  WorkQueue queue_;
  Observer observer_;
  std::function<bool()> may_run_;
  std::vector<std::jthread> threads_;
};

}  // namespace tidepool::runtime
