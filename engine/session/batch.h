// What Engine::Step is given.
#pragma once

#include <cstdint>

namespace tally {

// One row of a step. Positions of a sequence follow on: its first row of a step stands at its current length.
struct BatchRow {
  int32_t token = 0;     // 0 to vocab - 1
  int32_t sequence = 0;  // of NewSequence
  bool want_logits = false;
  // The token was generated (drawn from this sequence's logits) and is being extended, not given. Only the caller knows: the
  // ledger books the row's work as decode, else as prefill.
  bool generated = false;
};

}  // namespace tally
