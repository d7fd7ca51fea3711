// Paged causal attention over a mode of simd_modes.h. For the kernel files
// only.
//
// The context is taken in blocks of 64 absolute positions. Within a block the
// scores of a query are chains over head_dim, its weights are summed by one
// fixed tree, and values are added in the order of positions; between blocks
// the sums are corrected for the new maximum (online softmax). A query never
// touches the bits of a position after its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "dataplane/engine/gemm_impl.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/ops_impl.h"

namespace tidepool::engine::internal {

// Rows are (token, head of the group), token-major.
template <typename M>
class AttentionKernel {
 public:
  explicit AttentionKernel(const AttentionArgs& args)
      : args_(args),
        rows_(args.tokens * args.group),
        dim_(args.head_dim),
        padded_dim_((dim_ + kVectorFloats - 1) / kVectorFloats * kVectorFloats),
        dim_units_(dim_ / M::kUnitElements) {
    const int64_t rows_max = AttentionRowsMax(args.group);
    std::byte* next = args.scratch;
    const auto take = [&](auto*& pointer, int64_t count) {
      pointer = reinterpret_cast<Unit*>(next);
      next += (count * sizeof(Unit) + 63) / 64 * 64;
    };
    const auto take_floats = [&](float*& pointer, int64_t count) {
      pointer = reinterpret_cast<float*>(next);
      next += (count * sizeof(float) + 63) / 64 * 64;
    };
    take(queries_, rows_max * dim_units_);
    take(keys_, dim_units_ * kAttentionBlock);
    take(values_, kBlockUnits * padded_dim_);
    take(tail_, padded_dim_);
    take(weights_, rows_max * kBlockUnits);
    take_floats(scores_, rows_max * kAttentionBlock);
    take_floats(sums_, rows_max * padded_dim_);
    take_floats(maxima_, rows_max);
    take_floats(totals_, rows_max);
  }

  void Run() {
    CopyQueries();
    const int32_t last = args_.position + args_.tokens - 1;
    for (int32_t start = 0; start <= last; start += kAttentionBlock)
      AddBlock(start, last + 1 - start);
    WriteOutput();
  }

 private:
  using Element = typename M::Element;
  static constexpr int32_t kBlockUnits = kAttentionBlock / M::kUnitElements;

  void CopyQueries() {
    const Element* from = static_cast<const Element*>(args_.q);
    for (int32_t t = 0; t < args_.tokens; ++t) {
      std::memcpy(queries_ + int64_t{t} * args_.group * dim_units_,
                  from + t * args_.stride,
                  sizeof(Element) * args_.group * dim_);
    }
    for (int32_t r = 0; r < rows_; ++r) {
      maxima_[r] = -__builtin_inff();
      totals_[r] = 0;
    }
    for (int64_t i = 0; i < rows_ * padded_dim_; i += kVectorFloats)
      M::Store(sums_ + i, M::Zero());
  }

  // Of positions [start, start + written).
  void AddBlock(int32_t start, int32_t written) {
    if (written > kAttentionBlock) written = kAttentionBlock;
    PackKeys(start, written);
    PackValues(start, written);
    // Tokens before `first` see nothing of the block, those from `full` on
    // all of it.
    const int32_t first = Clamp(start - args_.position);
    const int32_t full = Clamp(start + kAttentionBlock - 1 - args_.position);
    Score(first * args_.group);
    for (int32_t t = first; t < full; ++t)
      AddValues(t, t + 1, args_.position + t + 1 - start);
    if (full < args_.tokens) AddValues(full, args_.tokens, kAttentionBlock);
  }

  int32_t Clamp(int32_t token) const {
    return token < 0 ? 0 : token > args_.tokens ? args_.tokens : token;
  }

  const Element* SliceOf(int32_t position) const {
    const int32_t page = args_.pages[position / args_.page_tokens];
    return reinterpret_cast<const Element*>(args_.layer +
                                            page * args_.slice_bytes);
  }
  const Element* KeyOf(int32_t position) const {
    const int64_t row = int64_t{args_.kv_head} * args_.page_tokens +
                        position % args_.page_tokens;
    return SliceOf(position) + row * dim_;
  }
  const Element* ValueOf(int32_t position) const {
    return KeyOf(position) + int64_t{args_.kv_heads} * args_.page_tokens * dim_;
  }

  // keys_[unit of dim][position in block]. Sixteen positions never straddle a
  // page; those not yet written are carried along and masked later.
  void PackKeys(int32_t start, int32_t written) {
    for (int32_t i = 0; i < written; i += kVectorFloats) {
      const Unit* from = reinterpret_cast<const Unit*>(KeyOf(start + i));
      for (int64_t u = 0; u < dim_units_; u += kVectorFloats) {
        const int64_t left = dim_units_ - u;
        M::Transpose(
            from + u, dim_units_, keys_ + u * kAttentionBlock + i,
            kAttentionBlock,
            left < kVectorFloats ? static_cast<int>(left) : kVectorFloats);
      }
    }
  }

