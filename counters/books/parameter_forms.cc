// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "counters/books/closed_form.h"
#include "counters/books/symbols.h"

namespace tally::books {
namespace {

class Parameters {
 public:
  explicit Parameters(const Recipe& r) : r_(r), s_(r) {}

  std::vector<ParameterForm> Take() {
    using Kind = WeightInfo::Kind;
    kind_ = r_.tied_head ? Kind::kTiedEmbeddingHead : Kind::kEmbedding;
    Matrix("token_embd", Component::kEmbedding, s_.V, s_.Ev);
    if (!r_.tied_head) out_.back().touched = s_.Ev;
    kind_ = Kind::kBlock;
    if (r_.embedding_width > 0) Matrix("token_embd_proj", Component::kEmbeddingProj, s_.E, s_.Ev);
    if (r_.embedding_norm) Norm("token_embd_norm", Component::kEmbeddingNorm, s_.E);
    if (r_.layer_embedding > 0) {
      kind_ = Kind::kTable;
      Matrix("per_layer_token_embd", Component::kLayerEmbedding, s_.V, s_.LEl);
      out_.back().touched = s_.LEl;
      kind_ = Kind::kBlock;
      Matrix("per_layer_model_proj", Component::kLayerEmbeddingProj, s_.LEl, s_.E);
      RmsNorm("per_layer_proj_norm", Component::kLayerEmbeddingNorm, s_.El);
    }
    if (r_.learned_positions) {
      kind_ = Kind::kPosition;
      Matrix("position_embd", Component::kPositionEmbedding, s_.T, s_.E);
      out_.back().touched = s_.E;
    }
    kind_ = Kind::kBlock;
    layer_ = -1;
    Counted();
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) {
      const LayerRecipe& layer = r_.layers[static_cast<size_t>(layer_)];
      layer.prediction ? Prediction(layer) : Layer(layer);
      Counted();
    }
    layer_ = -1;
    if (r_.output_norm && (!r_.counted_only || r_.counted_only->output_norm)) Norm("output_norm", Component::kOutputNorm, s_.E);
    if (r_.embedding_width > 0) Matrix("output_proj", Component::kHeadProj, s_.Ev, s_.E);
    kind_ = Kind::kHead;
    if (!r_.tied_head) Matrix("output", Component::kHead, s_.V, s_.Ev);
    if (r_.head_bias) Vector("output.bias", Component::kHead, s_.V);
    kind_ = Kind::kBlock;
    for (layer_ = r_.n_layers; layer_ < r_.n_layers + r_.mtp_layers; ++layer_) {
      prediction_ = true;
      Counted();
      if (r_.counted_only && r_.counted_only->own_prediction) continue;
      LayerRecipe l = r_.all;
      l.mixers = l.latent.kv_rank > 0 ? Mixer::kLatentAttention : Mixer::kAttention;
      l.feed_forward = l.experts.n_experts > 0 ? FeedForward::kSparse : FeedForward::kDense;
      Prediction(l);
    }
    return std::move(out_);
  }

 private:
  const LayerRecipe& layer() const { return *at_layer_; }  // at hand
  // Two norms, a matrix on [hidden state; next token's embedding], a layer, a norm before the shared head.
  void Prediction(const LayerRecipe& layer) {
    prediction_ = true;
    Norm("nextn.enorm", Component::kPrediction, s_.E);
    Norm("nextn.hnorm", Component::kPrediction, s_.E);
    Matrix("nextn.eh_proj", Component::kPrediction, s_.E, 2 * s_.E);
    Layer(layer);
    Norm("nextn.shared_head_norm", Component::kPrediction, s_.E);
    prediction_ = false;
  }
  // The layer's tensors that no other field of the recipe describes.
  void Counted() {
    if (!r_.counted_only) return;
    for (const CountedTensor& t : r_.counted_only->tensors) {
      if (t.layer != layer_) continue;
      const WeightInfo::Kind kind = kind_;
      if (t.looked_up > 0) kind_ = WeightInfo::Kind::kTable;
      Add(t.name, t.component, t.vector, t.slices, t.used, t.rows, t.cols);
      if (t.looked_up > 0) out_.back().touched = Form(t.looked_up) * Form(t.cols);
      out_.back().expert = t.slices != t.used;
      kind_ = kind;
    }
  }
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

  void Layer(const LayerRecipe& l) {
    at_ = s_.Of(l);
    at_layer_ = &l;
    if (l.residual.pre_norms && !l.mixers.empty()) Norm("attn_norm", Component::kAttnNorm, s_.E);
    for (const Mixer mixer : kMixers) {
      if (l.mixers.has(mixer)) Mix(mixer, l);
    }
    if (l.residual.post_norms && !l.mixers.empty()) Norm("post_attention_norm", Component::kAttnPostNorm, s_.E);
    if (!l.feed_forward.empty()) FeedForwards(l);
    if (!l.feed_forward.empty() && l.network.stored_xielu) {
      Vector("xielu_alpha_n", Component::kFfnGateUp, 1);
      Vector("xielu_alpha_p", Component::kFfnGateUp, 1);
    }
    if (r_.layer_embedding > 0) {
      Matrix("inp_gate", Component::kLayerGate, s_.El, s_.E);
      Matrix("proj", Component::kLayerOut, s_.E, s_.El);
      RmsNorm("post_norm", Component::kLayerPostNorm, s_.E);
    }
    if (l.residual.layer_scale) Vector("layer_output_scale", Component::kLayerScale, 1);
  }

