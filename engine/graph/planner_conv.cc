// SPDX-License-Identifier: Apache-2.0
// The block of a gated short convolution (LFM2, Liquid AI 2025; Lfm2ShortConv of transformers): y = W_out (C conv(B x)), [B; C; x] =
// W_in in.
#include "engine/graph/planner.h"

namespace tally {

void Planner::ConvBuffers() {
  if (!AnyLayer(r_, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kShortConv); })) return;
  conv_.in = Floats(3 * int64_t{r_.d_model});
  conv_.out = Floats(r_.d_model);
}

void Planner::ShortConv(Mat<const float> in) {
  const int64_t E = r_.d_model;
  Project(Role::kConvIn, in, conv_.in);
  const Mat<float> b = conv_.in.Cols(0, E), c = conv_.in.Cols(E, E), x = conv_.in.Cols(2 * E, E);
  Add(Component::kShortConv, ElementwiseOp{.x = b, .up = x, .activation = ActivationKind::kNone});
  Add(Component::kShortConv, CausalConvOp{.x = b,
                                          .taps = Get(Role::kConv),
                                          .gate = c,
                                          .layout = RecurrentLayout(r_, Mixer::kShortConv),
                                          .runs = Runs(),
                                          .states = {},
                                          .out = conv_.out});
  plan_.ops.back().cache = CacheOf(Mixer::kShortConv);
  ProjectOut(Role::kConvOut, conv_.out);
}

}  // namespace tally
