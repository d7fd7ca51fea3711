#include "dataplane/model/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "dataplane/base/checked_math.h"
#include "dataplane/model/jinja_object.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

constexpr size_t kChunkBytes = 64 << 10;
constexpr size_t kAlignment = alignof(std::max_align_t);

Status TooDeep() {
  return ResourceExhausted("a value nested deeper than {}", kValueDepthMax);
}

template <typename T>
int Sign(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

// Exact between integers; a mix with floats compares as floats.
int OrderNumbers(const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return Sign(a.integer(), b.integer());
  if (a.kind() == Kind::kUnsigned && b.kind() == Kind::kUnsigned) {
    return Sign(a.unsigned_integer(), b.unsigned_integer());
  }
  if (a.kind() == Kind::kUnsigned && b.is_int()) return 1;
  if (a.is_int() && b.kind() == Kind::kUnsigned) return -1;
  return Sign(a.number(), b.number());
}

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.is_float() && std::isnan(a.number())) return false;
  if (b.is_float() && std::isnan(b.number())) return false;
  return OrderNumbers(a, b) == 0;
}

StatusOr<bool> EqualItems(Heap& heap, const Value& a, const Value& b,
                          int depth) {
  if (a.items().size() != b.items().size()) return false;
  for (size_t i = 0; i < a.items().size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(heap, a.items()[i], b.items()[i], depth + 1));
    if (!equal) return false;
  }
  return true;
}

StatusOr<bool> EqualEntries(Heap& heap, const Value& a, const Value& b,
                            int depth) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const Entry& entry : a.entries()) {
    ASSIGN_OR_RETURN(const Value* const other, Find(heap, b, entry.key));
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(heap, entry.value, *other, depth + 1));
    if (!equal) return false;
  }
  return true;
}

// Python's quoting: single quotes unless only they occur inside.
void AppendQuoted(std::string_view text, TextBuilder& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.Append(1, quote);
  while (!text.empty() && out.ok()) {
    const CodePoint point = FirstCodePoint(text);
    const char c = text.front();
    if (c == quote || c == '\\') {
      out.Append(1, '\\');
      out.Append(1, c);
    } else if (c == '\n') {
      out.Append("\\n");
    } else if (c == '\r') {
      out.Append("\\r");
    } else if (c == '\t') {
      out.Append("\\t");
    } else if (point.value < 0) {
      out.Append(fmt::format("\\x{:02x}", static_cast<unsigned char>(c)));
    } else if (IsPrintable(point.value)) {
      out.Append(text.substr(0, point.bytes));
    } else if (point.value < 0x100) {
      out.Append(fmt::format("\\x{:02x}", point.value));
    } else if (point.value < 0x10000) {
      out.Append(fmt::format("\\u{:04x}", point.value));
    } else {
      out.Append(fmt::format("\\U{:08x}", point.value));
    }
    text.remove_prefix(point.bytes);
  }
  out.Append(1, quote);
}

Status AppendItems(const Value& value, TextBuilder& out, int depth) {
  const bool tuple = value.kind() == Kind::kTuple;
  out.Append(tuple ? "(" : "[");
  bool first = true;
  for (const Value& item : value.items()) {
    if (!std::exchange(first, false)) out.Append(", ");
    RETURN_IF_ERROR(AppendRepr(item, out, depth + 1));
  }
  if (tuple && value.items().size() == 1) out.Append(",");
  out.Append(tuple ? ")" : "]");
  return OkStatus();
}

Status AppendEntries(const Value& value, TextBuilder& out, int depth) {
  out.Append("{");
  bool first = true;
  for (const Entry& entry : value.entries()) {
    if (!std::exchange(first, false)) out.Append(", ");
    RETURN_IF_ERROR(AppendRepr(entry.key, out, depth + 1));
    out.Append(": ");
    RETURN_IF_ERROR(AppendRepr(entry.value, out, depth + 1));
  }
  out.Append("}");
  return OkStatus();
}

