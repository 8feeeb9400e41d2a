// SPDX-License-Identifier: Apache-2.0
// Defaults and layouts are those of transformers' configuration_*.py and modeling_*.py, and of llama.cpp's keys.
#include "models/readings.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/base/format.h"
#include "engine/recipe/rope_freqs.h"
#include "models/binding.h"

namespace tally {

namespace {

// Rows of a stored matrix, which determine a hyper-parameter.
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

}  // namespace

int32_t GgufVocabulary(Config& c) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const std::string embedding = GgufName(Role::kTokenEmbedding, -1);
  const int32_t rows = StoredRows(c, embedding, kMaxVocab);
  const std::string has = ", but " + embedding + " has " + std::to_string(rows) + " rows";
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

void ReadTying(Config& c, bool default_tied, Recipe& recipe) {
  const auto stored = [&](Role role) {
    return IsStored(c.inventory(), TensorName(c.inventory(), c.own_names, c.tensor_prefix, role));
  };
  bool tied = (default_tied || c.gguf()) && !(stored(Role::kHead) && stored(Role::kTokenEmbedding));
  if (!c.gguf()) {
    const Result<std::optional<bool>> of_all = c.inventory().metadata.GetBool("tie_word_embeddings");
    if (!of_all.ok()) return c.Fail(of_all.status().message());
    tied = of_all->has_value() ? **of_all : c.Bool("tie_word_embeddings", tied);
  }
  recipe.tied_head = tied;
}

int32_t EvenHeadDim(Config& c, const Recipe& r) {
  if (c.ok() && r.d_model % r.all.attention.n_heads != 0) {
    c.Fail("width " + std::to_string(r.d_model) + " cannot be divided among " + std::to_string(r.all.attention.n_heads) +
           " heads");
  }
  return std::max(1, r.d_model / r.all.attention.n_heads);
}

void SetAttentionScale(Recipe& r, double scale) {
  r.all.attention.scale = static_cast<float>(scale);
  for (LayerRecipe& layer : r.layers) layer.attention.scale = r.all.attention.scale;
}

double UsualAttentionScale(const Recipe& r) { return 1.0 / std::sqrt(static_cast<double>(r.all.attention.head_dim)); }

void ReadFeedForwardWidth(Config& c, Recipe& r) {
  if (!c.gguf()) {
    r.all.ffn.width = c.Int("intermediate_size", 1, kMaxWidth);
    return;
  }
  const std::vector<int32_t> of = ReadOfLayers(c, r, "feed_forward_length", kMaxWidth);
  r.all.ffn.width = of.front();
  for (size_t i = 0; i < r.layers.size() && c.ok(); ++i) {
    if (of[i] == 0) c.Fail("feed_forward_length has 0 for layer " + std::to_string(i));
    r.layers[i].ffn.width = of[i] == r.all.ffn.width ? 0 : of[i];
  }
}

void ExpectSilu(Config& c) {
  if (c.gguf()) return;
  const std::string act = c.String("hidden_act", "silu");
  if (act != "silu" && act != "swish") c.Unsupported("hidden_act", Quote(act));
}

ActivationKind ReadGelu(Config& c, std::string_view keys, std::string_view otherwise) {
  const std::string name = c.gguf() ? std::string(otherwise) : c.String(keys, otherwise);
  if (name == "gelu") return ActivationKind::kGeluErf;
  if (name != "gelu_new" && name != "gelu_pytorch_tanh" && name != "gelu_fast")
    c.Unsupported(keys.substr(0, keys.find('|')), Quote(name));
  return ActivationKind::kGeluTanh;
}

void SetBiases(Recipe& r, bool qkv, bool o) {
  r.all.attention.q_bias = r.all.attention.k_bias = r.all.attention.v_bias = qkv;
  r.all.attention.o_bias = o;
}

void SetSections(Config& c, const std::vector<int64_t>& sections, bool interleaved, Recipe& r) {
  if (!c.ok() || sections.size() < 3) return;
  const int64_t pairs = r.rope.dim / 2;
  std::array<int64_t, 3> own = {};
  for (size_t i = 0; i < own.size(); ++i) {
    if (sections[i] < 0 || sections[i] > kMaxWidth) return c.Fail("a section of M-RoPE is " + std::to_string(sections[i]));
    own[i] = sections[i];
  }
  if (interleaved) {  // every third pair may turn by the height, every third by the width; the others turn by the time
    own[1] = std::min(own[1], (pairs + 1) / 3);
    own[2] = std::min(own[2], pairs / 3);
    own[0] = pairs - own[1] - own[2];
  }
  if ((own[1] == 0 && own[2] == 0) || own[0] + own[1] + own[2] != pairs) return;
  for (size_t i = 0; i < own.size(); ++i) r.rope.sections[i] = static_cast<int32_t>(own[i]);
  r.rope.sections_interleaved = interleaved;
}

std::vector<int32_t> ReadOfLayers(Config& c, const Recipe& r, std::string_view keys, int64_t max, int32_t otherwise) {
  std::vector<int32_t> of(static_cast<size_t>(c.ok() ? r.n_layers : 1), 1);
  const MetaValue* const value = c.Find(keys);
  const auto* const list = value != nullptr ? std::get_if<std::vector<int64_t>>(value) : nullptr;
  if (!c.ok() || list == nullptr) {
    std::ranges::fill(of, otherwise >= 0 ? c.Int(keys, 1, max, otherwise) : c.Int(keys, 1, max));
    return of;
  }
  const std::string key(keys.substr(0, keys.find('|')));
  if (list->size() != of.size()) {
    c.Fail(key + " lists " + std::to_string(list->size()) + " layers of " + std::to_string(of.size()));
    return of;
  }
  for (size_t i = 0; i < of.size(); ++i) {
    const int64_t n = (*list)[i];
    if (n < 0 || n > max)
      c.Fail(key + " has " + std::to_string(n) + " for layer " + std::to_string(i) + "; expected 0 to " + std::to_string(max));
    of[i] = c.ok() ? static_cast<int32_t>(n) : 1;
  }
  return of;
}

void SetSparse(LayerRecipe& layer, bool sparse) { layer.feed_forward = sparse ? FeedForward::kSparse : FeedForward::kDense; }

void ReadExperts(Config& c, Recipe& r, std::string_view count_keys, std::string_view width_keys) {
  r.all.experts.n_experts = c.Int(c.Pick("expert_count", count_keys), 1, kMaxExperts);
  r.all.experts.top_k =
      c.Int(c.Pick("expert_used_count", "num_experts_per_tok|experts_per_token|moe_k|moe_topk|num_experts_per_token"), 1,
            r.all.experts.n_experts);
  r.all.experts.width = c.Int(c.Pick("expert_feed_forward_length|feed_forward_length", width_keys), 1, kMaxWidth);
}

void ReadUngatedExperts(Config& c, Recipe& r) {
  if (!c.gguf() || !AnyLayerHas(c.inventory(), r, Role::kExpertUp)) return;
  r.all.experts.ungated = !AnyLayerHas(c.inventory(), r, Role::kExpertGate);
}

double ReadGgufFactor(Config& c, std::string_view key) { return c.Double(key, 1) == 0 ? 1 : c.Positive(key, 1); }

RoutingRule SoftmaxRule(Config& c, bool normed_by_default) {
  const bool normed = c.gguf() ? normed_by_default : c.Bool("norm_topk_prob", normed_by_default);
  return normed ? RoutingRule::kSoftmaxThenTopKRenormed : RoutingRule::kSoftmaxThenTopK;
}

void ReadQwenWindows(Config& c, Recipe& r) {
  if (c.gguf() || !c.Bool("use_sliding_window", false) || c.IsNull("sliding_window")) return;
  const int32_t window = c.Int("sliding_window", 1, kMaxContext, 4096), from = c.Int("max_window_layers", 0, kMaxLayers, 28);
  if (ReadHfLayerTypes(c, r, window)) return;
  for (size_t i = static_cast<size_t>(from); i < r.layers.size(); ++i) r.layers[i].attention.window = window;
}

// Every decoder_sparse_step-th, without those in mlp_only_layers. In GGUF files all.
void ReadQwenSparseLayers(Config& c, Recipe& r) {
  const int32_t step = c.gguf() ? 1 : c.Int("decoder_sparse_step", 1, kMaxLayers, 1);
  const std::vector<int64_t> dense = c.gguf() ? std::vector<int64_t>() : c.Ints("mlp_only_layers");
  for (int32_t i = 0; i < static_cast<int32_t>(r.layers.size()); ++i) {
    const bool listed = std::ranges::find(dense, i) != dense.end();
    SetSparse(r.layers[i], !listed && (i + 1) % step == 0);
  }
}

bool ReadMlpLayerTypes(Config& c, Recipe& r) {
  const std::vector<std::string> types = c.Strings("mlp_layer_types");
  if (!c.ok() || types.empty()) return !c.ok();
  if (types.size() != r.layers.size()) {
    c.Fail("mlp_layer_types lists " + std::to_string(types.size()) + " layers of " + std::to_string(r.layers.size()));
    return true;
  }
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "sparse" && types[i] != "dense") c.Unsupported("mlp_layer_types", Quote(types[i]));
    SetSparse(r.layers[i], types[i] == "sparse");
  }
  return true;
}

