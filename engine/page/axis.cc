// SPDX-License-Identifier: Apache-2.0
#include "engine/page/axis.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tally::page {
namespace {

struct Prefixed {
  double value;
  std::string_view prefix;
};

// `value` in the prefix that leaves 1 <= |value| < 1000 when rounded to three digits.
Prefixed Prefix(double value) {
  static constexpr std::string_view kPrefixes[] = {"n", "µ", "m", "", "k", "M", "G", "T", "P", "E"};
  size_t i = 3;
  while (std::abs(value) >= 999.5 && i + 1 < std::size(kPrefixes)) value /= 1000, ++i;
  while (value != 0 && std::abs(value) < 0.9995 && i > 0) value *= 1000, --i;
  return {value, kPrefixes[i]};
}

int DecimalsOfThree(double value) {
  const double size = std::abs(value);
  return size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
}

}  // namespace

double Axis::At(double value) const {
  double share = log ? std::log(std::max(value, low) / low) / std::log(high / low) : (value - low) / (high - low);
  if (!std::isfinite(share)) share = 0;
  return from + std::clamp(share, 0.0, 1.0) * (to - from);
}

std::vector<double> LinearTicks(double low, double high, int most) {
  if (!(high > low) || !std::isfinite(high - low)) return {low};
  const double rough = (high - low) / std::max(most - 1, 1);
  double step = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (factor * step >= rough * (1 - 1e-9)) {
      step *= factor;
      break;
    }
  }
  std::vector<double> ticks;
  for (double n = std::ceil(low / step - 1e-9) + 0.0; n * step <= high + step * 1e-9; ++n) ticks.push_back(n * step);
  return ticks;
}

std::vector<double> LogTicks(double low, double high, int most) {
  if (!(low > 0) || !std::isfinite(low) || !std::isfinite(high)) return {};
  const double first = std::ceil(std::log10(low) - 1e-9), last = std::floor(std::log10(high) + 1e-9);
  std::vector<double> ticks;
  if (last - first < 1) {
    for (double power = first - 1; power <= last + 1; ++power) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        const double tick = factor * std::pow(10, power);
        if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9) && static_cast<int>(ticks.size()) < most) ticks.push_back(tick);
      }
    }
    return ticks;
  }
  const double every = std::ceil((last - first + 1) / std::max(most, 1));
  for (double power = first; power <= last; power += every) ticks.push_back(std::pow(10, power));
  return ticks;
}

double RoundUp(double value) {
  if (!(value > 0) || !std::isfinite(value)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string Si(double value, std::string_view unit) {
  const Prefixed p = Prefix(value);
  const bool whole = p.prefix.empty() && p.value == std::floor(p.value);
  std::string text = Fixed(p.value, whole ? 0 : DecimalsOfThree(p.value));
  if (p.prefix.empty() && unit.empty()) return text;
  return text + " " + std::string(p.prefix) + std::string(unit);
}

std::string TickText(double value) {
  const Prefixed p = value >= 1e-3 && value < 1 ? Prefixed{value, ""} : Prefix(value);
  std::string text = Fixed(p.value, p.value < 1 ? 4 : 2);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return p.prefix.empty() ? text : text + " " + std::string(p.prefix);
}

std::string ShortCount(uint64_t n) {
  const Prefixed p = Prefix(Real(n));
  const int decimals = p.prefix.empty() || p.value >= 100 ? 0 : 2;
  return Fixed(p.value, decimals) + (p.prefix == "G" ? "B" : std::string(p.prefix));
}

std::string Percent(double share) {
  const double percent = 100 * share;
  if (percent > 0 && percent < 0.005) return "< 0.01 %";
  return Fixed(percent, 2) + " %";
}

std::string Decimal(double value) {
  const double size = std::abs(value);
  if (size < 999.5 && value == std::floor(value)) return Fixed(value, 0);
  if (size >= 999.5) return (value < 0 ? "-" : "") + Thousands(static_cast<uint64_t>(std::llround(size)));
  return Fixed(value, size > 0 && size < 0.0995 ? 4 : size < 0.9995 ? 3 : DecimalsOfThree(value));
}

Cell SiCell(double value, std::string_view unit) { return {Si(value, unit), value}; }
Cell PercentCell(double share) { return {Percent(share), share}; }

}  // namespace tally::page
