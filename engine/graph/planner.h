// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: compiles a recipe and its weights into the ops of a plan.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/graph/plan.h"

namespace tally {

// Divides one block of memory into buffers. An arena without memory only adds up their sizes; its buffers must not be used.
class Arena {
 public:
  explicit Arena(uint8_t* base = nullptr) : base_(base) {}
  template <class T>
  T* Take(uint64_t n) {
    const uint64_t at = used_;
    used_ = SaturatingAdd(used_, SaturatingMul(n / (64 / sizeof(T)) + 1, 64));
    alignas(64) static uint8_t nowhere[64];
    return reinterpret_cast<T*>(base_ != nullptr ? base_ + at : nowhere);
  }
  uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t used_ = 0;
};

// The layout of the cache of a layer's attention, for the KV heads of a part.
KvLayout AttentionLayout(const LayerRecipe& layer, const LayerPart& part, KvType type);
// Latent attention has one head, whose value is a part of its key. Every process with query heads has it.
KvLayout LatentLayout(const LayerRecipe& layer, const LayerPart& part, KvType type);
// The state of a recurrent mixer's part. It is f32, whatever the type of keys and values.
StateLayout RecurrentLayout(const LayerRecipe& layer, const LayerPart& part, Mixer mixer);

// The cache or state of earlier positions that a mixer of a layer keeps.
struct LayerCache {
  int32_t layer = 0;
  Mixer mixer{};
  int32_t window = 0;  // positions that a query sees, its own included; 0: all
  KvLayout layout;     // of attention
  StateLayout state;   // of a recurrent mixer
  bool recurrent = false;
  // True if the shard keeps nothing of it.
  bool empty() const { return recurrent ? state.channels == 0 : layout.kv_heads == 0; }
};
// In the order of KvLayers.
std::vector<LayerCache> LayerCaches(const Recipe& recipe, KvType type, const Shard& shard);

class Planner {
 public:
  Planner(const PlanSource& source, const PlanOptions& options, Arena& arena, Plan& plan)
      : r_(source.recipe),
        source_(source),
        options_(options),
        arena_(arena),
        plan_(plan),
        shard_(source.shard),
        n_(options.max_batch),
        caches_(LayerCaches(r_, options.kv, shard_)) {}

  void Make();

 private:
  // The pack of a block's input: matrices of one format share it.
  using SharedPack = std::optional<ActPack>;
  struct Projection {
    bool add_to_out = false;
    bool bias = true;  // if the role has one
    ActivationKind activation = ActivationKind::kNone;
    SharedPack* shared = nullptr;
  };
  struct RopeTurns {
    Mat<float> cos, sin;  // [max_batch, dim / 2]
  };
  // Heads of a matrix: head h has columns [h * stride, h * stride + dim) of `m`.
  struct Heads {
    Mat<float> m;
    int64_t stride, dim;
  };

  // The columns of a matrix that a process has; `part`: of the layer at hand.
  using Columns = std::function<std::vector<Span>(const Shard& shard, const LayerPart& part)>;

  // planner.cc
  Mat<float> Floats(int64_t cols, int64_t rows_each = 1);
  void Buffers();
  void Embed();
  void EmbedTokens(Role table, float scale, Mat<float> out);
  void EmbedLayers();
  void LayerEmbedding();
  void Turns(const Rope& rope, const RopeFrequencies& frequencies, RopeTurns& turns);
  void Layer();
  Role Mix(Mixer mixer, Mat<const float> in);
  void Norm(Role role, Mat<const float> in, Mat<float> out);
  void AddOutput(Role norm, Role last, const Span& part);
  void AddNormed(Role role, float eps, Mat<const float> x, Mat<float> out);
  ActFormat FormatFor(Role role) const;
  ActPack Pack(Role role, Mat<const float> in, SharedPack* shared = nullptr);
  void Project(Role role, Mat<const float> in, Mat<float> out) { Project(role, in, out, {}); }
  void Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p);
  void Multiply(Role role, const ActPack& pack, Mat<float> out, const Projection& p);
  void ProjectOut(Role role, Mat<const float> in, const Span& part);
  void ProjectOut(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns, const Span& part);
  void Scale(Role role, Mat<float> x, float factor);
  void DenseFeedForward(Mat<const float> in);
  void ScaleHidden(Role role, Mat<float> own, int64_t cols);
  void FeedForwards(Mat<float> in);
  void SparseFeedForward(Mat<float> in);
  void SharedActivation(Mat<float> in);
  void SharedExperts(Mat<const float> in, Mat<float> out);
  void FirstMatrices(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index = nullptr,
                     RowsOf of = RowsOf::kBatch);
  void ApplyXielu(Role role, Mat<float> hidden);
  ActPack PackRouted(Role role, Mat<const float> in, const int32_t* index, RowsOf of);

