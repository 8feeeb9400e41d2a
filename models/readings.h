// SPDX-License-Identifier: Apache-2.0
// Readers of hyper-parameters that families share, for both formats unless stated. After an error they have no effect.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "engine/recipe/model_spec.h"
#include "models/config.h"

namespace tally {

// GGUF: the rows of the embedding. Checks them against vocab_size, if present, and the number of tokens.
int32_t GgufVocabulary(Config& config);
// Sets tied_head. GGUF: tied if no head is stored. Hugging Face: tie_word_embeddings, or the family's published default.
// Without the key, a head that is stored beside the embedding is used. The config's tensor_prefix must be set.
void ReadTying(Config& config, bool default_tied, Recipe& recipe);

// head_dim if no key gives it: d_model / n_heads, which must be an integer.
int32_t EvenHeadDim(Config& config, const Recipe& recipe);
// Sets the factor of q.k in all layers. The usual one is 1 / sqrt(head_dim).
void SetAttentionScale(Recipe& recipe, double scale);
double UsualAttentionScale(const Recipe& recipe);

struct DecoderDefaults {  // Hugging Face: defaults of the published configuration class; 0: none
  double norm_eps = 0;
  int32_t n_kv_heads = 0;  // 0, or null in the config: the same as n_heads
  int32_t head_dim = 0;    // 0: hidden_size / num_attention_heads
  int32_t n_heads = 0, context = 0, vocab = 0;
  int32_t n_layers = 0;  // not 0: what Hugging Face's configuration lists, whatever the key says
  double rope_theta = 10000;
  double rotated = 0;  // default of partial_rotary_factor; 0: rope rotates the whole head, and the key is not supported
  bool tied = false;
  bool gguf_yarn_truncates = true;    // true if this architecture's checkpoints round YaRN's bounds
  bool gguf_attention_scale = false;  // GGUF: attention.scale, if present, is the factor of q.k
  // Keys of norm_eps. Models with LayerNorm: "layer_norm_eps" and "attention.layer_norm_epsilon".
  std::string_view hf_eps = "rms_norm_eps", gguf_eps = "attention.layer_norm_rms_epsilon";
  bool gguf_absent_heads = false;  // GGUF: 0 heads is a layer without attention, and no error
  bool attention = true;           // false: no layer attends, and no key of heads is read; nor one of rope
  bool rope = true;                // false: positions do not rotate, and no key of rope is read
  bool dynamic_alpha = false;      // Hugging Face: a dynamic rope with an alpha has a larger theta once and for all (Hunyuan)
  bool lone_mscale = false;        // Hugging Face: YaRN's mscale without mscale_all_dim has no effect (AFM)
  double original_context = 0;     // default of longrope's original_max_position_embeddings; 0: the context
  // Hugging Face's keys of layers, width, heads and context. No key of the context: it is the default.
  std::string_view hf_layers = "num_hidden_layers", hf_width = "hidden_size", hf_heads = "num_attention_heads",
                   hf_context = "max_position_embeddings";
};
// Reads the parameters common to decoders: layers, widths, heads, context, eps, vocabulary, rope (rotate-half unless the recipe
// has a style), tying; makes the layers with the usual attention scale. With latent attention, heads and rope follow from its
// dimensions, which the recipe must have.
void ReadDecoder(Config& config, ModelSpec& spec, const DecoderDefaults& defaults);
// The same for Mistral's models whose queries grow with their position, counted in original contexts. `required`: a Hugging Face
// configuration must have rope_parameters, since the class has a scaling by default.
void ReadMistralDecoder(Config& config, ModelSpec& spec, const DecoderDefaults& defaults, bool required);
// Hugging Face: theta and scaling of Recipe::rope, those of the full-attention layers if they differ. The recipe must have rope.dim,
// context and latent attention. None, linear, llama3, yarn (of latent attention with DeepSeek's magnitudes), dynamic or longrope.
void ReadHfRope(Config& config, Recipe& recipe, const DecoderDefaults& defaults);
// d_ff.
void ReadFeedForwardWidth(Config& config, Recipe& recipe);
// Hugging Face: hidden_act must be SiLU.
void ExpectSilu(Config& config);
// Hugging Face: the kind of GELU, `otherwise` by default. GGUF: `otherwise`.
ActivationKind ReadGelu(Config& config, std::string_view keys, std::string_view otherwise);
void SetBiases(Recipe& recipe, bool qkv, bool o);
// Sets Recipe::rope's sections of M-RoPE, as many pairs as turn by them; none if all pairs turn by the time, or if sections that follow one
// another are not all pairs: such a model takes text.
void SetSections(Config& config, const std::vector<int64_t>& sections, bool interleaved, Recipe& recipe);

// A number of each layer, from 0: GGUF's key has a list, or one for all. `otherwise`: without the key; -1: it is required.
std::vector<int32_t> ReadOfLayers(Config& config, const Recipe& recipe, std::string_view keys, int64_t max,
                                  int32_t otherwise = -1);
// The layer's feed-forward: a mixture of experts, or a dense one.
void SetSparse(LayerRecipe& layer, bool sparse);
// n_experts, top_k, d_expert; the keys are Hugging Face's.
void ReadExperts(Config& config, Recipe& recipe, std::string_view count_keys, std::string_view width_keys);
// GGUF: experts of Mixtral, Granite and ERNIE have no gate if the file has none, as in llama.cpp. Call it after the layers are sparse.
void ReadUngatedExperts(Config& config, Recipe& recipe);
// A factor from GGUF's keys. 0 stands for 1, as in llama.cpp.
double ReadGgufFactor(Config& config, std::string_view key);
// norm_topk_prob, or what a GGUF of this architecture implies.
RoutingRule SoftmaxRule(Config& config, bool normed_by_default);

// Hugging Face layer_types, after the layers are made: gives `window` to layers of sliding attention, 0 to the others. False: the
// key is absent.
bool ReadHfLayerTypes(Config& config, Recipe& recipe, int32_t window);
// Which layers have the window: all but every `period`-th; or as the key says, a period or, for each layer, whether it has it.
void SetWindows(Recipe& recipe, int32_t window, int32_t period);
void ReadWindowPattern(Config& config, Recipe& recipe, std::string_view keys, int32_t window, int32_t usual_period);
// Layers without rope. Hugging Face: those that no_rope_layers has 0 for, or else every no_rope_layer_interval-th; GGUF: every fourth.
void ReadNoRopeLayers(Config& config, Recipe& recipe);
// Hugging Face, Qwen. Windows: only if use_sliding_window is set, from layer max_window_layers on. Mixtures: which layers are sparse.
void ReadQwenWindows(Config& config, Recipe& recipe);
void ReadQwenSparseLayers(Config& config, Recipe& recipe);
// Hugging Face mlp_layer_types: which layers are sparse. False: the key is absent.
bool ReadMlpLayerTypes(Config& config, Recipe& recipe);
// Routing by sigmoids of all experts, with a bias that only the choice sees (DeepSeek-V3): whether the chosen weights are divided by
// their sum, what multiplies them, groups that are judged by their two best experts. GGUF: the bias is there if a layer stores it.
// `normed`, `scale`: Hugging Face's defaults. `scale_key`: its key.
void ReadSigmoidRouting(Config& config, Recipe& recipe, bool normed, double scale = 1,
                        std::string_view scale_key = "routed_scaling_factor");
// The width of the shared experts together; above kMaxWidth it fails, naming the key of their number.
void SetSharedWidth(Config& config, Recipe& recipe, int64_t width, std::string_view key);
void SetSparseFrom(Recipe& recipe, int32_t dense);  // the first `dense` layers are dense, the others sparse
// Hugging Face, DeepSeek and GLM: routed and shared experts, dense layers first, layers for multi-token prediction.
// `dense`: the default of the first layers; -1: none.
void ReadSharedExperts(Config& config, ModelSpec& spec, int32_t dense = -1);

// What the names of a layer's tensors begin with, where layers for multi-token prediction follow the last one: "blk.7.".
std::string PredictionLayerName(const Config& config, int32_t layer);
// Hugging Face: num_nextn_predict_layers, stored behind the last layer.
void ReadHfPredictionLayers(Config& config, ModelSpec& spec);
// GGUF: nextn_predict_layers. The last blocks are for multi-token prediction as far as they have tensors named nextn, or none; such a block
// may also follow those that block_count counts. They leave the recipe's layers. A block with an ordinary layer's tensors alone stays,
// whatever the key says.
void ReadGgufPredictionLayers(Config& config, ModelSpec& spec);

// Hugging Face: `prefix` is what '~' stands for in names of tensors, if some tensor's name begins with it.
void FindPrefix(Config& config, std::string_view prefix);
// Lists stored weights that are not run: all names with this prefix, which ends in '.'.
void AddNotRun(Config& config, ModelSpec& spec, std::string_view prefix);
// Selects the text model of a checkpoint that may have several parts; lists the tensors of the others as not run. Hugging Face: its keys
// are below text_config if there is one, and the others' names have these prefixes, or these below "model.". GGUF: its keys are as always,
// and those of others "v." and "mm.".
void EnterTextModel(Config& config, ModelSpec& spec, std::initializer_list<std::string_view> others);

// After a family has read: refuses attention to later positions, and options of other families (soft caps, scales, limits, ALiBi, kinds
// of layers) that the checkpoint sets and its own family has not asked for.
void RefuseUnreadOptions(Config& config);

// End tokens; -1 (GGUF also 2^32 - 1) means none. An id beyond the vocabulary is noted and ignored.
void ReadGeneration(Config& config, Recipe& recipe);

}  // namespace tally
