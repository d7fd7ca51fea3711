// Two engines under random load: one only prefills and hands over, the other
// takes over and serves whole requests too. Whatever is batched, shared,
// preempted, evicted or cancelled, the tokens are those of a request alone.
//
// TIDEPOOL_SIM_SEEDS sets how many seeds run, TIDEPOOL_SIM_SEED the first one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <set>

#include "dataplane/engine/engine_core.h"
#include "dataplane/engine/engine_core_fake_runner.h"

namespace tidepool::engine {
namespace {

constexpr int32_t kVocab = 97;
constexpr int32_t kEos = 5;

uint64_t FromEnvironment(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

// What a client sent, and what a request alone would answer.
struct Expectation {
  EngineRequest request;
  std::vector<int32_t> output;  // all of it, of earlier attempts too
  FinishReason finish = FinishReason::kNone;
};

Expectation Expect(const EngineRequest& request, const EngineConfig& config) {
  Expectation expected{.request = request};
  std::vector<int32_t> context = request.tokens;
  expected.output.assign(context.begin() + request.prompt_tokens,
                         context.end());
  const SamplingParams& sampling = request.sampling;
  while (expected.finish == FinishReason::kNone) {
    const int32_t token = FakeRunner::NextToken(context, kVocab);
    context.push_back(token);
    expected.output.push_back(token);
    const bool stops = (token == kEos && !sampling.ignore_eos) ||
                       std::ranges::count(sampling.stop_token_ids, token) > 0;
    if (stops) {
      expected.finish = FinishReason::kStop;
    } else if (std::ssize(expected.output) >= sampling.max_tokens ||
               std::ssize(context) >= config.max_model_len) {
      expected.finish = FinishReason::kLength;
    } else if (std::ssize(context) >
               int64_t{config.num_pages} * config.page_tokens) {
      expected.finish = FinishReason::kError;
    }
  }
  return expected;
}

// One engine with its memory, and a reader of its KV events.
class Instance {
 public:
  explicit Instance(const EngineConfig& config)
      : config_(config),
        core_(*EngineCore::Create(config)),
        runner_(config.num_pages, config.page_tokens, kVocab) {}

  EngineCore& core() { return *core_; }
  FakeRunner& runner() { return runner_; }
  const EngineConfig& config() const { return config_; }

  // Keeps an index of the blocks here, as a conductor would.
  void FollowEvents() {
    std::vector<prefix::KvEvent> events;
    if (!core_->events().Read(next_event_, 1 << 20, events)) {
      index_.clear();
      for (const auto& block : core_->CachedBlocks()) index_.insert(block.key);
    }
    for (const prefix::KvEvent& event : events) {
      switch (event.kind) {
        case prefix::KvEvent::Kind::kStored:
          EXPECT_TRUE(index_.insert(event.block.key).second);
          break;
        case prefix::KvEvent::Kind::kRemoved:
          EXPECT_EQ(index_.erase(event.block.key), 1);
          break;
        case prefix::KvEvent::Kind::kCleared:
          index_.clear();
      }
    }
    next_event_ = core_->events().next_sequence();
  }

  void CheckConsistent() {
    const Status invariants = core_->CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
    FollowEvents();
    const auto blocks = core_->CachedBlocks();
    ASSERT_EQ(blocks.size(), index_.size());
    std::set<prefix::BlockKey> seen;
    for (const prefix::StoredBlock& block : blocks) {
      ASSERT_TRUE(index_.contains(block.key));
      // Parents come first, and none is missing.
      ASSERT_TRUE(index_.contains(block.parent) == seen.contains(block.parent));
      seen.insert(block.key);
    }
  }

 private:
  const EngineConfig config_;
  std::unique_ptr<EngineCore> core_;
  FakeRunner runner_;
  std::set<prefix::BlockKey> index_;
  uint64_t next_event_ = 1;
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed)
      : random_(seed),
        prefill_(MakeConfig()),
        decode_(MakeConfig(prefill_.config())) {}

  void Run() {
    const int rounds = static_cast<int>(20 + random_.Below(100));
    for (int i = 0; i < rounds; ++i) {
      Act();
      StepOnce(random_.Chance(0.3) ? prefill_ : decode_);
      if (::testing::Test::HasFatalFailure()) return;
    }
    for (int i = 0; i < 20000 && !Idle(); ++i) {
      Transfer();
      StepOnce(i % 2 == 0 ? prefill_ : decode_);
      if (::testing::Test::HasFatalFailure()) return;
    }
    ASSERT_TRUE(Idle()) << "requests are stuck";
    for (Instance* instance : {&prefill_, &decode_}) {
      const EngineStats stats = instance->core().Stats();
      EXPECT_EQ(stats.pages_free + stats.pages_cached, stats.pages_total);
      instance->core().ClearCache();
      EXPECT_EQ(instance->core().Stats().pages_free, stats.pages_total);
      instance->CheckConsistent();
    }
  }

  int64_t preemptions() {
    return prefill_.core().Stats().preemptions +
           decode_.core().Stats().preemptions;
  }
  int64_t finished() const { return finished_; }
  int64_t handed_over() const { return handed_over_; }
  int64_t hit_tokens() { return decode_.core().Stats().prefix_hit_tokens; }

 private:
  struct Running {
    Instance* home = nullptr;  // that puts out all but a handover's first token
    Expectation expected;
    std::vector<int32_t> output;
  };
  // A request on its way from `prefill_` (id) to `decode_` (the same id).
  struct Handover {
    std::vector<int32_t> tokens;
    std::vector<PageId> from;  // final pages in `prefill_`, to be read
    std::vector<PageId> to;    // pages in `decode_`
    int32_t next_page = 0;     // to copy; the ones before are there
    std::optional<int32_t> first_token;
    bool cancelled = false;
  };

  EngineConfig MakeConfig() {
    const int32_t page_tokens = 1 << random_.Below(3);
    const int32_t block_tokens =
        page_tokens * static_cast<int32_t>(1 << random_.Below(3));
    return MakeConfig({.page_tokens = page_tokens,
                       .block_tokens = block_tokens,
                       .max_model_len = Between(20, 90)});
  }
  // Another configuration of the same model and layout.
  EngineConfig MakeConfig(const EngineConfig& shape) {
    const int32_t max_num_seqs = Between(1, 7);
    const int32_t num_pages = Between(24, 160) / shape.page_tokens + 2;
    return {.page_tokens = shape.page_tokens,
            .block_tokens = shape.block_tokens,
            .num_pages = num_pages,
            .max_num_seqs = max_num_seqs,
            .max_num_batched_tokens = max_num_seqs + Between(0, 40),
            .max_model_len = shape.max_model_len,
            .max_waiting = Between(1, 12),
            .growth_pages = Between(0, 3),
            .prefix_caching = random_.Chance(0.85),
            .vocab_size = kVocab,
            .eos_ids = {kEos},
            .event_log_capacity = Between(1, 300)};
  }

  int32_t Between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random_.Below(high - low + 1));
  }

