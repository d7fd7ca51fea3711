// Lists and watches of the ApiServer.
#include <charconv>
#include <utility>

#include "tests/fakes/api_server.h"
#include "tests/fakes/api_server_impl.h"
#include "tests/fakes/object_rules.h"

namespace tidepool::fakes {

using kube::EventType;
using kube::Json;
using kube::ObjectKey;
using kube::ResourceType;
using kube::WatchEvent;

namespace {

StatusOr<Filter> MakeFilter(const ResourceType& type, const std::string& space,
                            const std::string& selector) {
  ASSIGN_OR_RETURN(LabelSelector labels, LabelSelector::Parse(selector));
  return Filter{TypeId(type), space, std::move(labels)};
}

Status Expired(uint64_t version, uint64_t oldest) {
  return MakeError(Code::kOutOfRange, "too old resource version: {} ({})",
                   version, oldest);
}

Json WithVersion(const Json& object, uint64_t version) {
  Json copy = object;
  copy["metadata"]["resourceVersion"] = std::to_string(version);
  return copy;
}

}  // namespace

StatusOr<std::map<ObjectKey, Snapshot>> ApiServer::Impl::At(
    const Filter& filter, uint64_t at_version) {
  if (at_version < forgotten) return Expired(at_version, forgotten);
  std::map<ObjectKey, Snapshot> found;
  const auto of_type = objects.find(filter.type);
  if (of_type != objects.end())
    for (const auto& [key, stored] : of_type->second)
      found[key] = stored.object;
  for (uint64_t undone = version; undone > at_version; --undone) {
    const Change& change = history[undone - forgotten - 1];
    if (change.type != filter.type) continue;
    if (change.before == nullptr) {
      found.erase(change.key);
    } else {
      found[change.key] = change.before;
    }
  }
  std::erase_if(found, [&](const auto& entry) {
    return !filter.Matches(entry.first, entry.second);
  });
  return found;
}

StatusOr<std::vector<Json>> ApiServer::ListAt(const ResourceType& type,
                                              const kube::ListOptions& options,
                                              uint64_t version) {
  ASSIGN_OR_RETURN(const Filter filter,
                   MakeFilter(type, options.space, options.label_selector));
  const MutexLock lock(&impl_->mutex);
  ASSIGN_OR_RETURN(const auto found, impl_->At(filter, version));
  std::vector<Json> all;
  for (const auto& [key, object] : found) all.push_back(*object);
  return all;
}

StatusOr<std::string> ApiServer::List(const ResourceType& type,
                                      const kube::ListOptions& options,
                                      const std::function<void(Json&)>& take) {
  ASSIGN_OR_RETURN(const Filter filter,
                   MakeFilter(type, options.space, options.label_selector));
  std::map<ObjectKey, Snapshot> found;
  uint64_t version = 0;
  {
    const MutexLock lock(&impl_->mutex);
    version = impl_->version;
    ASSIGN_OR_RETURN(found, impl_->At(filter, version));
  }
  uint32_t in_page = 0;
  for (const auto& [key, object] : found) {
    if (options.stop.stop_requested())
      return Status(Code::kCancelled, "stopped");
    if (options.limit != 0 && in_page++ == options.limit) {
      in_page = 1;
      std::function<void()> hook;
      {
        const MutexLock lock(&impl_->mutex);
        hook = impl_->between_pages;
      }
      if (hook) hook();
      const MutexLock lock(&impl_->mutex);
      if (version < impl_->forgotten) return Expired(version, impl_->forgotten);
    }
    Json copy = *object;
    take(copy);
  }
  return std::to_string(version);
}

namespace {

class WatchStream final : public ApiServer::Stream {
 public:
  WatchStream(Mutex& mutex,
              std::function<StatusOr<std::optional<WatchEvent>>()> poll_locked)
      : mutex_(mutex), poll_locked_(std::move(poll_locked)) {}

  StatusOr<std::optional<WatchEvent>> Poll() override {
    const MutexLock lock(&mutex_);
    return poll_locked_();
  }

