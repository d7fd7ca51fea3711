#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "dataplane/engine/kernels_test_util.h"

namespace tidepool::engine::internal {
namespace {

struct Shape {
  int32_t group, kv_heads, head_dim;
  int32_t page_tokens;
  int32_t positions;  // of context
};

// KV of one layer in shuffled pages, NaN where nothing was written, and one
// query per position.
class Context {
 public:
  Context(ComputeMode mode, const Shape& shape, Random& random)
      : mode_(mode),
        shape_(shape),
        element_bytes_(mode == ComputeMode::kFloat32 ? 4 : 2),
        pages_(static_cast<size_t>(shape.positions / shape.page_tokens + 1)),
        slice_elements_(int64_t{2} * shape.kv_heads * shape.page_tokens *
                        shape.head_dim),
        layer_(mode, slice_elements_ * (std::ssize(pages_) + 2)),
        queries_(mode, shape.positions * stride()) {
    for (size_t i = 0; i < pages_.size(); ++i)
      pages_[i] = static_cast<int32_t>(i) + 1;
    for (size_t i = pages_.size(); i > 1; --i)
      std::swap(pages_[i - 1], pages_[random.Below(i)]);
    Fill(random);
  }

  // With numbers that do not depend on the pages.
  void Fill(Random& random) {
    for (int64_t i = 0; i < shape_.positions * stride(); ++i)
      queries_.Set(i, RandomFloat(random) * 0.5f);
    for (int32_t p = 0; p < shape_.positions; ++p) {
      for (int32_t plane = 0; plane < 2 * shape_.kv_heads; ++plane) {
        for (int32_t d = 0; d < shape_.head_dim; ++d)
          layer_.Set(Index(plane, p, d), RandomFloat(random));
      }
    }
  }

  int64_t stride() const {
    return int64_t{shape_.group} * shape_.kv_heads * shape_.head_dim;
  }

  // Forgets what is known from position `first` on.
  void Erase(int32_t first) {
    for (int32_t p = first; p < shape_.positions; ++p) {
      for (int32_t plane = 0; plane < 2 * shape_.kv_heads; ++plane) {
        for (int32_t d = 0; d < shape_.head_dim; ++d)
          layer_.Set(Index(plane, p, d), p % 2 == 0 ? NAN : -INFINITY);
      }
    }
  }

  // Positions [begin, end), in pieces of as many as one call takes.
  void Run(const KernelTable& kernels, int32_t begin, int32_t end,
           Elements& out) const {
    std::vector<std::byte> scratch(
        AttentionScratchBytes(shape_.group, shape_.head_dim) + 64);
    auto aligned = reinterpret_cast<uintptr_t>(scratch.data() + 63) / 64 * 64;
    const int32_t most = AttentionRowsMax(shape_.group) / shape_.group;
    for (int32_t p = begin; p < end; p += most) {
      for (int32_t head = 0; head < shape_.kv_heads; ++head) {
        const int64_t at =
            p * stride() + int64_t{head} * shape_.group * shape_.head_dim;
        kernels.attention({.q = queries_.at(at),
                           .out = out.at(at),
                           .stride = stride(),
                           .tokens = std::min(most, end - p),
                           .position = p,
                           .group = shape_.group,
                           .head_dim = shape_.head_dim,
                           .layer = static_cast<const std::byte*>(layer_.at(0)),
                           .slice_bytes = slice_elements_ * element_bytes_,
                           .pages = pages_.data(),
                           .page_tokens = shape_.page_tokens,
                           .kv_head = head,
                           .kv_heads = shape_.kv_heads,
                           .scratch = reinterpret_cast<std::byte*>(aligned)});
      }
    }
  }

