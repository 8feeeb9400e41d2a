// Readings that families share, of both formats unless they say otherwise. All are harmless after an error.
#pragma once

#include <initializer_list>
#include <string_view>

#include "engine/recipe/model_spec.h"
#include "models/config.h"

namespace tally {

// GGUF: rows of the embedding; with it agree vocab_size, where the file has it, and the number of its tokens.
int32_t GgufVocabulary(Config& config);
// GGUF: a head that is not stored is the embedding. Hugging Face: tie_word_embeddings says so, or the family's published default.
// Tied and lm_head.weight stored all the same: what the config says is run, and the stored copy is listed as not run. Where the
// config is silent, a stored head is a head.
void ReadTying(Config& config, bool default_tied, ModelSpec& spec);

// A head's width where no key gives it: the model's, divided among the heads, which must come out even.
int32_t EvenHeadDim(Config& config, const Recipe& recipe);
// q.k is multiplied by it in all layers. Usual: 1 / sqrt(head_dim).
void SetAttentionScale(Recipe& recipe, double scale);
double UsualAttentionScale(const Recipe& recipe);

struct DecoderDefaults {  // Hugging Face: of the published configuration class; 0: none
  double norm_eps = 0;
  int32_t n_kv_heads = 0;  // 0, or null in the config: as many as there are heads
  int32_t head_dim = 0;    // 0: hidden_size / num_attention_heads
  int32_t n_heads = 0, context = 0, vocab = 0;
  double rope_theta = 10000;
  double rotated = 0;  // partial_rotary_factor where the config is silent; 0: a whole head turns, and the key is not supported
  bool tied = false;
  bool gguf_yarn_truncates = true;  // whether this architecture's checkpoints round YaRN's bounds
  // Of LayerNorm "layer_norm_eps" and "attention.layer_norm_epsilon".
  std::string_view hf_eps = "rms_norm_eps", gguf_eps = "attention.layer_norm_rms_epsilon";
};
// What decoders have in common: layers, widths, heads, context, eps, vocabulary, rope (rotate-half where the recipe has no style yet),
// the layers with the usual attention scale, tying. Of latent attention, whose dimensions the recipe has, heads and rope are those.
void ReadDecoder(Config& config, ModelSpec& spec, const DecoderDefaults& defaults);
// d_ff.
void ReadFeedForwardWidth(Config& config, Recipe& recipe);
// Hugging Face: hidden_act must be SiLU.
void ExpectSilu(Config& config);
// Hugging Face: which GELU; in GGUF files the default.
ActivationKind ReadGelu(Config& config, std::string_view keys, std::string_view otherwise);
void SetBiases(Recipe& recipe, bool qkv, bool o);

// n_experts, top_k, d_expert; the keys are Hugging Face's.
void ReadExperts(Config& config, Recipe& recipe, std::string_view count_keys, std::string_view width_keys);
// norm_topk_prob, or what a GGUF of this architecture implies.
RoutingRule SoftmaxRule(Config& config, bool normed_by_default);

// Hugging Face layer_types, after the layers are there: gives `window` to the layers of sliding attention, 0 to the others. False:
// the key is absent.
bool ReadHfLayerTypes(Config& config, Recipe& recipe, int32_t window);
// Hugging Face, Qwen: windows only where use_sliding_window says so, then from layer max_window_layers on. Mixtures: which layers are
// sparse; windows are refused, as the classes' differ from version to version and no published mixture has one.
void ReadQwenWindows(Config& config, Recipe& recipe);
void ReadQwenSparseLayers(Config& config, Recipe& recipe);
// Hugging Face, DeepSeek and GLM: routed and shared experts, dense layers first, layers for multi-token prediction.
void ReadSharedExperts(Config& config, ModelSpec& spec);

// Stored tensors that are no weights: every layer's ('#') of these names ('~': the prefix).
void AddBuffers(Config& config, ModelSpec& spec, std::initializer_list<std::string_view> names);
// Stored weights that are not run: all whose names begin so.
void AddNotRun(Config& config, ModelSpec& spec, std::string_view prefix);

// End tokens. Ids outside the vocabulary can never be generated and are left out.
void ReadGeneration(Config& config, Recipe& recipe);

}  // namespace tally
