#include "dataplane/worker/worker_core_streams.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace tidepool::worker {
namespace {

constexpr int32_t kLayers = 3;
constexpr StreamId kStream = 7;

std::shared_ptr<const StreamTarget> Target(uint32_t first_page) {
  auto target = std::make_shared<StreamTarget>();
  target->stream = kStream;
  target->first_page = first_page;
  return target;
}

// (layer, extent, page) of every slice submitted.
using Slices = std::multiset<std::tuple<int32_t, uint32_t, engine::PageId>>;

Slices SlicesOf(const std::vector<SliceSubmission>& submissions) {
  Slices slices;
  for (const SliceSubmission& submission : submissions) {
    for (int32_t layer = submission.layer_begin; layer < submission.layer_end;
         ++layer) {
      for (uint32_t i = 0; i < submission.pages.size(); ++i) {
        slices.insert(
            {layer, submission.extent_begin + i, submission.pages[i]});
      }
    }
  }
  return slices;
}

// Page i of the context is local page 100 + i. Two pages are cached, two steps
// complete pages 2, 3 and 4.
std::vector<SliceSubmission> RunWithOpenAt(int open_at, uint32_t first_page) {
  SliceStreamer streamer(kLayers);
  std::vector<SliceSubmission> out;
  int time = 0;
  const auto tick = [&] {
    if (time++ == open_at) streamer.Open(Target(first_page), out);
  };
  tick();
  streamer.AddFinal({kStream, 0, {100, 101}}, out);
  tick();
  const std::vector<StreamPages> steps[] = {{{kStream, 2, {102, 103}}},
                                            {{kStream, 4, {104}}}};
  for (const std::vector<StreamPages>& step : steps) {
    streamer.StartStep(step);
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      tick();
      streamer.OnLayer(layer, out);
    }
    tick();
    streamer.FinishStep(true);
    tick();
  }
  return out;
}

TEST(SliceStreamerTest, SubmitsEverySliceOnceWheneverTheCapabilityComes) {
  for (uint32_t first_page = 0; first_page < 5; ++first_page) {
    Slices expected;
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t page = first_page; page < 5; ++page) {
        expected.insert({layer, page - first_page,
                         static_cast<engine::PageId>(100 + page)});
      }
    }
    for (int open_at = 0; open_at < 12; ++open_at) {
      EXPECT_EQ(SlicesOf(RunWithOpenAt(open_at, first_page)), expected)
          << "opened at " << open_at << ", first page " << first_page;
    }
  }
}

TEST(SliceStreamerTest, SendsALayerAsSoonAsItIsComputed) {
  SliceStreamer streamer(kLayers);
  std::vector<SliceSubmission> out;
  streamer.Open(Target(0), out);
  streamer.StartStep({{kStream, 0, {100}}});
  EXPECT_TRUE(out.empty());
  streamer.OnLayer(0, out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].layer_begin, 0);
  EXPECT_EQ(out[0].layer_end, 1);
}

TEST(SliceStreamerTest, SendsNothingOfAStepThatFailed) {
  SliceStreamer streamer(kLayers);
  std::vector<SliceSubmission> out;
  streamer.StartStep({{kStream, 0, {100}}});
  streamer.OnLayer(0, out);
  streamer.FinishStep(false);
  streamer.Open(Target(0), out);
  EXPECT_TRUE(out.empty());
}

TEST(SliceStreamerTest, IsClosedOnceNothingIsInFlight) {
  SliceStreamer streamer(kLayers);
  std::vector<SliceSubmission> out;
  streamer.Open(Target(0), out);
  streamer.StartStep({{kStream, 0, {100}}});
  streamer.OnLayer(0, out);
  streamer.OnLayer(1, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_FALSE(streamer.Close(kStream));
  streamer.OnLayer(2, out);
  EXPECT_EQ(out.size(), 2u);
  EXPECT_FALSE(streamer.Complete(kStream));
  EXPECT_TRUE(streamer.Complete(kStream));
  EXPECT_EQ(streamer.num_streams(), 0u);
  streamer.FinishStep(true);
  EXPECT_TRUE(streamer.Close(kStream));  // nothing to wait for
}

}  // namespace
}  // namespace tidepool::worker
