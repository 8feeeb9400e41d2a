// Step(batch): the engine's one verb, over a decoder, its KV cache, the executor and the ledger.
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
  int64_t context = 0;                             // most positions of a sequence
  int32_t sequences = 1;                           // most that live at once
  uint64_t kv_bytes = 0;                           // of the KV pool; 0: what the sequences take at full context

  KvPoolSize kv_size() const { return {context, sequences, plan.max_batch, kv_bytes}; }
};

class Stepper {
 public:
  // What `source` names and the team must outlive the stepper. `weights`: of the ledger, by WeightView::id.
  static Result<std::unique_ptr<Stepper>> Create(const PlanSource& source, std::vector<WeightInfo> weights, Team& team,
                                                 const StepperOptions& options);

  KvPool& cache() { return *cache_; }
  const KvPool& cache() const { return *cache_; }
  // Runs the rows: any mix of sequences, each sequence's rows following on from its length. Returns the logits asked for, in
  // row order: [rows with want_logits, vocab], valid until the next Step. Errors leave the sequences as they were.
  // kBadInput: a token beyond the vocabulary, an unknown sequence, no room, the logits of more rows than max_logit_rows, logits
  // that are not finite (names layer and op).
  Result<Mat<const float>> Step(std::span<const BatchRow> rows);

  Ledger& ledger() { return ledger_; }
  Executor& executor() { return executor_; }
  Decoder& decoder() { return *decoder_; }
  const Executor& executor() const { return executor_; }
  void SetTap(Executor::Tap tap);
  // Called with the record of every op of the steps to come. Null: no more.
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
  bool repeating_ = false;                          // a step that failed, to find out where
  uint64_t recorded_steps_ = 0, recorded_ops_ = 0;  // since it was set; in the step under way
  std::vector<SequenceRows> recorded_sequences_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<KvPool> cache_;
  // The step under way.
  std::vector<int32_t> tokens_, logit_rows_;
  std::vector<Phase> phases_, logit_phases_;  // of its rows, and of those with logits
  std::vector<KvRow> kv_rows_;
  struct Extent {
    int32_t sequence;
    int64_t before;
    int64_t rows;
  };
  std::vector<Extent> extents_;
};

}  // namespace tally
