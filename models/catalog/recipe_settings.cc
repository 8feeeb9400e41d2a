// SPDX-License-Identifier: Apache-2.0
#include "models/catalog/recipe_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>

#include "engine/base/format.h"
#include "engine/recipe/check_recipe.h"
#include "models/config.h"

namespace tally {
namespace {

struct Number {
  std::string_view key;
  int32_t Recipe::*field;  // null: not one field, but one of each layer
  int64_t min, max;
};

constexpr Number kNumbers[] = {
    {"n_layers", &Recipe::n_layers, 1, kMaxLayers},
    {"d_model", &Recipe::d_model, 1, kMaxWidth},
    {"n_heads", &Recipe::n_heads, 1, kMaxHeads},
    {"n_kv_heads", &Recipe::n_kv_heads, 1, kMaxHeads},
    {"head_dim", &Recipe::head_dim, 1, kMaxHeads},
    {"d_ff", &Recipe::d_ff, 1, kMaxWidth},
    {"vocab", &Recipe::vocab, 1, kMaxVocab},
    {"context", &Recipe::context, 1, kMaxContext},
    {"window", nullptr, 0, kMaxContext},
    {"n_experts", &Recipe::n_experts, 0, kMaxExperts},
    {"top_k", &Recipe::top_k, 1, kMaxExperts},
    {"d_expert", &Recipe::d_expert, 1, kMaxWidth},
    {"d_shared", &Recipe::d_shared, 0, kMaxWidth},
    {"dense_layers", nullptr, 0, kMaxLayers},
    {"mtp_layers", &Recipe::mtp_layers, 0, kMaxLayers},
};

struct Switch {
  std::string_view key;
  bool Recipe::*fields[3];
};

constexpr Switch kSwitches[] = {
    {"qkv_bias", {&Recipe::q_bias, &Recipe::k_bias, &Recipe::v_bias}},
    {"q_bias", {&Recipe::q_bias}},
    {"k_bias", {&Recipe::k_bias}},
    {"v_bias", {&Recipe::v_bias}},
    {"o_bias", {&Recipe::o_bias}},
    {"ffn_bias", {&Recipe::ffn_bias}},
    {"expert_bias", {&Recipe::expert_bias}},
    {"router_bias", {&Recipe::router_bias}},
    {"gated", {&Recipe::gated_ffn}},
    {"tied", {&Recipe::tied_head}},
    {"sinks", {&Recipe::sinks}},
    {"learned_positions", {&Recipe::learned_positions}},
    {"post_norms", {&Recipe::post_norms}},
    {"shared_gate", {&Recipe::shared_gate}},
};

constexpr std::string_view kQkNorms[] = {"none", "head", "whole"};  // in the order of QkNormKind
constexpr std::string_view kYes[] = {"true", "yes", "on", "1"}, kNo[] = {"false", "no", "off", "0"};

template <class Names>
int IndexOf(const Names& names, std::string_view name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? -1 : static_cast<int>(found - std::begin(names));
}

Status BadValue(std::string_view key, std::string_view value, const std::string& expected) {
  return BadInput("setting " + std::string(key) + ": expected " + expected + ", not " + Quote(value));
}

std::string Text(int64_t n) { return std::to_string(n); }

int32_t LeadingDense(const Recipe& r) {
  const auto sparse = std::ranges::find_if(r.layers, &LayerRecipe::sparse);
  return sparse == r.layers.end() ? 0 : static_cast<int32_t>(sparse - r.layers.begin());
}

// The smallest period of layers[first..]: layer i is like layer i - period. Without repetition, the number of layers.
template <class Same>
size_t Period(const std::vector<LayerRecipe>& layers, size_t first, Same same) {
  const size_t n = layers.size() - first;
  for (size_t period = 1; period < n; ++period) {
    bool repeats = true;
    for (size_t i = period; repeats && i < n; ++i) repeats = same(layers[first + i], layers[first + i - period]);
    if (repeats) return period;
  }
  return std::max<size_t>(n, 1);
}

float UsualScale(int32_t head_dim) { return static_cast<float>(1.0 / std::sqrt(static_cast<double>(head_dim))); }

float UsualEmbeddingScale(int32_t d_model) { return d_model > 1 ? std::sqrt(static_cast<float>(d_model)) : 0; }

// One application of settings: the recipe before and after, and the keys that were named.
class Change {
 public:
  explicit Change(Recipe recipe) : old_(recipe), r_(std::move(recipe)), dense_layers_(LeadingDense(old_)) {}

