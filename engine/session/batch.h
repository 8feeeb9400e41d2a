#pragma once

#include <cstdint>

namespace tally {

// One row of a step. Positions of a sequence follow on: its first row of a step stands at its current length.
struct BatchRow {
  int32_t token = 0;
  int32_t sequence = 0;
  bool want_logits = false;
};

}  // namespace tally
