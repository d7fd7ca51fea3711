#include "dataplane/model/jinja_json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

StatusOr<Value> BorrowString(const std::string& text) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) {
    return ResourceExhausted("a string of {} bytes", text.size());
  }
  return Value::String(text);
}

constexpr int64_t kIndentMax = 100;

// How json.dumps writes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;
  std::string_view indent;  // of one level
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style)
      : heap_(heap), style_(style), out_(heap) {}

  Status Write(const Value& value, int depth) {
    if (depth > kValueDepthMax) {
      return ResourceExhausted("tojson: a value nested deeper than {}",
                               kValueDepthMax);
    }
    RETURN_IF_ERROR(heap_.ChargeSteps(1));
    switch (value.kind()) {
      case Kind::kNone:
        out_.Append("null");
        return OkStatus();
      case Kind::kBool:
        out_.Append(value.boolean() ? "true" : "false");
        return OkStatus();
      case Kind::kInt:
      case Kind::kUnsigned:
        return AppendRepr(value, out_);
      case Kind::kFloat:
        WriteFloat(value.number());
        return OkStatus();
      case Kind::kString:
        WriteString(value.text());
        return OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return WriteItems(value, depth);
      case Kind::kDict:
        return WriteEntries(value, depth);
      case Kind::kUndefined:
        return UndefinedError(value);
      case Kind::kObject:
        break;
    }
    return InvalidArgument("tojson: a '{}' has no JSON form", TypeName(value));
  }

  StatusOr<Value> Finish() { return out_.Finish(); }

 private:
  void WriteFloat(double number) {
    if (std::isnan(number)) {
      out_.Append("NaN");
    } else if (std::isinf(number)) {
      out_.Append(number < 0 ? "-Infinity" : "Infinity");
    } else {
      out_.Append(FormatFloat(number));
    }
  }

  void WriteEscaped(int32_t code_point) {
    if (code_point < 0x10000) {
      out_.Append(fmt::format("\\u{:04x}", code_point));
      return;
    }
    const int32_t offset = code_point - 0x10000;
    out_.Append(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10),
                            0xDC00 + (offset & 0x3FF)));
  }

  // Runs of plain characters go out in one piece: contents can be long.
  void WriteString(std::string_view text) {
    static constexpr std::string_view kSpecial = "\"\\\b\f\n\r\t";
    static constexpr std::string_view kLetters = "\"\\bfnrt";
    out_.Append("\"");
    size_t written = 0;
    for (size_t i = 0; i < text.size() && out_.ok();) {
      const auto c = static_cast<unsigned char>(text[i]);
      const bool escapes = c < 0x20 || c == '"' || c == '\\' ||
                           (c >= 0x80 && style_.ensure_ascii);
      if (!escapes) {
        ++i;
        continue;
      }
      out_.Append(text.substr(written, i - written));
      const CodePoint point = FirstCodePoint(text.substr(i));
      const size_t special = kSpecial.find(text[i]);
      if (special != std::string_view::npos) {
        out_.Append("\\");
        out_.Append(kLetters.substr(special, 1));
      } else {
        WriteEscaped(point.value < 0 ? 0xFFFD : point.value);
      }
      i += point.bytes;
      written = i;
    }
    out_.Append(text.substr(written));
    out_.Append("\"");
  }

  void WriteBreak(int depth) {
    if (!style_.multiline) return;
    out_.Append("\n");
    for (int i = 0; i < depth; ++i) out_.Append(style_.indent);
  }

  Status WriteItems(const Value& value, int depth) {
    if (value.items().empty()) {
      out_.Append("[]");
      return OkStatus();
    }
    out_.Append("[");
    bool first = true;
    for (const Value& item : value.items()) {
      if (!std::exchange(first, false)) out_.Append(style_.item_separator);
      WriteBreak(depth + 1);
      RETURN_IF_ERROR(Write(item, depth + 1));
    }
    WriteBreak(depth);
    out_.Append("]");
    return OkStatus();
  }

  Status WriteKey(const Value& key) {
    if (key.is_string()) {
      WriteString(key.text());
      return OkStatus();
    }
    if (!key.is_number() && !key.is_none()) {
      return InvalidArgument("tojson: a '{}' cannot be a key", TypeName(key));
    }
    out_.Append("\"");
    RETURN_IF_ERROR(Write(key, 0));
    out_.Append("\"");
    return OkStatus();
  }

  StatusOr<std::vector<Entry>> Sorted(std::span<const Entry> entries) {
    std::vector<Entry> sorted(entries.begin(), entries.end());
    RETURN_IF_ERROR(heap_.ChargeSteps(static_cast<int64_t>(sorted.size())));
    Status status;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const Entry& a, const Entry& b) {
                       if (!status.ok()) return false;
                       const StatusOr<int> order = Order(heap_, a.key, b.key);
                       status = order.status();
                       return order.ok() && *order < 0;
                     });
    RETURN_IF_ERROR(status);
    return sorted;
  }

  Status WriteEntries(const Value& value, int depth) {
    if (value.entries().empty()) {
      out_.Append("{}");
      return OkStatus();
    }
    std::vector<Entry> sorted;
    if (style_.sort_keys) {
      ASSIGN_OR_RETURN(sorted, Sorted(value.entries()));
    }
    const std::span<const Entry> entries =
        style_.sort_keys ? std::span<const Entry>(sorted) : value.entries();
    out_.Append("{");
    bool first = true;
    for (const Entry& entry : entries) {
      if (!std::exchange(first, false)) out_.Append(style_.item_separator);
      WriteBreak(depth + 1);
      RETURN_IF_ERROR(WriteKey(entry.key));
      out_.Append(style_.key_separator);
      RETURN_IF_ERROR(Write(entry.value, depth + 1));
    }
    WriteBreak(depth);
    out_.Append("}");
    return OkStatus();
  }

  Heap& heap_;
  const JsonStyle& style_;
  TextBuilder out_;
};

