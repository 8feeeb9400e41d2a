// Reads hyper-parameters with their checks. The first error sticks and later look-ups answer with harmless
// values (1), so a family file reads all its keys and asks for status() once, before it computes with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// No published model comes near these; a number beyond them is a damaged or hostile file.
inline constexpr int64_t kMaxLayers = 4096, kMaxWidth = 1 << 24, kMaxHeads = 1 << 16, kMaxContext = INT32_MAX,
                         kMaxExperts = 1 << 16, kMaxVocab = 1 << 26;

class Config {
 public:
  // `architecture`: the name that the file goes by, of GGUF or of config.json's architectures or model_type. GGUF's keys begin with it.
  Config(const Inventory& inventory, std::string architecture);

  bool gguf() const { return inventory_.format == FileFormat::kGguf; }
  // The key, or the name, that the format has.
  std::string_view Pick(std::string_view of_gguf, std::string_view of_hf) const { return gguf() ? of_gguf : of_hf; }
  // Whether the file goes by one of these names.
  bool Is(std::initializer_list<std::string_view> names) const { return std::ranges::find(names, architecture_) != names.end(); }
  // From here on keys stand below `part` (a configuration of several parts: "text_config.").
  void Enter(std::string_view part) { prefix_ = part; }

  // The first of the keys ("a|b|c") that is present; where none is, the default, or an error naming key and
  // file.
  int32_t Int(std::string_view keys, int64_t min, int64_t max) { return GetInt(keys, min, max, nullptr); }
  int32_t Int(std::string_view keys, int64_t min, int64_t max, int64_t otherwise) { return GetInt(keys, min, max, &otherwise); }
  double Positive(std::string_view keys) { return GetPositive(keys, nullptr); }  // finite and > 0
  double Positive(std::string_view keys, double otherwise) { return GetPositive(keys, &otherwise); }
  bool Bool(std::string_view keys, bool otherwise);
  std::string String(std::string_view keys, std::string_view otherwise);
  std::vector<std::string> Strings(std::string_view key);  // empty: absent
  bool Has(std::string_view keys) const { return !Present(keys).empty(); }
  // Null is not absence where a configuration class has a default: it says "none".
  bool IsNull(std::string_view key) const { return inventory_.metadata.IsNull(prefix_ + std::string(key)); }

  // Keeps the first error. Fail: "FILE: WHAT"; Unsupported: "FILE: KEY WHAT is not supported".
  void Fail(std::string what);
  void Unsupported(std::string_view key, std::string what);
  std::string tensor_prefix;  // what '~' in names of tensors stands for

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }
  const Inventory& inventory() const { return inventory_; }
  const std::string& prefix() const { return prefix_; }

 private:
  std::string Present(std::string_view keys) const;  // full name of the first key present; empty: none
  int32_t GetInt(std::string_view keys, int64_t min, int64_t max, const int64_t* otherwise);
  double GetPositive(std::string_view keys, const double* otherwise);
  void Missing(std::string_view keys);
  template <class T>
  bool Take(Result<std::optional<T>> got, T& value);  // false: error (kept) or absent

  const Inventory& inventory_;
  std::string architecture_, prefix_;
  Status status_;
};

// Shared readings, of both formats unless they say otherwise. All are harmless after an error.

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

// YaRN's attention temperature: 0.1 mscale ln(factor) + 1 (arXiv 2309.00071, section 3.4; mscale is DeepSeek's).
double YarnMagnitude(double factor, double mscale = 1);
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
