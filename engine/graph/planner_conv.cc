// SPDX-License-Identifier: Apache-2.0
// The block of a gated short convolution (LFM2, Liquid AI 2025; Lfm2ShortConv of transformers): y = W_out (C conv(B x)), [B; C; x] =
// W_in in. The rows B x are cached as keys are, so that a step needs no state but the cache.
#include "engine/graph/planner.h"

namespace tally {

KvLayout ConvLayout(const Recipe& r) {
  return {.type = KvType::kF32, .kv_heads = 1, .k_dim = r.d_model, .v_dim = r.d_model, .shared = true};
}

void Planner::ConvBuffers() {
  if (!AnyLayer(r_, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kShortConv); })) return;
  conv_.in = Floats(3 * int64_t{r_.d_model});
  conv_.out = Floats(r_.d_model);
}

void Planner::ShortConv(Mat<const float> in) {
  const int64_t E = r_.d_model;
  Project(Role::kConvIn, in, conv_.in);
  const Mat<float> b = conv_.in.Cols(0, E), c = conv_.in.Cols(E, E), x = conv_.in.Cols(2 * E, E);
  const KvLayout layout = ConvLayout(r_);
  Add(Component::kShortConv, ElementwiseOp{.x = b, .up = x, .activation = ActivationKind::kNone});
  Add(Component::kShortConv, KvStoreOp{.k = b, .v = {}, .layout = layout, .rows = Rows(), .tables = {}});
  plan_.ops.back().cache = CacheOf(Mixer::kShortConv);
  Add(Component::kShortConv,
      CausalConvOp{.gate = c, .taps = Get(Role::kConv), .layout = layout, .rows = Rows(), .tables = {}, .out = conv_.out});
  plan_.ops.back().cache = CacheOf(Mixer::kShortConv);
  ProjectOut(Role::kConvOut, conv_.out);
}

}  // namespace tally