void ReadSigmoidRouting(Config& c, Recipe& r, bool normed, double scale, std::string_view scale_key) {
  const bool divided = c.Bool(c.Pick("expert_weights_norm", "norm_topk_prob|moe_renormalize"), !c.gguf() && normed);
  r.all.experts.routing = divided ? RoutingRule::kSigmoidThenTopKRenormed : RoutingRule::kSigmoidThenTopK;
  r.all.experts.router_bias = !c.gguf() || AnyLayerHas(c.inventory(), r, "blk.#.exp_probs_b.bias");
  r.all.experts.route_scale =
      static_cast<float>(c.gguf() ? ReadGgufFactor(c, "expert_weights_scale") : c.Positive(scale_key, scale));
  r.all.experts.groups = c.Int(c.Pick("expert_group_count", "n_group|num_expert_group"), 1, kMaxExperts, 1);
  r.all.experts.kept_groups = c.Int(c.Pick("expert_group_used_count", "topk_group"), 1, r.all.experts.groups, 1);
  r.all.experts.group_best = r.all.experts.groups > 1 ? 2 : 1;
  constexpr int32_t kSigmoid = 2;
  if (c.gguf() && c.Int("expert_gating_func", 0, 255, kSigmoid) != kSigmoid) c.Unsupported("expert_gating_func", "other than 2");
}

