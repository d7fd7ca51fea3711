#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>

#include "dataplane/model/jinja_builtins.h"
#include "dataplane/model/jinja_text.h"

namespace tidepool::model::jinja {
namespace {

// Digits with single underscores between them and a sign in front, as Python's
// int() and float() take them; nullopt if underscores are misplaced.
std::optional<std::string> CleanNumber(std::string_view text) {
  text = StripSpace(text, Side::kBoth);
  if (text.starts_with('+')) text.remove_prefix(1);
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      clean += text[i];
      continue;
    }
    const auto alphanumeric = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0;
    };
    if (i == 0 || i + 1 == text.size() || !alphanumeric(text[i - 1]) ||
        !alphanumeric(text[i + 1])) {
      return std::nullopt;
    }
  }
  return clean;
}

std::optional<double> ParseFloat(std::string_view text) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean.has_value()) return std::nullopt;
  double number = 0;
  const char* const end = clean->data() + clean->size();
  const auto [stop, error] = std::from_chars(clean->data(), end, number);
  if (stop != end || clean->empty() || error == std::errc::invalid_argument) {
    return std::nullopt;
  }
  if (error == std::errc::result_out_of_range) {
    return std::strtod(clean->c_str(), nullptr);
  }
  return number;
}

std::optional<int64_t> ParseInteger(std::string_view text, int base) {
  std::optional<std::string> clean = CleanNumber(text);
  if (!clean.has_value()) return std::nullopt;
  const bool negative = clean->starts_with('-');
  const size_t digits = negative ? 1 : 0;
  const auto has_prefix = [&](char letter) {
    return clean->size() > digits + 2 && (*clean)[digits] == '0' &&
           ((*clean)[digits + 1] | 0x20) == letter;
  };
  if ((base == 16 && has_prefix('x')) || (base == 8 && has_prefix('o')) ||
      (base == 2 && has_prefix('b'))) {
    clean->erase(digits, 2);
  }
  int64_t integer = 0;
  const char* const end = clean->data() + clean->size();
  const auto [stop, error] = std::from_chars(clean->data(), end, integer, base);
  if (error != std::errc() || stop != end) return std::nullopt;
  return integer;
}

std::optional<int64_t> Truncate(double number) {
  if (!(std::abs(number) < 0x1p63)) return std::nullopt;
  return static_cast<int64_t>(number);
}

StatusOr<Value> FilterInt(Runtime& runtime, const Value& self,
                          const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("int", arguments, {"default", "base"})));
  const Value fallback = bound[0].value_or(Value::Int(0));
  if (self.is_undefined()) return UndefinedError(self);
  if (self.kind() == Kind::kUnsigned) return self;
  if (self.is_int()) return Value::Int(self.integer());
  std::optional<int64_t> integer;
  if (self.is_float()) {
    integer = Truncate(self.number());
  } else if (self.is_string()) {
    RETURN_IF_ERROR(runtime.heap.ChargeText(self.text().size()));
    int64_t base = 10;
    if (bound[1].has_value()) {
      ASSIGN_OR_RETURN(base, ToInteger(*bound[1], "int's base"));
      if (base < 2 || base > 36) return InvalidArgument("int: base {}", base);
    }
    integer = ParseInteger(self.text(), static_cast<int>(base));
    if (!integer.has_value()) {
      const std::optional<double> number = ParseFloat(self.text());
      if (number.has_value()) integer = Truncate(*number);
    }
  }
  return integer.has_value() ? Value::Int(*integer) : fallback;
}

StatusOr<Value> FilterFloat(Runtime& runtime, const Value& self,
                            const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, (Bind("float", arguments, {"default"})));
  if (self.is_undefined()) return UndefinedError(self);
  if (self.is_number()) return Value::Float(self.number());
  if (self.is_string()) {
    RETURN_IF_ERROR(runtime.heap.ChargeText(self.text().size()));
    const std::optional<double> number = ParseFloat(self.text());
    if (number.has_value()) return Value::Float(*number);
  }
  return bound[0].value_or(Value::Float(0));
}

StatusOr<Value> FilterAbs(Runtime&, const Value& self,
                          const Arguments& arguments) {
  RETURN_IF_ERROR(ExpectNoArguments("abs", arguments));
  if (self.is_float()) return Value::Float(std::abs(self.number()));
  if (self.kind() == Kind::kUnsigned) return self;
  ASSIGN_OR_RETURN(const int64_t integer, ToInteger(self, "what abs takes"));
  return integer < 0 ? Negate(Value::Int(integer)) : Value::Int(integer);
}

// Exact decimal rounding, ties to even, as Python's round(): through the
// decimal digits, since scaling by a power of ten would round twice.
double RoundDecimal(double number, int64_t digits) {
  if (!std::isfinite(number) || digits > 300) return number;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(number / scale) * scale;
  }
  return std::strtod(fmt::format("{:.{}f}", number, digits).c_str(), nullptr);
}

StatusOr<Value> FilterRound(Runtime&, const Value& self,
                            const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   (Bind("round", arguments, {"precision", "method"})));
  ASSIGN_OR_RETURN(
      const int64_t digits,
      ToInteger(bound[0].value_or(Value::Int(0)), "round's precision"));
  ASSIGN_OR_RETURN(const std::string_view method,
                   ToStringView(bound[1].value_or(Value::String("common")),
                                "round's method"));
  if (self.is_undefined()) return UndefinedError(self);
  if (!self.is_number()) {
    return InvalidArgument("round does not work on '{}'", TypeName(self));
  }
  if (digits < -300 || digits > 300) {
    return InvalidArgument("round: a precision of {}", digits);
  }
  if (method == "common") {
    if (self.is_int() && digits >= 0) return Value::Int(self.integer());
    const double rounded = RoundDecimal(self.number(), digits);
    if (!self.is_int()) return Value::Float(rounded);
    const std::optional<int64_t> integer = Truncate(rounded);
    if (integer.has_value()) return Value::Int(*integer);
    return InvalidArgument("round: an integer beyond 64 bits");
  }
  if (method != "ceil" && method != "floor") {
    return InvalidArgument("round: the method is common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * scale;
  return Value::Float(
      (method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr std::pair<std::string_view, Builtin> kFilters[] = {
    {"abs", FilterAbs},
    {"float", FilterFloat},
    {"int", FilterInt},
    {"round", FilterRound},
};

}  // namespace

Builtin FindNumberFilter(std::string_view name) {
  for (const auto& [each, filter] : kFilters) {
    if (each == name) return filter;
  }
  return nullptr;
}

Builtin FindFilter(std::string_view name) {
  if (const Builtin filter = FindTextFilter(name)) return filter;
  if (const Builtin filter = FindSequenceFilter(name)) return filter;
  return FindNumberFilter(name);
}

}  // namespace tidepool::model::jinja
