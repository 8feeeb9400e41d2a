// SPDX-License-Identifier: Apache-2.0
// What a template may take: bounds that no published template comes near, and that keep a hostile one from using up the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/status.h"

namespace tally::jinja {

inline constexpr size_t kMaxTemplateBytes = size_t{1} << 20;
// Bounds of depth are such that a stack of 1 MiB is enough; 8 MiB with the address sanitizer.
inline constexpr int kMaxNesting = 256;       // of expressions and statements in a template, and of values in one another
inline constexpr int64_t kMaxRange = 100000;  // numbers of a range, as in jinja2's sandbox
inline constexpr size_t kMaxNameBytes = 1000;
inline constexpr size_t kMaxParameters = 1000;   // of a macro, and named arguments of a call
inline constexpr size_t kMaxSegments = 1000000;  // of the text that is rendered

struct Limits {
  uint64_t steps = 10'000'000;               // nodes evaluated, items walked, 64 bytes read each count as one
  uint64_t made_bytes = uint64_t{1} << 30;   // of all strings and lists that are made, kept or not
  uint64_t text_bytes = uint64_t{64} << 20;  // of one string, and of the output
  int depth = 700;                           // of evaluation: nodes within nodes, through macros
};

class Budget {
 public:
  explicit Budget(const Limits& limits) : limits_(limits), steps_(limits.steps), made_(limits.made_bytes) {}

  Status Step(uint64_t n = 1) {
    if (n > steps_) return BadInput("takes more than " + std::to_string(limits_.steps) + " steps");
    steps_ -= n;
    return {};
  }
  // Reading this many bytes.
  Status Read(uint64_t bytes) { return Step(bytes / 64); }
  // An error where a string of this size is too long.
  Status Fits(uint64_t bytes) const {
    if (bytes <= limits_.text_bytes) return {};
    return BadInput("makes a text of more than " + std::to_string(limits_.text_bytes) + " bytes");
  }
  // Before a string of this size is made.
  Status Make(uint64_t bytes) {
    TALLY_RETURN_IF_ERROR(Fits(bytes));
    return Take(bytes);
  }
  // Before a list or dict of so many items is made.
  Status MakeItems(uint64_t items) { return Take(items > UINT64_MAX / 64 ? UINT64_MAX : 64 + items * 64); }

  const Limits& limits() const { return limits_; }

 private:
  Status Take(uint64_t bytes) {
    if (bytes > made_) return BadInput("makes more than " + std::to_string(limits_.made_bytes) + " bytes of texts and lists");
    made_ -= bytes;
    return {};
  }

  const Limits limits_;
  uint64_t steps_, made_;
};

}  // namespace tally::jinja
