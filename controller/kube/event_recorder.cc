#include "controller/kube/event_recorder.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "controller/kube/resource_types.h"
#include "controller/kube/writes.h"
#include "dataplane/base/digest.h"
#include "dataplane/base/log.h"

namespace tidepool::kube {
namespace {

constexpr size_t kNoteBytesMax = 1024;

// Not in the middle of a character.
std::string_view Cut(std::string_view note) {
  if (note.size() <= kNoteBytesMax) return note;
  size_t end = kNoteBytesMax;
  while (end > 0 && (static_cast<unsigned char>(note[end]) & 0xc0) == 0x80)
    --end;
  return note.substr(0, end);
}

std::string_view NameOf(EventRecorder::Type type) {
  return type == EventRecorder::Type::kNormal ? "Normal" : "Warning";
}

}  // namespace

EventRecorder::EventRecorder(EventRecorderOptions options, Client& client,
                             const Clock& clock,
                             std::function<double()> unix_seconds)
    : options_(std::move(options)),
      client_(client),
      clock_(clock),
      unix_seconds_(std::move(unix_seconds)) {}

uint64_t EventRecorder::dropped_total() const {
  const MutexLock lock(&mutex_);
  return dropped_;
}

uint64_t EventRecorder::DigestOf(std::string_view text) const {
  return Checksum64(text, options_.seed);
}

// Unique among the events of all processes, and told apart by people.
ObjectKey EventRecorder::EventKey(const ObjectKey& subject,
                                  uint64_t number) const {
  return {.space = subject.space.empty() ? "default" : subject.space,
          .name = fmt::format("{}.{:016x}", subject.name.substr(0, 200),
                              RandomAt(options_.seed, number))};
}

bool EventRecorder::TakeToken(const std::string& uid, TimePoint now) {
  const auto [it, added] = buckets_.try_emplace(DigestOf(uid));
  Bucket& bucket = it->second;
  const double burst = options_.burst;
  if (added) {
    bucket = {.tokens = burst, .at = now};
  } else {
    bucket.tokens =
        std::min(burst, bucket.tokens + Seconds(now - bucket.at) /
                                            Seconds(options_.refill));
    bucket.at = now;
  }
  if (bucket.tokens < 1) return false;
  bucket.tokens -= 1;
  return true;
}

// Drops what is of no more use and, at the bound, the oldest.
void EventRecorder::Forget(TimePoint now) {
  std::erase_if(series_, [&](const auto& entry) {
    return now - entry.second.last > options_.series_gap;
  });
  const Duration full = options_.refill * options_.burst;
  std::erase_if(buckets_, [&](const auto& entry) {
    return now - entry.second.at > full;
  });
  const auto older = [](const auto& a, const auto& b) {
    return a.second.last < b.second.last;
  };
  if (series_.size() >= options_.series_max)
    series_.erase(std::min_element(series_.begin(), series_.end(), older));
  const auto staler = [](const auto& a, const auto& b) {
    return a.second.at < b.second.at;
  };
  if (buckets_.size() >= options_.series_max)
    buckets_.erase(std::min_element(buckets_.begin(), buckets_.end(), staler));
}

void EventRecorder::Record(const EventSubject& subject, Type type,
                           std::string_view reason, std::string_view action,
                           std::string_view note) {
  note = Cut(note);
  const uint64_t id = DigestOf(fmt::format("{}\n{}\n{}\n{}\n{}", subject.uid,
                                           NameOf(type), reason, action, note));
  const TimePoint now = clock_.Now();
  Series series{.last = now};
  {
    const MutexLock lock(&mutex_);
    const auto it = series_.find(id);
    if (it != series_.end() && now - it->second.last <= options_.series_gap) {
      it->second.last = now;
      ++it->second.count;
      series = it->second;
    } else {
      Forget(now);
      if (!TakeToken(subject.uid, now)) {
        ++dropped_;
        return;
      }
      series.number = ++events_;
      series_[id] = series;
    }
  }
  const ObjectKey event = EventKey(subject.key, series.number);
  if (series.count == 1)
    return WriteNew(subject, event, type, reason, action, note);
  if (std::has_single_bit(series.count)) WriteCount(event, series.count);
}

void EventRecorder::WriteNew(const EventSubject& subject,
                             const ObjectKey& event, Type type,
                             std::string_view reason, std::string_view action,
                             std::string_view note) {
  Json object = Skeleton(kEvent, event);
  object["eventTime"] = FormatMicroTime(unix_seconds_());
  object["type"] = NameOf(type);
  object["reason"] = reason;
  object["action"] = action;
  object["note"] = note;
  object["reportingController"] = "tidepool.dev/controller";
  object["reportingInstance"] = options_.instance;
  object["regarding"] = {{"apiVersion", subject.type.ApiVersion()},
                         {"kind", subject.type.kind},
                         {"name", subject.key.name},
                         {"uid", subject.uid}};
  if (!subject.key.space.empty())
    object["regarding"]["namespace"] = subject.key.space;
  const Status status = client_.Create(kEvent, event.space, object).status();
  if (!status.ok())
    LOG_INFO("event {} of {} is lost: {}", reason, subject.key.ToString(),
             MessageOf(status));
}

void EventRecorder::WriteCount(const ObjectKey& event, uint32_t count) {
  const Json patch = {
      {"series",
       {{"count", count},
        {"lastObservedTime", FormatMicroTime(unix_seconds_())}}}};
  const Status status =
      client_.Patch(kEvent, event, PatchType::kMerge, patch).status();
  if (!status.ok())
    LOG_INFO("the count of event {} is lost: {}", event.ToString(),
             MessageOf(status));
}

}  // namespace tidepool::kube