  // In double, straight from the definition.
  std::vector<double> Expected(int32_t position, int32_t head) const {
    const int32_t kv_head = head / shape_.group;
    std::vector<double> weights, result(shape_.head_dim);
    double total = 0;
    for (int32_t p = 0; p <= position; ++p) {
      double score = 0;
      for (int32_t d = 0; d < shape_.head_dim; ++d) {
        score += static_cast<double>(queries_.Get(position * stride() +
                                                  head * shape_.head_dim + d)) *
                 layer_.Get(Index(kv_head, p, d));
      }
      weights.push_back(std::exp2(score));
      total += weights.back();
    }
    for (int32_t p = 0; p <= position; ++p) {
      for (int32_t d = 0; d < shape_.head_dim; ++d) {
        result[d] += weights[p] / total *
                     layer_.Get(Index(shape_.kv_heads + kv_head, p, d));
      }
    }
    return result;
  }

 private:
  int64_t Index(int32_t plane, int32_t position, int32_t d) const {
    const int64_t page = pages_[position / shape_.page_tokens];
    return page * slice_elements_ +
           (int64_t{plane} * shape_.page_tokens +
            position % shape_.page_tokens) *
               shape_.head_dim +
           d;
  }

  const ComputeMode mode_;
  const Shape shape_;
  const int64_t element_bytes_;
  std::vector<int32_t> pages_;
  const int64_t slice_elements_;
  Elements layer_;
  Elements queries_;
};

class AttentionTest : public KernelTest {};

TEST_P(AttentionTest, AgreesWithTheDefinition) {
  for (const Shape& shape :
       {Shape{1, 1, 2, 16, 70}, Shape{7, 2, 64, 64, 150},
        Shape{2, 2, 48, 32, 131}, Shape{3, 1, 100, 16, 65},
        Shape{1, 3, 34, 64, 64}, Shape{4, 1, 128, 16, 200}}) {
    const Context context(mode_, shape, random_);
    Elements out(mode_, shape.positions * context.stride());
    context.Run(kernels_, 0, shape.positions, out);
    const double tolerance = mode_ == ComputeMode::kFloat32 ? 1e-5 : 2e-2;
    for (int32_t p = 0; p < shape.positions; ++p) {
      for (int32_t head = 0; head < shape.group * shape.kv_heads; ++head) {
        const std::vector<double> expected = context.Expected(p, head);
        for (int32_t d = 0; d < shape.head_dim; ++d) {
          ASSERT_NEAR(out.Get(p * context.stride() + head * shape.head_dim + d),
                      expected[d], tolerance)
              << "head_dim " << shape.head_dim << " position " << p;
        }
      }
    }
  }
}

TEST_P(AttentionTest, ChunksAndLaterPositionsChangeNoBit) {
  for (const int32_t group : {1, 7}) {
    const Shape shape{group, 2, 48, 16, 203};
    Context context(mode_, shape, random_);
    const int64_t count = shape.positions * context.stride();
    Elements whole(mode_, count), chunks(mode_, count);
    context.Run(kernels_, 0, shape.positions, whole);
    // From the last to the first, each with nothing valid after it.
    for (int32_t end = shape.positions; end > 0;) {
      const auto begin = static_cast<int32_t>(
          end - 1 - random_.Below(static_cast<uint64_t>(std::min(end, 70))));
      context.Erase(end);
      context.Run(kernels_, begin, end, chunks);
      end = begin;
    }
    EXPECT_EQ(std::memcmp(whole.at(0), chunks.at(0),
                          count * (mode_ == ComputeMode::kFloat32 ? 4 : 2)),
              0);
  }
}

TEST_P(AttentionTest, PageSizeAndPlaceChangeNoBit) {
  std::unique_ptr<Elements> first;
  for (const int32_t page_tokens : {16, 32, 64}) {
    const Shape shape{2, 1, 64, page_tokens, 100};
    Context context(mode_, shape, random_);
    Random numbers(99);
    context.Fill(numbers);
    auto out =
        std::make_unique<Elements>(mode_, shape.positions * context.stride());
    context.Run(kernels_, 0, shape.positions, *out);
    if (first == nullptr) {
      first = std::move(out);
      continue;
    }
    for (int64_t i = 0; i < shape.positions * context.stride(); ++i)
      ASSERT_EQ(first->Get(i), out->Get(i));
  }
}

INSTANTIATE_KERNEL_TEST(AttentionTest);

}  // namespace
}  // namespace tidepool::engine::internal
