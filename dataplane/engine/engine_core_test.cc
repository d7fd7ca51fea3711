#include "dataplane/engine/engine_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "dataplane/engine/engine_core_fake_runner.h"

namespace tidepool::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int32_t kVocab = 1000;

EngineConfig SmallConfig() {
  return {.page_tokens = 4,
          .block_tokens = 8,
          .num_pages = 16,
          .max_num_seqs = 4,
          .max_num_batched_tokens = 16,
          .max_model_len = 60,
          .max_waiting = 8,
          .vocab_size = kVocab};
}

std::vector<int32_t> Tokens(int32_t count, int32_t first = 1) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

EngineRequest Request(SequenceId id, std::vector<int32_t> tokens,
                      int32_t max_tokens = 4) {
  EngineRequest request{.id = id, .tokens = std::move(tokens)};
  request.prompt_tokens = static_cast<int32_t>(request.tokens.size());
  request.sampling.max_tokens = max_tokens;
  return request;
}

// What follows `tokens`, one after the other.
std::vector<int32_t> Continuation(std::vector<int32_t> tokens, int32_t count) {
  std::vector<int32_t> output;
  for (int32_t i = 0; i < count; ++i) {
    output.push_back(FakeRunner::NextToken(tokens, kVocab));
    tokens.push_back(output.back());
  }
  return output;
}

class EngineCoreTest : public ::testing::Test {
 protected:
  explicit EngineCoreTest(const EngineConfig& config = SmallConfig()) {
    Use(config);
  }

  void Use(const EngineConfig& config) {
    auto core = EngineCore::Create(config);
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = *std::move(core);
    runner_.emplace(config.num_pages, config.page_tokens, kVocab);
  }

  void Execute(const StepPlan& plan) {
    ASSERT_TRUE(runner_->Execute(plan, nullptr, result_).ok());
  }

  // Runs one step and gathers its outputs; false if there is nothing to do.
  bool Step() {
    const StepPlan* plan = core_->Plan();
    if (plan == nullptr) return false;
    Execute(*plan);
    for (const EngineOutput& output : core_->Complete(result_)) {
      outputs_.push_back(output);
      if (output.token) tokens_[output.sequence].push_back(*output.token);
    }
    const Status invariants = core_->CheckInvariants();
    EXPECT_TRUE(invariants.ok()) << invariants;
    return true;
  }
  void RunAll() {
    for (int i = 0; i < 1000 && Step(); ++i) {
    }
  }

  std::unique_ptr<EngineCore> core_;
  std::optional<FakeRunner> runner_;
  StepResult result_;
  std::vector<EngineOutput> outputs_;
  std::map<SequenceId, std::vector<int32_t>> tokens_;
};

TEST(EngineConfigTest, NamesTheFieldThatIsWrong) {
  const auto error_of = [](auto change) {
    EngineConfig config = SmallConfig();
    change(config);
    return std::string(EngineCore::Create(config).status().message());
  };
  EXPECT_THAT(error_of([](auto& c) { c.page_tokens = 3; }),
              HasSubstr("page_tokens = 3 must divide block_tokens = 8"));
  EXPECT_THAT(error_of([](auto& c) { c.num_pages = 0; }),
              HasSubstr("num_pages must be positive"));
  EXPECT_THAT(error_of([](auto& c) { c.max_num_batched_tokens = 3; }),
              HasSubstr("max_num_batched_tokens = 3"));
  EXPECT_THAT(error_of([](auto& c) { c.growth_pages = 16; }),
              HasSubstr("growth_pages"));
  EXPECT_THAT(error_of([](auto&) {}), IsEmpty());
}

TEST(PagesCompletedByTest, CountsFilledPagesAndTheEndOfTheContext) {
  const std::vector<int32_t> context = Tokens(10);
  const auto pages = [&](int32_t begin, int32_t end) {
    return PagesCompletedBy({.context = context, .begin = begin, .end = end},
                            4);
  };
  EXPECT_EQ(pages(0, 3), (PageRange{0, 0}));
  EXPECT_EQ(pages(0, 4), (PageRange{0, 1}));
  EXPECT_EQ(pages(3, 9), (PageRange{0, 2}));
  EXPECT_EQ(pages(9, 10), (PageRange{2, 3}));
  EXPECT_EQ(pages(0, 10), (PageRange{0, 3}));
}

