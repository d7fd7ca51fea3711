#include "controller/reconcilers/plan.h"

#include <algorithm>

namespace tidepool::reconcilers {
namespace {

constexpr size_t kMessageBytesMax = 1024;

const Json* FindCondition(const Json& conditions, std::string_view type) {
  if (!conditions.is_array()) return nullptr;
  for (const Json& condition : conditions)
    if (condition.is_object() && condition.value("type", Json()) == type)
      return &condition;
  return nullptr;
}

std::string_view StatusName(bool is_true) { return is_true ? "True" : "False"; }

}  // namespace

Condition* Plan::FindCondition(std::string_view type) {
  const auto found = std::ranges::find(conditions, type, &Condition::type);
  return found == conditions.end() ? nullptr : &*found;
}

void Plan::RequeueAfter(Duration delay) {
  requeue_after = std::min(delay, requeue_after.value_or(delay));
}

void Plan::NoteApplied(const Status& applied) {
  // Somebody was faster, or we lead no more, or it may have worked: whoever
  // looks next will see.
  if (applied.ok() || applied.code() == Code::kAborted ||
      applied.code() == Code::kCancelled ||
      applied.code() == Code::kDeadlineExceeded)
    return;
  Condition* const degraded = FindCondition("Degraded");
  if (degraded == nullptr) return;
  *degraded = {"Degraded", true, "ApplyFailed",
               std::string(MessageOf(applied))};
}

Json MergeConditions(const Json& before, const std::vector<Condition>& now,
                     int64_t generation, std::string_view timestamp) {
  Json merged = Json::array();
  for (const Condition& condition : now) {
    const Json* const old = reconcilers::FindCondition(before, condition.type);
    const bool same = old != nullptr && old->value("status", Json()) ==
                                            StatusName(condition.is_true);
    const Json since = same ? old->value("lastTransitionTime", Json()) : Json();
    merged.push_back({
        {"type", condition.type},
        {"status", StatusName(condition.is_true)},
        {"reason", condition.reason},
        {"message", Shortened(condition.message, kMessageBytesMax)},
        {"observedGeneration", generation},
        {"lastTransitionTime",
         since.is_string() ? since.get<std::string>() : std::string(timestamp)},
    });
  }
  return merged;
}

Json StatusPatch(const Json& before, const Json& status) {
  Json patch = Json::object();
  for (const auto& [name, value] : status.items()) {
    const auto old = before.is_object() ? before.find(name) : before.end();
    const bool is_there = before.is_object() && old != before.end();
    if (value.is_null() ? is_there : (!is_there || *old != value)) {
      if (is_there && old->is_object() && value.is_object()) {
        // A merge patch keeps what it does not name: name what is gone.
        Json replaced = value;
        for (const auto& [key, unused] : old->items())
          if (!value.contains(key)) replaced[key] = nullptr;
        patch[name] = std::move(replaced);
      } else {
        patch[name] = value;
      }
    }
  }
  return patch.empty() ? Json() : patch;
}

std::vector<EventNote> EventsOf(const Json& before,
                                const std::vector<Condition>& now) {
  std::vector<EventNote> events;
  for (const Condition& condition : now) {
    const Json* const old = FindCondition(before, condition.type);
    const bool is_degraded = condition.type == "Degraded";
    // The first word about an object is news only if it is bad news.
    if (old == nullptr && !(is_degraded && condition.is_true)) continue;
    if (old != nullptr && old->value("reason", Json()) == condition.reason &&
        old->value("status", Json()) == StatusName(condition.is_true))
      continue;
    const bool is_warning =
        is_degraded ? condition.is_true
                    : condition.type == "Ready" && !condition.is_true;
    events.push_back({is_warning, condition.reason,
                      Shortened(condition.message, kMessageBytesMax)});
  }
  return events;
}

std::string Shortened(std::string text, size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  size_t end = bytes_max - 3;
  // Not in the middle of a character.
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80)
    --end;
  return text.substr(0, end) + "...";
}

}  // namespace tidepool::reconcilers
