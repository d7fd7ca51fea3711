// Element-wise operations of a transformer over a mode of simd_modes.h. For
// the kernel files only.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/engine/kernels.h"

namespace tidepool::engine::internal {

template <typename M>
using FloatsOf = typename M::Vectors::Floats;

// 2^x within 2 units in the last place: 0 below -126, for x up to 127.
template <typename M>
inline FloatsOf<M> Exp2(FloatsOf<M> x) {
  // Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits.
  const auto magic = M::Set(12582912.0f);
  const auto shifted = M::Add(x, magic);
  const auto f = M::Sub(x, M::Sub(shifted, magic));  // in [-0.5, 0.5]
  // Σ (f ln 2)^k / k!
  auto p = M::Set(1.5252733804e-5f);
  p = M::MulAdd(p, f, M::Set(1.5403530393e-4f));
  p = M::MulAdd(p, f, M::Set(1.3333558146e-3f));
  p = M::MulAdd(p, f, M::Set(9.6181291076e-3f));
  p = M::MulAdd(p, f, M::Set(5.5504108665e-2f));
  p = M::MulAdd(p, f, M::Set(2.4022650696e-1f));
  p = M::MulAdd(p, f, M::Set(6.9314718056e-1f));
  p = M::MulAdd(p, f, M::Set(1.0f));
  return M::ZeroBelow(M::Mul(p, M::PowerOfTwo(shifted)), x, M::Set(-126.0f));
}

// x / (1 + e^-x)
template <typename M>
inline FloatsOf<M> Silu(FloatsOf<M> x) {
  const auto minus_log2_e = M::Set(-1.44269504089f);
  const auto e = Exp2<M>(M::Min(M::Mul(x, minus_log2_e), M::Set(126.0f)));
  return M::Div(x, M::Add(M::Set(1.0f), e));
}

// Calls function(offset, n) for each vector of `size` floats; n < 16 for the
// last part only.
template <typename Function>
inline void ForVectors(int32_t size, Function function) {
  int32_t i = 0;
  for (; i + kVectorFloats <= size; i += kVectorFloats)
    function(i, kVectorFloats);
  if (i < size) function(i, size - i);
}

// 1 / sqrt(mean(x²) + epsilon): four chains over every fourth vector.
template <typename M>
inline float InverseRms(const float* x, int32_t size, float epsilon) {
  FloatsOf<M> sums[4] = {M::Zero(), M::Zero(), M::Zero(), M::Zero()};
  int32_t i = 0;
  for (; i + 4 * kVectorFloats <= size; i += 4 * kVectorFloats) {
    for (int j = 0; j < 4; ++j) {
      const auto v = M::Load(x + i + j * kVectorFloats);
      sums[j] = M::MulAdd(v, v, sums[j]);
    }
  }
  for (int j = 0; i < size; i += kVectorFloats, ++j) {
    const int n = size - i < kVectorFloats ? size - i : kVectorFloats;
    const auto v = M::Load(x + i, n);
    sums[j] = M::MulAdd(v, v, sums[j]);
  }
  const float sum =
      M::ReduceAdd(M::Add(M::Add(sums[0], sums[1]), M::Add(sums[2], sums[3])));
  return 1.0f / __builtin_sqrtf(sum / static_cast<float>(size) + epsilon);
}

template <typename M>
void RmsNorm(const RmsNormArgs& args) {
  using Element = typename M::Element;
  for (int32_t row = 0; row < args.rows; ++row) {
    const float* x = args.x + row * args.x_stride;
    Element* out = static_cast<Element*>(args.out) + row * args.out_stride;
    const auto scale = M::Set(InverseRms<M>(x, args.size, args.epsilon));
    ForVectors(args.size, [&](int32_t i, int n) {
      const auto scaled = M::Mul(M::Load(x + i, n), scale);
      M::StoreElements(out + i, M::Mul(scaled, M::Load(args.weight + i, n)), n);
    });
  }
}

// In place: normalizes a head if `norm` is given.
template <typename M>
inline void NormHead(const QkvArgs& args, float* head, const float* norm) {
  if (norm == nullptr) return;
  const auto scale = M::Set(InverseRms<M>(head, args.head_dim, args.epsilon));
  ForVectors(args.head_dim, [&](int32_t i, int n) {
    const auto scaled = M::Mul(M::Load(head + i, n), scale);
    M::Store(head + i, M::Mul(scaled, M::Load(norm + i, n)), n);
  });
}

// Rotates pairs (i, i + head_dim / 2), scales, and stores.
template <typename M>
inline void RotateHead(const QkvArgs& args, const float* head, float scale,
                       typename M::Element* out) {
  const int32_t half = args.head_dim / 2;
  const auto scales = M::Set(scale);
  ForVectors(half, [&](int32_t i, int n) {
    const auto a = M::Load(head + i, n);
    const auto b = M::Load(head + half + i, n);
    const auto cosine = M::Load(args.cosines + i, n);
    const auto sine = M::Load(args.sines + i, n);
    const auto first = M::Sub(M::Mul(a, cosine), M::Mul(b, sine));
    const auto second = M::Add(M::Mul(b, cosine), M::Mul(a, sine));
    M::StoreElements(out + i, M::Mul(first, scales), n);
    M::StoreElements(out + half + i, M::Mul(second, scales), n);
  });
}

template <typename M>
void Qkv(const QkvArgs& args) {
  using Element = typename M::Element;
  const int64_t dim = args.head_dim;
  float* head = args.qkv;
  Element* q = static_cast<Element*>(args.q);
  for (int32_t h = 0; h < args.heads; ++h, head += dim, q += dim) {
    NormHead<M>(args, head, args.q_norm);
    RotateHead<M>(args, head, args.q_scale, q);
  }
  const int64_t plane = dim * args.page_tokens;
  Element* out = static_cast<Element*>(args.slice) + args.token_in_page * dim;
  for (int32_t h = 0; h < args.kv_heads; ++h, head += dim, out += plane) {
    NormHead<M>(args, head, args.k_norm);
    RotateHead<M>(args, head, 1.0f, out);
  }
  for (int32_t h = 0; h < args.kv_heads; ++h, head += dim, out += plane) {
    ForVectors(args.head_dim, [&](int32_t i, int n) {
      M::StoreElements(out + i, M::Load(head + i, n), n);
    });
  }
}

template <typename M>
void Exp2Array(const float* x, float* y, int32_t count) {
  ForVectors(count, [&](int32_t i, int n) {
    M::Store(y + i, Exp2<M>(M::Load(x + i, n)), n);
  });
}

}  // namespace tidepool::engine::internal
