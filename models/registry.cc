#include <algorithm>
#include <array>
#include <string>

#include "engine/base/format.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/families.h"

namespace tally {
namespace {

constexpr std::array<const Family*, 3> kFamilies = {&kGpt2Family, &kLlamaFamily, &kGptOssFamily};

using Names = std::span<const std::string_view> Family::*;

Result<const Family*> Lookup(const Inventory& inventory, Names names, std::string_view key, const std::string& wanted) {
  std::string known;
  for (const Family* family : kFamilies) {
    if (std::ranges::find(family->*names, wanted) != (family->*names).end()) return family;
    for (const std::string_view name : family->*names) known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return BadInput(inventory.metadata.source + ": " + std::string(key) + " " + Quote(wanted) +
                  " is not supported; supported: " + known);
}

Result<const Family*> FindFamily(const Inventory& inventory) {
  const Metadata& m = inventory.metadata;
  if (inventory.format == FileFormat::kGguf) {
    TALLY_ASSIGN_OR_RETURN(const auto name, m.GetString("general.architecture"));
    if (!name.has_value()) return BadInput(m.source + ": required key general.architecture is missing");
    return Lookup(inventory, &Family::gguf_architectures, "general.architecture", *name);
  }
  TALLY_ASSIGN_OR_RETURN(const auto names, m.GetStrings("architectures"));
  if (names.has_value() && !names->empty()) return Lookup(inventory, &Family::hf_architectures, "architecture", names->front());
  TALLY_ASSIGN_OR_RETURN(const auto type, m.GetString("model_type"));
  if (type.has_value()) return Lookup(inventory, &Family::hf_model_types, "model_type", *type);
  return BadInput(m.source + ": neither architectures nor model_type says what model this is");
}

}  // namespace

std::span<const Family* const> Families() { return kFamilies; }

Result<ModelSpec> ReadModelSpec(const Inventory& inventory) {
  TALLY_ASSIGN_OR_RETURN(const Family* family, FindFamily(inventory));
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, family->read(inventory));
  TALLY_RETURN_IF_ERROR(CheckClaims(inventory, spec));
  return spec;
}

}  // namespace tally
