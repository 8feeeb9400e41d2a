// SPDX-License-Identifier: Apache-2.0
#include "counters/books/closed_form.h"

#include <algorithm>
#include <utility>

namespace tally::books {
namespace {

uint64_t U(int32_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }

bool AnyDense(const Recipe& r) {
  return std::any_of(r.layers.begin(), r.layers.end(), [](const LayerRecipe& l) { return !l.sparse; });
}

struct Symbols {
  Form V, E, H, K, D, F, X, k, T, Fx, Fs, Rq, Rkv, Dn, Dr, Dv;

  explicit Symbols(const Recipe& r)
      : V(Form::Symbol("V", U(r.vocab))),
        E(Form::Symbol("E", U(r.d_model))),
        H(Form::Symbol("H", U(r.n_heads))),
        K(Form::Symbol("K", U(r.n_kv_heads))),
        D(Form::Symbol("D", U(r.head_dim))),
        F(Form::Symbol("F", U(r.d_ff))),
        X(Form::Symbol("X", U(r.n_experts))),
        k(Form::Symbol("k", U(r.top_k))),
        T(Form::Symbol("T", U(r.context) + U(r.first_position))),
        Fx(Form::Symbol(AnyDense(r) ? "F_x" : "F", U(r.d_expert))),
        Fs(Form::Symbol("F_s", U(r.d_shared))),
        Rq(Form::Symbol("R_q", U(r.latent.q_rank))),
        Rkv(Form::Symbol("R_kv", U(r.latent.kv_rank))),
        Dn(Form::Symbol("D_n", U(r.latent.nope_dim))),
        Dr(Form::Symbol("D_r", U(r.latent.rope_dim))),
        Dv(Form::Symbol("D_v", U(r.latent.v_dim))) {}
};

// ---- parameters

class Parameters {
 public:
  explicit Parameters(const Recipe& r) : r_(r), s_(r) {}

  std::vector<ParameterForm> Take() {
    using Kind = WeightInfo::Kind;
    kind_ = r_.tied_head ? Kind::kTiedEmbeddingHead : Kind::kEmbedding;
    Matrix("token_embd", Component::kEmbedding, s_.V, s_.E);
    if (!r_.tied_head) out_.back().touched = s_.E;
    kind_ = Kind::kBlock;
    if (r_.embedding_norm) Norm("token_embd_norm", Component::kEmbeddingNorm, s_.E);
    if (r_.learned_positions) {
      kind_ = Kind::kPosition;
      Matrix("position_embd", Component::kPositionEmbedding, s_.T, s_.E);
      out_.back().touched = s_.E;
    }
    kind_ = Kind::kBlock;
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer(r_.layers[static_cast<size_t>(layer_)].sparse);
    layer_ = -1;
    Norm("output_norm", Component::kOutputNorm, s_.E);
    kind_ = Kind::kHead;
    if (!r_.tied_head) Matrix("output", Component::kHead, s_.V, s_.E);
    if (r_.head_bias) Vector("output.bias", Component::kHead, s_.V);
    kind_ = Kind::kBlock;
    prediction_ = true;
    for (layer_ = r_.n_layers; layer_ < r_.n_layers + r_.mtp_layers; ++layer_) {
      // Two norms, a matrix on [hidden state; next token's embedding], a layer, a norm before the shared head.
      Norm("nextn.enorm", Component::kPrediction, s_.E);
      Norm("nextn.hnorm", Component::kPrediction, s_.E);
      Matrix("nextn.eh_proj", Component::kPrediction, s_.E, 2 * s_.E);
      Layer(r_.n_experts > 0);
      Norm("nextn.shared_head_norm", Component::kPrediction, s_.E);
    }
    return std::move(out_);
  }

