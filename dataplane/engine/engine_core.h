// Continuous batching over a paged KV cache: decides what each iteration of the
// engine computes and where its KV lies.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "dataplane/base/status.h"
#include "dataplane/engine/page_pool.h"
#include "dataplane/engine/step_plan.h"
#include "dataplane/prefix/block_key.h"
#include "dataplane/prefix/kv_events.h"
#include "dataplane/prefix/radix_tree.h"

namespace tidepool::engine {

struct EngineConfig {
  int32_t page_tokens = 16;  // divides block_tokens
  int32_t block_tokens = 64;
  int32_t num_pages = 0;
  // Sequences that may run at once, reservations included.
  int32_t max_num_seqs = 256;
  // Tokens of one step; at least max_num_seqs, so that no decode ever waits.
  int32_t max_num_batched_tokens = 2048;
  int32_t max_model_len = 0;  // prompt and output together
  // Sequences waiting to run, preempted ones not counted.
  int32_t max_waiting = 1024;
  // Pages that admitting a sequence must leave free while others run, so that
  // they can grow before anything is preempted.
  int32_t growth_pages = 0;
  bool prefix_caching = true;
  int64_t vocab_size = 0;
  std::vector<int32_t> eos_ids;
  // KV events kept for readers that lag behind.
  int32_t event_log_capacity = 65536;
};

struct EngineRequest {
  SequenceId id = 0;  // not known to this engine, now or earlier
  // Prompt, then the output that earlier attempts emitted. Not empty.
  std::vector<int32_t> tokens;
  int32_t prompt_tokens = 0;  // in [1, tokens.size()]
  SamplingParams sampling;
  // Root of this request's block keys: KeyDomain::Root of its tenant and
  // adapter. Prefixes are shared within one root only.
  prefix::BlockKey key_root;
  // Compute the context and draw one token, then hold the pages until Release,
  // for whoever streams them away.
  bool prefill_only = false;
};

enum class FinishReason { kNone, kStop, kLength, kError };

// What one step brought for one sequence.
struct EngineOutput {
  SequenceId sequence = 0;
  // Position of `token` in the whole output, earlier attempts included.
  int32_t index = 0;
  std::optional<int32_t> token;  // absent only with kError
  PositionLogprobs logprobs;     // if asked for
  // With the first token this engine draws for the sequence only.
  std::vector<PositionLogprobs> prompt_logprobs;  // from the second token on
  int32_t cached_tokens = 0;  // prompt tokens that were not computed
  FinishReason finish_reason = FinishReason::kNone;
  std::optional<int32_t> stop_token_id;  // absent when EOS stopped it
  Status error;                          // with kError
};

// Pages that wait for KV from elsewhere.
struct Reservation {
  // Leading tokens whose KV is here already, whole blocks, fewer than all;
  // their pages must not be written.
  int32_t cached_tokens = 0;
  // Pages of all tokens, in order, the cached ones first. Valid until the next
  // non-const call.
  std::span<const PageId> pages;
};

struct EngineStats {
  // Pages, each counted once: free, held only by the prefix cache, used by
  // sequences that run, reserved, or held and quarantined for a transfer.
  int32_t pages_total = 0, pages_free = 0, pages_cached = 0, pages_running = 0,
          pages_reserved = 0, pages_held = 0;
  int32_t waiting = 0, running = 0, reserved = 0, held = 0;  // sequences
  int64_t queued_prefill_tokens = 0;  // not computed yet, waiting or running
  int64_t context_tokens = 0;         // of running sequences
  // Since the start.
  int64_t steps = 0, computed_tokens = 0, preemptions = 0;
  int64_t prefix_queries = 0;       // admissions that looked for a prefix
  int64_t prefix_query_tokens = 0;  // tokens they had
  int64_t prefix_hit_tokens = 0;    // tokens they found
};

// A range of indices into SequenceStep::pages.
struct PageRange {
  int32_t begin = 0;
  int32_t end = 0;
  bool operator==(const PageRange&) const = default;
};

// Pages that become final when `step` is done: those it fills, and at the end
// of the context also the last, partly filled one. Pages before
// step.begin / page_tokens were final before (cached ones too, which no step
// computes).
PageRange PagesCompletedBy(const SequenceStep& step, int32_t page_tokens);

// A single-threaded state machine (externally synchronized): the same calls
// with the same arguments give the same plans.
//
// A sequence comes by Add and waits, first in first out, until the pages of all
// its tokens and a place in the batch are there; or by Reserve, which takes
// both at once, and runs from Activate on. A step takes one token of every
// decoding sequence, then chunks of prompts, oldest first, up to
// max_num_batched_tokens. When a decode finds no page, blocks that only the
// cache holds are evicted, least recently used first; then the youngest
// sequence is preempted: it gives its pages back and later computes its prompt
// and output again. Only whole blocks are shared, and only read.
//
// Pages that a transfer reads (prefill_only) or writes (Reserve) are neither
// preempted nor freed before Release or Activate say that the transfer is over
// (DESIGN §3, step 3).
//
// Plan, Complete and Fail do not allocate once the engine is warm, but for log
// probabilities of prompts.
class EngineCore {
 public:
  // Errors: kInvalidArgument naming the field.
  static StatusOr<std::unique_ptr<EngineCore>> Create(
      const EngineConfig& config);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  // Queues a request. Errors: kInvalidArgument (malformed, or can never fit:
  // longer than the model or than all pages), kAlreadyExists,
  // kResourceExhausted (max_waiting; try later).
  Status Add(EngineRequest request);

