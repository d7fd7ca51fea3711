#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "dataplane/engine/kernels_test_util.h"
#include "dataplane/engine/rope_table.h"

namespace tidepool::engine::internal {
namespace {

class OpsTest : public KernelTest {
 protected:
  // Relative error of one rounding to the mode's elements.
  double Rounding() const {
    return mode_ == ComputeMode::kFloat32 ? 1e-6 : 4.1e-3;
  }
};

TEST_P(OpsTest, Exp2IsAccurateAndFlushesTheSmallest) {
  std::vector<float> x = {0,    -0.5f, 0.5f,   1,         -1,        126,
                          -126, -127,  -1e30f, -INFINITY, -125.9999f};
  for (int i = 0; i < 2000; ++i)
    x.push_back(static_cast<float>(random_.Unit() * 250 - 125));
  std::vector<float> y(x.size());
  kernels_.exp2(x.data(), y.data(), static_cast<int32_t>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    const double expected = x[i] < -126 ? 0 : std::exp2(double{x[i]});
    EXPECT_NEAR(y[i], expected, expected * 2.5e-7) << x[i];
  }
}

TEST_P(OpsTest, RmsNormAgreesWithTheDefinition) {
  for (const int32_t size : {1, 7, 16, 64, 100, 288, 897}) {
    constexpr int32_t kRows = 3;
    std::vector<float> x, weight;
    for (int32_t i = 0; i < kRows * (size + 5); ++i)
      x.push_back(RandomFloat(random_));
    for (int32_t i = 0; i < size; ++i)
      weight.push_back(1 + RandomFloat(random_) / 4);
    Elements out(mode_, kRows * (size + 2));
    kernels_.rms_norm({.x = x.data(),
                       .x_stride = size + 5,
                       .weight = weight.data(),
                       .out = out.at(0),
                       .out_stride = size + 2,
                       .rows = kRows,
                       .size = size,
                       .epsilon = 1e-5f});
    for (int32_t row = 0; row < kRows; ++row) {
      double squares = 0;
      for (int32_t i = 0; i < size; ++i)
        squares += std::pow(double{x[row * (size + 5) + i]}, 2);
      const double scale = 1 / std::sqrt(squares / size + 1e-5);
      for (int32_t i = 0; i < size; ++i) {
        const double expected = x[row * (size + 5) + i] * scale * weight[i];
        EXPECT_NEAR(out.Get(row * (size + 2) + i), expected,
                    std::abs(expected) * Rounding());
      }
      EXPECT_TRUE(std::isnan(out.Get(row * (size + 2) + size)));
    }
  }
}

TEST_P(OpsTest, QkvNormsRotatesAndStores) {
  for (const int32_t dim : {2, 34, 48, 64, 128}) {
    for (const bool has_norm : {false, true}) {
      constexpr int32_t kHeads = 4, kKvHeads = 2, kPageTokens = 16, kToken = 5;
      const int32_t half = dim / 2;
      std::vector<float> qkv, norms, angles;
      for (int32_t i = 0; i < (kHeads + 2 * kKvHeads) * dim; ++i)
        qkv.push_back(RandomFloat(random_));
      for (int32_t i = 0; i < 2 * dim; ++i)
        norms.push_back(1 + RandomFloat(random_) / 4);
      std::vector<float> cosines, sines;
      for (int32_t i = 0; i < half; ++i) {
        const double angle = random_.Unit() * 6;
        cosines.push_back(static_cast<float>(std::cos(angle)));
        sines.push_back(static_cast<float>(std::sin(angle)));
      }
      const std::vector<float> in = qkv;
      Elements q(mode_, kHeads * dim);
      Elements slice(mode_, int64_t{2} * kKvHeads * kPageTokens * dim);
      constexpr float kScale = 0.18f;
      kernels_.qkv({.qkv = qkv.data(),
                    .heads = kHeads,
                    .kv_heads = kKvHeads,
                    .head_dim = dim,
                    .q_norm = has_norm ? norms.data() : nullptr,
                    .k_norm = has_norm ? norms.data() + dim : nullptr,
                    .epsilon = 1e-6f,
                    .cosines = cosines.data(),
                    .sines = sines.data(),
                    .q_scale = kScale,
                    .q = q.at(0),
                    .slice = slice.at(0),
                    .page_tokens = kPageTokens,
                    .token_in_page = kToken});
      const auto expected = [&](int32_t head, int32_t d) {
        const float* x = in.data() + head * dim;
        const float* norm = norms.data() + (head < kHeads ? 0 : dim);
        double squares = 0;
        for (int32_t i = 0; i < dim; ++i) squares += double{x[i]} * x[i];
        const double scale = has_norm ? 1 / std::sqrt(squares / dim + 1e-6) : 1;
        const auto value = [&](int32_t i) {
          return x[i] * scale * (has_norm ? norm[i] : 1);
        };
        const int32_t pair = d % half;
        const double a = value(pair), b = value(pair + half);
        return d < half ? a * cosines[pair] - b * sines[pair]
                        : b * cosines[pair] + a * sines[pair];
      };
      const double tolerance = 2 * Rounding();
      for (int32_t h = 0; h < kHeads; ++h) {
        for (int32_t d = 0; d < dim; ++d)
          EXPECT_NEAR(q.Get(h * dim + d), expected(h, d) * kScale, tolerance);
      }
      int64_t written = 0;
      for (int32_t h = 0; h < kKvHeads; ++h) {
        for (int32_t token = 0; token < kPageTokens; ++token) {
          for (int32_t d = 0; d < dim; ++d) {
            const int64_t k = (h * kPageTokens + token) * dim + d;
            const int64_t v = k + kKvHeads * kPageTokens * dim;
            if (token != kToken) {
              EXPECT_TRUE(std::isnan(slice.Get(k)));
              EXPECT_TRUE(std::isnan(slice.Get(v)));
              continue;
            }
            ++written;
            EXPECT_NEAR(slice.Get(k), expected(kHeads + h, d), tolerance * 2);
            EXPECT_EQ(slice.Get(v),
                      Stored(mode_, in[(kHeads + kKvHeads + h) * dim + d]));
          }
        }
      }
      EXPECT_EQ(written, kKvHeads * dim);
    }
  }
}

INSTANTIATE_KERNEL_TEST(OpsTest);

TEST(RopeTest, SineAndCosineAreThoseOfTheLibrary) {
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const double x = random.Unit() * std::pow(10.0, random.Unit() * 6);
    double sine, cosine;
    SineCosine(x, sine, cosine);
    ASSERT_NEAR(sine, std::sin(x), 2e-15) << x;
    ASSERT_NEAR(cosine, std::cos(x), 2e-15) << x;
  }
}

TEST(RopeTest, FrequenciesFallFromOneToTheInverseOfTheta) {
  const model::ModelConfig config{.head_dim = 64, .rope_theta = 10000};
  const std::vector<float> frequencies = RopeFrequencies(config);
  ASSERT_EQ(frequencies.size(), 32u);
  EXPECT_EQ(frequencies[0], 1.0f);
  EXPECT_FLOAT_EQ(frequencies[16], 0.01f);
}

TEST(RopeTest, Llama3ScalingSlowsOnlyLongWaves) {
  model::ModelConfig config{.head_dim = 128, .rope_theta = 500000};
  const std::vector<float> plain = RopeFrequencies(config);
  config.rope_scaling =
      model::Llama3RopeScaling{.factor = 8,
                               .low_freq_factor = 1,
                               .high_freq_factor = 4,
                               .original_max_position_embeddings = 8192};
  const std::vector<float> scaled = RopeFrequencies(config);
  for (size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(scaled[i], plain[i]);
    } else if (wavelength > 8192) {
      EXPECT_FLOAT_EQ(scaled[i], plain[i] / 8);
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
    }
  }
}

}  // namespace
}  // namespace tidepool::engine::internal
