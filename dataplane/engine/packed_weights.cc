#include "dataplane/engine/packed_weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dataplane/base/check.h"
#include "dataplane/base/checked_math.h"

namespace tidepool::engine::internal {
namespace {

constexpr int64_t kHalfGroup = kGroupOutputs / 2;
constexpr size_t kHugePageBytes = size_t{2} << 20;

float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

uint16_t NarrowToBf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if (value != value) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float WidenHalf(uint16_t half) {
  const uint32_t sign = uint32_t{half} >> 15 << 31;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 31) return FloatFromBits(sign | 0x7f800000 | fraction << 13);
  if (exponent != 0)
    return FloatFromBits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -magnitude : magnitude;
}

template <typename T>
T ElementAt(const model::TensorView& tensor, int64_t index) {
  T value;
  std::memcpy(&value, tensor.data.data() + index * int64_t{sizeof(T)},
              sizeof(T));
  return value;
}

float FloatAt(const model::TensorView& tensor, int64_t index) {
  switch (tensor.dtype) {
    case model::DType::kFloat32:
      return ElementAt<float>(tensor, index);
    case model::DType::kFloat16:
      return WidenHalf(ElementAt<uint16_t>(tensor, index));
    case model::DType::kBFloat16:
      return FloatFromBits(uint32_t{ElementAt<uint16_t>(tensor, index)} << 16);
  }
  return 0;
}

uint16_t Bf16At(const model::TensorView& tensor, int64_t index) {
  if (tensor.dtype == model::DType::kBFloat16)
    return ElementAt<uint16_t>(tensor, index);
  return NarrowToBf16(FloatAt(tensor, index));
}

// Elements [begin, end) of a tensor as one unit.
Unit UnitAt(ComputeMode mode, const model::TensorView& tensor, int64_t begin,
            int64_t end) {
  if (mode == ComputeMode::kFloat32) {
    const float value = FloatAt(tensor, begin);
    Unit unit;
    std::memcpy(&unit, &value, sizeof(unit));
    return unit;
  }
  const Unit even = Bf16At(tensor, begin);
  const Unit odd = begin + 1 < end ? Bf16At(tensor, begin + 1) : 0;
  return even | odd << 16;
}

int64_t OutputOf(Placement placement, int64_t first_output, int64_t row) {
  if (placement == Placement::kConsecutive) return first_output + row;
  return row / kHalfGroup * kGroupOutputs + row % kHalfGroup +
         (placement == Placement::kUps ? kHalfGroup : 0);
}

}  // namespace

Array::~Array() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

Array::Array(Array&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Array& Array::operator=(Array&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

StatusOr<Array> Array::Create(int64_t bytes) {
  CHECK(bytes > 0);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return ResourceExhausted("allocating {} bytes for the engine", bytes);
  Array array;
  array.data_ = static_cast<std::byte*>(data);
  array.bytes_ = static_cast<size_t>(bytes);
  // Walking a large matrix on small pages would cost a tenth of the memory
  // bandwidth. Advice only: small pages work too.
  if (array.bytes_ >= kHugePageBytes)
    (void)madvise(data, array.bytes_, MADV_HUGEPAGE);
  return array;
}

int32_t UnitsOf(ComputeMode mode, int64_t elements) {
  return static_cast<int32_t>(
      mode == ComputeMode::kFloat32 ? elements : (elements + 1) / 2);
}

StatusOr<PackedMatrix> PackedMatrix::Create(ComputeMode mode, int64_t outputs,
                                            int64_t inputs) {
  PackedMatrix matrix;
  matrix.mode_ = mode;
  matrix.outputs_ = outputs;
  matrix.inputs_ = inputs;
  matrix.units_ = UnitsOf(mode, inputs);
  matrix.groups_ =
      static_cast<int32_t>(CeilDiv<int64_t>(outputs, kGroupOutputs));
  const int64_t units = int64_t{matrix.groups_} * matrix.units_;
  ASSIGN_OR_RETURN(matrix.array_, Array::Create(units * kGroupOutputs *
                                                int64_t{sizeof(Unit)}));
  return matrix;
}

void PackedMatrix::Pack(const model::TensorView& tensor, Placement placement,
                        int64_t first_output, ThreadPool& pool) {
  const int64_t rows = tensor.num_elements() / inputs_;
  const int64_t step = mode_ == ComputeMode::kFloat32 ? 1 : 2;
  // Sixteen units of some rows at a time, to stay within a few cache lines of
  // both sides.
  constexpr int64_t kBlockUnits = 16;
  constexpr int64_t kBlockRows = 32;
  pool.For(CeilDiv(rows, kBlockRows), 1,
           [&](int64_t begin, int64_t end, int32_t /*thread*/) {
             const int64_t row_end = std::min(end * kBlockRows, rows);
             for (int64_t block = begin * kBlockRows; block < row_end;
                  block += kBlockRows) {
               for (int64_t unit = 0; unit < units_; unit += kBlockUnits) {
                 const int64_t unit_end =
                     std::min<int64_t>(unit + kBlockUnits, units_);
                 for (int64_t row = block;
                      row < std::min(block + kBlockRows, row_end); ++row) {
                   const int64_t output =
                       OutputOf(placement, first_output, row);
                   Unit* to = array_.As<Unit>() +
                              output / kGroupOutputs * units_ * kGroupOutputs +
                              output % kGroupOutputs;
                   const int64_t from = row * inputs_;
                   for (int64_t u = unit; u < unit_end; ++u) {
                     to[u * kGroupOutputs] =
                         UnitAt(mode_, tensor, from + u * step, from + inputs_);
                   }
                 }
               }
             }
           });
}

void PackedMatrix::ReadRow(int64_t output, float* row) const {
  const Unit* from = data() + output / kGroupOutputs * units_ * kGroupOutputs +
                     output % kGroupOutputs;
  if (mode_ == ComputeMode::kFloat32) {
    for (int64_t i = 0; i < inputs_; ++i)
      row[i] = FloatFromBits(from[i * kGroupOutputs]);
    return;
  }
  for (int64_t i = 0; i < inputs_; ++i) {
    const Unit unit = from[i / 2 * kGroupOutputs];
    row[i] = FloatFromBits(i % 2 == 0 ? unit << 16 : unit & 0xffff0000u);
  }
}

void UnpackFloats(const model::TensorView& tensor, Placement placement,
                  int64_t first_output, float* out) {
  const int64_t count = tensor.num_elements();
  for (int64_t i = 0; i < count; ++i)
    out[OutputOf(placement, first_output, i)] = FloatAt(tensor, i);
}

}  // namespace tidepool::engine::internal
