// SPDX-License-Identifier: Apache-2.0
// The block of a gated delta net (Yang et al. 2024; Qwen3NextGatedDeltaNet of transformers): queries, keys and values go through a
// causal convolution and SiLU, queries and keys are brought to length 1, the recurrence is run, and each head's output is normalised
// and gated. Kimi Delta Attention (Kimi Team 2025) is the same with a decay for each element of the keys.
#include <algorithm>
#include <cmath>

#include "engine/graph/block_planner.h"

namespace tally {
namespace {

int64_t ValueHeads(const LayerPart& part) {
  int64_t n = 0;
  for (const Span& v : part.delta.value_heads) n += v.size();
  return n;
}

StateLayout DeltaLayout(const LayerRecipe& l, const LayerPart& part) {
  const DeltaRule& d = l.delta;
  const int64_t keys = part.delta.key_heads.size(), values = ValueHeads(part);
  return {.recurrence = DeltaRuleOp::StateOf(values, d.key_dim, d.value_dim),
          .replay = DeltaRuleOp::ReplayOf(keys, values, d.key_dim, d.value_dim, d.channel_decay ? d.key_dim : 1),
          .taps = d.taps,
          .channels = 2 * keys * d.key_dim + values * d.value_dim};
}

class DeltaPlanner final : public BlockPlanner {
 public:
  using BlockPlanner::BlockPlanner;
  void Buffers() override;
  Role Make(Mat<float> in) override;

 private:
  void PlanHeads(Mat<const float> in, int64_t heads, Mat<float> out);
  void PlanGates(Mat<const float> in, Mat<float> gate, Mat<float> beta, Mat<float> step, SharedPack& shared);

