#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "dataplane/engine/kernels_test_util.h"
#include "dataplane/engine/packed_weights.h"

namespace tidepool::engine::internal {
namespace {

// A matrix and what multiplies it.
struct Problem {
  int32_t rows;
  int64_t outputs, inputs;
  std::vector<float> weights;  // [outputs][inputs], as stored
  PackedMatrix matrix;
  Elements a;  // [rows][stride]
  int64_t stride;
  std::vector<float> bias;
};

class GemmTest : public KernelTest {
 protected:
  int64_t UnitElements() const {
    return mode_ == ComputeMode::kFloat32 ? 1 : 2;
  }

  Problem MakeProblem(int32_t rows, int64_t outputs, int64_t inputs) {
    const int64_t stride = (inputs + 1) / 2 * 2 + 6;
    Problem problem{.rows = rows,
                    .outputs = outputs,
                    .inputs = inputs,
                    .weights = {},
                    .matrix = {},
                    .a = Elements(mode_, rows * stride),
                    .stride = stride,
                    .bias = {}};
    for (int64_t i = 0; i < outputs * inputs; ++i)
      problem.weights.push_back(Stored(mode_, RandomFloat(random_)));
    auto matrix = PackedMatrix::Create(mode_, outputs, inputs);
    EXPECT_TRUE(matrix.ok());
    problem.matrix = *std::move(matrix);
    const auto pool = ThreadPool::Create(1);
    EXPECT_TRUE(pool.ok());
    problem.matrix.Pack({.dtype = model::DType::kFloat32,
                         .shape = {outputs, inputs},
                         .data = std::as_bytes(std::span(problem.weights))},
                        Placement::kConsecutive, 0, **pool);
    for (int32_t r = 0; r < rows; ++r) {
      for (int64_t k = 0; k < inputs; ++k)
        problem.a.Set(r * stride + k, RandomFloat(random_));
      if (inputs % 2 != 0) problem.a.Set(r * stride + inputs, 0);
    }
    for (int32_t i = 0; i < problem.matrix.groups() * kGroupOutputs; ++i)
      problem.bias.push_back(RandomFloat(random_));
    return problem;
  }

  // `rows` of the problem from `first` on.
  void Run(const Problem& problem, int32_t first, int32_t rows,
           Epilogue epilogue, bool has_bias, void* out, int64_t out_stride) {
    std::vector<float> scratch(kGemmRowsMax * kGroupOutputs, NAN);
    kernels_.gemm(
        {.a = static_cast<const Unit*>(problem.a.at(first * problem.stride)),
         .a_stride = problem.stride / UnitElements(),
         .rows = rows,
         .weights = problem.matrix.data(),
         .units = problem.matrix.units(),
         .group_begin = 0,
         .group_end = problem.matrix.groups(),
         .epilogue = epilogue,
         .bias = has_bias ? problem.bias.data() : nullptr,
         .out = out,
         .out_stride = out_stride,
         .outputs = problem.outputs,
         .scratch = scratch.data()});
  }

  float Add(float sum, float a, float b) const {
    return isa_ == Isa::kPortable ? sum + a * b : std::fma(a, b, sum);
  }

  // The one chain that defines an output.
  float Chain(const Problem& problem, int32_t row, int64_t output) const {
    const float* weights = &problem.weights[output * problem.inputs];
    const auto a = [&](int64_t k) {
      return problem.a.Get(row * problem.stride + k);
    };
    float sum = 0;
    for (int64_t k = 0; k < problem.inputs; k += UnitElements()) {
      // Of a pair the odd product comes first.
      if (UnitElements() == 2 && k + 1 < problem.inputs)
        sum = Add(sum, weights[k + 1], a(k + 1));
      sum = Add(sum, weights[k], a(k));
    }
    return sum;
  }
};

TEST_P(GemmTest, EveryOutputIsOneChainOverK) {
  for (const int32_t rows : {1, 2, 3, 5, 6, 7, 12, 13, 64, 191, 192}) {
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{1, 1}, {64, 2}, {65, 33}, {130, 290}}) {
      const Problem problem = MakeProblem(rows, outputs, inputs);
      const int64_t stride = outputs + 3;
      std::vector<float> out(static_cast<size_t>(rows * stride), -7);
      Run(problem, 0, rows, Epilogue::kStore, false, out.data(), stride);
      for (int32_t r = 0; r < rows; ++r) {
        for (int64_t n = 0; n < outputs; ++n) {
          ASSERT_EQ(out[r * stride + n], Chain(problem, r, n))
              << rows << "x" << outputs << "x" << inputs << " row " << r
              << " output " << n;
        }
        for (int64_t n = outputs; n < stride; ++n)
          ASSERT_EQ(out[r * stride + n], -7) << "wrote beyond its outputs";
      }
    }
  }
}

