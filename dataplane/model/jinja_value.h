// The values a Jinja template computes with, and the memory they live in.
//
// All values of one rendering live in its Heap and die with it: they are
// trivially copyable views, immutable except for namespaces. That makes cycles
// harmless, freeing flat however deep a value nests, and memory one number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dataplane/base/status.h"

namespace tidepool::model::jinja {

class Object;
struct Entry;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kUnsigned,  // only above the range of kInt, from JSON: read, not computed
              // with
  kFloat,
  kString,  // UTF-8; a byte that is not part of a character counts as one
  kList,
  kTuple,
  kDict,
  kObject,
};

class Value {
 public:
  Value() : Value(Kind::kNone) {}

  // `name` is what was missing, for messages.
  static Value Undefined(std::string_view name) {
    Value value(Kind::kUndefined, name.size());
    value.characters_ = name.data();
    return value;
  }
  static Value None() { return Value(); }
  static Value Bool(bool boolean) {
    Value value(Kind::kBool);
    value.integer_ = boolean;
    return value;
  }
  static Value Int(int64_t integer) {
    Value value(Kind::kInt);
    value.integer_ = integer;
    return value;
  }
  static Value Unsigned(uint64_t integer) {
    if (integer <= static_cast<uint64_t>(INT64_MAX)) {
      return Int(static_cast<int64_t>(integer));
    }
    Value value(Kind::kUnsigned);
    value.unsigned_ = integer;
    return value;
  }
  static Value Float(double number) {
    Value value(Kind::kFloat);
    value.float_ = number;
    return value;
  }
  static Value String(std::string_view text) {
    Value value(Kind::kString, text.size());
    value.characters_ = text.data();
    return value;
  }
  static Value List(std::span<const Value> items) {
    Value value(Kind::kList, items.size());
    value.items_ = items.data();
    return value;
  }
  static Value Tuple(std::span<const Value> items) {
    Value value(Kind::kTuple, items.size());
    value.items_ = items.data();
    return value;
  }
  static Value Dict(std::span<const Entry> entries);
  static Value FromObject(Object* object) {
    Value value(Kind::kObject);
    value.object_ = object;
    return value;
  }

  Kind kind() const { return kind_; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const {
    return kind_ == Kind::kList || kind_ == Kind::kTuple;
  }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  // In Python a bool is an int.
  bool is_int() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const {
    return is_int() || is_float() || kind_ == Kind::kUnsigned;
  }

  // Each needs the kind it names.
  bool boolean() const { return integer_ != 0; }
  int64_t integer() const { return integer_; }  // also of a kBool
  uint64_t unsigned_integer() const { return unsigned_; }
  std::string_view text() const { return {characters_, size_}; }
  std::string_view missing_name() const { return {characters_, size_}; }
  std::span<const Value> items() const { return {items_, size_}; }
  std::span<const Entry> entries() const;
  Object& object() const { return *object_; }
  double number() const;  // any is_number()

 private:
  explicit Value(Kind kind, size_t size = 0)
      : kind_(kind), size_(static_cast<uint32_t>(size)), integer_(0) {}

  Kind kind_;
  uint32_t size_;
  union {
    int64_t integer_;
    uint64_t unsigned_;
    double float_;
    const char* characters_;
    const Value* items_;
    const Entry* entries_;
    Object* object_;
  };
};
static_assert(std::is_trivially_copyable_v<Value> && sizeof(Value) == 16);

struct Entry {
  Value key, value;
};

inline Value Value::Dict(std::span<const Entry> entries) {
  Value value(Kind::kDict, entries.size());
  value.entries_ = entries.data();
  return value;
}
inline std::span<const Entry> Value::entries() const {
  return {entries_, size_};
}

// The memory and the work of one rendering.
// Confined to one thread. Errors of all calls: kResourceExhausted.
class Heap {
 public:
  Heap(int64_t bytes_max, int64_t steps_max);
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  // Uninitialised; lives as long as the heap.
  template <typename T>
  StatusOr<std::span<T>> Array(size_t count) {
    static_assert(std::is_trivially_destructible_v<T>);
    ASSIGN_OR_RETURN(void* memory, Allocate(count, sizeof(T)));
    return std::span<T>(static_cast<T*>(memory), count);
  }
  template <typename T, typename... Args>
  StatusOr<T*> New(Args&&... args) {
    static_assert(std::is_trivially_destructible_v<T>);
    ASSIGN_OR_RETURN(void* memory, Allocate(1, sizeof(T)));
    return new (memory) T(std::forward<Args>(args)...);
  }

