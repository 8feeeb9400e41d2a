// SPDX-License-Identifier: Apache-2.0
// The block of a gated short convolution (LFM2, Liquid AI 2025; Lfm2ShortConv of transformers): y = W_out (C conv(B x)), [B; C; x] =
// W_in in.
#include "engine/graph/block_planner.h"

namespace tally {
namespace {

StateLayout ConvLayout(const LayerRecipe& l, const LayerPart& part) {
  return {.taps = l.conv.taps, .channels = part.conv.channels.size()};
}

class ShortConvPlanner final : public BlockPlanner {
 public:
  using BlockPlanner::BlockPlanner;

  void Buffers() override {
    in_ = b_.Floats(3 * int64_t{b_.recipe().d_model});
    out_ = b_.Floats(b_.recipe().d_model);
  }

  Role Make(Mat<float> in) override {
    const int64_t own = b_.part().conv.channels.size();
    const Mat<float> made = b_.First(in_, 3 * own), out = b_.First(out_, own);
    if (own > 0) Convolve(in, made, out);
    b_.ProjectOut(
        Role::kConvOut, Component::kShortConv, out, b_.recipe().d_model,
        [](const Shard&, const LayerPart& p) { return std::vector{p.conv.channels}; }, b_.part().mixed);
    return Role::kConvOut;
  }

 private:
  void Convolve(Mat<const float> in, Mat<float> made, Mat<float> out) {
    const int64_t own = out.cols;
    b_.Project(Role::kConvIn, in, made);
    const As as(b_, Work::kOwn);
    const Mat<float> b = made.Cols(0, own), c = made.Cols(own, own), x = made.Cols(2 * own, own);
    b_.Add(Component::kShortConv, ElementwiseOp{.x = b, .up = x, .activation = ActivationKind::kNone});
    b_.Add(Component::kShortConv, CausalConvOp{.x = b,
                                               .taps = b_.Get(Role::kConv),
                                               .gate = c,
                                               .layout = ConvLayout(b_.layer(), b_.part()),
                                               .runs = b_.Runs(),
                                               .states = {},
                                               .out = out});
    b_.last().cache = b_.CacheOf(Mixer::kShortConv);
  }

  Mat<float> in_, out_;  // [n, 3 E], [n, E]
};

}  // namespace

const BlockPlan kShortConvPlan = {NewPlanner<ShortConvPlanner>, [](const LayerRecipe& l, const LayerPart& part, KvType) {
                                    return std::optional(LayerCache{.state = ConvLayout(l, part), .recurrent = true});
                                  }};

}  // namespace tally
