// SPDX-License-Identifier: Apache-2.0
// The decoder runs the ops of a plan through the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/exec/executor.h"
#include "engine/graph/plan.h"
#include "engine/graph/sequence_store.h"

namespace tally {

// One step: row i is `tokens[i]` at `kv_rows[i].position` of cache table `kv_rows[i].table`.
struct StepBatch {
  std::span<const int32_t> tokens;
  std::span<const KvRow> kv_rows;
  std::span<const int32_t> logit_rows;          // indices of the rows with logits, ascending
  std::span<const int32_t> hidden_rows = {};    // of the rows with hidden states, ascending
  std::span<const RowPosition> positions = {};  // of each row, whole; empty: those of kv_rows
  std::span<const GivenRow> given = {};         // embeddings that replace those of tokens, by ascending row
};

class Decoder {
 public:
  // The executor must outlive the decoder. kNoRoom: not enough memory for the activations.
  static Result<std::unique_ptr<Decoder>> Create(const PlanSource& source, const PlanOptions& options, Executor& executor);

  // Returns logits [logit_rows, vocab], at most max_logit_rows of them, valid until the next call. The cache must have room for
  // every position of the batch.
  Result<Mat<const float>> Forward(const StepBatch& batch, SequenceStore& cache) { return Forward(batch, cache, 0); }
  // The hidden states of the last Forward's hidden_rows, [hidden_rows, d_model]: what the head reads. To be moved from, if they are kept.
  std::vector<float>& hidden() { return hidden_; }
  // From now on Forward leaves the output of the last layer for each row of a batch in `rows`, [rows, d_model].
  void KeepOutput(std::vector<float>* rows) { kept_ = rows; }
  // Called in Forward with the residual stream, [rows of the batch, d_model], valid during the call: after the embedding with 0, after each
  // layer with how many have run. Null: no more calls.
  using StreamTap = std::function<void(int32_t layers, Mat<const float> x)>;
  void SetStreamTap(StreamTap tap) { stream_tap_ = std::move(tap); }

  // For the plan of a stack for prediction. `hidden`, for each row of the batch: the output of the model's last layer at its position, or,
  // with `normed`, what HeadInput gave for it. A row's token is the one that follows.
  Result<Mat<const float>> Predict(const StepBatch& batch, Mat<const float> hidden, bool normed, SequenceStore& cache);
  // What the last call multiplied by the head, [logit_rows, d_model]; valid until the next call.
  Mat<const float> HeadInput() const { return plan_.head_in.Rows(0, logit_rows_); }
  // The rows of the last Forward that failed, each at most once, in no order. Other sequences are not affected.
  struct BadRow {
    int32_t row = 0;
    bool of_logits = false;  // its logits are not finite; else, if `why` is empty, its output of the last layer is not
    std::string why = {};    // the key or value that the cache's type cannot hold
  };
  std::span<const BadRow> bad_rows() const { return bad_rows_; }
  // Called in place of each run of an op; `run` runs it, and may be called several times (by a benchmark). `output`: the op's
  // output.
  using Around = std::function<Status(const PlannedOp&, Mat<const float> output, const std::function<Status()>& run)>;
  void SetAround(Around around) { around_ = std::move(around); }

 private:
  Decoder(const PlanOptions& options, const Shard& shard, Executor& executor)
      : options_(options), shard_(shard), executor_(executor) {}
  Result<Mat<const float>> Forward(const StepBatch& batch, SequenceStore& cache, size_t first_op);
  Status Run(size_t index, int64_t rows, bool reshaped, SequenceStore& cache);
  Status RunFetched(const Plan::Fetched& fetched, int64_t rows, SequenceStore& cache);
  Status RunOps(size_t first, size_t end, int64_t n, bool reshaped, std::span<const int32_t> tokens, SequenceStore& cache);
  Status RunLayers(int64_t n, bool reshaped, std::span<const int32_t> tokens, SequenceStore& cache);
  Status RunPart(const Plan::Fetched& fetched, std::span<const int32_t> experts, int64_t rows, SequenceStore& cache);
  void GroupByExpert(const RouteOp& op);
  void GroupByHead(int64_t n);
  void GroupByOwner(std::span<const int32_t> tokens, const int32_t* rows);
  void TakeOwnExperts(const RouteOp& op);
  void CountRows(int64_t rows, int64_t routed);
  void GroupBySequence(int64_t n);
  void SetGiven(const StepBatch& batch);
  void FindOutputs(const StepBatch& batch);
  void TapStream(size_t next_op, int64_t rows) const;
  void KeepHidden(std::span<const int32_t> hidden_rows);
  static void MoveUp(const Mat<float>& x, std::span<const int32_t> rows);
  void CheckKvRange(const KvStoreOp& op, Site site);
  void CheckFinite(Mat<const float> m, std::span<const int32_t> logit_rows);
  void AddBad(BadRow bad);

  PlanOptions options_;
  Shard shard_;
  std::vector<Span> vocab_, experts_;  // of each process
  Executor& executor_;
  Plan plan_;
  std::vector<size_t> slots_;                            // executor indices of the plan's ops
  int64_t rows_ = 0, output_rows_ = 0, logit_rows_ = 0;  // rows that the ops are shaped for
  bool given_ = false;                                   // whether the last batch had given embeddings
  // The batch's rows with outputs; and of these, those with logits, by their place among them.
  std::vector<int32_t> outputs_, logits_of_outputs_;
  std::vector<float> hidden_;
  int64_t groups_ = 0;  // experts chosen by the last router
  std::vector<int32_t> next_of_expert_;
  std::vector<int32_t> rows_of_row_;  // [rows of the step]: how many rows this process's experts have for each
  LayerStore* layers_ = nullptr;
  // Of a layer whose experts are read from disk: the groups of all experts, with their rows.
  ExpertStore* store_ = nullptr;
  std::vector<RowGroup> all_groups_, missed_;
  std::vector<int32_t> all_tokens_, all_slots_, group_of_expert_;
  std::vector<ExpertUse> uses_;
  std::vector<int32_t> run_of_;  // by sequence: its run in this step
  std::vector<BadRow> bad_rows_;
  std::vector<float>* kept_ = nullptr;
  StreamTap stream_tap_;
  Around around_;
};

}  // namespace tally
