// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>
#include <string>
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
  F(kQwen2Family)         \
  F(kQwen2MoeFamily)      \
  F(kQwen3Family)         \
  F(kGemmaFamily)         \
  F(kGemma2Family)        \
  F(kGemma3Family)        \
  F(kPhiFamily)           \
  F(kPhi3Family)          \
  F(kOlmo2Family)         \
  F(kOlmoeFamily)         \
  F(kDeepseekFamily)      \
  F(kCohereFamily)        \
  F(kGraniteFamily)       \
  F(kGlm4Family)          \
  F(kGlm4MoeFamily)       \
  F(kSmolLm3Family)       \
  F(kInternLm2Family)     \
  F(kMiniCpmFamily)       \
  F(kStarcoder2Family)    \
  F(kCs336Family)         \
  F(kMiniGptFamily)

#define TALLY_DECLARE(family) extern const Family family;
TALLY_FAMILIES(TALLY_DECLARE)

namespace {

#define TALLY_POINTER(family) &family,
constexpr const Family* kFamilies[] = {TALLY_FAMILIES(TALLY_POINTER)};

using Names = std::span<const std::string_view> Family::*;

Result<const Family*> Lookup(const Inventory& inventory, Names names, std::string_view key, const std::string& wanted) {
  std::string known;
  for (const Family* family : kFamilies) {
    if (std::ranges::find(family->*names, wanted) != (family->*names).end()) return family;
    for (const std::string_view name : family->*names) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  const std::string place = inventory.metadata.source + ": " + std::string(key) + " " + Quote(wanted);
  if (const std::string_view layers = UnsupportedLayers(wanted); !layers.empty()) {
    return BadInput(place + " has " + std::string(layers) + ", which are not supported");
  }
  return BadInput(place + " is not supported; known: " + known);
}

struct Found {
  const Family* family;
  std::string architecture;  // the name it was found by
};

Result<Found> FindFamily(const Inventory& inventory) {
  const Metadata& m = inventory.metadata;
  const auto lookup = [&](Names names, std::string_view key, const std::string& wanted) -> Result<Found> {
    TALLY_ASSIGN_OR_RETURN(const Family* family, Lookup(inventory, names, key, wanted));
    return Found{family, wanted};
  };
  if (inventory.format == FileFormat::kGguf) {
    TALLY_ASSIGN_OR_RETURN(const auto name, m.GetString("general.architecture"));
    if (!name.has_value()) return BadInput(m.source + ": required key general.architecture is missing");
    return lookup(&Family::gguf_architectures, "general.architecture", *name);
  }
  TALLY_ASSIGN_OR_RETURN(const auto names, m.GetStrings("architectures"));
  if (names.has_value() && !names->empty()) return lookup(&Family::hf_architectures, "architecture", names->front());
  TALLY_ASSIGN_OR_RETURN(const auto type, m.GetString("model_type"));
  if (type.has_value()) return lookup(&Family::hf_model_types, "model_type", *type);
  return BadInput(m.source + ": neither architectures nor model_type says what model this is");
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

Result<const Family*> FamilyOf(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  return found.family;
}

Result<ModelSpec> ReadFamily(const Inventory& inventory, std::optional<DType> made_with) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  const Family& family = *found.family;
  Config config(inventory, found.architecture);
  config.own_names = config.gguf() ? family.gguf_names : family.hf_names;
  ModelSpec spec;
  spec.recipe.family = family.name;
  family.read(config, spec);
  RefuseUnreadOptions(config);
  ReadGeneration(config, spec.recipe);
  TALLY_RETURN_IF_ERROR(config.status());
  spec.notes = config.notes();
  const Status fits = CheckRecipe(spec.recipe);
  if (!fits.ok()) return Status(fits.code(), inventory.metadata.source + ": " + fits.message());
  TALLY_RETURN_IF_ERROR(BindRoles(inventory, config.own_names, config.tensor_prefix, spec, made_with));
  return spec;
}

Result<ModelSpec> ReadModelSpec(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadFamily(inventory));
  if (const Status claimed = CheckClaims(inventory, spec); !claimed.ok()) {
    const std::string method = QuantMethodOf(inventory.metadata);
    if (method.empty() || method == "fp8" || claimed.code() != StatusCode::kBadInput) return claimed;
    return BadInput(claimed.message() + "; its quantisation (" + Printable(method) + ") may be one that cannot be read");
  }
  TALLY_RETURN_IF_ERROR(CheckTypes(inventory, spec));
  return spec;
}

Result<CountTypes> ReadCountTypes(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(const Found found, FindFamily(inventory));
  const QuantMethod& quant = found.family->quant_method;
  const std::string method = QuantMethodOf(inventory.metadata);
  const bool quantised = !method.empty() && method == quant.name;
  Config c(inventory, found.architecture);
  const std::string name =
      c.String("torch_dtype|dtype|text_config.torch_dtype|text_config.dtype", quantised ? "bfloat16" : "float32");
  CountTypes types;
  if (name == "bfloat16")
    types.type = DType::kBF16;
  else if (name == "float16")
    types.type = DType::kF16;
  else if (name != "float32" && c.ok())
    c.Unsupported("torch_dtype", Quote(name));
  types.expert_type = quantised ? quant.expert_type : types.type;
  if (!quantised) types.other_method = method;
  TALLY_RETURN_IF_ERROR(c.status());
  return types;
}

std::string QuantMethodOf(const Metadata& m) {
  for (const std::string key : {"quantization_config", "compression_config", "text_config.quantization_config"}) {
    const Result<std::optional<std::string>> method = m.GetString(key + ".quant_method");
    if (method.ok() && method->has_value() && !(*method)->empty()) return **method;
    if (m.IsOther(key) || m.Has(key + ".quant_method")) return "unnamed";
  }
  return "";
}

}  // namespace tally
