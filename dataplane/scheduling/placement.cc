#include "dataplane/scheduling/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "dataplane/base/checked_math.h"

namespace tidepool::scheduling {
namespace {

// Requests of other conductors are in the report only, ours may not be yet.
uint64_t Requests(const WorkerView& worker) {
  return std::max<uint64_t>(
      worker.own_requests,
      uint64_t{worker.waiting_requests} + worker.running_requests);
}

uint64_t PagesOf(const WorkerView& worker, uint64_t tokens) {
  return CeilDiv<uint64_t>(tokens, std::max(1u, worker.page_tokens));
}

bool Eligible(const WorkerView& worker, WorkerRole role,
              std::optional<uint64_t> identity) {
  return worker.ready && worker.role == role &&
         (!identity.has_value() || worker.identity == *identity);
}

// The context and the token to be drawn next.
bool EverFits(const WorkerView& worker, uint32_t context_tokens) {
  return context_tokens < worker.max_model_len &&
         PagesOf(worker, uint64_t{context_tokens} + 1) <= worker.pages_total;
}

bool HasRoom(const WorkerView& worker, uint32_t context_tokens) {
  const uint64_t requests = Requests(worker);
  if (requests == 0) return true;  // whatever an old report says of its pages
  return requests < worker.max_requests &&
         PagesOf(worker, uint64_t{context_tokens} + 1) +
                 PagesOf(worker, worker.own_unreported_tokens) <=
             worker.pages_free;
}

const WorkerView* BestDecode(const PlacementRequest& request,
                             std::span<const WorkerView> workers,
                             Placement& result) {
  const WorkerView* best = nullptr;
  bool any_ready = false, any_fits = false;
  const auto key = [](const WorkerView& worker) {
    const double load = static_cast<double>(Requests(worker)) /
                        std::max(1u, worker.max_requests);
    return std::tuple(worker.excluded, load,
                      -static_cast<int64_t>(worker.pages_free), worker.id);
  };
  for (const WorkerView& worker : workers) {
    if (!Eligible(worker, WorkerRole::kDecode, request.identity)) continue;
    any_ready = true;
    if (!EverFits(worker, request.context_tokens)) continue;
    any_fits = true;
    if (!HasRoom(worker, request.context_tokens)) continue;
    if (best == nullptr || key(worker) < key(*best)) best = &worker;
  }
  if (best == nullptr) {
    result.reason = !any_ready  ? PlacementReason::kNoReadyWorker
                    : !any_fits ? PlacementReason::kTooLong
                                : PlacementReason::kNoDecodeRoom;
  }
  return best;
}

// Null with `exists` set: there are prefill workers that can hold the context,
// all at their bound.
const WorkerView* BestPrefill(const PlacementRequest& request,
                              const WorkerView& decode,
                              std::span<const WorkerView> workers,
                              bool& exists) {
  const WorkerView* best = nullptr;
  const auto key = [](const WorkerView& worker) {
    return std::tuple(
        worker.queued_prefill_tokens + worker.own_unreported_tokens,
        Requests(worker), worker.id);
  };
  for (const WorkerView& worker : workers) {
    if (!Eligible(worker, WorkerRole::kPrefill, decode.identity) ||
        worker.excluded || !EverFits(worker, request.context_tokens)) {
      continue;
    }
    exists = true;
    if (Requests(worker) >= worker.max_requests) continue;
    if (best == nullptr || key(worker) < key(*best)) best = &worker;
  }
  return best;
}

}  // namespace

std::string_view NameOf(PlacementReason reason) {
  switch (reason) {
    case PlacementReason::kLeastLoaded:
      return "least_loaded";
    case PlacementReason::kNoPrefillWorker:
      return "no_prefill_worker";
    case PlacementReason::kLastResort:
      return "last_resort";
    case PlacementReason::kNoReadyWorker:
      return "no_ready_worker";
    case PlacementReason::kNoDecodeRoom:
      return "no_decode_room";
    case PlacementReason::kNoPrefillRoom:
      return "no_prefill_room";
    case PlacementReason::kTooLong:
      return "too_long";
  }
  return "unknown";
}

Placement LeastLoadedPlacement::Place(
    const PlacementRequest& request,
    std::span<const WorkerView> workers) const {
  Placement result;
  const WorkerView* decode = BestDecode(request, workers, result);
  if (decode == nullptr) {
    result.explanation = fmt::format(
        "{} for {} context tokens among {} workers", NameOf(result.reason),
        request.context_tokens, workers.size());
    return result;
  }
  bool prefill_exists = false;
  const WorkerView* prefill =
      BestPrefill(request, *decode, workers, prefill_exists);
  if (prefill == nullptr && prefill_exists) {
    result.reason = PlacementReason::kNoPrefillRoom;
    result.explanation = "every prefill worker is at its bound";
    return result;
  }
  result.decode = decode->id;
  result.reason = decode->excluded     ? PlacementReason::kLastResort
                  : prefill == nullptr ? PlacementReason::kNoPrefillWorker
                                       : PlacementReason::kLeastLoaded;
  result.explanation =
      fmt::format("decode had {} requests, {}/{} pages free", Requests(*decode),
                  decode->pages_free, decode->pages_total);
  if (prefill != nullptr) {
    result.prefill = prefill->id;
    result.explanation += fmt::format(
        "; prefill had {} requests, {} tokens queued", Requests(*prefill),
        prefill->queued_prefill_tokens + prefill->own_unreported_tokens);
  }
  return result;
}

}  // namespace tidepool::scheduling