 private:
  void Add(std::string name, Component component, bool vector, const Form& slices, const Form& used, const Form& rows,
           const Form& cols) {
    ParameterForm p;
    p.name = std::move(name);
    p.layer = layer_;
    p.component = component;
    p.kind = kind_;
    p.prediction = prediction_;
    p.vector = vector;
    p.slices = slices.value();
    p.rows = rows.value();
    p.cols = cols.value();
    p.slice = rows * cols;
    p.count = slices * rows * cols;
    p.active = used * rows * cols;
    p.touched = p.active;
    out_.push_back(std::move(p));
  }
  void Matrix(std::string name, Component component, const Form& rows, const Form& cols) {
    Add(std::move(name), component, false, 1, 1, rows, cols);
  }
  void Vector(std::string name, Component component, const Form& cols) { Add(std::move(name), component, true, 1, 1, 1, cols); }
  void Projection(const std::string& name, Component component, const Form& rows, const Form& cols, bool bias) {
    Matrix(name, component, rows, cols);
    if (bias) Vector(name + ".bias", component, rows);
  }
  void Experts(const std::string& name, Component component, const Form& rows, const Form& cols, bool bias) {
    Add(name, component, false, s_.X, s_.k, rows, cols);
    out_.back().expert = true;
    if (!bias) return;
    Add(name + ".bias", component, true, s_.X, s_.k, 1, rows);
    out_.back().expert = true;
  }
  void Norm(const std::string& name, Component component, const Form& cols) {
    Vector(name, component, cols);
    if (r_.norm == NormKind::kLayer && r_.norm_bias) Vector(name + ".bias", component, cols);
  }
  void RmsNorm(const std::string& name, Component component, const Form& cols) { Vector(name, component, cols); }

  void Layer(bool sparse) {
    if (r_.pre_norms) Norm("attn_norm", Component::kAttnNorm, s_.E);
    r_.latent.kv_rank > 0 ? LatentProjections() : Projections();
    if (r_.sinks) Vector("attn_sinks", Component::kAttention, s_.H);
    Projection("attn_output", Component::kAttnOutput, s_.E, s_.H * (r_.latent.kv_rank > 0 ? s_.Dv : s_.D), r_.o_bias);
    if (r_.post_norms) Norm("post_attention_norm", Component::kAttnPostNorm, s_.E);
    if (r_.pre_norms && r_.residual != Residual::kParallelOneNorm) Norm("ffn_norm", Component::kFfnNorm, s_.E);
    sparse ? SparseFeedForward() : FeedForward("ffn", "", s_.F, r_.ffn_bias, Component::kFfnGateUp, Component::kFfnDown);
    if (r_.post_norms) Norm("post_ffw_norm", Component::kFfnPostNorm, s_.E);
  }

  void Projections() {
    if (r_.fused_qkv) {
      Projection("attn_qkv", Component::kAttnQkv, (s_.H + 2 * s_.K) * s_.D, s_.E, r_.q_bias);
    } else {
      Projection("attn_q", Component::kAttnQ, s_.H * s_.D, s_.E, r_.q_bias);
      Projection("attn_k", Component::kAttnK, s_.K * s_.D, s_.E, r_.k_bias);
      Projection("attn_v", Component::kAttnV, s_.K * s_.D, s_.E, r_.v_bias);
    }
    if (r_.qk_norm == QkNormKind::kNone || r_.qk_norm == QkNormKind::kUnweighted) return;
    const bool all = r_.qk_norm != QkNormKind::kHead;
    RmsNorm("attn_q_norm", Component::kAttnQNorm, all ? s_.H * s_.D : s_.D);
    RmsNorm("attn_k_norm", Component::kAttnKNorm, all ? s_.K * s_.D : s_.D);
  }

  void LatentProjections() {
    const Form q_rows = s_.H * (s_.Dn + s_.Dr);
    if (r_.latent.q_rank > 0) {
      Matrix("attn_q_a", Component::kAttnQ, s_.Rq, s_.E);
      RmsNorm("attn_q_a_norm", Component::kAttnQNorm, s_.Rq);
      Matrix("attn_q_b", Component::kAttnQ, q_rows, s_.Rq);
    } else {
      Projection("attn_q", Component::kAttnQ, q_rows, s_.E, r_.q_bias);
    }
    Matrix("attn_kv_a_mqa", Component::kAttnKv, s_.Rkv + s_.Dr, s_.E);
    RmsNorm("attn_kv_a_norm", Component::kAttnKNorm, s_.Rkv);
    Add("attn_k_b", Component::kAttnKv, false, s_.H, s_.H, s_.Rkv, s_.Dn);
    Add("attn_v_b", Component::kAttnKv, false, s_.H, s_.H, s_.Dv, s_.Rkv);
  }

  void FeedForward(const std::string& stem, const std::string& tail, const Form& width, bool bias, Component in, Component out) {
    if (r_.gated_ffn) Projection(stem + "_gate" + tail, in, width, s_.E, bias);
    Projection(stem + "_up" + tail, in, width, s_.E, bias);
    Projection(stem + "_down" + tail, out, s_.E, width, bias);
  }

