// SPDX-License-Identifier: Apache-2.0
// The input and the output of Engine::Step.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/mat.h"
#include "engine/base/rows.h"
#include "engine/base/status.h"

namespace tally {

// One row of a step. The first row of a sequence in a step is at the sequence's current length; the next rows follow it. That is its place:
// where its keys and values are kept, and what windows and ALiBi count. Its position is what rotary embedding turns by.
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
  // StepOutput::hidden has what the head reads of the row: the output of the last layer, after the model's last norm.
  bool want_hidden = false;
  // Not empty: enters in place of the token's embedding, where a scaled row of the table would: [d_model], or the table's width if a
  // matrix leads from it to d_model. What follows the table's row is done to it too: that matrix, learned positions, norms. Per-layer
  // embeddings (Gemma 4) are the token's. Must live until the step has ended.
  std::span<const float> embedding = {};
  RowIdentity identity = {};  // of the embedding
  // By default one more than the largest position of the sequence's earlier rows: the row's place, if no position was ever given. Below
  // the context. Different times, heights and widths only if the model has sections of M-RoPE.
  RowPosition position = {};
  // Rows that see one another whatever their order, by their places in the sequence; the row is one of them, and all of them are in this
  // step and name this span. Each also sees the past as others do. Attention only: recurrent layers go on in order.
  RowSpan both_ways = {};
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
      {};                                     // these are as before the step, but for positions that a sliding window has dropped
  Mat<const float> hidden = {};               // [rows with want_hidden of the sequences that went on, d_model]
  std::span<const int32_t> hidden_rows = {};  // as logit_rows, of rows with want_hidden

  // The logits of the i-th row with want_logits, [vocab]; empty: its sequence failed.
  std::span<const float> Logits(size_t i) const {
    if (logit_rows[i] < 0) return {};
    return {logits.Row(logit_rows[i]), static_cast<size_t>(logits.cols)};
  }
  // The hidden state of the i-th row with want_hidden, [d_model]; empty: its sequence failed.
  std::span<const float> Hidden(size_t i) const {
    if (hidden_rows[i] < 0) return {};
    return {hidden.Row(hidden_rows[i]), static_cast<size_t>(hidden.cols)};
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
