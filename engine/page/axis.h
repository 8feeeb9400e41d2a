// SPDX-License-Identifier: Apache-2.0
// Scales of pictures, their ticks, and numbers as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/format.h"
#include "engine/render/table.h"

namespace tally::page {

// Maps values from [low, high] to pixels from `from` to `to`. Logarithmic: 0 < low < high.
struct Axis {
  double low = 0, high = 1;
  double from = 0, to = 1;
  bool log = false;

  double At(double value) const;  // values beyond the ends are drawn at them
};

// Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, at most `most` (at least 2).
std::vector<double> LinearTicks(double low, double high, int most);
// Powers of ten from `low` to `high`, every n-th so that there are at most `most`. 1, 2, 5 times them where there is one power or none.
std::vector<double> LogTicks(double low, double high, int most);

// The least of 1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8 times a power of ten that is at least `value`; 1 where value is not above 0.
double RoundUp(double value);

inline double Real(uint64_t n) { return static_cast<double>(n); }
inline uint64_t Whole(double x) { return static_cast<uint64_t>(x + 0.5); }  // x is not negative
inline double Seconds(uint64_t nanoseconds) { return Real(nanoseconds) / 1e9; }
inline double Share(double part, double whole) { return whole > 0 ? part / whole : 0; }  // 0 of nothing

inline std::string Thousands(uint64_t n) { return WithThousands(n); }  // 1234567 -> "1,234,567"
// Three digits and a decimal prefix before the unit: 4187440704, "FLOP" -> "4.19 GFLOP"; 0.00123, "s" -> "1.23 ms".
std::string Si(double value, std::string_view unit);
// The same without trailing zeros, for ticks: "2 G", "0.05".
std::string TickText(double value);
// A number of parameters as papers print it: "20.91B", "3.61B", "124M".
std::string ShortCount(uint64_t n);
// 0.1725 -> "17.25 %"; what is above 0 and rounds to it is "< 0.01 %".
std::string Percent(double share);
// Three significant digits: 0.123, 12.3, 1,230.
std::string Decimal(double value);

Cell SiCell(double value, std::string_view unit);  // 1.23 MB
Cell PercentCell(double share);                    // 17.25 %

}  // namespace tally::page
