// A typed copy of one kind of object in memory, kept in step by a reflector.
#pragma once

#include <absl/container/btree_set.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "controller/kube/client.h"
#include "controller/runtime/reflector.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/mutex.h"
#include "dataplane/base/notification.h"
#include "dataplane/base/status.h"

namespace tidepool::runtime {

struct InformerOptions {
  kube::ResourceType type;
  std::string space;           // "": all namespaces
  std::string label_selector;  // "": all
  uint32_t page_objects = 100;
  ReflectorOptions reflector;
  uint64_t seed = 0;  // of jitter
};

struct InformerStats {
  uint64_t objects = 0;
  uint64_t lists_total = 0;
  uint64_t watches_total = 0;
  uint64_t failures_total = 0;
  uint64_t rejected_total = 0;  // objects that their Transform refused
  TimePoint heard_at;           // when the server last said anything
};

// What is the same for every type: the reflector and its thread. Thread-safe
// but for Drive.
class InformerBase : private ReflectorSink {
 public:
  InformerBase(const InformerBase&) = delete;
  InformerBase& operator=(const InformerBase&) = delete;

  const InformerOptions& options() const { return options_; }
  const kube::ResourceType& type() const { return options_.type; }

  // Begins on a thread of its own. At most once; `client` and `clock` must
  // outlive the informer or its Stop.
  void Start(kube::Client& client, const Clock& clock = Clock::Monotonic());
  // Ends the watch and joins the thread; the copy stays readable. Idempotent.
  void Stop();

  // True once the copy was complete for the first time and handlers know it.
  bool HasSynced() const { return synced_.happened(); }
  // False if `timeout` passed first.
  bool WaitForSync(Duration timeout) const { return synced_.WaitFor(timeout); }

  InformerStats stats() const;

  // For drivers without threads, instead of Start: calls `drive` with the
  // reflector and updates what HasSynced and stats say.
  void Drive(const std::function<void(ReflectorCore&)>& drive);

 protected:
  explicit InformerBase(InformerOptions options);
  // The class that derives calls Stop in its destructor: the thread uses it.
  ~InformerBase() override;

  void CountRejected(const kube::ObjectKey& key, const Status& why);

 private:
  void Run(kube::Client& client, const Clock& clock, std::stop_token stop);
  void ListOnce(kube::Client& client, const Clock& clock, std::stop_token stop);
  void WatchOnce(kube::Client& client, const Clock& clock, std::stop_token stop,
                 const ReflectorCore::Step& step);
  void Publish();
  virtual uint64_t size() const = 0;

  const InformerOptions options_;
  ReflectorCore core_;  // confined to the thread, or to Drive's caller
  Notification synced_;
  mutable Mutex stats_mutex_;
  InformerStats stats_ ABSL_GUARDED_BY(stats_mutex_);
  std::atomic<uint64_t> rejected_ = 0;
  std::jthread thread_;
};

namespace internal {

template <typename T>
concept KnowsItsKey = requires(const T& value) {
  { value.key() } -> std::same_as<kube::ObjectKeyView>;
};

// An object as an informer keeps it.
template <typename T>
struct Record {
  kube::ObjectKeyView key() const {
    if constexpr (KnowsItsKey<T>) {
      return value.key();
    } else {
      return own_key;
    }
  }

  T value;
  [[no_unique_address]] std::conditional_t<KnowsItsKey<T>, std::monostate,
                                           kube::ObjectKey>
      own_key;
  uint64_t version = 0;   // of the object's uid and resource version
  uint64_t sequence = 0;  // of the list that last told of it
};

struct ByKey {
  using is_transparent = void;
  static kube::ObjectKeyView KeyOf(kube::ObjectKeyView key) { return key; }
  template <typename R>
  static kube::ObjectKeyView KeyOf(const std::shared_ptr<R>& record) {
    return record->key();
  }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    return KeyOf(a) < KeyOf(b);
  }
};

}  // namespace internal

