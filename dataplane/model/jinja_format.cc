// Python's two ways to fill a format string, as far as templates use them.
#include <algorithm>
#include <cmath>
#include <string>

#include "dataplane/base/checked_math.h"
#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

constexpr int64_t kWidthMax = 1'000'000;
constexpr int64_t kPrecisionMax = 300;

// [[fill]align][sign][#][0][width][,][.precision][type]
struct Spec {
  std::string_view fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or the type's own
  char sign = '-';
  bool zero = false;
  bool alternate = false;
  bool thousands = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

StatusOr<int64_t> ReadNumber(std::string_view& text, int64_t limit) {
  int64_t number = 0;
  while (!text.empty() && text.front() >= '0' && text.front() <= '9') {
    number = number * 10 + (text.front() - '0');
    if (number > limit) {
      return ResourceExhausted("format: a width or precision above {}", limit);
    }
    text.remove_prefix(1);
  }
  return number;
}

std::string GroupThousands(std::string digits) {
  const size_t end = std::min(digits.find('.'), digits.find('e'));
  const size_t whole = std::min(end, digits.size());
  for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

// `number` without its sign, in the manner of the type.
StatusOr<std::string> FloatDigits(double number, const Spec& spec) {
  const int precision =
      spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  if (!std::isfinite(number)) {
    return std::string(std::isnan(number) ? "nan" : "inf");
  }
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", number, precision);
    case 'e':
      return fmt::format("{:.{}e}", number, precision);
    case 'E':
      return fmt::format("{:.{}E}", number, precision);
    case '%':
      return fmt::format("{:.{}f}%", number * 100, precision);
    case 'g':
    case 'n':
      return fmt::format("{:.{}g}", number, precision);
    case 'G':
      return fmt::format("{:.{}G}", number, precision);
    case '\0':
      if (spec.precision < 0) return FormatFloat(number);
      return fmt::format("{:.{}g}", number, precision);
    default:
      return InvalidArgument("format: type '{}' for a number", spec.type);
  }
}

StatusOr<std::string> IntegerDigits(uint64_t magnitude, const Spec& spec) {
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      return fmt::to_string(magnitude);
    case 'x':
      return fmt::format("{}{:x}", spec.alternate ? "0x" : "", magnitude);
    case 'X':
      return fmt::format("{}{:X}", spec.alternate ? "0X" : "", magnitude);
    case 'o':
      return fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
    case 'b':
      return fmt::format("{}{:b}", spec.alternate ? "0b" : "", magnitude);
    default:
      return InvalidArgument("format: type '{}' for an integer", spec.type);
  }
}

StatusOr<Value> Place(Runtime& runtime, std::string_view sign,
                      std::string_view body, const Spec& spec, char own_align) {
  const auto size = static_cast<int64_t>(CountCodePoints(body) + sign.size());
  const int64_t missing = std::max<int64_t>(spec.width - size, 0);
  char align = spec.align != '\0' ? spec.align : own_align;
  std::string_view fill = spec.fill;
  if (spec.zero && spec.align == '\0' && own_align == '>') {
    align = '=';
    fill = "0";
  }
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  if (align == '=') {
    ASSIGN_OR_RETURN(const Value padded, PadText(runtime, body, left, 0, fill));
    return Arithmetic(runtime, "+", Value::String(sign), padded);
  }
  const std::string both = std::string(sign) + std::string(body);
  return PadText(runtime, both, left, missing - left, fill);
}

StatusOr<Value> FormatNumber(Runtime& runtime, const Value& value,
                             const Spec& spec) {
  static constexpr std::string_view kFloatTypes = "fFeEgG%";
  const bool as_float =
      value.is_float() || kFloatTypes.find(spec.type) != std::string_view::npos;
  bool negative = false;
  std::string digits;
  if (as_float) {
    negative = std::signbit(value.number());
    ASSIGN_OR_RETURN(digits, FloatDigits(std::abs(value.number()), spec));
  } else if (value.kind() == Kind::kUnsigned) {
    ASSIGN_OR_RETURN(digits, IntegerDigits(value.unsigned_integer(), spec));
  } else {
    negative = value.integer() < 0;
    const auto bits = static_cast<uint64_t>(value.integer());
    ASSIGN_OR_RETURN(digits, IntegerDigits(negative ? 0 - bits : bits, spec));
  }
  if (spec.thousands) digits = GroupThousands(digits);
  const std::string_view sign = negative           ? "-"
                                : spec.sign == '-' ? ""
                                : spec.sign == '+' ? "+"
                                                   : " ";
  return Place(runtime, sign, digits, spec, '>');
}

StatusOr<Value> FormatText(Runtime& runtime, std::string_view text,
                           const Spec& spec, char own_align) {
  if (spec.precision >= 0) {
    text = text.substr(0, OffsetOf(text, static_cast<size_t>(spec.precision)));
  }
  return Place(runtime, "", text, spec, own_align);
}

StatusOr<Value> ReprText(Runtime& runtime, const Value& value) {
  TextBuilder out(runtime.heap);
  RETURN_IF_ERROR(AppendRepr(value, out));
  return out.Finish();
}

