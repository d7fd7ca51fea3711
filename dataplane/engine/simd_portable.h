// Sixteen floats in plain C++, which the compiler maps to whatever vectors the
// baseline of its target has. For kernels_portable.cc only.
#pragma once

#include <cstdint>
#include <cstring>

namespace tidepool::engine::internal {

struct Portable {
  struct Floats {
    float v[16];
  };
  struct Units {
    uint32_t v[16];
  };
  using SplatUnit = uint32_t;

  static constexpr int kTileRows = 2;
  static constexpr int TileVectors(int /*rows*/) { return 1; }

  template <typename Function>
  static Floats Map(Function function) {
    Floats result;
    for (int i = 0; i < 16; ++i) result.v[i] = function(i);
    return result;
  }

  static Floats Zero() { return Set(0); }
  static Floats Set(float x) {
    return Map([&](int) { return x; });
  }
  static Floats Load(const float* p) {
    return Map([&](int i) { return p[i]; });
  }
  static Floats Load(const float* p, int n) {
    return Map([&](int i) { return i < n ? p[i] : 0; });
  }
  static void Store(float* p, const Floats& v) { Store(p, v, 16); }
  static void Store(float* p, const Floats& v, int n) {
    for (int i = 0; i < n; ++i) p[i] = v.v[i];
  }
  static Floats LoadBf16(const uint16_t* p) {
    return Map([&](int i) { return Float(uint32_t{p[i]} << 16); });
  }
  static Floats LoadBf16(const uint16_t* p, int n) {
    return Map([&](int i) { return i < n ? Float(uint32_t{p[i]} << 16) : 0; });
  }
  static void StoreBf16(uint16_t* p, const Floats& v) { StoreBf16(p, v, 16); }
  static void StoreBf16(uint16_t* p, const Floats& v, int n) {
    for (int i = 0; i < n; ++i) p[i] = Narrow(v.v[i]);
  }

  static Floats Add(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static Floats Sub(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static Floats Mul(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static Floats Div(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static Floats Min(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static Floats Max(const Floats& a, const Floats& b) {
    return Map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  // Rounds twice: a fused operation would be a slow library call on
  // processors without one.
  static Floats MulAdd(const Floats& a, const Floats& b, const Floats& c) {
    return Map([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static Floats ZeroBelow(const Floats& v, const Floats& x,
                          const Floats& bound) {
    return Map([&](int i) { return x.v[i] < bound.v[i] ? 0 : v.v[i]; });
  }
  static Floats FillFrom(const Floats& v, int n, const Floats& x) {
    return Map([&](int i) { return i < n ? v.v[i] : x.v[i]; });
  }
  static Floats PowerOfTwo(const Floats& shifted) {
    return Map([&](int i) {
      return Float((Bits(shifted.v[i]) << 23) + (uint32_t{127} << 23));
    });
  }

  static float ReduceAdd(Floats v) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) v.v[i] += v.v[i + half];
    }
    return v.v[0];
  }
  static float ReduceMax(Floats v) {
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i)
        v.v[i] = v.v[i] > v.v[i + half] ? v.v[i] : v.v[i + half];
    }
    return v.v[0];
  }

  static void Prefetch(const void* p) { __builtin_prefetch(p, 0, 2); }
  static Units LoadUnits(const uint32_t* p) {
    Units units;
    std::memcpy(units.v, p, sizeof(units.v));
    return units;
  }
  static SplatUnit Splat(uint32_t unit) { return unit; }
  static Floats DotFloat(const Floats& sum, const Units& w, SplatUnit a) {
    return Map([&](int i) { return sum.v[i] + Float(w.v[i]) * Float(a); });
  }
  static Floats DotBf16(const Floats& sum, const Units& w, SplatUnit a) {
    const float odd = Float(a & 0xffff0000u);
    const float even = Float(a << 16);
    return Map([&](int i) {
      return (sum.v[i] + Float(w.v[i] & 0xffff0000u) * odd) +
             Float(w.v[i] << 16) * even;
    });
  }

  static void Transpose(const uint32_t* src, int64_t src_stride, uint32_t* dst,
                        int64_t dst_stride, int n) {
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < 16; ++i)
        dst[j * dst_stride + i] = src[i * src_stride + j];
    }
  }
  static void Interleave(const uint16_t* even, const uint16_t* odd, int n,
                         uint32_t* dst) {
    for (int i = 0; i < n; ++i)
      dst[i] = even[i] | static_cast<uint32_t>(odd[i]) << 16;
    for (int i = n; i < 16; ++i) dst[i] = 0;
  }

 private:
  static float Float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
  }
  static uint32_t Bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
  }
  static uint16_t Narrow(float value) {
    const uint32_t bits = Bits(value);
    if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

}  // namespace tidepool::engine::internal