TEST_F(EngineCoreTest, GeneratesUntilMaxTokens) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(5), 3)).ok());
  RunAll();
  EXPECT_EQ(tokens_[1], Continuation(Tokens(5), 3));
  ASSERT_THAT(outputs_, SizeIs(3));
  EXPECT_EQ(outputs_[0].finish_reason, FinishReason::kNone);
  EXPECT_EQ(outputs_[2].finish_reason, FinishReason::kLength);
  EXPECT_EQ(outputs_[2].index, 2);
  EXPECT_FALSE(core_->HasWork());
  EXPECT_EQ(core_->Plan(), nullptr);
}

TEST_F(EngineCoreTest, DecodesGoFirstAndPromptsFillTheRestOfTheBudget) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(5))).ok());
  ASSERT_TRUE(Step());
  ASSERT_TRUE(core_->Add(Request(2, Tokens(12, 100))).ok());
  ASSERT_TRUE(core_->Add(Request(3, Tokens(9, 200))).ok());
  const StepPlan* plan = core_->Plan();
  ASSERT_NE(plan, nullptr);
  ASSERT_THAT(plan->sequences, SizeIs(3));
  EXPECT_EQ(plan->num_tokens(), 16);
  EXPECT_EQ(plan->sequences[0].sequence, 1);
  EXPECT_EQ(plan->sequences[0].begin, 5);
  EXPECT_TRUE(plan->sequences[0].sample);
  EXPECT_EQ(plan->sequences[1].end, 12);
  EXPECT_TRUE(plan->sequences[1].sample);
  EXPECT_EQ(plan->sequences[2].end, 3);
  EXPECT_FALSE(plan->sequences[2].sample);
}

TEST_F(EngineCoreTest, StopsAtEosAndAtStopIdsAndTellsThemApart) {
  const std::vector<int32_t> expected = Continuation(Tokens(5), 4);
  EngineConfig config = SmallConfig();
  config.eos_ids = {expected[1]};
  Use(config);
  ASSERT_TRUE(core_->Add(Request(1, Tokens(5))).ok());
  EngineRequest ignoring = Request(2, Tokens(5));
  ignoring.sampling.ignore_eos = true;
  ignoring.sampling.stop_token_ids = {expected[2]};
  ASSERT_TRUE(core_->Add(std::move(ignoring)).ok());
  RunAll();
  EXPECT_THAT(tokens_[1], ElementsAre(expected[0], expected[1]));
  EXPECT_THAT(tokens_[2], ElementsAre(expected[0], expected[1], expected[2]));
  for (const EngineOutput& output : outputs_) {
    if (output.finish_reason == FinishReason::kNone) continue;
    EXPECT_EQ(output.finish_reason, FinishReason::kStop);
    EXPECT_EQ(output.stop_token_id,
              output.sequence == 1 ? std::nullopt : std::optional(expected[2]));
  }
}

TEST_F(EngineCoreTest, StopsAtTheModelsContext) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(57), 100)).ok());
  RunAll();
  EXPECT_THAT(tokens_[1], SizeIs(3));
  EXPECT_EQ(outputs_.back().finish_reason, FinishReason::kLength);
}