  void SparseFeedForward() {
    Projection("ffn_gate_inp", Component::kRouter, s_.X, s_.E, r_.router_bias);
    if (r_.gated_ffn) Experts("ffn_gate_exps", Component::kFfnGateUp, s_.Fx, s_.E, r_.expert_bias);
    Experts("ffn_up_exps", Component::kFfnGateUp, s_.Fx, s_.E, r_.expert_bias);
    Experts("ffn_down_exps", Component::kFfnDown, s_.E, s_.Fx, r_.expert_bias);
    if (r_.d_shared == 0) return;
    FeedForward("ffn", "_shexp", s_.Fs, r_.expert_bias, Component::kSharedGateUp, Component::kSharedDown);
    if (r_.shared_gate) Vector("ffn_gate_inp_shexp", Component::kSharedSigmoid, s_.E);
  }

  const Recipe& r_;
  const Symbols s_;
  int32_t layer_ = -1;
  WeightInfo::Kind kind_ = WeightInfo::Kind::kBlock;
  bool prediction_ = false;
  std::vector<ParameterForm> out_;
};

// ---- work

// Cost of an activation per element; exp, divide, erf and tanh are special (cost.h).
struct ActivationForm {
  uint64_t flops, special;
};
ActivationForm ActivationOf(ActivationKind kind, bool gated) {
  ActivationForm a{0, 0};
  switch (kind) {
    case ActivationKind::kNone: break;
    case ActivationKind::kSilu: a = {1, 2}; break;      // x / (1 + exp(-x))
    case ActivationKind::kGeluTanh: a = {8, 1}; break;  // 0.5 x (1 + tanh(c (x + d x^3)))
    case ActivationKind::kGeluErf: a = {4, 1}; break;   // 0.5 x (1 + erf(x c))
    case ActivationKind::kRelu: a = {1, 0}; break;      // max
    case ActivationKind::kSwigluOai: return {7, 2};     // min; max, min; alpha g, 1 + exp; u + 1, product
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
    if (r_.embedding_scale != 1) Add(Component::kEmbedding, WorkClass::kResidualBias, N_ * s_.E);
    if (r_.learned_positions) Add(Component::kPositionEmbedding, WorkClass::kResidualBias, N_ * s_.E);
    if (r_.embedding_norm) Norm(Component::kEmbeddingNorm, N_, s_.E);
    // One table per rope in use. Per rotated pair: the angle, its cosine and sine, both multiplied by YaRN's magnitude.
    for (const LayerRope rope : {LayerRope::kGlobal, LayerRope::kLocal}) {
      const Form half = N_ * RopeDim(rope).Half();
      if (std::ranges::any_of(r_.layers, [&](const LayerRecipe& l) { return l.rope == rope; })) {
        Add(Component::kRope, WorkClass::kRope, 3 * half, 2 * half);
      }
    }
    // Attention temperature, once a step: two adds, a multiply, an add; special: divide, log.
    const auto none = [](const LayerRecipe& l) { return l.rope == LayerRope::kNone; };
    if (r_.temperature_scale != 0 && std::ranges::any_of(r_.layers, none)) {
      Add(Component::kAttention, WorkClass::kSoftmax, 4 * N_, 2 * N_);
    }
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) {
      const LayerRecipe& l = r_.layers[static_cast<size_t>(layer_)];
      if (r_.pre_norms) Norm(Component::kAttnNorm, N_, s_.E);
      r_.latent.kv_rank > 0 ? LatentProjections(l) : Projections(l);
      if (r_.temperature_scale != 0 && none(l)) Add(Component::kAttention, WorkClass::kResidualBias, N_ * s_.H * s_.D);
      Attention(l);
      if (Absorbed()) Linear(Component::kAttnKv, N_ * s_.H, s_.Rkv, s_.Dv, false);  // each head's value
      Linear(Component::kAttnOutput, N_, s_.H * HeadValueDim(), s_.E, r_.o_bias);
      Residual(r_.post_norms ? Component::kAttnPostNorm : Component::kAttnOutput);
      if (r_.post_norms) Norm(Component::kAttnPostNorm, N_, s_.E);
      if (r_.pre_norms && r_.residual != Residual::kParallelOneNorm) Norm(Component::kFfnNorm, N_, s_.E);
      if (l.sparse) {
        Sparse();
      } else {
        FeedForward(Component::kFfnGateUp, Component::kFfnDown, N_, s_.F, r_.ffn_bias);
        Residual(r_.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
      }
      if (r_.post_norms) Norm(Component::kFfnPostNorm, N_, s_.E);
    }
    layer_ = -1;
    Norm(Component::kOutputNorm, logits_, s_.E);
    Linear(Component::kHead, logits_, s_.E, s_.V, r_.head_bias);
    // Scale: a multiply. Soft cap: two multiplies; special: tanh.
    const uint64_t scaled = r_.logit_scale != 1 ? 1 : 0, capped = r_.logit_softcap != 0 ? 1 : 0;
    Add(Component::kLogits, WorkClass::kActivation, (scaled + 2 * capped) * (logits_ * s_.V), capped * (logits_ * s_.V));
    return std::move(out_);
  }

 private:
  // Rotated dimensions of a head; 0 without rope.
  Form RopeDim(LayerRope which) const {
    const Rope& rope = which == LayerRope::kLocal ? r_.local_rope : r_.rope;
    if (which == LayerRope::kNone || rope.style == RopeStyle::kNone) return {};
    return Form::Symbol(rope.dim == r_.head_dim ? "D" : rope.dim == r_.rope.dim ? "D_r" : "D_l", U(rope.dim));
  }
  // Elements of a head's key and value as attention sees them. Latent attention is run absorbed: all heads share the compressed key,
  // of which the value is a part.
  bool Absorbed() const { return r_.latent.kv_rank > 0 && !w_.expanded; }
  Form KeyDim() const { return Absorbed() ? s_.Rkv + s_.Dr : r_.latent.kv_rank > 0 ? s_.Dn + s_.Dr : s_.D; }
  Form ValueDim() const { return Absorbed() ? s_.Rkv : HeadValueDim(); }
  Form HeadValueDim() const { return r_.latent.kv_rank > 0 ? s_.Dv : s_.D; }

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
    out_.push_back(std::move(f));
  }