  void FeedForwards(const LayerRecipe& l) {
    if (l.residual.pre_norms && l.residual.kind != Residual::kParallelOneNorm) Norm("ffn_norm", Component::kFfnNorm, s_.E);
    if (l.sparse()) SparseNetworks();
    if (l.dense()) Network("ffn", "", at_.F, l.ffn.bias, Component::kFfnGateUp, Component::kFfnDown);
    if (l.both()) {  // norms around each of the two
      RmsNorm("post_ffw_norm_1", Component::kDensePostNorm, s_.E);
      RmsNorm("pre_ffw_norm_2", Component::kExpertNorm, s_.E);
      RmsNorm("post_ffw_norm_2", Component::kExpertPostNorm, s_.E);
    }
    if (l.residual.post_norms) Norm("post_ffw_norm", Component::kFfnPostNorm, s_.E);
  }

  void Mix(Mixer mixer, const LayerRecipe& l) {
    switch (mixer) {
      case Mixer::kAttention:
        Projections(l.attention.cache_of < 0, l.attention.v_is_k);
        if (l.attention.gate) {
          Matrix("attn_q_gate", Component::kAttnGate, l.attention.gate_each_head ? at_.H : at_.H * at_.D, s_.E);
        }
        return Attended(at_.D);
      case Mixer::kLatentAttention:
        LatentProjections();
        if (l.attention.gate) Matrix("attn_q_gate", Component::kAttnGate, at_.H, s_.E);  // a gate of each head
        return Attended(s_.Dv);
      case Mixer::kShortConv:
        Matrix("shortconv.in_proj", Component::kConvIn, 3 * s_.E, s_.E);
        Add("shortconv.conv", Component::kShortConv, true, s_.J, s_.J, 1, s_.E);
        return Matrix("shortconv.out_proj", Component::kConvOut, s_.E, s_.E);
      case Mixer::kDeltaRule:
        Matrix("delta_q", Component::kRecurrentIn, s_.Hk * s_.Nk, s_.E);
        Matrix("delta_k", Component::kRecurrentIn, s_.Hk * s_.Nk, s_.E);
        Matrix("delta_v", Component::kRecurrentIn, s_.Hv * s_.Nv, s_.E);
        LowRank("attn_gate", "ssm_g", Component::kRecurrentGate, s_.Hv * s_.Nv);
        Matrix("ssm_beta", Component::kRecurrentRates, s_.Hv, s_.E);
        LowRank("ssm_alpha", "ssm_f", Component::kRecurrentRates, DeltaDecays());
        Recurrence(mixer, s_.Hv);
        RmsNorm("ssm_norm", Component::kRecurrentNorm, s_.Nv);
        return Matrix("ssm_out", Component::kRecurrentOut, s_.E, s_.Hv * s_.Nv);
      case Mixer::kMamba2: {
        const Form inner = s_.Hm * s_.Dm;
        Matrix("ssm_in", Component::kRecurrentIn, 2 * inner + 2 * s_.G * s_.N + s_.Hm, s_.E);
        Recurrence(mixer, s_.Hm);
        Vector("ssm_d", Component::kRecurrence, s_.Hm);
        if (l.mamba.norm) RmsNorm("ssm_norm", Component::kRecurrentNorm, inner);
        return Matrix("ssm_out", Component::kRecurrentOut, s_.E, inner);
      }
    }
  }

  // A decay of each head of the delta rule, or of each element of its keys.
  Form DeltaDecays() const { return layer().delta.channel_decay ? s_.Hv * s_.Nk : s_.Hv; }

  // One matrix, or two over a space of R_g elements, whose names end in "_a" and "_b".
  void LowRank(const char* name, const std::string& low, Component component, const Form& rows) {
    if (layer().delta.gate_rank == 0) return Matrix(name, component, rows, s_.E);
    Matrix(low + "_a", component, s_.Rg, s_.E);
    Matrix(low + "_b", component, rows, s_.Rg);
  }

  // The convolution, and the rates of so many heads.
  void Recurrence(Mixer mixer, const Form& heads) {
    const Form channels = s_.Channels(mixer);
    const bool delta = mixer == Mixer::kDeltaRule;
    const auto taps = [&](const char* name, const Form& of) { Add(name, Component::kRecurrentConv, true, s_.J, s_.J, 1, of); };
    if (delta && layer().delta.channel_decay) {
      taps("ssm_conv1d_q", s_.Hk * s_.Nk);
      taps("ssm_conv1d_k", s_.Hk * s_.Nk);
      taps("ssm_conv1d_v", s_.Hv * s_.Nv);
    } else {
      taps("ssm_conv1d", channels);
    }
    if (mixer == Mixer::kMamba2 && layer().mamba.conv_bias) Vector("ssm_conv1d.bias", Component::kRecurrentConv, channels);
    Vector("ssm_dt.bias", Component::kRecurrentRates, delta ? DeltaDecays() : heads);
    Vector("ssm_a", Component::kRecurrentRates, heads);
  }

