// A model for tests whose next token depends on every token of the context, as
// read through the page table: a wrong, shared or overwritten page changes what
// is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/engine/step_plan.h"

namespace tidepool::engine {

class FakeRunner : public ModelRunner {
 public:
  FakeRunner(int32_t num_pages, int32_t page_tokens, int32_t vocab_size)
      : page_tokens_(page_tokens),
        vocab_size_(vocab_size),
        memory_(size_t(num_pages) * page_tokens) {}

  // What the "KV" of a token at a position is.
  static uint64_t KvOf(int32_t token, int32_t position) {
    return RandomAt(position, token);
  }

  // The token that follows `context`, without pages.
  static int32_t NextToken(std::span<const int32_t> context,
                           int32_t vocab_size) {
    uint64_t state = 0;
    for (size_t i = 0; i < context.size(); ++i) {
      state = Mix64(state ^ KvOf(context[i], static_cast<int32_t>(i)));
    }
    return static_cast<int32_t>(state % vocab_size);
  }

  // The memory of one page.
  std::span<uint64_t> Page(PageId page) {
    return std::span(memory_).subspan(size_t(page) * page_tokens_,
                                      page_tokens_);
  }

  Status Execute(const StepPlan& plan, LayerObserver* observer,
                 StepResult& result) override {
    // All is written before anything is read, so that sequences that write the
    // same page spoil each other.
    for (const SequenceStep& step : plan.sequences) {
      for (int32_t i = step.begin; i < step.end; ++i) {
        Page(step.pages[i / page_tokens_])[i % page_tokens_] =
            KvOf(step.context[i], i);
      }
    }
    if (observer != nullptr) observer->OnLayer(plan, 0);
    result.number = plan.number;
    result.sequences.resize(plan.sequences.size());
    for (size_t i = 0; i < plan.sequences.size(); ++i) {
      Compute(plan.sequences[i], result.sequences[i]);
    }
    return OkStatus();
  }

 private:
  void Compute(const SequenceStep& step, SequenceResult& result) {
    result.sequence = step.sequence;
    result.sampled = step.sample;
    uint64_t state = 0;
    for (int32_t i = 0; i < step.end; ++i) {
      state =
          Mix64(state ^ Page(step.pages[i / page_tokens_])[i % page_tokens_]);
    }
    result.token = static_cast<int32_t>(state % vocab_size_);
    result.logprobs.clear();
    result.prompt_logprobs.clear();
    if (step.sampling->prompt_logprobs < 0) return;
    for (int32_t i = step.begin + 1; i <= step.end; ++i) {
      if (i >= step.prompt_tokens) break;
      result.prompt_logprobs.push_back({{.token = step.context[i]}});
    }
  }

  const int32_t page_tokens_;
  const int32_t vocab_size_;
  std::vector<uint64_t> memory_;
};

}  // namespace tidepool::engine