  // `in` multiplies and `in` adds for each output. The bias is a residual/bias add.
  void Linear(Component component, const Form& rows, const Form& in, const Form& out, bool bias,
              WorkClass work_class = WorkClass::kLinear) {
    Add(component, work_class, 2 * rows * out * in, {}, true);
    if (bias) Add(component, WorkClass::kResidualBias, rows * out);
  }
  // An add, and a multiply by a scale.
  void Residual(Component component) { Add(component, WorkClass::kResidualBias, (r_.residual_scale != 1 ? 2 : 1) * (N_ * s_.E)); }

  // Per element, RMS: square, add, two multiplies (1/rms, weight). LayerNorm: also an add for the mean, a subtract, the bias.
  // Per vector, RMS: eps; special: divide, rsqrt. LayerNorm: also the divide for the mean.
  void RmsNorm(Component component, const Form& vectors, const Form& dim) {
    Add(component, WorkClass::kNorm, vectors * (4 * dim + 1), 2 * vectors);
  }
  void Norm(Component component, const Form& vectors, const Form& dim) {
    if (r_.norm == NormKind::kRms) return RmsNorm(component, vectors, dim);
    Add(component, WorkClass::kNorm, vectors * ((r_.norm_bias ? 7 : 6) * dim + 1), 3 * vectors);
  }
  // Norms of `heads` heads, before or after rope.
  void QkNorm(Component component, const Form& heads) {
    switch (r_.qk_norm) {
      case QkNormKind::kNone: break;
      case QkNormKind::kHead: RmsNorm(component, N_ * heads, s_.D); break;
      case QkNormKind::kWhole: RmsNorm(component, N_, heads * s_.D); break;
      case QkNormKind::kEachHead: Add(component, WorkClass::kNorm, N_ * heads * (6 * s_.D + 1), 3 * (N_ * heads)); break;
      case QkNormKind::kUnweighted: Add(component, WorkClass::kNorm, N_ * heads * (3 * s_.D + 1), 2 * (N_ * heads)); break;
    }
  }

  void Projections(const LayerRecipe& l) {
    if (r_.fused_qkv) {
      Linear(Component::kAttnQkv, N_, s_.E, (s_.H + 2 * s_.K) * s_.D, r_.q_bias);
    } else {
      Linear(Component::kAttnQ, N_, s_.E, s_.H * s_.D, r_.q_bias);
      Linear(Component::kAttnK, N_, s_.E, s_.K * s_.D, r_.k_bias);
      Linear(Component::kAttnV, N_, s_.E, s_.K * s_.D, r_.v_bias);
    }
    if (r_.qk_norm != QkNormKind::kUnweighted || l.rope != LayerRope::kNone) {
      QkNorm(Component::kAttnQNorm, s_.H);
      QkNorm(Component::kAttnKNorm, s_.K);
    }
    if (r_.qkv_limit != 0) {  // a min and a max of each element
      const auto limit = [&](Component component, const Form& heads) {
        Add(component, WorkClass::kActivation, 2 * N_ * heads * s_.D);
      };
      if (r_.fused_qkv) {
        limit(Component::kAttnQkv, s_.H + 2 * s_.K);
      } else {
        limit(Component::kAttnQ, s_.H);
        limit(Component::kAttnK, s_.K);
        limit(Component::kAttnV, s_.K);
      }
    }
    Rotate(l, s_.H + s_.K);
  }