  // Prompts start alike, so that prefixes are shared.
  EngineRequest MakeRequest() {
    EngineRequest request{.id = next_id_++};
    const int32_t family = Between(0, 2);
    const int32_t shared = Between(0, 40), own = Between(1, 12);
    for (int32_t i = 0; i < shared; ++i) {
      request.tokens.push_back((family * 31 + i * 7) % kVocab);
    }
    for (int32_t i = 0; i < own; ++i) {
      request.tokens.push_back(Between(0, kVocab - 1));
    }
    request.prompt_tokens = static_cast<int32_t>(request.tokens.size());
    request.key_root.bytes[0] = static_cast<uint8_t>(Between(0, 1));
    request.sampling.max_tokens = Between(1, 40);
    request.sampling.ignore_eos = random_.Chance(0.5);
    if (random_.Chance(0.2)) request.sampling.prompt_logprobs = 0;
    if (random_.Chance(0.3)) {
      request.sampling.stop_token_ids = {Between(0, kVocab - 1)};
    }
    return request;
  }

  // Whatever may happen between, or during, two steps.
  void Act() {
    switch (random_.Below(8)) {
      case 0:
      case 1:
        return Serve(AnyInstance(), MakeRequest());
      case 2:
        return StartHandover(MakeRequest());
      case 3:
      case 4:
        return Transfer();
      case 5:
        return CancelOne();
      case 6:
        return MigrateOne();
      case 7:
        if (random_.Chance(0.1)) decode_.core().ClearCache();
    }
  }

  Instance& AnyInstance() { return random_.Chance(0.3) ? prefill_ : decode_; }

  void Serve(Instance& instance, EngineRequest request) {
    if (instance.core().Add(request).ok()) StartRunning(instance, request);
  }

  void StartRunning(Instance& instance, const EngineRequest& request) {
    running_[request.id] = {
        .home = &instance,
        .expected = Expect(request, instance.config()),
        .output = {request.tokens.begin() + request.prompt_tokens,
                   request.tokens.end()}};
  }

