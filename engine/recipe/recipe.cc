// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/recipe.h"

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
  l.prediction = layer.prediction;
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

}  // namespace tally
