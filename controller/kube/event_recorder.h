// Events of events.k8s.io/v1: what `kubectl describe` shows.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/random.h"

namespace tidepool::kube {

struct EventSubject {
  ResourceType type;
  ObjectKey key;
  std::string uid;
};

struct EventRecorderOptions {
  std::string instance;              // who reports: the pod's name
  uint64_t seed = SystemRandom64();  // of the events' names
  // Equal events within this time become one series.
  Duration series_gap = std::chrono::minutes(6);
  size_t series_max = 1024;  // remembered; beyond, the oldest is forgotten
  // New events per subject: this many at once, then one per `refill`; beyond,
  // they are dropped and counted.
  int burst = 20;
  Duration refill = std::chrono::seconds(30);
};

// Best effort: one write per call at most, whose failure is logged alone. Equal
// events (subject, type, reason, action, note) are written when their count
// reaches a power of two. Thread-safe.
class EventRecorder {
 public:
  enum class Type { kNormal, kWarning };

  // `client` and `clock` must outlive it. `unix_seconds` gives the time that
  // people read.
  EventRecorder(EventRecorderOptions options, Client& client,
                const Clock& clock, std::function<double()> unix_seconds);

  // `reason` and `action` are CamelCase from closed sets; `note` is cut at
  // 1,024 bytes.
  void Record(const EventSubject& subject, Type type, std::string_view reason,
              std::string_view action, std::string_view note);

  uint64_t dropped_total() const;

 private:
  struct Series {
    uint64_t number = 0;  // of its event
    uint32_t count = 1;
    TimePoint last;
  };
  struct Bucket {
    double tokens = 0;
    TimePoint at;
  };

  uint64_t DigestOf(std::string_view text) const;
  ObjectKey EventKey(const ObjectKey& subject, uint64_t number) const;
  bool TakeToken(const std::string& uid, TimePoint now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(TimePoint now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WriteNew(const EventSubject& subject, const ObjectKey& event, Type type,
                std::string_view reason, std::string_view action,
                std::string_view note);
  void WriteCount(const ObjectKey& event, uint32_t count);

  const EventRecorderOptions options_;
  Client& client_;
  const Clock& clock_;
  const std::function<double()> unix_seconds_;
  mutable Mutex mutex_;
  // By digests of what makes events equal, and of uids.
  std::map<uint64_t, Series> series_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  uint64_t events_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::kube