  Status Set(std::string_view setting) {
    const size_t equals = setting.find('=');
    const std::string_view key = setting.substr(0, equals);
    const bool bare = equals == std::string_view::npos;
    const std::string_view value = bare ? std::string_view() : setting.substr(equals + 1);
    for (const Number& number : kNumbers) {
      if (number.key == key) return SetNumber(number, value);
    }
    for (const Switch& choice : kSwitches) {
      if (choice.key == key) return SetSwitch(choice, bare ? "true" : value);
    }
    if (key == "norm" || key == "qk_norm") return SetChoice(key, value);
    return BadInput("there is no setting " + Quote(key) + "; the settings: " + RecipeKeys());
  }

  Result<Recipe> Finish() {
    TALLY_RETURN_IF_ERROR(FollowHeads());
    TALLY_RETURN_IF_ERROR(FollowExperts());
    TALLY_RETURN_IF_ERROR(FollowLayers());
    if (!AnyLayer(r_, &LayerRecipe::dense) && (Named("d_ff") || r_.ffn_bias != old_.ffn_bias)) {
      return BadInput("d_ff and ffn_bias are for dense layers, and there are none; set d_expert, expert_bias or dense_layers");
    }
    TALLY_RETURN_IF_ERROR(CheckRecipe(r_));
    return std::move(r_);
  }

 private:
  bool Named(std::string_view key) const { return named_.count(key) > 0; }

  Status SetNumber(const Number& number, std::string_view value) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
    if (error != std::errc() || end != value.data() + value.size() || n < number.min || n > number.max) {
      return BadValue(number.key, value, "a whole number from " + Text(number.min) + " to " + Text(number.max));
    }
    named_.insert(number.key);
    if (number.field != nullptr)
      r_.*number.field = static_cast<int32_t>(n);
    else
      (number.key == "window" ? window_ : dense_layers_) = static_cast<int32_t>(n);
    return {};
  }

  Status SetSwitch(const Switch& choice, std::string_view value) {
    const bool yes = IndexOf(kYes, value) >= 0;
    if (!yes && IndexOf(kNo, value) < 0) return BadValue(choice.key, value, "true or false");
    for (bool Recipe::*field : choice.fields) {
      if (field != nullptr) r_.*field = yes;
    }
    return {};
  }

  Status SetChoice(std::string_view key, std::string_view value) {
    const int norm = IndexOf(kNormKindNames, value), qk_norm = IndexOf(kQkNorms, value);
    if (key == "norm") {
      if (norm < 0) return BadValue(key, value, "rms or layer");
      r_.norm = static_cast<NormKind>(norm);
    } else {
      if (qk_norm < 0) return BadValue(key, value, "none, head or whole");
      r_.qk_norm = static_cast<QkNormKind>(qk_norm);
    }
    return {};
  }

  Status FollowHeads() {
    if (old_.embedding_scale == UsualEmbeddingScale(old_.d_model)) r_.embedding_scale = UsualEmbeddingScale(r_.d_model);
    if (old_.n_kv_heads == old_.n_heads && !Named("n_kv_heads")) r_.n_kv_heads = r_.n_heads;
    if (old_.latent.kv_rank > 0) {
      if (Named("head_dim")) return BadInput("setting head_dim: the heads of latent attention do not have one width");
      if (r_.n_kv_heads != r_.n_heads) return BadInput("setting n_kv_heads: latent attention has as many as it has heads");
      return {};
    }
    const bool divided = int64_t{old_.head_dim} * old_.n_heads == old_.d_model;
    if (divided && !Named("head_dim")) {
      if (r_.d_model % r_.n_heads != 0) {
        return BadInput("width " + Text(r_.d_model) + " cannot be divided among " + Text(r_.n_heads) +
                        " heads; set d_model, n_heads or head_dim");
      }
      r_.head_dim = r_.d_model / r_.n_heads;
    }
    if (r_.head_dim == old_.head_dim) return {};
    if (r_.head_dim > kMaxHeads) return BadInput("heads of " + Text(r_.head_dim) + " are wider than " + Text(kMaxHeads));
    if (old_.head_dim > 0) {
      for (Rope* rope : {&r_.rope, &r_.local_rope}) {
        rope->dim = static_cast<int32_t>(int64_t{rope->dim} * r_.head_dim / old_.head_dim);
      }
      if (old_.attention_scale == UsualScale(old_.head_dim)) r_.attention_scale = UsualScale(r_.head_dim);
    }
    return {};
  }

