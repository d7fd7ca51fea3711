#include <algorithm>
#include <cmath>
#include <limits>

#include "dataplane/base/checked_math.h"
#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

Status TypeError(std::string_view operation, const Value& left,
                 const Value& right) {
  if (left.is_undefined()) return UndefinedError(left);
  if (right.is_undefined()) return UndefinedError(right);
  return InvalidArgument("'{}' does not work on '{}' and '{}'", operation,
                         TypeName(left), TypeName(right));
}

StatusOr<Value> Checked(std::optional<int64_t> result) {
  if (result.has_value()) return Value::Int(*result);
  return InvalidArgument("an integer beyond 64 bits");
}

StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  std::optional<int64_t> result = 1;
  if (base == 0 || base == 1) return Value::Int(exponent == 0 ? 1 : base);
  if (base == -1) return Value::Int(exponent % 2 == 0 ? 1 : -1);
  // Any other leaves 64 bits within as many factors.
  for (int64_t i = 0; i < exponent && result.has_value(); ++i) {
    result = CheckedMul(*result, base);
  }
  return Checked(result);
}

// Rounds towards minus infinity, as Python does.
StatusOr<Value> IntegerDivision(std::string_view operation, int64_t left,
                                int64_t right) {
  if (right == 0) return InvalidArgument("division by zero");
  if (right == -1) {
    return operation == "%" ? Value::Int(0)
                            : Checked(CheckedSub<int64_t>(0, left));
  }
  const int64_t remainder = left % right;
  const bool adjust = remainder != 0 && (remainder < 0) != (right < 0);
  if (operation == "%") return Value::Int(remainder + (adjust ? right : 0));
  return Value::Int(left / right - (adjust ? 1 : 0));
}

StatusOr<Value> FloatArithmetic(std::string_view operation, double left,
                                double right) {
  if (operation == "+") return Value::Float(left + right);
  if (operation == "-") return Value::Float(left - right);
  if (operation == "*") return Value::Float(left * right);
  if (operation == "**") {
    const double result = std::pow(left, right);
    if (std::isnan(result) || (std::isinf(result) && std::isfinite(left))) {
      return InvalidArgument("'**' has no finite result");
    }
    return Value::Float(result);
  }
  if (right == 0) return InvalidArgument("division by zero");
  if (operation == "/") return Value::Float(left / right);
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  if (operation == "%") return Value::Float(remainder);
  return Value::Float(std::round((left - remainder) / right));
}

StatusOr<Value> NumberArithmetic(std::string_view operation, const Value& left,
                                 const Value& right) {
  if (left.kind() == Kind::kUnsigned || right.kind() == Kind::kUnsigned) {
    return Checked(std::nullopt);
  }
  const bool integers = left.is_int() && right.is_int();
  if (!integers || operation == "/" ||
      (operation == "**" && right.integer() < 0)) {
    return FloatArithmetic(operation, left.number(), right.number());
  }
  const int64_t a = left.integer(), b = right.integer();
  if (operation == "+") return Checked(CheckedAdd(a, b));
  if (operation == "-") return Checked(CheckedSub(a, b));
  if (operation == "*") return Checked(CheckedMul(a, b));
  if (operation == "**") return IntegerPower(a, b);
  return IntegerDivision(operation, a, b);
}

StatusOr<Value> Join(Heap& heap, const Value& left, const Value& right) {
  if (left.is_string()) {
    const std::string_view a = left.text(), b = right.text();
    if (b.empty()) return left;
    ASSIGN_OR_RETURN(const std::span<char> both,
                     heap.Array<char>(a.size() + b.size()));
    RETURN_IF_ERROR(heap.ChargeText(both.size()));
    std::ranges::copy(b, std::ranges::copy(a, both.begin()).out);
    return Value::String({both.data(), both.size()});
  }
  const auto a = left.items(), b = right.items();
  ASSIGN_OR_RETURN(const std::span<Value> both,
                   heap.Array<Value>(a.size() + b.size()));
  RETURN_IF_ERROR(heap.ChargeItems(both.size()));
  std::ranges::copy(b, std::ranges::copy(a, both.begin()).out);
  return left.kind() == Kind::kTuple ? Value::Tuple(both) : Value::List(both);
}

template <typename T>
StatusOr<std::span<const T>> RepeatItems(Heap& heap, std::span<const T> items,
                                         int64_t count) {
  const size_t times = static_cast<size_t>(std::max<int64_t>(count, 0));
  const auto size = CheckedMul(items.size(), times);
  ASSIGN_OR_RETURN(
      const std::span<T> result,
      heap.Array<T>(size.value_or(std::numeric_limits<size_t>::max())));
  for (size_t i = 0; i < result.size(); i += items.size()) {
    std::ranges::copy(items, result.begin() + static_cast<ptrdiff_t>(i));
  }
  return result;
}

