#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "engine/base/format.h"

namespace tally {
namespace {

// Calls f with each part of "a|b|c" until it returns true.
template <class F>
void ForEachKey(std::string_view keys, F f) {
  while (true) {
    const size_t bar = keys.find('|');
    if (f(keys.substr(0, bar)) || bar == std::string_view::npos) return;
    keys.remove_prefix(bar + 1);
  }
}

std::string Number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", x);
  return text;
}

}  // namespace

void Config::Fail(std::string what) {
  if (status_.ok()) status_ = BadInput(inventory_.metadata.source + ": " + std::move(what));
}

void Config::Unsupported(std::string_view key, std::string what) {
  Fail(prefix_ + std::string(key) + " " + std::move(what) + " is not supported");
}

std::string Config::Present(std::string_view keys) const {
  std::string found;
  ForEachKey(keys, [&](std::string_view key) {
    std::string full = prefix_ + std::string(key);
    if (!inventory_.metadata.Has(full) && !inventory_.metadata.IsOther(full)) return false;
    found = std::move(full);
    return true;
  });
  return found;
}

void Config::Missing(std::string_view keys) {
  Fail("required key " + prefix_ + std::string(keys.substr(0, keys.find('|'))) + " is missing");
}

template <class T>
bool Config::Take(Result<std::optional<T>> got, T& value) {
  if (!got.ok()) {
    if (status_.ok()) status_ = got.status();
    return false;
  }
  if (!got->has_value()) return false;
  value = **got;
  return true;
}

int32_t Config::GetInt(std::string_view keys, int64_t min, int64_t max, const int64_t* otherwise) {
  if (!ok()) return 1;
  const std::string key = Present(keys);
  int64_t value = 0;
  if (key.empty() || !Take(inventory_.metadata.GetInt(key), value)) {
    if (!ok()) return 1;
    if (otherwise != nullptr) return static_cast<int32_t>(*otherwise);
    Missing(keys);
    return 1;
  }
  if (value < min || value > max) {
    Fail(key + " is " + std::to_string(value) + "; expected " + std::to_string(min) + " to " + std::to_string(max));
    return 1;
  }
  return static_cast<int32_t>(value);
}

double Config::GetPositive(std::string_view keys, const double* otherwise) {
  if (!ok()) return 1;
  const std::string key = Present(keys);
  double value = 0;
  if (key.empty() || !Take(inventory_.metadata.GetDouble(key), value)) {
    if (!ok()) return 1;
    if (otherwise != nullptr) return *otherwise;
    Missing(keys);
    return 1;
  }
  // Also as f32, which is what kernels get.
  if (!std::isfinite(value) || !(static_cast<float>(value) > 0) || !std::isfinite(static_cast<float>(value))) {
    Fail(key + " is " + Number(value) + "; expected a positive finite number");
    return 1;
  }
  return value;
}

bool Config::Bool(std::string_view keys, bool otherwise) {
  const std::string key = Present(keys);
  bool value = false;
  return !key.empty() && ok() && Take(inventory_.metadata.GetBool(key), value) ? value : otherwise;
}

std::string Config::String(std::string_view keys, std::string_view otherwise) {
  const std::string key = Present(keys);
  std::string value;
  return !key.empty() && ok() && Take(inventory_.metadata.GetString(key), value) ? value : std::string(otherwise);
}

std::vector<std::string> Config::Strings(std::string_view key) {
  const std::string full = Present(key);
  std::vector<std::string> value;
  if (!full.empty() && ok()) Take(inventory_.metadata.GetStrings(full), value);
  return value;
}

int32_t StoredRows(Config& c, std::string_view name, int64_t max) {
  if (!c.ok()) return 1;
  const StoredTensor* t = c.inventory().Find(name);
  if (t == nullptr) {
    c.Fail("tensor " + std::string(name) + " is missing");
    return 1;
  }
  if (t->shape.size() != 2 || t->shape[0] < 1 || t->shape[0] > static_cast<uint64_t>(max)) {
    c.Fail("tensor " + std::string(name) + " must be a matrix of 1 to " + std::to_string(max) + " rows");
    return 1;
  }
  return static_cast<int32_t>(t->shape[0]);
}

