#include "dataplane/prefix/radix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "dataplane/base/random.h"

namespace tidepool::prefix {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

BlockKey Root(int32_t name = 0) { return NextBlockKey({}, {{name}}); }

// Keys of the path whose edges are named `edges`.
std::vector<BlockKey> Path(std::vector<int32_t> edges, int32_t root = 0) {
  return BlockKeysOf(Root(root), edges, 1);
}

class RadixTreeTest : public ::testing::Test {
 protected:
  // Adds what is missing of a path; page numbers count up.
  RadixTree::Pin Insert(std::vector<int32_t> edges) {
    const std::vector<BlockKey> keys = Path(edges);
    RadixTree::Pin pin = tree_.Acquire(Root(), keys);
    for (size_t i = pin.depth(); i < keys.size(); ++i) {
      const int32_t pages[] = {next_page_, next_page_ + 1};
      EXPECT_TRUE(tree_.Extend(pin, keys[i], pages));
      next_page_ += 2;
    }
    EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    return pin;
  }
  int32_t DepthOf(std::vector<int32_t> edges) {
    return tree_.Acquire(Root(), Path(edges)).depth();
  }
  std::vector<int32_t> Evict() {
    const auto pages = tree_.Evict();
    EXPECT_TRUE(tree_.CheckInvariants().ok()) << tree_.CheckInvariants();
    return {pages.begin(), pages.end()};
  }
  std::vector<KvEvent> Events() {
    std::vector<KvEvent> events;
    EXPECT_TRUE(events_.Read(1, 1000, events));
    return events;
  }