 private:
  Mutex& mutex_;
  const std::function<StatusOr<std::optional<WatchEvent>>()> poll_locked_;
};

// Where one watch stands.
struct Position {
  Filter filter;
  uint64_t version;
  uint64_t bookmarks;
  uint64_t ends;
};

// What the change that made `version` is to a watch; nullopt if nothing.
std::optional<WatchEvent> EventOf(const Filter& filter, const Change& change,
                                  uint64_t version) {
  if (change.type != filter.type) return std::nullopt;
  const bool was = filter.Matches(change.key, change.before);
  const bool is = filter.Matches(change.key, change.after);
  if (is)
    return WatchEvent{was ? EventType::kModified : EventType::kAdded,
                      *change.after};
  if (was)
    return WatchEvent{EventType::kDeleted,
                      WithVersion(*change.before, version)};
  return std::nullopt;
}

}  // namespace

StatusOr<std::unique_ptr<ApiServer::Stream>> ApiServer::OpenWatch(
    const ResourceType& type, const kube::WatchOptions& options) {
  uint64_t version = 0;
  const std::string& text = options.resource_version;
  if (std::from_chars(text.data(), text.data() + text.size(), version).ec !=
      std::errc())
    return InvalidArgument("watch: invalid resource version `{}`", text);
  ASSIGN_OR_RETURN(Filter filter,
                   MakeFilter(type, options.space, options.label_selector));
  Impl& impl = *impl_;
  const MutexLock lock(&impl.mutex);
  if (version < impl.forgotten) return Expired(version, impl.forgotten);
  if (version > impl.version)
    return Unavailable("too large resource version: {}", version);
  Position at{std::move(filter), version, impl.bookmarks, impl.ends};
  // Called with the mutex held, see WatchStream::Poll.
  const auto poll = [&impl, at]() mutable ABSL_NO_THREAD_SAFETY_ANALYSIS
      -> StatusOr<std::optional<WatchEvent>> {
    if (at.ends != impl.ends) return Unavailable("the connection broke");
    if (at.version < impl.forgotten) return Expired(at.version, impl.forgotten);
    while (at.version < impl.version) {
      const Change& change = impl.history[at.version - impl.forgotten];
      ++at.version;
      if (auto event = EventOf(at.filter, change, at.version)) return event;
    }
    if (at.bookmarks == impl.bookmarks) return std::nullopt;
    at.bookmarks = impl.bookmarks;
    return WatchEvent{EventType::kBookmark,
                      WithVersion(Json::object(), at.version)};
  };
  return std::make_unique<WatchStream>(impl.mutex, poll);
}

Status ApiServer::Watch(const ResourceType& type,
                        const kube::WatchOptions& options,
                        const std::function<bool(WatchEvent&)>& take) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream,
                   OpenWatch(type, options));
  Impl& impl = *impl_;
  const std::stop_callback wake(options.stop, [&impl] {
    const MutexLock lock(&impl.mutex);
    ++impl.news;
  });
  const TimePoint end = Clock::Monotonic().Now() + options.timeout;
  while (!options.stop.stop_requested()) {
    uint64_t seen = 0;
    {
      const MutexLock lock(&impl.mutex);
      seen = impl.news;
    }
    ASSIGN_OR_RETURN(std::optional<WatchEvent> event, stream->Poll());
    if (event) {
      if (!take(*event)) return Status(Code::kCancelled, "ended by its taker");
      continue;
    }
    const Duration left = end - Clock::Monotonic().Now();
    if (left <= Duration::zero()) return OkStatus();
    const bool silent = options.silence_max < left;
    const MutexLock lock(&impl.mutex);
    const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(impl.mutex) {
      return impl.news != seen || options.stop.stop_requested();
    };
    const bool told = impl.mutex.AwaitWithTimeout(
        absl::Condition(&changed),
        absl::FromChrono(std::min(left, options.silence_max)));
    // Of any kind: a real server's bookmarks come whatever else happens.
    if (!told && silent) return DeadlineExceeded("nothing came in time");
  }
  return Status(Code::kCancelled, "stopped");
}

void ApiServer::SendBookmarks() {
  const MutexLock lock(&impl_->mutex);
  ++impl_->bookmarks;
  ++impl_->news;
}

void ApiServer::EndWatches() {
  const MutexLock lock(&impl_->mutex);
  ++impl_->ends;
  ++impl_->news;
}

void ApiServer::Compact() {
  const MutexLock lock(&impl_->mutex);
  impl_->history.clear();
  impl_->forgotten = impl_->version;
}

}  // namespace tidepool::fakes