// ---- %

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Value& values)
      : runtime_(runtime), values_(values), out_(runtime.heap) {}

  StatusOr<Value> Run(std::string_view format) {
    while (!format.empty() && out_.ok()) {
      const size_t percent = format.find('%');
      out_.Append(format.substr(0, percent));
      if (percent == std::string_view::npos) break;
      format.remove_prefix(percent + 1);
      RETURN_IF_ERROR(Field(format));
    }
    if (values_.kind() == Kind::kTuple && next_ < values_.items().size()) {
      return InvalidArgument("format: more values than fields");
    }
    if (!values_.is_dict() && values_.kind() != Kind::kTuple && next_ == 0) {
      return InvalidArgument("format: more values than fields");
    }
    return out_.Finish();
  }

 private:
  StatusOr<Value> NextValue() {
    if (values_.kind() != Kind::kTuple) {
      if (next_++ > 0) return InvalidArgument("format: too few values");
      return values_;
    }
    if (next_ >= values_.items().size()) {
      return InvalidArgument("format: too few values");
    }
    return values_.items()[next_++];
  }

  Status ReadFlags(std::string_view& format, Spec& spec) {
    for (; !format.empty(); format.remove_prefix(1)) {
      const char c = format.front();
      if (c == '-') {
        spec.align = '<';
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '0') {
        spec.zero = true;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    ASSIGN_OR_RETURN(spec.width, ReadNumber(format, kWidthMax));
    if (!format.starts_with('.')) return OkStatus();
    format.remove_prefix(1);
    ASSIGN_OR_RETURN(spec.precision, ReadNumber(format, kPrecisionMax));
    return OkStatus();
  }

  Status Field(std::string_view& format) {
    std::optional<Value> value;
    if (format.starts_with('(')) {
      const size_t end = format.find(')');
      if (end == std::string_view::npos || !values_.is_dict()) {
        return InvalidArgument("format: a named field needs a mapping");
      }
      const Value key = Value::String(format.substr(1, end - 1));
      ASSIGN_OR_RETURN(const Value* const found,
                       Find(runtime_.heap, values_, key));
      if (found == nullptr) {
        return InvalidArgument("format: no value for '{}'", key.text());
      }
      value = *found;
      format.remove_prefix(end + 1);
    }
    Spec spec;
    RETURN_IF_ERROR(ReadFlags(format, spec));
    if (format.empty()) return InvalidArgument("format: an incomplete field");
    spec.type = format.front();
    format.remove_prefix(1);
    if (spec.type == '%') {
      out_.Append("%");
      return OkStatus();
    }
    if (!value.has_value()) {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    ASSIGN_OR_RETURN(const Value text, Convert(*value, spec));
    out_.Append(text.text());
    return OkStatus();
  }

  StatusOr<Value> Convert(const Value& value, Spec spec) {
    if (spec.type == 's' || spec.type == 'r') {
      ASSIGN_OR_RETURN(const Value text, spec.type == 's'
                                             ? ToText(runtime_.heap, value)
                                             : ReprText(runtime_, value));
      return FormatText(runtime_, text.text(), spec, '>');
    }
    if (value.is_undefined()) return UndefinedError(value);
    if (!value.is_number()) {
      return InvalidArgument("format: '%{}' needs a number, not '{}'",
                             spec.type, TypeName(value));
    }
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (spec.type != 'd' || !value.is_float()) {
      return FormatNumber(runtime_, value, spec);
    }
    if (!(std::abs(value.number()) < 0x1p63)) {
      return InvalidArgument("format: a number beyond 64 bits");
    }
    const auto integer = static_cast<int64_t>(value.number());
    return FormatNumber(runtime_, Value::Int(integer), spec);
  }

  Runtime& runtime_;
  const Value& values_;
  TextBuilder out_;
  size_t next_ = 0;
};

// ---- {}

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const Arguments& arguments)
      : runtime_(runtime), arguments_(arguments), out_(runtime.heap) {}

  StatusOr<Value> Run(std::string_view format) {
    while (!format.empty() && out_.ok()) {
      const size_t brace = format.find_first_of("{}");
      out_.Append(format.substr(0, brace));
      if (brace == std::string_view::npos) break;
      const char c = format[brace];
      format.remove_prefix(brace + 1);
      if (format.starts_with(c)) {
        out_.Append(1, c);
        format.remove_prefix(1);
        continue;
      }
      const size_t end = format.find('}');
      if (c == '}' || end == std::string_view::npos) {
        return InvalidArgument("format: a single '{}'", c);
      }
      RETURN_IF_ERROR(Field(format.substr(0, end)));
      format.remove_prefix(end + 1);
    }
    return out_.Finish();
  }

 private:
  Status Field(std::string_view field) {
    const size_t colon = field.find(':');
    std::string_view name = field.substr(0, colon);
    char conversion = '\0';
    if (const size_t mark = name.find('!'); mark != std::string_view::npos) {
      if (mark + 2 != name.size()) {
        return InvalidArgument("format: '{}' is no conversion",
                               name.substr(mark));
      }
      conversion = name.back();
      name = name.substr(0, mark);
    }
    ASSIGN_OR_RETURN(Value value, Lookup(name));
    if (conversion == 'r') {
      ASSIGN_OR_RETURN(value, ReprText(runtime_, value));
    } else if (conversion == 's') {
      ASSIGN_OR_RETURN(value, ToText(runtime_.heap, value));
    }
    Spec spec;
    if (colon != std::string_view::npos) {
      RETURN_IF_ERROR(ReadSpec(field.substr(colon + 1), spec));
    }
    ASSIGN_OR_RETURN(const Value text, Convert(value, spec));
    out_.Append(text.text());
    return OkStatus();
  }

  // `0`, `name` or nothing, then `.attribute` and `[key]` steps.
  StatusOr<Value> Lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    ASSIGN_OR_RETURN(Value value, First(name.substr(0, end)));
    for (name.remove_prefix(end); !name.empty();) {
      const bool attribute = name.front() == '.';
      name.remove_prefix(1);
      const size_t stop = std::min(
          attribute ? name.find_first_of(".[") : name.find(']'), name.size());
      const std::string_view key = name.substr(0, stop);
      if (attribute) {
        ASSIGN_OR_RETURN(value, GetAttribute(runtime_, value, key));
      } else {
        const bool index =
            !key.empty() && key.find_first_not_of("0123456789") == key.npos;
        std::string_view digits = key;
        Value step = Value::String(key);
        if (index) {
          ASSIGN_OR_RETURN(const int64_t number, ReadNumber(digits, INT32_MAX));
          step = Value::Int(number);
        }
        ASSIGN_OR_RETURN(value, GetItem(runtime_, value, step));
      }
      name.remove_prefix(std::min(stop + (attribute ? 0 : 1), name.size()));
      if (value.is_undefined()) return UndefinedError(value);
    }
    return value;
  }

  StatusOr<Value> First(std::string_view name) {
    size_t index = next_;
    if (name.empty()) {
      ++next_;
    } else if (name.find_first_not_of("0123456789") == name.npos) {
      ASSIGN_OR_RETURN(const int64_t number, ReadNumber(name, INT32_MAX));
      index = static_cast<size_t>(number);
    } else {
      for (const NamedValue& named : arguments_.named) {
        if (named.name == name) return named.value;
      }
      return InvalidArgument("format: no value for '{}'", name);
    }
    if (index >= arguments_.positional.size()) {
      return InvalidArgument("format: no value for field {}", index);
    }
    return arguments_.positional[index];
  }

  static bool IsAlign(char c) {
    return c == '<' || c == '>' || c == '^' || c == '=';
  }

  Status ReadSpec(std::string_view text, Spec& spec) {
    const std::string_view whole = text;
    if (!text.empty()) {
      const size_t bytes = FirstCodePoint(text).bytes;
      if (text.size() > bytes && IsAlign(text[bytes])) {
        spec.fill = text.substr(0, bytes);
        spec.align = text[bytes];
        text.remove_prefix(bytes + 1);
      } else if (IsAlign(text.front())) {
        spec.align = text.front();
        text.remove_prefix(1);
      }
    }
    const auto skip = [&text](char c) {
      if (!text.starts_with(c)) return false;
      text.remove_prefix(1);
      return true;
    };
    for (const char sign : {'+', '-', ' '}) {
      if (skip(sign)) spec.sign = sign;
    }
    spec.alternate = skip('#');
    spec.zero = skip('0');
    ASSIGN_OR_RETURN(spec.width, ReadNumber(text, kWidthMax));
    spec.thousands = skip(',');
    if (skip('.')) {
      ASSIGN_OR_RETURN(spec.precision, ReadNumber(text, kPrecisionMax));
    }
    if (!text.empty()) {
      spec.type = text.front();
      text.remove_prefix(1);
    }
    if (text.empty()) return OkStatus();
    return InvalidArgument("format: '{}' is no format", whole);
  }

  StatusOr<Value> Convert(const Value& value, const Spec& spec) {
    const bool number = value.is_number() && value.kind() != Kind::kBool;
    if (number || (value.is_number() && spec.type != '\0')) {
      return FormatNumber(runtime_, value, spec);
    }
    if (spec.type != '\0' && spec.type != 's') {
      return InvalidArgument("format: type '{}' for '{}'", spec.type,
                             TypeName(value));
    }
    ASSIGN_OR_RETURN(const Value text, ToText(runtime_.heap, value));
    return FormatText(runtime_, text.text(), spec, '<');
  }

  Runtime& runtime_;
  const Arguments& arguments_;
  TextBuilder out_;
  size_t next_ = 0;
};

}  // namespace

StatusOr<Value> FormatPercent(Runtime& runtime, std::string_view format,
                              const Value& values) {
  return PercentFormatter(runtime, values).Run(format);
}

StatusOr<Value> FormatBraces(Runtime& runtime, std::string_view format,
                             const Arguments& arguments) {
  return BraceFormatter(runtime, arguments).Run(format);
}

}  // namespace tidepool::model::jinja