void SetSharedWidth(Config& c, Recipe& r, int64_t width, std::string_view key) {
  if (width > kMaxWidth) c.Fail(std::string(key) + " make a width of " + std::to_string(width));
  r.all.experts.shared_width = c.ok() ? static_cast<int32_t>(width) : 0;
}

void SetSparseFrom(Recipe& r, int32_t dense) {
  for (int32_t i = dense; i < static_cast<int32_t>(r.layers.size()); ++i) SetSparse(r.layers[static_cast<size_t>(i)], true);
}

void ReadSharedExperts(Config& c, ModelSpec& spec, int32_t usual_dense) {
  Recipe& r = spec.recipe;
  ReadExperts(c, r, "n_routed_experts|num_local_experts|num_experts", "moe_intermediate_size");
  const int64_t shared =
      int64_t{c.Int(c.Pick("expert_shared_count", "n_shared_experts|num_shared_experts"), 0, kMaxExperts)} * r.all.experts.width;
  SetSharedWidth(c, r, shared, "n_shared_experts");
  const std::string_view dense_key = c.Pick("leading_dense_block_count", "first_k_dense_replace");
  const int32_t dense = usual_dense >= 0 ? c.Int(dense_key, 0, kMaxLayers, usual_dense) : c.Int(dense_key, 0, kMaxLayers);
  const int32_t step = c.gguf() ? 1 : c.Int("moe_layer_freq", 1, kMaxLayers, 1);
  for (int32_t i = dense; i < static_cast<int32_t>(r.layers.size()); ++i) SetSparse(r.layers[i], i % step == 0);
  if (!c.gguf()) ReadHfPredictionLayers(c, spec);
}