  void StartHandover(EngineRequest request) {
    const auto reserved = decode_.core().Reserve(request);
    if (!reserved.ok()) return;
    Handover handover{
        .tokens = request.tokens,
        .to = {reserved->pages.begin(), reserved->pages.end()},
        .next_page = reserved->cached_tokens / decode_.config().page_tokens};
    const SequenceId id = request.id;
    request.prefill_only = true;
    if (!prefill_.core().Add(request).ok()) {
      EXPECT_TRUE(decode_.core().Release(id));
      return;
    }
    handovers_[id] = std::move(handover);
    StartRunning(decode_, request);
  }

  // Copies some pages of a random handover, in order; then commits it, or lets
  // go of it if it was cancelled.
  void Transfer() {
    if (handovers_.empty()) return;
    auto found = handovers_.begin();
    std::advance(found, random_.Below(handovers_.size()));
    auto& [id, handover] = *found;
    const int32_t pages = static_cast<int32_t>(handover.to.size());
    for (int32_t copies = Between(0, 3);
         copies > 0 && handover.next_page < pages; --copies) {
      const auto to = decode_.runner().Page(handover.to[handover.next_page]);
      if (handover.cancelled) {
        // What arrives late is rubbish, which only quarantine keeps from
        // others.
        std::ranges::fill(to, random_.Next());
      } else if (handover.next_page < std::ssize(handover.from)) {
        std::ranges::copy(
            prefill_.runner().Page(handover.from[handover.next_page]),
            to.begin());
      } else {
        break;
      }
      ++handover.next_page;
    }
    if (handover.next_page < pages) return;
    if (!handover.cancelled && !handover.first_token) return;
    prefill_.core().Release(id);
    if (handover.cancelled) {
      EXPECT_TRUE(decode_.core().Release(id));
    } else {
      Commit(id, *handover.first_token);
    }
    handovers_.erase(found);
  }

  // Pages are read some time after they are final, from where they were then.
  void PostReads(const StepPlan& plan) {
    for (const SequenceStep& step : plan.sequences) {
      const auto found = handovers_.find(step.sequence);
      if (found == handovers_.end()) continue;
      std::vector<PageId>& from = found->second.from;
      const PageRange pages =
          PagesCompletedBy(step, prefill_.config().page_tokens);
      // The first step leaves out what was in the cache.
      if (from.empty()) {
        from.assign(step.pages.begin(), step.pages.begin() + pages.begin);
      }
      ASSERT_EQ(std::ssize(from), pages.begin);
      from.insert(from.end(), step.pages.begin() + pages.begin,
                  step.pages.begin() + pages.end);
    }
  }

  void Commit(SequenceId id, int32_t first_token) {
    ++handed_over_;
    Running& running = running_.at(id);
    const auto reason = decode_.core().Activate(id, first_token);
    ASSERT_TRUE(reason.ok()) << reason.status();
    running.output.push_back(first_token);
    if (*reason != FinishReason::kNone) Finish(id, *reason);
  }

  void CancelOne() {
    const std::optional<SequenceId> id = RandomRunning();
    if (!id) return;
    EXPECT_TRUE(running_.at(*id).home->core().Cancel(*id));
    running_.erase(*id);
    const auto handover = handovers_.find(*id);
    if (handover == handovers_.end()) return;
    prefill_.core().Cancel(*id);
    handover->second.cancelled = true;
  }

  // Ends a request that is in one place and starts it again with what it has
  // put out.
  void MigrateOne() {
    const std::optional<SequenceId> id = RandomRunning();
    if (!id || handovers_.contains(*id)) return;
    EngineRequest request = running_.at(*id).expected.request;
    const std::vector<int32_t> output = running_.at(*id).output;
    request.tokens.resize(request.prompt_tokens);
    request.tokens.insert(request.tokens.end(), output.begin(), output.end());
    EXPECT_TRUE(running_.at(*id).home->core().Cancel(*id));
    running_.erase(*id);
    request.id = next_id_++;
    request.prefill_only = false;
    if (random_.Chance(0.5)) return Serve(AnyInstance(), std::move(request));
    StartHandover(std::move(request));
  }

  std::optional<SequenceId> RandomRunning() {
    if (running_.empty()) return std::nullopt;
    auto found = running_.begin();
    std::advance(found, random_.Below(running_.size()));
    return found->first;
  }

  void StepOnce(Instance& instance) {
    const StepPlan* plan = instance.core().Plan();
    if (plan != nullptr) {
      CheckPlan(*plan, instance.config());
      if (random_.Chance(0.3)) Act();
      if (random_.Chance(0.01)) return FailStep(instance);
      ASSERT_TRUE(instance.runner().Execute(*plan, nullptr, result_).ok());
      if (&instance == &prefill_) PostReads(*plan);
      if (random_.Chance(0.3)) Act();
      for (const EngineOutput& output : instance.core().Complete(result_)) {
        TakeOutput(instance, output);
      }
    }
    instance.CheckConsistent();
  }

