#include "dataplane/engine/engine_core.h"

#include <algorithm>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"
#include "dataplane/engine/engine_core_internal.h"

namespace tidepool::engine {
namespace {

Status CheckPositive(std::string_view field, int64_t value) {
  if (value > 0) return OkStatus();
  return InvalidArgument("{} must be positive, not {}", field, value);
}

Status ValidateConfig(const EngineConfig& config) {
  RETURN_IF_ERROR(CheckPositive("page_tokens", config.page_tokens));
  RETURN_IF_ERROR(CheckPositive("block_tokens", config.block_tokens));
  RETURN_IF_ERROR(CheckPositive("num_pages", config.num_pages));
  RETURN_IF_ERROR(CheckPositive("max_num_seqs", config.max_num_seqs));
  RETURN_IF_ERROR(CheckPositive("max_model_len", config.max_model_len));
  RETURN_IF_ERROR(CheckPositive("max_waiting", config.max_waiting));
  RETURN_IF_ERROR(CheckPositive("vocab_size", config.vocab_size));
  RETURN_IF_ERROR(
      CheckPositive("event_log_capacity", config.event_log_capacity));
  if (config.block_tokens % config.page_tokens != 0) {
    return InvalidArgument("page_tokens = {} must divide block_tokens = {}",
                           config.page_tokens, config.block_tokens);
  }
  if (config.max_num_batched_tokens < config.max_num_seqs) {
    return InvalidArgument(
        "max_num_batched_tokens = {} must be at least max_num_seqs = {}",
        config.max_num_batched_tokens, config.max_num_seqs);
  }
  if (config.growth_pages < 0 || config.growth_pages >= config.num_pages) {
    return InvalidArgument(
        "growth_pages must be in [0, num_pages = {}), not {}", config.num_pages,
        config.growth_pages);
  }
  return OkStatus();
}

}  // namespace

PageRange PagesCompletedBy(const SequenceStep& step, int32_t page_tokens) {
  const bool ends_context = step.end == std::ssize(step.context);
  return {.begin = step.begin / page_tokens,
          .end = ends_context ? CeilDiv(step.end, page_tokens)
                              : step.end / page_tokens};
}

StatusOr<std::unique_ptr<EngineCore>> EngineCore::Create(
    const EngineConfig& config) {
  RETURN_IF_ERROR(ValidateConfig(config));
  return std::unique_ptr<EngineCore>(new EngineCore(config));
}

EngineCore::EngineCore(const EngineConfig& config)
    : config_(config),
      pool_(config.num_pages),
      events_(config.event_log_capacity),
      tree_(config.num_pages / (config.block_tokens / config.page_tokens),
            config.block_tokens / config.page_tokens, events_) {
  running_.reserve(config.max_num_seqs);
  waiting_.reserve(size_t(config.max_waiting) + config.max_num_seqs);
  plan_.sequences.reserve(config.max_num_seqs);
  in_step_.reserve(config.max_num_seqs);
  outputs_.resize(config.max_num_seqs);
}

EngineCore::~EngineCore() = default;

Status EngineCore::Add(EngineRequest request) {
  RETURN_IF_ERROR(Validate(request, request.tokens.size()));
  if (std::ssize(waiting_) - num_preempted_ >= config_.max_waiting) {
    return ResourceExhausted("sequence {}: {} sequences wait already",
                             request.id, config_.max_waiting);
  }
  Attach(*Insert(std::move(request)), State::kWaiting);
  return OkStatus();
}

StatusOr<Reservation> EngineCore::Reserve(EngineRequest request) {
  // One position more: it must be able to take the first step.
  const int64_t positions = std::ssize(request.tokens) + 1;
  RETURN_IF_ERROR(Validate(request, positions));
  if (request.prefill_only) {
    return InvalidArgument("sequence {}: a reservation cannot be prefill_only",
                           request.id);
  }
  const SequenceId id = request.id;
  // Otherwise a stream of reservations could keep out who waits.
  if (num_preempted_ > 0 || (head_blocked_ && !waiting_.empty())) {
    return ResourceExhausted("sequence {}: {} that wait for room come first",
                             id, waiting_.size());
  }
  // The sender delivers the log probabilities of the prompt.
  request.sampling.prompt_logprobs = -1;
  Sequence& sequence = *Insert(std::move(request));
  if (!Admit(sequence, positions)) {
    Destroy(sequence);
    return ResourceExhausted(
        "sequence {}: no room for {} tokens: {} of {} pages are available, {} "
        "of {} places are taken",
        id, positions, NumAvailable(), pool_.num_pages(), NumPlacesTaken(),
        config_.max_num_seqs);
  }
  Attach(sequence, State::kReserved);
  return Reservation{
      .cached_tokens = sequence.computed,
      .pages = std::span(sequence.pages).first(PagesFor(positions - 1))};
}

StatusOr<FinishReason> EngineCore::Activate(SequenceId id, int32_t token) {
  Sequence* sequence = Find(id);
  if (sequence == nullptr || sequence->state != State::kReserved) {
    return NotFound("sequence {} has no reservation to activate", id);
  }
  if (token < 0 || token >= config_.vocab_size) {
    return InvalidArgument("sequence {}: first token {} is not in [0, {})", id,
                           token, config_.vocab_size);
  }
  Detach(*sequence);
  sequence->computed = static_cast<int32_t>(sequence->tokens.size());
  CacheBlocks(*sequence);
  sequence->tokens.push_back(token);
  const FinishReason reason = EndingOf(*sequence).reason;
  if (reason != FinishReason::kNone) {
    Destroy(*sequence);
    return reason;
  }
  Attach(*sequence, State::kRunning);
  return FinishReason::kNone;
}

bool EngineCore::Cancel(SequenceId id) {
  Sequence* sequence = Find(id);
  if (sequence == nullptr || sequence->cancelled ||
      sequence->state == State::kHeld) {
    return false;
  }
  sequence->cancelled = true;
  if (!sequence->in_step) Stop(*sequence);
  return true;
}

bool EngineCore::Release(SequenceId id) {
  Sequence* sequence = Find(id);
  if (sequence == nullptr || sequence->released) return false;
  sequence->cancelled = sequence->released = true;
  if (!sequence->in_step) Stop(*sequence);
  return true;
}

std::span<const PageId> EngineCore::PagesOf(SequenceId id) const {
  const Sequence* sequence = Find(id);
  if (sequence == nullptr) return {};
  return sequence->pages;
}

void EngineCore::ClearCache() {
  tree_.Clear([this](std::span<const PageId> pages) {
    for (const PageId page : pages) pool_.Drop(page);
  });
}

Status EngineCore::Validate(const EngineRequest& request,
                            int64_t positions) const {
  if (sequences_.contains(request.id)) {
    return MakeError(Code::kAlreadyExists, "sequence {} exists already",
                     request.id);
  }
  const int64_t size = std::ssize(request.tokens);
  if (request.prompt_tokens < 1 || request.prompt_tokens > size) {
    return InvalidArgument(
        "sequence {}: prompt_tokens must be in [1, {}], not {}", request.id,
        size, request.prompt_tokens);
  }
  if (size >= config_.max_model_len) {
    return InvalidArgument(
        "sequence {}: {} tokens leave no room for output; prompt and output "
        "together can have {}",
        request.id, size, config_.max_model_len);
  }
  if (PagesFor(positions) > pool_.num_pages()) {
    return InvalidArgument(
        "sequence {}: {} tokens need {} pages of KV memory; there are {}",
        request.id, size, PagesFor(positions), pool_.num_pages());
  }
  for (const int32_t token : request.tokens) {
    if (token >= 0 && token < config_.vocab_size) continue;
    return InvalidArgument("sequence {}: token id {} is not in [0, {})",
                           request.id, token, config_.vocab_size);
  }
  RETURN_IF_ERROR(ValidateSamplingParams(request.sampling, config_.vocab_size));
  if (size - request.prompt_tokens >= request.sampling.max_tokens) {
    return InvalidArgument(
        "sequence {}: {} tokens of output are there already; max_tokens is {}",
        request.id, size - request.prompt_tokens, request.sampling.max_tokens);
  }
  return OkStatus();
}

EngineCore::Sequence* EngineCore::Insert(EngineRequest request) {
  auto sequence = std::make_unique<Sequence>();
  sequence->id = request.id;
  sequence->arrival = next_arrival_++;
  sequence->prefill_only = request.prefill_only;
  sequence->prompt_tokens = request.prompt_tokens;
  sequence->sampling = std::move(request.sampling);
  sequence->key_root = request.key_root;
  sequence->tokens = std::move(request.tokens);
  if (config_.prefix_caching) {
    sequence->keys = prefix::BlockKeysOf(request.key_root, sequence->tokens,
                                         config_.block_tokens);
  }
  // All that it can grow to, so that steps need not allocate. (Memory that is
  // never touched costs address space only.)
  const int64_t longest = std::min<int64_t>(
      int64_t{sequence->prompt_tokens} + sequence->sampling.max_tokens,
      config_.max_model_len);
  sequence->tokens.reserve(longest);
  sequence->pages.reserve(PagesFor(longest + 1));
  sequence->keys.reserve(longest / config_.block_tokens + 1);
  Sequence* const borrowed = sequence.get();
  sequences_.emplace(borrowed->id, std::move(sequence));
  return borrowed;
}

EngineCore::Sequence* EngineCore::Find(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found == sequences_.end() ? nullptr : found->second.get();
}

bool EngineCore::Admit(Sequence& sequence, int64_t positions) {
  if (NumPlacesTaken() >= config_.max_num_seqs) return false;
  prefix::RadixTree::Pin pin;
  if (config_.prefix_caching) {
    // The last token is always computed: its logits are what is wanted. Those
    // of prompt tokens are, too, until all their log probabilities are out.
    int64_t reusable = std::ssize(sequence.tokens) - 1;
    if (sequence.sampling.prompt_logprobs >= 0) {
      reusable = std::min(reusable, std::ssize(sequence.prompt_logprobs));
    }
    pin = tree_.Acquire(
        sequence.key_root,
        std::span(sequence.keys).first(reusable / config_.block_tokens));
  }
  const int32_t hit_tokens = pin.depth() * config_.block_tokens;
  const int32_t hit_pages = hit_tokens / config_.page_tokens;
  const int32_t total_pages = PagesFor(positions);
  const int32_t spare_pages = running_.empty() ? 0 : config_.growth_pages;
  if (total_pages - hit_pages + spare_pages > NumAvailable()) return false;

  sequence.pages.resize(hit_pages);
  auto end = sequence.pages.end();
  tree_.VisitUp(pin, [&](std::span<const PageId> pages) {
    for (const PageId page : pages) pool_.Share(page);
    end = std::ranges::copy_backward(pages, end).out;
  });
  while (std::ssize(sequence.pages) < total_pages) {
    sequence.pages.push_back(TakePage());
  }
  sequence.pin = std::move(pin);
  sequence.computed = hit_tokens;
  if (!sequence.preempted) {
    sequence.cached_tokens = std::min(hit_tokens, sequence.prompt_tokens);
    ++totals_.prefix_queries;
    totals_.prefix_query_tokens += std::ssize(sequence.tokens);
    totals_.prefix_hit_tokens += hit_tokens;
  }
  return true;
}

PageId EngineCore::TakePage() {
  if (pool_.num_free() == 0) {
    for (const PageId page : tree_.Evict()) pool_.Drop(page);
  }
  return pool_.Take();
}

void EngineCore::Attach(Sequence& sequence, State state) {
  sequence.state = state;
  switch (state) {
    case State::kReserved:
      ++num_reserved_;
      return;
    case State::kHeld:
      ++num_held_;
      return;
    case State::kWaiting:
    case State::kRunning:
      const bool waits = state == State::kWaiting;
      num_preempted_ += waits && sequence.preempted;
      std::vector<Sequence*>& list = waits ? waiting_ : running_;
      list.insert(std::ranges::upper_bound(list, sequence.arrival, {},
                                           &Sequence::arrival),
                  &sequence);
  }
}

void EngineCore::Detach(Sequence& sequence) {
  switch (sequence.state) {
    case State::kReserved:
      --num_reserved_;
      return;
    case State::kHeld:
      --num_held_;
      return;
    case State::kWaiting:
      num_preempted_ -= sequence.preempted;
      waiting_.erase(std::ranges::find(waiting_, &sequence));
      return;
    case State::kRunning:
      running_.erase(std::ranges::find(running_, &sequence));
  }
}

void EngineCore::Stop(Sequence& sequence) {
  const bool transfers = sequence.prefill_only ||
                         sequence.state == State::kReserved ||
                         sequence.state == State::kHeld;
  Detach(sequence);
  if (transfers && !sequence.released && !sequence.pages.empty()) {
    Attach(sequence, State::kHeld);
  } else {
    Destroy(sequence);
  }
}

void EngineCore::Destroy(Sequence& sequence) {
  DropPages(sequence);
  sequences_.erase(sequence.id);
}

void EngineCore::DropPages(Sequence& sequence) {
  for (const PageId page : sequence.pages) pool_.Drop(page);
  sequence.pages.clear();
  sequence.pin.Reset();
}

int32_t EngineCore::PagesFor(int64_t positions) const {
  return static_cast<int32_t>(CeilDiv(positions, int64_t{config_.page_tokens}));
}

int32_t EngineCore::NumAvailable() const {
  return pool_.num_free() +
         tree_.evictable() * (config_.block_tokens / config_.page_tokens);
}

int32_t EngineCore::NumPlacesTaken() const {
  return static_cast<int32_t>(running_.size()) + num_reserved_;
}

}  // namespace tidepool::engine