TEST_P(GemmTest, BiasComesLastAndAddingKeepsWhatWasThere) {
  const Problem problem = MakeProblem(9, 100, 70);
  std::vector<float> out(900);
  for (float& value : out) value = RandomFloat(random_);
  const std::vector<float> before = out;
  Run(problem, 0, 9, Epilogue::kAdd, true, out.data(), 100);
  for (int32_t r = 0; r < 9; ++r) {
    for (int64_t n = 0; n < 100; ++n) {
      EXPECT_EQ(out[r * 100 + n],
                before[r * 100 + n] + (Chain(problem, r, n) + problem.bias[n]));
    }
  }
}

TEST_P(GemmTest, SwiGluMultipliesGatesWithUps) {
  // Two groups: 64 gates and 64 ups, of which 50 outputs are wanted.
  Problem problem = MakeProblem(8, 128, 40);
  problem.outputs = 100;
  Elements out(mode_, 8 * 64);
  Run(problem, 0, 8, Epilogue::kSwiGlu, true, out.at(0), 64);
  for (int32_t r = 0; r < 8; ++r) {
    for (int64_t n = 0; n < 50; ++n) {
      const int64_t gate = n / 32 * 64 + n % 32;
      const double g = Chain(problem, r, gate) + problem.bias[gate];
      const double u = Chain(problem, r, gate + 32) + problem.bias[gate + 32];
      const double expected = g / (1 + std::exp(-g)) * u;
      EXPECT_NEAR(
          out.Get(r * 64 + n), expected,
          std::abs(expected) * (mode_ == ComputeMode::kFloat32 ? 1e-6 : 4e-3) +
              1e-9);
    }
    EXPECT_TRUE(std::isnan(out.Get(r * 64 + 50)));
  }
}

TEST_P(GemmTest, SiluHoldsAtTheEnds) {
  // One input of 1 makes gates of the weights' own sizes.
  for (const float gate : {-1e30f, -200.0f, -90.0f, 0.0f, 90.0f, 1e30f}) {
    Problem problem = MakeProblem(1, 128, 1);
    std::ranges::fill(problem.bias, 0.0f);
    problem.a.Set(0, 0);
    for (int i = 0; i < 32; ++i) {
      problem.bias[i] = gate;
      problem.bias[32 + i] = 1;
    }
    Elements out(mode_, 64);
    Run(problem, 0, 1, Epilogue::kSwiGlu, true, out.at(0), 64);
    const float expected = gate > 0 ? Stored(mode_, gate) : 0;
    EXPECT_NEAR(out.Get(0), expected, std::abs(expected) * 1e-6 + 1e-6) << gate;
  }
}

// Bit by bit what pairs of bfloat16 become, whatever the compiler does.
TEST(GemmWeightsTest, PackingRoundsToNearestEven) {
  auto matrix = PackedMatrix::Create(ComputeMode::kBFloat16, 1, 5);
  ASSERT_TRUE(matrix.ok());
  const std::vector<float> row = {1.00390625f,  // a tie, down to even
                                  1.01171875f,  // a tie, up to even
                                  -3.0f, 0x1p-130f, INFINITY};
  const auto pool = ThreadPool::Create(1);
  ASSERT_TRUE(pool.ok());
  matrix->Pack({.dtype = model::DType::kFloat32,
                .shape = {1, 5},
                .data = std::as_bytes(std::span(row))},
               Placement::kConsecutive, 0, **pool);
  std::vector<float> back(5);
  matrix->ReadRow(0, back.data());
  EXPECT_EQ(back[0], 1.0f);
  EXPECT_EQ(back[1], 1.015625f);
  EXPECT_EQ(back[2], -3.0f);
  EXPECT_EQ(back[3], 0x1p-130f);
  EXPECT_EQ(back[4], INFINITY);
}

INSTANTIATE_KERNEL_TEST(GemmTest);

}  // namespace
}  // namespace tidepool::engine::internal
