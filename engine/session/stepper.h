// SPDX-License-Identifier: Apache-2.0
// The stepper runs batches: it owns the decoder, the KV cache, the executor and the ledger.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/exec/executor.h"
#include "engine/graph/decoder.h"
#include "engine/graph/kv_pool.h"
#include "engine/session/batch.h"

namespace tally {

struct StepperOptions {
  PlanOptions plan;
  uint64_t share_gain_ns = kShareGainNanoseconds;  // Executor::SetShareGain
  int64_t context = 0;                             // maximum positions of a sequence
  int32_t sequences = 1;                           // maximum number of live sequences
  uint64_t kv_bytes = 0;                           // of the KV pool; 0: all sequences at full context

  KvPoolSize kv_size() const { return {context, sequences, plan.max_batch, kv_bytes}; }
};

class Stepper {
 public:
  // The team and everything in `source` must outlive the stepper. `weights`: the ledger's table, by WeightView::id.
  static Result<std::unique_ptr<Stepper>> Create(const PlanSource& source, std::vector<WeightInfo> weights, Team& team,
                                                 const StepperOptions& options);

  KvPool& cache() { return *cache_; }
  const KvPool& cache() const { return *cache_; }
  // Runs the rows, any mix of sequences; the rows of a sequence follow its current length. Returns logits in row order: [rows with
  // want_logits, vocab], valid until the next Step. Errors leave the sequences as they were. kBadInput: a token beyond the
  // vocabulary, an unknown sequence, no room, more than max_logit_rows rows with logits, logits that are not finite (names layer
  // and op), a key or value that the KV cache's type has no room for (names the layer, and a type that has).
  Result<Mat<const float>> Step(std::span<const BatchRow> rows);

  Ledger& ledger() { return ledger_; }
  Executor& executor() { return executor_; }
  Decoder& decoder() { return *decoder_; }
  const Executor& executor() const { return executor_; }
  void SetTap(Executor::Tap tap);
  // Called with the record of every op from now on. Null: no more calls.
  void SetRecorder(Recorder recorder);

 private:
  Stepper(const Recipe& recipe, Team& team, const StepperOptions& options);
  Status Prepare(std::span<const BatchRow> rows);
  Status Rollback(const Status& cause);
  Status FindNonFinite(bool logits_finite);
  void Record(const OpRecord& op);
  StepBatch Batch() const { return {tokens_, kv_rows_, logit_rows_}; }

  const Recipe& recipe_;
  StepperOptions options_;
  Ledger ledger_;
  Executor executor_;
  Executor::Tap tap_;
  Recorder recorder_;
  bool repeating_ = false;                          // repeats a step to find the first op whose output is not finite
  uint64_t recorded_steps_ = 0, recorded_ops_ = 0;  // steps since the recorder was set; ops of the current step
  std::vector<SequenceRows> recorded_sequences_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPool> cache_;
  // The current step.
  std::vector<int32_t> tokens_, logit_rows_;
  std::vector<BookedRow> booked_;
  std::vector<KvRow> kv_rows_;
  struct Extent {
    int32_t sequence;
    int64_t before;
    int64_t rows;
  };
  std::vector<Extent> extents_;
};

}  // namespace tally
