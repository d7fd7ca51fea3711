// Drives informers without threads, in virtual time.
#pragma once

#include <memory>
#include <vector>

#include "controller/runtime/informer.h"
#include "dataplane/base/clock.h"
#include "tests/fakes/faulty_client.h"

namespace tidepool::fakes {

// Externally synchronized.
class InformerPump {
 public:
  // All must outlive it.
  InformerPump(FaultyClient& client, const Clock& clock);
  ~InformerPump();

  void Add(runtime::InformerBase& informer);

  // Takes from each informer's watch at most `events_max` events, lists and
  // opens watches where it is time to. True if anything was done.
  bool Poll(size_t events_max = SIZE_MAX);

  // The watch breaks (kUnavailable), as by a lost connection.
  void DropWatches();
  // The earliest time at which an idle Poll would do something.
  TimePoint next_wake() const;

 private:
  struct Pumped;
  bool PollOne(Pumped& pumped, size_t events_max);
  bool ReadWatch(Pumped& pumped, runtime::ReflectorCore& core,
                 size_t events_max);

  FaultyClient& client_;
  const Clock& clock_;
  std::vector<std::unique_ptr<Pumped>> pumped_;
};

}  // namespace tidepool::fakes