int32_t GgufVocabulary(Config& c) {
  constexpr std::string_view kEmbedding = "token_embd.weight", kTokens = "tokenizer.ggml.tokens";
  const int32_t rows = StoredRows(c, kEmbedding, kMaxVocab);
  const std::string has = ", but " + std::string(kEmbedding) + " has " + std::to_string(rows) + " rows";
  if (c.ok() && c.Has("vocab_size")) {
    const int32_t told = c.Int("vocab_size", 1, kMaxVocab);
    if (c.ok() && told != rows) c.Fail("vocab_size is " + std::to_string(told) + has);
  }
  // Fewer tokens than rows are padding.
  const MetaValue* const value = c.inventory().metadata.Find(kTokens);
  const auto* const tokens = value != nullptr ? std::get_if<std::vector<std::string>>(value) : nullptr;
  if (c.ok() && tokens != nullptr && tokens->size() > static_cast<size_t>(rows)) {
    c.Fail(std::string(kTokens) + " lists " + std::to_string(tokens->size()) + " tokens" + has);
  }
  return rows;
}

void ReadHfTying(Config& c, bool default_tied, ModelSpec& spec) {
  constexpr std::string_view kHead = "lm_head.weight";
  const bool stored = c.inventory().Find(kHead) != nullptr;
  const bool told = c.Has("tie_word_embeddings");
  spec.recipe.tied_head = told ? c.Bool("tie_word_embeddings", default_tied) : default_tied && !stored;
  if (spec.recipe.tied_head && stored) spec.not_run.emplace_back(kHead);
}

int32_t EvenHeadDim(Config& c, const Recipe& r) {
  if (c.ok() && r.d_model % r.n_heads != 0) {
    c.Fail("width " + std::to_string(r.d_model) + " cannot be divided among " + std::to_string(r.n_heads) + " heads");
  }
  return std::max(1, r.d_model / r.n_heads);
}

void ReadGgufDecoder(Config& c, Recipe& r) {
  r.n_layers = c.Int("block_count", 1, kMaxLayers);
  r.d_model = c.Int("embedding_length", 1, kMaxWidth);
  r.n_heads = c.Int("attention.head_count", 1, kMaxHeads);
  r.n_kv_heads = c.Int("attention.head_count_kv", 1, kMaxHeads, r.n_heads);
  r.head_dim = c.Has("attention.key_length") ? c.Int("attention.key_length", 1, kMaxHeads) : EvenHeadDim(c, r);
  if (c.ok() && c.Int("attention.value_length", 1, kMaxHeads, r.head_dim) != r.head_dim)
    c.Unsupported("attention.value_length", "other than key_length");
  r.rope.dim = c.Int("rope.dimension_count", 1, kMaxHeads, r.head_dim);
  r.context = c.Int("context_length", 1, kMaxContext);
  r.norm_eps = static_cast<float>(c.Positive("attention.layer_norm_rms_epsilon"));
  r.vocab = GgufVocabulary(c);
  if (c.Has("attention.scale")) c.Unsupported("attention.scale", "in this architecture");
}

void ReadHfDecoder(Config& c, Recipe& r, const HfDefaults& defaults) {
  r.n_layers = c.Int("num_hidden_layers", 1, kMaxLayers);
  r.d_model = c.Int("hidden_size", 1, kMaxWidth);
  const auto int_or = [&](std::string_view key, int64_t max, int32_t otherwise) {
    return otherwise > 0 ? c.Int(key, 1, max, otherwise) : c.Int(key, 1, max);
  };
  r.n_heads = int_or("num_attention_heads", kMaxHeads, defaults.n_heads);
  const bool shared = defaults.n_kv_heads > 0 && !c.IsNull("num_key_value_heads");  // null: as many as there are heads
  r.n_kv_heads = c.Int("num_key_value_heads", 1, kMaxHeads, shared ? defaults.n_kv_heads : r.n_heads);
  r.head_dim =
      c.Has("head_dim") || defaults.head_dim > 0 ? c.Int("head_dim", 1, kMaxHeads, defaults.head_dim) : EvenHeadDim(c, r);
  r.context = int_or("max_position_embeddings", kMaxContext, defaults.context);
  r.norm_eps = static_cast<float>(c.Positive("rms_norm_eps", defaults.norm_eps));
  r.vocab = int_or("vocab_size", kMaxVocab, defaults.vocab);
}

