// SPDX-License-Identifier: Apache-2.0
// Latent attention. It is run absorbed: all heads share the compressed key, of which the value is a part.
#include "counters/books/blocks.h"
#include "counters/books/shared_forms.h"

namespace tally::books {
namespace {

struct LatentSymbols {
  Form H, Rq, Rkv, Dn, Dr, Dv;
};
LatentSymbols LatentSymbolsOf(const Recipe& r, const LayerRecipe& l) {
  return {HeadsOf(r, l).H,
          Form::Symbol("R_q", Unsigned(l.latent.q_rank)),
          Form::Symbol("R_kv", Unsigned(l.latent.kv_rank)),
          Form::Symbol("D_n", Unsigned(l.latent.nope_dim)),
          Form::Symbol("D_r", Unsigned(l.latent.rope_dim)),
          Form::Symbol("D_v", Unsigned(l.latent.v_dim))};
}

Component LatentWork(WorkBuilder& w) {
  const LayerRecipe& l = w.layer();
  const auto& [H, Rq, Rkv, Dn, Dr, Dv] = LatentSymbolsOf(w.recipe(), l);
  const Form &rows = w.rows(), &E = w.E(), q_rows = H * (Dn + Dr);
  const bool expanded = w.workload().expanded;
  if (l.latent.q_rank > 0) {
    w.Linear(Component::kAttnQ, rows, E, Rq, false);
    w.RmsNorm(Component::kAttnQNorm, rows, Rq);
    w.Linear(Component::kAttnQ, rows, Rq, q_rows, false);
  } else {
    w.Linear(Component::kAttnQ, rows, E, q_rows, l.attention.q_bias);
  }
  w.Linear(Component::kAttnKv, rows, E, Rkv + Dr, false);
  w.RmsNorm(Component::kAttnKNorm, rows, Rkv);
  if (expanded) {
    w.Linear(Component::kAttnKv, rows, Rkv, H * (Dn + Dv), false);  // keys and values of all heads
  } else {
    w.Linear(Component::kAttnKv, rows * H, Dn, Rkv, false);  // each head's query for the compressed keys
  }
  RotateWork(w, H + 1);
  if (l.tempered()) w.Add(Component::kAttention, WorkClass::kResidualBias, rows * H * (Dn + Dr));
  if (expanded) {
    AttentionWork(w, Dn + Dr, Dv);
  } else {
    AttentionWork(w, Rkv + Dr, Rkv);
    w.Linear(Component::kAttnKv, rows * H, Rkv, Dv, false);  // each head's value
  }
  if (l.attention.gate) {  // a sigmoid of each head multiplies its values
    w.Linear(Component::kAttnGate, rows, E, H, false);
    const ActivationForm sigmoid = ActivationOf(ActivationKind::kSigmoid, false);
    w.Add(Component::kAttnGate, WorkClass::kActivation, sigmoid.flops * (rows * H), sigmoid.special * (rows * H));
    w.Add(Component::kAttnGate, WorkClass::kResidualBias, rows * H * Dv);
  }
  w.Linear(Component::kAttnOutput, rows, H * Dv, E, l.attention.o_bias);
  return Component::kAttnOutput;
}

void LatentParameters(ParameterBuilder& p) {
  const LayerRecipe& l = p.layer();
  const auto& [H, Rq, Rkv, Dn, Dr, Dv] = LatentSymbolsOf(p.recipe(), l);
  const Form q_rows = H * (Dn + Dr);
  if (l.latent.q_rank > 0) {
    p.Matrix("attn_q_a", Component::kAttnQ, Rq, p.E());
    p.RmsNorm("attn_q_a_norm", Component::kAttnQNorm, Rq);
    p.Matrix("attn_q_b", Component::kAttnQ, q_rows, Rq);
  } else {
    p.Projection("attn_q", Component::kAttnQ, q_rows, p.E(), l.attention.q_bias);
  }
  p.Matrix("attn_kv_a_mqa", Component::kAttnKv, Rkv + Dr, p.E());
  p.RmsNorm("attn_kv_a_norm", Component::kAttnKNorm, Rkv);
  p.Add("attn_k_b", Component::kAttnKv, false, H, H, Rkv, Dn);
  p.Add("attn_v_b", Component::kAttnKv, false, H, H, Dv, Rkv);
  if (l.attention.gate) p.Matrix("attn_q_gate", Component::kAttnGate, H, p.E());  // a gate of each head
  AttendedParameters(p, Dv);
}

Component LatentGathers(GatherBuilder& g) {
  const LatentSymbols s = LatentSymbolsOf(g.recipe(), g.layer());
  g.Packed(Role::kO, Component::kAttnKv, g.rows(), s.H * s.Dv, g.Heads(s.H, s.H, s.Dv));
  return Component::kAttnOutput;
}

CachedVectors LatentCache(const Recipe& r, const LayerRecipe& l, bool expanded) {
  const LatentSymbols s = LatentSymbolsOf(r, l);
  if (expanded) return {s.H, s.Dn + s.Dr + s.Dv};
  return {1, s.Rkv + s.Dr};
}

}  // namespace

const BlockForms kLatentAttentionForms = {.in = [](const LayerRecipe& l) { return l.mixers.has(Mixer::kLatentAttention); },
                                          .parameters = LatentParameters,
                                          .work = LatentWork,
                                          .communication = LatentGathers,
                                          .cached = LatentCache};

}  // namespace tally::books
