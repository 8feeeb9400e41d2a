// SPDX-License-Identifier: Apache-2.0
// The block of Mamba-2 (Dao & Gu 2024; Mamba2Mixer of transformers): one matrix gives the gate z, the input x, B and C, and the steps; x,
// B and C go through a causal convolution and SiLU, the recurrence is run, and its output is gated and normalised.
#include <functional>
#include <vector>

#include "engine/graph/block_planner.h"

namespace tally {
namespace {

StateLayout MambaLayout(const LayerRecipe& l, const LayerPart& part) {
  const Mamba2& m = l.mamba;
  const int64_t heads = part.mamba.heads.size(), groups = part.mamba.groups.size();
  return {.recurrence = SsmScanOp::StateOf(heads, m.state_dim, m.head_dim),
          .replay = SsmScanOp::ReplayOf(heads, groups, m.state_dim, m.head_dim),
          .taps = m.taps,
          .channels = heads * m.head_dim + 2 * groups * m.state_dim};
}

// The cost of some of a convolution's channels.
std::function<Cost(const CostAmounts&)> OfChannels(CausalConvOp op, int64_t channels) {
  for (WeightView* w : {&op.taps, &op.bias}) {
    if (w->cols == 0) continue;
    w->stored_row_bytes = w->stored_row_bytes / static_cast<uint64_t>(w->cols) * static_cast<uint64_t>(channels);
    w->cols = channels;
  }
  op.x.cols = op.layout.channels = channels;
  return [op](const CostAmounts& n) { return op.Useful(n); };
}

class MambaPlanner final : public BlockPlanner {
 public:
  using BlockPlanner::BlockPlanner;
  void Buffers() override;
  Role Make(Mat<float> in) override;

 private:
  Mat<float> PlanHeads(Mat<const float> in, Mat<float> out);