TEST_F(EngineCoreTest, ReusesWholeBlocksButNeverTheWholePrompt) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(16))).ok());
  RunAll();
  EXPECT_EQ(outputs_[0].cached_tokens, 0);
  outputs_.clear();
  // 16 tokens are two whole blocks, but the last token is computed again.
  ASSERT_TRUE(core_->Add(Request(2, Tokens(16))).ok());
  const StepPlan* plan = core_->Plan();
  ASSERT_NE(plan, nullptr);
  EXPECT_EQ(plan->sequences[0].begin, 8);
  Execute(*plan);
  EXPECT_EQ(core_->Complete(result_)[0].cached_tokens, 8);
  // One more, and both are reused.
  std::vector<int32_t> longer = Tokens(17);
  ASSERT_TRUE(core_->Add(Request(3, longer)).ok());
  RunAll();
  EXPECT_EQ(outputs_[1].cached_tokens, 16);
  EXPECT_EQ(tokens_[3], Continuation(longer, 4));
  const EngineStats stats = core_->Stats();
  EXPECT_EQ(stats.prefix_queries, 3);
  EXPECT_EQ(stats.prefix_query_tokens, 49);
  EXPECT_EQ(stats.prefix_hit_tokens, 24);
}

TEST_F(EngineCoreTest, OutputIsReusedByAConversationThatGoesOn) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(6), 12)).ok());
  RunAll();
  std::vector<int32_t> conversation = Tokens(6);
  conversation.insert(conversation.end(), tokens_[1].begin(), tokens_[1].end());
  ASSERT_TRUE(core_->Add(Request(2, conversation)).ok());
  RunAll();
  EXPECT_EQ(outputs_.back().cached_tokens, 16);
  EXPECT_EQ(tokens_[2], Continuation(conversation, 4));
}

TEST_F(EngineCoreTest, TenantsDoNotSharePrefixes) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(17))).ok());
  RunAll();
  EngineRequest other = Request(2, Tokens(17));
  other.key_root.bytes[0] = 1;
  ASSERT_TRUE(core_->Add(std::move(other)).ok());
  RunAll();
  EXPECT_EQ(outputs_.back().cached_tokens, 0);
}

TEST_F(EngineCoreTest, EqualPromptsInFlightEndUpSharingOneCopy) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(8))).ok());
  ASSERT_TRUE(core_->Add(Request(2, Tokens(8))).ok());
  ASSERT_TRUE(Step());
  EXPECT_TRUE(std::ranges::equal(core_->PagesOf(1), core_->PagesOf(2)));
  EXPECT_EQ(core_->Stats().pages_free, 14);
  RunAll();
  EXPECT_EQ(tokens_[1], tokens_[2]);
}

TEST_F(EngineCoreTest, PromptLogprobsAreCompleteDespiteACachedPrefix) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(40))).ok());
  RunAll();
  EngineRequest request = Request(2, Tokens(40));
  request.sampling.prompt_logprobs = 0;
  ASSERT_TRUE(core_->Add(std::move(request)).ok());
  outputs_.clear();
  RunAll();
  ASSERT_THAT(outputs_, SizeIs(4));
  EXPECT_EQ(outputs_[0].cached_tokens, 0);
  ASSERT_THAT(outputs_[0].prompt_logprobs, SizeIs(39));
  for (int32_t i = 0; i < 39; ++i) {
    EXPECT_EQ(outputs_[0].prompt_logprobs[i][0].token, i + 2);
  }
  EXPECT_THAT(outputs_[1].prompt_logprobs, IsEmpty());
}

TEST_F(EngineCoreTest, PreemptsTheYoungestAndResumesItWithTheSameTokens) {
  // Each grows to 44 tokens, 11 of the 16 pages.
  for (SequenceId id = 1; id <= 2; ++id) {
    ASSERT_TRUE(core_->Add(Request(id, Tokens(4, 100 * id), 40)).ok());
  }
  int64_t first_preemption = 0;
  for (int i = 0; i < 1000 && Step(); ++i) {
    if (core_->Stats().preemptions == 0 || first_preemption != 0) continue;
    first_preemption = i;
    EXPECT_THAT(core_->PagesOf(1), SizeIs(::testing::Gt(0)));
    EXPECT_THAT(core_->PagesOf(2), IsEmpty());
  }
  EXPECT_GT(first_preemption, 0);
  for (SequenceId id = 1; id <= 2; ++id) {
    EXPECT_EQ(tokens_[id], Continuation(Tokens(4, 100 * id), 40));
  }
}

