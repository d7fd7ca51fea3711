#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

// Filters take anything and work on its text.
StatusOr<std::string_view> TextOf(Runtime& runtime, const Value& value) {
  ASSIGN_OR_RETURN(const Value text, ToText(runtime.heap, value));
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.text().size()));
  return text.text();
}

template <std::string (*Convert)(std::string_view)>
StatusOr<Value> ConvertCase(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("a filter", arguments));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  return runtime.heap.NewString(Convert(text));
}

bool StartsWord(int32_t c) {
  return (c >= 0 && IsSpace(c)) || c == '-' || c == '(' || c == '{' ||
         c == '[' || c == '<';
}

// Unlike str.title, only blanks, dashes and opening brackets start words.
StatusOr<Value> FilterTitle(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("title", arguments));
  ASSIGN_OR_RETURN(std::string_view text, TextOf(runtime, self));
  std::string result;
  bool starts = true;
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    const std::string_view character = text.substr(0, point.bytes);
    result += starts ? ToUpper(character) : ToLower(character);
    starts = StartsWord(point.value);
    text.remove_prefix(point.bytes);
  }
  return runtime.heap.NewString(result);
}

StatusOr<Value> FilterTrim(Runtime& runtime, const Value& self,
                           const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("trim", arguments, {"chars"})));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  if (!bound[0].has_value() || bound[0]->is_none()) {
    return Value::String(StripSpace(text, Side::kBoth));
  }
  ASSIGN_OR_RETURN(const std::string_view set,
                   ToStringView(*bound[0], "trim's characters"));
  RETURN_IF_ERROR(runtime.heap.ChargeLookups(text.size(), set.size()));
  return Value::String(StripSet(text, set, Side::kBoth));
}

StatusOr<Value> FilterString(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("string", arguments));
  return ToText(runtime.heap, self);
}

StatusOr<Value> FilterReplace(Runtime& runtime, const Value& self,
                              const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("replace", arguments, {"old", "new", "count"}, 2)));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  ASSIGN_OR_RETURN(const std::string_view old_text, TextOf(runtime, *bound[0]));
  ASSIGN_OR_RETURN(const std::string_view new_text, TextOf(runtime, *bound[1]));
  int64_t count = -1;
  if (bound[2].has_value() && !bound[2]->is_none()) {
    ASSIGN_OR_RETURN(count, ToInteger(*bound[2], "replace's count"));
  }
  return ReplaceText(runtime, text, old_text, new_text,
                     count < 0 ? std::numeric_limits<int64_t>::max() : count);
}

StatusOr<Value> FilterEscape(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("escape", arguments));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  TextBuilder out(runtime.heap);
  for (const char c : text) {
    switch (c) {
      case '&':
        out.Append("&amp;");
        break;
      case '<':
        out.Append("&lt;");
        break;
      case '>':
        out.Append("&gt;");
        break;
      case '\'':
        out.Append("&#39;");
        break;
      case '"':
        out.Append("&#34;");
        break;
      default:
        out.Append(1, c);
    }
  }
  return out.Finish();
}

StatusOr<Value> FilterIndent(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("indent", arguments, {"width", "first", "blank"})));
  ASSIGN_OR_RETURN(const std::string_view text,
                   ToStringView(self, "what is indented"));
  const Value width = bound[0].value_or(Value::Int(4));
  const bool first = bound[1].has_value() && IsTrue(*bound[1]);
  const bool blank = bound[2].has_value() && IsTrue(*bound[2]);
  std::string_view indent;
  if (width.is_string()) {
    indent = width.text();
  } else {
    ASSIGN_OR_RETURN(const int64_t count, ToInteger(width, "indent's width"));
    ASSIGN_OR_RETURN(const Value blanks,
                     PadText(runtime, "", std::max<int64_t>(count, 0), 0, " "));
    indent = blanks.text();
  }
  // One newline at the end is a last, empty line here.
  ASSIGN_OR_RETURN(
      const Value with_end,
      Arithmetic(runtime, "+", Value::String(text), Value::String("\n")));
  ASSIGN_OR_RETURN(const Value lines,
                   SplitLines(runtime, with_end.text(), false));
  TextBuilder out(runtime.heap);
  if (first) out.Append(indent);
  for (size_t i = 0; i < lines.items().size() && out.ok(); ++i) {
    const std::string_view line = lines.items()[i].text();
    if (i > 0) {
      out.Append("\n");
      if (blank || !line.empty()) out.Append(indent);
    }
    out.Append(line);
  }
  return out.Finish();
}

StatusOr<Value> FilterWordCount(Runtime& runtime, const Value& self,
                                const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("wordcount", arguments));
  ASSIGN_OR_RETURN(std::string_view text, TextOf(runtime, self));
  int64_t count = 0;
  bool inside = false;
  while (!text.empty()) {
    const CodePoint point = FirstCodePoint(text);
    const bool word =
        IsLetter(point.value) || IsDigit(point.value) || point.value == '_';
    count += word && !inside ? 1 : 0;
    inside = word;
    text.remove_prefix(point.bytes);
  }
  return Value::Int(count);
}

StatusOr<Value> FilterCenter(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("center", arguments, {"width"})));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  const Value width[] = {bound[0].value_or(Value::Int(80))};
  return FindStringMethod("center")(runtime, Value::String(text), {width, {}});
}

