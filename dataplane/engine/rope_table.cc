#include "dataplane/engine/rope_table.h"

#include <cmath>
#include <numbers>

namespace tidepool::engine::internal {
namespace {

// π/2 in three parts; k times either of the first two is exact for k < 2^20.
constexpr double kHalfPiHigh = 0x1.921fb544p+0;
constexpr double kHalfPiMiddle = 0x1.0b4611a6p-34;
constexpr double kHalfPiLow = 0x1.3198a2e037073p-69;

// Taylor series for |x| <= π/4.
double SineOf(double x) {
  const double square = x * x;
  double term = x, sum = 0;
  double terms[10];
  int count = 0;
  for (int n = 1; n <= 19; n += 2) {
    terms[count++] = term;
    term = -term * square / ((n + 1) * (n + 2));
  }
  while (count > 0) sum += terms[--count];  // smallest first
  return sum;
}

double CosineOf(double x) {
  const double square = x * x;
  double term = 1, sum = 0;
  double terms[10];
  int count = 0;
  for (int n = 0; n <= 18; n += 2) {
    terms[count++] = term;
    term = -term * square / ((n + 1) * (n + 2));
  }
  while (count > 0) sum += terms[--count];
  return sum;
}

double RescaleLlama3(double frequency, const model::Llama3RopeScaling& rope) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto context =
      static_cast<double>(rope.original_max_position_embeddings);
  if (wavelength < context / rope.high_freq_factor) return frequency;
  if (wavelength > context / rope.low_freq_factor)
    return frequency / rope.factor;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

void SineCosine(double x, double& sine, double& cosine) {
  const double quarters = std::floor(x * (2 * std::numbers::inv_pi) + 0.5);
  const double rest =
      ((x - quarters * kHalfPiHigh) - quarters * kHalfPiMiddle) -
      quarters * kHalfPiLow;
  const double s = SineOf(rest);
  const double c = CosineOf(rest);
  switch (static_cast<int64_t>(quarters) & 3) {
    case 0:
      sine = s, cosine = c;
      return;
    case 1:
      sine = c, cosine = -s;
      return;
    case 2:
      sine = -s, cosine = -c;
      return;
    default:
      sine = -c, cosine = s;
      return;
  }
}

std::vector<float> RopeFrequencies(const model::ModelConfig& config) {
  std::vector<float> frequencies;
  for (int64_t i = 0; i < config.head_dim / 2; ++i) {
    const double exponent =
        static_cast<double>(2 * i) / static_cast<double>(config.head_dim);
    // Of a C library's power only the last bits are its own, which the rounding
    // to float below takes away.
    double frequency = 1 / std::pow(config.rope_theta, exponent);
    if (config.rope_scaling.has_value())
      frequency = RescaleLlama3(frequency, *config.rope_scaling);
    frequencies.push_back(static_cast<float>(frequency));
  }
  return frequencies;
}

RopeTable::RopeTable(std::span<const float> frequencies, int64_t positions)
    : half_(std::ssize(frequencies)) {
  values_.resize(static_cast<size_t>(positions * 2 * half_));
  for (int64_t position = 0; position < positions; ++position) {
    float* row = values_.data() + position * 2 * half_;
    for (int64_t i = 0; i < half_; ++i) {
      // Exact up to position 2^29: the product has at most 53 bits.
      const double angle =
          static_cast<double>(position) * static_cast<double>(frequencies[i]);
      double sine, cosine;
      SineCosine(angle, sine, cosine);
      row[i] = static_cast<float>(cosine);
      row[half_ + i] = static_cast<float>(sine);
    }
  }
}

}  // namespace tidepool::engine::internal