TEST_F(EngineCoreTest, AdmissionLeavesRoomToGrow) {
  EngineConfig config = SmallConfig();
  config.growth_pages = 8;
  Use(config);
  ASSERT_TRUE(core_->Add(Request(1, Tokens(16))).ok());       // 4 pages
  ASSERT_TRUE(core_->Add(Request(2, Tokens(20, 100))).ok());  // 5 of 12
  ASSERT_TRUE(Step());
  ASSERT_TRUE(Step());
  EXPECT_EQ(core_->Stats().running, 1);
  RunAll();
  EXPECT_EQ(tokens_[2], Continuation(Tokens(20, 100), 4));
}

TEST_F(EngineCoreTest, ASequenceTooLongForAllMemoryEndsWithAnError) {
  EngineConfig config = SmallConfig();
  config.num_pages = 4;
  Use(config);
  ASSERT_TRUE(core_->Add(Request(1, Tokens(14), 20)).ok());
  RunAll();
  EXPECT_EQ(tokens_[1], Continuation(Tokens(14), 3));
  EXPECT_EQ(outputs_.back().finish_reason, FinishReason::kError);
  EXPECT_EQ(outputs_.back().error.code(), Code::kResourceExhausted);
  EXPECT_EQ(core_->Stats().running, 0);
}

TEST_F(EngineCoreTest, RefusesWhatCanNeverFitAndWhatIsMalformed) {
  const auto error_of = [&](EngineRequest request) {
    return core_->Add(std::move(request));
  };
  EXPECT_THAT(std::string(error_of(Request(1, Tokens(60))).message()),
              HasSubstr("60 tokens leave no room for output"));
  EXPECT_EQ(error_of(Request(1, {})).code(), Code::kInvalidArgument);
  EXPECT_EQ(error_of(Request(1, {kVocab})).code(), Code::kInvalidArgument);
  EXPECT_EQ(error_of(Request(1, {-1})).code(), Code::kInvalidArgument);
  EngineRequest request = Request(1, Tokens(4));
  request.prompt_tokens = 5;
  EXPECT_THAT(std::string(error_of(request).message()),
              HasSubstr("prompt_tokens must be in [1, 4]"));
  request = Request(1, Tokens(6), 2);
  request.prompt_tokens = 4;
  EXPECT_THAT(std::string(error_of(request).message()),
              HasSubstr("max_tokens is 2"));
  request = Request(1, Tokens(4));
  request.sampling.top_p = 2;
  EXPECT_THAT(std::string(error_of(request).message()), HasSubstr("top_p"));

  EngineConfig config = SmallConfig();
  config.num_pages = 4;
  Use(config);
  EXPECT_THAT(std::string(error_of(Request(1, Tokens(17))).message()),
              HasSubstr("need 5 pages"));
  EXPECT_EQ(core_->Reserve(Request(1, Tokens(16))).status().code(),
            Code::kInvalidArgument);
}

TEST_F(EngineCoreTest, TheQueueIsBoundedAndIdsAreUnique) {
  for (SequenceId id = 1; id <= 8; ++id) {
    ASSERT_TRUE(core_->Add(Request(id, Tokens(4))).ok());
  }
  EXPECT_EQ(core_->Add(Request(9, Tokens(4))).code(), Code::kResourceExhausted);
  EXPECT_EQ(core_->Add(Request(8, Tokens(4))).code(), Code::kAlreadyExists);
  RunAll();
  EXPECT_THAT(tokens_, SizeIs(8));
}

TEST_F(EngineCoreTest, APrefillHoldsItsPagesUntilReleased) {
  EngineRequest request = Request(1, Tokens(10));
  request.prefill_only = true;
  ASSERT_TRUE(core_->Add(std::move(request)).ok());
  RunAll();
  EXPECT_EQ(tokens_[1], Continuation(Tokens(10), 1));
  EXPECT_EQ(outputs_[0].finish_reason, FinishReason::kNone);
  EXPECT_EQ(core_->Stats().held, 1);
  EXPECT_EQ(core_->Stats().pages_held, 3);
  EXPECT_FALSE(core_->Cancel(1));
  EXPECT_THAT(core_->PagesOf(1), SizeIs(3));
  EXPECT_TRUE(core_->Release(1));
  EXPECT_FALSE(core_->Release(1));
  EXPECT_EQ(core_->Stats().pages_cached, 2);
  EXPECT_EQ(core_->Stats().pages_free, 14);
}

