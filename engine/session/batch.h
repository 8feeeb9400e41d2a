// SPDX-License-Identifier: Apache-2.0
// The input and the output of Engine::Step.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/mat.h"
#include "engine/base/status.h"

namespace tally {

// One row of a step. The first row of a sequence in a step is at the sequence's current length; the next rows follow it.
struct BatchRow {
  int32_t token = 0;     // 0 to vocab - 1
  int32_t sequence = 0;  // from NewSequence or Fork
  bool want_logits = false;
  // The token was generated from this sequence's logits, not given. The ledger books the row's work as decode, else as prefill.
  bool generated = false;
  // The bill that the ledger charges with the row (Ledger::OpenBill); -1: none. `again`: a row at this position has run for the same
  // request before. The bill counts such rows.
  int32_t bill = -1;
  bool again = false;
  // The token is a draft: a guess at the token that will be drawn from the logits of the row before. Drafts are a sequence's last rows in
  // a step. After the step, Engine::KeepDrafts must be told how many were right.
  bool draft = false;
};

// A request for drafts of one sequence (Engine::Predict).
struct DraftWish {
  int32_t sequence = 0;
  int32_t token = 0;  // drawn after the sequence's last position; it has not run yet
  int64_t most = 0;   // the most tokens to guess after `token`
  int32_t bill = -1;  // as BatchRow::bill
};

// Why a sequence did not take part in a step.
struct SequenceError {
  int32_t sequence = 0;
  Status status = {};
};

// The output of a step, valid until the next step.
struct StepOutput {
  Mat<const float> logits = {};  // [logit rows of the sequences that went on, vocab]
  std::span<const int32_t> logit_rows =
      {};  // of each row with want_logits, in order: its row of `logits`; -1: its sequence failed
  std::span<const SequenceError> failed =
      {};  // these are as before the step, but for positions that a sliding window has dropped

  // The logits of the i-th row with want_logits, [vocab]; empty: its sequence failed.
  std::span<const float> Logits(size_t i) const {
    if (logit_rows[i] < 0) return {};
    return {logits.Row(logit_rows[i]), static_cast<size_t>(logits.cols)};
  }
  // Null: the sequence went on.
  const Status* ErrorOf(int32_t sequence) const {
    for (const SequenceError& e : failed) {
      if (e.sequence == sequence) return &e.status;
    }
    return nullptr;
  }
};

}  // namespace tally
