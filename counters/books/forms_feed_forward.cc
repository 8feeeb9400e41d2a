// SPDX-License-Identifier: Apache-2.0
// The dense feed-forward, and the network that experts share with it.
#include "counters/books/blocks.h"
#include "counters/books/shared_forms.h"

namespace tally::books {
namespace {

constexpr LayerSize kDenseSizes[] = {{"F", [](const LayerRecipe& l) { return l.ffn.width; }, &LayerRecipe::dense}};

Component DenseWork(WorkBuilder& w) {
  const LayerRecipe& l = w.layer();
  NetworkWork(w, Component::kFfnGateUp, Component::kFfnDown, w.rows(), w.E(), SymbolOf(w.recipe(), l, kDenseSizes[0]), l.ffn.bias,
              l.network.gated);
  if (!l.both()) w.Residual(l.residual.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
  return Component::kFfnDown;
}

void DenseParameters(ParameterBuilder& p) {
  NetworkParameters(p, "", SymbolOf(p.recipe(), p.layer(), kDenseSizes[0]), p.layer().ffn.bias, Component::kFfnGateUp,
                    Component::kFfnDown);
}

Component DenseGathers(GatherBuilder& g) {
  g.PackedPieces(Role::kDown, Component::kFfnGateUp, g.rows(), SymbolOf(g.recipe(), g.layer(), kDenseSizes[0]));
  return Component::kFfnDown;
}

}  // namespace

void NetworkWork(WorkBuilder& w, Component in, Component out, const Form& rows, const Form& space, const Form& width, bool bias,
                 bool gated, float limit) {
  const Network& n = w.layer().network;
  const ActivationForm a = ActivationOf(limit > 0 ? ActivationKind::kSwigluLimited : n.activation, gated);
  const Form matrices = gated ? 2 : 1;
  w.Add(in, WorkClass::kLinear, 2 * matrices * rows * width * space, {}, true);
  if (bias) w.Add(in, WorkClass::kResidualBias, matrices * rows * width);
  w.Add(in, WorkClass::kActivation, a.flops * (rows * width), a.special * (rows * width));
  w.Scaled(in, n.gate_scale, rows * width);
  w.Scaled(out, n.down_scale, rows * width);
  w.Linear(out, rows, width, space, bias);
}

void NetworkParameters(ParameterBuilder& p, const std::string& tail, const Form& width, bool bias, Component in, Component out) {
  if (p.layer().network.gated) p.Projection("ffn_gate" + tail, in, width, p.E(), bias);
  p.Projection("ffn_up" + tail, in, width, p.E(), bias);
  p.Projection("ffn_down" + tail, out, p.E(), width, bias);
}

const BlockForms kDenseForms = {.in = [](const LayerRecipe& l) { return l.dense(); },
                                .parameters = DenseParameters,
                                .work = DenseWork,
                                .communication = DenseGathers,
                                .sizes = kDenseSizes};

}  // namespace tally::books
