// SPDX-License-Identifier: Apache-2.0
// The block of a gated delta net (Yang et al. 2024; Qwen3NextGatedDeltaNet of transformers): queries, keys and values go through a
// causal convolution and SiLU, queries and keys are brought to length 1, the recurrence is run, and each head's output is normalised
// and gated.
#include <algorithm>
#include <cmath>

#include "engine/graph/planner.h"

namespace tally {

void Planner::DeltaBuffers() {
  if (!AnyLayer(r_, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kDeltaRule); })) return;
  const DeltaRule& d = r_.delta;
  const int64_t out = int64_t{d.value_heads} * d.value_dim;
  const int64_t channels = 2 * int64_t{d.key_heads} * d.key_dim + out;
  delta_.in = Floats(channels);
  delta_.qkv = Floats(channels);
  delta_.gate = Floats(out);
  delta_.step = Floats(d.value_heads);
  delta_.beta = Floats(d.value_heads);
  delta_.decay = Floats(d.value_heads);
  delta_.out = Floats(out);
  Widest(out);
}

void Planner::DeltaNet(Mat<const float> in) {
  const DeltaRule& d = r_.delta;
  const int64_t keys = int64_t{d.key_heads} * d.key_dim, values = int64_t{d.value_heads} * d.value_dim;
  const StateLayout layout = RecurrentLayout(r_, Mixer::kDeltaRule);
  SharedPack shared;
  Project(Role::kDeltaQ, in, delta_.in.Cols(0, keys), {.shared = &shared});
  Project(Role::kDeltaK, in, delta_.in.Cols(keys, keys), {.shared = &shared});
  Project(Role::kDeltaV, in, delta_.in.Cols(2 * keys, values), {.shared = &shared});
  Project(Role::kDeltaGate, in, delta_.gate, {.shared = &shared});
  Project(Role::kDeltaBeta, in, delta_.beta, {.shared = &shared});
  Project(Role::kDeltaAlpha, in, delta_.step, {.shared = &shared});
  Add(Role::kSsmConv, CausalConvOp{.x = delta_.in,
                                   .taps = Get(Role::kSsmConv),
                                   .activation = ActivationKind::kSilu,
                                   .layout = layout,
                                   .runs = Runs(),
                                   .states = {},
                                   .out = delta_.qkv});
  plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
  const Mat<float> q = delta_.qkv.Cols(0, keys), k = delta_.qkv.Cols(keys, keys), v = delta_.qkv.Cols(2 * keys, values);
  for (const Mat<float>& x : {q, k}) {
    Add(Component::kRecurrentNorm,
        NormOp{.kind = NormKind::kL2, .x = x, .groups = d.key_heads, .weight = {}, .bias = {}, .eps = d.l2_norm_eps, .out = x});
  }
  Add(Component::kRecurrentRates,
      RatesOp{
          .x = delta_.step, .bias = Get(Role::kSsmDtBias), .a = Get(Role::kSsmA), .beta = delta_.beta, .decay = delta_.decay});
  Add(Component::kRecurrence, DeltaRuleOp{.q = q,
                                          .k = k,
                                          .v = v,
                                          .decay = delta_.decay,
                                          .beta = delta_.beta,
                                          .key_heads = d.key_heads,
                                          .value_heads = d.value_heads,
                                          .tiled = d.tiled,
                                          .q_scale = 1 / std::sqrt(static_cast<float>(d.key_dim)),
                                          .layout = layout,
                                          .runs = Runs(),
                                          .states = {},
                                          .out = delta_.out});
  plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
  Add(Role::kSsmNorm, GatedNormOp{.x = delta_.out,
                                  .gate = delta_.gate,
                                  .groups = d.value_heads,
                                  .weight = Get(Role::kSsmNorm),
                                  .eps = r_.norm_eps,
                                  .out = delta_.out});
  ProjectOut(Role::kSsmOut, delta_.out);
}

}  // namespace tally
