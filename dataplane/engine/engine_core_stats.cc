// What can be seen of the engine core from outside.
#include <algorithm>

#include "dataplane/engine/engine_core_internal.h"

namespace tidepool::engine {

EngineStats EngineCore::Stats() const {
  EngineStats stats = totals_;
  stats.pages_total = pool_.num_pages();
  stats.pages_free = pool_.num_free();
  stats.waiting = static_cast<int32_t>(waiting_.size());
  stats.running = static_cast<int32_t>(running_.size());
  stats.reserved = num_reserved_;
  stats.held = num_held_;
  for (const Sequence* sequence : waiting_) {
    stats.queued_prefill_tokens += std::ssize(sequence->tokens);
  }
  for (const Sequence* sequence : running_) {
    stats.context_tokens += std::ssize(sequence->tokens);
    if (sequence->remaining() > 1) {
      stats.queued_prefill_tokens += sequence->remaining();
    }
  }

  // A shared page counts where it is bound most: a transfer, a reservation, a
  // running sequence. Of the others the cache has what is not free: they need
  // not be looked at, of which there may be very many.
  std::vector<bool> is_counted(pool_.num_pages());
  const auto count = [&](const Sequence& sequence, int32_t& figure) {
    for (const PageId page : sequence.pages) {
      if (is_counted[page]) continue;
      is_counted[page] = true;
      ++figure;
    }
  };
  for (const auto& [state, figure] :
       {std::pair(State::kHeld, &stats.pages_held),
        std::pair(State::kReserved, &stats.pages_reserved)}) {
    for (const auto& [id, sequence] : sequences_) {
      if (sequence->state == state) count(*sequence, *figure);
    }
  }
  for (const Sequence* sequence : running_) {
    count(*sequence, stats.pages_running);
  }
  stats.pages_cached = stats.pages_total - stats.pages_free - stats.pages_held -
                       stats.pages_reserved - stats.pages_running;
  return stats;
}

std::vector<prefix::StoredBlock> EngineCore::CachedBlocks() const {
  std::vector<prefix::StoredBlock> blocks;
  blocks.reserve(tree_.size());
  tree_.VisitAll([&](const prefix::StoredBlock& block,
                     std::span<const PageId>) { blocks.push_back(block); });
  return blocks;
}

Status EngineCore::CheckInvariants() const {
  RETURN_IF_ERROR(tree_.CheckInvariants());
  std::vector<int32_t> users(pool_.num_pages());
  tree_.VisitAll(
      [&](const prefix::StoredBlock&, std::span<const PageId> pages) {
        for (const PageId page : pages) ++users[page];
      });
  const std::vector<int32_t> users_in_cache = users;
  int32_t reserved = 0, held = 0, waiting = 0, running = 0, preempted = 0;
  for (const auto& [id, sequence] : sequences_) {
    for (const PageId page : sequence->pages) ++users[page];
    reserved += sequence->state == State::kReserved;
    held += sequence->state == State::kHeld;
    waiting += sequence->state == State::kWaiting;
    running += sequence->state == State::kRunning;
    preempted += sequence->state == State::kWaiting && sequence->preempted;
    RETURN_IF_ERROR(CheckSequence(*sequence));
  }
  if (reserved != num_reserved_ || held != num_held_ ||
      waiting != std::ssize(waiting_) || running != std::ssize(running_) ||
      preempted != num_preempted_) {
    return Internal(
        "{} sequences reserved, {} held, {} waiting, {} running, "
        "{} preempted are not what is counted",
        reserved, held, waiting, running, preempted);
  }
  int32_t unused = 0, cached = 0;
  for (PageId page = 0; page < pool_.num_pages(); ++page) {
    unused += users[page] == 0;
    cached += users[page] > 0 && users[page] == users_in_cache[page];
    if (users[page] != pool_.users(page)) {
      return Internal("page {} has {} users; {} were counted", page,
                      users[page], pool_.users(page));
    }
  }
  if (unused != pool_.num_free()) {
    return Internal("{} pages are unused, {} are free", unused,
                    pool_.num_free());
  }
  if (const EngineStats stats = Stats(); cached != stats.pages_cached) {
    return Internal("the cache alone has {} pages; {} were counted", cached,
                    stats.pages_cached);
  }
  for (const auto* list : {&waiting_, &running_}) {
    if (!std::ranges::is_sorted(*list, {}, &Sequence::arrival)) {
      return Internal("waiting or running sequences are not sorted by age");
    }
  }
  return OkStatus();
}

Status EngineCore::CheckSequence(const Sequence& sequence) const {
  const bool has_pages = !sequence.pages.empty();
  if (has_pages != (sequence.state != State::kWaiting) ||
      PagesFor(sequence.computed) > std::ssize(sequence.pages) ||
      sequence.computed > std::ssize(sequence.tokens)) {
    return Internal("sequence {} has {} pages for {} computed of {} tokens",
                    sequence.id, sequence.pages.size(), sequence.computed,
                    sequence.tokens.size());
  }
  std::vector<PageId> distinct = sequence.pages;
  std::ranges::sort(distinct);
  if (std::ranges::adjacent_find(distinct) != distinct.end()) {
    return Internal("sequence {} has a page twice", sequence.id);
  }
  return OkStatus();
}

}  // namespace tidepool::engine