  void FailStep(Instance& instance) {
    for (const EngineOutput& output :
         instance.core().Fail(Internal("device lost"))) {
      EXPECT_EQ(output.finish_reason, FinishReason::kError);
      running_.erase(output.sequence);
      const auto handover = handovers_.find(output.sequence);
      if (handover == handovers_.end()) continue;
      handover->second.cancelled = true;
      decode_.core().Cancel(output.sequence);
    }
    instance.CheckConsistent();
  }

  void CheckPlan(const StepPlan& plan, const EngineConfig& config) {
    ASSERT_LE(plan.num_tokens(), config.max_num_batched_tokens);
    ASSERT_LE(std::ssize(plan.sequences), config.max_num_seqs);
    for (const SequenceStep& step : plan.sequences) {
      ASSERT_LT(step.begin, step.end);
      ASSERT_LE(step.end, std::ssize(step.context));
      ASSERT_LE(step.end, std::ssize(step.pages) * config.page_tokens);
      ASSERT_EQ(step.sample, step.end == std::ssize(step.context));
    }
  }

  void TakeOutput(Instance& instance, const EngineOutput& output) {
    ASSERT_TRUE(running_.contains(output.sequence)) << "output after the end";
    Running& running = running_.at(output.sequence);
    const Expectation& expected = running.expected;
    const size_t index = running.output.size();
    ASSERT_EQ(output.index, index);
    ASSERT_LT(index, expected.output.size());
    ASSERT_EQ(output.token, expected.output[index])
        << "sequence " << output.sequence << " at " << index;
    CheckPromptLogprobs(output, expected.request);
    if (&instance != running.home) {
      handovers_.at(output.sequence).first_token = output.token;
      return;
    }
    running.output.push_back(*output.token);
    if (output.finish_reason != FinishReason::kNone) {
      Finish(output.sequence, output.finish_reason);
    }
  }

  void CheckPromptLogprobs(const EngineOutput& output,
                           const EngineRequest& request) {
    const bool first =
        output.index == std::ssize(request.tokens) - request.prompt_tokens;
    const bool wanted = first && request.sampling.prompt_logprobs >= 0;
    ASSERT_EQ(std::ssize(output.prompt_logprobs),
              wanted ? request.prompt_tokens - 1 : 0);
    for (size_t i = 0; i < output.prompt_logprobs.size(); ++i) {
      ASSERT_EQ(output.prompt_logprobs[i].at(0).token, request.tokens[i + 1]);
    }
  }

  void Finish(SequenceId id, FinishReason reason) {
    const Running& running = running_.at(id);
    EXPECT_EQ(reason, running.expected.finish);
    EXPECT_EQ(running.output, running.expected.output);
    ++finished_;
    running_.erase(id);
  }

  bool Idle() {
    return running_.empty() && handovers_.empty() &&
           !prefill_.core().HasWork() && !decode_.core().HasWork();
  }

  Random random_;
  Instance prefill_, decode_;
  SequenceId next_id_ = 1;
  std::map<SequenceId, Running> running_;
  std::map<SequenceId, Handover> handovers_;
  StepResult result_;
  int64_t finished_ = 0, handed_over_ = 0;
};

TEST(EngineCoreSimTest, TokensAreThoseOfARequestAlone) {
  const uint64_t first = FromEnvironment("TIDEPOOL_SIM_SEED", 1);
  const uint64_t seeds = FromEnvironment("TIDEPOOL_SIM_SEEDS", 1000);
  int64_t finished = 0, preemptions = 0, handed_over = 0, hit_tokens = 0;
  for (uint64_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(fmt::format("TIDEPOOL_SIM_SEED={}", seed));
    Simulation simulation(seed);
    simulation.Run();
    if (HasFailure()) return;
    finished += simulation.finished();
    preemptions += simulation.preemptions();
    handed_over += simulation.handed_over();
    hit_tokens += simulation.hit_tokens();
  }
  fmt::print(
      "{} seeds: {} requests finished, {} handed over, {} preemptions, "
      "{} tokens found in the cache\n",
      seeds, finished, handed_over, preemptions, hit_tokens);
  if (seeds < 100) return;
  // The load is such that everything happens.
  EXPECT_GT(finished, static_cast<int64_t>(seeds));
  EXPECT_GT(handed_over, static_cast<int64_t>(seeds / 4));
  EXPECT_GT(preemptions, static_cast<int64_t>(seeds / 4));
  EXPECT_GT(hit_tokens, static_cast<int64_t>(seeds));
}

}  // namespace
}  // namespace tidepool::engine