  // values_[unit of positions][dim]
  void PackValues(int32_t start, int32_t written) {
    for (int32_t i = 0; i < written; i += M::kUnitElements) {
      Unit* to = values_ + i / M::kUnitElements * padded_dim_;
      const Element* from = ValueOf(start + i);
      if constexpr (M::kUnitElements == 1) {
        std::memcpy(to, from, sizeof(Element) * dim_);
      } else {
        ForVectors(static_cast<int32_t>(dim_), [&](int32_t d, int n) {
          M::Interleave(from + d, from + dim_ + d, n, to + d);
        });
      }
    }
  }

  void Score(int32_t first_row) {
    if (first_row >= rows_) return;
    Product<M>({.a = queries_ + first_row * dim_units_,
                .a_stride = dim_units_,
                .w = keys_,
                .w_stride = kAttentionBlock,
                .units = static_cast<int32_t>(dim_units_),
                .c = scores_ + int64_t{first_row} * kAttentionBlock,
                .c_stride = kAttentionBlock,
                .add = false},
               rows_ - first_row, kAttentionBlock / kVectorFloats);
  }

  // The first `count` positions of the block, for tokens [begin, end).
  void AddValues(int32_t begin, int32_t end, int32_t count) {
    const int32_t row = begin * args_.group;
    const int32_t row_count = (end - begin) * args_.group;
    for (int32_t r = row; r < row + row_count; ++r) Softmax(r, count);
    Factors f = {.a = weights_ + int64_t{row} * kBlockUnits,
                 .a_stride = kBlockUnits,
                 .w = values_,
                 .w_stride = padded_dim_,
                 .units = count / M::kUnitElements,
                 .c = sums_ + row * padded_dim_,
                 .c_stride = padded_dim_,
                 .add = true};
    const int32_t vectors = static_cast<int32_t>(padded_dim_ / kVectorFloats);
    Product<M>(f, row_count, vectors);
    if (count % M::kUnitElements == 0) return;
    // The other half of the last unit is a later position's: whatever it
    // holds, even a NaN, must not meet the zero weight.
    const Unit* last = f.w + f.units * padded_dim_;
    for (int64_t d = 0; d < padded_dim_; ++d)
      tail_[d] = last[d] & M::kFirstElement;
    f.a += f.units;
    f.w = tail_;
    f.units = 1;
    Product<M>(f, row_count, vectors);
  }

  void Softmax(int32_t row, int32_t count) {
    constexpr int kVectors = kAttentionBlock / kVectorFloats;
    const float* scores = scores_ + int64_t{row} * kAttentionBlock;
    FloatsOf<M> v[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      const int valid = count - i * kVectorFloats;
      v[i] = M::Load(scores + i * kVectorFloats);
      if (valid < kVectorFloats) {
        v[i] =
            M::FillFrom(v[i], valid < 0 ? 0 : valid, M::Set(-__builtin_inff()));
      }
    }
    const float block_max =
        M::ReduceMax(M::Max(M::Max(v[0], v[1]), M::Max(v[2], v[3])));
    const float old_max = maxima_[row];
    const float max = block_max > old_max ? block_max : old_max;
    Element* weights =
        reinterpret_cast<Element*>(weights_ + int64_t{row} * kBlockUnits);
    for (int i = 0; i < kVectors; ++i) {
      // Sums what is multiplied: the weights as they are stored.
      M::StoreElements(weights + i * kVectorFloats,
                       Exp2<M>(M::Sub(v[i], M::Set(max))));
      v[i] = M::LoadElements(weights + i * kVectorFloats);
    }
    const float sum =
        M::ReduceAdd(M::Add(M::Add(v[0], v[1]), M::Add(v[2], v[3])));
    const auto correction = Exp2<M>(M::Set(old_max - max));
    float factor[kVectorFloats];
    M::Store(factor, correction);
    maxima_[row] = max;
    totals_[row] = totals_[row] * factor[0] + sum;
    if (factor[0] == 1.0f) return;
    float* sums = sums_ + row * padded_dim_;
    for (int64_t d = 0; d < padded_dim_; d += kVectorFloats)
      M::Store(sums + d, M::Mul(M::Load(sums + d), correction));
  }

  void WriteOutput() {
    Element* to = static_cast<Element*>(args_.out);
    for (int32_t r = 0; r < rows_; ++r) {
      Element* out =
          to + r / args_.group * args_.stride + r % args_.group * dim_;
      const float* sums = sums_ + r * padded_dim_;
      const auto total = M::Set(totals_[r]);
      ForVectors(static_cast<int32_t>(dim_), [&](int32_t d, int n) {
        M::StoreElements(out + d, M::Div(M::Load(sums + d, n), total), n);
      });
    }
  }

  const AttentionArgs& args_;
  const int32_t rows_;
  const int64_t dim_, padded_dim_, dim_units_;
  Unit* queries_;  // [rows][dim_units]
  Unit* keys_;     // [dim_units][64]
  Unit* values_;   // [block units][padded_dim]
  Unit* tail_;     // [padded_dim]
  Unit* weights_;  // [rows][block units]
  float* scores_;  // [rows][64]
  float* sums_;    // [rows][padded_dim]
  float* maxima_;  // [rows]
  float* totals_;  // [rows]
};

template <typename M>
void Attention(const AttentionArgs& args) {
  AttentionKernel<M>(args).Run();
}

}  // namespace tidepool::engine::internal
