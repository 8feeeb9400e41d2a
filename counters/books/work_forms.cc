// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <utility>

#include "counters/books/closed_form.h"
#include "counters/books/symbols.h"

namespace tally::books {
namespace {

// Cost of an activation per element; exp, divide, erf and tanh are special (cost.h).
struct ActivationForm {
  uint64_t flops, special;
};
ActivationForm ActivationOf(ActivationKind kind, bool gated) {
  ActivationForm a{0, 0};
  switch (kind) {
    case ActivationKind::kNone: break;
    case ActivationKind::kSilu: a = {1, 2}; break;       // x / (1 + exp(-x))
    case ActivationKind::kGeluTanh: a = {8, 1}; break;   // 0.5 x (1 + tanh(c (x + d x^3)))
    case ActivationKind::kGeluErf: a = {4, 1}; break;    // 0.5 x (1 + erf(x c))
    case ActivationKind::kRelu: a = {1, 0}; break;       // max
    case ActivationKind::kRelu2: a = {2, 0}; break;      // max, its square
    case ActivationKind::kSigmoid: a = {1, 2}; break;    // 1 / (1 + exp(-x))
    case ActivationKind::kXielu: a = {7, 1}; break;      // b x; a x x; min, e^x - 1, - x, a; the sum of two
    case ActivationKind::kSwigluOai: return {7, 2};      // min; max, min; alpha g, 1 + exp; u + 1, product
    case ActivationKind::kSwigluLimited: return {5, 2};  // 1 + exp, min; min, max; product
  }
  if (gated) ++a.flops;
  return a;
}

class Work {
 public:
  Work(const Recipe& r, const Workload& w) : r_(r), s_(r), w_(w) {
    B_ = w.sequences == 1 ? Form(1) : Form::Symbol("B", w.sequences);
    P_ = w.rows == 1 ? Form(1) : Form::Symbol("P", w.rows);
    S_ = w.context == w.rows ? P_ : Form::Symbol("S", w.context);
    N_ = B_ * P_;
    logits_ = B_ * (w.logit_rows == w.rows ? P_ : Form(w.logit_rows));
  }

  std::vector<WorkForm> Take() {
    if (w_.predicting && !w_.own_states) Norm(Component::kOutputNorm, N_, s_.E);
    if (r_.embedding_scale != 1) Add(Component::kEmbedding, WorkClass::kResidualBias, N_ * s_.Ev);
    if (r_.embedding_width > 0) Linear(Component::kEmbeddingProj, N_, s_.Ev, s_.E, false);
    if (r_.learned_positions) Add(Component::kPositionEmbedding, WorkClass::kResidualBias, N_ * s_.E);
    if (r_.embedding_norm) Norm(Component::kEmbeddingNorm, N_, s_.E);
    if (r_.embedding_rms) UnweightedNorm(Component::kEmbedding, N_, s_.E);
    if (r_.layer_embedding > 0) {  // a row is scaled, joined by a norm's output, and the sum scaled
      Add(Component::kLayerEmbedding, WorkClass::kResidualBias, N_ * s_.LEl);
      Linear(Component::kLayerEmbeddingProj, N_, s_.E, s_.LEl, false);
      RmsNorm(Component::kLayerEmbeddingNorm, N_ * Form::Symbol("L", Unsigned(r_.n_layers)), s_.El);
      Add(Component::kLayerEmbeddingNorm, WorkClass::kResidualBias, N_ * s_.LEl);
      Add(Component::kLayerEmbeddingNorm, WorkClass::kActivation, N_ * s_.LEl);
    }
    // One table per rope in use. Per rotated pair: the angle, its cosine and sine, both multiplied by YaRN's magnitude.
    for (const LayerRope rope : {LayerRope::kGlobal, LayerRope::kLocal}) {
      const auto turns = [&](const LayerRecipe& l) { return l.attends() && l.attention.rope == rope; };
      const auto first = std::ranges::find_if(r_.layers, turns);
      if (first == r_.layers.end()) continue;
      const Form half = N_ * RopeDim(*first).Half();
      Add(Component::kRope, WorkClass::kRope, 3 * half, 2 * half);
    }
    // Attention temperature, once a step: two adds, a multiply, an add; special: divide, log.
    if (AnyLayer(r_, &LayerRecipe::tempered)) Add(Component::kAttention, WorkClass::kSoftmax, 4 * N_, 2 * N_);
    if (w_.predicting) {
      Prediction();
    } else {
      for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer(r_.layers[static_cast<size_t>(layer_)]);
      layer_ = -1;
      if (r_.output_norm) Norm(Component::kOutputNorm, logits_, s_.E);
    }
    if (r_.embedding_width > 0) Linear(Component::kHeadProj, logits_, s_.E, s_.Ev, false);
    Linear(Component::kHead, logits_, s_.Ev, s_.V, r_.head_bias);
    // Scale: a multiply. Soft cap: two multiplies; special: tanh.
    const uint64_t scaled = r_.logit_scale != 1 ? 1 : 0, capped = r_.logit_softcap != 0 ? 1 : 0;
    Add(Component::kLogits, WorkClass::kActivation, (scaled + 2 * capped) * (logits_ * s_.V), capped * (logits_ * s_.V));
    return std::move(out_);
  }

