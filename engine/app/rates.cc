// SPDX-License-Identifier: Apache-2.0
#include "engine/app/rates.h"

#include "engine/api/tally.h"
#include "engine/app/table.h"

namespace tally::app {

std::string ShortRate(double x) {
  if (x <= 0) return "-";
  if (x >= 999.5) return books::WithThousands(x);
  return Fixed(x, x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
}

std::string ShortSeconds(double seconds) {
  if (seconds <= 0) return "0 s";
  return seconds < 0.9995 ? ShortRate(seconds * 1e3) + " ms" : ShortRate(seconds) + " s";
}

std::string OfRoof(double part) { return Fixed(100 * part, part < 0.0995 ? 1 : 0) + " %"; }

std::string ShortGigabytes(double bytes_per_second) { return ShortRate(bytes_per_second / 1e9) + " GB/s"; }

}  // namespace tally::app