  void LatentProjections(const LayerRecipe& l) {
    const Form q_rows = s_.H * (s_.Dn + s_.Dr);
    if (r_.latent.q_rank > 0) {
      Linear(Component::kAttnQ, N_, s_.E, s_.Rq, false);
      RmsNorm(Component::kAttnQNorm, N_, s_.Rq);
      Linear(Component::kAttnQ, N_, s_.Rq, q_rows, false);
    } else {
      Linear(Component::kAttnQ, N_, s_.E, q_rows, r_.q_bias);
    }
    Linear(Component::kAttnKv, N_, s_.E, s_.Rkv + s_.Dr, false);
    RmsNorm(Component::kAttnKNorm, N_, s_.Rkv);
    if (Absorbed()) {
      Linear(Component::kAttnKv, N_ * s_.H, s_.Dn, s_.Rkv, false);  // each head's query for the compressed keys
    } else {
      Linear(Component::kAttnKv, N_, s_.Rkv, s_.H * (s_.Dn + s_.Dv), false);  // keys and values of all heads
    }
    Rotate(l, s_.H + 1);
  }

  // Per rotated pair: two multiplies and two multiply-adds.
  void Rotate(const LayerRecipe& l, const Form& heads) {
    Add(Component::kRope, WorkClass::kRope, N_ * heads * (6 * RopeDim(l.rope)).Half());
  }