  Mat<float> in_;          // [n, H D + channels + H]: z, what is convolved, steps
  Mat<float> xbc_;         // [n, channels], after the convolution
  Mat<float> decay_;       // [n, H]
  Mat<float> out_;         // [n, H D]
  Mat<float> whole_gate_;  // [n, H D], of all processes
};

void MambaPlanner::Buffers() {
  const Mamba2& m = MambaOf(b_.recipe());
  const int64_t inner = int64_t{m.heads} * m.head_dim, channels = inner + 2 * int64_t{m.groups} * m.state_dim;
  in_ = b_.Floats(inner + channels + m.heads);
  xbc_ = b_.Floats(channels);
  decay_ = b_.Floats(m.heads);
  out_ = b_.Floats(inner);
  b_.Widest(inner);
  b_.Room(inner);
  b_.RoomForGaps(inner);  // z
  if (m.norm && !b_.shard().alone()) whole_gate_ = b_.Floats(inner);
}

Role MambaPlanner::Make(Mat<float> in) {
  const Mamba2& m = b_.layer().mamba;
  const int64_t heads = b_.part().mamba.heads.size(), own = heads * m.head_dim, inner = int64_t{m.heads} * m.head_dim;
  const Mat<float> out = b_.First(out_, own);
  Mat<float> z = b_.First(in_, 0);
  if (heads > 0) z = PlanHeads(in, out);
  const Columns columns = [dim = int64_t{m.head_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.mamba.heads.begin * dim, p.mamba.heads.end * dim}};
  };
  const auto norm = [&](Mat<float> x, Mat<float> gate) {
    b_.Add(Role::kSsmNorm, GatedNormOp{.x = x,
                                       .gate = gate,
                                       .groups = x.cols * m.norm_groups / inner,
                                       .weight = b_.Get(Role::kSsmNorm),
                                       .gate_first = !m.norm_first,
                                       .eps = b_.recipe().norm_eps,
                                       .out = x});
    b_.Scale(Role::kSsmOut, x, m.out_scale);
  };
  if (m.norm && b_.part().mamba.whole_norm) {
    const Mat<float> all = b_.Whole(Component::kRecurrence, out, inner, columns);
    norm(all, b_.Whole(Component::kRecurrentIn, z, inner, columns, whole_gate_.data));
    b_.ProjectOut(Role::kSsmOut, all, b_.part().mixed);
    return Role::kSsmOut;
  }
  if (heads > 0) {
    const As as(b_, Work::kOwn);
    if (m.norm) {
      norm(out, z);
    } else {
      b_.Add(Component::kRecurrentNorm, ElementwiseOp{.x = z, .up = out, .activation = ActivationKind::kSilu});
      b_.Scale(Role::kSsmOut, z, m.out_scale);
    }
  }
  b_.ProjectOut(Role::kSsmOut, Component::kRecurrentNorm, m.norm ? out : z, inner, columns, b_.part().mixed);
  return Role::kSsmOut;
}

// Plans the recurrence of this process's heads, which writes to `out`. Returns the gate.
Mat<float> MambaPlanner::PlanHeads(Mat<const float> in, Mat<float> out) {
  const Mamba2& m = b_.layer().mamba;
  const int64_t heads = b_.part().mamba.heads.size(), groups = b_.part().mamba.groups.size();
  const int64_t inner = heads * m.head_dim, of_b = groups * m.state_dim, channels = inner + 2 * of_b;
  const StateLayout layout = MambaLayout(b_.layer(), b_.part());
  const Mat<float> made = b_.First(in_, inner + channels + heads), convolved = b_.First(xbc_, channels),
                   decay = b_.First(decay_, heads);
  b_.Project(Role::kSsmIn, in, made);
  const As as(b_, Work::kOwn);
  const Mat<float> z = made.Cols(0, inner), xbc = made.Cols(inner, channels), step = made.Cols(inner + channels, heads);
  const Mat<float> parts[] = {z, xbc.Cols(0, inner), xbc.Cols(inner, of_b), xbc.Cols(inner + of_b, of_b), step};
  for (size_t i = 0; i < m.multipliers.size(); ++i) {
    const As of_groups(b_, PlanBuilder::WorkOf((i == 2 || i == 3) && b_.part().mamba.copy));
    if (m.multipliers[i] != 1) b_.Add(Role::kSsmIn, ElementwiseOp{.x = parts[i], .scale = m.multipliers[i]});
  }
  const CausalConvOp conv{.x = xbc,
                          .taps = b_.Get(Role::kSsmConv),
                          .bias = b_.GetBias(Role::kSsmConv),
                          .activation = ActivationKind::kSilu,
                          .layout = layout,
                          .runs = b_.Runs(),
                          .states = {},
                          .out = convolved};
  b_.Add(Role::kSsmConv, conv);
  b_.last().cache = b_.CacheOf(Mixer::kMamba2);
  if (b_.part().mamba.copy && !b_.IsCopy()) b_.last().copied.part = OfChannels(conv, 2 * of_b);
  b_.Add(Component::kRecurrentRates, RatesOp{.x = step,
                                             .bias = b_.Get(Role::kSsmDtBias),
                                             .a = b_.Get(Role::kSsmA),
                                             .least = m.dt_min,
                                             .most = m.dt_max,
                                             .decay = decay});
  b_.Add(Component::kRecurrence, SsmScanOp{.x = convolved.Cols(0, inner),
                                           .b = convolved.Cols(inner, of_b),
                                           .c = convolved.Cols(inner + of_b, of_b),
                                           .step = step,
                                           .decay = decay,
                                           .skip = b_.Get(Role::kSsmD),
                                           .heads = heads,
                                           .groups = groups,
                                           .layout = layout,
                                           .runs = b_.Runs(),
                                           .states = {},
                                           .out = out});
  b_.last().cache = b_.CacheOf(Mixer::kMamba2);
  return z;
}

}  // namespace

const BlockPlan kMamba2Plan = {NewPlanner<MambaPlanner>, [](const LayerRecipe& l, const LayerPart& part, KvType) {
                                 return std::optional(LayerCache{.state = MambaLayout(l, part), .recurrent = true});
                               }};

}  // namespace tally