std::string PredictionLayerName(const Config& c, int32_t layer) {
  return c.gguf() ? "blk." + std::to_string(layer) + "." : ExpandName("~model.layers.#.", layer, c.tensor_prefix);
}

void ReadHfPredictionLayers(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  r.mtp_layers = c.Int("num_nextn_predict_layers", 0, kMaxLayers, 0);
  for (int32_t i = r.n_layers; c.ok() && i < r.n_layers + r.mtp_layers; ++i) AddNotRun(c, spec, PredictionLayerName(c, i));
}

void ReadGgufPredictionLayers(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  const int32_t blocks = r.n_layers, told = c.Int("nextn_predict_layers", 0, std::max(0, blocks), 0);
  const auto has = [&](int32_t block, std::string_view part) {
    const std::string begin = PredictionLayerName(c, block) + std::string(part);
    return std::ranges::any_of(c.inventory().tensors, [&](const StoredTensor& t) { return t.name.starts_with(begin); });
  };
  // Of the last blocks that the key counts, those with tensors of an ordinary layer alone are one.
  while (c.ok() && r.n_layers > 1 && r.n_layers > blocks - told) {
    const int32_t last = r.n_layers - 1;
    if (has(last, "") && !has(last, "nextn.")) break;
    r.n_layers = last;
  }
  r.layers.resize(static_cast<size_t>(r.n_layers));
  const bool no_tensors = c.inventory().tensors.empty();
  for (int32_t i = r.n_layers; c.ok() && i < r.n_layers + told; ++i) {
    if (!no_tensors && !has(i, "nextn.")) continue;
    ++r.mtp_layers;
    AddNotRun(c, spec, PredictionLayerName(c, i));
  }
}

void FindPrefix(Config& c, std::string_view prefix) {
  const auto has = [&](const StoredTensor& t) { return t.name.starts_with(prefix); };
  if (!c.gguf() && std::ranges::any_of(c.inventory().tensors, has)) c.tensor_prefix = prefix;
}

void AddNotRun(Config& c, ModelSpec& spec, std::string_view prefix) {
  uint64_t parameters = 0, bytes = 0;
  for (const StoredTensor& t : c.inventory().tensors) {
    if (!t.name.starts_with(prefix)) continue;
    spec.not_run.push_back(t.name);
    parameters += c.inventory().HoldsScales(t) ? 0 : t.elements();
    bytes += t.bytes;
  }
  if (parameters > 0) spec.parts_not_run.push_back({std::string(prefix.substr(0, prefix.size() - 1)), parameters, bytes});
}

void EnterTextModel(Config& c, ModelSpec& spec, std::initializer_list<std::string_view> others) {
  if (c.gguf()) {
    for (const std::string_view part : {"v.", "mm."}) AddNotRun(c, spec, part);
    return;
  }
  const Inventory& i = c.inventory();
  const auto first = i.metadata.values().lower_bound("text_config.");
  const bool several = first != i.metadata.values().end() && first->first.starts_with("text_config.");
  if (several) c.Enter("text_config.");
  if (several && i.tensors.empty()) c.tensor_prefix = std::string(kBody) + "language_model.model.";
  for (const std::string_view part : others) {
    for (const std::string_view within : {"", "model."}) AddNotRun(c, spec, std::string(within) + std::string(part));
  }
  if (i.tensors.empty() && i.metadata.IsOther("audio_config")) spec.parts_not_run.push_back({"audio_config", std::nullopt});
}

