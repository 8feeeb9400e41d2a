// SPDX-License-Identifier: Apache-2.0
// The block of Mamba-2 (Dao & Gu 2024; Mamba2Mixer of transformers): one matrix gives the gate z, the input x, B and C, and the steps; x,
// B and C go through a causal convolution and SiLU, the recurrence is run, and its output is gated and normalised.
#include <algorithm>

#include "engine/graph/planner.h"

namespace tally {

void Planner::MambaBuffers() {
  if (!AnyLayer(r_, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kMamba2); })) return;
  const Mamba2& m = r_.mamba;
  const int64_t inner = int64_t{m.heads} * m.head_dim, channels = inner + 2 * int64_t{m.groups} * m.state_dim;
  mamba_.in = Floats(inner + channels + m.heads);
  mamba_.xbc = Floats(channels);
  mamba_.decay = Floats(m.heads);
  mamba_.out = Floats(inner);
  Widest(inner);
}

void Planner::Mamba(Mat<const float> in) {
  const Mamba2& m = r_.mamba;
  const int64_t inner = int64_t{m.heads} * m.head_dim, of_b = int64_t{m.groups} * m.state_dim, channels = inner + 2 * of_b;
  const StateLayout layout = RecurrentLayout(r_, Mixer::kMamba2);
  Project(Role::kSsmIn, in, mamba_.in);
  const Mat<float> z = mamba_.in.Cols(0, inner), xbc = mamba_.in.Cols(inner, channels),
                   step = mamba_.in.Cols(inner + channels, m.heads);
  const Mat<float> parts[] = {z, xbc.Cols(0, inner), xbc.Cols(inner, of_b), xbc.Cols(inner + of_b, of_b), step};
  for (size_t i = 0; i < m.multipliers.size(); ++i) {
    if (m.multipliers[i] != 1) Add(Role::kSsmIn, ElementwiseOp{.x = parts[i], .scale = m.multipliers[i]});
  }
  Add(Role::kSsmConv, CausalConvOp{.x = xbc,
                                   .taps = Get(Role::kSsmConv),
                                   .bias = GetBias(Role::kSsmConv),
                                   .activation = ActivationKind::kSilu,
                                   .layout = layout,
                                   .runs = Runs(),
                                   .states = {},
                                   .out = mamba_.xbc});
  plan_.ops.back().cache = CacheOf(Mixer::kMamba2);
  Add(Component::kRecurrentRates, RatesOp{.x = step,
                                          .bias = Get(Role::kSsmDtBias),
                                          .a = Get(Role::kSsmA),
                                          .least = m.dt_min,
                                          .most = m.dt_max,
                                          .decay = mamba_.decay});
  Add(Component::kRecurrence, SsmScanOp{.x = mamba_.xbc.Cols(0, inner),
                                        .b = mamba_.xbc.Cols(inner, of_b),
                                        .c = mamba_.xbc.Cols(inner + of_b, of_b),
                                        .step = step,
                                        .decay = mamba_.decay,
                                        .skip = Get(Role::kSsmD),
                                        .heads = m.heads,
                                        .groups = m.groups,
                                        .layout = layout,
                                        .runs = Runs(),
                                        .states = {},
                                        .out = mamba_.out});
  plan_.ops.back().cache = CacheOf(Mixer::kMamba2);
  if (m.norm) {
    Add(Role::kSsmNorm, GatedNormOp{.x = mamba_.out,
                                    .gate = z,
                                    .groups = m.norm_groups,
                                    .weight = Get(Role::kSsmNorm),
                                    .gate_first = !m.norm_first,
                                    .eps = r_.norm_eps,
                                    .out = mamba_.out});
    Scale(Role::kSsmOut, mamba_.out, r_.scales.mamba);
    return ProjectOut(Role::kSsmOut, mamba_.out);
  }
  Add(Component::kRecurrentNorm, ElementwiseOp{.x = z, .up = mamba_.out, .activation = ActivationKind::kSilu});
  Scale(Role::kSsmOut, z, r_.scales.mamba);
  ProjectOut(Role::kSsmOut, z);
}

}  // namespace tally
