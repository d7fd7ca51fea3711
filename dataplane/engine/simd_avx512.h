// Sixteen floats in one AVX-512 register. For kernels_avx512.cc only.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tidepool::engine::internal {

struct Avx512 {
  using Floats = __m512;
  using Units = __m512i;      // of a matrix
  using SplatUnit = __m512i;  // one unit in every lane

  // What of a product fits into 32 registers.
  static constexpr int kTileRows = 6;
  static constexpr int TileVectors(int /*rows*/) { return 4; }

  static __mmask16 Mask(int n) { return static_cast<__mmask16>((1u << n) - 1); }

  static Floats Zero() { return _mm512_setzero_ps(); }
  static Floats Set(float x) { return _mm512_set1_ps(x); }
  static Floats Load(const float* p) { return _mm512_loadu_ps(p); }
  static Floats Load(const float* p, int n) {
    return _mm512_maskz_loadu_ps(Mask(n), p);
  }
  static void Store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  static void Store(float* p, Floats v, int n) {
    _mm512_mask_storeu_ps(p, Mask(n), v);
  }
  static Floats LoadBf16(const uint16_t* p) {
    return Widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Floats LoadBf16(const uint16_t* p, int n) {
    return Widen(_mm256_maskz_loadu_epi16(Mask(n), p));
  }
  static void StoreBf16(uint16_t* p, Floats v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Narrow(v));
  }
  static void StoreBf16(uint16_t* p, Floats v, int n) {
    _mm256_mask_storeu_epi16(p, Mask(n), Narrow(v));
  }

  static Floats Add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static Floats Sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static Floats Mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static Floats Div(Floats a, Floats b) { return _mm512_div_ps(a, b); }
  static Floats Min(Floats a, Floats b) {
    return _mm512_maskz_min_ps(kAll, a, b);
  }
  static Floats Max(Floats a, Floats b) {
    return _mm512_maskz_max_ps(kAll, a, b);
  }
  static Floats MulAdd(Floats a, Floats b, Floats c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  // Zero where x < bound.
  static Floats ZeroBelow(Floats v, Floats x, Floats bound) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_NLT_UQ), v);
  }
  // `x` from lane n on.
  static Floats FillFrom(Floats v, int n, Floats x) {
    return _mm512_mask_mov_ps(x, Mask(n), v);
  }
  // 2^n of `shifted` = n + 1.5 * 2^23, for n in [-126, 127].
  static Floats PowerOfTwo(Floats shifted) {
    const __m512i bits =
        _mm512_maskz_slli_epi32(kAll, _mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(
        _mm512_add_epi32(bits, _mm512_set1_epi32(127 << 23)));
  }

  // Halves are folded onto each other: 16, 8, 4, 2, 1.
  static float ReduceAdd(Floats v) {
    const __m256 v8 = _mm256_add_ps(Lower(v), Upper(v));
    const __m128 v4 =
        _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
  }
  static float ReduceMax(Floats v) {
    const __m256 v8 = _mm256_max_ps(Lower(v), Upper(v));
    const __m128 v4 =
        _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
    const __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
    return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
  }

  static void Prefetch(const void* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
  }
  static Units LoadUnits(const uint32_t* p) { return _mm512_loadu_si512(p); }
  static SplatUnit Splat(uint32_t unit) {
    return _mm512_set1_epi32(static_cast<int>(unit));
  }
  static Floats DotFloat(Floats sum, Units w, SplatUnit a) {
    return _mm512_fmadd_ps(_mm512_castsi512_ps(w), _mm512_castsi512_ps(a), sum);
  }
  // The odd product is added first, then the even one.
  static Floats DotBf16(Floats sum, Units w, SplatUnit a) {
    return _mm512_dpbf16_ps(sum, (__m512bh)w, (__m512bh)a);
  }

  // dst[j][i] = src[i][j] for i < 16, j < n <= 16.
  static void Transpose(const uint32_t* src, int64_t src_stride, uint32_t* dst,
                        int64_t dst_stride, int n) {
    const __mmask16 mask = Mask(n);
    __m512i r[16], t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      r[i] = _mm512_maskz_loadu_epi32(mask, src + i * src_stride);
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_maskz_unpacklo_epi32(kAll, r[i], r[i + 1]);
      t[i + 1] = _mm512_maskz_unpackhi_epi32(kAll, r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_maskz_unpacklo_epi64(kAll8, t[i], t[i + 2]);
      r[i + 1] = _mm512_maskz_unpackhi_epi64(kAll8, t[i], t[i + 2]);
      r[i + 2] = _mm512_maskz_unpacklo_epi64(kAll8, t[i + 1], t[i + 3]);
      r[i + 3] = _mm512_maskz_unpackhi_epi64(kAll8, t[i + 1], t[i + 3]);
    }
    // Now r[4g + c] holds columns c, c + 4, c + 8, c + 12 of rows 4g..4g + 3.
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      t[c] = _mm512_maskz_shuffle_i32x4(kAll, r[c], r[c + 4], 0x88);
      t[c + 4] = _mm512_maskz_shuffle_i32x4(kAll, r[c], r[c + 4], 0xdd);
      t[c + 8] = _mm512_maskz_shuffle_i32x4(kAll, r[c + 8], r[c + 12], 0x88);
      t[c + 12] = _mm512_maskz_shuffle_i32x4(kAll, r[c + 8], r[c + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      r[c] = _mm512_maskz_shuffle_i32x4(kAll, t[c], t[c + 8], 0x88);
      r[c + 8] = _mm512_maskz_shuffle_i32x4(kAll, t[c], t[c + 8], 0xdd);
      r[c + 4] = _mm512_maskz_shuffle_i32x4(kAll, t[c + 4], t[c + 12], 0x88);
      r[c + 12] = _mm512_maskz_shuffle_i32x4(kAll, t[c + 4], t[c + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int j = 0; j < 16; ++j) {
      if (j < n) _mm512_storeu_si512(dst + j * dst_stride, r[j]);
    }
  }
  // dst[i] = even[i] | odd[i] << 16, sixteen of them, those from n on zero.
  static void Interleave(const uint16_t* even, const uint16_t* odd, int n,
                         uint32_t* dst) {
    const __mmask16 mask = Mask(n);
    const __m512i low =
        _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(mask, even));
    const __m512i high =
        _mm512_maskz_cvtepu16_epi32(kAll, _mm256_maskz_loadu_epi16(mask, odd));
    _mm512_storeu_si512(
        dst, _mm512_or_si512(low, _mm512_maskz_slli_epi32(kAll, high, 16)));
  }

 private:
  // All lanes. The unmasked intrinsics pass an undefined vector along, which
  // GCC 12 warns of; both forms become the same instruction.
  static constexpr __mmask16 kAll = 0xffff;
  static constexpr __mmask8 kAll8 = 0xff;

  static __m256 Lower(Floats v) {
    return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  }
  static __m256 Upper(Floats v) {
    return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  }
  static Floats Widen(__m256i v) {
    return _mm512_castsi512_ps(_mm512_maskz_slli_epi32(
        kAll, _mm512_maskz_cvtepu16_epi32(kAll, v), 16));
  }
  static __m256i Narrow(Floats v) { return (__m256i)_mm512_cvtneps_pbh(v); }
};

}  // namespace tidepool::engine::internal
