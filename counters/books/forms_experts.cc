// SPDX-License-Identifier: Apache-2.0
// A mixture of experts: router, experts, shared experts.
#include "counters/books/blocks.h"
#include "counters/books/shared_forms.h"

namespace tally::books {
namespace {

std::vector<SizeSymbol> ExpertSymbols(const LayerRecipe& l) {
  return {{"E_x", Unsigned(l.experts.latent), "width of what experts work on"}};
}

struct ExpertForms {
  Form X, k;    // experts, and how many a token uses
  Form Fx, Fs;  // widths of an expert and of the shared experts together
  Form Ex;      // what experts work on: E_x, or E
};
ExpertForms ExpertFormsOf(const FormBuilder& b) {
  const Experts& e = b.layer().experts;
  return {Form::Symbol("X", Unsigned(e.n_experts)), Form::Symbol("k", Unsigned(e.top_k)),
          Form::Symbol(AnyLayer(b.recipe(), &LayerRecipe::dense) ? "F_x" : "F", Unsigned(e.width)),
          Form::Symbol("F_s", Unsigned(e.shared_width)), e.latent > 0 ? FormsOf<1>(ExpertSymbols(b.layer()))[0] : b.E()};
}

// The choice takes k X compares. Softmax, per value of k or X: maximum, subtract, add; special: exp, divide. Sigmoid, per
// value of X: add, and the bias for the choice; special: exp, divide.
// Groups: their scores take a compare for each of the best of each expert, and adds; kept_groups compares of each.
void RouterWork(WorkBuilder& w, const Form& X, const Form& k) {
  const Experts& e = w.layer().experts;
  const bool sigmoid = SigmoidOfAll(e.routing), one_by_one = e.routing == RoutingRule::kTopKThenSigmoid;
  const bool choice_bias = e.router_bias && (sigmoid || SoftmaxOfAll(e.routing));  // joins the scores, not the logits
  if (e.router_norm) w.RmsNorm(Component::kRouterNorm, w.rows(), w.E());
  w.Linear(Component::kRouter, w.rows(), w.E(), X, e.router_bias && !choice_bias, WorkClass::kRouter);
  Form chosen = k * X, special;
  if (e.groups > 1) {
    const uint64_t groups = Unsigned(e.groups), best = Unsigned(e.group_best);
    chosen += best * X + Form(Unsigned(e.kept_groups) * groups + (best - 1) * groups);
  }
  if (e.route_scale != 1) chosen += k;
  if (e.weight_scales) chosen += k;
  if (choice_bias) chosen += X;
  if (sigmoid || one_by_one) {
    chosen += one_by_one ? k : X;
    special = 2 * (one_by_one ? k : X);
  } else {
    const Form& over = e.routing == RoutingRule::kTopKThenSoftmax ? k : X;
    chosen += 3 * over;
    special = 2 * over;
  }
  if (Renormed(e.routing)) {
    chosen += e.route_sum_eps != 0 ? k : k - 1;
    special += k;
  }
  w.Add(Component::kRouter, WorkClass::kRouter, w.rows() * chosen, w.rows() * special);
}

Component ExpertsWork(WorkBuilder& w) {
  const LayerRecipe& l = w.layer();
  const Experts& e = l.experts;
  const auto& [X, k, Fx, Fs, Ex] = ExpertFormsOf(w);
  const Form &rows = w.rows(), &E = w.E();
  const bool own = l.residual.own_output(), latent = e.latent > 0;
  RouterWork(w, X, k);
  if (latent) w.Linear(Component::kLatentIn, rows, E, Ex, false);
  w.set_expert(true);
  NetworkWork(w, Component::kFfnGateUp, Component::kFfnDown, rows * k, Ex, Fx, e.bias, l.network.gated && !e.ungated, e.limit);
  w.set_expert(false);
  // The weighted sum of the experts' outputs, added to the residual. A matrix first brings it back from a space of the experts' own.
  // Weights multiply the experts' outputs or inputs: 2 k either way.
  w.Add(Component::kMoeCombine, WorkClass::kResidualBias, rows * Ex * (own || latent ? 2 * k : 2 * k + 1));
  if (latent) w.Linear(Component::kLatentOut, rows, Ex, E, false);
  if (latent && !own) w.Add(Component::kLatentOut, WorkClass::kResidualBias, rows * E);
  if (own) w.Residual(l.residual.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
  if (e.shared_activation) {  // an activation, multiplied by 1 and added
    const ActivationForm a = ActivationOf(l.network.activation, false);
    w.Add(Component::kSharedGateUp, WorkClass::kActivation, a.flops * (rows * E), a.special * (rows * E));
    w.Add(Component::kSharedDown, WorkClass::kResidualBias, 2 * (rows * E));
  }
  if (e.shared_width == 0) return Component::kFfnDown;
  NetworkWork(w, Component::kSharedGateUp, Component::kSharedDown, rows, E, Fs, e.bias, l.network.gated, e.shared_limit);
  w.Add(Component::kSharedDown, WorkClass::kResidualBias, rows * E);
  if (e.shared_gate) {
    w.Linear(Component::kSharedSigmoid, rows, E, 1, false);
    w.Add(Component::kSharedSigmoid, WorkClass::kActivation, rows * (E + 1), 2 * rows);
  }
  return Component::kFfnDown;
}

void ExpertsParameters(ParameterBuilder& p) {
  const Experts& e = p.layer().experts;
  const auto& [X, k, Fx, Fs, Ex] = ExpertFormsOf(p);
  if (e.router_norm) p.RmsNorm("ffn_gate_inp_norm", Component::kRouterNorm, p.E());
  p.Projection("ffn_gate_inp", Component::kRouter, X, p.E(), e.router_bias);
  if (e.weight_scales) p.Vector("ffn_down_exps_scale", Component::kRouter, X);
  if (e.latent > 0) p.Matrix("ffn_latent_down", Component::kLatentIn, Ex, p.E());
  if (p.layer().network.gated && !e.ungated) p.Experts("ffn_gate_exps", Component::kFfnGateUp, X, k, Fx, Ex, e.bias);
  p.Experts("ffn_up_exps", Component::kFfnGateUp, X, k, Fx, Ex, e.bias);
  p.Experts("ffn_down_exps", Component::kFfnDown, X, k, Ex, Fx, e.bias);
  if (e.latent > 0) p.Matrix("ffn_latent_up", Component::kLatentOut, p.E(), Ex);
  if (e.shared_width == 0) return;
  NetworkParameters(p, "_shexp", Fs, e.bias, Component::kSharedGateUp, Component::kSharedDown);
  if (e.shared_gate) p.Vector("ffn_gate_inp_shexp", Component::kSharedSigmoid, p.E());
}

Component ExpertsGathers(GatherBuilder& g) {
  const Experts& e = g.layer().experts;
  const auto& [X, k, Fx, Fs, Ex] = ExpertFormsOf(g);
  const Form &rows = g.rows(), chosen = rows * k;
  if (g.own_experts()) {
    g.ByExperts(Component::kFfnDown, chosen, Ex);
    return Component::kFfnDown;
  }
  g.PackedPieces(Role::kExpertDown, Component::kFfnGateUp, chosen, Fx);
  if (e.latent > 0) g.Pieces(Component::kMoeCombine, rows, Ex);
  if (e.shared_width > 0) g.PackedPieces(Role::kSharedExpertDown, Component::kSharedGateUp, rows, Fs);
  return Component::kFfnDown;
}

}  // namespace

const BlockForms kSparseForms = {.in = [](const LayerRecipe& l) { return l.sparse(); },
                                 .parameters = ExpertsParameters,
                                 .work = ExpertsWork,
                                 .communication = ExpertsGathers,
                                 .symbols = ExpertSymbols};

}  // namespace tally::books
