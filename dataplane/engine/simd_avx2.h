// Sixteen floats in two AVX2 registers. For kernels_avx2.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tidepool::engine::internal {

struct Avx2 {
  struct Floats {
    __m256 low, high;
  };
  struct Units {
    __m256i low, high;
  };
  using SplatUnit = __m256i;

  // What of a product fits into 16 registers. One row alone is bound by
  // memory: it walks whole groups to read in order.
  static constexpr int kTileRows = 5;
  static constexpr int TileVectors(int rows) { return rows == 1 ? 4 : 1; }

  static Floats Zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Floats Set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Floats Load(const float* p) {
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
  }
  static Floats Load(const float* p, int n) {
    return {_mm256_maskload_ps(p, Mask(n)),
            _mm256_maskload_ps(p + 8, Mask(n - 8))};
  }
  static void Store(float* p, Floats v) {
    _mm256_storeu_ps(p, v.low);
    _mm256_storeu_ps(p + 8, v.high);
  }
  static void Store(float* p, Floats v, int n) {
    _mm256_maskstore_ps(p, Mask(n), v.low);
    _mm256_maskstore_ps(p + 8, Mask(n - 8), v.high);
  }
  static Floats LoadBf16(const uint16_t* p) {
    return {Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
  }
  static Floats LoadBf16(const uint16_t* p, int n) {
    uint16_t copy[16] = {};
    for (int i = 0; i < n; ++i) copy[i] = p[i];
    return LoadBf16(copy);
  }
  static void StoreBf16(uint16_t* p, Floats v) {
    const __m256i packed = _mm256_packus_epi32(Narrow(v.low), Narrow(v.high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_permute4x64_epi64(packed, 0xd8));
  }
  static void StoreBf16(uint16_t* p, Floats v, int n) {
    uint16_t copy[16];
    StoreBf16(copy, v);
    for (int i = 0; i < n; ++i) p[i] = copy[i];
  }

  static Floats Add(Floats a, Floats b) {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static Floats Sub(Floats a, Floats b) {
    return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
  }
  static Floats Mul(Floats a, Floats b) {
    return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
  }
  static Floats Div(Floats a, Floats b) {
    return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
  }
  static Floats Min(Floats a, Floats b) {
    return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
  }
  static Floats Max(Floats a, Floats b) {
    return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
  }
  static Floats MulAdd(Floats a, Floats b, Floats c) {
    return {_mm256_fmadd_ps(a.low, b.low, c.low),
            _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Floats ZeroBelow(Floats v, Floats x, Floats bound) {
    return {
        _mm256_and_ps(_mm256_cmp_ps(x.low, bound.low, _CMP_NLT_UQ), v.low),
        _mm256_and_ps(_mm256_cmp_ps(x.high, bound.high, _CMP_NLT_UQ), v.high)};
  }
  static Floats FillFrom(Floats v, int n, Floats x) {
    return {_mm256_blendv_ps(x.low, v.low, _mm256_castsi256_ps(Mask(n))),
            _mm256_blendv_ps(x.high, v.high, _mm256_castsi256_ps(Mask(n - 8)))};
  }
  static Floats PowerOfTwo(Floats shifted) {
    return {PowerOfTwo8(shifted.low), PowerOfTwo8(shifted.high)};
  }

  static float ReduceAdd(Floats v) {
    const __m256 v8 = _mm256_add_ps(v.low, v.high);
    const __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
  }
  static float ReduceMax(Floats v) {
    const __m256 v8 = _mm256_max_ps(v.low, v.high);
    const __m128 v4 =
        _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
  }

  static void Prefetch(const void* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  static Units LoadUnits(const uint32_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 8))};
  }
  static SplatUnit Splat(uint32_t unit) {
    return _mm256_set1_epi32(static_cast<int>(unit));
  }
  static Floats DotFloat(Floats sum, Units w, SplatUnit a) {
    const __m256 splat = _mm256_castsi256_ps(a);
    return {_mm256_fmadd_ps(_mm256_castsi256_ps(w.low), splat, sum.low),
            _mm256_fmadd_ps(_mm256_castsi256_ps(w.high), splat, sum.high)};
  }
  static Floats DotBf16(Floats sum, Units w, SplatUnit a) {
    const __m256 odd = OddHalf(a);
    const __m256 even = EvenHalf(a);
    sum = {_mm256_fmadd_ps(OddHalf(w.low), odd, sum.low),
           _mm256_fmadd_ps(OddHalf(w.high), odd, sum.high)};
    return {_mm256_fmadd_ps(EvenHalf(w.low), even, sum.low),
            _mm256_fmadd_ps(EvenHalf(w.high), even, sum.high)};
  }

  static void Transpose(const uint32_t* src, int64_t src_stride, uint32_t* dst,
                        int64_t dst_stride, int n) {
    for (int j = 0; j < n; j += 8) {
      const int columns = n - j < 8 ? n - j : 8;
      Transpose8(src + j, src_stride, dst + j * dst_stride, dst_stride,
                 columns);
      Transpose8(src + 8 * src_stride + j, src_stride, dst + j * dst_stride + 8,
                 dst_stride, columns);
    }
  }
  static void Interleave(const uint16_t* even, const uint16_t* odd, int n,
                         uint32_t* dst) {
    for (int i = 0; i < n; ++i)
      dst[i] = even[i] | static_cast<uint32_t>(odd[i]) << 16;
    for (int i = n; i < 16; ++i) dst[i] = 0;
  }

 private:
  // All ones in the lanes below n, which may be outside [0, 8].
  static __m256i Mask(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static __m256 Widen(__m128i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
  }
  // Rounds to nearest even, into the low halves of lanes.
  static __m256i Narrow(__m256 v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_srli_epi32(
        _mm256_add_epi32(bits,
                         _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))),
        16);
    // Rounding must not carry a NaN into infinity or zero.
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    const __m256 is_nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(is_nan));
  }
  static __m256 PowerOfTwo8(__m256 shifted) {
    const __m256i bits = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(
        _mm256_add_epi32(bits, _mm256_set1_epi32(127 << 23)));
  }
  static __m256 EvenHalf(__m256i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
  }
  static __m256 OddHalf(__m256i v) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
  static void Transpose8(const uint32_t* src, int64_t src_stride, uint32_t* dst,
                         int64_t dst_stride, int n) {
    const __m256i mask = Mask(n);
    __m256i r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
      r[i] = _mm256_maskload_epi32(
          reinterpret_cast<const int*>(src + i * src_stride), mask);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
      r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
      r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
      r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      t[c] = _mm256_permute2x128_si256(r[c], r[c + 4], 0x20);
      t[c + 4] = _mm256_permute2x128_si256(r[c], r[c + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      if (j < n) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + j * dst_stride),
                            t[j]);
      }
    }
  }
};

}  // namespace tidepool::engine::internal