namespace {

// `yarn_truncate`: whether this architecture's checkpoints round YaRN's bounds.
void ReadGgufRope(Config& c, Recipe& r, bool yarn_truncate) {
  r.rope.theta = c.Positive("rope.freq_base", 10000);
  RopeScaling& s = r.rope.scaling;
  // Without a type a factor is linear's, as llama.cpp has it.
  const bool factor = c.Has("rope.scaling.factor") || c.Has("rope.scale_linear");
  const std::string type = c.String("rope.scaling.type", factor ? "linear" : "none");
  if (type == "linear") {  // no factor, or 0, is 1, as llama.cpp has it
    constexpr std::string_view kFactor = "rope.scaling.factor|rope.scale_linear";
    s.factor = c.Double(kFactor, 0) == 0 ? 1 : c.Positive(kFactor);
    if (s.factor != 1) s.kind = RopeScalingKind::kLinear;
  } else if (type == "yarn") {
    s.kind = RopeScalingKind::kYarn;
    s.factor = c.Positive("rope.scaling.factor");
    s.original_context = c.Positive("rope.scaling.original_context_length", r.context);
    s.beta_fast = c.Positive("rope.scaling.yarn_beta_fast", 32);
    s.beta_slow = c.Positive("rope.scaling.yarn_beta_slow", 1);
    s.truncate = yarn_truncate;
    // Latent attention: the common factor of both magnitudes goes into the attention scale, as with Hugging Face's mscale_all_dim.
    const double magnitude = r.all.latent.kv_rank > 0 ? 1 : YarnMagnitude(s.factor);
    s.attention_factor = magnitude * c.Positive("rope.scaling.attn_factor|rope.scaling.yarn_attn_factor", 1);
    if (c.Positive("rope.scaling.yarn_ext_factor", 1) != 1) c.Unsupported("rope.scaling.yarn_ext_factor", "other than 1");
  } else if (IsStored(c.inventory(), GgufName(Role::kRopeLongFactors, -1))) {  // longrope, whether or not the type says so
    s.kind = RopeScalingKind::kLongRope;
    s.original_context = c.Positive("rope.scaling.original_context_length", r.context);
    s.attention_factor = c.Positive("rope.scaling.attn_factor", 1);
    r.rope.stored_long_factors = true;
  } else if (type != "none") {
    c.Unsupported("rope.scaling.type", Quote(type));
  }
}

// `otherwise`: Hugging Face's default; 0: none.
int32_t IntOr(Config& c, std::string_view key, int64_t max, int32_t otherwise) {
  return otherwise > 0 && !c.gguf() ? c.Int(key, 1, max, otherwise) : c.Int(key, 1, max);
}

// The first number that is not 0, of those that GGUF has for each layer.
int32_t FirstOf(Config& c, const Recipe& r, std::string_view key, int64_t max, const DecoderDefaults& d, int32_t otherwise = -1) {
  const std::vector<int32_t> of = ReadOfLayers(c, r, key, max, otherwise);
  const auto none = std::ranges::find(of, 0), some = std::ranges::find_if(of, [](int32_t n) { return n > 0; });
  if (some == of.end() || (none != of.end() && !d.gguf_absent_heads)) {
    c.Fail(std::string(key) + " has 0 for layer " + std::to_string(none - of.begin()));
  }
  return c.ok() ? *some : 1;
}

// Heads and rope follow from latent attention, or else from the keys.
void ReadHeads(Config& c, Recipe& r, const DecoderDefaults& d) {
  const std::string_view heads_key = c.Pick("attention.head_count", d.hf_heads);
  r.all.attention.n_heads = c.gguf() ? FirstOf(c, r, heads_key, kMaxHeads, d) : IntOr(c, heads_key, kMaxHeads, d.n_heads);
  const std::string_view kv_key = c.Pick("attention.head_count_kv", "num_key_value_heads"),
                         dim_key = c.Pick("attention.key_length", "head_dim|kv_channels");
  const bool shared = d.n_kv_heads > 0 && !c.gguf() && !c.IsNull(kv_key);  // null: as many as there are heads
  const int32_t usual_kv = shared ? d.n_kv_heads : r.all.attention.n_heads;
  r.all.attention.n_kv_heads = c.gguf() ? FirstOf(c, r, kv_key, kMaxHeads, d, usual_kv) : c.Int(kv_key, 1, kMaxHeads, usual_kv);
  if (r.all.latent.kv_rank > 0) {                          // the latent is shared by all, whatever num_key_value_heads says
    r.all.attention.n_kv_heads = r.all.attention.n_heads;  // before they are compressed
    r.all.attention.head_dim = r.all.latent.nope_dim + r.all.latent.rope_dim;
    r.rope.dim = r.all.latent.rope_dim;
    return;
  }
  const int32_t usual_dim = c.gguf() ? 0 : d.head_dim;
  r.all.attention.head_dim = c.Has(dim_key) || usual_dim > 0 ? c.Int(dim_key, 1, kMaxHeads, usual_dim) : EvenHeadDim(c, r);
  if (c.gguf()) {
    if (c.Int("attention.value_length", 1, kMaxHeads, r.all.attention.head_dim) != r.all.attention.head_dim)
      c.Unsupported("attention.value_length", "other than key_length");
    if (!d.gguf_attention_scale && c.Has("attention.scale")) {
      const double scale = c.Double("attention.scale", 0);  // 0: the usual one, as llama.cpp has it
      if (scale != 0 && std::fabs(scale / UsualAttentionScale(r) - 1) > 1e-6)
        c.Unsupported("attention.scale", "in this architecture");
    }
    if (d.rope) r.rope.dim = c.Int("rope.dimension_count", 1, kMaxHeads, r.all.attention.head_dim);
    return;
  }
  if (!d.rope) return;
  constexpr std::string_view kRotated =
      "rope_scaling.partial_rotary_factor|rope_parameters.partial_rotary_factor|"
      "rope_parameters.full_attention.partial_rotary_factor|rope_percent|rope_percentage|partial_rotary_factor|rotary_pct|rope_"
      "pct";
  const double rotated = d.rotated > 0 ? c.Positive(kRotated, d.rotated) : c.Has(kRotated) ? c.Positive(kRotated) : 1;
  if (d.rotated == 0 && rotated != 1) c.Unsupported("partial_rotary_factor", NumberText(rotated));
  if (rotated > 1) c.Fail("partial_rotary_factor is above 1");
  r.rope.dim = c.ok() ? std::max(1, static_cast<int32_t>(r.all.attention.head_dim * rotated)) : 1;
}

// Sizes that GGUF lists for each layer, if they differ from the recipe's.
void ReadOwnHeads(Config& c, Recipe& r) {
  const auto read = [&](std::string_view key, int32_t Attention::*heads) {
    const int32_t common = r.all.attention.*heads;
    const std::vector<int32_t> of = ReadOfLayers(c, r, key, kMaxHeads, common);
    for (size_t i = 0; i < r.layers.size() && c.ok(); ++i) r.layers[i].attention.*heads = of[i] == common ? 0 : of[i];
  };
  read("attention.head_count", &Attention::n_heads);
  if (r.all.latent.kv_rank == 0) read("attention.head_count_kv", &Attention::n_kv_heads);
}

}  // namespace