Status ReadIndent(const Value& indent, JsonStyle& style) {
  style.multiline = true;
  style.item_separator = ",";
  if (indent.is_string()) {
    style.indent = indent.text();
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const int64_t width, ToInteger(indent, "tojson's indent"));
  static const std::string blanks(kIndentMax, ' ');
  if (width > kIndentMax) {
    return InvalidArgument("tojson: an indent of {}", width);
  }
  style.indent = std::string_view(blanks).substr(
      0, static_cast<size_t>(std::max<int64_t>(width, 0)));
  return OkStatus();
}

Status ReadSeparators(const Value& separators, JsonStyle& style) {
  if (!separators.is_sequence() || separators.items().size() != 2) {
    return InvalidArgument("tojson: separators must be two strings");
  }
  ASSIGN_OR_RETURN(style.item_separator,
                   ToStringView(separators.items()[0], "tojson's separator"));
  ASSIGN_OR_RETURN(style.key_separator,
                   ToStringView(separators.items()[1], "tojson's separator"));
  return OkStatus();
}

}  // namespace

StatusOr<Value> FromJson(Heap& heap, const nlohmann::ordered_json& json,
                         int depth) {
  using Type = nlohmann::ordered_json::value_t;
  if (depth > kValueDepthMax) {
    return ResourceExhausted("nested deeper than {}", kValueDepthMax);
  }
  switch (json.type()) {
    case Type::null:
      return Value::None();
    case Type::boolean:
      return Value::Bool(json.get<bool>());
    case Type::number_integer:
      return Value::Int(json.get<int64_t>());
    case Type::number_unsigned:
      return Value::Unsigned(json.get<uint64_t>());
    case Type::number_float:
      return Value::Float(json.get<double>());
    case Type::string:
      return BorrowString(json.get_ref<const std::string&>());
    case Type::array: {
      ASSIGN_OR_RETURN(const auto items, heap.Array<Value>(json.size()));
      RETURN_IF_ERROR(heap.ChargeItems(items.size()));
      size_t i = 0;
      for (const nlohmann::ordered_json& item : json) {
        ASSIGN_OR_RETURN(items[i++], FromJson(heap, item, depth + 1));
      }
      return Value::List(items);
    }
    case Type::object: {
      ASSIGN_OR_RETURN(const auto entries, heap.Array<Entry>(json.size()));
      RETURN_IF_ERROR(heap.ChargeItems(entries.size()));
      size_t i = 0;
      for (auto item = json.begin(); item != json.end(); ++item) {
        ASSIGN_OR_RETURN(entries[i].key, BorrowString(item.key()));
        ASSIGN_OR_RETURN(entries[i].value,
                         FromJson(heap, item.value(), depth + 1));
        ++i;
      }
      return Value::Dict(entries);
    }
    case Type::binary:
    case Type::discarded:
      break;
  }
  return InvalidArgument("a value that JSON does not have");
}

StatusOr<Value> FilterToJson(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  ASSIGN_OR_RETURN(
      const auto bound,
      (Bind("tojson", arguments,
            {"ensure_ascii", "indent", "separators", "sort_keys"})));
  JsonStyle style;
  style.ensure_ascii = bound[0].has_value() && IsTrue(*bound[0]);
  style.sort_keys = bound[3].has_value() && IsTrue(*bound[3]);
  if (bound[1].has_value() && !bound[1]->is_none()) {
    RETURN_IF_ERROR(ReadIndent(*bound[1], style));
  }
  if (bound[2].has_value() && !bound[2]->is_none()) {
    RETURN_IF_ERROR(ReadSeparators(*bound[2], style));
  }
  JsonWriter writer(runtime.heap, style);
  RETURN_IF_ERROR(writer.Write(self, 0));
  return writer.Finish();
}

}  // namespace tidepool::model::jinja
