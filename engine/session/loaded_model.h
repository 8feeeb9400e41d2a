// SPDX-License-Identifier: Apache-2.0
// The Model that LoadModel makes; internal to the session.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/graph/decoder.h"
#include "engine/session/engine_plan.h"
#include "engine/session/group.h"
#include "engine/session/model.h"
#include "engine/session/probe.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/fingerprint.h"
#include "engine/weights/weights.h"

namespace tally {

// LoadModel, with a reader of experts' records of the caller's in front of the one that it opens: for tests of disks that fail. Internal.
using RecordsThrough = std::function<std::unique_ptr<RecordReader>(std::unique_ptr<RecordReader>)>;
Result<std::shared_ptr<const Model>> LoadModelThrough(const std::string& path, const EngineOptions& engine,
                                                      const RecordsThrough& through);

class LoadedModel final : public Model {
 public:
  ~LoadedModel() override;
  const Recipe& recipe() const override { return spec_.recipe; }
  const Tokenizer* tokenizer() const override { return tokenizer_.get(); }
  const Status& tokenizer_status() const override { return tokenizer_status_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  const Result<std::vector<ChatTemplateSource>>& chat_templates() const override { return chat_templates_; }
  const MemoryPlan& memory_plan() const override { return plan_; }
  const ParameterCounts& parameters() const override { return parameters_; }
  const books::NotRun& not_run() const override { return not_run_; }
  std::string Description() const override { return description_; }
  std::span<const DType> matrix_types() const override { return matrix_types_; }
  const PackedWeights& weights() const { return weights_; }
  const ModelSpec& spec() const { return spec_; }  // with the stacks that were asked for
  const Shard& shard() const { return shard_; }
  Communicator* group() const { return group_; }  // null: this process alone
  GroupLog* log() const { return log_.get(); }    // null: not the first process of a group
  // KV and scratch that its living engines have planned.
  std::atomic<uint64_t>& engine_bytes() const { return engine_bytes_; }
  // `stacks`: of StacksToRun.
  ProbedWeights Probed(std::span<const Recipe* const> stacks) const {
    return {.stacks = stacks, .stored = table_, .types = types_, .packed = &weights_, .shard = &shard_};
  }
  // The inputs of an engine's plans, with what MakeRope gives for its context. `stacks`: of StacksToRun.
  std::vector<PlanSource> Sources(std::span<const Recipe* const> stacks, const RopePair& rope) const {
    const auto weight = [this](Role role, int32_t layer) { return weights_.Get(role, layer); };
    return SourcesOf(stacks, weight, rope, shard_, group_, weights_.experts(), weights_.layers());
  }
  Result<RopePair> MakeRope(int64_t context) const {
    RopePair rope;
    const StoredRopeFactors stored = {weights_.HostVector(Role::kRopeFactors), weights_.HostVector(Role::kRopeShortFactors),
                                      weights_.HostVector(Role::kRopeLongFactors)};
    TALLY_ASSIGN_OR_RETURN(rope.global, MakeRopeFrequencies(spec_.recipe.rope, stored, context));
    TALLY_ASSIGN_OR_RETURN(rope.local, MakeRopeFrequencies(spec_.recipe.local_rope, {}, context));
    return rope;
  }
  // The fingerprint of all weights (engine/weights/fingerprint.h). The first call computes it on its team; later calls return at once. Any
  // thread.
  uint64_t WeightsFingerprint(Team& team) const {
    const Team::Turn turn(team);  // before the lock: a thread that has the turn may come to wait for it
    const std::lock_guard lock(fingerprint_mutex_);
    if (!fingerprint_) fingerprint_ = FingerprintOf(weights_, team);
    return *fingerprint_;
  }

 private:
  friend class ModelLoader;

  ModelSpec spec_;
  Shard shard_;
  Communicator* group_ = nullptr;
  std::unique_ptr<GroupLog> log_;  // of the first process of a group
  std::unique_ptr<Tokenizer> tokenizer_;
  Status tokenizer_status_;
  std::vector<std::string> notes_;
  Result<std::vector<ChatTemplateSource>> chat_templates_ = std::vector<ChatTemplateSource>();
  MemoryPlan plan_;
  ParameterCounts parameters_;
  books::NotRun not_run_;
  PackedWeights weights_;
  std::vector<WeightInfo> table_;  // weight table from the file headers (books/weight_table.h)
  std::vector<DType> types_;       // stored type of each entry of table_
  std::vector<DType> matrix_types_;
  std::string description_;
  mutable std::atomic<uint64_t> engine_bytes_{0};  // KV and scratch planned by its living engines
  mutable std::mutex fingerprint_mutex_;
  mutable std::optional<uint64_t> fingerprint_;
};

// Registers the bytes that an engine plans besides the weights with the model, for the engine's lifetime.
class PlannedBytes {
 public:
  PlannedBytes(const LoadedModel& model, uint64_t bytes)
      : total_(model.engine_bytes()), bytes_(bytes), others_(total_.fetch_add(bytes)) {}
  PlannedBytes(const PlannedBytes&) = delete;
  PlannedBytes& operator=(const PlannedBytes&) = delete;
  ~PlannedBytes() { total_.fetch_sub(bytes_); }
  uint64_t others() const { return others_; }  // of the model's other engines, at creation

 private:
  std::atomic<uint64_t>& total_;
  uint64_t bytes_, others_;
};

}  // namespace tally
