// SPDX-License-Identifier: Apache-2.0
// The types of fit.h that a model's weights may have, presets of quantize among them.
#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/studies/fit.h"
#include "engine/studies/preset_types.h"
#include "engine/studies/quant_presets.h"

namespace tally {
namespace {

using books::ParameterForm;

constexpr std::array<std::string_view, 6> kOffered = {"BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"};

DType GivenType(const CountedModel& model, const ParameterForm& p) {
  const auto stored = model.stored_types.find(p.full_name());
  return stored != model.stored_types.end() ? stored->second : books::StoredType(p, model.count.options.type);
}

bool SameMatrices(const CountedModel& model, const PresetTypes& preset) {
  return std::ranges::all_of(model.count.tensors, [&](const ParameterForm& p) {
    return p.apart() || p.vector || !MayQuantise({.name = p.full_name() + ".weight", .shape = {p.rows, p.cols}}) ||
           preset.types.at(p.full_name()) == GivenType(model, p);
  });
}

bool HasMxfp4(const CountedModel& model) {
  return std::ranges::any_of(model.count.tensors,
                             [&](const ParameterForm& p) { return !p.apart() && GivenType(model, p) == DType::kMXFP4; });
}

}  // namespace

Result<CountedModel> CountedAs(const CountedModel& model, DType type) {
  CountedModel as = model;
  books::CountOptions options = model.count.options;
  options.type = type;
  options.stored_bytes.clear();
  TALLY_ASSIGN_OR_RETURN(as.count, books::CountRecipe(model.count.recipe, std::move(options)));
  as.count.warnings = model.count.warnings;
  as.stored_types.clear();
  as.stored_as = std::string(DTypeName(type)) + (IsOfExperts(type) ? " + BF16" : "");
  return as;
}

Result<CountedModel> CountedAs(const CountedModel& model, std::string_view name) {
  const QuantPreset* const preset = FindQuantPreset(name);
  const Result<DType> type = ParseWeightType(name);
  if (preset == nullptr && !type.ok()) return type.status();
  if (preset == nullptr || (type.ok() && DTypeName(*type) != preset->name)) return CountedAs(model, *type);  // "Q4_K": no Q4_K_M
  CountedModel as = model;
  as.stored_types = PresetTypesOf(model, *preset).types;
  as.stored_as = preset->name;
  books::CountOptions options = model.count.options;
  options.stored_bytes.clear();
  for (const ParameterForm& p : model.count.tensors) {
    if (!p.apart()) options.stored_bytes[p.full_name()] = books::StoredBytesAs(p, as.stored_types.at(p.full_name()));
  }
  TALLY_ASSIGN_OR_RETURN(as.count, books::CountRecipe(model.count.recipe, std::move(options)));
  as.count.warnings = model.count.warnings;
  return as;
}

std::string_view PresetOf(const CountedModel& model) {
  if (model.stored_types.empty() || HasMxfp4(model)) return "";
  for (const std::string_view name : QuantPresetNames()) {
    if (SameMatrices(model, PresetTypesOf(model, *FindQuantPreset(name)))) return name;
  }
  return "";
}

std::vector<std::string_view> FitPresets(const CountedModel& model) {
  std::vector<std::string_view> names;
  uint64_t least = std::numeric_limits<uint64_t>::max();  // bytes of those before
  for (const std::string_view name : kOffered) {
    const PresetTypes of = PresetTypesOf(model, *FindQuantPreset(name));
    if (of.bytes >= least || SameMatrices(model, of)) continue;
    names.push_back(name);
    least = of.bytes;
  }
  return names;
}

}  // namespace tally
