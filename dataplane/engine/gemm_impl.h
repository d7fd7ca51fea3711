// Matrix products over a mode of simd_modes.h. For the kernel files only.
//
// Every output is one chain over the units of K, first to last. Cutting rows
// into tiles and K into blocks changes what runs beside what, never a chain:
// a sum that is put aside between two blocks is an exact float.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dataplane/engine/kernels.h"
#include "dataplane/engine/ops_impl.h"

namespace tidepool::engine::internal {

// Rows of a times columns of w, both advancing by one unit of K.
struct Factors {
  const Unit* a;  // [rows][a_stride]
  int64_t a_stride;
  const Unit* w;  // [units][w_stride]
  int64_t w_stride;
  int32_t units;
  float* c;  // [rows][c_stride]
  int64_t c_stride;
  bool add;  // to what is in c
  // What is needed soon, fetched into L2 meanwhile: so many cache lines per
  // unit of K.
  const Unit* next = nullptr;
  int32_t next_lines = 0;
};

// Units of a cache line.
inline constexpr int32_t kLineUnits = 16;

template <typename M, int kRows, int kVectors>
inline void Tile(const Factors& f) {
  FloatsOf<M> sums[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] =
          f.add ? M::Load(f.c + r * f.c_stride + v * kVectorFloats) : M::Zero();
    }
  }
  const Unit* a = f.a;
  const Unit* w = f.w;
  const Unit* next = f.next;
  for (int32_t k = 0; k < f.units; ++k, ++a, w += f.w_stride) {
    for (int32_t line = 0; line < f.next_lines; ++line, next += kLineUnits)
      M::Prefetch(next);
    typename M::Vectors::Units columns[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      columns[v] = M::LoadUnits(w + v * kVectorFloats);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto splat = M::Splat(a[r * f.a_stride]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = M::Dot(sums[r][v], columns[v], splat);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v)
      M::Store(f.c + r * f.c_stride + v * kVectorFloats, sums[r][v]);
  }
}

// Tiles of kRows rows over `vectors` columns of 16.
template <typename M, int kRows>
inline void TileRow(Factors f, int32_t vectors) {
  constexpr int kVectors = M::Vectors::TileVectors(kRows);
  const auto advance = [&](int by) {
    f.w += by * kVectorFloats;
    f.c += by * kVectorFloats;
    vectors -= by;
  };
  for (; vectors >= kVectors; advance(kVectors)) Tile<M, kRows, kVectors>(f);
  if constexpr (kVectors > 2) {
    for (; vectors >= 2; advance(2)) Tile<M, kRows, 2>(f);
  }
  if constexpr (kVectors > 1) {
    for (; vectors >= 1; advance(1)) Tile<M, kRows, 1>(f);
  }
}

template <typename M, int kRows = M::Vectors::kTileRows>
inline void TileRowOf(const Factors& f, int32_t rows, int32_t vectors) {
  if constexpr (kRows > 1) {
    if (rows < kRows) return TileRowOf<M, kRows - 1>(f, rows, vectors);
  }
  TileRow<M, kRows>(f, vectors);
}

// Rows are dealt evenly to as few tiles as hold them: a tile of one row would
// wait for its own chain.
template <typename M>
inline void Product(Factors f, int32_t rows, int32_t vectors) {
  constexpr int kTileRows = M::Vectors::kTileRows;
  int32_t tiles = (rows + kTileRows - 1) / kTileRows;
  // The first tiles fetch as much as this product reads of w.
  int32_t lines_left = f.next == nullptr ? 0 : vectors;
  f.next_lines = lines_left == 0 ? 0 : (lines_left + tiles - 1) / tiles;
  for (; tiles > 0; --tiles) {
    const int32_t tile_rows = (rows + tiles - 1) / tiles;
    TileRowOf<M>(f, tile_rows, vectors);
    f.next += f.next_lines * f.units * kLineUnits;
    lines_left -= f.next_lines;
    if (lines_left <= 0) f.next_lines = 0;
    f.a += tile_rows * f.a_stride;
    f.c += tile_rows * f.c_stride;
    rows -= tile_rows;
  }
}

template <typename M>
inline void FinishGroup(const GemmArgs& args, int32_t group) {
  constexpr int kVectors = kGroupOutputs / kVectorFloats;
  const bool is_glu = args.epilogue == Epilogue::kSwiGlu;
  const int32_t width = is_glu ? kGroupOutputs / 2 : kGroupOutputs;
  const int64_t left =
      (is_glu ? args.outputs / 2 : args.outputs) - int64_t{group} * width;
  const int32_t valid = left < width ? static_cast<int32_t>(left) : width;
  for (int32_t row = 0; row < args.rows; ++row) {
    FloatsOf<M> sums[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      const int offset = v * kVectorFloats;
      sums[v] = M::Load(args.scratch + row * kGroupOutputs + offset);
      if (args.bias != nullptr) {
        sums[v] = M::Add(sums[v],
                         M::Load(args.bias + group * kGroupOutputs + offset));
      }
    }
    const int64_t at = row * args.out_stride + int64_t{group} * width;
    if (is_glu) {
      auto* out = static_cast<typename M::Element*>(args.out) + at;
      ForVectors(valid, [&](int32_t i, int n) {
        const int v = i / kVectorFloats;
        const auto gated = M::Mul(Silu<M>(sums[v]), sums[v + kVectors / 2]);
        M::StoreElements(out + i, gated, n);
      });
      continue;
    }
    float* out = static_cast<float*>(args.out) + at;
    const bool adds = args.epilogue == Epilogue::kAdd;
    ForVectors(valid, [&](int32_t i, int n) {
      const auto sum = sums[i / kVectorFloats];
      M::Store(out + i, adds ? M::Add(M::Load(out + i, n), sum) : sum, n);
    });
  }
}

template <typename M>
void Gemm(const GemmArgs& args) {
  // With several tiles, a block of a group's weights stays in L1 (16 KiB of
  // it) while all of them use it and the next one is fetched. With one tile,
  // nothing is used twice and the processor itself fetches ahead.
  const bool is_blocked = args.rows > M::Vectors::kTileRows;
  const int32_t block_units = is_blocked ? 64 : args.units;
  for (int32_t group = args.group_begin; group < args.group_end; ++group) {
    const Unit* weights =
        args.weights + int64_t{group} * args.units * kGroupOutputs;
    for (int32_t k = 0; k < args.units; k += block_units) {
      const int32_t left = args.units - k;
      const Unit* block = weights + int64_t{k} * kGroupOutputs;
      const int32_t units = left < block_units ? left : block_units;
      Product<M>({.a = args.a + k,
                  .a_stride = args.a_stride,
                  .w = block,
                  .w_stride = kGroupOutputs,
                  .units = units,
                  .c = args.scratch,
                  .c_stride = kGroupOutputs,
                  .add = k > 0,
                  .next = is_blocked ? block + units * kGroupOutputs : nullptr},
                 args.rows, kGroupOutputs / kVectorFloats);
    }
    FinishGroup<M>(args, group);
  }
}

}  // namespace tidepool::engine::internal
