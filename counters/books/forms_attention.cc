// SPDX-License-Identifier: Apache-2.0
// Attention, and what latent attention shares with it: what queries see, scores, softmax, rope.
#include <algorithm>

#include "counters/books/blocks.h"
#include "counters/books/shared_forms.h"

namespace tally::books {
namespace {

constexpr LayerSize kHeadSizes[] = {{"H", [](const LayerRecipe& l) { return l.attention.n_heads; }, &LayerRecipe::attends},
                                    {"K", [](const LayerRecipe& l) { return l.attention.n_kv_heads; }, &LayerRecipe::attends},
                                    {"D", [](const LayerRecipe& l) { return l.attention.head_dim; }, &LayerRecipe::attends}};

// Norms of `heads` heads, before or after rope.
void QkNormWork(WorkBuilder& w, Component component, const Form& heads, const Form& D) {
  const Form& rows = w.rows();
  switch (w.layer().attention.qk_norm) {
    case QkNormKind::kNone: break;
    case QkNormKind::kHead: w.RmsNorm(component, rows * heads, D); break;
    case QkNormKind::kWhole: w.RmsNorm(component, rows, heads * D); break;
    case QkNormKind::kEachHead: w.Add(component, WorkClass::kNorm, rows * heads * (6 * D + 1), 3 * (rows * heads)); break;
    case QkNormKind::kUnweighted: w.UnweightedNorm(component, rows * heads, D); break;
  }
}

void QkvWork(WorkBuilder& w) {
  const Attention& a = w.layer().attention;
  const auto& [H, K, D] = HeadsOf(w.recipe(), w.layer());
  const Form& rows = w.rows();
  const bool own_kv = a.cache_of < 0;
  if (a.fused_qkv) {
    w.Linear(Component::kAttnQkv, rows, w.E(), (H + 2 * K) * D, a.q_bias);
  } else {
    w.Linear(Component::kAttnQ, rows, w.E(), H * D, a.q_bias);
    if (own_kv) w.Linear(Component::kAttnK, rows, w.E(), K * D, a.k_bias);
    if (own_kv && !a.v_is_k) w.Linear(Component::kAttnV, rows, w.E(), K * D, a.v_bias);
  }
  if (own_kv && a.v_norm) w.UnweightedNorm(a.v_is_k ? Component::kAttnK : Component::kAttnV, rows * K, D);
  if (a.qk_norm != QkNormKind::kUnweighted || a.qk_norm_everywhere || a.rope != LayerRope::kNone) {
    QkNormWork(w, Component::kAttnQNorm, H, D);
    if (own_kv) QkNormWork(w, Component::kAttnKNorm, K, D);
  }
  if (a.qkv_limit != 0) {  // a min and a max of each element
    if (a.fused_qkv) {
      w.Add(Component::kAttnQkv, WorkClass::kActivation, 2 * rows * (H + 2 * K) * D);
    } else {
      w.Add(Component::kAttnQ, WorkClass::kActivation, 2 * rows * H * D);
      if (own_kv) w.Add(Component::kAttnK, WorkClass::kActivation, 2 * rows * K * D);
      if (own_kv) w.Add(Component::kAttnV, WorkClass::kActivation, 2 * rows * K * D);
    }
  }
  RotateWork(w, own_kv ? H + K : H);
}

Component AttentionBlockWork(WorkBuilder& w) {
  const Attention& a = w.layer().attention;
  const auto& [H, K, D] = HeadsOf(w.recipe(), w.layer());
  const Form &rows = w.rows(), elements = rows * H * D;
  QkvWork(w);
  if (w.layer().tempered()) w.Add(Component::kAttention, WorkClass::kResidualBias, elements);
  AttentionWork(w, D, D);
  w.Scaled(Component::kAttnOutput, a.out_scale, elements);
  if (a.gate) {
    const Form gates = a.gate_each_head ? H : H * D;
    w.Linear(Component::kAttnGate, rows, w.E(), gates, false);
    // 1 / (1 + exp(-x)), or log(1 + exp(x)). A sigmoid of each element is charged with its product; otherwise the product is charged
    // apart.
    const bool apart = a.gate_each_head || a.gate_softplus;
    w.Add(Component::kAttnGate, WorkClass::kActivation, (apart ? 1 : 2) * (rows * gates), 2 * (rows * gates));
    if (apart) w.Add(Component::kAttnGate, WorkClass::kResidualBias, elements);
  }
  w.Linear(Component::kAttnOutput, rows, H * D, w.E(), a.o_bias);
  return Component::kAttnOutput;
}

void AttentionParameters(ParameterBuilder& p) {
  const Attention& a = p.layer().attention;
  const auto& [H, K, D] = HeadsOf(p.recipe(), p.layer());
  const Form q = H * D, kv = K * D;
  const bool own_kv = a.cache_of < 0;
  if (a.fused_qkv) {
    p.Projection("attn_qkv", Component::kAttnQkv, (H + 2 * K) * D, p.E(), a.q_bias);
  } else {
    p.Projection("attn_q", Component::kAttnQ, q, p.E(), a.q_bias);
    if (own_kv) p.Projection("attn_k", Component::kAttnK, kv, p.E(), a.k_bias);
    if (own_kv && !a.v_is_k) p.Projection("attn_v", Component::kAttnV, kv, p.E(), a.v_bias);
  }
  if (a.qk_norm != QkNormKind::kNone && a.qk_norm != QkNormKind::kUnweighted) {
    const bool all = a.qk_norm != QkNormKind::kHead;
    p.RmsNorm("attn_q_norm", Component::kAttnQNorm, all ? q : D);
    if (own_kv) p.RmsNorm("attn_k_norm", Component::kAttnKNorm, all ? kv : D);
  }
  if (a.gate) p.Matrix("attn_q_gate", Component::kAttnGate, a.gate_each_head ? H : q, p.E());
  AttendedParameters(p, D);
}

Component AttentionGathers(GatherBuilder& g) {
  const Attention& a = g.layer().attention;
  const auto& [H, K, D] = HeadsOf(g.recipe(), g.layer());
  if (a.qk_norm == QkNormKind::kWhole) {
    g.ByColumns(Component::kAttnQNorm, g.rows(), H * D, g.Heads(H, K, D));
    if (a.cache_of < 0) g.ByColumns(Component::kAttnKNorm, g.rows(), K * D, g.Groups(H, K, D));
  }
  g.Packed(Role::kO, Component::kAttention, g.rows(), H * D, g.Heads(H, K, D));
  return Component::kAttnOutput;
}

CachedVectors AttentionCache(const Recipe& r, const LayerRecipe& l, bool) {
  const HeadSymbols of = HeadsOf(r, l);
  return {2 * of.K, of.D};
}

// Twice the sum of the positions that each of a sequence's rows sees: min(position + 1, window), or position % chunk + 1.
Form TwiceVisible(const WorkBuilder& w) {
  const uint64_t context = w.workload().context, rows = w.workload().rows, begin = context - rows;
  const uint64_t limit = Unsigned(w.layer().attention.window), chunk = Unsigned(w.layer().attention.chunk);
  const Form &P = w.P(), &S = w.S();
  if (chunk > 0 && context > chunk) {
    if (rows == 1) return 2 * Form::Symbol("S_c", begin % chunk + 1);
    const Form C = Form::Symbol("C", chunk);
    const auto of_first = [&](uint64_t n) {  // of positions [0, n)
      const uint64_t rest = n % chunk;
      return n / chunk * (C * (C + 1)) + Form(rest * (rest + 1));
    };
    return of_first(context) - of_first(begin);
  }
  const Form W = Form::Symbol("W", limit);
  if (limit == 0 || context <= limit) {
    if (rows == 1) return 2 * S;
    return begin == 0 ? P * (P + 1) : P * (2 * S - P + 1);
  }
  if (begin + 1 >= limit) return 2 * P * W;
  const Form grown = W * (W + 1), rest = 2 * (S - W) * W;
  return begin == 0 ? grown + rest : grown - (S - P) * (S - P + 1) + rest;
}

}  // namespace

HeadSymbols HeadsOf(const Recipe& r, const LayerRecipe& l) {
  return {SymbolOf(r, l, kHeadSizes[0]), SymbolOf(r, l, kHeadSizes[1]), SymbolOf(r, l, kHeadSizes[2])};
}

Form RopeDim(const Recipe& r, const LayerRecipe& l) {
  const Rope& rope = l.attention.rope == LayerRope::kLocal ? r.local_rope : r.rope;
  if (l.attention.rope == LayerRope::kNone || rope.style == RopeStyle::kNone) return {};
  if (rope.dim == l.attention.head_dim) return HeadsOf(r, l).D;
  return Form::Symbol(rope.dim == r.rope.dim ? "D_r" : "D_l", Unsigned(rope.dim));
}

// Per rotated pair: two multiplies and two multiply-adds.
void RotateWork(WorkBuilder& w, const Form& heads) {
  w.Add(Component::kRope, WorkClass::kRope, w.rows() * heads * (6 * RopeDim(w.recipe(), w.layer())).Half());
}

void AttentionWork(WorkBuilder& w, const Form& key, const Form& value) {
  const Attention& a = w.layer().attention;
  const Form H = HeadsOf(w.recipe(), w.layer()).H, twice = TwiceVisible(w), heads = w.B() * H;
  const Form scores = (heads * twice).Half();  // query heads times visible keys
  w.AddSeen(Component::kAttention, heads * twice * (key + value), 2 * w.B() * w.P() * w.S() * H * (key + value));
  // Per score: scale, maximum, subtract, add; special: exp. Per output: divide. A sink is one more score, without the scale.
  // Soft cap: two multiplies; special: tanh. ALiBi: a multiply-add.
  const Form sunk = a.sinks ? w.rows() * H : Form(0);
  const uint64_t capped = a.softcap != 0 ? 1 : 0, biased = w.recipe().alibi_bias > 0 ? 1 : 0;
  w.Add(Component::kAttention, WorkClass::kSoftmax, (4 + 2 * capped + 2 * biased) * scores + 3 * sunk,
        (1 + capped) * scores + w.rows() * H * value + sunk);
}

void AttendedParameters(ParameterBuilder& p, const Form& value) {
  const Form H = HeadsOf(p.recipe(), p.layer()).H;
  if (p.layer().attention.sinks) p.Vector("attn_sinks", Component::kAttention, H);
  p.Projection("attn_output", Component::kAttnOutput, p.E(), H * value, p.layer().attention.o_bias);
}

uint64_t CachedPositions(const LayerRecipe& l, uint64_t context) {
  const int32_t seen = std::max(l.attention.window, l.attention.chunk);
  return seen > 0 ? std::min(context, Unsigned(seen)) : context;
}

uint64_t SeenPositions(const LayerRecipe& l, uint64_t context) {
  const uint64_t seen = l.attention.chunk > 0 && context > 0 ? (context - 1) % Unsigned(l.attention.chunk) + 1 : context;
  return l.attention.window > 0 ? std::min(seen, Unsigned(l.attention.window)) : seen;
}

const BlockForms kAttentionForms = {.in = [](const LayerRecipe& l) { return l.mixers.has(Mixer::kAttention); },
                                    .parameters = AttentionParameters,
                                    .work = AttentionBlockWork,
                                    .communication = AttentionGathers,
                                    .cached = AttentionCache,
                                    .sizes = kHeadSizes};

}  // namespace tally::books