StatusOr<Value> FilterFormat(Runtime& runtime, const Value& self,
                             const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  if (arguments.named.empty()) {
    return FormatPercent(runtime, text, Value::Tuple(arguments.positional));
  }
  if (!arguments.positional.empty()) {
    return InvalidArgument("format takes positional or named arguments");
  }
  std::vector<Entry> entries;
  for (const NamedValue& named : arguments.named) {
    entries.push_back({Value::String(named.name), named.value});
  }
  return FormatPercent(runtime, text, Value::Dict(entries));
}

StatusOr<Value> FilterTruncate(Runtime& runtime, const Value& self,
                               const Arguments& arguments) {
  ASSIGN_OR_RETURN(
      const auto bound,
      (Bind("truncate", arguments, {"length", "killwords", "end", "leeway"})));
  ASSIGN_OR_RETURN(const std::string_view text, TextOf(runtime, self));
  ASSIGN_OR_RETURN(
      const int64_t length,
      ToInteger(bound[0].value_or(Value::Int(255)), "truncate's length"));
  ASSIGN_OR_RETURN(
      const std::string_view end,
      ToStringView(bound[2].value_or(Value::String("...")), "truncate's end"));
  ASSIGN_OR_RETURN(
      const int64_t leeway,
      ToInteger(bound[3].value_or(Value::Int(5)), "truncate's leeway"));
  const auto end_size = static_cast<int64_t>(CountCodePoints(end));
  if (leeway < 0 || length < end_size) {
    return InvalidArgument("truncate: a length below that of its end");
  }
  const auto size = static_cast<int64_t>(CountCodePoints(text));
  if (size - leeway <= length) return Value::String(text);
  std::string_view kept =
      text.substr(0, OffsetOf(text, static_cast<size_t>(length - end_size)));
  const bool killwords = bound[1].has_value() && IsTrue(*bound[1]);
  if (const size_t blank = kept.rfind(' ');
      !killwords && blank != std::string_view::npos) {
    kept = kept.substr(0, blank);
  }
  return Arithmetic(runtime, "+", Value::String(kept), Value::String(end));
}

constexpr std::pair<std::string_view, Builtin> kFilters[] = {
    {"capitalize", ConvertCase<Capitalize>},
    {"center", FilterCenter},
    {"e", FilterEscape},
    {"escape", FilterEscape},
    {"forceescape", FilterEscape},
    {"format", FilterFormat},
    {"indent", FilterIndent},
    {"lower", ConvertCase<ToLower>},
    {"replace", FilterReplace},
    {"safe", FilterString},
    {"string", FilterString},
    {"title", FilterTitle},
    {"tojson", FilterToJson},
    {"trim", FilterTrim},
    {"truncate", FilterTruncate},
    {"upper", ConvertCase<ToUpper>},
    {"wordcount", FilterWordCount},
};

}  // namespace

Builtin FindTextFilter(std::string_view name) {
  for (const auto& [each, filter] : kFilters) {
    if (each == name) return filter;
  }
  return nullptr;
}

StatusOr<Value> ReplaceText(Runtime& runtime, std::string_view text,
                            std::string_view old_text,
                            std::string_view new_text, int64_t count_max) {
  RETURN_IF_ERROR(runtime.heap.ChargeText(text.size()));
  TextBuilder out(runtime.heap);
  size_t from = 0;
  for (int64_t count = 0; count < count_max && out.ok(); ++count) {
    const size_t at = FindText(text, old_text,
                               from + (old_text.empty() && count > 0 ? 1 : 0));
    if (at == std::string_view::npos || from > text.size()) break;
    size_t next = at;
    while (old_text.empty() && next < text.size() &&
           (text[next] & 0xC0) == 0x80) {
      ++next;  // between characters, not bytes
    }
    out.Append(text.substr(from, next - from));
    out.Append(new_text);
    from = next + old_text.size();
  }
  out.Append(text.substr(std::min(from, text.size())));
  return out.Finish();
}

StatusOr<Value> PadText(Runtime& runtime, std::string_view text, int64_t left,
                        int64_t right, std::string_view fill) {
  if (CountCodePoints(fill) != 1) {
    return InvalidArgument("a fill of more or less than one character");
  }
  const auto fills = [&](int64_t count) {
    return Arithmetic(runtime, "*", Value::String(fill), Value::Int(count));
  };
  ASSIGN_OR_RETURN(const Value before, fills(left));
  ASSIGN_OR_RETURN(const Value after, fills(right));
  ASSIGN_OR_RETURN(const Value padded,
                   Arithmetic(runtime, "+", before, Value::String(text)));
  return Arithmetic(runtime, "+", padded, after);
}

StatusOr<Value> SplitLines(Runtime& runtime, std::string_view text,
                           bool keep_ends) {
  RETURN_IF_ERROR(runtime.heap.ChargeItems(text.size()));
  const auto breaks = [](int32_t c) {
    return (c >= 10 && c <= 13) || (c >= 28 && c <= 30) || c == 0x85 ||
           c == 0x2028 || c == 0x2029;
  };
  std::vector<Value> lines;
  while (!text.empty()) {
    size_t end = 0, break_bytes = 0;
    while (end < text.size()) {
      const CodePoint point = FirstCodePoint(text.substr(end));
      if (breaks(point.value)) {
        const bool pair = text.substr(end).starts_with("\r\n");
        break_bytes = pair ? 2 : point.bytes;
        break;
      }
      end += point.bytes;
    }
    lines.push_back(
        Value::String(text.substr(0, end + (keep_ends ? break_bytes : 0))));
    text.remove_prefix(end + break_bytes);
  }
  return runtime.heap.NewList(lines);
}

}  // namespace tidepool::model::jinja