  StatusOr<Value> NewString(std::string_view text);
  StatusOr<Value> NewList(std::span<const Value> items);
  StatusOr<Value> NewTuple(std::span<const Value> items);
  StatusOr<Value> NewDict(std::span<const Entry> entries);

  // Accounts for memory that lives elsewhere.
  Status ChargeBytes(size_t bytes);
  Status ChargeSteps(int64_t steps);
  // For an operation that reads or makes this much.
  Status ChargeText(size_t bytes) {
    return ChargeSteps(1 + static_cast<int64_t>(bytes / 64));
  }
  Status ChargeItems(size_t count) {
    return ChargeSteps(1 + static_cast<int64_t>(count / 16));
  }
  // For looking each of `bytes` up among `set_bytes`.
  Status ChargeLookups(size_t bytes, size_t set_bytes) {
    return ChargeSteps(1 + static_cast<int64_t>(bytes / 64) *
                               static_cast<int64_t>(1 + set_bytes / 64));
  }
  int64_t bytes_left() const { return bytes_max_ - bytes_used_; }

 private:
  StatusOr<void*> Allocate(size_t count, size_t size);

  const int64_t bytes_max_;
  const int64_t steps_max_;
  int64_t bytes_used_ = 0;
  int64_t steps_used_ = 0;
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* free_ = nullptr;
  size_t free_bytes_ = 0;
};

// Text under construction that never outgrows its heap. Failure is remembered
// and reported by Finish, so that appending needs no checks.
class TextBuilder {
 public:
  explicit TextBuilder(Heap& heap) : heap_(heap) {}

  void Append(std::string_view text) {
    if (!status_.ok()) return;
    status_ = heap_.ChargeBytes(text.size());
    if (status_.ok()) text_.append(text);
  }
  void Append(size_t count, char character);
  bool ok() const { return status_.ok(); }
  std::string_view text() const { return text_; }
  StatusOr<Value> Finish() {
    RETURN_IF_ERROR(status_);
    return heap_.NewString(text_);
  }
  StatusOr<std::string> Take() {
    RETURN_IF_ERROR(status_);
    return std::move(text_);
  }

 private:
  Heap& heap_;
  std::string text_;
  Status status_;
};

// Values deeper than this are refused by whatever walks through them.
inline constexpr int kValueDepthMax = 200;

bool IsTrue(const Value& value);

// Python's name of the type, as in its messages.
std::string_view TypeName(const Value& value);

// Python's ==. Errors: kResourceExhausted for deep values and by `heap`.
StatusOr<bool> Equals(Heap& heap, const Value& a, const Value& b,
                      int depth = 0);

// Negative, zero or positive as a <, ==, > b. A NaN is equal to everything
// here; operators treat it themselves.
// Errors: kInvalidArgument for kinds without an order; as Equals.
StatusOr<int> Order(Heap& heap, const Value& a, const Value& b, int depth = 0);

// The value of `key` in `dict`; nullptr if it has none.
StatusOr<const Value*> Find(Heap& heap, const Value& dict, const Value& key);

// The last of equal keys wins, in the place of the first.
// Errors: kInvalidArgument for keys that are lists or dicts.
StatusOr<Value> MakeDict(Heap& heap, std::span<const Entry> entries);

// What iterating over `value` gives: items, keys, characters.
// Errors: kInvalidArgument if it is not iterable.
StatusOr<std::span<const Value>> Iterate(Heap& heap, const Value& value);

// Python's str(). A string is itself, not a copy.
StatusOr<Value> ToText(Heap& heap, const Value& value);
// Python's repr().
Status AppendRepr(const Value& value, TextBuilder& out, int depth = 0);
std::string FormatFloat(double number);  // Python's repr of a float

// kInvalidArgument "'name' is undefined".
Status UndefinedError(const Value& value);

}  // namespace tidepool::model::jinja
