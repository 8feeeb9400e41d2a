// SPDX-License-Identifier: Apache-2.0
// The block of experts: the router, the experts that it chose, what is shared by all rows.
#include <utility>

#include "engine/graph/planner.h"

namespace tally {

// Packs rows for the experts' matrix of a role: row i of the pack is row index[i] of `in`, or row i without an index. `of`: the rows that
// `in` has.
ActPack Planner::PackRouted(Role role, Mat<const float> in, const int32_t* index, RowsOf of) {
  const int64_t routed = n_ * layer().experts.top_k;
  const ActPack pack{.format = FormatFor(role), .rows = routed, .cols = in.cols, .data = pack_, .groups = {plan_.groups, 0}};
  Add(role, PackActOp{.x = in, .row_index = {index, index != nullptr ? static_cast<size_t>(routed) : 0}, .pack = pack});
  plan_.ops.back().input_rows = of;
  return pack;
}

void Planner::SparseFeedForward(Mat<float> in) {
  const Experts& x = layer().experts;
  const int64_t routed = n_ * x.top_k;
  const bool choice_bias = SoftmaxOfAll(x.routing) || SigmoidOfAll(x.routing);
  if (x.router_norm) Norm(Role::kRouterNorm, plan_.x, router_in_);
  Project(Role::kRouter, x.router_norm ? router_in_ : in, router_, {.bias = !choice_bias});
  Add(Role::kRouter, RouteOp{.logits = router_,
                             .top_k = x.top_k,
                             .rule = x.routing,
                             .bias = choice_bias ? GetBias(Role::kRouter) : WeightView{},
                             .groups = x.groups,
                             .kept_groups = x.kept_groups,
                             .group_best = x.group_best,
                             .scale = x.route_scale,
                             .expert_scale = x.weight_scales ? Get(Role::kExpertScale) : WeightView{},
                             .sum_eps = x.route_sum_eps,
                             .experts = route_experts_,
                             .weights = route_weights_});
  const Mat<float> hidden(hidden_.data, routed, part_.expert_hidden.size());
  const bool latent = x.latent > 0;
  if (latent) Project(Role::kLatentIn, in, latent_in_);
  const Mat<const float> given_in = latent ? Mat<const float>(latent_in_) : in;
  if (x.weighted_inputs) {
    Add(Component::kMoeCombine, ScaleRowsOp{.x = given_in, .weights = route_weights_, .out = expert_in_});
  }
  rows_ = RowsOf::kRouted;
  const bool owned = plan_.own_experts;
  const As experts(*this, owned ? Work::kOwn : Work::kWhole);
  const bool weighted = x.weighted_inputs;
  FirstMatrices(Role::kExpertGate, Role::kExpertUp, weighted ? expert_in_ : given_in, hidden,
                weighted ? plan_.group_slots : plan_.group_tokens, weighted ? RowsOf::kSlots : RowsOf::kBatch);
  ScaleHidden(Role::kExpertDown, hidden, x.width);
  const ActPack pack = PackWhole(Role::kExpertDown, FactsOf(Role::kExpertUp).component, hidden, x.width,
                                 [](const Shard&, const LayerPart& p) { return std::vector{p.expert_hidden}; });
  const Span& part = latent ? part_.latent : part_.fed;
  Mat<float> given(expert_out_.data, routed, part.size());
  const std::span<const int32_t> slots(plan_.group_slots, static_cast<size_t>(routed));
  if (Get(Role::kExpertDown).rows > 0) {
    AddMatMul(Role::kExpertDown, MatMulOp{.x = pack,
                                          .w = Get(Role::kExpertDown),
                                          .bias = GetBias(Role::kExpertDown),
                                          .out = given,
                                          .out_row = owned ? std::span<const int32_t>() : slots});
  }
  if (owned) given = GatherSlots(given);
  rows_ = RowsOf::kBatch;
  const Destination to = latent ? Destination{latent_out_.Cols(part.begin, part.size()), false} : Out(part);
  if (part.size() > 0) {
    const As as(*this, owned ? Work::kWhole : Work::kOwn);
    Add(Component::kMoeCombine,
        MoeCombineOp{.y = given, .weights = route_weights_, .weighted = !x.weighted_inputs, .add_to_out = to.add, .out = to.out});
  }
  const As after(*this, Work::kWhole);
  if (latent) {
    GatherInPlace(Component::kMoeCombine, latent_out_, [](const Shard&, const LayerPart& p) { return std::vector{p.latent}; });
    ProjectOut(Role::kLatentOut, latent_out_, part_.fed);
  }
  if (x.shared_width > 0) SharedExperts(in, (OwnOutput() ? block_out_ : plan_.x).Cols(part_.fed.begin, part_.fed.size()));
  if (x.shared_activation && part_.fed.size() > 0) SharedActivation(in.Cols(part_.fed.begin, part_.fed.size()));
}

// Takes the place of shared experts: adds act(in), and overwrites `in`.
void Planner::SharedActivation(Mat<float> in) {
  const As as(*this, in.cols < r_.d_model ? Work::kOwn : Work::kWhole);
  Add(Role::kSharedExpertUp, ElementwiseOp{.x = in, .activation = layer().network.activation});
  const Site site{layer_, FactsOf(Role::kSharedExpertDown).component};
  plan_.ops.push_back({.sites = {site, site},
                       .rows = rows_,
                       .op = GatedAddOp{.y = in, .out = (OwnOutput() ? block_out_ : plan_.x).Cols(part_.fed.begin, in.cols)},
                       .copied = {.all = IsCopy(), .part = {}}});
}

// Adds the shared experts' output to `out`, through their gate if they have one.
void Planner::SharedExperts(Mat<const float> in, Mat<float> out) {
  const Mat<float> hidden = First(hidden_, part_.shared.size());
  FirstMatrices(Role::kSharedExpertGate, Role::kSharedExpertUp, in, hidden);
  ScaleHidden(Role::kSharedExpertDown, hidden, layer().experts.shared_width);
  const ActPack pack =
      PackWhole(Role::kSharedExpertDown, FactsOf(Role::kSharedExpertUp).component, hidden, layer().experts.shared_width,
                [](const Shard&, const LayerPart& p) { return std::vector{p.shared}; });
  if (out.cols == 0) return;
  if (!layer().experts.shared_gate) return Multiply(Role::kSharedExpertDown, pack, out, {.add_to_out = true});
  const Mat<float> given = First(shared_out_, out.cols);
  Multiply(Role::kSharedExpertDown, pack, given, {});
  Project(Role::kSharedExpertSigmoid, in, shared_gate_);
  const GatedAddOp op{.y = given, .gate = shared_gate_, .out = out};
  // Every process needs the gate.
  const As as(*this, out.cols < r_.d_model ? Work::kOwn : Work::kWhole);
  CopiedWork copied{.all = IsCopy(), .part = {}};
  if (shard_.rank > 0 && !copied.all) {
    GatedAddOp no_columns = op;
    no_columns.y.cols = no_columns.out.cols = 0;
    copied.part = [no_columns](const CostAmounts& n) { return no_columns.Useful(n, 0); };
  }
  plan_.ops.push_back({.sites = {{layer_, Component::kSharedSigmoid}, {layer_, Component::kSharedDown}},
                       .rows = rows_,
                       .op = op,
                       .copied = std::move(copied)});
}

}  // namespace tally