StatusOr<Value> Repeat(Heap& heap, const Value& value, int64_t count) {
  if (value.is_string()) {
    const std::span<const char> text(value.text());
    ASSIGN_OR_RETURN(const auto result, RepeatItems(heap, text, count));
    RETURN_IF_ERROR(heap.ChargeText(result.size()));
    return Value::String({result.data(), result.size()});
  }
  ASSIGN_OR_RETURN(const auto result, RepeatItems(heap, value.items(), count));
  RETURN_IF_ERROR(heap.ChargeItems(result.size()));
  return value.kind() == Kind::kTuple ? Value::Tuple(result)
                                      : Value::List(result);
}

// Python's rules for the bounds of a slice over `size` items.
struct SliceRange {
  int64_t start, stop, step;
  size_t count() const {
    if (step > 0) {
      return stop <= start ? 0
                           : static_cast<size_t>((stop - start - 1) / step + 1);
    }
    if (start <= stop) return 0;
    const uint64_t stride = static_cast<uint64_t>(-(step + 1)) + 1;
    return static_cast<size_t>(
        static_cast<uint64_t>(start - stop - 1) / stride + 1);
  }
};

StatusOr<SliceRange> ResolveSlice(int64_t size, const Value& start,
                                  const Value& stop, const Value& step) {
  SliceRange range{0, size, 1};
  if (!step.is_none()) {
    ASSIGN_OR_RETURN(range.step, ToInteger(step, "a slice's step"));
    if (range.step == 0) return InvalidArgument("a slice's step is zero");
  }
  const int64_t low = range.step < 0 ? -1 : 0;
  const int64_t high = range.step < 0 ? size - 1 : size;
  const auto resolve = [&](const Value& bound,
                           int64_t absent) -> StatusOr<int64_t> {
    if (bound.is_none()) return absent;
    ASSIGN_OR_RETURN(int64_t index, ToInteger(bound, "a slice's bound"));
    if (index < 0) index = std::max(index, -size - 1) + size;
    return std::clamp(index, low, high);
  };
  ASSIGN_OR_RETURN(range.start, resolve(start, range.step < 0 ? high : low));
  ASSIGN_OR_RETURN(range.stop, resolve(stop, range.step < 0 ? low : high));
  return range;
}

StatusOr<Value> SliceItems(Heap& heap, std::span<const Value> items,
                           const SliceRange& range, bool tuple) {
  const size_t count = range.count();
  std::span<const Value> result;
  if (range.step == 1) {  // values are immutable, so the slice shares them
    result = items.subspan(count == 0 ? 0 : range.start, count);
  } else {
    ASSIGN_OR_RETURN(const std::span<Value> picked, heap.Array<Value>(count));
    RETURN_IF_ERROR(heap.ChargeItems(count));
    for (size_t i = 0; i < count; ++i) {
      picked[i] = items[range.start + static_cast<int64_t>(i) * range.step];
    }
    result = picked;
  }
  return tuple ? Value::Tuple(result) : Value::List(result);
}

StatusOr<Value> SliceText(Heap& heap, std::string_view text, const Value& start,
                          const Value& stop, const Value& step) {
  RETURN_IF_ERROR(heap.ChargeText(text.size()));
  const int64_t size = static_cast<int64_t>(CountCodePoints(text));
  ASSIGN_OR_RETURN(const SliceRange range,
                   ResolveSlice(size, start, stop, step));
  const size_t count = range.count();
  if (range.step == 1) {
    if (count == 0) return Value::String("");
    const std::string_view from =
        text.substr(OffsetOf(text, static_cast<size_t>(range.start)));
    return Value::String(from.substr(0, OffsetOf(from, count)));
  }
  ASSIGN_OR_RETURN(const auto characters, Iterate(heap, Value::String(text)));
  TextBuilder out(heap);
  for (size_t i = 0; i < count && out.ok(); ++i) {
    out.Append(
        characters[range.start + static_cast<int64_t>(i) * range.step].text());
  }
  return out.Finish();
}

// nullopt if out of range.
std::optional<size_t> ResolveIndex(int64_t index, size_t size) {
  if (index < 0) index += static_cast<int64_t>(size);
  if (index < 0 || index >= static_cast<int64_t>(size)) return std::nullopt;
  return static_cast<size_t>(index);
}

StatusOr<std::optional<Value>> Subscript(Heap& heap, const Value& object,
                                         const Value& key) {
  if (object.is_dict()) {
    ASSIGN_OR_RETURN(const Value* const value, Find(heap, object, key));
    if (value == nullptr) return std::nullopt;
    return *value;
  }
  if (!key.is_int()) return std::nullopt;
  if (object.is_sequence()) {
    const auto index = ResolveIndex(key.integer(), object.items().size());
    if (!index.has_value()) return std::nullopt;
    return object.items()[*index];
  }
  if (object.is_string()) {
    const std::string_view text = object.text();
    RETURN_IF_ERROR(heap.ChargeText(text.size()));
    const auto index = ResolveIndex(key.integer(), CountCodePoints(text));
    if (!index.has_value()) return std::nullopt;
    const std::string_view rest = text.substr(OffsetOf(text, *index));
    return Value::String(rest.substr(0, FirstCodePoint(rest).bytes));
  }
  return std::nullopt;
}