void ReadDecoder(Config& c, ModelSpec& spec, const DecoderDefaults& d) {
  Recipe& r = spec.recipe;
  r.n_layers = d.n_layers > 0 && !c.gguf() ? d.n_layers : c.Int(c.Pick("block_count", d.hf_layers), 1, kMaxLayers);
  r.d_model = c.Int(c.Pick("embedding_length", d.hf_width), 1, kMaxWidth);
  if (d.attention) ReadHeads(c, r, d);
  r.context =
      !c.gguf() && d.hf_context.empty() ? d.context : IntOr(c, c.Pick("context_length", d.hf_context), kMaxContext, d.context);
  r.norm_eps = static_cast<float>(c.gguf() ? c.Positive(d.gguf_eps) : c.Positive(d.hf_eps, d.norm_eps));
  r.vocab = c.gguf() ? GgufVocabulary(c) : IntOr(c, "vocab_size", kMaxVocab, d.vocab);
  if (d.rope) {
    if (r.rope.style == RopeStyle::kNone) r.rope.style = RopeStyle::kRotateHalf;
    c.gguf() ? ReadGgufRope(c, r, d.gguf_yarn_truncates) : ReadHfRope(c, r, d);
  }
  const Mixer mixer = r.all.latent.kv_rank > 0 ? Mixer::kLatentAttention : Mixer::kAttention;
  r.layers.resize(static_cast<size_t>(r.n_layers), {.mixers = mixer});
  if (!d.attention) return ReadTying(c, d.tied, r);
  if (c.gguf()) ReadOwnHeads(c, r);
  const double usual = UsualAttentionScale(r);
  SetAttentionScale(r, c.gguf() && d.gguf_attention_scale ? c.Positive("attention.scale", usual) : usual);
  ReadTying(c, d.tied, r);
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
    r.layers[i].attention.window = types[i] == "sliding_attention" ? window : 0;
  }
  return true;
}

