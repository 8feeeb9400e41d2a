// SPDX-License-Identifier: Apache-2.0
#include "models/made_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>
#include <optional>
#include <string>

#include "models/family.h"
#include "models/readings.h"

namespace tally {
namespace {

DType GgufTypeOf(const TensorBinding& b, uint64_t row, const MadeTypes& types) {
  if (b.vector() || b.role == Role::kRouter || b.role == Role::kPositionEmbedding) return DType::kF32;
  const DType type = FactsOf(b.role).experts ? types.expert_type : types.type;
  if (row % GetDTypeInfo(type).block_size == 0) return type;
  return row % GetDTypeInfo(DType::kQ8_0).block_size == 0 ? DType::kQ8_0 : DType::kF16;
}

void AddTensors(const ModelSpec& spec, const MadeTypes& types, MadeCheckpoint& made) {
  Inventory& inventory = made.inventory;
  for (NeededTensor& needed : NeededTensors(spec)) {
    const TensorBinding& b = spec.bindings[needed.binding];
    StoredTensor& t = inventory.tensors.emplace_back();
    t.name = std::move(needed.name);
    t.shape = std::move(needed.shape);
    t.dtype = inventory.format == FileFormat::kGguf ? GgufTypeOf(b, t.shape.back(), types) : types.type;
    if (needed.part_of) t.dtype = DType::kU8;
    t.bytes = StoredBytes(t.dtype, t.elements()).value_or(0);
    made.made_for.push_back(needed.binding);
  }
  inventory.BuildIndex();
}

// True if the architecture is for models of the other kind. Of two whose names differ by "moe" at the end, one is for models without
// experts, the other for models with them.
bool IsOfOthers(std::string_view architecture, const Family& family, bool experts) {
  const auto with_experts = [](std::string_view shorter, std::string_view longer) {
    return longer.size() > shorter.size() && longer.starts_with(shorter) && longer.ends_with("moe");
  };
  return std::ranges::any_of(family.gguf_architectures, [&](std::string_view other) {
    return experts ? with_experts(architecture, other) : with_experts(other, architecture);
  });
}

// If Falcon has one norm only, it has the name that the feed-forward's has when there are two.
void NameOnlyNorm(Inventory& inventory) {
  constexpr std::string_view kSecond = ".attn_norm_2.";
  for (StoredTensor& t : inventory.tensors) {
    if (const size_t at = t.name.find(kSecond); at != t.name.npos) t.name.replace(at, kSecond.size(), ".attn_norm.");
  }
  inventory.BuildIndex();
}

// For numbers that GGUF stores as f32, or that are computed from such: sets `b` to `a` if they differ by rounding only.
template <class T>
void Round(T a, T& b) {
  if (std::fabs(a - b) <= static_cast<T>(1e-6) * std::fabs(a)) b = a;
}

void RoundRope(const Rope& a, Rope& b) {
  Round(a.theta, b.theta);
  for (double RopeScaling::*field : {&RopeScaling::factor, &RopeScaling::original_context, &RopeScaling::beta_fast,
                                     &RopeScaling::beta_slow, &RopeScaling::attention_factor}) {
    Round(a.scaling.*field, b.scaling.*field);
  }
  // GGUF stores the rows of q and k in the order that its runtime's rope of the architecture wants.
  if (a.style != RopeStyle::kNone && b.style != RopeStyle::kNone) b.style = a.style;
}

void RoundLayer(const LayerRecipe& a, LayerRecipe& b) {
  Round(a.attention.scale, b.attention.scale);
  Round(a.residual.scale, b.residual.scale);
  for (float Xielu::*field : {&Xielu::alpha_n, &Xielu::alpha_p, &Xielu::beta, &Xielu::eps}) {
    Round(a.network.xielu.*field, b.network.xielu.*field);
  }
}

// What differs after reading the keys back; empty: it is the same model.
std::string Difference(Recipe wanted, Recipe read) {
  for (Recipe* r : {&wanted, &read}) {
    for (LayerRecipe& layer : r->layers)
      layer.attention.window = layer.attention.window >= r->context ? 0 : layer.attention.window;  // it hides nothing
  }
  RoundRope(wanted.rope, read.rope);
  RoundRope(wanted.local_rope, read.local_rope);
  for (float Recipe::*field : {&Recipe::embedding_scale, &Recipe::logit_scale}) Round(wanted.*field, read.*field);
  if (wanted.family != read.family) return "the family";
  if (wanted.layers.size() != read.layers.size()) return "the number of layers";
  for (size_t i = 0; i < read.layers.size(); ++i) RoundLayer(wanted.layers[i], read.layers[i]);
  RoundLayer(wanted.all, read.all);
  if (wanted == read) return "";
  const auto same = [&](auto of) { return std::ranges::equal(wanted.layers, read.layers, {}, of, of); };
  const bool windows = same([](const LayerRecipe& l) { return l.attention.window; });
  const bool scales = same([](const LayerRecipe& l) { return l.attention.scale; });
  if (!windows) return "the windows of attention";
  if (!scales) return "the factor of q.k";
  if (!same([](const LayerRecipe& l) { return LayerOf({}, l); })) return "the kinds of layers";
  return wanted.rope == read.rope ? "all of the configuration" : "the scaling of rope";
}

std::string Difference(const ModelSpec& wanted, const ModelSpec& read) {
  if (wanted.further.size() != read.further.size()) return "the stacks";
  std::string difference = Difference(wanted.recipe, read.recipe);
  for (size_t i = 0; i < read.further.size() && difference.empty(); ++i) {
    difference = Difference(wanted.further[i], read.further[i]);
  }
  return difference;
}

// The recipe as a GGUF file has it: with stored tensors for scalings of rope, and with so many layers for prediction.
Recipe AsGguf(Recipe r, int32_t predicted) {
  RopeScaling& s = r.rope.scaling;
  if (s.kind == RopeScalingKind::kLlama3) {
    s = {};
    r.rope.freq_factors = true;
  } else if (r.rope.turned > 0) {
    r.rope.turned = 0;
    r.rope.freq_factors = true;
  } else if (s.kind == RopeScalingKind::kLongRope) {
    s.short_factors = s.long_factors = {};
    r.rope.stored_long_factors = true;
  }
  if (r.all.attention.qk_norm_everywhere) {  // stored as weights, the queries' with their factor
    ChangeLayers(r, [](LayerRecipe& l) {
      l.attention.qk_norm = QkNormKind::kHead;
      l.attention.qk_norm_everywhere = false;
    });
    SetAttentionScale(r, UsualAttentionScale(r));
  }
  if (r.all.network
          .stored_xielu) {  // GGUF has keys for them. The numbers are a new model's, since there are no tensors to read them from
    ChangeLayers(
        r, [](LayerRecipe& l) { l.network.stored_xielu = l.network.stored_xielu_beta = l.network.stored_xielu_eps = false; });
    for (LayerRecipe& l : r.layers) l.network.xielu = {.alpha_n = 0.8f, .alpha_p = 0.8f};
  }
  r.eos_tokens = {};
  r.mtp_layers = predicted;
  return r;
}

// The divisors that the published Llama 3 scaling gives each rotated pair, as converters store them (rope_freqs.weight): Llama
// 3.1 reference code, apply_scaling.
std::vector<float> Llama3Factors(const Rope& rope) {
  const RopeScaling& s = rope.scaling;
  std::vector<float> factors(static_cast<size_t>(rope.dim / 2));
  for (size_t pair = 0; pair < factors.size(); ++pair) {
    const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, 2.0 * static_cast<double>(pair) / rope.dim);
    const double smooth =
        std::clamp((s.original_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor), 0.0, 1.0);
    factors[pair] = static_cast<float>(1 / ((1 - smooth) / s.factor + smooth));
  }
  return factors;
}

}  // namespace

