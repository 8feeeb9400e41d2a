// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward, and the first matrices that it has in common with experts.
#include "engine/graph/planner.h"

namespace tally {

void Planner::DenseFeedForward(Mat<const float> in) {
  const Mat<float> hidden = First(hidden_, part_.hidden.size());
  FirstMatrices(Role::kGate, Role::kUp, in, hidden);
  ScaleHidden(Role::kDown, hidden, layer().ffn.width);
  ProjectOut(
      Role::kDown, FactsOf(Role::kUp).component, hidden, layer().ffn.width,
      [](const Shard&, const LayerPart& p) { return std::vector{p.hidden}; }, part_.fed);
}

// Scales this process's columns of the input of the role's matrix.
void Planner::ScaleHidden(Role role, Mat<float> own, int64_t cols) {
  if (own.cols == 0) return;
  const As as(*this, own.cols < cols ? Work::kOwn : Work::kWhole);
  Scale(role, own, layer().network.down_scale);
}

// Makes the input of a feed-forward's last matrix: act(gate) * up, or act(up) without gates. Two matrices of one type share one op.
// Otherwise each has its own, and a third op does the product. `index`, `of`: for experts, as in PackRouted.
void Planner::FirstMatrices(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index, RowsOf of) {
  if (hidden.cols == 0 || Get(up).rows == 0) return;
  const Work packing = work_;
  const auto pack = [&](Role role) { return rows_ == RowsOf::kRouted ? PackRouted(role, in, index, of) : Pack(role, in); };
  const bool experts = up == Role::kExpertUp;
  if (!layer().network.gated || (experts && layer().experts.ungated)) {
    const bool xielu = layer().network.activation == ActivationKind::kXielu;
    const ActPack of_up = pack(up);
    AddMatMul(up, MatMulOp{.x = of_up,
                           .w = Get(up),
                           .bias = GetBias(up),
                           .activation = xielu ? ActivationKind::kNone : layer().network.activation,
                           .out = hidden,
                           .out_row = {}});
    return xielu ? ApplyXielu(up, hidden) : void();
  }
  const float limit = experts ? layer().experts.limit : up == Role::kSharedExpertUp ? layer().experts.shared_limit : 0;
  const ActivationKind activation = limit > 0 ? ActivationKind::kSwigluLimited : layer().network.activation;
  const float swiglu_limit = limit > 0 ? limit : layer().network.swiglu_limit;
  ActPack x = pack(gate);
  const As as(*this, HeldOf(r_, shard_, up, layer_).copied() > 0 ? Work::kWhole : Work::kOwn);
  if (Get(gate).dtype == Get(up).dtype && layer().network.gate_scale == 1) {
    return Add(gate, GatedMatMulOp{.x = x,
                                   .gate = Get(gate),
                                   .up = Get(up),
                                   .gate_bias = GetBias(gate),
                                   .up_bias = GetBias(up),
                                   .activation = activation,
                                   .swiglu_alpha = layer().network.swiglu_alpha,
                                   .swiglu_limit = swiglu_limit,
                                   .out = hidden});
  }
  if (up_.cols == 0) up_ = Floats(hidden_.cols);
  const Mat<float> of_up(up_.data, hidden.rows, hidden.cols);
  Add(gate, MatMulOp{.x = x, .w = Get(gate), .bias = GetBias(gate), .out = hidden, .out_row = {}});
  if (!(x.format == FormatFor(up))) {
    const As as_before(*this, packing);
    x = pack(up);
  }
  Add(up, MatMulOp{.x = x, .w = Get(up), .bias = GetBias(up), .out = of_up, .out_row = {}});
  Add(gate, ElementwiseOp{.x = hidden,
                          .scale = layer().network.gate_scale,
                          .up = of_up,
                          .activation = activation,
                          .swiglu_alpha = layer().network.swiglu_alpha,
                          .swiglu_limit = swiglu_limit});
}

// Applies xIELU to the output of the role's matrix.
void Planner::ApplyXielu(Role role, Mat<float> hidden) {
  const bool stored = layer().network.stored_xielu;
  const WeightView n = stored ? Get(Role::kXieluN) : WeightView(), p = stored ? Get(Role::kXieluP) : WeightView();
  const As as(*this, HeldOf(r_, shard_, role, layer_).copied() > 0 ? Work::kWhole : Work::kOwn);
  Add(role, ElementwiseOp{
                .x = hidden, .activation = ActivationKind::kXielu, .xielu = layer().network.xielu, .alpha_n = n, .alpha_p = p});
  if (stored) CopiedWeights({n, p});
}

}  // namespace tally
