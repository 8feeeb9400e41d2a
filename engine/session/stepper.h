// SPDX-License-Identifier: Apache-2.0
// The engine of a loaded model: its team, decoder, sequence store, executor and ledger. Internal to the session.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/exec/executor.h"
#include "engine/graph/decoder.h"
#include "engine/graph/sequence_store.h"
#include "engine/machine/parallel.h"
#include "engine/session/engine.h"
#include "engine/session/group.h"
#include "engine/session/loaded_model.h"
#include "engine/session/predictor.h"
#include "engine/session/stepper_options.h"

namespace tally {

class Stepper final : public Engine, public Probe {
 public:
  // Errors as NewEngine, but for those of CheckOptions.
  static Result<std::unique_ptr<Stepper>> Create(std::shared_ptr<const LoadedModel> model, const EngineOptions& options);

  SequenceStore& store() { return *store_; }
  Executor& executor() { return executor_; }
  Decoder& decoder() { return *decoder_; }

  const MemoryPlan& memory_plan() const override { return plan_; }
  int64_t max_batch() const override { return options_.plan.max_batch; }
  int64_t max_logit_rows() const override { return options_.plan.max_logit_rows; }
  int64_t max_requests() const override {
    return std::min<int64_t>(options_.sequences, options_.plan.max_logit_rows - options_.draft_rows);
  }
  int64_t draft_rows() const override { return options_.draft_rows; }
  Result<int32_t> NewSequence() override;
  Result<int32_t> Fork(int32_t sequence, int64_t length) override;
  Result<int32_t> Copy(int32_t sequence) override;
  Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) override;
  int64_t Reusable(std::string_view key, std::span<const int32_t> tokens, std::span<const PrefixRow> rows) const override {
    return store_->Reusable(key, tokens, rows);
  }
  void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states) override;
  int64_t Length(int32_t sequence) const override { return store_->Length(sequence); }
  int64_t NextPosition(int32_t sequence) const override { return store_->NextPosition(sequence); }
  Status Truncate(int32_t sequence, int64_t length) override;
  Status KeepDrafts(int32_t sequence, int64_t accepted) override;
  bool predicts() const override { return predictor_ != nullptr; }
  Result<std::span<const std::vector<int32_t>>> Predict(std::span<const DraftWish> wishes) override;
  void Free(int32_t sequence) override;
  Status Export(int32_t sequence, const SequenceStore::Sink& write) const override;
  Result<uint64_t> ExportedBytes(int32_t sequence) const override;
  Result<int32_t> Import(const SequenceStore::Source& read) override;
  uint64_t KvBudget() const override { return store_->Budget(); }
  uint64_t KvBytesInUse() const override { return store_->BytesInUse(); }
  uint64_t KvBytesOf(int32_t sequence) const override { return store_->BytesHeld(sequence); }
  uint64_t KvBytesFor(int64_t positions) const override { return store_->BytesFor(positions); }
  uint64_t Fingerprint() const override;
  Result<StepOutput> Step(std::span<const BatchRow> rows) override;
  Ledger& ledger() override { return ledger_; }
  Status Health() const override { return failed_group_.load() ? group_->status() : Status(); }
  int32_t OpenBill() override;
  Bill CloseBill(int32_t bill) override;
  Result<std::vector<ProcessBooks>> Books() override;
  const Model& model() const override { return *model_; }
  std::string_view target() const override { return HwyTargetName(); }
  bool used_blas() const override { return executor_.used_blas(); }
  KvType kv_type() const override { return options_.plan.kv; }
  ActivationMode activations() const override { return options_.plan.activations; }
  int threads() const override { return team_.threads(); }
  int processes() const override { return group_ != nullptr ? group_->ranks() : 1; }
  void SetTap(Executor::Tap tap) override;
  void SetStreamTap(Decoder::StreamTap tap) override { decoder_->SetStreamTap(std::move(tap)); }
  void SetRecorder(Recorder recorder) override;
  Status RecordRanks() override;
  Result<std::vector<RankOps>> RankRecords() override;
  void EnableExplain() override { executor_.EnableExplain(); }
  std::vector<std::string> Explanations() const override;
  void SetBeforePass(std::function<void(const PredictionPass&)> before) override { before_pass_ = std::move(before); }
  const ProbedWeights* weights() const override { return &probed_; }
  Probe& probe() override { return *this; }

  // What the first process of a group makes the others do (commands.inc) besides the engine's own calls.
  void ResetLedger() { ledger_.Reset(); }
  // `in_use`: the first one's KvBytesInUse(). Another number ends the group: kInternal.
  void FollowStep(uint64_t in_use, std::span<const BatchRow> rows);
  Status SendBadRows();
  Status Repeat(std::span<const BatchRow> rows, int64_t before);
  Result<std::vector<ProcessBooks>> GatherBooks();
  Result<std::vector<uint64_t>> PartBytes(int32_t sequence) const;
  void FollowExport(int32_t sequence) { (void)Export(sequence, nullptr); }
  void FollowImport(std::span<const uint64_t> parts) { (void)ImportParts(parts, nullptr); }
  ~Stepper() override;

 private:
  Stepper(std::shared_ptr<const LoadedModel> model, const EngineOptions& options);
  // The rows of a sequence in a step.
  struct Extent {
    int32_t sequence = 0;
    int64_t before = 0;  // its length before the step
    int64_t next = 0;    // the position of its next row, if none is given
    int64_t last = 0;    // of the row after those of the step
    int64_t rows = 0;
    bool ran = false;  // there was room for them
    bool failed = false;
    int64_t drafts = 0;      // of the rows, the last ones; until KeepDrafts
    int32_t bill = kNoBill;  // of the drafts
  };
  // A batch for the decoder.
  struct Rows {
    std::vector<int32_t> tokens, logit_rows, hidden_rows;
    std::vector<KvRow> kv_rows;
    std::vector<RowPosition> positions;
    std::vector<GivenRow> given;
    void Clear();
    // `next`: the position of the row if none is given; becomes that of the sequence's next row.
    void Add(const BatchRow& row, int64_t place, int64_t& next);
    StepBatch Batch() const { return {tokens, kv_rows, logit_rows, hidden_rows, positions, given}; }
  };

  Result<StepOutput> RunStep(std::span<const BatchRow> rows);
  Status TellStep(std::span<const BatchRow> rows);
  Status FindBadRows();
  void TellReset();
  void NoteGroup() const {
    if (group_ != nullptr && !group_->status().ok()) failed_group_ = true;
  }
  Status GatherBill(Bill& bill);
  Status HaveLength(int32_t sequence);
  Result<int32_t> ImportParts(std::span<const uint64_t> parts, const SequenceStore::Source& read);
  Status Prepare(std::span<const BatchRow> rows);
  Status CheckRows(std::span<const BatchRow> rows);
  Status CheckGiven(std::span<const BatchRow> rows) const;
  Status CheckEmbedding(const BatchRow& row) const;
  Status CheckPosition(const RowPosition& at) const;
  int64_t PositionLimit() const;  // of one sequence
  bool TurnsByThree() const { return !rope_.global.axes.empty() || !rope_.local.axes.empty(); }
  Status MakeRoom(const Extent& extent);
  void Fail(Extent& extent, Status status);
  Status TakeBack(Status cause, const Extent& extent);
  Status TakeAllBack(Status cause);
  void MarkInVain();
  void FailBadRows(std::span<const BatchRow> rows, Mat<const float>& logits);
  Status WhyBad(std::span<const BatchRow> rows, const Extent& extent, std::span<const Decoder::BadRow> bad);
  std::string FirstNonFinite(std::span<const BatchRow> rows, const Extent& extent);
  StepOutput Output(std::span<const BatchRow> rows, Mat<const float> logits);
  Extent& ExtentOf(int32_t sequence);
  void Record(const OpRecord& op);
  void Keep(const OpRecord& op);
  void SetExecutorRecorder();
  void NextRecordedStep() {
    ++recorded_steps_;
    recorded_ops_ = 0;
  }

  Status TakeOutput();
  Status CheckMemory();
  Status Start();
  Status StartPredictor(const PlanSource& stack);

  std::shared_ptr<const LoadedModel> model_;
  Communicator* const group_;         // null: this process alone
  Communicator::Traffic start_;       // until the engine was made
  GroupLog* const log_;               // the model's; null: not the first process of a group
  int32_t id_ = 0;                    // of the engine, for the others
  uint64_t resets_ = 0;               // of the ledger, that the others know of
  std::vector<Decoder::BadRow> bad_;  // of the last step, of all processes
  mutable std::atomic<bool> failed_group_{false};
  mutable Team team_;  // changes nothing of the engine
  const Recipe& recipe_;
  const std::vector<const Recipe*> stacks_;  // that it runs
  const ProbedWeights probed_;
  StepperOptions options_;
  RopePair rope_;
  const std::vector<PlanSource> sources_;  // of stacks_
  MemoryPlan plan_;
  PlannedBytes planned_;
  Ledger ledger_;
  Executor executor_;
  Executor::Tap tap_;
  Recorder recorder_;
  bool repeating_ = false;                          // runs rows again to find the first op whose output is not finite
  std::optional<RankOps> kept_;                     // RecordRanks
  uint64_t recorded_steps_ = 0, recorded_ops_ = 0;  // steps since the recorder was set; ops of the current step
  std::vector<SequenceRows> recorded_sequences_;
  int64_t recorded_logits_ = 0;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<SequenceStore> store_;
  std::unique_ptr<Predictor> predictor_;  // null: EngineOptions::prediction is not set
  std::function<void(const PredictionPass&)> before_pass_;
  // Of the last layer, [rows of the step, d_model]: while a step runs, and of the step while rows are run again.
  std::vector<float> output_, step_output_;
  // The current step, without the rows of sequences that had no room.
  Rows rows_;
  std::vector<BookedRow> booked_;
  std::vector<Extent> extents_;     // of all its sequences
  std::vector<int32_t> extent_of_;  // by sequence: its place in extents_; -1: none
  std::vector<SequenceError> failed_;
  std::vector<int32_t> output_rows_, output_hidden_rows_;  // StepOutput::logit_rows, hidden_rows
  std::vector<float> hidden_;                              // StepOutput::hidden
  std::vector<float> kept_logits_;                         // while the rows of a failed sequence run again
};

}  // namespace tally