std::vector<float> GgufRopeFactors(Role role, const Recipe& published) {
  const RopeScaling& s = published.rope.scaling;
  if (role == Role::kRopeFactors && published.rope.turned > 0) {
    constexpr float kNever = 1e30f;  // llama.cpp's converter: pairs that do not turn
    std::vector<float> factors(static_cast<size_t>(published.rope.dim / 2), kNever);
    std::fill_n(factors.begin(), published.rope.turned, 1.0f);
    return factors;
  }
  if (role == Role::kRopeFactors) return Llama3Factors(published.rope);
  const std::vector<double>& factors = role == Role::kRopeShortFactors ? s.short_factors : s.long_factors;
  return {factors.begin(), factors.end()};
}

Result<MadeCheckpoint> MakeGguf(const Inventory& config, const MadeTypes& types, bool prediction) {
  TALLY_ASSIGN_OR_RETURN(const Family* const family, FamilyOf(config));
  const std::optional<DType> made_with = prediction ? std::optional(types.expert_type) : std::nullopt;
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(config, made_with, prediction));
  const std::string& source = config.metadata.source;
  if (family->gguf_architectures.empty()) return BadInput(source + ": GGUF has no architecture for " + spec.recipe.family);
  for (Recipe& r : spec.further) r = AsGguf(std::move(r), 0);
  spec.recipe = AsGguf(std::move(spec.recipe), prediction ? 1 : 0);
  std::string why;
  bool unread = true;  // what `why` says is that no architecture's keys can be read back
  for (const std::string_view architecture : family->gguf_architectures) {
    if (IsOfOthers(architecture, *family, spec.recipe.all.experts.n_experts > 0)) continue;
    const auto tile = [&](LayerRecipe& l) { l.delta.tiled = architecture.starts_with("qwen35"); };
    ChangeLayers(spec.recipe, tile);
    for (Recipe& r : spec.further) ChangeLayers(r, tile);
    MadeCheckpoint made;
    made.inventory.path = made.inventory.metadata.source = source;
    made.inventory.metadata.Set("general.architecture", std::string(architecture));
    for (auto& [key, value] : GgufKeys(spec, architecture)) made.inventory.metadata.Set(key, std::move(value));
    ModelSpec wanted;
    wanted.recipe = spec.recipe;
    wanted.further = spec.further;
    TALLY_RETURN_IF_ERROR(BindRoles(made.inventory, family->gguf_names, "", wanted, types.expert_type));
    AddTensors(wanted, types, made);
    if (architecture == "falcon" && wanted.recipe.all.residual.kind == Residual::kParallelOneNorm) NameOnlyNorm(made.inventory);
    Result<ModelSpec> read = ReadModelSpec(made.inventory, prediction);
    std::string difference = read.ok() ? Difference(spec, *read) : read.status().message();
    if (difference.starts_with(source + ": ")) difference.erase(0, source.size() + 2);
    if (!difference.empty()) {
      if (why.empty() || why == "the family" || (unread && read.ok() && difference != "the family")) why = difference;
      unread = unread && !read.ok();
      continue;
    }
    made.spec = std::move(read).value();
    return made;
  }
  return BadInput(source + ": a GGUF file of " + spec.recipe.family + " cannot say " + why);
}

Result<MadeCheckpoint> MakeHuggingFace(const Inventory& config, const MadeTypes& types, bool prediction) {
  const bool split = IsOfExperts(types.expert_type);
  for (const DType type : {types.type, split ? types.type : types.expert_type}) {
    if (GetDTypeInfo(type).quantised) return BadInput("safetensors has no type " + std::string(DTypeName(type)) + "; GGUF has");
  }
  TALLY_ASSIGN_OR_RETURN(const ModelSpec wanted, ReadFamily(config, types.expert_type, prediction));
  MadeCheckpoint made;
  made.inventory.format = FileFormat::kHuggingFace;
  made.inventory.path = config.metadata.source;
  made.inventory.metadata = config.metadata;
  AddTensors(wanted, types, made);
  TALLY_ASSIGN_OR_RETURN(made.spec, ReadModelSpec(made.inventory, prediction));
  if (made.spec.recipe != wanted.recipe || made.spec.further != wanted.further)
    return InternalError(config.metadata.source + ": its tensors change what is read in it");
  return made;
}

}  // namespace tally
