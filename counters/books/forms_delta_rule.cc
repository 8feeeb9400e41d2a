// SPDX-License-Identifier: Apache-2.0
// The gated delta rule.
#include "counters/books/blocks.h"

namespace tally::books {
namespace {

std::vector<SizeSymbol> DeltaSymbols(const LayerRecipe& l) {
  const DeltaRule& d = l.delta;
  return {{"J", Unsigned(d.taps), "taps of a convolution"},
          {"H_k", Unsigned(d.key_heads), "key heads of the delta rule"},
          {"H_v", Unsigned(d.value_heads), "value heads of the delta rule"},
          {"N_k", Unsigned(d.key_dim), "elements of its keys"},
          {"N_v", Unsigned(d.value_dim), "elements of its values"},
          {"R_g", Unsigned(d.gate_rank), "rank of its gates"}};
}

// One matrix, or two over a space of R_g elements.
void LowRankWork(WorkBuilder& w, Component component, const Form& Rg, const Form& out) {
  if (w.layer().delta.gate_rank == 0) return w.Linear(component, w.rows(), w.E(), out, false);
  w.Linear(component, w.rows(), w.E(), Rg, false);
  w.Linear(component, w.rows(), Rg, out, false);
}

// Per value head, with S [N_k, N_v]: S^T k and S^T q, and k u^T added to S; the decay of S; the query's scale and k.q; u = beta (v - w
// S^T k) and the output w S^T q + (k.q) u.
// With a decay for each element of the keys: w k and w q too; u = beta (v - S^T w k), the output S^T w q + (k.q) u.
Component DeltaWork(WorkBuilder& w) {
  const DeltaRule& d = w.layer().delta;
  const auto [J, Hk, Hv, Nk, Nv, Rg] = FormsOf<6>(DeltaSymbols(w.layer()));
  const Form &rows = w.rows(), &E = w.E(), channels = 2 * Hk * Nk + Hv * Nv;
  w.Linear(Component::kRecurrentIn, rows, E, channels, false);
  LowRankWork(w, Component::kRecurrentGate, Rg, Hv * Nv);
  w.Linear(Component::kRecurrentRates, rows, E, d.channel_decay ? Hv : 2 * Hv, false);
  if (d.channel_decay) LowRankWork(w, Component::kRecurrentRates, Rg, Hv * Nk);
  w.Convolve(J, channels, false);
  // Keys and queries of length 1. Per element: square, add, multiply. Per vector: eps; special: rsqrt.
  w.Add(Component::kRecurrentNorm, WorkClass::kNorm, 2 * rows * Hk * (3 * Nk + 1), 2 * rows * Hk);
  if (d.channel_decay) {
    // Per element of the keys: the bias; A log(1 + exp(x)), or b / (1 + exp(A x)); exp of it. Per head: beta, a sigmoid.
    const Form elements = rows * Hv * Nk, heads = rows * Hv;
    w.Add(Component::kRecurrentRates, WorkClass::kResidualBias, elements);
    w.Add(Component::kRecurrentRates, WorkClass::kActivation, (d.decay_bound != 0 ? 3 : 2) * elements + heads,
          3 * elements + 2 * heads);
  } else {
    w.Rates(Hv, 0, true);
  }
  w.Add(Component::kRecurrence, WorkClass::kRecurrence, 6 * rows * Hv * Nk * Nv, {}, true);
  const Form vectors = d.channel_decay ? 5 * Nk + 4 * Nv : 3 * Nk + 6 * Nv;
  w.Add(Component::kRecurrence, WorkClass::kRecurrence, rows * Hv * (Nk * Nv + vectors));
  w.RmsNorm(Component::kRecurrentNorm, rows * Hv, Nv);
  w.Activate(Component::kRecurrentNorm, d.channel_decay ? ActivationKind::kSigmoid : ActivationKind::kSilu, rows * Hv * Nv);
  w.Linear(Component::kRecurrentOut, rows, Hv * Nv, E, false);
  return Component::kRecurrentOut;
}

// The names of two matrices end in "_a" and "_b".
void LowRankParameters(ParameterBuilder& p, const char* name, const std::string& low, Component component, const Form& Rg,
                       const Form& rows) {
  if (p.layer().delta.gate_rank == 0) return p.Matrix(name, component, rows, p.E());
  p.Matrix(low + "_a", component, Rg, p.E());
  p.Matrix(low + "_b", component, rows, Rg);
}

void DeltaParameters(ParameterBuilder& p) {
  const bool channel_decay = p.layer().delta.channel_decay;
  const auto [J, Hk, Hv, Nk, Nv, Rg] = FormsOf<6>(DeltaSymbols(p.layer()));
  const Form keys = Hk * Nk, values = Hv * Nv, decays = channel_decay ? Hv * Nk : Hv;
  p.Matrix("delta_q", Component::kRecurrentIn, keys, p.E());
  p.Matrix("delta_k", Component::kRecurrentIn, keys, p.E());
  p.Matrix("delta_v", Component::kRecurrentIn, values, p.E());
  LowRankParameters(p, "attn_gate", "ssm_g", Component::kRecurrentGate, Rg, values);
  p.Matrix("ssm_beta", Component::kRecurrentRates, Hv, p.E());
  LowRankParameters(p, "ssm_alpha", "ssm_f", Component::kRecurrentRates, Rg, decays);
  if (channel_decay) {
    p.Taps("ssm_conv1d_q", Component::kRecurrentConv, J, keys);
    p.Taps("ssm_conv1d_k", Component::kRecurrentConv, J, keys);
    p.Taps("ssm_conv1d_v", Component::kRecurrentConv, J, values);
  } else {
    p.Taps("ssm_conv1d", Component::kRecurrentConv, J, 2 * Hk * Nk + values);
  }
  p.Vector("ssm_dt.bias", Component::kRecurrentRates, decays);
  p.Vector("ssm_a", Component::kRecurrentRates, Hv);
  p.RmsNorm("ssm_norm", Component::kRecurrentNorm, Nv);
  p.Matrix("ssm_out", Component::kRecurrentOut, p.E(), values);
}

// By key head; ranks without one are idle.
Component DeltaGathers(GatherBuilder& g) {
  const auto [J, Hk, Hv, Nk, Nv, Rg] = FormsOf<6>(DeltaSymbols(g.layer()));
  const uint64_t key_heads = Hk.value(), per_key_head = Hv.value() / key_heads, ranks = g.ranks();
  const GatherBuilder::OfRank own = [=, elements = per_key_head * Nv.value()](uint64_t rank) {
    return Dealt(key_heads, 1, rank, ranks) * elements;
  };
  g.Packed(Role::kSsmOut, Component::kRecurrentNorm, g.rows(), Hv * Nv, own, g.layer().delta.tiled ? per_key_head : 1);
  return Component::kRecurrentOut;
}

BlockState DeltaState(const Recipe&, const LayerRecipe& l) {
  const auto [J, Hk, Hv, Nk, Nv, Rg] = FormsOf<6>(DeltaSymbols(l));
  return {Component::kRecurrentConv, (J - 1) * (2 * Hk * Nk + Hv * Nv), Hv * Nk * Nv};
}

}  // namespace

const BlockForms kDeltaRuleForms = {.in = [](const LayerRecipe& l) { return l.mixers.has(Mixer::kDeltaRule); },
                                    .parameters = DeltaParameters,
                                    .work = DeltaWork,
                                    .communication = DeltaGathers,
                                    .state = DeltaState,
                                    .symbols = DeltaSymbols};

}  // namespace tally::books
