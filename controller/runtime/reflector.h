// Keeps a copy of one kind of object in step with the API server: list, watch,
// and list again whenever the watch may have missed something. A state machine
// without threads, sockets or clocks.
#pragma once

#include <cstdint>
#include <string>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/random.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime {

struct ReflectorOptions {
  // Asked of the server per watch; jittered up to its double, so that watches
  // do not all end together.
  Duration watch_timeout = std::chrono::minutes(5);
  // A watch without event or bookmark for this long (an idle one gets its first
  // bookmark after two minutes at most, then one per minute) is taken for
  // broken, and what it had for outdated.
  Duration silence_max = std::chrono::minutes(3);
  // However well the watch seems to go, everything is listed this often
  // (jittered down to 3/4), so that no defect of a server's watches can hide a
  // change for longer.
  Duration relist_interval = std::chrono::minutes(30);
  // Watches that end without an event are resumed this often before a list.
  uint32_t fruitless_watches_max = 3;
  // The kind's API may not be installed (kNotFound): then there are none, and
  // it is looked for again after absent_interval.
  bool optional = false;
  Duration absent_interval = std::chrono::minutes(2);
  Duration backoff_min = std::chrono::milliseconds(200);
  Duration backoff_max = std::chrono::seconds(30);
};

// Where a reflector puts what it learns. All calls are made by the reflector's
// driver.
class ReflectorSink {
 public:
  virtual ~ReflectorSink() = default;

  // Everything that is not told again by Put until EndReplace is gone.
  // A list that breaks off is followed by another BeginReplace.
  virtual void BeginReplace() = 0;
  virtual void EndReplace() = 0;

  virtual void Put(kube::Json& object) = 0;
  virtual void Remove(const kube::Json& object) = 0;
};

// Externally synchronized. The driver asks Next what to do, does it, and tells
// how it went:
//
//   kList:  BeginList, Listed for each object, EndList
//   kWatch: BeginWatch, Watched for each event, EndWatch
//   kWait:  nothing before `at`
class ReflectorCore {
 public:
  enum class Action { kList, kWatch, kWait };

  struct Step {
    Action action = Action::kWait;
    TimePoint at;  // kWait: ask again then
    // kWatch:
    std::string resource_version;
    Duration timeout{};
    // The driver ends the watch with kDeadlineExceeded when nothing came for
    // `silence_max`.
    Duration silence_max{};
  };

  // `sink` must outlive it. `seed` is for jitter alone.
  ReflectorCore(const ReflectorOptions& options, uint64_t seed,
                ReflectorSink& sink);

  Step Next(TimePoint now);

  void BeginList();
  void Listed(kube::Json& object);
  // The version to watch from, or why the list broke off.
  void EndList(TimePoint now, const StatusOr<std::string>& version);

  void BeginWatch(TimePoint now);
  // False when the watch is of no further use: the driver ends it, with any
  // status.
  bool Watched(TimePoint now, kube::WatchEvent& event);
  void EndWatch(TimePoint now, const Status& status);

  // True from the end of the first complete list, or absence, on.
  bool synced() const { return synced_; }
  // When the server last said anything.
  TimePoint heard_at() const { return heard_at_; }
  uint64_t lists() const { return lists_; }
  uint64_t watches() const { return watches_; }
  uint64_t failures() const { return failures_; }
  // Of the last call that failed; OK after one that did not.
  const Status& last_error() const { return last_error_; }

 private:
  void Fail(TimePoint now, const Status& status);
  void NoteAbsent(TimePoint now);
  Duration Jittered(Duration value, double low, double high);

  const ReflectorOptions options_;
  ReflectorSink& sink_;
  Random random_;

  bool must_list_ = true;
  bool synced_ = false;
  bool fruitful_ = false;  // the running watch told something
  std::string resource_version_;
  TimePoint not_before_;  // backoff
  TimePoint relist_at_;
  TimePoint heard_at_;
  TimePoint watch_began_;
  uint32_t failures_in_a_row_ = 0;
  uint32_t fruitless_watches_ = 0;
  uint64_t lists_ = 0, watches_ = 0, failures_ = 0;
  Status last_error_;
};

}  // namespace tidepool::runtime