StatusOr<std::span<const Value>> Characters(Heap& heap, std::string_view text) {
  ASSIGN_OR_RETURN(const std::span<Value> result,
                   heap.Array<Value>(CountCodePoints(text)));
  for (Value& character : result) {
    const size_t bytes = FirstCodePoint(text).bytes;
    character = Value::String(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

double Value::number() const {
  switch (kind_) {
    case Kind::kFloat:
      return float_;
    case Kind::kUnsigned:
      return static_cast<double>(unsigned_);
    default:
      return static_cast<double>(integer_);
  }
}

Heap::Heap(int64_t bytes_max, int64_t steps_max)
    : bytes_max_(std::clamp<int64_t>(bytes_max, 0,
                                     std::numeric_limits<uint32_t>::max())),
      steps_max_(steps_max) {}

Status Heap::ChargeBytes(size_t bytes) {
  if (bytes > static_cast<size_t>(bytes_left())) {
    return ResourceExhausted("more than {} bytes of values (memory_bytes_max)",
                             bytes_max_);
  }
  bytes_used_ += static_cast<int64_t>(bytes);
  return OkStatus();
}

Status Heap::ChargeSteps(int64_t steps) {
  if (steps > steps_max_ - steps_used_) {
    return ResourceExhausted("more than {} steps (steps_max)", steps_max_);
  }
  steps_used_ += steps;
  return OkStatus();
}

StatusOr<void*> Heap::Allocate(size_t count, size_t size) {
  const auto wanted = CheckedMul(count, size);
  if (!wanted.has_value() || *wanted > static_cast<size_t>(bytes_left())) {
    return ChargeBytes(std::numeric_limits<size_t>::max());
  }
  const size_t bytes = CeilDiv(*wanted, kAlignment) * kAlignment;
  RETURN_IF_ERROR(ChargeBytes(bytes));
  if (bytes > free_bytes_) {
    if (bytes > kChunkBytes / 4) {  // of its own: the current chunk stays
      chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
      return chunks_.back().get();
    }
    chunks_.push_back(std::make_unique_for_overwrite<std::byte[]>(kChunkBytes));
    free_ = chunks_.back().get();
    free_bytes_ = kChunkBytes;
  }
  free_bytes_ -= bytes;
  return std::exchange(free_, free_ + bytes);
}

StatusOr<Value> Heap::NewString(std::string_view text) {
  ASSIGN_OR_RETURN(const std::span<char> copy, Array<char>(text.size()));
  RETURN_IF_ERROR(ChargeText(text.size()));
  std::copy(text.begin(), text.end(), copy.begin());
  return Value::String({copy.data(), copy.size()});
}

StatusOr<Value> Heap::NewList(std::span<const Value> items) {
  ASSIGN_OR_RETURN(const std::span<Value> copy, Array<Value>(items.size()));
  RETURN_IF_ERROR(ChargeItems(items.size()));
  std::copy(items.begin(), items.end(), copy.begin());
  return Value::List(copy);
}

StatusOr<Value> Heap::NewTuple(std::span<const Value> items) {
  ASSIGN_OR_RETURN(const Value list, NewList(items));
  return Value::Tuple(list.items());
}

StatusOr<Value> Heap::NewDict(std::span<const Entry> entries) {
  ASSIGN_OR_RETURN(const std::span<Entry> copy, Array<Entry>(entries.size()));
  RETURN_IF_ERROR(ChargeItems(entries.size()));
  std::copy(entries.begin(), entries.end(), copy.begin());
  return Value::Dict(copy);
}

void TextBuilder::Append(size_t count, char character) {
  if (!status_.ok()) return;
  status_ = heap_.ChargeBytes(count);
  if (status_.ok()) text_.append(count, character);
}

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.integer() != 0;
    case Kind::kFloat:
      return value.number() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.entries().empty();
    case Kind::kUnsigned:
    case Kind::kObject:
      return true;
  }
  return false;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kUnsigned:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return value.object().type_name();
  }
  return "object";
}

Status UndefinedError(const Value& value) {
  return InvalidArgument("'{}' is undefined", value.missing_name());
}

StatusOr<bool> Equals(Heap& heap, const Value& a, const Value& b, int depth) {
  if (depth > kValueDepthMax) return TooDeep();
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kString:
      if (a.text().size() != b.text().size()) return false;
      RETURN_IF_ERROR(heap.ChargeText(a.text().size()));
      return a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple:
      RETURN_IF_ERROR(heap.ChargeSteps(1));
      return EqualItems(heap, a, b, depth);
    case Kind::kDict:
      return EqualEntries(heap, a, b, depth);
    case Kind::kObject:
      return &a.object() == &b.object();
    default:
      return true;  // None, or both undefined
  }
}

