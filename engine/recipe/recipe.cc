// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/recipe.h"

#include <utility>

namespace tally {
namespace {

// The options that models vary by layer.
template <class Block, class... Fields>
void TakeOwn(Block& block, const Block& own, const Block& before, Fields... fields) {
  ((own.*fields == before.*fields ? void() : void(block.*fields = own.*fields)), ...);
}

}  // namespace

LayerRecipe LayerOf(const LayerRecipe& common, const LayerRecipe& layer, const LayerRecipe& before) {
  LayerRecipe l = common;
  l.mixers = layer.mixers;
  l.feed_forward = layer.feed_forward;
  TakeOwn(l.attention, layer.attention, before.attention, &Attention::n_heads, &Attention::n_kv_heads, &Attention::head_dim,
          &Attention::window, &Attention::chunk, &Attention::scale, &Attention::rope, &Attention::both_ways, &Attention::cache_of,
          &Attention::v_is_k);
  TakeOwn(l.network, layer.network, before.network, &Network::xielu);
  TakeOwn(l.ffn, layer.ffn, before.ffn, &DenseFeedForward::width);
  TakeOwn(l.experts, layer.experts, before.experts, &Experts::limit, &Experts::shared_limit);
  return l;
}

void FillLayers(Recipe& recipe) {
  for (LayerRecipe& l : recipe.layers) l = LayerOf(recipe.all, l);
}

Recipe PredictionStack(const Recipe& text) {
  Recipe r = text;
  r.stack = StackKind::kPrediction;
  r.first_layer = text.n_layers;
  r.n_layers = std::exchange(r.mtp_layers, 0);
  LayerRecipe l = r.all;
  l.mixers = l.latent.kv_rank > 0 ? Mixer::kLatentAttention : Mixer::kAttention;
  l.feed_forward = l.experts.n_experts > 0 ? FeedForward::kSparse : FeedForward::kDense;
  r.layers.assign(static_cast<size_t>(r.n_layers), l);
  return r;
}

}  // namespace tally