void CheckHeads(Config& c, const Recipe& r) {
  if (!c.ok()) return;
  const std::string heads = std::to_string(r.n_heads);
  if (r.n_heads % r.n_kv_heads != 0) {
    c.Fail(heads + " attention heads cannot share " + std::to_string(r.n_kv_heads) + " key-value heads evenly");
  }
  if (static_cast<int64_t>(r.n_heads) * r.head_dim > kMaxWidth) {
    c.Fail(heads + " attention heads of " + std::to_string(r.head_dim) + " are wider than " + std::to_string(kMaxWidth));
  }
  if (r.rope.style != RopeStyle::kNone && (r.rope.dim % 2 != 0 || r.rope.dim > r.head_dim)) {
    c.Fail("rope turns " + std::to_string(r.rope.dim) + " of a head's " + std::to_string(r.head_dim) +
           " dimensions; expected an even number, at most all");
  }
}

void UsualAttentionScale(Recipe& r) {
  r.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(r.head_dim)));
  for (LayerRecipe& layer : r.layers) layer.attention_scale = r.attention_scale;
}

double YarnMagnitude(double factor, double mscale) { return factor > 1 ? 0.1 * mscale * std::log(factor) + 1 : 1; }

namespace {

// Reads factor and what else a kind of scaling needs; `p` stands before the keys.
void ReadHfScaling(Config& c, const std::string& p, Recipe& r, const std::string& type) {
  RopeScaling& s = r.rope.scaling;
  if (type == "default" || type == "none") return;
  if (type == "linear") {
    s.kind = RopeScalingKind::kLinear;
    s.factor = c.Positive(p + "factor");
  } else if (type == "llama3") {
    s.kind = RopeScalingKind::kLlama3;
    s.factor = c.Positive(p + "factor");
    s.low_freq_factor = c.Positive(p + "low_freq_factor");
    s.high_freq_factor = c.Positive(p + "high_freq_factor");
    s.original_context = c.Positive(p + "original_max_position_embeddings");
    if (c.ok() && s.low_freq_factor >= s.high_freq_factor) c.Fail(p + "low_freq_factor must be below high_freq_factor");
  } else if (type == "yarn") {
    s.kind = RopeScalingKind::kYarn;
    s.factor = c.Positive(p + "factor");
    s.original_context = c.Positive(p + "original_max_position_embeddings", r.context);
    s.beta_fast = c.Positive(p + "beta_fast", 32);
    s.beta_slow = c.Positive(p + "beta_slow", 1);
    s.truncate = c.Bool(p + "truncate", true);
    const bool all_dim = c.Has(p + "mscale_all_dim");
    if (r.latent.kv_rank > 0 && all_dim) {  // what both have in common goes into the attention scale instead
      const double all = YarnMagnitude(s.factor, c.Positive(p + "mscale_all_dim"));
      s.attention_factor = YarnMagnitude(s.factor, c.Positive(p + "mscale", 1)) / all;
      return;
    }
    s.attention_factor = c.Positive(p + "attention_factor", YarnMagnitude(s.factor));
    for (const char* key : {"mscale", "mscale_all_dim"}) {
      if (c.Has(p + key)) c.Unsupported(p + key, "(DeepSeek's variant of YaRN)");
    }
  } else {
    c.Unsupported(p + "rope_type", Quote(type));
  }
}

}  // namespace

void ReadHfRope(Config& c, Recipe& r, double default_theta) {
  r.rope.theta = c.Positive("rope_theta|rope_parameters.rope_theta|rope_parameters.full_attention.rope_theta", default_theta);
  const double partial = c.Positive("partial_rotary_factor|rope_parameters.partial_rotary_factor", 1);
  if (partial != 1 && r.rope.dim == r.head_dim) c.Unsupported("partial_rotary_factor", Number(partial));
  for (const std::string p : {"rope_scaling.", "rope_parameters.", "rope_parameters.full_attention."}) {
    const std::string type = c.String(p + "rope_type|" + p + "type", "");
    if (!type.empty()) return ReadHfScaling(c, p, r, type);
    if (c.Has(p + "factor")) return c.Fail("required key " + p + "rope_type is missing");
  }
}

