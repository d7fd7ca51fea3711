// What a plan says: the objects, conditions and events that ought to be.
// Plans are made by pure functions and carried out by Applier.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/kube/client.h"
#include "dataplane/base/clock.h"
#include "dataplane/base/status.h"

namespace tidepool::reconcilers {

using Json = nlohmann::json;

// An object as it ought to be. `type` is one of kube/resource_types.h.
struct Manifest {
  const kube::ResourceType* type = nullptr;
  kube::ObjectKey key;
  Json object;
};

// To delete, if it still is the one with this uid.
struct Removal {
  const kube::ResourceType* type = nullptr;
  kube::ObjectKey key;
  std::string uid;
};

// A merge patch of an object other than its status.
struct ObjectPatch {
  const kube::ResourceType* type = nullptr;
  kube::ObjectKey key;
  Json patch;
};

struct Condition {
  std::string type;  // "Ready", "Progressing", "Degraded", "Rebalancing"
  bool is_true = false;
  // CamelCase of a closed set; stable: people's alerts match it.
  std::string reason;
  std::string message;
};

struct EventNote {
  bool is_warning = false;
  std::string reason, message;
};

struct Plan {
  std::vector<Manifest> manifests;  // in the order to apply them
  std::vector<ObjectPatch> patches;
  std::vector<Removal> removals;
  // Our fields of the status, all of them; null removes one.
  Json status = Json::object();
  std::vector<Condition> conditions;
  std::vector<EventNote> events;
  std::optional<Duration> requeue_after;

  Condition* FindCondition(std::string_view type);
  // The earliest wins.
  void RequeueAfter(Duration delay);
  // What the status ought to be after `applied`: an error shows as Degraded.
  void NoteApplied(const Status& applied);
};

// The conditions as the API has them: those of `before` whose status is the
// same keep their transition time.
Json MergeConditions(const Json& before, const std::vector<Condition>& now,
                     int64_t generation, std::string_view timestamp);

// What must be written to make `status` out of `before`; null if nothing.
// Times are not news: conditions that differ in nothing else are the same.
Json StatusPatch(const Json& before, const Json& status);

// One event for each condition whose reason or status is another than in
// `before`, as warnings where it got worse.
std::vector<EventNote> EventsOf(const Json& before,
                                const std::vector<Condition>& now);

// `text` cut to `bytes_max` bytes of valid UTF-8.
std::string Shortened(std::string text, size_t bytes_max);

}  // namespace tidepool::reconcilers
