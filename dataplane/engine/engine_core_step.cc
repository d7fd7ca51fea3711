// Planning a step, and taking in what came of it.
#include <algorithm>

#include "dataplane/base/check.h"
#include "dataplane/engine/engine_core_internal.h"

namespace tidepool::engine {

const StepPlan* EngineCore::Plan() {
  CHECK(!in_flight_);
  plan_.sequences.clear();
  in_step_.clear();
  // Oldest first, so that whoever is preempted for a page is not in the plan
  // yet.
  for (size_t i = 0; i < running_.size();) {
    Sequence& sequence = *running_[i];
    if (sequence.remaining() == 1) {
      if (!Grow(sequence)) continue;  // running_[i] is another one now
      AppendStep(sequence, 1);
    }
    ++i;
  }
  int32_t budget = config_.max_num_batched_tokens -
                   static_cast<int32_t>(plan_.sequences.size());
  const auto append_chunk = [&](Sequence& sequence) {
    const int32_t chunk = std::min(budget, sequence.remaining());
    AppendStep(sequence, chunk);
    budget -= chunk;
  };
  for (Sequence* sequence : running_) {
    if (!sequence->in_step && budget > 0) append_chunk(*sequence);
  }
  head_blocked_ = false;
  while (budget > 0 && !waiting_.empty()) {
    Sequence& sequence = *waiting_.front();
    head_blocked_ = !Admit(sequence, std::ssize(sequence.tokens));
    if (head_blocked_) break;
    Detach(sequence);
    Attach(sequence, State::kRunning);
    append_chunk(sequence);
  }
  if (plan_.sequences.empty()) return nullptr;
  ++plan_.number;
  in_flight_ = true;
  return &plan_;
}

std::span<const EngineOutput> EngineCore::Complete(const StepResult& result) {
  CHECK(in_flight_ && result.number == plan_.number &&
        result.sequences.size() == in_step_.size());
  ++totals_.steps;
  totals_.computed_tokens += plan_.num_tokens();
  num_outputs_ = 0;
  for (size_t i = 0; i < in_step_.size(); ++i) {
    Sequence& sequence = *in_step_[i];
    const SequenceStep& step = plan_.sequences[i];
    sequence.in_step = false;
    sequence.computed = step.end;
    CacheBlocks(sequence);
    if (sequence.cancelled) {
      Stop(sequence);
    } else {
      TakeResult(sequence, step, result.sequences[i]);
    }
  }
  in_flight_ = false;
  return std::span(outputs_).first(num_outputs_);
}

std::span<const EngineOutput> EngineCore::Fail(const Status& error) {
  CHECK(in_flight_ && !error.ok());
  ++totals_.steps;
  num_outputs_ = 0;
  for (Sequence* sequence : in_step_) {
    sequence->in_step = false;
    if (!sequence->cancelled) {
      EngineOutput& output = NextOutput(*sequence);
      output.finish_reason = FinishReason::kError;
      output.error = error;
    }
    Stop(*sequence);
  }
  in_flight_ = false;
  return std::span(outputs_).first(num_outputs_);
}

bool EngineCore::Grow(Sequence& sequence) {
  while (PagesFor(std::ssize(sequence.tokens)) > std::ssize(sequence.pages)) {
    if (NumAvailable() > 0) {
      sequence.pages.push_back(TakePage());
      continue;
    }
    // The pages of a sequence that only prefills may be under a transfer. The
    // one that grows is not of that kind, so one is found.
    const auto youngest = std::find_if(
        running_.rbegin(), running_.rend(),
        [](const Sequence* other) { return !other->prefill_only; });
    Sequence& victim = **youngest;
    Preempt(victim);
    if (&victim == &sequence) return false;
  }
  return true;
}

void EngineCore::Preempt(Sequence& sequence) {
  CHECK(!sequence.in_step);
  ++totals_.preemptions;
  Detach(sequence);
  DropPages(sequence);
  sequence.computed = 0;
  sequence.preempted = true;
  Attach(sequence, State::kWaiting);
}

void EngineCore::AppendStep(Sequence& sequence, int32_t tokens) {
  const int32_t end = sequence.computed + tokens;
  plan_.sequences.push_back({.sequence = sequence.id,
                             .context = sequence.tokens,
                             .prompt_tokens = sequence.prompt_tokens,
                             .begin = sequence.computed,
                             .end = end,
                             .pages = sequence.pages,
                             .sample = end == std::ssize(sequence.tokens),
                             .sampling = &sequence.sampling});
  in_step_.push_back(&sequence);
  sequence.in_step = true;
}

void EngineCore::CacheBlocks(Sequence& sequence) {
  if (!config_.prefix_caching) return;
  const int32_t block_tokens = config_.block_tokens;
  const int32_t pages_per_block = block_tokens / config_.page_tokens;
  std::vector<prefix::BlockKey>& keys = sequence.keys;
  for (int32_t block = sequence.pin.depth();
       (block + 1) * block_tokens <= sequence.computed; ++block) {
    if (block == std::ssize(keys)) {
      keys.push_back(prefix::NextBlockKey(
          hash_, block == 0 ? sequence.key_root : keys.back(),
          std::span(sequence.tokens)
              .subspan(block * block_tokens, block_tokens)));
    }
    const std::span<PageId> own =
        std::span(sequence.pages)
            .subspan(block * pages_per_block, pages_per_block);
    if (tree_.Extend(sequence.pin, keys[block], own)) {
      for (const PageId page : own) pool_.Share(page);
    } else if (!sequence.prefill_only) {
      // Another sequence was faster: its copy serves both, and ours is free.
      // (A transfer may be reading the pages of one that only prefills.)
      const std::span<const PageId> cached = tree_.DeepestPages(sequence.pin);
      for (int32_t i = 0; i < pages_per_block; ++i) {
        pool_.Share(cached[i]);
        pool_.Drop(std::exchange(own[i], cached[i]));
      }
    }
  }
}

void EngineCore::TakeResult(Sequence& sequence, const SequenceStep& step,
                            const SequenceResult& result) {
  CHECK(result.sequence == sequence.id && result.sampled == step.sample);
  // Entry i is of position step.begin + 1 + i. After a preemption some come
  // again.
  const int64_t known = std::ssize(sequence.prompt_logprobs);
  for (int64_t i = std::max<int64_t>(known - step.begin, 0);
       i < std::ssize(result.prompt_logprobs); ++i) {
    sequence.prompt_logprobs.push_back(result.prompt_logprobs[i]);
  }
  if (!step.sample) return;

  CHECK(result.token >= 0 && result.token < config_.vocab_size);
  EngineOutput& output = NextOutput(sequence);
  output.token = result.token;
  output.logprobs = result.logprobs;
  output.prompt_logprobs = std::exchange(sequence.prompt_logprobs, {});
  sequence.sampling.prompt_logprobs = -1;
  sequence.tokens.push_back(result.token);
  const Ending ending = EndingOf(sequence);
  output.finish_reason = ending.reason;
  output.stop_token_id = ending.stop_token_id;
  if (ending.reason == FinishReason::kNone && !sequence.prefill_only &&
      PagesFor(std::ssize(sequence.tokens)) > pool_.num_pages()) {
    output.finish_reason = FinishReason::kError;
    output.error = ResourceExhausted(
        "sequence {}: KV memory holds {} tokens, and it needs {}", sequence.id,
        int64_t{pool_.num_pages()} * config_.page_tokens,
        sequence.tokens.size());
  }
  if (output.finish_reason != FinishReason::kNone || sequence.prefill_only) {
    Stop(sequence);
  }
}

EngineCore::Ending EngineCore::EndingOf(const Sequence& sequence) const {
  const SamplingParams& sampling = sequence.sampling;
  const int32_t last = sequence.tokens.back();
  if (!sampling.ignore_eos &&
      std::ranges::find(config_.eos_ids, last) != config_.eos_ids.end()) {
    return {.reason = FinishReason::kStop};
  }
  const std::vector<int32_t>& stops = sampling.stop_token_ids;
  if (std::ranges::find(stops, last) != stops.end()) {
    return {.reason = FinishReason::kStop, .stop_token_id = last};
  }
  if (sequence.output_tokens() >= sampling.max_tokens ||
      std::ssize(sequence.tokens) >= config_.max_model_len) {
    return {.reason = FinishReason::kLength};
  }
  return {};
}

EngineOutput& EngineCore::NextOutput(const Sequence& sequence) {
  EngineOutput& output = outputs_[num_outputs_++];
  output.sequence = sequence.id;
  output.index = sequence.output_tokens();
  output.token.reset();
  output.logprobs.clear();
  output.prompt_logprobs.clear();
  output.cached_tokens = sequence.cached_tokens;
  output.finish_reason = FinishReason::kNone;
  output.stop_token_id.reset();
  output.error = OkStatus();
  return output;
}

}  // namespace tidepool::engine
