// SPDX-License-Identifier: Apache-2.0
// The recipe: a stack of layers as data for the graph, the memory plan and the closed forms. Options of a block are in the block (layer.h).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/kinds.h"
#include "engine/base/stack.h"
#include "engine/recipe/counted_only.h"
#include "engine/recipe/layer.h"
#include "engine/recipe/rope.h"
#include "engine/recipe/sizes.h"

namespace tally {

struct Recipe {
  std::string family = {};  // "gpt2", "llama", "gpt-oss"
  StackKind stack = StackKind::kText;
  // The number of layers[0] in names, sites and books. The layers of a model's stacks are numbered one after another.
  int32_t first_layer = 0;
  int32_t n_layers = 0;  // L
  int32_t d_model = 0;   // E
  int32_t vocab = 0;     // V: rows of the embedding
  int32_t context = 0;   // trained length

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  bool norm_bias = true;      // of LayerNorms
  float embedding_scale = 1;  // multiplies the embedding of a token before the first layer (Gemma: sqrt(d_model))
  // Width of the rows of embedding and head, if a matrix leads from it to d_model and another one back (OPT-350M); 0: d_model.
  int32_t embedding_width = 0;
  bool embedding_norm = false;  // a norm of the embedding (BLOOM)
  bool embedding_rms = false;   // RMSNorm of the embedding, without weights (Muse Glimmer)
  bool learned_positions = false;
  int32_t first_position = 0;  // row of the learned positions that position 0 has (OPT: 2)
  Rope rope = {};
  Rope local_rope = {};  // of layers with LayerRope::kLocal (Gemma 3)
  float alibi_bias = 0;  // ALiBi: the largest of a head's slopes is 2^(-alibi_bias / heads) (BLOOM, MPT: 8); 0: none
  // A second embedding of the token gives each layer a vector of so many elements, which gates what the layer adds last (Gemma 4); 0: none.
  int32_t layer_embedding = 0;

  std::vector<LayerRecipe> layers = {};  // [n_layers]
  int32_t mtp_layers = 0;  // of the text: layers for multi-token prediction that the checkpoint has (PredictionStack)
  // What the layers have in common: FillLayers gives it to them. It is also what a layer of mtp_layers has.
  LayerRecipe all = {};

  bool output_norm = true;  // a norm of x before the head
  bool tied_head = false;   // the head is the embedding matrix
  bool head_bias = false;
  float logit_scale = 1;    // multiplies the logits (Cohere, Granite, MiniCPM)
  float logit_softcap = 0;  // c: logits become c tanh(logit / c) (Gemma 2); 0: none

  std::optional<CountedOnly> counted_only = {};

  // Generation defaults of the checkpoint.
  std::vector<int32_t> eos_tokens = {};

  bool prediction() const { return stack == StackKind::kPrediction; }
  int32_t end_layer() const { return first_layer + n_layers; }
  const LayerRecipe& layer(int32_t number) const { return layers[static_cast<size_t>(number - first_layer)]; }
  bool operator==(const Recipe&) const = default;
};

// A layer with the options of `common` and the kinds of blocks of `layer`. Options that models vary by layer are the layer's own if they
// differ from those of `before`, of which it was made.
LayerRecipe LayerOf(const LayerRecipe& common, const LayerRecipe& layer, const LayerRecipe& before = {});
// Makes each layer LayerOf Recipe::all.
void FillLayers(Recipe& recipe);
// The stack of a text's mtp_layers, numbered behind its layers: a layer of it has the options of Recipe::all. Tables, norms and head are
// the text's.
Recipe PredictionStack(const Recipe& text);
// Changes each layer, and what they have in common.
template <class Change>
void ChangeLayers(Recipe& r, Change change) {
  change(r.all);
  for (LayerRecipe& l : r.layers) change(l);
}

// True if some layer has the property, a predicate or a member of LayerRecipe.
template <class Property>
bool AnyLayer(const Recipe& r, Property property) {
  for (const LayerRecipe& l : r.layers) {
    if (std::invoke(property, l)) return true;
  }
  return false;
}

// The first layer with the property; an empty one if no layer has it.
template <class Property>
const LayerRecipe& FirstLayer(const Recipe& r, Property property) {
  static const LayerRecipe none;
  for (const LayerRecipe& l : r.layers) {
    if (std::invoke(property, l)) return l;
  }
  return none;
}
inline const LayerRecipe& FirstLayer(const Recipe& r, Mixer mixer) {
  return FirstLayer(r, [=](const LayerRecipe& l) { return l.mixers.has(mixer); });
}

// A block of the first layer that has it. All experts of a model are of one size and choice (CheckRecipe); so are its recurrent blocks.
inline const Attention& AttentionOf(const Recipe& r) { return FirstLayer(r, &LayerRecipe::attends).attention; }
inline const DeltaRule& DeltaOf(const Recipe& r) { return FirstLayer(r, Mixer::kDeltaRule).delta; }
inline const Mamba2& MambaOf(const Recipe& r) { return FirstLayer(r, Mixer::kMamba2).mamba; }
inline const Experts& ExpertsOf(const Recipe& r) { return FirstLayer(r, &LayerRecipe::sparse).experts; }
// Positions that the convolutions of recurrent layers see; 0: there are none.
inline int32_t TapsOf(const Recipe& r) { return FirstLayer(r, &LayerRecipe::recurrent).taps(); }

}  // namespace tally
