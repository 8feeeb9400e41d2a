// The decoder graph: embedding, blocks of attention and feed-forward, head; every arithmetic step through the executor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/exec/executor.h"
#include "engine/graph/kv_pool.h"
#include "engine/kernels/act_pack.h"
#include "engine/recipe/recipe.h"
#include "engine/recipe/rope_freqs.h"
#include "engine/weights/weights.h"

namespace tally {

ActKind ActKindFor(DType weight, ActivationMode mode);

// What a KV pool for the recipe holds, layer by layer.
std::vector<KvLayerSpec> KvLayers(const Recipe& recipe, KvType type);

struct DecoderOptions {
  ActivationMode activations = ActivationMode::kAuto;
  KvType kv = KvType::kF16;
  int64_t max_batch = 512;
  int64_t max_logit_rows = 1;  // of a batch
};

// One step: row i is `tokens[i]` at `kv_rows[i].position` of cache table `kv_rows[i].table`.
struct StepBatch {
  std::span<const int32_t> tokens;
  std::span<const KvRow> kv_rows;
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
};

class Decoder {
 public:
  // `recipe` and `weights` must outlive the decoder. kBadInput: rope parameters that make no frequencies.
  static Result<std::unique_ptr<Decoder>> Create(const Recipe& recipe, const PackedWeights& weights, DecoderOptions options);
  // Bytes that a decoder, the executor's scratch and max_logit_rows rows of logits will take at most.
  static uint64_t PlanBytes(const Recipe& recipe, const DecoderOptions& options, int threads);

  // Writes logits [logit_rows, vocab], at most max_logit_rows of them. The cache must already reach every position of the batch.
  Status Forward(Executor& exec, const StepBatch& batch, const KvPool& cache, Mat<float> logits);
  // Whether the last layer's output was finite in the rows of the last Forward that have no logits to show it.
  bool finite() const { return finite_; }

 private:
  Decoder(const Recipe& recipe, const PackedWeights& weights, DecoderOptions options);
  struct Sizes;

  Status Embed(Executor& exec, const StepBatch& batch);
  Status RopeTables(Executor& exec, const StepBatch& batch);
  Status AttentionBlock(Executor& exec, int32_t layer, const StepBatch& batch, const KvPool& cache);
  Status Project(Executor& exec, int32_t layer, Component component, Role weight, Role bias, const Mat<const float>& in,
                 Mat<float> out, bool add_to_out, ActivationKind activation = ActivationKind::kNone);
  Status FeedForward(Executor& exec, int32_t layer);
  Status DenseFeedForward(Executor& exec, int32_t layer);
  Status SparseFeedForward(Executor& exec, int32_t layer);
  Status Head(Executor& exec, const StepBatch& batch, Mat<float> logits);
  Status Norm(Executor& exec, Site site, Role weight, Role bias, Mat<const float> in, Mat<float> out, int64_t groups = 1);

  // Packs `in` for `weight`, unless the pack at hand is already that.
  Result<ActPack> Pack(Executor& exec, Site site, Mat<const float> in, ActFormat format, std::span<const int32_t> row_index = {},
                       std::span<const RowGroup> groups = {});
  const WeightView& Get(Role role, int32_t layer = -1) const { return weights_.Get(role, layer); }
  void RouteRows(int64_t n);

  const Recipe& recipe_;
  const PackedWeights& weights_;
  DecoderOptions options_;
  RopeFrequencies rope_;

  int64_t rows_ = 0;  // of the step under way
  bool finite_ = true;
  AlignedBuffer<float> x_, normed_, q_, k_, v_, attended_, hidden_, expert_out_, router_, cos_, sin_, route_weights_;
  AlignedBuffer<int32_t> route_experts_;
  AlignedBuffer<uint8_t> pack_;
  std::vector<int32_t> positions_;

  // The pack at hand.
  const float* packed_from_ = nullptr;
  ActFormat packed_format_;
  RowGroup single_group_;

  // Rows of the step grouped by expert.
  std::vector<RowGroup> groups_;
  std::vector<int32_t> group_tokens_, group_slots_, expert_begin_;
};

}  // namespace tally