StatusOr<std::optional<Value>> Attribute(Runtime& runtime, const Value& object,
                                         std::string_view name) {
  if (object.kind() == Kind::kObject) {
    return object.object().Attribute(runtime, name);
  }
  const Builtin method = FindMethod(object, name);
  if (method == nullptr) return std::nullopt;
  ASSIGN_OR_RETURN(Function* const function,
                   runtime.heap.New<Function>(method, object));
  return Value::FromObject(function);
}

}  // namespace

StatusOr<Value> GetAttribute(Runtime& runtime, const Value& object,
                             std::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  ASSIGN_OR_RETURN(std::optional<Value> value,
                   Attribute(runtime, object, name));
  if (!value.has_value() && object.is_dict()) {
    ASSIGN_OR_RETURN(value,
                     Subscript(runtime.heap, object, Value::String(name)));
  }
  return value.value_or(Value::Undefined(name));
}

StatusOr<Value> GetItem(Runtime& runtime, const Value& object,
                        const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  ASSIGN_OR_RETURN(std::optional<Value> value,
                   Subscript(runtime.heap, object, key));
  if (value.has_value()) return *value;
  if (key.is_string()) {
    ASSIGN_OR_RETURN(value, Attribute(runtime, object, key.text()));
    return value.value_or(Value::Undefined(key.text()));
  }
  ASSIGN_OR_RETURN(const Value name, ToText(runtime.heap, key));
  return Value::Undefined(name.text());
}

StatusOr<Value> Slice(Runtime& runtime, const Value& object, const Value& start,
                      const Value& stop, const Value& step) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_string()) {
    return SliceText(runtime.heap, object.text(), start, stop, step);
  }
  if (!object.is_sequence()) {
    return InvalidArgument("'{}' cannot be sliced", TypeName(object));
  }
  const int64_t size = static_cast<int64_t>(object.items().size());
  ASSIGN_OR_RETURN(const SliceRange range,
                   ResolveSlice(size, start, stop, step));
  return SliceItems(runtime.heap, object.items(), range,
                    object.kind() == Kind::kTuple);
}

StatusOr<Value> Arithmetic(Runtime& runtime, std::string_view operation,
                           const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    return NumberArithmetic(operation, left, right);
  }
  const bool left_joins = left.is_string() || left.is_sequence();
  if (operation == "+" && left_joins && left.kind() == right.kind()) {
    return Join(runtime.heap, left, right);
  }
  if (operation == "*" && left_joins && right.is_int()) {
    return Repeat(runtime.heap, left, right.integer());
  }
  if (operation == "*" && left.is_int() &&
      (right.is_string() || right.is_sequence())) {
    return Repeat(runtime.heap, right, left.integer());
  }
  if (operation == "%" && left.is_string()) {
    return FormatPercent(runtime, left.text(), right);
  }
  return TypeError(operation, left, right);
}

StatusOr<Value> Negate(const Value& value) {
  if (value.is_float()) return Value::Float(-value.number());
  if (value.is_int()) return Checked(CheckedSub<int64_t>(0, value.integer()));
  if (value.is_undefined()) return UndefinedError(value);
  return InvalidArgument("'-' does not work on '{}'", TypeName(value));
}

StatusOr<bool> Contains(Runtime& runtime, const Value& container,
                        const Value& item) {
  if (container.is_undefined()) return false;
  if (container.is_string()) {
    ASSIGN_OR_RETURN(const std::string_view part,
                     ToStringView(item, "what is looked for in a string"));
    RETURN_IF_ERROR(runtime.heap.ChargeText(container.text().size()));
    return FindText(container.text(), part) != std::string_view::npos;
  }
  if (container.is_dict()) {
    ASSIGN_OR_RETURN(const Value* const found,
                     Find(runtime.heap, container, item));
    return found != nullptr;
  }
  if (!container.is_sequence()) {
    return InvalidArgument("'in' does not work on '{}'", TypeName(container));
  }
  RETURN_IF_ERROR(runtime.heap.ChargeItems(container.items().size()));
  for (const Value& each : container.items()) {
    ASSIGN_OR_RETURN(const bool equal, Equals(runtime.heap, each, item));
    if (equal) return true;
  }
  return false;
}

StatusOr<bool> Compare(Runtime& runtime, std::string_view operation,
                       const Value& left, const Value& right) {
  if (operation == "==") return Equals(runtime.heap, left, right);
  if (operation == "in") return Contains(runtime, right, left);
  if (operation == "!=") {
    ASSIGN_OR_RETURN(const bool equal, Equals(runtime.heap, left, right));
    return !equal;
  }
  if (operation == "not in") {
    ASSIGN_OR_RETURN(const bool found, Contains(runtime, right, left));
    return !found;
  }
  const auto is_nan = [](const Value& value) {
    return value.is_float() && std::isnan(value.number());
  };
  ASSIGN_OR_RETURN(const int order, Order(runtime.heap, left, right));
  if (is_nan(left) || is_nan(right)) return false;
  if (operation == "<") return order < 0;
  if (operation == "<=") return order <= 0;
  if (operation == ">") return order > 0;
  return order >= 0;
}

}  // namespace tidepool::model::jinja
