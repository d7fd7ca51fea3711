// Arithmetic on sizes that come from outside.
#pragma once

#include <concepts>
#include <optional>

namespace tidepool {

// nullopt on overflow (or on a negative result of an unsigned type).
template <std::integral T>
constexpr std::optional<T> CheckedAdd(T a, T b) {
  T result;
  if (__builtin_add_overflow(a, b, &result)) return std::nullopt;
  return result;
}
template <std::integral T>
constexpr std::optional<T> CheckedSub(T a, T b) {
  T result;
  if (__builtin_sub_overflow(a, b, &result)) return std::nullopt;
  return result;
}
template <std::integral T>
constexpr std::optional<T> CheckedMul(T a, T b) {
  T result;
  if (__builtin_mul_overflow(a, b, &result)) return std::nullopt;
  return result;
}

// ⌈a / b⌉ without overflow; `b` > 0.
template <std::unsigned_integral T>
constexpr T CeilDiv(T a, T b) {
  return a / b + (a % b != 0);
}
template <std::signed_integral T>
constexpr T CeilDiv(T a, T b) {  // `a` >= 0
  return a / b + (a % b != 0);
}

}  // namespace tidepool