  // In every mixer's file: the buffers that all layers of its kind share, and the block. The block's last matrix is ProjectOut's.

  // planner_prediction.cc
  void Predict();

  // planner_attention.cc
  void AttentionBuffers();
  void Attention(Mat<const float> in);
  Mat<float> AttentionOfHeads(Mat<const float> in);
  void StoreKv(Mixer mixer, Mat<const float> k, Mat<const float> v, const KvLayout& layout);
  void Attend(Mixer mixer, Mat<const float> q, Mat<float> out, const Span& heads, const KvLayout& layout);
  void Partials(int64_t heads, int64_t v_dim);
  void QkNorms(Mat<float> q, Mat<float> k);
  void WholeQkNorms(Mat<float>& q, Mat<float>& k);
  void QkNorm(Role role, Mat<float> x, int64_t groups);
  void Rotate(const Heads& x, int64_t heads, const Heads* out = nullptr);

  // planner_latent.cc
  void LatentBuffers();
  void LatentAttention(Mat<const float> in);
  void LatentHeads(Mat<const float> in);
  void ProjectHeads(Role role, const Heads& in, const Heads& out);

  // planner_conv.cc
  void ConvBuffers();
  void ShortConv(Mat<const float> in);
  void Convolve(Mat<const float> in, Mat<float> made, Mat<float> out);

  // planner_delta.cc
  void DeltaBuffers();
  void DeltaNet(Mat<const float> in);
  void DeltaHeads(Mat<const float> in, int64_t heads, Mat<float> out);
  void DeltaGates(Mat<const float> in, Mat<float> gate, Mat<float> beta, Mat<float> step, SharedPack& shared);

  // planner_mamba.cc
  void MambaBuffers();
  void Mamba(Mat<const float> in);
  Mat<float> MambaHeads(Mat<const float> in, Mat<float> out);

  const LayerRecipe& layer() const {  // of the layer at hand
    assert(layer_ >= 0);
    return r_.layer(layer_);
  }
  // The cache of this layer's mixer, or of the layer that it reads; an index of KvLayers.
  int32_t CacheOf(Mixer mixer) const;
  const Rope& LayersRope() const { return layer().attention.rope == LayerRope::kLocal ? r_.local_rope : r_.rope; }
  bool Rotates() const { return layer().attention.rope != LayerRope::kNone && LayersRope().style != RopeStyle::kNone; }
  // True if a block has an output of its own, which AddOutput brings into the residual stream.
  bool OwnOutput() const { return layer().residual.own_output(); }
  // The destination of a block's last op: the residual stream, to which it adds, or the block's output, to which the second and later parts
  // of a block are added.
  struct Destination {
    Mat<float> out;
    bool add = false;
  };
  Destination Out(const Span& part);

  // Several processes that run one model.
  //
  // A part of the planned work: kWhole: every process does it; kOwn: each does its part; kOfKvHeads, kOfGroups: as kOwn, but processes that
  // share a KV head, or a group of Mamba-2, do it for the same one.
  enum class Work : uint8_t { kWhole, kOwn, kOfKvHeads, kOfGroups };
  // Sets the work of what is planned while it lives.
  class As {
   public:
    As(Planner& planner, Work work) : planner_(planner), before_(std::exchange(planner.work_, work)) {}
    As(const As&) = delete;
    As& operator=(const As&) = delete;
    ~As() { planner_.work_ = before_; }

   private:
    Planner& planner_;
    Work before_;
  };
  bool IsCopy() const;
  LayerPart PartOn(const Shard& shard) const;
  bool IsDivided(const Columns& columns, int64_t cols) const;
  GatherRoom& NewGather(const Columns& columns);
  Mat<float> Whole(Component component, Mat<float> own, int64_t cols, const Columns& columns, float* to = nullptr);
  ActPack PackWhole(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns);
  void GatherInPlace(Component component, Mat<float> m, const Columns& columns);
  void EndBlock(Role norm, Role last, const Span& part, bool ends, const Columns& columns);
  void EmbedOwned(Role table, float scale, Mat<float> out);
  Mat<float> GatherSlots(Mat<float> own);
  void Head();
  void ShardBuffers(Mat<float> logits);
  void AddMatMul(Role role, MatMulOp op);
  void Room(int64_t cols, int64_t rows_each = 1);
  void CopiedWeights(std::initializer_list<WeightView> weights);