 private:
  const LayerRecipe& layer() const { return *at_layer_; }  // at hand
  // Rotated dimensions of a head; 0 without rope.
  Form RopeDim(const LayerRecipe& l) const {
    const Rope& rope = l.attention.rope == LayerRope::kLocal ? r_.local_rope : r_.rope;
    if (l.attention.rope == LayerRope::kNone || rope.style == RopeStyle::kNone) return {};
    if (rope.dim == l.attention.head_dim) return s_.Of(l).D;
    return Form::Symbol(rope.dim == r_.rope.dim ? "D_r" : "D_l", Unsigned(rope.dim));
  }

  // The last layer: norms of the next token's embedding and of the hidden state, and a matrix on both; a norm before the head.
  void Prediction() {
    layer_ = r_.n_layers - 1;
    for (int i = 0; i < 2; ++i) Norm(Component::kPrediction, N_, s_.E);
    Linear(Component::kPrediction, N_, 2 * s_.E, s_.E, false);
    Layer(r_.layers.back());
    Norm(Component::kPrediction, logits_, s_.E);
    layer_ = -1;
  }

  void Layer(const LayerRecipe& l) {
    at_ = s_.Of(l);
    at_layer_ = &l;
    const bool own = l.residual.post_norms || l.residual.scale != 1;  // a block has an output of its own
    if (!l.mixers.empty()) {
      if (l.residual.pre_norms) Norm(Component::kAttnNorm, N_, s_.E);
      bool first = true;
      Component last{};
      for (const Mixer mixer : kMixers) {
        if (!l.mixers.has(mixer)) continue;
        last = Mix(mixer, l);
        if (!own || !first) Add(last, WorkClass::kResidualBias, N_ * s_.E);
        first = false;
      }
      if (own) Residual(l.residual.post_norms ? Component::kAttnPostNorm : last);
      if (l.residual.post_norms) Norm(Component::kAttnPostNorm, N_, s_.E);
    }
    if (!l.feed_forward.empty()) FeedForwards(l);
    if (r_.layer_embedding > 0) {
      Linear(Component::kLayerGate, N_, s_.E, s_.El, false);
      Activate(Component::kLayerGate, l.network.activation, N_ * s_.El);
      Linear(Component::kLayerOut, N_, s_.El, s_.E, false);
      RmsNorm(Component::kLayerPostNorm, N_, s_.E);
      Add(Component::kLayerPostNorm, WorkClass::kResidualBias, N_ * s_.E);
    }
    if (l.residual.layer_scale) Add(Component::kLayerScale, WorkClass::kActivation, N_ * s_.E);
  }