  Mat<float> in_, qkv_;             // [n, channels]: before and after the convolution
  Mat<float> gate_, out_;           // [n, H_v N_v]
  Mat<float> beta_;                 // [n, H_v]
  Mat<float> step_, decay_;         // [n, H_v], or [n, H_v N_k]
  Mat<float> gate_low_, step_low_;  // [n, R_g]
};

void DeltaPlanner::Buffers() {
  const DeltaRule& d = DeltaOf(b_.recipe());
  const int64_t out = int64_t{d.value_heads} * d.value_dim;
  b_.Room(out);
  const int64_t channels = 2 * int64_t{d.key_heads} * d.key_dim + out;
  in_ = b_.Floats(channels);
  qkv_ = b_.Floats(channels);
  const int64_t decays = int64_t{d.value_heads} * (d.channel_decay ? d.key_dim : 1);
  gate_ = b_.Floats(out);
  step_ = b_.Floats(decays);
  beta_ = b_.Floats(d.value_heads);
  decay_ = b_.Floats(decays);
  out_ = b_.Floats(out);
  if (d.gate_rank > 0) {
    gate_low_ = b_.Floats(d.gate_rank);
    step_low_ = b_.Floats(d.gate_rank);
  }
  b_.Widest(std::max<int64_t>(out, d.gate_rank));
}

Role DeltaPlanner::Make(Mat<float> in) {
  const DeltaRule& d = b_.layer().delta;
  const int64_t heads = ValueHeads(b_.part());
  const Mat<float> own = b_.First(out_, heads * d.value_dim);
  if (heads > 0) PlanHeads(in, heads, own);
  const Columns values = [dim = int64_t{d.value_dim}](const Shard&, const LayerPart& p) {
    std::vector<Span> columns;
    for (const Span& v : p.delta.value_heads) columns.push_back({v.begin * dim, v.end * dim});
    return columns;
  };
  b_.ProjectOut(Role::kSsmOut, Component::kRecurrentNorm, own, int64_t{d.value_heads} * d.value_dim, values, b_.part().mixed);
  return Role::kSsmOut;
}

// Plans this process's value heads.
void DeltaPlanner::PlanHeads(Mat<const float> in, int64_t heads, Mat<float> out) {
  const DeltaRule& d = b_.layer().delta;
  const int64_t key_heads = b_.part().delta.key_heads.size(), keys = key_heads * d.key_dim, values = heads * d.value_dim;
  const StateLayout layout = DeltaLayout(b_.layer(), b_.part());
  const Mat<float> made = b_.First(in_, 2 * keys + values), qkv = b_.First(qkv_, 2 * keys + values),
                   gate = b_.First(gate_, values), beta = b_.First(beta_, heads);
  const int64_t decays = heads * (d.channel_decay ? d.key_dim : 1);
  const Mat<float> step = b_.First(step_, decays), decay = b_.First(decay_, decays);
  SharedPack shared;
  b_.Project(Role::kDeltaQ, in, made.Cols(0, keys), {.shared = &shared});
  b_.Project(Role::kDeltaK, in, made.Cols(keys, keys), {.shared = &shared});
  b_.Project(Role::kDeltaV, in, made.Cols(2 * keys, values), {.shared = &shared});
  PlanGates(in, gate, beta, step, shared);
  const As as(b_, Work::kOwn);
  const auto convolve = [&](Role role, int64_t first, int64_t channels) {
    b_.Add(role, CausalConvOp{.x = made.Cols(first, channels),
                              .taps = b_.Get(role),
                              .activation = ActivationKind::kSilu,
                              .layout = layout,
                              .first_channel = first,
                              .runs = b_.Runs(),
                              .states = {},
                              .out = qkv.Cols(first, channels)});
    b_.last().cache = b_.CacheOf(Mixer::kDeltaRule);
  };
  if (d.channel_decay) {
    convolve(Role::kDeltaConvQ, 0, keys);
    convolve(Role::kDeltaConvK, keys, keys);
    convolve(Role::kDeltaConvV, 2 * keys, values);
  } else {
    convolve(Role::kSsmConv, 0, made.cols);
  }
  const Mat<float> q = qkv.Cols(0, keys), k = qkv.Cols(keys, keys), v = qkv.Cols(2 * keys, values);
  for (const Mat<float>& x : {q, k}) {
    b_.Add(Component::kRecurrentNorm,
           NormOp{.kind = NormKind::kL2, .x = x, .groups = key_heads, .weight = {}, .bias = {}, .eps = d.l2_norm_eps, .out = x});
  }
  b_.Add(Component::kRecurrentRates, RatesOp{.x = step,
                                             .bias = b_.Get(Role::kSsmDtBias),
                                             .a = b_.Get(Role::kSsmA),
                                             .bound = d.decay_bound,
                                             .beta = beta,
                                             .decay = decay});
  b_.Add(Component::kRecurrence, DeltaRuleOp{.q = q,
                                             .k = k,
                                             .v = v,
                                             .decay = decay,
                                             .beta = beta,
                                             .key_heads = key_heads,
                                             .value_heads = heads,
                                             .tiled = d.tiled,
                                             .channel_decay = d.channel_decay,
                                             .q_scale = 1 / std::sqrt(static_cast<float>(d.key_dim)),
                                             .layout = layout,
                                             .runs = b_.Runs(),
                                             .states = {},
                                             .out = out});
  b_.last().cache = b_.CacheOf(Mixer::kDeltaRule);
  b_.Add(Role::kSsmNorm, GatedNormOp{.x = out,
                                     .gate = gate,
                                     .groups = heads,
                                     .weight = b_.Get(Role::kSsmNorm),
                                     .activation = d.channel_decay ? ActivationKind::kSigmoid : ActivationKind::kSilu,
                                     .eps = b_.recipe().norm_eps,
                                     .out = out});
  b_.CopiedWeights({b_.Get(Role::kSsmNorm)});
}

// The output's gate, beta, and what decays are made of.
void DeltaPlanner::PlanGates(Mat<const float> in, Mat<float> gate, Mat<float> beta, Mat<float> step, SharedPack& shared) {
  if (b_.layer().delta.gate_rank == 0) {
    b_.Project(Role::kDeltaGate, in, gate, {.shared = &shared});
    b_.Project(Role::kDeltaBeta, in, beta, {.shared = &shared});
    b_.Project(Role::kDeltaAlpha, in, step, {.shared = &shared});
    return;
  }
  b_.Project(Role::kDeltaGateA, in, gate_low_, {.shared = &shared});
  b_.Project(Role::kDeltaAlphaA, in, step_low_, {.shared = &shared});
  b_.Project(Role::kDeltaBeta, in, beta, {.shared = &shared});
  b_.Project(Role::kDeltaGateB, gate_low_, gate);
  b_.Project(Role::kDeltaAlphaB, step_low_, step);
}

}  // namespace

const BlockPlan kDeltaRulePlan = {NewPlanner<DeltaPlanner>, [](const LayerRecipe& l, const LayerPart& part, KvType) {
                                    return std::optional(LayerCache{.state = DeltaLayout(l, part), .recurrent = true});
                                  }};

}  // namespace tally
