// Where a request runs. Pure: the same code decides in production, in the
// simulator and in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tidepool::scheduling {

// Names a worker for as long as the conductor knows its address.
using WorkerId = uint32_t;

enum class WorkerRole { kPrefill, kDecode };

// What is known of one worker when a request is placed.
struct WorkerView {
  WorkerId id = 0;
  WorkerRole role = WorkerRole::kDecode;
  // Workers of different models or numerics are never paired.
  uint64_t identity = 0;
  bool ready = false;     // session up, not draining
  bool excluded = false;  // failed this request before; the last resort

  // Of the worker itself, as last reported.
  uint32_t waiting_requests = 0;
  uint32_t running_requests = 0;
  uint64_t queued_prefill_tokens = 0;
  uint32_t pages_total = 0;
  uint32_t pages_free = 0;  // free or evictable
  // Placed here and not ended, and what of it the report cannot contain yet.
  uint32_t own_requests = 0;
  uint64_t own_unreported_tokens = 0;

  uint32_t max_requests = 0;  // of both kinds; more are not placed here
  uint32_t page_tokens = 0;
  uint32_t max_model_len = 0;
};

struct PlacementRequest {
  uint32_t context_tokens = 0;  // prompt and tokens emitted so far
  // Set once tokens were emitted: the continuation must come from a worker of
  // this identity to be the same.
  std::optional<uint64_t> identity;
};

// Why a request was placed where it was, or nowhere. A closed set: used as a
// metrics label and in response headers.
enum class PlacementReason {
  kLeastLoaded,      // prefill and decode workers chosen by load
  kNoPrefillWorker,  // no prefill worker is ready and large enough: one decode
                     // worker does both
  kLastResort,       // only workers that failed this request before are left
  kNoReadyWorker,    // not placed: no decode worker is ready
  kNoDecodeRoom,     // not placed: every decode worker is at its bound
  kNoPrefillRoom,    // not placed: a decode worker has room, but every prefill
                     // worker is at its bound
  kTooLong,          // not placed: no ready worker can hold the context
};

std::string_view NameOf(PlacementReason reason);

struct Placement {
  PlacementReason reason = PlacementReason::kNoReadyWorker;
  // Both absent: not placed. Prefill absent: decode runs the whole request.
  std::optional<WorkerId> prefill;
  std::optional<WorkerId> decode;
  // One line for people: the candidates and the loads that decided.
  std::string explanation;

  bool placed() const { return decode.has_value(); }
};

// Thread-safe (stateless).
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;
  virtual Placement Place(const PlacementRequest& request,
                          std::span<const WorkerView> workers) const = 0;
};

// Fewest queued prefill tokens, then fewest requests, then the lowest id among
// the prefill workers; most free memory relative to load among the decode
// workers. Pairs only equal identities.
class LeastLoadedPlacement : public PlacementPolicy {
 public:
  Placement Place(const PlacementRequest& request,
                  std::span<const WorkerView> workers) const override;
};

}  // namespace tidepool::scheduling
