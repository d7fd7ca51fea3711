#include "controller/reconcilers/quantity.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <utility>

namespace tidepool::reconcilers {
namespace {

struct Scale {
  uint64_t multiply = 1, divide = 1;
};

// nullopt: no such suffix.
std::optional<Scale> ScaleOf(std::string_view suffix) {
  static constexpr std::array<std::pair<std::string_view, Scale>, 15> kScales{{
      {"", {}},
      {"n", {1, 1'000'000'000}},
      {"u", {1, 1'000'000}},
      {"m", {1, 1'000}},
      {"k", {1'000}},
      {"M", {1'000'000}},
      {"G", {1'000'000'000}},
      {"T", {1'000'000'000'000}},
      {"P", {1'000'000'000'000'000}},
      {"E", {1'000'000'000'000'000'000}},
      {"Ki", {1ull << 10}},
      {"Mi", {1ull << 20}},
      {"Gi", {1ull << 30}},
      {"Ti", {1ull << 40}},
      {"Pi", {1ull << 50}},
  }};
  for (const auto& [name, scale] : kScales)
    if (name == suffix) return scale;
  if (suffix == "Ei") return Scale{1ull << 60};
  if (suffix.size() < 2 || (suffix[0] != 'e' && suffix[0] != 'E')) return {};
  int exponent = 0;
  std::string_view digits = suffix.substr(1);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  if (error != std::errc() || end != digits.data() + digits.size() ||
      exponent < -18 || exponent > 18)
    return {};
  Scale scale;
  for (int i = 0; i < exponent; ++i) scale.multiply *= 10;
  for (int i = 0; i > exponent; --i) scale.divide *= 10;
  return scale;
}

}  // namespace

StatusOr<uint64_t> ParseQuantity(std::string_view text) {
  const auto bad = [&] {
    return InvalidArgument("`{}` is not a quantity", text);
  };
  // 128 bits hold every product below: at most 19 digits times 2^60.
  using Wide = unsigned __int128;
  Wide value = 0;
  uint64_t fraction_scale = 1;
  size_t i = 0, digits = 0;
  bool in_fraction = false;
  for (; i < text.size(); ++i) {
    if (text[i] == '.' && !in_fraction) {
      in_fraction = true;
      continue;
    }
    if (text[i] < '0' || text[i] > '9') break;
    if (++digits > 18) return bad();
    value = value * 10 + static_cast<unsigned>(text[i] - '0');
    if (in_fraction) fraction_scale *= 10;
  }
  const std::optional<Scale> scale = ScaleOf(text.substr(i));
  if (digits == 0 || !scale.has_value()) return bad();
  const Wide divide = Wide{fraction_scale} * scale->divide;
  const Wide result = (value * scale->multiply + divide - 1) / divide;
  if (result > static_cast<Wide>(std::numeric_limits<int64_t>::max()))
    return bad();
  return static_cast<uint64_t>(result);
}

std::string FormatBytes(uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kSuffixes{"", "Ki", "Mi",
                                                             "Gi", "Ti"};
  size_t suffix = 0;
  while (bytes != 0 && bytes % 1024 == 0 && suffix + 1 < kSuffixes.size()) {
    bytes /= 1024;
    ++suffix;
  }
  return fmt::format("{}{}", bytes, kSuffixes[suffix]);
}

std::string ReadableBytes(uint64_t bytes) {
  if (bytes >= 1ull << 30)
    return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / (1ull << 30));
  return fmt::format("{:.0f} MiB", static_cast<double>(bytes) / (1ull << 20));
}

}  // namespace tidepool::reconcilers