  WeightView Get(Role role) const { return source_.weight(role, layer_); }
  WeightView GetBias(Role role) const { return FactsOf(role).biased ? Get(BiasOf(role)) : WeightView(); }

  template <class Op>
  void Add(Component component, Op op) {
    plan_.ops.push_back(
        {.sites = {Site{layer_, component}}, .rows = rows_, .op = std::move(op), .copied = {.all = IsCopy(), .part = {}}});
  }
  // Charges the op at the site of the role's weight.
  template <class Op>
  void Add(Role role, Op op) {
    Add(FactsOf(role).component, std::move(op));
  }

  const Recipe& r_;
  const PlanSource& source_;
  const PlanOptions& options_;
  Arena& arena_;
  Plan& plan_;
  const Shard shard_;
  LayerPart part_;  // of the layer at hand
  Work work_ = Work::kWhole;
  bool mixing_ = false;  // true while a mixer is planned
  const int64_t n_;      // max_batch
  const std::vector<LayerCache> caches_;
  int32_t layer_ = -1;
  RowsOf rows_ = RowsOf::kBatch;
  bool block_has_output_ = false;

  // The first columns of a buffer, packed: layers differ in width, and their rows follow one another.
  Mat<float> First(Mat<float> buffer, int64_t cols) const { return {buffer.data, n_, cols}; }
  // Packs have room for the widest input of a matrix that Widest() was told of.
  uint64_t PackBytes() const;
  void Widest(int64_t cols) { widest_ = std::max(widest_, cols); }
  std::span<const KvRow> Rows() const { return {plan_.kv_rows, static_cast<size_t>(n_)}; }
  StateRuns Runs() const { return {{plan_.state_runs, static_cast<size_t>(n_)}, {plan_.state_order, static_cast<size_t>(n_)}}; }

  int64_t widest_ = 0;
  uint64_t gathered_floats_ = 0;
  std::span<float> sent_, received_;
  Mat<float> own_logits_;
  float *gathered_ = nullptr, *whole_q_ = nullptr, *whole_k_ = nullptr;
  Mat<float> narrow_, normed_, ffn_normed_, block_out_, q_, k_, v_, attended_, hidden_, up_, expert_in_, expert_out_, router_,
      route_weights_, shared_out_, shared_gate_, temperature_, attn_gate_, latent_in_, latent_out_, beside_, router_in_,
      layer_inputs_, layer_given_, layer_gate_;
  struct {
    Mat<float> q, q_low;   // [n, H (D_n + D_r)], [n, R_q]
    Mat<float> key;        // [n, R_kv + D_r]
    Mat<float> q_of_keys;  // [n, H (R_kv + D_r)]: the queries for the compressed keys
    Mat<float> attended;   // [n, H R_kv]
    Mat<float> values;     // [n, H D_v]
    Mat<float> gate;       // [n, H]
  } latent_;
  struct {
    Mat<float> in, out;  // [n, 3 E], [n, E]
  } conv_;
  struct {
    Mat<float> in, qkv;             // [n, channels]: before and after the convolution
    Mat<float> gate, out;           // [n, H_v N_v]
    Mat<float> beta;                // [n, H_v]
    Mat<float> step, decay;         // [n, H_v], or [n, H_v N_k]
    Mat<float> gate_low, step_low;  // [n, R_g]
  } delta_;
  struct {
    Mat<float> in;          // [n, H D + channels + H]: z, what is convolved, steps
    Mat<float> xbc;         // [n, channels], after the convolution
    Mat<float> decay;       // [n, H]
    Mat<float> out;         // [n, H D]
    Mat<float> whole_gate;  // [n, H D], of all processes
  } mamba_;
  AttentionPartials partials_;  // of the op that runs; without data until all layers have asked for room
  uint64_t partial_floats_ = 0;
  Mat<int32_t> route_experts_;
  RopeTurns turns_[2];  // of Recipe::rope and local_rope
  uint8_t *pack_ = nullptr, *own_pack_ = nullptr;
};

}  // namespace tally
