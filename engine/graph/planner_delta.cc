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
  Room(out);
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

// Of this process's value heads.
void Planner::DeltaHeads(Mat<const float> in, int64_t heads, Mat<float> out) {
  const DeltaRule& d = r_.delta;
  const int64_t key_heads = part_.key_heads.size(), keys = key_heads * d.key_dim, values = heads * d.value_dim;
  const StateLayout layout = RecurrentLayout(r_, part_, Mixer::kDeltaRule);
  const Mat<float> made = First(delta_.in, 2 * keys + values), qkv = First(delta_.qkv, 2 * keys + values),
                   gate = First(delta_.gate, values), beta = First(delta_.beta, heads), step = First(delta_.step, heads),
                   decay = First(delta_.decay, heads);
  SharedPack shared;
  Project(Role::kDeltaQ, in, made.Cols(0, keys), {.shared = &shared});
  Project(Role::kDeltaK, in, made.Cols(keys, keys), {.shared = &shared});
  Project(Role::kDeltaV, in, made.Cols(2 * keys, values), {.shared = &shared});
  Project(Role::kDeltaGate, in, gate, {.shared = &shared});
  Project(Role::kDeltaBeta, in, beta, {.shared = &shared});
  Project(Role::kDeltaAlpha, in, step, {.shared = &shared});
  const As as(*this, Work::kOwn);
  Add(Role::kSsmConv, CausalConvOp{.x = made,
                                   .taps = Get(Role::kSsmConv),
                                   .activation = ActivationKind::kSilu,
                                   .layout = layout,
                                   .runs = Runs(),
                                   .states = {},
                                   .out = qkv});
  plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
  const Mat<float> q = qkv.Cols(0, keys), k = qkv.Cols(keys, keys), v = qkv.Cols(2 * keys, values);
  for (const Mat<float>& x : {q, k}) {
    Add(Component::kRecurrentNorm,
        NormOp{.kind = NormKind::kL2, .x = x, .groups = key_heads, .weight = {}, .bias = {}, .eps = d.l2_norm_eps, .out = x});
  }
  Add(Component::kRecurrentRates,
      RatesOp{.x = step, .bias = Get(Role::kSsmDtBias), .a = Get(Role::kSsmA), .beta = beta, .decay = decay});
  Add(Component::kRecurrence, DeltaRuleOp{.q = q,
                                          .k = k,
                                          .v = v,
                                          .decay = decay,
                                          .beta = beta,
                                          .key_heads = key_heads,
                                          .value_heads = heads,
                                          .tiled = d.tiled,
                                          .q_scale = 1 / std::sqrt(static_cast<float>(d.key_dim)),
                                          .layout = layout,
                                          .runs = Runs(),
                                          .states = {},
                                          .out = out});
  plan_.ops.back().cache = CacheOf(Mixer::kDeltaRule);
  Add(Role::kSsmNorm,
      GatedNormOp{.x = out, .gate = gate, .groups = heads, .weight = Get(Role::kSsmNorm), .eps = r_.norm_eps, .out = out});
  CopiedWeights(Get(Role::kSsmNorm));
}

}  // namespace tally