// Values are immutable snapshots: holding one does not stop newer ones from
// coming. Reads are thread-safe and in the order of keys.
//
//   struct PodView { std::string role; bool ready; };
//   Informer<PodView> pods({.type = kube::kPod, .label_selector = "…"},
//   ToView); const auto by_pool = pods.AddIndex(
//       [](const PodView& pod, auto& values) { values.push_back(pod.pool); });
//   pods.AddHandler([&](const kube::ObjectKey&, const PodView* before,
//                       const PodView* after) {
//     queue.Add(PoolOf(after ? *after : *before));
//   });
//   pods.Start(client);
template <typename T>
class Informer final : public InformerBase {
 public:
  using Ptr = std::shared_ptr<const T>;
  // Keeps of an object what is needed of it. A T that knows the object's key
  // saves a copy of it: `kube::ObjectKeyView key() const`. An error (or an
  // exception of the JSON library) keeps what is known of the object as it is,
  // is logged and counted.
  using Transform = std::function<StatusOr<T>(const kube::Json& object)>;
  // `before` is null for a new object, `after` for a deleted one. Called on
  // the informer's thread, after the copy has changed, without a lock; must
  // not block. An object that did not change since it was last told is not
  // told again.
  using Handler = std::function<void(const kube::ObjectKey& key,
                                     const T* before, const T* after)>;
  // Appends the values under which ByIndex shall find the object.
  using IndexBy = std::function<void(const T&, std::vector<std::string>&)>;
  using IndexId = size_t;

  Informer(InformerOptions options, Transform transform)
      : InformerBase(std::move(options)), transform_(std::move(transform)) {}
  ~Informer() override { Stop(); }

  // Both before the informer starts.
  IndexId AddIndex(IndexBy by) {
    indices_.push_back({std::move(by), {}});
    return indices_.size() - 1;
  }
  void AddHandler(Handler handler) { handlers_.push_back(std::move(handler)); }

  // Null if there is none.
  Ptr Get(const kube::ObjectKey& key) const {
    const MutexLock lock(&mutex_);
    const auto it = records_.find(key);
    return it == records_.end() ? nullptr : ValueOf(*it);
  }
  std::vector<Ptr> List() const {
    const MutexLock lock(&mutex_);
    return ValuesOf(records_);
  }
  std::vector<kube::ObjectKey> Keys() const {
    const MutexLock lock(&mutex_);
    std::vector<kube::ObjectKey> all;
    all.reserve(records_.size());
    for (const auto& record : records_) all.push_back(record->key().ToKey());
    return all;
  }
  std::vector<Ptr> ByIndex(IndexId index, std::string_view value) const {
    const MutexLock lock(&mutex_);
    const auto& values = indices_[index].values;
    const auto it = values.find(value);
    return it == values.end() ? std::vector<Ptr>() : ValuesOf(it->second);
  }

 private:
  // One allocation for each object, and its key once: there are many.
  using Record = internal::Record<T>;
  using Records = absl::btree_set<std::shared_ptr<Record>, internal::ByKey>;
  struct Index {
    IndexBy by;
    std::map<std::string, Records, std::less<>> values;
  };

  static Ptr ValueOf(const std::shared_ptr<Record>& record) {
    return Ptr(record, &record->value);
  }
  static std::vector<Ptr> ValuesOf(const Records& records) {
    std::vector<Ptr> all;
    all.reserve(records.size());
    for (const auto& record : records) all.push_back(ValueOf(record));
    return all;
  }

  void BeginReplace() override { ++sequence_; }
  void EndReplace() override;
  void Put(kube::Json& object) override;
  void Remove(const kube::Json& object) override;
  void Erase(const kube::ObjectKey& key);
  uint64_t size() const override {
    const MutexLock lock(&mutex_);
    return records_.size();
  }
  void Reindex(const std::shared_ptr<Record>& before,
               const std::shared_ptr<Record>& after)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Tell(const kube::ObjectKey& key, const Record* before,
            const Record* after) {
    for (const Handler& handler : handlers_)
      handler(key, before == nullptr ? nullptr : &before->value,
              after == nullptr ? nullptr : &after->value);
  }

  const Transform transform_;
  std::vector<Handler> handlers_;
  uint64_t sequence_ = 0;  // confined to the driver
  mutable Mutex mutex_;
  Records records_ ABSL_GUARDED_BY(mutex_);
  std::vector<Index> indices_;  // values are guarded by mutex_
};

}  // namespace tidepool::runtime

#include "controller/runtime/informer_impl.h"
