// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "models/family.h"

namespace tally {

// One line a family.
#define TALLY_FAMILIES(F) \
  F(kGpt2Family)          \
  F(kGptNeoFamily)        \
  F(kGptJFamily)          \
  F(kGptNeoxFamily)       \
  F(kGptBigCodeFamily)    \
  F(kGptOssFamily)        \
  F(kOptFamily)           \
  F(kBloomFamily)         \
  F(kMptFamily)           \
  F(kFalconFamily)        \
  F(kLlamaFamily)         \
  F(kLlama4Family)        \
  F(kMistral3Family)      \
  F(kSeedOssFamily)       \
  F(kArceeFamily)         \
  F(kApertusFamily)       \
  F(kErnie45Family)       \
  F(kHunyuanFamily)       \
  F(kXverseFamily)        \
  F(kBaichuanFamily)      \
  F(kStableLmFamily)      \
  F(kOrionFamily)         \
  F(kNemotronFamily)      \
  F(kExaone4Family)       \
  F(kMuseGlimmerFamily)   \
  F(kQwenFamily)          \
  F(kQwen2Family)         \
  F(kQwen2MoeFamily)      \
  F(kQwen3Family)         \
  F(kQwen3VlFamily)       \
  F(kQwen3NextFamily)     \
  F(kQwen35Family)        \
  F(kKimiLinearFamily)    \
  F(kLing3Family)         \
  F(kGemmaFamily)         \
  F(kGemma2Family)        \
  F(kGemma3Family)        \
  F(kGemma4Family)        \
  F(kPhiFamily)           \
  F(kPhi3Family)          \
  F(kOlmo2Family)         \
  F(kOlmoeFamily)         \
  F(kDeepseekFamily)      \
  F(kCohereFamily)        \
  F(kGraniteFamily)       \
  F(kGlm4Family)          \
  F(kGlm4MoeFamily)       \
  F(kAfmoeFamily)         \
  F(kErnie45MoeFamily)    \
  F(kExaoneMoeFamily)     \
  F(kHunyuanMoeFamily)    \
  F(kLagunaFamily)        \
  F(kBailingMoe2Family)   \
  F(kDots1Family)         \
  F(kMiniMaxM2Family)     \
  F(kSmolLm3Family)       \
  F(kInternLm2Family)     \
  F(kMiniCpmFamily)       \
  F(kStarcoder2Family)    \
  F(kLfm2Family)          \
  F(kMamba2Family)        \
  F(kNemotronHFamily)     \
  F(kGraniteHybridFamily) \
  F(kFalconH1Family)      \
  F(kDeepseek32Family)    \
  F(kDeepseek4Family)     \
  F(kQwen4ExpFamily)      \
  F(kKimiK3Family)        \
  F(kGlm5NextFamily)      \
  F(kMiniMaxM3Family)     \
  F(kJambaFamily)         \
  F(kMambaFamily)         \
  F(kRwkv7Family)         \
  F(kCs336Family)         \
  F(kMiniGptFamily)

#define TALLY_DECLARE(family) extern const Family family;
TALLY_FAMILIES(TALLY_DECLARE)

namespace {

#define TALLY_POINTER(family) &family,
constexpr const Family* kFamilies[] = {TALLY_FAMILIES(TALLY_POINTER)};

using Names = std::span<const std::string_view> Family::*;

// Null: no family has the name.
const Family* Known(Names names, std::string_view wanted) {
  const auto found =
      std::ranges::find_if(kFamilies, [&](const Family* f) { return std::ranges::find(f->*names, wanted) != (f->*names).end(); });
  return found == std::end(kFamilies) ? nullptr : *found;
}

Result<const Family*> Lookup(const Inventory& inventory, Names names, std::string_view key, const std::string& wanted) {
  if (const Family* const family = Known(names, wanted)) return family;
  std::string known;
  for (const Family* family : kFamilies) {
    for (const std::string_view name : family->*names) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  const std::string place = inventory.metadata.source + ": " + std::string(key) + " " + Quote(wanted);
  if (const std::string why = WhyUnsupported(wanted); !why.empty()) return BadInput(place + " is not supported: " + why);
  return BadInput(place + " is not supported; known: " + known);
}

// The kind of a GGUF file that is no language model, and what to do with it; empty: it is a language model.
std::string_view OtherThanModel(const Metadata& m) {
  const auto says = [&](std::string_view key, std::string_view value) {
    const auto text = m.GetString(key);
    return text.ok() && text->has_value() && **text == value;
  };
  if (says("general.type", "imatrix")) return "an importance matrix, not a model; `tally quantize --importance` takes it";
  if (says("general.type", "adapter") && m.Has("adapter.type")) {
    return "a LoRA adapter, not a model; merge it into its model (llama.cpp: llama-export-lora)";
  }
  if (says("general.architecture", "clip"))
    return "the part of a model that sees or hears (mmproj); name the file of its language model";
  return "";
}

struct Found {
  const Family* family;
  std::string architecture;  // the name it was found by
  std::string base_class;    // not empty: the file's own class ("LlamaModel"), which is the model without its head
  std::string note;          // what the user is told about the choice
};

// "qwen3_moe" and "Qwen3MoeForCausalLM" are one model's, and so are "gemma3_text" and "Gemma3ForCausalLM", and "hunyuan_v1_dense" and
// "HunYuanDenseV1ForCausalLM": the order of words does not count.
bool NameOneModel(std::string_view type, std::string_view architecture) {
  std::string a = BareArchitecture(type), b = BareArchitecture(architecture);
  if (a == b || a == b + "text") return true;
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

// The class with a head for a class without one, by its name: "LlamaForCausalLM" for "LlamaModel". Empty: there is none.
std::string_view ClassWithHead(std::string_view base) {
  if (!base.ends_with("Model") || base.ends_with("LMHeadModel")) return {};
  for (const Family* family : kFamilies) {
    for (const std::string_view name : family->hf_architectures) {
      if ((!name.ends_with("Model") || name.ends_with("LMHeadModel")) && BareArchitecture(name) == BareArchitecture(base))
        return name;
    }
  }
  return {};
}

// transformers takes the configuration of model_type, and the class that belongs to it, whatever architectures says. A type that is
// not known here may be the makers' own code for a known architecture, and so may a class that the file brings (auto_map). A class with
// another head than a language model's is no such model.
Result<Found> FindHuggingFace(const Inventory& inventory) {
  const Metadata& m = inventory.metadata;
  TALLY_ASSIGN_OR_RETURN(const auto names, m.GetStrings("architectures"));
  TALLY_ASSIGN_OR_RETURN(const auto type, m.GetString("model_type"));
  if (!names.has_value() || names->empty()) {
    if (!type.has_value()) return BadInput(m.source + ": neither architectures nor model_type says what model this is");
    TALLY_ASSIGN_OR_RETURN(const Family* family, Lookup(inventory, &Family::hf_model_types, "model_type", *type));
    return Found{family, *type, {}, {}};
  }
  const std::string& named = names->front();
  // One class for text models of several families.
  TALLY_ASSIGN_OR_RETURN(const auto text, m.GetString("text_config.model_type"));
  if (named == "Mistral3ForConditionalGeneration" && text == "mistral4") {
    return Found{Known(&Family::hf_model_types, *text), *text, {}, {}};
  }
  const std::string_view with_head = Known(&Family::hf_architectures, named) ? std::string_view() : ClassWithHead(named);
  Found found{nullptr, std::string(with_head.empty() ? named : with_head), {}, {}};
  if (!with_head.empty()) found.base_class = named;
  const Family* const of_type = type.has_value() ? Known(&Family::hf_model_types, *type) : nullptr;
  const bool unknown = Known(&Family::hf_architectures, found.architecture) == nullptr && WhyUnsupported(named).empty();
  if (of_type != nullptr && unknown && named.ends_with("ForCausalLM") && !m.Has("auto_map.AutoModelForCausalLM")) {
    return Found{of_type,
                 *type,
                 {},
                 "its architecture " + Quote(named) + " is unknown: it is read as its model_type " + Quote(*type) +
                     " says, as transformers does"};
  }
  TALLY_ASSIGN_OR_RETURN(found.family, Lookup(inventory, &Family::hf_architectures, "architecture", found.architecture));
  const bool one_type = of_type == found.family && found.family->hf_model_types.size() == 1;
  if (type.has_value() && !one_type && !NameOneModel(*type, found.architecture)) {
    if (of_type != nullptr) {
      found = {of_type,
               *type,
               {},
               "its model_type is " + Quote(*type) + " and its architecture " + Quote(named) +
                   ": it is read as the first says, as transformers does"};
    }
  }
  return found;
}

Result<Found> FindFamily(const Inventory& inventory) {
  if (inventory.format == FileFormat::kHuggingFace) return FindHuggingFace(inventory);
  const Metadata& m = inventory.metadata;
  if (const std::string_view other = OtherThanModel(m); !other.empty()) return BadInput(m.source + ": " + std::string(other));
  TALLY_ASSIGN_OR_RETURN(const auto name, m.GetString("general.architecture"));
  if (!name.has_value()) return BadInput(m.source + ": required key general.architecture is missing");
  TALLY_ASSIGN_OR_RETURN(const Family* family, Lookup(inventory, &Family::gguf_architectures, "general.architecture", *name));
  return Found{family, *name, {}, {}};
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

Result<const Family*> FamilyOf(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  return found.family;
}

namespace {

constexpr std::string_view kApart = "mtp";  // PartNotRun::name of layers for prediction that files have apart

constexpr const char* kNeedsNone = "; --draft lookup needs none";

// Adds the stack of the first layer for multi-token prediction, of the same kind as the last that attends; where such a layer has no
// feed-forward, that of the last that has one. `stored`: the files have tensors, so that it must be among them. Returns the name of
// the part that it was of.
Result<std::string> AddPrediction(const Family& family, const Config& c, bool stored, ModelSpec& spec) {
  const Recipe& r = spec.recipe;
  const Inventory& inventory = c.inventory();
  const std::string& source = inventory.metadata.source;
  const auto has_part = [&](std::string_view name) {
    return std::ranges::find(spec.parts_not_run, name, &PartNotRun::name) != spec.parts_not_run.end();
  };
  if (r.mtp_layers == 0 && !has_part(kApart))
    return BadInput(source + ": the model has no layers for multi-token prediction" + kNeedsNone);
  const auto attends = std::find_if(r.layers.rbegin(), r.layers.rend(), [](const LayerRecipe& l) { return l.attends(); });
  if (!family.runs_prediction || attends == r.layers.rend()) {
    return BadInput(source + ": layers for multi-token prediction of family " + r.family + " cannot be run yet" + kNeedsNone);
  }
  std::string part(kApart);
  if (!has_part(kApart)) {
    part = PredictionLayerName(c, r.n_layers);
    part.pop_back();
  }
  if (stored && !has_part(part)) {
    return BadInput(source + ": the files do not have the model's layer for multi-token prediction, " + part + kNeedsNone);
  }
  constexpr std::string_view kOwnEmbedding = "mtp.embed_tokens.weight";  // mtp_use_dedicated_embeddings
  if (IsStored(inventory, kOwnEmbedding)) {
    return BadInput(source + ": the model's layer for multi-token prediction has an embedding of its own, " +
                    std::string(kOwnEmbedding) + ", which cannot be run yet" + kNeedsNone);
  }
  LayerRecipe layer = *attends;
  if (layer.feed_forward.empty()) {
    const auto feeds = std::find_if(r.layers.rbegin(), r.layers.rend(), [](const auto& l) { return !l.feed_forward.empty(); });
    if (feeds != r.layers.rend()) layer.feed_forward = feeds->feed_forward;
  }
  Recipe stack = PredictionStack(r);
  stack.n_layers = 1;
  stack.layers = {layer};
  spec.further.push_back(std::move(stack));
  return part;
}

// What is bound is run. The copies of embedding and head that the layer may have are not: it shares the model's.
void TakeFromNotRun(const Inventory& inventory, std::string_view from, ModelSpec& spec) {
  std::set<std::string_view> bound;
  for (const TensorBinding& b : spec.bindings) {
    bound.insert(b.names.begin(), b.names.end());
    bound.insert(b.scales.begin(), b.scales.end());
  }
  std::erase_if(spec.not_run, [&](const std::string& name) { return bound.contains(name); });
  const auto part = std::ranges::find(spec.parts_not_run, from, &PartNotRun::name);
  if (part == spec.parts_not_run.end()) return;
  uint64_t parameters = 0, bytes = 0;
  for (const std::string& name : spec.not_run) {
    const StoredTensor* const t = inventory.Find(name);
    if (t == nullptr || !name.starts_with(std::string(from) + ".")) continue;
    parameters += inventory.HoldsScales(*t) ? 0 : t->elements();
    bytes += t->bytes;
  }
  part->parameters = parameters;
  part->bytes = bytes;
  if (bytes == 0) spec.parts_not_run.erase(part);
}

}  // namespace

Result<ModelSpec> ReadFamily(const Inventory& inventory, std::optional<DType> made_with, bool prediction) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  const Family& family = *found.family;
  Config config(inventory, found.architecture);
  config.own_names = config.gguf() ? family.gguf_names : family.hf_names;
  ModelSpec spec;
  spec.recipe.family = family.name;
  if (!config.gguf()) config.tensor_prefix = FindBody(inventory);
  family.read(config, spec);
  FillLayers(spec.recipe);
  RefuseUnreadOptions(config);
  ReadGeneration(config, spec.recipe);
  TALLY_RETURN_IF_ERROR(config.status());
  spec.notes = config.Notes();
  if (!found.note.empty()) spec.notes.push_back(found.note);
  if (!found.base_class.empty() && !spec.recipe.tied_head) {
    spec.notes.push_back(Printable(found.base_class) + " has no head: it is read as " + found.architecture + ", which needs one");
  }
  if (const std::string defaults = config.Defaults(); !defaults.empty()) {
    spec.defaults = "its configuration has no " + defaults + ": the published defaults of " + found.architecture + " are taken";
  }
  const Status fits = CheckRecipe(spec.recipe);
  if (!fits.ok()) return Status(fits.code(), inventory.metadata.source + ": " + fits.message());
  if (spec.recipe.counted_only) {
    spec.recipe.counted_only->why = family.not_run;
    if (!made_with) return spec;
    return BadInput(inventory.metadata.source + ": a model that is only counted cannot be made: it has " +
                    std::string(family.not_run));
  }
  std::string part;
  if (prediction) {
    TALLY_ASSIGN_OR_RETURN(part, AddPrediction(family, config, !made_with, spec));
  }
  TALLY_RETURN_IF_ERROR(BindRoles(inventory, config.own_names, config.tensor_prefix, spec, made_with));
  if (prediction) TakeFromNotRun(inventory, part, spec);
  AddBuffers(inventory, spec);
  return spec;
}

Result<ModelSpec> ReadModelSpec(const Inventory& inventory, bool prediction) {
  TALLY_ASSIGN_OR_RETURN(const Family* const family, FamilyOf(inventory));
  if (!family->not_run.empty()) {
    return BadInput(inventory.metadata.source + ": a model of family " + std::string(family->name) +
                    " is counted and not run: it has " + std::string(family->not_run));
  }
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(inventory, std::nullopt, prediction));
  TALLY_RETURN_IF_ERROR(CheckQuantMethod(inventory));
  if (const Status claimed = CheckClaims(inventory, spec); !claimed.ok()) return WithReasons(claimed, inventory, spec);
  TALLY_RETURN_IF_ERROR(CheckTypes(inventory, spec));
  return spec;
}

Status WithReasons(const Status& claimed, const Inventory& inventory, const ModelSpec& spec) {
  if (claimed.code() != StatusCode::kBadInput) return claimed;
  std::string reasons;
  for (const std::string& note : spec.notes) reasons += "; " + note;
  const std::string method = QuantMethodOf(inventory.metadata);
  if (!method.empty() && method != "fp8") {
    reasons += "; its quantisation (" + Printable(method) + ") may be one that cannot be read";
  }
  return BadInput(claimed.message() + reasons);
}

Status CheckQuantMethod(const Inventory& inventory) {
  TALLY_RETURN_IF_ERROR(inventory.metadata.ExpectObject("quantization_config"));
  const std::string method = QuantMethodOf(inventory.metadata);
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  constexpr std::string_view kKnown[] = {"", "fp8", "fbgemm_fp8", "compressed-tensors", "modelopt"};
  if (std::ranges::find(kKnown, method) != std::end(kKnown) || method == found.family->quant_method.name) return {};
  return BadInput(inventory.metadata.source +
                  ": its weights are quantised by a method that cannot be read: " + Printable(method));
}

namespace {

// A name of PyTorch's types, with or without "torch.". nullopt: weights are not published in it.
std::optional<DType> TorchType(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  static constexpr std::pair<std::string_view, DType> kTypes[] = {{"bfloat16", DType::kBF16}, {"float16", DType::kF16},
                                                                  {"half", DType::kF16},      {"float32", DType::kF32},
                                                                  {"float", DType::kF32},     {"float8_e4m3fn", DType::kFP8}};
  const auto* const found = std::ranges::find(kTypes, name, [](const auto& t) { return t.first; });
  return found == std::end(kTypes) ? std::nullopt : std::optional(found->second);
}

}  // namespace

Result<CountTypes> ReadCountTypes(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  const QuantMethod& quant = found.family->quant_method;
  const std::string method = QuantMethodOf(inventory.metadata);
  const bool quantised = !method.empty() && method == quant.name;
  Config c(inventory, found.architecture);
  // transformers uses the new key if both are present.
  constexpr std::string_view kKeys = "dtype|torch_dtype|text_config.dtype|text_config.torch_dtype";
  const std::string name = c.String(kKeys, "");
  CountTypes types;
  const std::optional<DType> type = TorchType(name);
  if (type) {
    types.type = *type;
  } else if (name.empty() || name == "auto") {
    types.type = quantised ? DType::kBF16 : DType::kF32;
    if (!quantised) {
      types.note = (name.empty() ? "its configuration has no torch_dtype" : "its torch_dtype is auto") +
                   std::string(": weights are counted as F32");
    }
  } else if (c.ok()) {
    c.Unsupported("torch_dtype", Quote(name));
  }
  types.expert_type = quantised ? quant.expert_type : types.type;
  if (!quantised) types.other_method = method;
  if (types.type == DType::kFP8 && method == "fp8") types.other_method.clear();
  TALLY_RETURN_IF_ERROR(c.status());
  return types;
}

std::string QuantMethodOf(const Metadata& m) {
  // mlx-lm writes its own under "quantization" and again under "quantization_config"; there is no method.
  if (m.Has("quantization.bits") || m.Has("quantization.group_size")) {
    const Result<std::optional<std::string>> mode = m.GetString("quantization.mode");
    return "MLX's " + (mode.ok() ? mode->value_or("affine") : "affine") + " format";
  }
  for (const std::string key : {"quantization_config", "compression_config", "text_config.quantization_config"}) {
    const Result<std::optional<std::string>> method = m.GetString(key + ".quant_method");
    if (method.ok() && method->has_value() && !(*method)->empty()) return **method;
    const auto below = m.values().lower_bound(key + ".");
    const bool any = below != m.values().end() && below->first.starts_with(key + ".");
    if (any && (m.Has(key + ".load_in_4bit") || m.Has(key + ".load_in_8bit"))) return "bitsandbytes";
    if (any || m.Has(key)) return "unnamed";
  }
  return "";
}

}  // namespace tally
