// How activations, weights and KV are stored and multiplied: the two compute
// modes over any of the vectors of simd_*.h. For the kernel files only.
#pragma once

#include <cstdint>

namespace tidepool::engine::internal {

template <typename Simd>
struct FloatMode : Simd {
  using Vectors = Simd;
  using Element = float;
  static constexpr int kUnitElements = 1;
  // The part of a unit that holds its first element.
  static constexpr uint32_t kFirstElement = 0xffffffff;

  static auto LoadElements(const float* p) { return Simd::Load(p); }
  static void StoreElements(float* p, typename Simd::Floats v) {
    Simd::Store(p, v);
  }
  static void StoreElements(float* p, typename Simd::Floats v, int n) {
    Simd::Store(p, v, n);
  }
  static auto Dot(typename Simd::Floats sum, typename Simd::Units w,
                  typename Simd::SplatUnit a) {
    return Simd::DotFloat(sum, w, a);
  }
};

template <typename Simd>
struct Bf16Mode : Simd {
  using Vectors = Simd;
  using Element = uint16_t;
  static constexpr int kUnitElements = 2;
  static constexpr uint32_t kFirstElement = 0xffff;

  static auto LoadElements(const uint16_t* p) { return Simd::LoadBf16(p); }
  static void StoreElements(uint16_t* p, typename Simd::Floats v) {
    Simd::StoreBf16(p, v);
  }
  static void StoreElements(uint16_t* p, typename Simd::Floats v, int n) {
    Simd::StoreBf16(p, v, n);
  }
  static auto Dot(typename Simd::Floats sum, typename Simd::Units w,
                  typename Simd::SplatUnit a) {
    return Simd::DotBf16(sum, w, a);
  }
};

}  // namespace tidepool::engine::internal