  Status FollowExperts() {
    if (r_.n_experts > 0) return {};
    for (const std::string_view key : {"top_k", "d_expert", "d_shared", "dense_layers"}) {
      if (Named(key)) return BadInput("setting " + std::string(key) + ": the model has no experts; set n_experts too");
    }
    if (r_.router_bias != old_.router_bias || r_.expert_bias != old_.expert_bias || r_.shared_gate != old_.shared_gate) {
      return BadInput("router_bias, expert_bias and shared_gate are for models with experts; set n_experts too");
    }
    r_.top_k = r_.d_expert = r_.d_shared = 0;
    r_.router_bias = r_.expert_bias = r_.shared_gate = false;
    return {};
  }

  Status FollowLayers() {
    const std::vector<LayerRecipe>& old = old_.layers;
    if (old.empty()) return InternalError("a recipe without layers");
    if (r_.n_experts > 0 && dense_layers_ >= r_.n_layers) {
      return BadInput("of " + Text(r_.n_layers) + " layers, " + Text(dense_layers_) + " dense ones leave none for the experts");
    }
    const size_t first = static_cast<size_t>(LeadingDense(old_));
    const size_t kinds = Period(old, 0, [](LayerRecipe a, const LayerRecipe& b) {
      a.feed_forward = b.feed_forward;
      return a == b;
    });
    const size_t sparse =
        Period(old, first, [](const LayerRecipe& a, const LayerRecipe& b) { return a.feed_forward == b.feed_forward; });
    const bool windowed = std::any_of(old.begin(), old.end(), [](const LayerRecipe& l) { return l.window > 0; });
    const size_t dense = static_cast<size_t>(dense_layers_);
    r_.layers.resize(static_cast<size_t>(r_.n_layers));
    for (size_t i = 0; i < r_.layers.size(); ++i) {
      LayerRecipe& layer = r_.layers[i];
      layer = i < old.size() ? old[i] : old[i % kinds];
      if (Named("window") && (!windowed || layer.window > 0)) layer.window = window_;
      if (layer.attention_scale == old_.attention_scale) layer.attention_scale = r_.attention_scale;
      if (layer.feed_forward.empty() || (layer.both() && r_.n_experts > 0)) continue;
      const bool experts = old_.n_experts == 0 || old[first + (i - dense) % sparse].sparse();
      layer.feed_forward = r_.n_experts > 0 && i >= dense && experts ? FeedForward::kSparse : FeedForward::kDense;
    }
    return {};
  }

  const Recipe old_;
  Recipe r_;
  int32_t window_ = 0, dense_layers_;
  std::set<std::string_view> named_;  // numbers
};

}  // namespace

Result<Recipe> ChangeRecipe(Recipe recipe, std::span<const std::string> settings) {
  if (settings.empty()) return recipe;
  Change change(std::move(recipe));
  for (const std::string& setting : settings) TALLY_RETURN_IF_ERROR(change.Set(setting));
  return change.Finish();
}

std::string RecipeKeys() {
  std::string numbers, switches;
  for (const Number& n : kNumbers) numbers += (numbers.empty() ? "" : ", ") + std::string(n.key);
  for (const Switch& s : kSwitches) switches += (switches.empty() ? "" : ", ") + std::string(s.key);
  return numbers + " (whole numbers); " + switches + " (true or false); norm (rms or layer); qk_norm (none, head or whole)";
}

}  // namespace tally
