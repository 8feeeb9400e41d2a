// SPDX-License-Identifier: Apache-2.0
// The block of Mamba-2 (Dao & Gu 2024; Mamba2Mixer of transformers): one matrix gives the gate z, the input x, B and C, and the steps; x,
// B and C go through a causal convolution and SiLU, the recurrence is run, and its output is gated and normalised.
#include <functional>
#include <vector>

#include "engine/graph/planner.h"

namespace tally {
namespace {

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

}  // namespace

void Planner::MambaBuffers() {
  const Mamba2& m = MambaOf(r_);
  if (m.heads == 0) return;
  const int64_t inner = int64_t{m.heads} * m.head_dim, channels = inner + 2 * int64_t{m.groups} * m.state_dim;
  mamba_.in = Floats(inner + channels + m.heads);
  mamba_.xbc = Floats(channels);
  mamba_.decay = Floats(m.heads);
  mamba_.out = Floats(inner);
  Widest(inner);
  Room(inner);
  if (m.norm && !shard_.alone()) mamba_.whole_gate = Floats(inner);
}

void Planner::Mamba(Mat<const float> in) {
  const Mamba2& m = layer().mamba;
  const int64_t heads = part_.mamba.heads.size(), own = heads * m.head_dim, inner = int64_t{m.heads} * m.head_dim;
  const Mat<float> out = First(mamba_.out, own);
  Mat<float> z = First(mamba_.in, 0);
  if (heads > 0) z = MambaHeads(in, out);
  const Columns columns = [dim = int64_t{m.head_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.mamba.heads.begin * dim, p.mamba.heads.end * dim}};
  };
  const auto norm = [&](Mat<float> x, Mat<float> gate) {
    Add(Role::kSsmNorm, GatedNormOp{.x = x,
                                    .gate = gate,
                                    .groups = x.cols * m.norm_groups / inner,
                                    .weight = Get(Role::kSsmNorm),
                                    .gate_first = !m.norm_first,
                                    .eps = r_.norm_eps,
                                    .out = x});
    Scale(Role::kSsmOut, x, layer().mamba.out_scale);
  };
  if (m.norm && part_.whole_norm) {
    const Mat<float> all = Whole(Component::kRecurrence, out, inner, columns);
    norm(all, Whole(Component::kRecurrentIn, z, inner, columns, mamba_.whole_gate.data));
    return ProjectOut(Role::kSsmOut, all, part_.mixed);
  }
  if (heads > 0) {
    const As as(*this, Work::kOwn);
    if (m.norm) {
      norm(out, z);
    } else {
      Add(Component::kRecurrentNorm, ElementwiseOp{.x = z, .up = out, .activation = ActivationKind::kSilu});
      Scale(Role::kSsmOut, z, layer().mamba.out_scale);
    }
  }
  ProjectOut(Role::kSsmOut, Component::kRecurrentNorm, m.norm ? out : z, inner, columns, part_.mixed);
}

// Plans the recurrence of this process's heads, which writes to `out`. Returns the gate.
Mat<float> Planner::MambaHeads(Mat<const float> in, Mat<float> out) {
  const Mamba2& m = layer().mamba;
  const int64_t heads = part_.mamba.heads.size(), groups = part_.mamba.groups.size();
  const int64_t inner = heads * m.head_dim, of_b = groups * m.state_dim, channels = inner + 2 * of_b;
  const StateLayout layout = RecurrentLayout(layer(), part_, Mixer::kMamba2);
  const Mat<float> made = First(mamba_.in, inner + channels + heads), convolved = First(mamba_.xbc, channels),
                   decay = First(mamba_.decay, heads);
  Project(Role::kSsmIn, in, made);
  const As as(*this, Work::kOwn);
  const Mat<float> z = made.Cols(0, inner), xbc = made.Cols(inner, channels), step = made.Cols(inner + channels, heads);
  const Mat<float> parts[] = {z, xbc.Cols(0, inner), xbc.Cols(inner, of_b), xbc.Cols(inner + of_b, of_b), step};
  for (size_t i = 0; i < m.multipliers.size(); ++i) {
    const As of_groups(*this, i == 2 || i == 3 ? Work::kOfGroups : Work::kOwn);
    if (m.multipliers[i] != 1) Add(Role::kSsmIn, ElementwiseOp{.x = parts[i], .scale = m.multipliers[i]});
  }
  const CausalConvOp conv{.x = xbc,
                          .taps = Get(Role::kSsmConv),
                          .bias = GetBias(Role::kSsmConv),
                          .activation = ActivationKind::kSilu,
                          .layout = layout,
                          .runs = Runs(),
                          .states = {},
                          .out = convolved};
  Add(Role::kSsmConv, conv);
  plan_.ops.back().cache = CacheOf(Mixer::kMamba2);
  if (part_.mamba.copy && !IsCopy()) plan_.ops.back().copied.part = OfChannels(conv, 2 * of_b);
  Add(Component::kRecurrentRates,
      RatesOp{
          .x = step, .bias = Get(Role::kSsmDtBias), .a = Get(Role::kSsmA), .least = m.dt_min, .most = m.dt_max, .decay = decay});
  Add(Component::kRecurrence, SsmScanOp{.x = convolved.Cols(0, inner),
                                        .b = convolved.Cols(inner, of_b),
                                        .c = convolved.Cols(inner + of_b, of_b),
                                        .step = step,
                                        .decay = decay,
                                        .skip = Get(Role::kSsmD),
                                        .heads = heads,
                                        .groups = groups,
                                        .layout = layout,
                                        .runs = Runs(),
                                        .states = {},
                                        .out = out});
  plan_.ops.back().cache = CacheOf(Mixer::kMamba2);
  return z;
}

}  // namespace tally