  // Twice the sum of the positions that each of a sequence's rows sees: min(position + 1, window), or position % chunk + 1.
  Form TwiceVisible(const LayerRecipe& l) const {
    const uint64_t begin = w_.context - w_.rows, limit = U(l.window);
    const int32_t window = l.window;
    if (l.chunk > 0 && w_.context > U(l.chunk)) {
      if (w_.rows == 1) return 2 * Form::Symbol("S_c", begin % U(l.chunk) + 1);
      const Form C = Form::Symbol("C", U(l.chunk));
      const auto of_first = [&](uint64_t n) {  // of positions [0, n)
        const uint64_t rest = n % U(l.chunk);
        return n / U(l.chunk) * (C * (C + 1)) + Form(rest * (rest + 1));
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

  void Attention(const LayerRecipe& l) {
    const Form twice = TwiceVisible(l), heads = B_ * s_.H;
    const Form scores = (heads * twice).Half();  // query heads times visible keys
    Add(Component::kAttention, WorkClass::kAttention, heads * twice * (KeyDim() + ValueDim()), {}, true);
    out_.back().full_square = 2 * B_ * P_ * S_ * s_.H * (KeyDim() + ValueDim());
    // Per score: scale, maximum, subtract, add; special: exp. Per output: divide. A sink is one more score, without the scale.
    // Soft cap: two multiplies; special: tanh. ALiBi: a multiply-add.
    const Form sunk = r_.sinks ? N_ * s_.H : Form(0);
    const uint64_t capped = r_.attention_softcap != 0 ? 1 : 0, biased = r_.alibi_bias > 0 ? 1 : 0;
    Add(Component::kAttention, WorkClass::kSoftmax, (4 + 2 * capped + 2 * biased) * scores + 3 * sunk,
        (1 + capped) * scores + N_ * s_.H * ValueDim() + sunk);
  }

  void FeedForward(Component in, Component out, const Form& rows, const Form& width, bool bias) {
    const ActivationForm a = ActivationOf(r_.activation, r_.gated_ffn);
    const Form matrices = r_.gated_ffn ? 2 : 1;
    Add(in, WorkClass::kLinear, 2 * matrices * rows * width * s_.E, {}, true);
    if (bias) Add(in, WorkClass::kResidualBias, matrices * rows * width);
    Add(in, WorkClass::kActivation, a.flops * (rows * width), a.special * (rows * width));
    Linear(out, rows, width, s_.E, bias);
  }

  void Sparse() {
    const Form& X = s_.X;
    const Form& k = s_.k;
    const bool sigmoid = SigmoidOfAll(r_.routing), one_by_one = r_.routing == RoutingRule::kTopKThenSigmoid;
    Linear(Component::kRouter, N_, s_.E, X, r_.router_bias && !sigmoid, WorkClass::kRouter);
    // The choice takes k X compares. Softmax, per value of k or X: maximum, subtract, add; special: exp, divide. Sigmoid, per
    // value of X: add, and the bias for the choice; special: exp, divide.
    // Groups: their scores take a compare for each of the best of each expert, and adds; kept_groups compares of each.
    Form chosen = k * X, special;
    if (r_.expert_groups > 1) {
      const uint64_t groups = U(r_.expert_groups), best = U(r_.group_best);
      chosen += best * X + Form(U(r_.kept_groups) * groups + (best - 1) * groups);
    }
    if (r_.route_scale != 1) chosen += k;
    if (sigmoid || one_by_one) {
      chosen += (one_by_one ? k : X) + (sigmoid && r_.router_bias ? X : Form(0));
      special = 2 * (one_by_one ? k : X);
    } else {
      const Form& over = r_.routing == RoutingRule::kTopKThenSoftmax ? k : X;
      chosen += 3 * over;
      special = 2 * over;
    }
    if (Renormed(r_.routing)) {
      chosen += k - 1;
      special += k;
    }
    Add(Component::kRouter, WorkClass::kRouter, N_ * chosen, N_ * special);
    FeedForward(Component::kFfnGateUp, Component::kFfnDown, N_ * k, s_.Fx, r_.expert_bias);
    // The weighted sum of the experts' outputs, added to the residual.
    const bool own = r_.post_norms || r_.residual_scale != 1;  // the block has an output of its own
    // Weights multiply the experts' outputs or inputs: 2 k either way.
    Add(Component::kMoeCombine, WorkClass::kResidualBias, N_ * s_.E * (own ? 2 * k : 2 * k + 1));
    if (own) Residual(r_.post_norms ? Component::kFfnPostNorm : Component::kFfnDown);
    if (r_.d_shared == 0) return;
    FeedForward(Component::kSharedGateUp, Component::kSharedDown, N_, s_.Fs, r_.expert_bias);
    Add(Component::kSharedDown, WorkClass::kResidualBias, N_ * s_.E);
    if (!r_.shared_gate) return;
    Linear(Component::kSharedSigmoid, N_, s_.E, 1, false);
    Add(Component::kSharedSigmoid, WorkClass::kActivation, N_ * (s_.E + 1), 2 * N_);
  }

  const Recipe& r_;
  const Symbols s_;
  const Workload w_;
  Form B_, P_, S_, N_, logits_;
  int32_t layer_ = -1;
  std::vector<WorkForm> out_;
};

}  // namespace

std::vector<ParameterForm> ParameterForms(const Recipe& recipe) { return Parameters(recipe).Take(); }

std::vector<WorkForm> WorkForms(const Recipe& recipe, const Workload& work) { return Work(recipe, work).Take(); }

Form FlopsPerVisible(const Recipe& recipe) {
  const Symbols s(recipe);
  return 2 * s.H * (recipe.latent.kv_rank > 0 ? 2 * s.Rkv + s.Dr : 2 * s.D);
}

Form CachedPerPosition(const Recipe& recipe, bool expanded) {
  const Symbols s(recipe);
  if (recipe.latent.kv_rank == 0) return 2 * s.K * s.D;
  return expanded ? s.H * (s.Dn + s.Dr + s.Dv) : s.Rkv + s.Dr;
}

Form CachedBytesPerPosition(const Recipe& recipe, const KvStorage& storage) {
  Form bytes = CachedPerPosition(recipe) * Form(storage.element_bytes);
  if (storage.block == 0) return bytes;
  const Symbols s(recipe);
  const auto blocks = [&](const Form& elements) {
    return Form::Symbol("blocks(" + elements.text() + ")", (elements.value() + storage.block - 1) / storage.block);
  };
  bytes += (recipe.latent.kv_rank == 0 ? 2 * s.K * blocks(s.D) : blocks(s.Rkv + s.Dr)) * Form(storage.scale_bytes);
  return bytes;
}

uint64_t CachedPositions(const LayerRecipe& layer, uint64_t context) {
  const int32_t seen = std::max(layer.window, layer.chunk);
  return seen > 0 ? std::min(context, U(seen)) : context;
}

}  // namespace tally::books
