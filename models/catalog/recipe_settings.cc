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
  int32_t* (*field)(Recipe&);  // null: what layers differ in
  int64_t min, max;
};

#define TALLY_FIELD(path) [](Recipe& r) { return &r.path; }

constexpr Number kNumbers[] = {
    {"n_layers", TALLY_FIELD(n_layers), 1, kMaxLayers},
    {"d_model", TALLY_FIELD(d_model), 1, kMaxWidth},
    {"n_heads", TALLY_FIELD(all.attention.n_heads), 1, kMaxHeads},
    {"n_kv_heads", TALLY_FIELD(all.attention.n_kv_heads), 1, kMaxHeads},
    {"head_dim", TALLY_FIELD(all.attention.head_dim), 1, kMaxHeads},
    {"d_ff", TALLY_FIELD(all.ffn.width), 1, kMaxWidth},
    {"vocab", TALLY_FIELD(vocab), 1, kMaxVocab},
    {"context", TALLY_FIELD(context), 1, kMaxContext},
    {"window", nullptr, 0, kMaxContext},
    {"n_experts", TALLY_FIELD(all.experts.n_experts), 0, kMaxExperts},
    {"top_k", TALLY_FIELD(all.experts.top_k), 1, kMaxExperts},
    {"d_expert", TALLY_FIELD(all.experts.width), 1, kMaxWidth},
    {"d_shared", TALLY_FIELD(all.experts.shared_width), 0, kMaxWidth},
    {"dense_layers", nullptr, 0, kMaxLayers},
    {"mtp_layers", TALLY_FIELD(mtp_layers), 0, kMaxLayers},
};

struct Switch {
  std::string_view key;
  bool* (*field)(Recipe&);
  bool* (*more[2])(Recipe&) = {};
};

constexpr Switch kSwitches[] = {
    {"qkv_bias", TALLY_FIELD(all.attention.q_bias), {TALLY_FIELD(all.attention.k_bias), TALLY_FIELD(all.attention.v_bias)}},
    {"q_bias", TALLY_FIELD(all.attention.q_bias)},
    {"k_bias", TALLY_FIELD(all.attention.k_bias)},
    {"v_bias", TALLY_FIELD(all.attention.v_bias)},
    {"o_bias", TALLY_FIELD(all.attention.o_bias)},
    {"ffn_bias", TALLY_FIELD(all.ffn.bias)},
    {"expert_bias", TALLY_FIELD(all.experts.bias)},
    {"router_bias", TALLY_FIELD(all.experts.router_bias)},
    {"gated", TALLY_FIELD(all.network.gated)},
    {"tied", TALLY_FIELD(tied_head)},
    {"sinks", TALLY_FIELD(all.attention.sinks)},
    {"learned_positions", TALLY_FIELD(learned_positions)},
    {"post_norms", TALLY_FIELD(all.residual.post_norms)},
    {"shared_gate", TALLY_FIELD(all.experts.shared_gate)},
};

