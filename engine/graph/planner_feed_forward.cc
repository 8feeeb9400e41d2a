// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward, and the first matrices that it has in common with experts.
#include "engine/graph/planner_network.h"

namespace tally {
namespace {

class DensePlanner final : public NetworkPlanner {
 public:
  using NetworkPlanner::NetworkPlanner;

  void Buffers() override {
    for (const LayerRecipe& l : b_.recipe().layers) b_.RoomForHidden(l.dense() ? l.ffn.width : 0);
  }
  Role Make(Mat<float> in) override;
};

Role DensePlanner::Make(Mat<float> in) {
  const Mat<float> hidden = b_.hidden(b_.max_batch(), b_.part().ffn.hidden.size());
  FirstMatrices(Role::kGate, Role::kUp, in, hidden);
  ScaleHidden(Role::kDown, hidden, b_.layer().ffn.width);
  b_.ProjectOut(
      Role::kDown, FactsOf(Role::kUp).component, hidden, b_.layer().ffn.width,
      [](const Shard&, const LayerPart& p) { return std::vector{p.ffn.hidden}; }, b_.part().fed);
  return Role::kDown;
}

}  // namespace

// Scales this process's columns of the input of the role's matrix.
void NetworkPlanner::ScaleHidden(Role role, Mat<float> own, int64_t cols) {
  if (own.cols == 0) return;
  const As as(b_, own.cols < cols ? Work::kOwn : Work::kWhole);
  b_.Scale(role, own, b_.layer().network.down_scale);
}

// Makes the input of a feed-forward's last matrix: act(gate) * up, or act(up) without gates. Two matrices of one type share one op.
// Otherwise each has its own, and a third op does the product. `index`, `of`: for experts, as in PackRouted.
void NetworkPlanner::FirstMatrices(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index, RowsOf of) {
  if (hidden.cols == 0 || b_.Get(up).rows == 0) return;
  const Work packing = b_.work();
  const auto pack = [&](Role role) {
    return b_.rows() == RowsOf::kRouted ? b_.PackRouted(role, in, index, of) : b_.Pack(role, in);
  };
  const bool experts = up == Role::kExpertUp;
  if (!b_.layer().network.gated || (experts && b_.layer().experts.ungated)) {
    const bool xielu = b_.layer().network.activation == ActivationKind::kXielu;
    const ActPack of_up = pack(up);
    b_.AddMatMul(up, MatMulOp{.x = of_up,
                              .w = b_.Get(up),
                              .bias = b_.GetBias(up),
                              .activation = xielu ? ActivationKind::kNone : b_.layer().network.activation,
                              .out = hidden,
                              .out_row = {}});
    return xielu ? ApplyXielu(up, hidden) : void();
  }
  const float limit = experts ? b_.layer().experts.limit : up == Role::kSharedExpertUp ? b_.layer().experts.shared_limit : 0;
  const ActivationKind activation = limit > 0 ? ActivationKind::kSwigluLimited : b_.layer().network.activation;
  const float swiglu_limit = limit > 0 ? limit : b_.layer().network.swiglu_limit;
  ActPack x = pack(gate);
  const As as(b_, b_.SharesRows(up) ? Work::kWhole : Work::kOwn);
  if (b_.Get(gate).dtype == b_.Get(up).dtype && b_.layer().network.gate_scale == 1) {
    return b_.Add(gate, GatedMatMulOp{.x = x,
                                      .gate = b_.Get(gate),
                                      .up = b_.Get(up),
                                      .gate_bias = b_.GetBias(gate),
                                      .up_bias = b_.GetBias(up),
                                      .activation = activation,
                                      .swiglu_alpha = b_.layer().network.swiglu_alpha,
                                      .swiglu_limit = swiglu_limit,
                                      .out = hidden});
  }
  const Mat<float> of_up = b_.up(hidden.rows, hidden.cols);
  b_.Add(gate, MatMulOp{.x = x, .w = b_.Get(gate), .bias = b_.GetBias(gate), .out = hidden, .out_row = {}});
  if (!(x.format == b_.FormatFor(up))) {
    const As as_before(b_, packing);
    x = pack(up);
  }
  b_.Add(up, MatMulOp{.x = x, .w = b_.Get(up), .bias = b_.GetBias(up), .out = of_up, .out_row = {}});
  b_.Add(gate, ElementwiseOp{.x = hidden,
                             .scale = b_.layer().network.gate_scale,
                             .up = of_up,
                             .activation = activation,
                             .swiglu_alpha = b_.layer().network.swiglu_alpha,
                             .swiglu_limit = swiglu_limit});
}

// Applies xIELU to the output of the role's matrix.
void NetworkPlanner::ApplyXielu(Role role, Mat<float> hidden) {
  const bool stored = b_.layer().network.stored_xielu;
  const WeightView n = stored ? b_.Get(Role::kXieluN) : WeightView(), p = stored ? b_.Get(Role::kXieluP) : WeightView();
  const As as(b_, b_.SharesRows(role) ? Work::kWhole : Work::kOwn);
  b_.Add(role,
         ElementwiseOp{
             .x = hidden, .activation = ActivationKind::kXielu, .xielu = b_.layer().network.xielu, .alpha_n = n, .alpha_p = p});
  if (stored) b_.CopiedWeights({n, p});
}

const BlockPlan kDensePlan = {NewPlanner<DensePlanner>};

}  // namespace tally
