// Weights as the kernels read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/base/status.h"
#include "dataplane/engine/kernels.h"
#include "dataplane/engine/numerics.h"
#include "dataplane/engine/thread_pool.h"
#include "dataplane/model/weights.h"

namespace tidepool::engine::internal {

// Zeroed memory from the operating system, 64-byte aligned, on huge pages
// where it may have them; untouched parts take no memory.
class Array {
 public:
  Array() = default;
  ~Array();
  Array(Array&& other) noexcept;
  Array& operator=(Array&& other) noexcept;

  // Errors: kResourceExhausted.
  static StatusOr<Array> Create(int64_t bytes);

  template <typename T>
  T* As() const {
    return reinterpret_cast<T*>(data_);
  }
  bool empty() const { return data_ == nullptr; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

// Elements (floats or bfloat16) to units, the last one padded.
int32_t UnitsOf(ComputeMode mode, int64_t elements);

// How the rows of a tensor become outputs of a matrix.
enum class Placement {
  kConsecutive,  // row i is output first + i
  kGates,        // row i is output i % 32 of group i / 32
  kUps,          // row i is output 32 + i % 32 of group i / 32
};

// A matrix [outputs, inputs] in groups of 64 outputs: [group][unit of
// inputs][64], zero where there is no output or input. One output's weights
// for a unit of inputs lie beside those of its neighbours, so that vectors of
// outputs advance together through K, and a group is read front to back.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // All zero. Errors: kResourceExhausted.
  static StatusOr<PackedMatrix> Create(ComputeMode mode, int64_t outputs,
                                       int64_t inputs);

  // Rounds `tensor` [rows, inputs] to the mode's elements (nearest even) and
  // puts it into place.
  void Pack(const model::TensorView& tensor, Placement placement,
            int64_t first_output, ThreadPool& pool);

  const Unit* data() const { return array_.As<Unit>(); }
  int64_t outputs() const { return outputs_; }
  int32_t units() const { return units_; }
  int32_t groups() const { return groups_; }

  // The weights of one output, [inputs].
  void ReadRow(int64_t output, float* row) const;

 private:
  ComputeMode mode_ = ComputeMode::kFloat32;
  int64_t outputs_ = 0, inputs_ = 0;
  int32_t units_ = 0, groups_ = 0;
  Array array_;
};

// Writes element i of `tensor` to out[OutputOf(placement, first, i)].
void UnpackFloats(const model::TensorView& tensor, Placement placement,
                  int64_t first_output, float* out);

}  // namespace tidepool::engine::internal