#undef TALLY_FIELD

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
    if (!AnyLayer(r_, &LayerRecipe::dense) && (Named("d_ff") || r_.all.ffn.bias != old_.all.ffn.bias)) {
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
      *number.field(r_) = static_cast<int32_t>(n);
    else
      (number.key == "window" ? window_ : dense_layers_) = static_cast<int32_t>(n);
    return {};
  }

  Status SetSwitch(const Switch& choice, std::string_view value) {
    const bool yes = IndexOf(kYes, value) >= 0;
    if (!yes && IndexOf(kNo, value) < 0) return BadValue(choice.key, value, "true or false");
    *choice.field(r_) = yes;
    for (const auto more : choice.more) {
      if (more != nullptr) *more(r_) = yes;
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
      r_.all.attention.qk_norm = static_cast<QkNormKind>(qk_norm);
    }
    return {};
  }

  Status FollowHeads() {
    if (old_.embedding_scale == UsualEmbeddingScale(old_.d_model)) r_.embedding_scale = UsualEmbeddingScale(r_.d_model);
    if (old_.all.attention.n_kv_heads == old_.all.attention.n_heads && !Named("n_kv_heads"))
      r_.all.attention.n_kv_heads = r_.all.attention.n_heads;
    if (old_.all.latent.kv_rank > 0) {
      if (Named("head_dim")) return BadInput("setting head_dim: the heads of latent attention do not have one width");
      if (r_.all.attention.n_kv_heads != r_.all.attention.n_heads)
        return BadInput("setting n_kv_heads: latent attention has as many as it has heads");
      return {};
    }
    const bool divided = int64_t{old_.all.attention.head_dim} * old_.all.attention.n_heads == old_.d_model;
    if (divided && !Named("head_dim")) {
      if (r_.d_model % r_.all.attention.n_heads != 0) {
        return BadInput("width " + Text(r_.d_model) + " cannot be divided among " + Text(r_.all.attention.n_heads) +
                        " heads; set d_model, n_heads or head_dim");
      }
      r_.all.attention.head_dim = r_.d_model / r_.all.attention.n_heads;
    }
    if (r_.all.attention.head_dim == old_.all.attention.head_dim) return {};
    if (r_.all.attention.head_dim > kMaxHeads)
      return BadInput("heads of " + Text(r_.all.attention.head_dim) + " are wider than " + Text(kMaxHeads));
    if (old_.all.attention.head_dim > 0) {
      for (Rope* rope : {&r_.rope, &r_.local_rope}) {
        rope->dim = static_cast<int32_t>(int64_t{rope->dim} * r_.all.attention.head_dim / old_.all.attention.head_dim);
      }
      if (old_.all.attention.scale == UsualScale(old_.all.attention.head_dim))
        r_.all.attention.scale = UsualScale(r_.all.attention.head_dim);
    }
    return {};
  }

  Status FollowExperts() {
    if (r_.all.experts.n_experts > 0) return {};
    for (const std::string_view key : {"top_k", "d_expert", "d_shared", "dense_layers"}) {
      if (Named(key)) return BadInput("setting " + std::string(key) + ": the model has no experts; set n_experts too");
    }
    if (r_.all.experts.router_bias != old_.all.experts.router_bias || r_.all.experts.bias != old_.all.experts.bias ||
        r_.all.experts.shared_gate != old_.all.experts.shared_gate) {
      return BadInput("router_bias, expert_bias and shared_gate are for models with experts; set n_experts too");
    }
    r_.all.experts.top_k = r_.all.experts.width = r_.all.experts.shared_width = 0;
    r_.all.experts.router_bias = r_.all.experts.bias = r_.all.experts.shared_gate = false;
    return {};
  }

  Status FollowLayers() {
    const std::vector<LayerRecipe>& old = old_.layers;
    if (old.empty()) return InternalError("a recipe without layers");
    if (r_.all.experts.n_experts > 0 && dense_layers_ >= r_.n_layers) {
      return BadInput("of " + Text(r_.n_layers) + " layers, " + Text(dense_layers_) + " dense ones leave none for the experts");
    }
    const size_t first = static_cast<size_t>(LeadingDense(old_));
    const size_t kinds = Period(old, 0, [](LayerRecipe a, const LayerRecipe& b) {
      a.feed_forward = b.feed_forward;
      return a == b;
    });
    const size_t sparse =
        Period(old, first, [](const LayerRecipe& a, const LayerRecipe& b) { return a.feed_forward == b.feed_forward; });
    const bool windowed = std::any_of(old.begin(), old.end(), [](const LayerRecipe& l) { return l.attention.window > 0; });
    const size_t dense = static_cast<size_t>(dense_layers_);
    r_.layers.resize(static_cast<size_t>(r_.n_layers));
    for (size_t i = 0; i < r_.layers.size(); ++i) {
      LayerRecipe& layer = r_.layers[i];
      layer = LayerOf(r_.all, i < old.size() ? old[i] : old[i % kinds], old_.all);
      if (Named("window") && (!windowed || layer.attention.window > 0)) layer.attention.window = window_;
      if (layer.feed_forward.empty() || (layer.both() && r_.all.experts.n_experts > 0)) continue;
      const bool experts = old_.all.experts.n_experts == 0 || old[first + (i - dense) % sparse].sparse();
      layer.feed_forward = r_.all.experts.n_experts > 0 && i >= dense && experts ? FeedForward::kSparse : FeedForward::kDense;
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
