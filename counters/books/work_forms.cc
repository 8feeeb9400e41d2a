// SPDX-License-Identifier: Apache-2.0
// The useful work of a model: what is outside its blocks, and what blocks make theirs of.
#include <algorithm>
#include <utility>

#include "counters/books/blocks.h"
#include "counters/books/closed_form.h"
#include "counters/books/shared_forms.h"

namespace tally::books {
namespace {

class Work : private WorkBuilder {
 public:
  Work(const Recipe& r, const Workload& w) : WorkBuilder(r, w) {
    logits_ = B_ * (w.logit_rows == w.rows ? P_ : Form(w.logit_rows));
  }

  std::vector<WorkForm> Take() {
    if (r_.prediction() && !w_.own_states) Norm(Component::kOutputNorm, N_, s_.E);
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
      const Form half = N_ * RopeDim(r_, *first).Half();
      Add(Component::kRope, WorkClass::kRope, 3 * half, 2 * half);
    }
    // Attention temperature, once a step: two adds, a multiply, an add; special: divide, log.
    if (AnyLayer(r_, &LayerRecipe::tempered)) Add(Component::kAttention, WorkClass::kSoftmax, 4 * N_, 2 * N_);
    for (layer_ = r_.first_layer; layer_ < r_.end_layer(); ++layer_) {
      r_.prediction() ? Prediction(r_.layer(layer_)) : Layer(r_.layer(layer_));
    }
    layer_ = -1;
    if (r_.output_norm && !r_.prediction()) Norm(Component::kOutputNorm, logits_, s_.E);
    if (r_.embedding_width > 0) Linear(Component::kHeadProj, logits_, s_.E, s_.Ev, false);
    Linear(Component::kHead, logits_, s_.Ev, s_.V, r_.head_bias);
    // Scale: a multiply. Soft cap: two multiplies; special: tanh.
    const uint64_t scaled = r_.logit_scale != 1 ? 1 : 0, capped = r_.logit_softcap != 0 ? 1 : 0;
    Add(Component::kLogits, WorkClass::kActivation, (scaled + 2 * capped) * (logits_ * s_.V), capped * (logits_ * s_.V));
    return std::move(out_);
  }

 private:
  // Norms of the next token's embedding and of the hidden state, and a matrix on both; the layer; a norm before the head.
  void Prediction(const LayerRecipe& l) {
    for (int i = 0; i < 2; ++i) Norm(Component::kPrediction, N_, s_.E);
    Linear(Component::kPrediction, N_, 2 * s_.E, s_.E, false);
    Layer(l);
    Norm(Component::kPrediction, logits_, s_.E);
  }

  void Layer(const LayerRecipe& l) {
    at_ = &l;
    if (!l.mixers.empty()) Mixers(l);
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

  void Mixers(const LayerRecipe& l) {
    if (l.residual.pre_norms) Norm(Component::kAttnNorm, N_, s_.E);
    const bool own = l.residual.own_output();
    bool first = true;
    Component last{};
    for (const BlockForms* block : kMixerBlocks) {
      if (!block->in(l)) continue;
      last = block->work(*this);
      if (!own || !first) Add(last, WorkClass::kResidualBias, N_ * s_.E);
      first = false;
    }
    if (own) Residual(l.residual.post_norms ? Component::kAttnPostNorm : last);
    if (l.residual.post_norms) Norm(Component::kAttnPostNorm, N_, s_.E);
  }

  void FeedForwards(const LayerRecipe& l) {
    if (l.residual.pre_norms && l.residual.kind != Residual::kParallelOneNorm) Norm(Component::kFfnNorm, N_, s_.E);
    for (const BlockForms* block : kFeedForwardBlocks) {
      if (!block->in(l)) continue;
      block->work(*this);
      if (!l.both() || block != kFeedForwardBlocks[0]) continue;
      // Norms around each of the two; the sum of both is the block's output.
      RmsNorm(Component::kDensePostNorm, N_, s_.E);
      RmsNorm(Component::kExpertNorm, N_, s_.E);
      RmsNorm(Component::kExpertPostNorm, N_, s_.E);
      Add(Component::kExpertPostNorm, WorkClass::kResidualBias, N_ * s_.E);
    }
    if (l.residual.post_norms) Norm(Component::kFfnPostNorm, N_, s_.E);
  }

  Form logits_;
};

}  // namespace

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

WorkBuilder::WorkBuilder(const Recipe& r, const Workload& w) : FormBuilder(r), w_(w) {
  B_ = w.sequences == 1 ? Form(1) : Form::Symbol("B", w.sequences);
  P_ = w.rows == 1 ? Form(1) : Form::Symbol("P", w.rows);
  S_ = w.context == w.rows ? P_ : Form::Symbol("S", w.context);
  N_ = B_ * P_;
}

void WorkBuilder::Add(Component component, WorkClass work_class, const Form& flops, const Form& special, bool matmul) {
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

void WorkBuilder::AddSeen(Component component, const Form& flops, const Form& full_square) {
  Add(component, WorkClass::kAttention, flops, {}, true);
  out_.back().full_square = full_square;
}

void WorkBuilder::Convolve(const Form& taps, const Form& channels, bool bias) {
  const ActivationForm silu = ActivationOf(ActivationKind::kSilu, false);
  Linear(Component::kRecurrentConv, N_, taps, channels, bias);
  Add(Component::kRecurrentConv, WorkClass::kActivation, silu.flops * (N_ * channels), silu.special * (N_ * channels));
}

void WorkBuilder::Rates(const Form& heads, uint64_t limits, bool beta) {
  Add(Component::kRecurrentRates, WorkClass::kResidualBias, N_ * heads);
  Add(Component::kRecurrentRates, WorkClass::kActivation, (2 + limits + (beta ? 1 : 0)) * (N_ * heads),
      (beta ? 5 : 3) * (N_ * heads));
}

std::vector<WorkForm> WorkForms(const Recipe& recipe, const Workload& work) { return Work(recipe, work).Take(); }

}  // namespace tally::books
