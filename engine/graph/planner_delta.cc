// SPDX-License-Identifier: Apache-2.0
// The block of a gated delta net (Yang et al. 2024; Qwen3NextGatedDeltaNet of transformers): queries, keys and values go through a
// causal convolution and SiLU, queries and keys are brought to length 1, the recurrence is run, and each head's output is normalised
// and gated. Kimi Delta Attention (Kimi Team 2025) is the same with a decay for each element of the keys.
#include <algorithm>
#include <cmath>

#include "engine/graph/planner.h"

namespace tally {

void Planner::DeltaBuffers() {
  const DeltaRule& d = DeltaOf(r_);
  if (d.value_heads == 0) return;
  const int64_t out = int64_t{d.value_heads} * d.value_dim;
  Room(out);
  const int64_t channels = 2 * int64_t{d.key_heads} * d.key_dim + out;
  delta_.in = Floats(channels);
  delta_.qkv = Floats(channels);
  const int64_t decays = int64_t{d.value_heads} * (d.channel_decay ? d.key_dim : 1);
  delta_.gate = Floats(out);
  delta_.step = Floats(decays);
  delta_.beta = Floats(d.value_heads);
  delta_.decay = Floats(decays);
  delta_.out = Floats(out);
  if (d.gate_rank > 0) {
    delta_.gate_low = Floats(d.gate_rank);
    delta_.step_low = Floats(d.gate_rank);
  }
  Widest(std::max<int64_t>(out, d.gate_rank));
}

void Planner::DeltaNet(Mat<const float> in) {
  const DeltaRule& d = layer().delta;
  int64_t heads = 0;
  for (const Span& v : part_.values) heads += v.size();
  const Mat<float> own = First(delta_.out, heads * d.value_dim);
  if (heads > 0) DeltaHeads(in, heads, own);
  const Columns values = [dim = int64_t{d.value_dim}](const Shard&, const LayerPart& p) {
    std::vector<Span> columns;
    for (const Span& v : p.values) columns.push_back({v.begin * dim, v.end * dim});
    return columns;
  };
  ProjectOut(Role::kSsmOut, Component::kRecurrentNorm, own, int64_t{d.value_heads} * d.value_dim, values, part_.mixed);
}

// Plans this process's value heads.
void Planner::DeltaHeads(Mat<const float> in, int64_t heads, Mat<float> out) {
  const DeltaRule& d = layer().delta;
  const int64_t key_heads = part_.key_heads.size(), keys = key_heads * d.key_dim, values = heads * d.value_dim;
  const StateLayout layout = RecurrentLayout(layer(), part_, Mixer::kDeltaRule);
  const Mat<float> made = First(delta_.in, 2 * keys + values), qkv = First(delta_.qkv, 2 * keys + values),
                   gate = First(delta_.gate, values), beta = First(delta_.beta, heads);
  const int64_t decays = heads * (d.channel_decay ? d.key_dim : 1);
  const Mat<float> step = First(delta_.step, decays), decay = First(delta_.decay, decays);
  SharedPack shared;
  Project(Role::kDeltaQ, in, made.Cols(0, keys), {.shared = &shared});
  Project(Role::kDeltaK, in, made.Cols(keys, keys), {.shared = &shared});
  Project(Role::kDeltaV, in, made.Cols(2 * keys, values), {.shared = &shared});
  DeltaGates(in, gate, beta, step, shared);
  const As as(*this, Work::kOwn);
  const auto convolve = [&](Role role, int64_t first, int64_t channels) {
    Add(role, CausalConvOp{.x = made.Cols(first, channels),
                           .taps = Get(role),
                           .activation = ActivationKind::kSilu,
                           .layout = layout,
                           .first_channel = first,
                           .runs = Runs(),
                           .states = {},
                           .out = qkv.Cols(first, channels)});
    plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
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
    Add(Component::kRecurrentNorm,
        NormOp{.kind = NormKind::kL2, .x = x, .groups = key_heads, .weight = {}, .bias = {}, .eps = d.l2_norm_eps, .out = x});
  }
  Add(Component::kRecurrentRates,
      RatesOp{
          .x = step, .bias = Get(Role::kSsmDtBias), .a = Get(Role::kSsmA), .bound = d.decay_bound, .beta = beta, .decay = decay});
  Add(Component::kRecurrence, DeltaRuleOp{.q = q,
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
                                          .runs = Runs(),
                                          .states = {},
                                          .out = out});
  plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
  Add(Role::kSsmNorm, GatedNormOp{.x = out,
                                  .gate = gate,
                                  .groups = heads,
                                  .weight = Get(Role::kSsmNorm),
                                  .activation = d.channel_decay ? ActivationKind::kSigmoid : ActivationKind::kSilu,
                                  .eps = r_.norm_eps,
                                  .out = out});
  CopiedWeights({Get(Role::kSsmNorm)});
}

// The output's gate, beta, and what decays are made of.
void Planner::DeltaGates(Mat<const float> in, Mat<float> gate, Mat<float> beta, Mat<float> step, SharedPack& shared) {
  if (layer().delta.gate_rank == 0) {
    Project(Role::kDeltaGate, in, gate, {.shared = &shared});
    Project(Role::kDeltaBeta, in, beta, {.shared = &shared});
    Project(Role::kDeltaAlpha, in, step, {.shared = &shared});
    return;
  }
  Project(Role::kDeltaGateA, in, delta_.gate_low, {.shared = &shared});
  Project(Role::kDeltaAlphaA, in, delta_.step_low, {.shared = &shared});
  Project(Role::kDeltaBeta, in, beta, {.shared = &shared});
  Project(Role::kDeltaGateB, delta_.gate_low, gate);
  Project(Role::kDeltaAlphaB, delta_.step_low, step);
}

}  // namespace tally
