// SPDX-License-Identifier: Apache-2.0
// The input of Engine::Step.
#pragma once

#include <cstdint>

namespace tally {

// One row of a step. The first row of a sequence in a step is at the sequence's current length; the next rows follow it.
struct BatchRow {
  int32_t token = 0;     // 0 to vocab - 1
  int32_t sequence = 0;  // from NewSequence or Fork
  bool want_logits = false;
  // The token was generated from this sequence's logits, not given. The ledger books the row's work as decode, else as prefill.
  bool generated = false;
  // The bill that the ledger charges with the row (Ledger::OpenBill); -1: none. `again`: a row at this position has run before, for
  // the same request: the bill says so.
  int32_t bill = -1;
  bool again = false;
};

}  // namespace tally