void SetWindows(Recipe& r, int32_t window, int32_t period) {
  for (size_t i = 0; i < r.layers.size(); ++i)
    r.layers[i].attention.window = (i + 1) % static_cast<size_t>(period) != 0 ? window : 0;
}

void ReadWindowPattern(Config& c, Recipe& r, std::string_view keys, int32_t window, int32_t usual_period) {
  const std::vector<bool> listed = c.Bools(keys);
  if (listed.empty()) return SetWindows(r, window, c.Int(keys, 1, kMaxLayers, usual_period));
  if (listed.size() != r.layers.size()) {
    return c.Fail(std::string(keys.substr(0, keys.find('|'))) + " lists " + std::to_string(listed.size()) + " layers of " +
                  std::to_string(r.layers.size()));
  }
  for (size_t i = 0; i < r.layers.size(); ++i) r.layers[i].attention.window = listed[i] ? window : 0;
}

void ReadNoRopeLayers(Config& c, Recipe& r) {
  const std::vector<int64_t> listed = c.gguf() ? std::vector<int64_t>() : c.Ints("no_rope_layers");
  if (!listed.empty() && listed.size() != r.layers.size()) {
    return c.Fail("no_rope_layers lists " + std::to_string(listed.size()) + " layers of " + std::to_string(r.layers.size()));
  }
  const size_t interval = c.gguf() ? 4 : static_cast<size_t>(c.Int("no_rope_layer_interval", 1, kMaxLayers, 4));
  for (size_t i = 0; i < r.layers.size(); ++i) {
    if (listed.empty() ? (i + 1) % interval == 0 : listed[i] == 0) r.layers[i].attention.rope = LayerRope::kNone;
  }
}

namespace {

bool IsFactor(std::string_view key) {
  static constexpr std::string_view kFactors[] = {
      "logit_scale",         "logits_scaling", "embedding_scale", "embedding_multiplier", "residual_scale",
      "residual_multiplier", "scale_emb",      "scale_depth",     "attention_multiplier"};
  return std::ranges::find(kFactors, key) != std::end(kFactors);
}

}  // namespace