bool ReadHfLayerTypes(Config& c, Recipe& r, int32_t window) {
  const std::vector<std::string> types = c.Strings("layer_types");
  if (!c.ok() || types.empty()) return !c.ok();
  if (types.size() != r.layers.size()) {
    c.Fail("layer_types lists " + std::to_string(types.size()) + " layers of " + std::to_string(r.layers.size()));
    return true;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sliding_attention" && types[i] != "full_attention") c.Unsupported("layer_types", Quote(types[i]));
    r.layers[i].window = types[i] == "sliding_attention" ? window : 0;
  }
  return true;
}

void ReadGgufRope(Config& c, Recipe& r, bool yarn_truncate) {
  r.rope.theta = c.Positive("rope.freq_base", 10000);
  RopeScaling& s = r.rope.scaling;
  // Without a type a factor is linear's, as llama.cpp has it.
  const bool factor = c.Has("rope.scaling.factor") || c.Has("rope.scale_linear");
  const std::string type = c.String("rope.scaling.type", factor ? "linear" : "none");
  if (type == "linear") {
    s.factor = c.Positive("rope.scaling.factor|rope.scale_linear");
    if (s.factor != 1) s.kind = RopeScalingKind::kLinear;
  } else if (type == "yarn") {
    s.kind = RopeScalingKind::kYarn;
    s.factor = c.Positive("rope.scaling.factor");
    s.original_context = c.Positive("rope.scaling.original_context_length", r.context);
    s.beta_fast = c.Positive("rope.scaling.yarn_beta_fast", 32);
    s.beta_slow = c.Positive("rope.scaling.yarn_beta_slow", 1);
    s.truncate = yarn_truncate;
    s.attention_factor = YarnMagnitude(s.factor) * c.Positive("rope.scaling.attn_factor|rope.scaling.yarn_attn_factor", 1);
    if (c.Positive("rope.scaling.yarn_ext_factor", 1) != 1) c.Unsupported("rope.scaling.yarn_ext_factor", "other than 1");
  } else if (type != "none") {
    c.Unsupported("rope.scaling.type", Quote(type));
  }
}

void ReadGeneration(Config& c, Recipe& r) {
  const Metadata& m = c.inventory().metadata;
  auto ids = [&](std::initializer_list<std::string_view> keys) {  // of the first key present: one id or a list
    std::vector<int64_t> found;
    std::string used;
    for (std::string_view key : keys) {
      const MetaValue* value = m.Find(key);
      if (value == nullptr && !m.IsOther(key)) continue;
      used = key;
      if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
        found = std::get<std::vector<int64_t>>(*value);
      } else if (auto id = m.GetInt(key); !id.ok()) {
        c.Fail(std::string(key) + " is not a token id");
      } else if (id->has_value()) {
        found = {**id};
      }
      break;
    }
    std::erase_if(found, [](int64_t id) { return id == -1 || id == int64_t{UINT32_MAX}; });  // none, GGUF's as u32
    for (const int64_t id : found) {
      if (id < 0 || id >= r.vocab) {
        c.Fail(used + " names token " + std::to_string(id) + " of a vocabulary of " + std::to_string(r.vocab));
      }
    }
    return c.ok() ? std::vector<int32_t>(found.begin(), found.end()) : std::vector<int32_t>();
  };
  if (c.inventory().format == FileFormat::kHuggingFace) {
    r.eos_tokens = ids({"generation_config.eos_token_id", "eos_token_id"});
  } else {
    r.eos_tokens = ids({"tokenizer.ggml.eos_token_id"});
    for (int32_t id : ids({"tokenizer.ggml.eot_token_id"})) r.eos_tokens.push_back(id);
  }
  std::sort(r.eos_tokens.begin(), r.eos_tokens.end());
  r.eos_tokens.erase(std::unique(r.eos_tokens.begin(), r.eos_tokens.end()), r.eos_tokens.end());
}

}  // namespace tally