TEST_F(EngineCoreTest, ACancelledPrefillKeepsItsPagesForItsTransfer) {
  EngineRequest request = Request(1, Tokens(40));
  request.prefill_only = true;
  ASSERT_TRUE(core_->Add(std::move(request)).ok());
  ASSERT_TRUE(Step());
  EXPECT_TRUE(core_->Cancel(1));
  EXPECT_FALSE(Step());
  EXPECT_EQ(core_->Stats().pages_held, 10);
  EXPECT_TRUE(core_->Release(1));
  EXPECT_EQ(core_->Stats().pages_held, 0);
  EXPECT_TRUE(core_->CheckInvariants().ok());
}

TEST_F(EngineCoreTest, AReservationRunsOnceActivated) {
  const std::vector<int32_t> tokens = Tokens(10);
  const auto reservation = core_->Reserve(Request(1, tokens));
  ASSERT_TRUE(reservation.ok()) << reservation.status();
  EXPECT_EQ(reservation->cached_tokens, 0);
  EXPECT_THAT(reservation->pages, SizeIs(3));
  EXPECT_EQ(core_->Plan(), nullptr);
  for (int32_t i = 0; i < 10; ++i) {
    runner_->Page(reservation->pages[i / 4])[i % 4] =
        FakeRunner::KvOf(tokens[i], i);
  }
  const std::vector<int32_t> expected = Continuation(tokens, 4);
  EXPECT_EQ(core_->Activate(1, kVocab).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(*core_->Activate(1, expected[0]), FinishReason::kNone);
  EXPECT_EQ(core_->Activate(1, expected[0]).status().code(), Code::kNotFound);
  RunAll();
  EXPECT_THAT(tokens_[1], ElementsAre(expected[1], expected[2], expected[3]));
  EXPECT_EQ(outputs_[0].index, 1);
  // What came from elsewhere is found by the next one.
  EXPECT_EQ(core_->Reserve(Request(2, tokens))->cached_tokens, 8);
}

TEST_F(EngineCoreTest, AFirstTokenThatEndsTheSequenceIsNotRun) {
  ASSERT_TRUE(core_->Reserve(Request(1, Tokens(10), 1)).ok());
  EXPECT_EQ(*core_->Activate(1, 7), FinishReason::kLength);
  EXPECT_FALSE(core_->HasWork());
  EXPECT_EQ(core_->Stats().pages_free, 14);
}

TEST_F(EngineCoreTest, ACancelledReservationIsQuarantined) {
  ASSERT_TRUE(core_->Reserve(Request(1, Tokens(40))).ok());
  EXPECT_EQ(core_->Stats().pages_reserved, 11);
  EXPECT_TRUE(core_->Cancel(1));
  EXPECT_EQ(core_->Stats().pages_reserved, 0);
  EXPECT_EQ(core_->Stats().pages_held, 11);
  EXPECT_EQ(core_->Activate(1, 7).status().code(), Code::kNotFound);
  // The pages are no one else's yet: there is no room now, but there will be.
  EXPECT_EQ(core_->Reserve(Request(2, Tokens(40))).status().code(),
            Code::kResourceExhausted);
  EXPECT_TRUE(core_->Release(1));
  EXPECT_TRUE(core_->Reserve(Request(2, Tokens(40))).ok());
}

TEST_F(EngineCoreTest, ReservationsTakePlacesInTheBatch) {
  for (SequenceId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(core_->Reserve(Request(id, Tokens(2))).ok());
  }
  EXPECT_EQ(core_->Reserve(Request(5, Tokens(2))).status().code(),
            Code::kResourceExhausted);
  ASSERT_TRUE(core_->Add(Request(6, Tokens(2))).ok());
  EXPECT_EQ(core_->Plan(), nullptr);
  EXPECT_TRUE(core_->HasWork());
  EXPECT_TRUE(core_->Release(1));
  RunAll();
  EXPECT_THAT(tokens_[6], SizeIs(4));
}

TEST_F(EngineCoreTest, PreemptedSequencesComeBeforeReservations) {
  for (SequenceId id = 1; id <= 2; ++id) {
    ASSERT_TRUE(core_->Add(Request(id, Tokens(4, 100 * id), 40)).ok());
  }
  while (core_->Stats().preemptions == 0) ASSERT_TRUE(Step());
  ASSERT_TRUE(core_->Cancel(1));
  EXPECT_EQ(core_->Reserve(Request(3, Tokens(4))).status().code(),
            Code::kResourceExhausted);
  ASSERT_TRUE(Step());
  EXPECT_TRUE(core_->Reserve(Request(3, Tokens(4))).ok());
}

TEST_F(EngineCoreTest, ReservationsDoNotKeepOutWhoWaitsForRoom) {
  ASSERT_TRUE(core_->Reserve(Request(1, Tokens(36))).ok());  // 10 of 16 pages
  ASSERT_TRUE(core_->Add(Request(2, Tokens(40, 100))).ok());
  ASSERT_TRUE(core_->Reserve(Request(3, Tokens(3))).ok());
  EXPECT_EQ(core_->Plan(), nullptr);
  EXPECT_EQ(core_->Reserve(Request(4, Tokens(3))).status().code(),
            Code::kResourceExhausted);
  ASSERT_TRUE(core_->Cancel(2));
  EXPECT_TRUE(core_->Reserve(Request(4, Tokens(3))).ok());
}

TEST_F(EngineCoreTest, CancelDuringAStepTakesEffectWhenItCompletes) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(10))).ok());
  const StepPlan* plan = core_->Plan();
  EXPECT_TRUE(core_->Cancel(1));
  EXPECT_FALSE(core_->Cancel(1));
  EXPECT_THAT(core_->PagesOf(1), SizeIs(3));
  Execute(*plan);
  EXPECT_THAT(core_->Complete(result_), IsEmpty());
  EXPECT_THAT(core_->PagesOf(1), IsEmpty());
  EXPECT_FALSE(core_->Cancel(1));
  EXPECT_TRUE(core_->CheckInvariants().ok());
}

