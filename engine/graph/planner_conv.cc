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
  const int64_t own = part_.channels.size();
  const Mat<float> made = First(conv_.in, 3 * own), out = First(conv_.out, own);
  if (own > 0) Convolve(in, made, out);
  ProjectOut(
      Role::kConvOut, Component::kShortConv, out, r_.d_model,
      [](const Shard&, const LayerPart& p) { return std::vector{p.channels}; }, part_.mixed);
}

void Planner::Convolve(Mat<const float> in, Mat<float> made, Mat<float> out) {
  const int64_t own = out.cols;
  Project(Role::kConvIn, in, made);
  const As as(*this, Work::kOwn);
  const Mat<float> b = made.Cols(0, own), c = made.Cols(own, own), x = made.Cols(2 * own, own);
  Add(Component::kShortConv, ElementwiseOp{.x = b, .up = x, .activation = ActivationKind::kNone});
  Add(Component::kShortConv, CausalConvOp{.x = b,
                                          .taps = Get(Role::kConv),
                                          .gate = c,
                                          .layout = RecurrentLayout(layer(), part_, Mixer::kShortConv),
                                          .runs = Runs(),
                                          .states = {},
                                          .out = out});
  plan_.ops.back().cache = CacheOf(Mixer::kShortConv);
}

}  // namespace tally
