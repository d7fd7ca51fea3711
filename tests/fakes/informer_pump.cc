#include "tests/fakes/informer_pump.h"

#include <algorithm>
#include <utility>

namespace tidepool::fakes {

using runtime::ReflectorCore;

// One informer, and its watch while it has one.
struct InformerPump::Pumped {
  runtime::InformerBase& informer;
  std::unique_ptr<ApiServer::Stream> stream;
  TimePoint ends, heard;
  Duration silence_max{};
  TimePoint wait_until = TimePoint::min();
};

InformerPump::InformerPump(FaultyClient& client, const Clock& clock)
    : client_(client), clock_(clock) {}
InformerPump::~InformerPump() = default;

void InformerPump::Add(runtime::InformerBase& informer) {
  pumped_.push_back(std::make_unique<Pumped>(Pumped{.informer = informer}));
}

bool InformerPump::Poll(size_t events_max) {
  bool any = false;
  for (const auto& pumped : pumped_)
    while (PollOne(*pumped, events_max)) {
      any = true;
      // One batch of events per informer; lists and new watches go on.
      if (pumped->stream != nullptr) break;
    }
  return any;
}

bool InformerPump::PollOne(Pumped& pumped, size_t events_max) {
  const TimePoint now = clock_.Now();
  if (pumped.stream == nullptr && now < pumped.wait_until) return false;
  bool acted = true;
  pumped.informer.Drive([&](ReflectorCore& core) {
    if (pumped.stream != nullptr) {
      acted = ReadWatch(pumped, core, events_max);
      return;
    }
    const runtime::InformerOptions& options = pumped.informer.options();
    const ReflectorCore::Step step = core.Next(now);
    switch (step.action) {
      case ReflectorCore::Action::kWait:
        pumped.wait_until = step.at;
        acted = false;
        break;
      case ReflectorCore::Action::kList:
        core.BeginList();
        core.EndList(
            now,
            client_.List(options.type,
                         {.space = options.space,
                          .label_selector = options.label_selector,
                          .limit = options.page_objects},
                         [&](kube::Json& object) { core.Listed(object); }));
        break;
      case ReflectorCore::Action::kWatch: {
        core.BeginWatch(now);
        auto stream = client_.OpenWatch(
            options.type, {.space = options.space,
                           .label_selector = options.label_selector,
                           .resource_version = step.resource_version});
        if (!stream.ok()) {
          core.EndWatch(now, stream.status());
          break;
        }
        pumped.stream = *std::move(stream);
        pumped.ends = now + step.timeout;
        pumped.heard = now;
        pumped.silence_max = step.silence_max;
        break;
      }
    }
  });
  return acted;
}

// True if anything came or the watch ended.
bool InformerPump::ReadWatch(Pumped& pumped, ReflectorCore& core,
                             size_t events_max) {
  const TimePoint now = clock_.Now();
  bool acted = false;
  std::optional<Status> ended;
  for (size_t i = 0; i < events_max && !ended; ++i) {
    StatusOr<std::optional<kube::WatchEvent>> event = pumped.stream->Poll();
    if (!event.ok()) {
      ended = event.status();
    } else if (!*event) {
      break;
    } else {
      acted = true;
      pumped.heard = now;
      if (!core.Watched(now, **event))
        ended = Status(Code::kCancelled, "ended by its taker");
    }
  }
  if (!ended && now >= pumped.heard + pumped.silence_max)
    ended = DeadlineExceeded("nothing came in time");
  if (!ended && now >= pumped.ends) ended = OkStatus();
  if (!ended) return acted;
  pumped.stream.reset();
  pumped.wait_until = TimePoint::min();
  core.EndWatch(now, *ended);
  return true;
}

void InformerPump::DropWatches() {
  for (const auto& pumped : pumped_) {
    if (pumped->stream == nullptr) continue;
    pumped->stream.reset();
    pumped->wait_until = TimePoint::min();
    pumped->informer.Drive([&](ReflectorCore& core) {
      core.EndWatch(clock_.Now(), Unavailable("the connection broke"));
    });
  }
}

TimePoint InformerPump::next_wake() const {
  TimePoint earliest = TimePoint::max();
  for (const auto& pumped : pumped_)
    earliest = std::min(
        earliest,
        pumped->stream == nullptr
            ? pumped->wait_until
            : std::min(pumped->ends, pumped->heard + pumped->silence_max));
  return earliest;
}

}  // namespace tidepool::fakes
