// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: compiles a recipe and its weights into the ops of a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "engine/base/checked.h"
#include "engine/graph/plan.h"

namespace tally {

// Hands out one block of memory. Without memory it only measures: what it hands out must not be used.
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

// The layout of a layer's cache. Latent attention: one head, whose value is a part of its key.
KvLayout KvLayoutOf(const Recipe& recipe, KvType type);

class Planner {
 public:
  Planner(const PlanSource& source, const PlanOptions& options, Arena& arena, Plan& plan)
      : r_(source.recipe), source_(source), options_(options), arena_(arena), plan_(plan), n_(options.max_batch) {}

  void Make();

 private:
  // The pack of a block's input: matrices of one format share it.
  using SharedPack = std::optional<ActPack>;
  struct Projection {
    bool add_to_out = false;
    bool bias = true;  // where the role has one
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

  // planner.cc
  Mat<float> Floats(int64_t cols, int64_t rows_each = 1);
  void Buffers();
  void LatentBuffers();
  void Embed();
  void Turns(const Rope& rope, const RopeFrequencies& frequencies, RopeTurns& turns);
  void Layer();
  void Norm(Role role, Mat<const float> in, Mat<float> out);
  void AddOutput(Role norm, Role last);
  ActFormat FormatFor(Role role) const;
  ActPack Pack(Role role, Mat<const float> in, SharedPack* shared = nullptr);
  void Project(Role role, Mat<const float> in, Mat<float> out) { Project(role, in, out, {}); }
  void Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p);
  void ProjectOut(Role role, Mat<const float> in);
  void DenseFeedForward(Mat<const float> in);
  void SparseFeedForward(Mat<const float> in);
  void SharedExperts(Mat<const float> in, Mat<float> out);
  void Gated(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index = nullptr);
  ActPack PackRouted(Role role, Mat<const float> in, const int32_t* index);

  // planner_attention.cc
  void Attention(Mat<const float> in);
  void LatentAttention(Mat<const float> in);
  void Attend(Mat<const float> q, Mat<const float> k, Mat<const float> v, Mat<float> out);
  void Partials();
  void QkNorms(Mat<float> q, Mat<float> k);
  void QkNorm(Role role, Mat<float> x, int64_t groups);
  void Rotate(const Heads& x, int64_t heads, const Heads* out = nullptr);
  void ProjectHeads(Role role, const Heads& in, const Heads& out);

  const LayerRecipe& layer() const { return r_.layers[static_cast<size_t>(layer_)]; }
  bool Latent() const { return r_.latent.kv_rank > 0; }
  const Rope& LayersRope() const { return layer().rope == LayerRope::kLocal ? r_.local_rope : r_.rope; }
  bool Rotates() const { return layer().rope != LayerRope::kNone && LayersRope().style != RopeStyle::kNone; }
  // A block has an output of its own, which AddOutput brings into the residual stream.
  bool OwnOutput() const { return r_.post_norms || r_.residual_scale != 1; }

  WeightView Get(Role role) const { return source_.weight(role, layer_); }
  WeightView GetBias(Role role) const { return FactsOf(role).biased ? Get(BiasOf(role)) : WeightView(); }

  template <class Op>
  void Add(Component component, Op op) {
    plan_.ops.push_back({{Site{layer_, component}}, rows_, std::move(op)});
  }
  // Charged where the role's weight is.
  template <class Op>
  void Add(Role role, Op op) {
    Add(FactsOf(role).component, std::move(op));
  }

  const Recipe& r_;
  const PlanSource& source_;
  const PlanOptions& options_;
  Arena& arena_;
  Plan& plan_;
  const int64_t n_;  // max_batch
  int32_t layer_ = -1;
  RowsOf rows_ = RowsOf::kBatch;

  Mat<float> normed_, ffn_normed_, block_out_, qkv_, k_, v_, attended_, hidden_, up_, expert_in_, expert_out_, router_,
      route_weights_, shared_out_, shared_gate_, temperature_;
  Mat<float> q_low_, latent_q_, latent_out_;  // latent attention: [n, R_q], [n, H (R_kv + D_r)], [n, H R_kv]
  Mat<int32_t> route_experts_;
  RopeTurns turns_[2];  // of Recipe::rope and local_rope
  uint8_t* pack_ = nullptr;
};

}  // namespace tally
