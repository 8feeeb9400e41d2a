// SPDX-License-Identifier: Apache-2.0
// The learned tensors of a model: those outside its blocks, and what blocks make theirs of.
#include <iterator>
#include <utility>

#include "counters/books/blocks.h"
#include "counters/books/closed_form.h"

namespace tally::books {
namespace {

class Parameters : private ParameterBuilder {
 public:
  explicit Parameters(const Recipe& r) : ParameterBuilder(r) {}

  std::vector<ParameterForm> Take() {
    Shared();
    if (r_.prediction()) {
      Prediction(r_);
    } else if (r_.mtp_layers > 0) {
      Prediction(PredictionStack(r_));
    }
    return std::move(out_);
  }

 private:
  // What all stacks of a model share, and a text's layers.
  void Shared() {
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
    for (layer_ = 0; layer_ < r_.n_layers && !r_.prediction(); ++layer_) {
      Layer(r_.layer(layer_));
      Counted();
    }
    layer_ = -1;
    if (r_.output_norm && (!r_.counted_only || r_.counted_only->output_norm)) Norm("output_norm", Component::kOutputNorm, s_.E);
    if (r_.embedding_width > 0) Matrix("output_proj", Component::kHeadProj, s_.Ev, s_.E);
    kind_ = Kind::kHead;
    if (!r_.tied_head) Matrix("output", Component::kHead, s_.V, s_.Ev);
    if (r_.head_bias) Vector("output.bias", Component::kHead, s_.V);
    kind_ = Kind::kBlock;
  }

  void Prediction(const Recipe& of) {
    stack_ = StackKind::kPrediction;
    for (layer_ = of.first_layer; layer_ < of.end_layer(); ++layer_) {
      Counted();
      if (!of.counted_only || !of.counted_only->own_prediction) PredictionLayer(of.layer(layer_));
    }
  }
  // Two norms, a matrix on [hidden state; next token's embedding], a layer, a norm before the shared head.
  void PredictionLayer(const LayerRecipe& layer) {
    Norm("nextn.enorm", Component::kPrediction, s_.E);
    Norm("nextn.hnorm", Component::kPrediction, s_.E);
    Matrix("nextn.eh_proj", Component::kPrediction, s_.E, 2 * s_.E);
    Layer(layer);
    Norm("nextn.shared_head_norm", Component::kPrediction, s_.E);
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

  void Layer(const LayerRecipe& l) {
    at_ = &l;
    if (l.residual.pre_norms && !l.mixers.empty()) Norm("attn_norm", Component::kAttnNorm, s_.E);
    for (const BlockForms* block : kMixerBlocks) {
      if (block->in(l)) block->parameters(*this);
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
    for (auto block = std::rbegin(kFeedForwardBlocks); block != std::rend(kFeedForwardBlocks); ++block) {  // experts first
      if ((*block)->in(l)) (*block)->parameters(*this);
    }
    if (l.both()) {  // norms around each of the two
      RmsNorm("post_ffw_norm_1", Component::kDensePostNorm, s_.E);
      RmsNorm("pre_ffw_norm_2", Component::kExpertNorm, s_.E);
      RmsNorm("post_ffw_norm_2", Component::kExpertPostNorm, s_.E);
    }
    if (l.residual.post_norms) Norm("post_ffw_norm", Component::kFfnPostNorm, s_.E);
  }
};

}  // namespace

void ParameterBuilder::Add(std::string name, Component component, bool vector, const Form& slices, const Form& used,
                           const Form& rows, const Form& cols) {
  ParameterForm p;
  p.name = std::move(name);
  p.layer = layer_;
  p.component = component;
  p.kind = kind_;
  p.stack = stack_;
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

void ParameterBuilder::Experts(const std::string& name, Component component, const Form& X, const Form& k, const Form& rows,
                               const Form& cols, bool bias) {
  Add(name, component, false, X, k, rows, cols);
  out_.back().expert = true;
  if (!bias) return;
  Add(name + ".bias", component, true, X, k, 1, rows);
  out_.back().expert = true;
}

std::vector<ParameterForm> ParameterForms(const Recipe& recipe) { return Parameters(recipe).Take(); }

}  // namespace tally::books