  // `value_dim`: elements of a head's value.
  void Attended(const Form& value_dim) {
    if (layer().attention.sinks) Vector("attn_sinks", Component::kAttention, at_.H);
    Projection("attn_output", Component::kAttnOutput, s_.E, at_.H * value_dim, layer().attention.o_bias);
  }

  // `own_kv`: keys and values are not another layer's. `v_is_k`: nor are there matrices for both.
  void Projections(bool own_kv, bool v_is_k) {
    const Form q = at_.H * at_.D, kv = at_.K * at_.D;
    if (layer().attention.fused_qkv) {
      Projection("attn_qkv", Component::kAttnQkv, (at_.H + 2 * at_.K) * at_.D, s_.E, layer().attention.q_bias);
    } else {
      Projection("attn_q", Component::kAttnQ, q, s_.E, layer().attention.q_bias);
      if (own_kv) Projection("attn_k", Component::kAttnK, kv, s_.E, layer().attention.k_bias);
      if (own_kv && !v_is_k) Projection("attn_v", Component::kAttnV, kv, s_.E, layer().attention.v_bias);
    }
    if (layer().attention.qk_norm == QkNormKind::kNone || layer().attention.qk_norm == QkNormKind::kUnweighted) return;
    const bool all = layer().attention.qk_norm != QkNormKind::kHead;
    RmsNorm("attn_q_norm", Component::kAttnQNorm, all ? q : at_.D);
    if (own_kv) RmsNorm("attn_k_norm", Component::kAttnKNorm, all ? kv : at_.D);
  }

  void LatentProjections() {
    const Form q_rows = at_.H * (s_.Dn + s_.Dr);
    if (layer().latent.q_rank > 0) {
      Matrix("attn_q_a", Component::kAttnQ, s_.Rq, s_.E);
      RmsNorm("attn_q_a_norm", Component::kAttnQNorm, s_.Rq);
      Matrix("attn_q_b", Component::kAttnQ, q_rows, s_.Rq);
    } else {
      Projection("attn_q", Component::kAttnQ, q_rows, s_.E, layer().attention.q_bias);
    }
    Matrix("attn_kv_a_mqa", Component::kAttnKv, s_.Rkv + s_.Dr, s_.E);
    RmsNorm("attn_kv_a_norm", Component::kAttnKNorm, s_.Rkv);
    Add("attn_k_b", Component::kAttnKv, false, at_.H, at_.H, s_.Rkv, s_.Dn);
    Add("attn_v_b", Component::kAttnKv, false, at_.H, at_.H, s_.Dv, s_.Rkv);
  }

  void Network(const std::string& stem, const std::string& tail, const Form& width, bool bias, Component in, Component out) {
    if (layer().network.gated) Projection(stem + "_gate" + tail, in, width, s_.E, bias);
    Projection(stem + "_up" + tail, in, width, s_.E, bias);
    Projection(stem + "_down" + tail, out, s_.E, width, bias);
  }

  void SparseNetworks() {
    if (layer().experts.router_norm) RmsNorm("ffn_gate_inp_norm", Component::kRouterNorm, s_.E);
    Projection("ffn_gate_inp", Component::kRouter, s_.X, s_.E, layer().experts.router_bias);
    if (layer().experts.weight_scales) Vector("ffn_down_exps_scale", Component::kRouter, s_.X);
    if (layer().experts.latent > 0) Matrix("ffn_latent_down", Component::kLatentIn, s_.Ex, s_.E);
    if (layer().network.gated && !layer().experts.ungated)
      Experts("ffn_gate_exps", Component::kFfnGateUp, s_.Fx, s_.Ex, layer().experts.bias);
    Experts("ffn_up_exps", Component::kFfnGateUp, s_.Fx, s_.Ex, layer().experts.bias);
    Experts("ffn_down_exps", Component::kFfnDown, s_.Ex, s_.Fx, layer().experts.bias);
    if (layer().experts.latent > 0) Matrix("ffn_latent_up", Component::kLatentOut, s_.E, s_.Ex);
    if (layer().experts.shared_width == 0) return;
    Network("ffn", "_shexp", s_.Fs, layer().experts.bias, Component::kSharedGateUp, Component::kSharedDown);
    if (layer().experts.shared_gate) Vector("ffn_gate_inp_shexp", Component::kSharedSigmoid, s_.E);
  }

  const Recipe& r_;
  const Symbols s_;
  LayerSymbols at_;  // of the layer at hand
  const LayerRecipe* at_layer_ = nullptr;
  int32_t layer_ = -1;
  WeightInfo::Kind kind_ = WeightInfo::Kind::kBlock;
  bool prediction_ = false;
  std::vector<ParameterForm> out_;
};

}  // namespace

std::vector<ParameterForm> ParameterForms(const Recipe& recipe) { return Parameters(recipe).Take(); }

}  // namespace tally::books
