// Reads hyper-parameters with their checks. The first error sticks and later look-ups answer with harmless
// values (1), so a family file reads all its keys and asks for status() once, before it computes with them.
#pragma once

#include <cstdint>
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
  // `prefix` stands before every key ("llama." for GGUF architecture llama, "" for Hugging Face).
  Config(const Inventory& inventory, std::string prefix) : inventory_(inventory), prefix_(std::move(prefix)) {}

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
  std::string prefix_;
  Status status_;
};

// Shared readings.

// Rows of a stored matrix that a hyper-parameter follows from.
int32_t StoredRows(Config& config, std::string_view name, int64_t max);
// GGUF: rows of the embedding; with it agree vocab_size, where the file has it, and the number of its tokens.
int32_t GgufVocabulary(Config& config);
// Hugging Face: whether the head is the embedding. tie_word_embeddings says so, or the family's published
// default. Tied and lm_head.weight stored all the same: what the config says is run, and the stored copy is
// listed as not run. Where the config is silent, a stored head is a head.
void ReadHfTying(Config& config, bool default_tied, ModelSpec& spec);

// A head's width where no key gives it: the model's, divided among the heads, which must come out even.
int32_t EvenHeadDim(Config& config, const Recipe& recipe);
// Layers, widths, heads, context, eps and vocabulary of an RMSNorm decoder, with the names every such
// architecture uses.
void ReadGgufDecoder(Config& config, Recipe& recipe);  // and rope.dim
struct HfDefaults {                                    // of the published configuration class; 0: none
  double norm_eps = 0;
  int32_t n_kv_heads = 0;  // 0, or null in the config: as many as there are heads
  int32_t head_dim = 0;    // 0: hidden_size / num_attention_heads
  int32_t n_heads = 0, context = 0, vocab = 0;
};
void ReadHfDecoder(Config& config, Recipe& recipe, const HfDefaults& defaults);
// n_heads, n_kv_heads, head_dim, d_model checked against each other; errors name the numbers.
void CheckHeads(Config& config, const Recipe& recipe);
// attention_scale of every layer and of the recipe: 1 / sqrt(head_dim).
void UsualAttentionScale(Recipe& recipe);
// YaRN's attention temperature: 0.1 mscale ln(factor) + 1 (arXiv 2309.00071, section 3.4; mscale is DeepSeek's).
double YarnMagnitude(double factor, double mscale = 1);
// Hugging Face rope_theta, and rope_scaling (old) or rope_parameters (new, of the full-attention layers where they differ): none,
// linear, llama3, yarn (of latent attention with DeepSeek's magnitudes). style and dim are the caller's.
void ReadHfRope(Config& config, Recipe& recipe, double default_theta);
// Hugging Face layer_types, after the layers are there: gives `window` to the layers of sliding attention, 0 to the others. False:
// the key is absent.
bool ReadHfLayerTypes(Config& config, Recipe& recipe, int32_t window);
// GGUF rope.*. `yarn_truncate`: whether this architecture's checkpoints round YaRN's bounds.
void ReadGgufRope(Config& config, Recipe& recipe, bool yarn_truncate);
// End tokens. Ids outside the vocabulary can never be generated and are left out.
void ReadGeneration(Config& config, Recipe& recipe);

}  // namespace tally