  // Takes pages for KV that another engine will send. Errors as for Add;
  // kResourceExhausted when there is no room now, or others wait for it.
  StatusOr<Reservation> Reserve(EngineRequest request);

  // The KV of all tokens of a reservation is in its pages, and `token`, which
  // the sender drew, continues the output: the sequence joins the next step. If
  // the token ends it, it is gone, and the reason is returned; otherwise kNone.
  // Errors: kNotFound (no such reservation, or cancelled), kInvalidArgument
  // (the token; the reservation stays).
  StatusOr<FinishReason> Activate(SequenceId id, int32_t token);

  // Ends a sequence without further output. Its pages become free, unless it
  // is prefill_only or a reservation and has any: then they are kept, in
  // quarantine, until Release. False if there is nothing to end.
  bool Cancel(SequenceId id);

  // No transfer touches the pages of `id` any more, now or later: ends the
  // sequence if it has not ended, and frees its pages. False if `id` is
  // unknown.
  bool Release(SequenceId id);

  // The next step, or null if there is nothing to compute. It is in flight, and
  // valid, until Complete or Fail; meanwhile Plan must not be called, but
  // everything else may.
  const StepPlan* Plan();

  // `result` is that of the step in flight. One output per token drawn, without
  // sequences cancelled meanwhile; valid until the next call of Complete or
  // Fail.
  std::span<const EngineOutput> Complete(const StepResult& result);

  // The step in flight did not succeed: its sequences end with `error`.
  std::span<const EngineOutput> Fail(const Status& error);

  // Pages of a sequence that is running, reserved or held; empty otherwise.
  // Valid until the next non-const call.
  std::span<const PageId> PagesOf(SequenceId id) const;

  // Some sequence runs or waits. (Plan may find no step all the same: while all
  // that wait need pages that transfers hold.)
  bool HasWork() const { return !running_.empty() || !waiting_.empty(); }

  // Blocks that the prefix cache stored and removed.
  const prefix::KvEventLog& events() const { return events_; }
  // All blocks in the cache, parents first: the state at
  // events().next_sequence(), for a reader that saw a gap.
  std::vector<prefix::StoredBlock> CachedBlocks() const;
  // Forgets every block that no sequence uses.
  void ClearCache();

  // O(pages of sequences).
  EngineStats Stats() const;

  // That every page and every sequence is accounted for exactly once. Errors:
  // kInternal, which is a bug.
  Status CheckInvariants() const;

 private:
  enum class State;
  struct Sequence;
  struct Ending {
    FinishReason reason = FinishReason::kNone;
    std::optional<int32_t> stop_token_id;
  };

  explicit EngineCore(const EngineConfig& config);

  // That `request` is well-formed and `positions` of it can ever fit.
  Status Validate(const EngineRequest& request, int64_t positions) const;
  Sequence* Insert(EngineRequest request);  // in no state yet
  Sequence* Find(SequenceId id) const;      // null if there is none
  // Enters and leaves the list or count of a state.
  void Attach(Sequence& sequence, State state);
  void Detach(Sequence& sequence);
  // Ends a sequence that no step computes, or holds it for its transfer.
  void Stop(Sequence& sequence);
  void Destroy(Sequence& sequence);  // detached
  void DropPages(Sequence& sequence);

  // Takes the longest cached prefix, and pages for the rest of `positions`.
  // False, with nothing changed, if there is no room or no place in the batch.
  bool Admit(Sequence& sequence, int64_t positions);
  PageId TakePage();  // evicts if none is free; one is available
  // Takes a page if the next token needs one. False if that preempted
  // `sequence` itself.
  bool Grow(Sequence& sequence);
  void Preempt(Sequence& sequence);
  void AppendStep(Sequence& sequence, int32_t tokens);

  // Makes whole blocks whose KV is computed known to the cache.
  void CacheBlocks(Sequence& sequence);
  void TakeResult(Sequence& sequence, const SequenceStep& step,
                  const SequenceResult& result);
  Ending EndingOf(const Sequence& sequence) const;
  EngineOutput& NextOutput(const Sequence& sequence);

  int32_t PagesFor(int64_t positions) const;
  int32_t NumAvailable() const;    // pages free or evictable
  int32_t NumPlacesTaken() const;  // of max_num_seqs
  Status CheckSequence(const Sequence& sequence) const;

  const EngineConfig config_;
  PagePool pool_;
  prefix::KvEventLog events_;
  prefix::RadixTree tree_;  // outlives the pins in sequences_
  Sha256 hash_;
  absl::flat_hash_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  // By age, the oldest first.
  std::vector<Sequence*> running_, waiting_;
  int32_t num_preempted_ = 0;  // of those waiting
  bool head_blocked_ = false;  // the last plan had no room for the oldest
  int32_t num_reserved_ = 0, num_held_ = 0;
  uint64_t next_arrival_ = 0;

  bool in_flight_ = false;
  StepPlan plan_;
  std::vector<Sequence*> in_step_;     // of plan_.sequences
  std::vector<EngineOutput> outputs_;  // the first num_outputs_ are valid
  size_t num_outputs_ = 0;
  EngineStats totals_;  // what is counted since the start
};

}  // namespace tidepool::engine
