// SPDX-License-Identifier: Apache-2.0
// Speeds as the screens of `run` and `bench` say them.
#pragma once

#include <string>

namespace tally::app {

// Three digits, and all before the point: "7.05", "43.1", "291", "2,322"; "-" of a rate that is not known (0).
std::string ShortRate(double per_second);

// "1.23 s", "12.3 ms"
std::string ShortSeconds(double seconds);

// A part of a roof, in percent: "94 %", "102 %", "4.2 %".
std::string OfRoof(double part);

// "13.6 GB/s"
std::string ShortGigabytes(double bytes_per_second);

}  // namespace tally::app