void ReadMistralDecoder(Config& c, ModelSpec& spec, const DecoderDefaults& defaults, bool required) {
  constexpr std::string_view kTypes = "rope_parameters.rope_type|rope_parameters.type|rope_scaling.rope_type|rope_scaling.type";
  constexpr std::string_view kOriginal =
      "rope_parameters.original_max_position_embeddings|rope_scaling.original_max_position_embeddings";
  constexpr std::string_view kScale = "rope_parameters.llama_4_scaling_beta|rope_scaling.llama_4_scaling_beta";
  if (required && !c.gguf() && !c.Has(kTypes)) c.Fail("rope_parameters is missing");
  const double scale = c.Double(c.Pick("attention.temperature_scale", kScale), 0);
  for (const char* key : {"rope_parameters.max_position_embeddings", "rope_scaling.max_position_embeddings"}) {
    if (!c.gguf() && c.Has(key)) c.Int(key, 1, kMaxContext);
  }
  ReadDecoder(c, spec, defaults);
  if (scale == 0) return;
  Recipe& r = spec.recipe;
  r.all.attention.temperature.scale = static_cast<float>(scale);
  r.all.attention.temperature.offset = 0;
  r.all.attention.temperature.everywhere = true;
  const RopeScaling& s = r.rope.scaling;
  const double yarn = s.kind == RopeScalingKind::kYarn ? s.original_context : r.context;
  const double told = c.gguf() ? c.Double("attention.temperature_length", 0) : c.Positive(kOriginal, yarn);
  r.all.attention.temperature.floor = static_cast<float>(told > 0 ? told : yarn);
}

void RefuseUnreadOptions(Config& c) {
  c.ExpectBool(c.Pick("attention.causal", "is_causal"), true);
  const std::string in = "in this architecture";
  static constexpr std::string_view kGguf[] = {"attention.temperature_scale",
                                               "attention.temperature_length",
                                               "attention.max_alibi_bias",
                                               "attention.clamp_kqv",
                                               "attn_logit_softcapping",
                                               "final_logit_softcapping",
                                               "logit_scale",
                                               "embedding_scale",
                                               "residual_scale",
                                               "ssm.state_size",
                                               "ssm.conv_kernel"};
  static constexpr std::string_view kHf[] = {
      "attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "logits_scaling", "embedding_multiplier",
      "residual_multiplier",    "attention_multiplier",    "scale_emb",   "scale_depth",    "clip_qkv"};
  static constexpr std::string_view kSwitches[] = {"alibi", "use_qk_norm", "qk_layernorm"};
  for (const std::string_view key : c.gguf() ? std::span<const std::string_view>(kGguf) : kHf) {
    if (!c.Unread(key)) continue;
    const double value = c.Double(key, 0);  // 0: off; a factor of 1 changes nothing
    if (value != 0 && !(value == 1 && IsFactor(key))) c.Unsupported(key, in);
  }
  if (c.gguf()) return;
  for (const std::string_view key : kSwitches) {
    if (c.Unread(key) && c.Bool(key, false)) c.Unsupported(key, in);
  }
  if (c.Unread("no_rope_layers") && std::ranges::count(c.Ints("no_rope_layers"), 0) > 0) c.Unsupported("no_rope_layers", in);
  if (!c.Unread("layer_types")) return;
  for (const std::string& type : c.Strings("layer_types")) {
    if (type != "full_attention") c.Unsupported("layer_types", Quote(type) + " " + in);
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
    // A token beyond the vocabulary is never drawn. For GGUF the tokenizer reports it.
    const bool told = c.gguf() && m.Has("tokenizer.ggml.tokens");
    std::erase_if(found, [&](int64_t id) {
      const std::string named = used + " names token " + std::to_string(id) + " of a vocabulary of " + std::to_string(r.vocab);
      if (id < 0) c.Fail(named);
      if (id >= r.vocab && !told) c.Note("its " + named + ", which is ignored");
      return id < 0 || id >= r.vocab;
    });
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
