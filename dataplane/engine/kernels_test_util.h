// Numbers, buffers and parameters for tests of kernels.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "dataplane/base/random.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/numerics.h"

namespace tidepool::engine::internal {

inline float RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}

// What `mode` stores of a number.
inline float Stored(ComputeMode mode, float value) {
  return mode == ComputeMode::kFloat32 ? value : RoundToBf16(value);
}

// Roughly normal, of scale 1.
inline float RandomFloat(Random& random) {
  double sum = -2;
  for (int i = 0; i < 4; ++i) sum += random.Unit();
  return static_cast<float>(sum * 1.7);
}

// Elements of a mode, addressed one by one.
class Elements {
 public:
  Elements(ComputeMode mode, int64_t count)
      : mode_(mode), bytes_(mode == ComputeMode::kFloat32 ? 4 : 2) {
    // NaNs, so that a kernel that reads or leaves too much is found out.
    units_.assign(static_cast<size_t>((count * bytes_ + 3) / 4), 0xffffffff);
  }
  void* at(int64_t i) {
    return reinterpret_cast<std::byte*>(units_.data()) + i * bytes_;
  }
  const void* at(int64_t i) const {
    return reinterpret_cast<const std::byte*>(units_.data()) + i * bytes_;
  }
  void Set(int64_t i, float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(Stored(mode_, value));
    if (mode_ == ComputeMode::kFloat32) {
      std::memcpy(at(i), &bits, 4);
    } else {
      const auto half = static_cast<uint16_t>(bits >> 16);
      std::memcpy(at(i), &half, 2);
    }
  }
  float Get(int64_t i) const {
    uint32_t bits = 0;
    std::memcpy(&bits, at(i), static_cast<size_t>(bytes_));
    if (mode_ == ComputeMode::kBFloat16) bits <<= 16;
    return std::bit_cast<float>(bits);
  }
  const Unit* units() const { return units_.data(); }

 private:
  const ComputeMode mode_;
  const int64_t bytes_;
  std::vector<Unit> units_;
};

// Tests of every mode on every instruction set of this processor.
class KernelTest : public testing::TestWithParam<std::tuple<ComputeMode, Isa>> {
 protected:
  const ComputeMode mode_ = std::get<0>(GetParam());
  const Isa isa_ = std::get<1>(GetParam());
  const KernelTable& kernels_ = KernelsFor(mode_, isa_);
  Random random_{42};
};

inline std::string NameOfKernels(
    const testing::TestParamInfo<std::tuple<ComputeMode, Isa>>& info) {
  std::string name(NameOf(std::get<0>(info.param)));
  return name + "_" + std::string(NameOf(std::get<1>(info.param)));
}

#define INSTANTIATE_KERNEL_TEST(suite)                                 \
  INSTANTIATE_TEST_SUITE_P(                                            \
      Kernels, suite,                                                  \
      testing::Combine(                                                \
          testing::Values(::tidepool::engine::ComputeMode::kFloat32,   \
                          ::tidepool::engine::ComputeMode::kBFloat16), \
          testing::ValuesIn(::tidepool::engine::SupportedIsas())),     \
      ::tidepool::engine::internal::NameOfKernels)

}  // namespace tidepool::engine::internal
