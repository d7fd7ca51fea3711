// The Kubernetes API as the controller uses it: typed calls, plain JSON
// objects, errors as Status. Implementations: HttpClient (a real API server)
// and tests/fakes (an API server in memory).
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::kube {

using Json = nlohmann::json;

// One kind of object, as URLs and manifests name it.
struct ResourceType {
  std::string_view group;    // "" is the core group
  std::string_view version;  // "v1"
  std::string_view plural;   // "pods"
  std::string_view kind;     // "Pod"
  bool namespaced = true;

  // "apps/v1", "v1".
  std::string ApiVersion() const;
  friend bool operator==(const ResourceType&, const ResourceType&) = default;
};

struct ObjectKey {
  std::string space;  // namespace; "" for cluster-scoped objects
  std::string name;

  // "space/name", or the name alone.
  std::string ToString() const;
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ObjectKey& key) {
    return H::combine(std::move(h), key.space, key.name);
  }
};

// The same in texts that lie elsewhere.
struct ObjectKeyView {
  ObjectKeyView(std::string_view of_space, std::string_view of_name)
      : space(of_space), name(of_name) {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  ObjectKeyView(const ObjectKey& key) : space(key.space), name(key.name) {}

  ObjectKey ToKey() const {
    return {.space = std::string(space), .name = std::string(name)};
  }
  friend auto operator<=>(const ObjectKeyView&, const ObjectKeyView&) = default;

  std::string_view space, name;
};

struct ListOptions {
  std::string space;           // "" lists all namespaces
  std::string label_selector;  // "" selects all
  uint32_t limit = 250;        // objects per page
  std::stop_token stop;        // ends it at once: kCancelled
};

struct WatchOptions {
  std::string space;
  std::string label_selector;
  std::string resource_version;                // where to begin; required
  Duration timeout = std::chrono::minutes(5);  // the server ends it then
  // Without a line, bookmarks included, for this long it has broken:
  // kDeadlineExceeded.
  Duration silence_max = std::chrono::minutes(3);
  std::stop_token stop;  // ends it at once: kCancelled
};

enum class EventType { kAdded, kModified, kDeleted, kBookmark };

struct WatchEvent {
  EventType type = EventType::kAdded;
  Json object;  // of a bookmark only metadata.resourceVersion
};

enum class PatchType { kMerge, kJson };

struct DeleteOptions {
  std::optional<std::string> uid;               // precondition
  std::optional<std::string> resource_version;  // precondition
  std::optional<int64_t> grace_period_seconds;
  std::string propagation = "Background";
};

// One call that ended, for metrics.
struct CallRecord {
  std::string_view verb;  // "get", "list", "watch", "apply", "create",
                          // "replace", "patch", "delete"
  ResourceType type;
  Code code = Code::kOk;
  Duration took{};
};

// Thread-safe; calls block, at most for the deadline given at construction
// (watches: until they end). Errors, by code, with the server's message and
// the object's name:
//   kNotFound            404
//   kAlreadyExists       409 AlreadyExists
//   kAborted             409 Conflict: read again, then decide again
//   kInvalidArgument     400, 422: the API refused the object; retrying is no
//                        use before it changes
//   kOutOfRange          410: the resource version or continue token is too
//                        old; list again
//   kPermissionDenied    403
//   kUnauthenticated     401, also after the token was read again
//   kResourceExhausted   429, after the retries that Retry-After allows
//   kUnavailable         5xx, no connection
//   kDeadlineExceeded    no answer in time; the write may have happened
//   kCancelled           its stop token said so; a write that may not be made
class Client {
 public:
  virtual ~Client() = default;

  virtual StatusOr<Json> Get(const ResourceType& type,
                             const ObjectKey& key) = 0;

  // Calls `take` for each object, page by page; `take` may move from it.
  // Returns the resource version to watch from. kOutOfRange in the middle of
  // the pages means: start over.
  virtual StatusOr<std::string> List(
      const ResourceType& type, const ListOptions& options,
      const std::function<void(Json&)>& take) = 0;

  // Blocks until the server ends the watch (OkStatus), it breaks, `take`
  // returns false (kCancelled), or it is too old (kOutOfRange). Bookmarks are
  // asked for.
  virtual Status Watch(const ResourceType& type, const WatchOptions& options,
                       const std::function<bool(WatchEvent&)>& take) = 0;

  // Server-side apply as field manager kFieldManager, with force. `subresource`
  // is "" or "status". Returns the object as stored.
  virtual StatusOr<Json> Apply(const ResourceType& type, const ObjectKey& key,
                               const Json& object,
                               std::string_view subresource = "") = 0;

  virtual StatusOr<Json> Create(const ResourceType& type,
                                std::string_view space, const Json& object) = 0;

  // PUT: metadata.resourceVersion, if given, must still be current.
  virtual StatusOr<Json> Replace(const ResourceType& type, const ObjectKey& key,
                                 const Json& object,
                                 std::string_view subresource = "") = 0;

  // A merge patch may carry metadata.resourceVersion as a precondition.
  virtual StatusOr<Json> Patch(const ResourceType& type, const ObjectKey& key,
                               PatchType patch_type, const Json& patch,
                               std::string_view subresource = "") = 0;

  virtual Status Delete(const ResourceType& type, const ObjectKey& key,
                        const DeleteOptions& options = {}) = 0;
};

inline constexpr std::string_view kFieldManager = "tidepool-controller";

}  // namespace tidepool::kube