  KvEventLog events_{1000};
  RadixTree tree_{8, 2, events_};
  int32_t next_page_ = 0;
};

TEST_F(RadixTreeTest, FindsTheLongestPrefix) {
  Insert({1, 2, 3});
  EXPECT_EQ(DepthOf({1, 2, 3, 4}), 3);
  EXPECT_EQ(DepthOf({1, 2, 9}), 2);
  EXPECT_EQ(DepthOf({2, 2, 3}), 0);
  EXPECT_EQ(DepthOf({}), 0);
}

TEST_F(RadixTreeTest, GivesThePagesOfAPrefixDeepestFirst) {
  Insert({1, 2, 3});
  const RadixTree::Pin pin = tree_.Acquire(Root(), Path({1, 2}));
  std::vector<int32_t> pages;
  tree_.VisitUp(pin, [&](std::span<const int32_t> block) {
    pages.insert(pages.end(), block.begin(), block.end());
  });
  EXPECT_THAT(pages, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(tree_.DeepestPages(pin), ElementsAre(2, 3));
}

TEST_F(RadixTreeTest, KeysThatAreNoChainFindNothingBehindTheBreak) {
  Insert({1, 2, 3});
  std::vector<BlockKey> keys = Path({1, 2, 3});
  keys.erase(keys.begin() + 1);
  EXPECT_EQ(tree_.Acquire(Root(), keys).depth(), 1);
}

TEST_F(RadixTreeTest, ABlockThatIsThereKeepsItsPages) {
  Insert({1});
  RadixTree::Pin pin = tree_.Acquire(Root(), {});
  const int32_t pages[] = {90, 91};
  EXPECT_FALSE(tree_.Extend(pin, Path({1})[0], pages));
  EXPECT_EQ(pin.depth(), 1);
  EXPECT_THAT(tree_.DeepestPages(pin), ElementsAre(0, 1));
  EXPECT_EQ(tree_.evictable(), 0);
}

TEST_F(RadixTreeTest, EvictsTheLeastRecentlyUsedFromItsEnd) {
  Insert({1, 2});  // pages 0 to 3
  Insert({5});     // pages 4, 5
  DepthOf({1});    // uses block 1 only
  EXPECT_THAT(Evict(), ElementsAre(2, 3));
  EXPECT_THAT(Evict(), ElementsAre(4, 5));
  EXPECT_THAT(Evict(), ElementsAre(0, 1));
  EXPECT_THAT(Evict(), IsEmpty());
  EXPECT_EQ(tree_.size(), 0);
}

TEST_F(RadixTreeTest, WhatIsPinnedAndAllInFrontOfItStays) {
  const RadixTree::Pin pin = Insert({1, 2, 3});
  Insert({1, 2, 4});
  EXPECT_EQ(tree_.evictable(), 1);
  EXPECT_THAT(Evict(), ElementsAre(6, 7));
  EXPECT_THAT(Evict(), IsEmpty());
  EXPECT_EQ(DepthOf({1, 2, 3}), 3);
}

TEST_F(RadixTreeTest, PinsMoveAndLetGo) {
  RadixTree::Pin pin = Insert({1});
  RadixTree::Pin moved = std::move(pin);
  EXPECT_EQ(pin.depth(), 0);  // NOLINT: a moved-from pin holds nothing
  EXPECT_EQ(moved.depth(), 1);
  EXPECT_EQ(tree_.evictable(), 0);
  moved = Insert({2});
  EXPECT_EQ(tree_.evictable(), 1);
  moved.Reset();
  EXPECT_EQ(tree_.evictable(), 2);
}

TEST_F(RadixTreeTest, SpaceIsUsedAgain) {
  for (int32_t i = 0; i < 100; ++i) {
    if (tree_.size() == 8) Evict();
    Insert({i});
  }
  EXPECT_EQ(tree_.size(), 8);
  EXPECT_EQ(DepthOf({99}), 1);
  EXPECT_EQ(DepthOf({91}), 0);
}

TEST_F(RadixTreeTest, TellsWhatItStoresAndRemoves) {
  Insert({1, 2});
  Evict();
  const std::vector<BlockKey> keys = Path({1, 2});
  const std::vector<KvEvent> events = Events();
  ASSERT_EQ(events.size(), 3);
  EXPECT_EQ(events[0].kind, KvEvent::Kind::kStored);
  EXPECT_EQ(events[0].block, (StoredBlock{.key = keys[0], .parent = Root()}));
  EXPECT_EQ(events[1].block, (StoredBlock{.key = keys[1], .parent = keys[0]}));
  EXPECT_EQ(events[2].kind, KvEvent::Kind::kRemoved);
  EXPECT_EQ(events[2].block.key, keys[1]);
}

TEST_F(RadixTreeTest, ClearSparesWhatIsPinned) {
  RadixTree::Pin pin = Insert({1});
  Insert({1, 2});
  Insert({3});
  int32_t blocks = 0;
  tree_.Clear([&](std::span<const int32_t>) { ++blocks; });
  EXPECT_EQ(blocks, 2);
  EXPECT_EQ(Events().back().kind, KvEvent::Kind::kRemoved);
  pin.Reset();
  tree_.Clear([&](std::span<const int32_t>) { ++blocks; });
  EXPECT_EQ(blocks, 3);
  EXPECT_EQ(Events().back().kind, KvEvent::Kind::kCleared);
  EXPECT_EQ(tree_.size(), 0);
}

// Against a map from paths to the time of their last use.
TEST(RadixTreeRandomTest, BehavesLikeTheSimplestTree) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    KvEventLog events(16);
    RadixTree tree(12, 1, events);
    using Edges = std::vector<int32_t>;
    std::map<Edges, int64_t> last_use;
    std::vector<std::pair<Edges, RadixTree::Pin>> pins;
    int64_t now = 0;
    const auto is_pinned = [&](const Edges& path) {
      return std::ranges::any_of(pins, [&](const auto& pin) {
        return pin.first.size() >= path.size() &&
               std::equal(path.begin(), path.end(), pin.first.begin());
      });
    };
    // Of equally old ones the deepest.
    const auto oldest_unpinned = [&]() -> std::optional<Edges> {
      std::optional<Edges> oldest;
      for (const auto& [path, time] : last_use) {
        if (is_pinned(path)) continue;
        if (!oldest || std::pair(time, -std::ssize(path)) <
                           std::pair(last_use[*oldest], -std::ssize(*oldest))) {
          oldest = path;
        }
      }
      return oldest;
    };
    const auto unpin = [&](size_t i) {
      ++now;
      for (Edges path = pins[i].first; !path.empty(); path.pop_back()) {
        last_use[path] = now;
      }
      pins.erase(pins.begin() + i);
    };
    for (int step = 0; step < 300; ++step) {
      Edges edges(random.Below(5));
      for (int32_t& edge : edges) edge = static_cast<int32_t>(random.Below(3));
      const std::vector<BlockKey> keys = Path(edges);
      RadixTree::Pin pin = tree.Acquire(Root(), keys);
      size_t expected = 0;
      while (expected < edges.size() &&
             last_use.contains({edges.begin(), edges.begin() + expected + 1})) {
        ++expected;
      }
      ASSERT_EQ(pin.depth(), expected);
      Edges path(edges.begin(), edges.begin() + expected);
      pins.emplace_back(path, std::move(pin));
      while (path.size() < edges.size()) {
        if (tree.size() == 12) {
          const std::optional<Edges> victim = oldest_unpinned();
          ASSERT_EQ(tree.Evict().empty(), !victim);
          if (!victim) break;
          std::vector<KvEvent> latest;
          ASSERT_TRUE(events.Read(events.next_sequence() - 1, 1, latest));
          ASSERT_EQ(latest[0].block.key, Path(*victim).back());
          last_use.erase(*victim);
        }
        const int32_t page[] = {step};
        ASSERT_TRUE(tree.Extend(pins.back().second, keys[path.size()], page));
        path.push_back(edges[path.size()]);
        last_use[path] = now;
        pins.back().first = path;
      }
      if (pins.size() > 3 || random.Chance(0.5)) {
        unpin(random.Below(pins.size()));
      }
      const Status invariants = tree.CheckInvariants();
      ASSERT_TRUE(invariants.ok()) << invariants;
    }
    while (!pins.empty()) unpin(0);
  }
}

}  // namespace
}  // namespace tidepool::prefix