TEST_F(EngineCoreTest, AFailedStepEndsItsSequencesAndCachesNothing) {
  ASSERT_TRUE(core_->Add(Request(1, Tokens(10))).ok());
  ASSERT_NE(core_->Plan(), nullptr);
  const auto outputs = core_->Fail(Internal("device lost"));
  ASSERT_THAT(outputs, SizeIs(1));
  EXPECT_EQ(outputs[0].finish_reason, FinishReason::kError);
  EXPECT_EQ(outputs[0].error.message(), "device lost");
  EXPECT_EQ(outputs[0].token, std::nullopt);
  EXPECT_THAT(core_->CachedBlocks(), IsEmpty());
  EXPECT_EQ(core_->Stats().pages_free, 16);
}

TEST_F(EngineCoreTest, CachedBlocksAreEvictedWhenPagesRunOut) {
  for (SequenceId id = 1; id <= 4; ++id) {
    ASSERT_TRUE(core_->Add(Request(id, Tokens(24, 100 * id))).ok());
    RunAll();
  }
  std::vector<prefix::KvEvent> events;
  ASSERT_TRUE(core_->events().Read(1, 1000, events));
  const auto removed = std::ranges::count(
      events, prefix::KvEvent::Kind::kRemoved, &prefix::KvEvent::kind);
  EXPECT_EQ(std::ssize(events) - removed - removed,
            std::ssize(core_->CachedBlocks()));
  EXPECT_GT(removed, 0);
  EXPECT_EQ(core_->Stats().preemptions, 0);
  core_->ClearCache();
  EXPECT_EQ(core_->Stats().pages_free, 16);
}

}  // namespace
}  // namespace tidepool::engine
