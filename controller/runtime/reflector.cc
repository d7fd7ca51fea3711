#include "controller/runtime/reflector.h"

#include <algorithm>

#include "controller/kube/json_fields.h"
#include "dataplane/base/check.h"

namespace tidepool::runtime {
namespace {

// Shorter watches that told nothing are refusals, not timeouts.
constexpr Duration kWatchMin = std::chrono::seconds(1);

std::string VersionIn(const kube::Json& object) {
  return kube::TextAt(kube::At(object, "metadata"), "resourceVersion");
}

// Versions are decimal numbers of any length (API conventions since 1.35);
// older servers that use other texts are not judged.
bool IsOlder(const std::string& a, const std::string& b) {
  const auto decimal = [](const std::string& text) {
    return !text.empty() && std::ranges::all_of(text, [](char c) {
      return c >= '0' && c <= '9';
    });
  };
  if (!decimal(a) || !decimal(b)) return false;
  return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

ReflectorCore::ReflectorCore(const ReflectorOptions& options, uint64_t seed,
                             ReflectorSink& sink)
    : options_(options), sink_(sink), random_(seed) {}

Duration ReflectorCore::Jittered(Duration value, double low, double high) {
  return std::chrono::duration_cast<Duration>(
      value * (low + (high - low) * random_.Unit()));
}

void ReflectorCore::Fail(TimePoint now, const Status& status) {
  ++failures_;
  last_error_ = status;
  const uint32_t doublings = std::min(failures_in_a_row_, 20u);
  ++failures_in_a_row_;
  const Duration backoff =
      std::min(options_.backoff_max, options_.backoff_min * (1 << doublings));
  not_before_ = now + Jittered(backoff, 0.75, 1.25);
}

ReflectorCore::Step ReflectorCore::Next(TimePoint now) {
  if (now < not_before_) return {.action = Action::kWait, .at = not_before_};
  if (must_list_ || now >= relist_at_) return {.action = Action::kList};
  const Duration timeout = std::min(Jittered(options_.watch_timeout, 1, 2),
                                    Duration(relist_at_ - now));
  return {.action = Action::kWatch,
          .resource_version = resource_version_,
          .timeout = timeout,
          .silence_max = options_.silence_max};
}

void ReflectorCore::BeginList() {
  ++lists_;
  must_list_ = true;
  sink_.BeginReplace();
}

void ReflectorCore::Listed(kube::Json& object) { sink_.Put(object); }

void ReflectorCore::EndList(TimePoint now,
                            const StatusOr<std::string>& version) {
  if (options_.optional && version.status().code() == Code::kNotFound)
    return NoteAbsent(now);
  if (!version.ok()) return Fail(now, version.status());
  heard_at_ = now;
  sink_.EndReplace();
  resource_version_ = *version;
  must_list_ = false;
  synced_ = true;
  fruitless_watches_ = 0;
  last_error_ = OkStatus();
  relist_at_ = now + Jittered(options_.relist_interval, 0.75, 1);
}

void ReflectorCore::NoteAbsent(TimePoint now) {
  heard_at_ = now;
  sink_.EndReplace();
  synced_ = true;
  last_error_ = OkStatus();
  not_before_ = now + Jittered(options_.absent_interval, 0.75, 1.25);
}

void ReflectorCore::BeginWatch(TimePoint now) {
  ++watches_;
  fruitful_ = false;
  watch_began_ = now;
}

bool ReflectorCore::Watched(TimePoint now, kube::WatchEvent& event) {
  CHECK(!must_list_);
  heard_at_ = now;
  const std::string version = VersionIn(event.object);
  if (version.empty() || IsOlder(version, resource_version_)) {
    // Whatever this is, it is not the sequel of what we have.
    must_list_ = true;
    return false;
  }
  fruitful_ = true;
  failures_in_a_row_ = 0;
  fruitless_watches_ = 0;
  switch (event.type) {
    case kube::EventType::kAdded:
    case kube::EventType::kModified:
      sink_.Put(event.object);
      break;
    case kube::EventType::kDeleted:
      sink_.Remove(event.object);
      break;
    case kube::EventType::kBookmark:
      break;
  }
  resource_version_ = version;
  return true;
}

void ReflectorCore::EndWatch(TimePoint now, const Status& status) {
  if (!fruitful_ && ++fruitless_watches_ >= options_.fruitless_watches_max)
    must_list_ = true;
  if (status.ok()) {
    if (!fruitful_ && now - watch_began_ < kWatchMin)
      Fail(now, Unavailable("the server ended the watch at once"));
    else
      last_error_ = OkStatus();
    return;
  }
  // A broken connection may be resumed where it broke, and a server that has
  // too much to do (429) is not helped by a list; after anything else, also
  // silence, what we have may be outdated without our knowing.
  if (status.code() != Code::kUnavailable &&
      status.code() != Code::kResourceExhausted)
    must_list_ = true;
  Fail(now, status);
}

}  // namespace tidepool::runtime
