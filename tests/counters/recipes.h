// SPDX-License-Identifier: Apache-2.0
// Recipes of published models, for tests of the books; sizes from their config.json.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "counters/books/closed_form.h"
#include "engine/recipe/recipe.h"

namespace tally::books {

inline Recipe Decoder(int32_t layers, int32_t E, int32_t H, int32_t K, int32_t D, int32_t F, int32_t V, bool tied) {
  Recipe r;
  r.n_layers = layers;
  r.d_model = E;
  r.all.attention.n_heads = H;
  r.all.attention.n_kv_heads = K;
  r.all.attention.head_dim = D;
  r.all.ffn.width = F;
  r.vocab = V;
  r.tied_head = tied;
  r.context = 4096;
  r.rope.style = RopeStyle::kRotateHalf;
  r.rope.dim = D;
  r.layers.resize(static_cast<size_t>(layers));
  FillLayers(r);
  return r;
}

inline Recipe Gpt2(int32_t layers, int32_t E, int32_t H) {
  Recipe r = Decoder(layers, E, H, H, 64, 4 * E, 50257, true);
  r.norm = NormKind::kLayer;
  r.context = 1024;
  r.rope = {};
  r.all.network.activation = ActivationKind::kGeluTanh;
  r.learned_positions = true;
  r.all.attention.fused_qkv = r.all.attention.q_bias = r.all.attention.k_bias = r.all.attention.v_bias = r.all.attention.o_bias =
      r.all.ffn.bias = true;
  r.all.network.gated = false;
  FillLayers(r);
  return r;
}

inline Recipe Sparse(Recipe r, int32_t experts, int32_t top_k, int32_t width) {
  r.all.experts.n_experts = experts;
  r.all.experts.top_k = top_k;
  r.all.experts.width = width;
  r.all.ffn.width = 0;
  for (LayerRecipe& layer : r.layers) layer = {.feed_forward = FeedForward::kSparse};
  FillLayers(r);
  return r;
}

inline Recipe GptOss(int32_t layers, int32_t experts) {
  Recipe r = Sparse(Decoder(layers, 2880, 64, 8, 64, 0, 201088, false), experts, 4, 2880);
  r.all.network.activation = ActivationKind::kSwigluOai;
  r.all.attention.q_bias = r.all.attention.k_bias = r.all.attention.v_bias = r.all.attention.o_bias = r.all.attention.sinks =
      r.all.experts.router_bias = r.all.experts.bias = true;
  FillLayers(r);
  for (size_t i = 0; i < r.layers.size(); i += 2) r.layers[i].attention.window = 128;
  return r;
}

// DeepSeek-V3 (arXiv 2412.19437; inference/configs/config_671B.json).
inline Recipe DeepSeekV3() {
  Recipe r = Sparse(Decoder(61, 7168, 128, 128, 192, 0, 129280, false), 256, 8, 2048);
  r.all.latent = {.kv_rank = 512, .q_rank = 1536, .nope_dim = 128, .rope_dim = 64, .v_dim = 128};
  for (LayerRecipe& layer : r.layers) layer.mixers = Mixer::kLatentAttention;
  r.rope.dim = 64;
  r.all.ffn.width = 18432;
  r.all.experts.shared_width = 2048;
  r.all.experts.router_bias = true;
  r.all.experts.routing = RoutingRule::kSigmoidThenTopKRenormed;
  r.mtp_layers = 1;
  for (size_t i = 0; i < 3; ++i) r.layers[i].feed_forward = FeedForward::kDense;
  FillLayers(r);
  return r;
}

// Every symbol of closed_form.h but those of a step.
inline std::map<std::string, uint64_t> SymbolsOf(const Recipe& r) {
  auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  std::map<std::string, uint64_t> symbols = {{"V", u(r.vocab)},
                                             {"E", u(r.d_model)},
                                             {"L", u(r.n_layers)},
                                             {"H", u(r.all.attention.n_heads)},
                                             {"K", u(r.all.attention.n_kv_heads)},
                                             {"D", u(r.all.attention.head_dim)},
                                             {"F", u(r.all.ffn.width)},
                                             {"X", u(r.all.experts.n_experts)},
                                             {"k", u(r.all.experts.top_k)},
                                             {"T", u(r.context)},
                                             {"F_x", u(r.all.experts.width)},
                                             {"F_s", u(r.all.experts.shared_width)},
                                             {"R_q", u(r.all.latent.q_rank)},
                                             {"R_kv", u(r.all.latent.kv_rank)},
                                             {"D_n", u(r.all.latent.nope_dim)},
                                             {"D_r", u(r.all.latent.rope_dim)},
                                             {"D_v", u(r.all.latent.v_dim)}};
  if (r.local_rope.style != RopeStyle::kNone) symbols["D_l"] = u(r.local_rope.dim);
  for (const SizeSymbol& s : LayerSizeSymbols(r)) symbols[s.name] = s.value;
  for (const SizeSymbol& s : RecurrentSymbols(r)) symbols[s.name] = s.value;
  bool dense = false;
  for (const LayerRecipe& l : r.layers) dense = dense || l.dense();
  if (!dense) symbols["F"] = u(r.all.experts.width);
  if (r.all.latent.kv_rank == 0) symbols["D_r"] = u(r.rope.dim);
  for (const LayerRecipe& l : r.layers) {
    if (l.attention.window > 0) symbols["W"] = u(l.attention.window);
  }
  return symbols;
}

}  // namespace tally::books
