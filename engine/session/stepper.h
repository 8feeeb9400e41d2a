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
#include "engine/graph/sequence_store.h"
#include "engine/session/batch.h"

namespace tally {

struct StepperOptions {
  PlanOptions plan;
  uint64_t share_gain_ns = kShareGainNanoseconds;  // Executor::SetShareGain
  int64_t context = 0;                             // maximum positions of a sequence
  int32_t sequences = 1;                           // maximum number of live sequences
  uint64_t kv_bytes = 0;                           // the budget of the KV cache; 0: all sequences at full context

  StoreSize kv_size() const { return {context, sequences, plan.max_batch, kv_bytes}; }
};

class Stepper {
 public:
  // The team and everything in `source` must outlive the stepper. `weights`: the ledger's table, by WeightView::id.
  static Result<std::unique_ptr<Stepper>> Create(const PlanSource& source, std::vector<WeightInfo> weights, Team& team,
                                                 const StepperOptions& options);

  SequenceStore& cache() { return *cache_; }
  const SequenceStore& cache() const { return *cache_; }
  // As Engine::Step.
  Result<StepOutput> Step(std::span<const BatchRow> rows);

  Ledger& ledger() { return ledger_; }
  Executor& executor() { return executor_; }
  Decoder& decoder() { return *decoder_; }
  const Executor& executor() const { return executor_; }
  void SetTap(Executor::Tap tap);
  // Called with the record of every op from now on. Null: no more calls.
  void SetRecorder(Recorder recorder);

 private:
  Stepper(const Recipe& recipe, Team& team, const StepperOptions& options);
  // The rows of a sequence in a step.
  struct Extent {
    int32_t sequence = 0;
    int64_t before = 0;  // its length before the step
    int64_t rows = 0;
    bool ran = false;  // there was room for them
    bool failed = false;
  };
  // A batch for the decoder.
  struct Rows {
    std::vector<int32_t> tokens, logit_rows;
    std::vector<KvRow> kv_rows;
    void Clear();
    void Add(const BatchRow& row, int64_t position);
    StepBatch Batch() const { return {tokens, kv_rows, logit_rows}; }
  };

  Status Prepare(std::span<const BatchRow> rows);
  Status CheckRows(std::span<const BatchRow> rows);
  Status MakeRoom(const Extent& extent);
  void Fail(Extent& extent, Status status);
  Status TakeBack(Status cause, const Extent& extent);
  Status TakeAllBack(Status cause);
  void FailBadRows(std::span<const BatchRow> rows, Mat<const float>& logits);
  Status WhyBad(std::span<const BatchRow> rows, const Extent& extent, std::span<const Decoder::BadRow> bad);
  std::string FirstNonFinite(std::span<const BatchRow> rows, const Extent& extent);
  StepOutput Output(std::span<const BatchRow> rows, Mat<const float> logits);
  Extent& ExtentOf(int32_t sequence);
  void Record(const OpRecord& op);

  const Recipe& recipe_;
  StepperOptions options_;
  Ledger ledger_;
  Executor executor_;
  Executor::Tap tap_;
  Recorder recorder_;
  bool repeating_ = false;                          // runs rows again to find the first op whose output is not finite
  uint64_t recorded_steps_ = 0, recorded_ops_ = 0;  // steps since the recorder was set; ops of the current step
  std::vector<SequenceRows> recorded_sequences_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<SequenceStore> cache_;
  // The current step, without the rows of sequences that had no room.
  Rows rows_;
  std::vector<Phase> phases_, logit_phases_;  // of all rows, and of the rows with logits
  std::vector<Extent> extents_;               // of all its sequences
  std::vector<SequenceError> failed_;
  std::vector<int32_t> output_rows_;  // StepOutput::logit_rows
  std::vector<float> kept_logits_;    // while the rows of a failed sequence run again
};

}  // namespace tally
