// SPDX-License-Identifier: Apache-2.0
// An engine: sequences over a loaded model, stepped in batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/ledger/ledger.h"
#include "counters/ledger/process_books.h"
#include "counters/ledger/record.h"
#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/session/batch.h"
#include "engine/session/model.h"
#include "engine/session/probe.h"
#include "engine/session/sequences.h"

namespace tally {

// Steps the sequences of one model, and predicts: the ledger of their costs, and the buffers of a step.
class TALLY_API Engine : public Sequences {
 public:
  virtual const MemoryPlan& memory_plan() const = 0;
  int64_t context() const override { return memory_plan().context; }
  virtual int64_t max_batch() const = 0;            // maximum rows of one Step
  virtual int64_t max_logit_rows() const = 0;       // maximum rows with want_logits
  virtual int64_t draft_rows() const { return 0; }  // EngineOptions::draft_rows, as far as there are logits for them
  // Requests that can decode in one Step, with room for the drafts.
  virtual int64_t max_requests() const { return max_logit_rows() - draft_rows(); }
  // Runs 1 to max_batch rows, any mix of sequences; the rows of a sequence are in order, from its length on. Returns the logits of the rows
  // with want_logits (at most max_logit_rows).
  // A sequence fails alone. The others continue, with the same bits as without it. kNoRoom: its context or the cache is full.
  // kNotFinite: its logits, or a row's output of the last layer, are NaN or infinite (names layer and op); a key or value is beyond the
  // KV type.
  // Errors of the whole step: all sequences are then as before, except that windows and recurrent layers may have dropped what they could
  // have been rolled back to. kBadInput: no rows or too many, a token beyond the vocabulary, no such sequence or bill, an embedding, a
  // position or a span that a row cannot have (BatchRow). kNoRoom: not enough memory.
  virtual Result<StepOutput> Step(std::span<const BatchRow> rows) = 0;
  // Step for rows that stand or fall together: the first sequence's error is the step's, and all sequences are as before. Logits
  // [rows with want_logits, vocab] in row order, valid until the next step.
  Result<Mat<const float>> StepAll(std::span<const BatchRow> rows);
  virtual Ledger& ledger() = 0;  // sums over every Step since creation or Reset; lives as long as the engine
  // Not ok: the group of processes has failed, and no step will run again. Any thread.
  virtual Status Health() const { return {}; }
  // A bill of the ledger's, of all processes that run the model: Ledger::OpenBill and CloseBill. If the group has failed, only this
  // process's part.
  virtual int32_t OpenBill() { return ledger().OpenBill(); }
  virtual Bill CloseBill(int32_t bill) { return ledger().CloseBill(bill); }
  // The books of each process that runs the model, this one's first. All count from the same Reset. Errors of the group.
  virtual Result<std::vector<ProcessBooks>> Books() = 0;
  virtual const Model& model() const = 0;
  virtual std::string_view target() const = 0;  // the instruction set of the kernels, "AVX3_ZEN4"
  virtual bool used_blas() const = 0;           // true if OpenBLAS was chosen for some op
  virtual ActivationMode activations() const { return ActivationMode::kAuto; }
  virtual int threads() const = 0;             // threads that share ops, as granted by the system
  virtual int processes() const { return 1; }  // that run the model
  // Of the rows with `draft` that the last Step ran for this sequence, keeps the first `accepted`, which its bill then names as accepted.
  // The others are taken back as by Truncate, and named as not accepted. kBadInput: the sequence has fewer; errors of Truncate.
  virtual Status KeepDrafts(int32_t sequence, int64_t accepted) = 0;
  // True if drafts can be had of Predict: EngineOptions::prediction.
  virtual bool predicts() const { return false; }
  // For each wish, tokens that the checkpoint's layer for multi-token prediction guesses to follow it; maybe none. At most max_logit_rows
  // wishes, each of another sequence. The guesses are a function of the sequence's tokens, unless positions of other sequences were
  // reused; none for a sequence with rows that are more than tokens. They are to be run as rows with `draft` behind the wish's token.
  // Changes no sequence. Valid until the next call. kBadInput: no such sequence; errors of the layer's ops.
  virtual Result<std::span<const std::vector<int32_t>>> Predict(std::span<const DraftWish>) {
    return BadInput("the engine has no layer for multi-token prediction");
  }
  virtual Probe& probe() = 0;  // of this engine, and as long as it lives
};

// Any number of engines may share a model, each with its own options. The engines keep the model alive.
// kBadInput: options the model cannot take. kNoRoom: more memory or threads than available. kInternal: a model that LoadModel did not make.
// Not null on success.
TALLY_API Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const EngineOptions& options);

// For every process of a group (LoadOptions::group) but the first: makes engines and steps as the first one does, until the first one's
// model ends. `engine`: the options that LoadModel had; their threads are this process's. Errors of the group.
TALLY_API Status FollowGroup(const std::shared_ptr<const Model>& model, const EngineOptions& engine);

}  // namespace tally
