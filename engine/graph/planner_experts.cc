// SPDX-License-Identifier: Apache-2.0
// The block of experts: the router, the experts that it chose, what is shared by all rows.
#include "engine/graph/planner_network.h"

namespace tally {
namespace {

class ExpertsPlanner final : public NetworkPlanner {
 public:
  using NetworkPlanner::NetworkPlanner;
  void Buffers() override;
  Role Make(Mat<float> in) override;

 private:
  void SharedActivation(Mat<float> in);
  void SharedExperts(Mat<const float> in, Mat<float> out);

  Mat<float> router_in_, router_, route_weights_;
  Mat<int32_t> route_experts_;
  Mat<float> latent_in_, latent_out_, expert_in_, expert_out_, shared_out_, shared_gate_;
};

void ExpertsPlanner::Buffers() {
  const Experts& x = ExpertsOf(b_.recipe());
  const int64_t E = b_.recipe().d_model, k = x.top_k, space = x.latent > 0 ? x.latent : E;
  if (x.router_norm) router_in_ = b_.Floats(E);
  router_ = b_.Floats(x.n_experts);
  route_weights_ = b_.Floats(k);
  const uint64_t routed = SaturatingMul(static_cast<uint64_t>(b_.max_batch()), static_cast<uint64_t>(k));
  route_experts_ = {b_.Take<int32_t>(routed), b_.max_batch(), k};
  if (x.latent > 0) {
    latent_in_ = b_.Floats(space);
    latent_out_ = b_.Floats(space);
    b_.RoomForGaps(space);
  }
  if (x.weighted_inputs) expert_in_ = b_.Floats(space, k);
  expert_out_ = b_.Floats(space, k);
  b_.Room(space, k);
  b_.RoomForHidden(std::max<int64_t>(k * x.width, x.shared_width));
  b_.Widest(k * std::max<int64_t>(E, x.latent));  // a row for each slot of an expert's inputs
  if (x.shared_gate) {
    shared_out_ = b_.Floats(E);
    shared_gate_ = b_.Floats(1);
  }
}

Role ExpertsPlanner::Make(Mat<float> in) {
  const Experts& x = b_.layer().experts;
  const int64_t routed = b_.max_batch() * x.top_k;
  const bool choice_bias = SoftmaxOfAll(x.routing) || SigmoidOfAll(x.routing);
  if (x.router_norm) b_.Norm(Role::kRouterNorm, b_.plan().x, router_in_);
  b_.Project(Role::kRouter, x.router_norm ? router_in_ : in, router_, {.bias = !choice_bias});
  b_.Add(Role::kRouter, RouteOp{.logits = router_,
                                .top_k = x.top_k,
                                .rule = x.routing,
                                .bias = choice_bias ? b_.GetBias(Role::kRouter) : WeightView{},
                                .groups = x.groups,
                                .kept_groups = x.kept_groups,
                                .group_best = x.group_best,
                                .scale = x.route_scale,
                                .expert_scale = x.weight_scales ? b_.Get(Role::kExpertScale) : WeightView{},
                                .sum_eps = x.route_sum_eps,
                                .experts = route_experts_,
                                .weights = route_weights_});
  const Mat<float> hidden = b_.hidden(routed, b_.part().experts.hidden.size());
  const bool latent = x.latent > 0;
  if (latent) b_.Project(Role::kLatentIn, in, latent_in_);
  const Mat<const float> given_in = latent ? Mat<const float>(latent_in_) : in;
  if (x.weighted_inputs) {
    b_.Add(Component::kMoeCombine, ScaleRowsOp{.x = given_in, .weights = route_weights_, .out = expert_in_});
  }
  bool fetched = false;  // a process may have a part of some of these alone
  for (const Role role : {Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}) fetched = fetched || b_.Fetch(role);
  b_.SetRows(RowsOf::kRouted);
  const bool owned = b_.plan().own_experts;
  const As experts(b_, owned ? Work::kOwn : Work::kWhole);
  const bool weighted = x.weighted_inputs;
  FirstMatrices(Role::kExpertGate, Role::kExpertUp, weighted ? expert_in_ : given_in, hidden,
                weighted ? b_.plan().group_slots : b_.plan().group_tokens, weighted ? RowsOf::kSlots : RowsOf::kBatch);
  ScaleHidden(Role::kExpertDown, hidden, x.width);
  const ActPack pack = b_.PackWhole(Role::kExpertDown, FactsOf(Role::kExpertUp).component, hidden, x.width,
                                    [](const Shard&, const LayerPart& p) { return std::vector{p.experts.hidden}; });
  const Span& part = latent ? b_.part().experts.latent : b_.part().fed;
  Mat<float> given(expert_out_.data, routed, part.size());
  const std::span<const int32_t> slots(b_.plan().group_slots, static_cast<size_t>(routed));
  if (b_.Get(Role::kExpertDown).rows > 0) {
    b_.AddMatMul(Role::kExpertDown, MatMulOp{.x = pack,
                                             .w = b_.Get(Role::kExpertDown),
                                             .bias = b_.GetBias(Role::kExpertDown),
                                             .out = given,
                                             .out_row = !owned    ? slots
                                                        : fetched ? std::span(b_.plan().group_places, slots.size())
                                                                  : std::span<const int32_t>()});
  }
  if (fetched) b_.plan().fetched.back().end = b_.plan().ops.size();
  if (owned) given = b_.GatherSlots(given);
  b_.SetRows(RowsOf::kBatch);
  const PlanBuilder::Destination to =
      latent ? PlanBuilder::Destination{latent_out_.Cols(part.begin, part.size()), false} : b_.Out(part);
  if (part.size() > 0) {
    const As as(b_, owned ? Work::kWhole : Work::kOwn);
    b_.Add(
        Component::kMoeCombine,
        MoeCombineOp{.y = given, .weights = route_weights_, .weighted = !x.weighted_inputs, .add_to_out = to.add, .out = to.out});
  }
  const As after(b_, Work::kWhole);
  if (latent) {
    b_.GatherInPlace(Component::kMoeCombine, latent_out_,
                     [](const Shard&, const LayerPart& p) { return std::vector{p.experts.latent}; });
    b_.ProjectOut(Role::kLatentOut, latent_out_, b_.part().fed);
  }
  if (x.shared_width > 0) SharedExperts(in, b_.BlockOut().Cols(b_.part().fed.begin, b_.part().fed.size()));
  if (x.shared_activation && b_.part().fed.size() > 0) SharedActivation(in.Cols(b_.part().fed.begin, b_.part().fed.size()));
  return Role::kExpertDown;
}

// Takes the place of shared experts: adds act(in), and overwrites `in`.
void ExpertsPlanner::SharedActivation(Mat<float> in) {
  const As as(b_, in.cols < b_.recipe().d_model ? Work::kOwn : Work::kWhole);
  b_.Add(Role::kSharedExpertUp, ElementwiseOp{.x = in, .activation = b_.layer().network.activation});
  const Component down = FactsOf(Role::kSharedExpertDown).component;
  b_.Add({down, down}, GatedAddOp{.y = in, .out = b_.BlockOut().Cols(b_.part().fed.begin, in.cols)});
}

// Adds the shared experts' output to `out`, through their gate if they have one.
void ExpertsPlanner::SharedExperts(Mat<const float> in, Mat<float> out) {
  const Mat<float> hidden = b_.hidden(b_.max_batch(), b_.part().experts.shared.size());
  FirstMatrices(Role::kSharedExpertGate, Role::kSharedExpertUp, in, hidden);
  ScaleHidden(Role::kSharedExpertDown, hidden, b_.layer().experts.shared_width);
  const ActPack pack =
      b_.PackWhole(Role::kSharedExpertDown, FactsOf(Role::kSharedExpertUp).component, hidden, b_.layer().experts.shared_width,
                   [](const Shard&, const LayerPart& p) { return std::vector{p.experts.shared}; });
  if (out.cols == 0) return;
  if (!b_.layer().experts.shared_gate) return b_.Multiply(Role::kSharedExpertDown, pack, out, {.add_to_out = true});
  const Mat<float> given = b_.First(shared_out_, out.cols);
  b_.Multiply(Role::kSharedExpertDown, pack, given, {});
  b_.Project(Role::kSharedExpertSigmoid, in, shared_gate_);
  const GatedAddOp op{.y = given, .gate = shared_gate_, .out = out};
  // Every process needs the gate.
  const As as(b_, out.cols < b_.recipe().d_model ? Work::kOwn : Work::kWhole);
  b_.Add({Component::kSharedSigmoid, Component::kSharedDown}, op);
  CopiedWork& copied = b_.last().copied;
  if (b_.shard().rank == 0 || copied.all) return;
  GatedAddOp no_columns = op;
  no_columns.y.cols = no_columns.out.cols = 0;
  copied.part = [no_columns](const CostAmounts& n) { return no_columns.Useful(n, 0); };
}

}  // namespace

const BlockPlan kSparsePlan = {NewPlanner<ExpertsPlanner>};

}  // namespace tally