  void FeedForwards(const LayerRecipe& l) {
    if (l.residual.pre_norms && l.residual.kind != Residual::kParallelOneNorm) Norm(Component::kFfnNorm, N_, s_.E);
    if (l.both()) {  // norms around each of the two; the sum of both is the block's output
      Network(Component::kFfnGateUp, Component::kFfnDown, N_, s_.E, at_.F, l.ffn.bias, l.network.gated);
      RmsNorm(Component::kDensePostNorm, N_, s_.E);
      RmsNorm(Component::kExpertNorm, N_, s_.E);
      RmsNorm(Component::kExpertPostNorm, N_, s_.E);
      Add(Component::kExpertPostNorm, WorkClass::kResidualBias, N_ * s_.E);
    }
    if (l.sparse()) {
      Sparse(l);
    } else {
      Network(Component::kFfnGateUp, Component::kFfnDown, N_, s_.E, at_.F, l.ffn.bias, l.network.gated);
      Residual(l.residual.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
    }
    if (l.residual.post_norms) Norm(Component::kFfnPostNorm, N_, s_.E);
  }

  // Gives the component of the mixer's last matrix.
  Component Mix(Mixer mixer, const LayerRecipe& l) {
    switch (mixer) {
      case Mixer::kAttention: {
        Projections(l);
        if (l.tempered()) {
          Add(Component::kAttention, WorkClass::kResidualBias, N_ * at_.H * at_.D);
        }
        Attention(l, at_.D, at_.D);
        Scaled(Component::kAttnOutput, l.attention.out_scale, N_ * at_.H * at_.D);
        if (l.attention.gate) {
          const Form gates = l.attention.gate_each_head ? at_.H : at_.H * at_.D;
          Linear(Component::kAttnGate, N_, s_.E, gates, false);
          // 1 / (1 + exp(-x)), or log(1 + exp(x)). A sigmoid of each element is charged with its product; otherwise the product is charged
          // apart.
          const bool apart = l.attention.gate_each_head || l.attention.gate_softplus;
          Add(Component::kAttnGate, WorkClass::kActivation, (apart ? 1 : 2) * (N_ * gates), 2 * (N_ * gates));
          if (apart) Add(Component::kAttnGate, WorkClass::kResidualBias, N_ * at_.H * at_.D);
        }
        Linear(Component::kAttnOutput, N_, at_.H * at_.D, s_.E, l.attention.o_bias);
        return Component::kAttnOutput;
      }
      case Mixer::kLatentAttention: {  // run absorbed: all heads share the compressed key, of which the value is a part
        LatentProjections(l);
        if (l.tempered()) {
          Add(Component::kAttention, WorkClass::kResidualBias, N_ * at_.H * (s_.Dn + s_.Dr));
        }
        if (w_.expanded) {
          Attention(l, s_.Dn + s_.Dr, s_.Dv);
        } else {
          Attention(l, s_.Rkv + s_.Dr, s_.Rkv);
          Linear(Component::kAttnKv, N_ * at_.H, s_.Rkv, s_.Dv, false);  // each head's value
        }
        if (l.attention.gate) {  // a sigmoid of each head multiplies its values
          Linear(Component::kAttnGate, N_, s_.E, at_.H, false);
          const ActivationForm sigmoid = ActivationOf(ActivationKind::kSigmoid, false);
          Add(Component::kAttnGate, WorkClass::kActivation, sigmoid.flops * (N_ * at_.H), sigmoid.special * (N_ * at_.H));
          Add(Component::kAttnGate, WorkClass::kResidualBias, N_ * at_.H * s_.Dv);
        }
        Linear(Component::kAttnOutput, N_, at_.H * s_.Dv, s_.E, l.attention.o_bias);
        return Component::kAttnOutput;
      }
      // Per element: B x; J multiply-adds, which include positions before the first; the product with C.
      case Mixer::kShortConv: {
        Linear(Component::kConvIn, N_, s_.E, 3 * s_.E, false);
        Add(Component::kShortConv, WorkClass::kActivation, 2 * (N_ * s_.E));
        Linear(Component::kShortConv, N_, s_.J, s_.E, false);
        Linear(Component::kConvOut, N_, s_.E, s_.E, false);
        return Component::kConvOut;
      }
      case Mixer::kDeltaRule: DeltaRule(); return Component::kRecurrentOut;
      case Mixer::kMamba2: Mamba(); return Component::kRecurrentOut;
    }
    return {};
  }

  // A fixed factor multiplies each element.
  void Scaled(Component component, float factor, const Form& elements) {
    if (factor != 1) Add(component, WorkClass::kActivation, elements);
  }

  // Per element: an activation, and the product with the value that it gates.
  void Activate(Component component, ActivationKind kind, const Form& elements) {
    const ActivationForm a = ActivationOf(kind, true);
    Add(component, WorkClass::kActivation, a.flops * elements, a.special * elements);
  }

  // The convolution of a recurrent mixer and its SiLU. Zeros before the first position are multiplied too.
  void Convolve(Mixer mixer, bool bias) {
    const Form channels = s_.Channels(mixer);
    const ActivationForm silu = ActivationOf(ActivationKind::kSilu, false);
    Linear(Component::kRecurrentConv, N_, s_.J, channels, bias);
    Add(Component::kRecurrentConv, WorkClass::kActivation, silu.flops * (N_ * channels), silu.special * (N_ * channels));
  }

  // Per head: the step's bias; log(1 + exp(x)), then exp(A step), with the compares of its limits; beta is a sigmoid.
  void Rates(const Form& heads, uint64_t limits, bool beta) {
    Add(Component::kRecurrentRates, WorkClass::kResidualBias, N_ * heads);
    Add(Component::kRecurrentRates, WorkClass::kActivation, (2 + limits + (beta ? 1 : 0)) * (N_ * heads),
        (beta ? 5 : 3) * (N_ * heads));
  }

  // Per value head, with S [N_k, N_v]: S^T k and S^T q, and k u^T added to S; the decay of S; the query's scale and k.q; u = beta (v - w
  // S^T k) and the output w S^T q + (k.q) u.
  // With a decay for each element of the keys: w k and w q too; u = beta (v - S^T w k), the output S^T w q + (k.q) u.
  void DeltaRule() {
    const Form &Hk = s_.Hk, &Hv = s_.Hv, &Nk = s_.Nk, &Nv = s_.Nv;
    const bool channels = layer().delta.channel_decay;
    Linear(Component::kRecurrentIn, N_, s_.E, s_.Channels(Mixer::kDeltaRule), false);
    LowRank(Component::kRecurrentGate, Hv * Nv);
    if (channels) {
      Linear(Component::kRecurrentRates, N_, s_.E, Hv, false);
      LowRank(Component::kRecurrentRates, Hv * Nk);
    } else {
      Linear(Component::kRecurrentRates, N_, s_.E, 2 * Hv, false);
    }
    Convolve(Mixer::kDeltaRule, false);
    // Keys and queries of length 1. Per element: square, add, multiply. Per vector: eps; special: rsqrt.
    Add(Component::kRecurrentNorm, WorkClass::kNorm, 2 * N_ * Hk * (3 * Nk + 1), 2 * N_ * Hk);
    channels ? ChannelRates() : Rates(Hv, 0, true);
    Add(Component::kRecurrence, WorkClass::kRecurrence, 6 * N_ * Hv * Nk * Nv, {}, true);
    const Form vectors = channels ? 5 * Nk + 4 * Nv : 3 * Nk + 6 * Nv;
    Add(Component::kRecurrence, WorkClass::kRecurrence, N_ * Hv * (Nk * Nv + vectors));
    RmsNorm(Component::kRecurrentNorm, N_ * Hv, Nv);
    Activate(Component::kRecurrentNorm, channels ? ActivationKind::kSigmoid : ActivationKind::kSilu, N_ * Hv * Nv);
    Linear(Component::kRecurrentOut, N_, Hv * Nv, s_.E, false);
  }

  // One matrix, or two over a space of R_g elements.
  void LowRank(Component component, const Form& out) {
    if (layer().delta.gate_rank == 0) return Linear(component, N_, s_.E, out, false);
    Linear(component, N_, s_.E, s_.Rg, false);
    Linear(component, N_, s_.Rg, out, false);
  }

  // Per element of the keys: the bias; A log(1 + exp(x)), or b / (1 + exp(A x)); exp of it. Per head: beta, a sigmoid.
  void ChannelRates() {
    const Form elements = N_ * s_.Hv * s_.Nk, heads = N_ * s_.Hv;
    Add(Component::kRecurrentRates, WorkClass::kResidualBias, elements);
    Add(Component::kRecurrentRates, WorkClass::kActivation, (layer().delta.decay_bound != 0 ? 3 : 2) * elements + heads,
        3 * elements + 2 * heads);
  }

  // Per head, with S [N, D_m]: S^T C, and B (step x)^T added to S; the decay of S; step x, and D x added to the output.
  void Mamba() {
    const Mamba2& m = layer().mamba;
    const Form &Hm = s_.Hm, &Dm = s_.Dm, &N = s_.N, groups = s_.G * N;
    Linear(Component::kRecurrentIn, N_, s_.E, 2 * Hm * Dm + 2 * groups + Hm, false);
    const Form parts[] = {Hm * Dm, Hm * Dm, groups, groups, Hm};
    for (size_t i = 0; i < m.multipliers.size(); ++i) {
      if (m.multipliers[i] != 1) Add(Component::kRecurrentIn, WorkClass::kActivation, N_ * parts[i]);
    }
    Convolve(Mixer::kMamba2, m.conv_bias);
    Rates(Hm, (m.dt_min > 0 ? 1 : 0) + (std::isfinite(m.dt_max) ? 1 : 0), false);
    Add(Component::kRecurrence, WorkClass::kRecurrence, 4 * N_ * Hm * N * Dm, {}, true);
    Add(Component::kRecurrence, WorkClass::kRecurrence, N_ * Hm * (N * Dm + 3 * Dm));
    if (m.norm) {
      const Form vectors = Form(Unsigned(m.norm_groups));
      Add(Component::kRecurrentNorm, WorkClass::kNorm, N_ * (4 * Hm * Dm + vectors), 2 * N_ * vectors);
    }
    Activate(Component::kRecurrentNorm, ActivationKind::kSilu, N_ * Hm * Dm);
    Scaled(Component::kRecurrentOut, layer().mamba.out_scale, N_ * Hm * Dm);
    Linear(Component::kRecurrentOut, N_, Hm * Dm, s_.E, false);
  }

  void Add(Component component, WorkClass work_class, const Form& flops, const Form& special = {}, bool matmul = false) {
    if (flops.value() == 0 && special.value() == 0 && !flops.overflow()) return;
    WorkForm f;
    f.layer = layer_;
    f.component = component;
    f.work_class = work_class;
    f.matmul = matmul;
    f.flops = flops;
    f.special = special;
    if (matmul) f.full_square = flops;
    f.expert = expert_;
    out_.push_back(std::move(f));
  }

  // `in` multiplies and `in` adds for each output. The bias is a residual/bias add.
  void Linear(Component component, const Form& rows, const Form& in, const Form& out, bool bias,
              WorkClass work_class = WorkClass::kLinear) {
    Add(component, work_class, 2 * rows * out * in, {}, true);
    if (bias) Add(component, WorkClass::kResidualBias, rows * out);
  }
  // An add, and a multiply by a scale.
  void Residual(Component component) {
    Add(component, WorkClass::kResidualBias, (layer().residual.scale != 1 ? 2 : 1) * (N_ * s_.E));
  }

  // Per element, RMS: square, add, two multiplies (1/rms, weight). LayerNorm: also an add for the mean, a subtract, the bias.
  // Per vector, RMS: eps; special: divide, rsqrt. LayerNorm: also the divide for the mean.
  void RmsNorm(Component component, const Form& vectors, const Form& dim) {
    Add(component, WorkClass::kNorm, vectors * (4 * dim + 1), 2 * vectors);
  }
  // Without weights: square, add, multiply.
  void UnweightedNorm(Component component, const Form& vectors, const Form& dim) {
    Add(component, WorkClass::kNorm, vectors * (3 * dim + 1), 2 * vectors);
  }
  void Norm(Component component, const Form& vectors, const Form& dim) {
    if (r_.norm == NormKind::kRms) return RmsNorm(component, vectors, dim);
    Add(component, WorkClass::kNorm, vectors * ((r_.norm_bias ? 7 : 6) * dim + 1), 3 * vectors);
  }
  // Norms of `heads` heads, before or after rope.
  void QkNorm(Component component, const Form& heads) {
    const Form& D = at_.D;
    switch (layer().attention.qk_norm) {
      case QkNormKind::kNone: break;
      case QkNormKind::kHead: RmsNorm(component, N_ * heads, D); break;
      case QkNormKind::kWhole: RmsNorm(component, N_, heads * D); break;
      case QkNormKind::kEachHead: Add(component, WorkClass::kNorm, N_ * heads * (6 * D + 1), 3 * (N_ * heads)); break;
      case QkNormKind::kUnweighted: UnweightedNorm(component, N_ * heads, D); break;
    }
  }

  void Projections(const LayerRecipe& l) {
    const Form &H = at_.H, &K = at_.K, &D = at_.D;
    const bool own_kv = l.attention.cache_of < 0;
    if (l.attention.fused_qkv) {
      Linear(Component::kAttnQkv, N_, s_.E, (H + 2 * K) * D, l.attention.q_bias);
    } else {
      Linear(Component::kAttnQ, N_, s_.E, H * D, l.attention.q_bias);
      if (own_kv) Linear(Component::kAttnK, N_, s_.E, K * D, l.attention.k_bias);
      if (own_kv && !l.attention.v_is_k) Linear(Component::kAttnV, N_, s_.E, K * D, l.attention.v_bias);
    }
    if (own_kv && l.attention.v_norm) UnweightedNorm(l.attention.v_is_k ? Component::kAttnK : Component::kAttnV, N_ * K, D);
    if (l.attention.qk_norm != QkNormKind::kUnweighted || l.attention.qk_norm_everywhere ||
        l.attention.rope != LayerRope::kNone) {
      QkNorm(Component::kAttnQNorm, H);
      if (own_kv) QkNorm(Component::kAttnKNorm, K);
    }
    if (l.attention.qkv_limit != 0) {  // a min and a max of each element
      const auto limit = [&](Component component, const Form& heads) {
        Add(component, WorkClass::kActivation, 2 * N_ * heads * D);
      };
      if (l.attention.fused_qkv) {
        limit(Component::kAttnQkv, H + 2 * K);
      } else {
        limit(Component::kAttnQ, H);
        if (own_kv) limit(Component::kAttnK, K);
        if (own_kv) limit(Component::kAttnV, K);
      }
    }
    Rotate(l, own_kv ? H + K : H);
  }

  void LatentProjections(const LayerRecipe& l) {
    const Form& H = at_.H;
    const Form q_rows = H * (s_.Dn + s_.Dr);
    if (l.latent.q_rank > 0) {
      Linear(Component::kAttnQ, N_, s_.E, s_.Rq, false);
      RmsNorm(Component::kAttnQNorm, N_, s_.Rq);
      Linear(Component::kAttnQ, N_, s_.Rq, q_rows, false);
    } else {
      Linear(Component::kAttnQ, N_, s_.E, q_rows, l.attention.q_bias);
    }
    Linear(Component::kAttnKv, N_, s_.E, s_.Rkv + s_.Dr, false);
    RmsNorm(Component::kAttnKNorm, N_, s_.Rkv);
    if (w_.expanded) {
      Linear(Component::kAttnKv, N_, s_.Rkv, H * (s_.Dn + s_.Dv), false);  // keys and values of all heads
    } else {
      Linear(Component::kAttnKv, N_ * H, s_.Dn, s_.Rkv, false);  // each head's query for the compressed keys
    }
    Rotate(l, H + 1);
  }

  // Per rotated pair: two multiplies and two multiply-adds.
  void Rotate(const LayerRecipe& l, const Form& heads) {
    Add(Component::kRope, WorkClass::kRope, N_ * heads * (6 * RopeDim(l)).Half());
  }

  // Twice the sum of the positions that each of a sequence's rows sees: min(position + 1, window), or position % chunk + 1.
  Form TwiceVisible(const LayerRecipe& l) const {
    const uint64_t begin = w_.context - w_.rows, limit = Unsigned(l.attention.window);
    const int32_t window = l.attention.window;
    if (l.attention.chunk > 0 && w_.context > Unsigned(l.attention.chunk)) {
      if (w_.rows == 1) return 2 * Form::Symbol("S_c", begin % Unsigned(l.attention.chunk) + 1);
      const Form C = Form::Symbol("C", Unsigned(l.attention.chunk));
      const auto of_first = [&](uint64_t n) {  // of positions [0, n)
        const uint64_t rest = n % Unsigned(l.attention.chunk);
        return n / Unsigned(l.attention.chunk) * (C * (C + 1)) + Form(rest * (rest + 1));
      };
      return of_first(w_.context) - of_first(begin);
    }
    const Form W = Form::Symbol("W", limit);
    if (window == 0 || w_.context <= limit) {
      if (w_.rows == 1) return 2 * S_;
      return begin == 0 ? P_ * (P_ + 1) : P_ * (2 * S_ - P_ + 1);
    }
    if (begin + 1 >= limit) return 2 * P_ * W;
    const Form grown = W * (W + 1), rest = 2 * (S_ - W) * W;
    return begin == 0 ? grown + rest : grown - (S_ - P_) * (S_ - P_ + 1) + rest;
  }

  // `key`, `value`: elements of a head's key and value as attention sees them.
  void Attention(const LayerRecipe& l, const Form& key, const Form& value) {
    const Form twice = TwiceVisible(l), heads = B_ * at_.H;
    const Form scores = (heads * twice).Half();  // query heads times visible keys
    Add(Component::kAttention, WorkClass::kAttention, heads * twice * (key + value), {}, true);
    out_.back().full_square = 2 * B_ * P_ * S_ * at_.H * (key + value);
    // Per score: scale, maximum, subtract, add; special: exp. Per output: divide. A sink is one more score, without the scale.
    // Soft cap: two multiplies; special: tanh. ALiBi: a multiply-add.
    const Form sunk = l.attention.sinks ? N_ * at_.H : Form(0);
    const uint64_t capped = l.attention.softcap != 0 ? 1 : 0, biased = r_.alibi_bias > 0 ? 1 : 0;
    Add(Component::kAttention, WorkClass::kSoftmax, (4 + 2 * capped + 2 * biased) * scores + 3 * sunk,
        (1 + capped) * scores + N_ * at_.H * value + sunk);
  }

  // `space`: the width of its input and output. `limit`: its SwiGLU's; 0: none.
  void Network(Component in, Component out, const Form& rows, const Form& space, const Form& width, bool bias, bool gated,
               float limit = 0) {
    const ActivationForm a = ActivationOf(limit > 0 ? ActivationKind::kSwigluLimited : layer().network.activation, gated);
    const Form matrices = gated ? 2 : 1;
    Add(in, WorkClass::kLinear, 2 * matrices * rows * width * space, {}, true);
    if (bias) Add(in, WorkClass::kResidualBias, matrices * rows * width);
    Add(in, WorkClass::kActivation, a.flops * (rows * width), a.special * (rows * width));
    Scaled(in, layer().network.gate_scale, rows * width);
    Scaled(out, layer().network.down_scale, rows * width);
    Linear(out, rows, width, space, bias);
  }

  void Sparse(const LayerRecipe& l) {
    const Form& X = s_.X;
    const Form& k = s_.k;
    const bool sigmoid = SigmoidOfAll(l.experts.routing), one_by_one = l.experts.routing == RoutingRule::kTopKThenSigmoid;
    const bool choice_bias =
        l.experts.router_bias && (sigmoid || SoftmaxOfAll(l.experts.routing));  // joins the scores, not the logits
    if (l.experts.router_norm) RmsNorm(Component::kRouterNorm, N_, s_.E);
    Linear(Component::kRouter, N_, s_.E, X, l.experts.router_bias && !choice_bias, WorkClass::kRouter);
    // The choice takes k X compares. Softmax, per value of k or X: maximum, subtract, add; special: exp, divide. Sigmoid, per
    // value of X: add, and the bias for the choice; special: exp, divide.
    // Groups: their scores take a compare for each of the best of each expert, and adds; kept_groups compares of each.
    Form chosen = k * X, special;
    if (l.experts.groups > 1) {
      const uint64_t groups = Unsigned(l.experts.groups), best = Unsigned(l.experts.group_best);
      chosen += best * X + Form(Unsigned(l.experts.kept_groups) * groups + (best - 1) * groups);
    }
    if (l.experts.route_scale != 1) chosen += k;
    if (l.experts.weight_scales) chosen += k;
    if (choice_bias) chosen += X;
    if (sigmoid || one_by_one) {
      chosen += one_by_one ? k : X;
      special = 2 * (one_by_one ? k : X);
    } else {
      const Form& over = l.experts.routing == RoutingRule::kTopKThenSoftmax ? k : X;
      chosen += 3 * over;
      special = 2 * over;
    }
    if (Renormed(l.experts.routing)) {
      chosen += l.experts.route_sum_eps != 0 ? k : k - 1;
      special += k;
    }
    Add(Component::kRouter, WorkClass::kRouter, N_ * chosen, N_ * special);
    if (l.experts.latent > 0) Linear(Component::kLatentIn, N_, s_.E, s_.Ex, false);
    expert_ = true;
    Network(Component::kFfnGateUp, Component::kFfnDown, N_ * k, s_.Ex, s_.Fx, l.experts.bias,
            l.network.gated && !l.experts.ungated, l.experts.limit);
    expert_ = false;
    // The weighted sum of the experts' outputs, added to the residual. A matrix first brings it back from a space of the experts' own.
    const bool own = l.residual.post_norms || l.residual.scale != 1;  // the block has an output of its own
    const bool latent = l.experts.latent > 0;
    // Weights multiply the experts' outputs or inputs: 2 k either way.
    Add(Component::kMoeCombine, WorkClass::kResidualBias, N_ * s_.Ex * (own || latent ? 2 * k : 2 * k + 1));
    if (latent) Linear(Component::kLatentOut, N_, s_.Ex, s_.E, false);
    if (latent && !own) Add(Component::kLatentOut, WorkClass::kResidualBias, N_ * s_.E);
    if (own) Residual(l.residual.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
    if (l.experts.shared_activation) {  // an activation, multiplied by 1 and added
      const ActivationForm a = ActivationOf(l.network.activation, false);
      Add(Component::kSharedGateUp, WorkClass::kActivation, a.flops * (N_ * s_.E), a.special * (N_ * s_.E));
      Add(Component::kSharedDown, WorkClass::kResidualBias, 2 * (N_ * s_.E));
    }
    if (l.experts.shared_width == 0) return;
    Network(Component::kSharedGateUp, Component::kSharedDown, N_, s_.E, s_.Fs, l.experts.bias, l.network.gated,
            l.experts.shared_limit);
    Add(Component::kSharedDown, WorkClass::kResidualBias, N_ * s_.E);
    if (!l.experts.shared_gate) return;
    Linear(Component::kSharedSigmoid, N_, s_.E, 1, false);
    Add(Component::kSharedSigmoid, WorkClass::kActivation, N_ * (s_.E + 1), 2 * N_);
  }

  const Recipe& r_;
  const Symbols s_;
  LayerSymbols at_;  // of the layer at hand
  const LayerRecipe* at_layer_ = nullptr;
  const Workload w_;
  Form B_, P_, S_, N_, logits_;
  bool expert_ = false;  // what is added is work of experts that tokens choose among
  int32_t layer_ = -1;
  std::vector<WorkForm> out_;
};

}  // namespace

std::vector<WorkForm> WorkForms(const Recipe& recipe, const Workload& work) { return Work(recipe, work).Take(); }

}  // namespace tally::books