StatusOr<int> Order(Heap& heap, const Value& a, const Value& b, int depth) {
  if (depth > kValueDepthMax) return TooDeep();
  if (a.is_number() && b.is_number()) return OrderNumbers(a, b);
  if (a.is_string() && b.is_string()) {
    RETURN_IF_ERROR(
        heap.ChargeText(std::min(a.text().size(), b.text().size())));
    return a.text().compare(b.text());  // UTF-8 sorts as its code points
  }
  if (a.is_undefined()) return UndefinedError(a);
  if (b.is_undefined()) return UndefinedError(b);
  if (!a.is_sequence() || a.kind() != b.kind()) {
    return InvalidArgument("'{}' and '{}' have no order", TypeName(a),
                           TypeName(b));
  }
  const size_t common = std::min(a.items().size(), b.items().size());
  for (size_t i = 0; i < common; ++i) {
    ASSIGN_OR_RETURN(const bool equal,
                     Equals(heap, a.items()[i], b.items()[i], depth + 1));
    if (!equal) return Order(heap, a.items()[i], b.items()[i], depth + 1);
  }
  return Sign(a.items().size(), b.items().size());
}

StatusOr<const Value*> Find(Heap& heap, const Value& dict, const Value& key) {
  const std::span<const Entry> entries = dict.entries();
  RETURN_IF_ERROR(heap.ChargeItems(entries.size()));
  for (const Entry& entry : entries) {
    if (entry.key.kind() != key.kind() && !key.is_number()) continue;
    ASSIGN_OR_RETURN(const bool equal, Equals(heap, entry.key, key));
    if (equal) return &entry.value;
  }
  return nullptr;
}

StatusOr<Value> MakeDict(Heap& heap, std::span<const Entry> entries) {
  ASSIGN_OR_RETURN(const std::span<Entry> unique,
                   heap.Array<Entry>(entries.size()));
  size_t count = 0;
  for (const Entry& entry : entries) {
    if (entry.key.kind() == Kind::kList || entry.key.is_dict()) {
      return InvalidArgument("a '{}' cannot be a key", TypeName(entry.key));
    }
    RETURN_IF_ERROR(heap.ChargeItems(count));
    Entry* slot = nullptr;
    for (size_t i = 0; i < count && slot == nullptr; ++i) {
      ASSIGN_OR_RETURN(const bool equal,
                       Equals(heap, unique[i].key, entry.key));
      if (equal) slot = &unique[i];
    }
    if (slot == nullptr) {
      unique[count++] = entry;
    } else {
      slot->value = entry.value;
    }
  }
  return Value::Dict(unique.subspan(0, count));
}

StatusOr<std::span<const Value>> Iterate(Heap& heap, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return std::span<const Value>();
    case Kind::kList:
    case Kind::kTuple:
      RETURN_IF_ERROR(heap.ChargeItems(value.items().size()));
      return value.items();
    case Kind::kString:
      RETURN_IF_ERROR(heap.ChargeText(value.text().size()));
      return Characters(heap, value.text());
    case Kind::kDict: {
      ASSIGN_OR_RETURN(const std::span<Value> keys,
                       heap.Array<Value>(value.entries().size()));
      RETURN_IF_ERROR(heap.ChargeItems(keys.size()));
      std::ranges::transform(value.entries(), keys.begin(), &Entry::key);
      return keys;
    }
    default:
      return InvalidArgument("'{}' is not iterable", TypeName(value));
  }
}

std::string FormatFloat(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[64];
  const double magnitude = std::abs(number);
  const bool plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const std::to_chars_result result = std::to_chars(
      buffer, buffer + sizeof(buffer), number,
      plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer, result.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

StatusOr<Value> ToText(Heap& heap, const Value& value) {
  if (value.is_string()) return value;
  if (value.is_undefined()) return Value::String("");
  TextBuilder out(heap);
  RETURN_IF_ERROR(AppendRepr(value, out));
  return out.Finish();
}

Status AppendRepr(const Value& value, TextBuilder& out, int depth) {
  if (depth > kValueDepthMax) return TooDeep();
  if (!out.ok()) return OkStatus();
  switch (value.kind()) {
    case Kind::kUndefined:
      out.Append("Undefined");
      break;
    case Kind::kNone:
      out.Append("None");
      break;
    case Kind::kBool:
      out.Append(value.boolean() ? "True" : "False");
      break;
    case Kind::kInt:
      out.Append(fmt::to_string(value.integer()));
      break;
    case Kind::kUnsigned:
      out.Append(fmt::to_string(value.unsigned_integer()));
      break;
    case Kind::kFloat:
      out.Append(FormatFloat(value.number()));
      break;
    case Kind::kString:
      AppendQuoted(value.text(), out);
      break;
    case Kind::kList:
    case Kind::kTuple:
      return AppendItems(value, out, depth);
    case Kind::kDict:
      return AppendEntries(value, out, depth);
    case Kind::kObject:
      return value.object().AppendRepr(out, depth);
  }
  return OkStatus();
}

}  // namespace tidepool::model::jinja
