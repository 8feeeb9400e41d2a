// SPDX-License-Identifier: Apache-2.0
// Drafts by a checkpoint's own layer for multi-token prediction (engine/graph/planner_prediction.cc). Internal to the session.
//
// The layer's row of position i needs the model's output at i and the token of i + 1. So the row of a sequence's last position waits
// until the next token is drawn. In decode, up to kMostWaiting rows of a sequence wait, and run together in Predict; rows of prompts run
// after their step. The layer's keys and values are a layer of the engine's store and have the sequence's positions, so truncating the
// sequence truncates them too.
//
// Two kinds of rows do not run. After Fork, reuse, Import and Truncate, the model's output at the sequence's last position is not known;
// the layer's keys and values there stay zero, or those of the continuation that another sequence had. A row in a block that another
// sequence shares does not run either: its keys and values depend on the next token, which may lie behind the block. Both may change
// drafts, but never the tokens that are drawn. The stepper gives it no rows of sequences that have rows which are more than tokens
// (BatchRow), so it guesses nothing for them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/exec/executor.h"
#include "engine/graph/decoder.h"
#include "engine/graph/sequence_store.h"
#include "engine/session/batch.h"

namespace tally {

class Predictor {
 public:
  static constexpr int64_t kMostWaiting = 16;  // rows of a sequence that wait after a step, besides its drafts

  // All arguments but the options must outlive the predictor. Errors as Decoder::Create.
  static Result<std::unique_ptr<Predictor>> Create(const PlanSource& source, const PlanOptions& options, int32_t sequences,
                                                   Executor& executor, SequenceStore& store);
  // Bytes that waiting rows take at most.
  static uint64_t Bytes(const PlanOptions& options, int32_t sequences, int64_t d_model);

  // A row of a step that ran.
  struct Ran {
    int32_t token = 0;
    KvRow at = {};
    BookedRow booked = {};
    const float* output = nullptr;  // of the model's last layer, [d_model]
  };
  // Takes the rows of a step, those of a sequence in order, and runs the layer's rows whose next token is known: of prompts, and where
  // many wait.
  Status Take(std::span<const Ran> rows);
  // For each wish, the tokens that the layer guesses; none if its sequence has no last output. Valid until the next call.
  Result<std::span<const std::vector<int32_t>>> Predict(std::span<const DraftWish> wishes);
  void Forget(int32_t sequence);  // it was freed
  // A pass of the layer.
  struct Pass {
    std::span<const int32_t> tokens = {};
    std::span<const KvRow> rows = {};
    int64_t logit_rows = 0;
    bool own_states = false;  // hidden states are what the layer's head got before; else the model's output
  };
  // Called before each pass. The step or pass before it has ended.
  void SetBefore(std::function<void(const Pass&)> before) { before_ = std::move(before); }

 private:
  Predictor(const PlanOptions& options, int32_t sequences, Executor& executor, SequenceStore& store)
      : options_(options), executor_(executor), store_(store), waiting_(static_cast<size_t>(sequences)) {}
  // Rows of a sequence that have not run: its positions from `from` on.
  struct Waiting {
    int64_t from = 0;
    std::vector<int32_t> tokens = {};  // of the positions themselves
    std::vector<Phase> phases = {};
    std::vector<float> outputs = {};  // [rows, d_model]
    int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  };
  // A batch of the layer.
  struct Batch {
    std::vector<int32_t> tokens, logit_rows;
    std::vector<KvRow> kv_rows;
    std::vector<BookedRow> booked;
    std::vector<float> hidden;
    void Clear();
    int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  };
  Waiting& Of(int32_t sequence) { return waiting_[static_cast<size_t>(sequence)]; }
  void Keep(Waiting& w, int64_t positions) const;
  void Drop(Waiting& w, int64_t rows) const;
  void DropShared(int32_t sequence);
  void Add(int32_t sequence, int64_t i, int32_t next, int32_t bill);
  Status RunAllBut(int64_t left, int32_t sequence, int32_t bill);
  Result<Mat<const float>> Run(bool normed);
  int64_t MostDrafts(const DraftWish& wish) const;

  const PlanOptions options_;
  Executor& executor_;
  SequenceStore& store_;
  std::unique_ptr<Decoder> decoder_;
  int64_t width_ = 0;             // d_model
  std::vector<Waiting> waiting_;  // by sequence
  Batch batch_;
  std::vector<std::vector<int32_t>> drafts_;
  std::function<void(const Pass&)> before_;
};

}  // namespace tally
