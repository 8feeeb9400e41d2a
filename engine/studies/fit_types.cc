// SPDX-License-Identifier: Apache-2.0
// The types of fit.h that a model's weights may have, presets of quantize among them.
#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/studies/fit.h"
#include "engine/studies/quant_presets.h"

namespace tally {
namespace {

using books::ParameterForm;

constexpr std::array<std::string_view, 6> kOffered = {"BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"};

DType GivenType(const CountedModel& model, const ParameterForm& p) {
  const auto stored = model.stored_types.find(p.full_name());
  return stored != model.stored_types.end() ? stored->second : books::StoredType(p, model.count.options.type);
}

struct PresetTypes {
  std::map<std::string, DType> types;  // of all tensors, by name as in CountedModel::stored_types
  double whole = 0, fallback = 0;      // elements of matrices in types of the preset's, and in others as rows are no whole blocks
};

// As Quantize would choose: experts in MXFP4 stay.
PresetTypes TypesOf(const CountedModel& model, const QuantPreset& preset) {
  const QuantModel rules = QuantModelOf(model.count.recipe);
  PresetTypes of;
  int64_t values = 0;
  for (const ParameterForm& p : model.count.tensors) {
    if (p.prediction) continue;
    StoredTensor t;
    t.name = p.full_name() + ".weight";
    t.shape = p.expert ? std::vector{p.slices, p.rows, p.cols} : std::vector{p.rows, p.cols};
    DType& type = of.types[p.full_name()];
    type = DType::kF32;
    if (p.vector || !MayQuantise(t)) continue;
    if (GivenType(model, p) == DType::kMXFP4) {
      type = DType::kMXFP4;
      continue;
    }
    const QuantChoice choice = QuantTypeOf(preset, rules, t, values, false);
    values += HoldsValues(t.name) ? 1 : 0;
    type = choice.type;
    (choice.fallback ? of.fallback : of.whole) += static_cast<double>(p.count.value());
  }
  return of;
}

bool SameMatrices(const CountedModel& model, const PresetTypes& preset) {
  return std::ranges::all_of(model.count.tensors, [&](const ParameterForm& p) {
    return p.prediction || p.vector || !MayQuantise({.name = p.full_name() + ".weight", .shape = {p.rows, p.cols}}) ||
           preset.types.at(p.full_name()) == GivenType(model, p);
  });
}

bool HasMxfp4(const CountedModel& model) {
  return std::ranges::any_of(model.count.tensors,
                             [&](const ParameterForm& p) { return !p.prediction && GivenType(model, p) == DType::kMXFP4; });
}

}  // namespace

Result<CountedModel> CountedAs(const CountedModel& model, DType type) {
  CountedModel as = model;
  books::CountOptions options = model.count.options;
  options.type = type;
  options.stored_bytes.clear();
  TALLY_ASSIGN_OR_RETURN(as.count, books::CountRecipe(model.count.recipe, std::move(options)));
  as.stored_types.clear();
  as.stored_as = std::string(DTypeName(type)) + (IsOfExperts(type) ? " + BF16" : "");
  return as;
}

Result<CountedModel> CountedAs(const CountedModel& model, std::string_view name) {
  const QuantPreset* const preset = FindQuantPreset(name);
  if (preset == nullptr) {
    TALLY_ASSIGN_OR_RETURN(const DType type, ParseWeightType(name));
    return CountedAs(model, type);
  }
  CountedModel as = model;
  as.stored_types = TypesOf(model, *preset).types;
  as.stored_as = preset->name;
  books::CountOptions options = model.count.options;
  options.stored_bytes.clear();
  for (const ParameterForm& p : model.count.tensors) {
    if (!p.prediction) options.stored_bytes[p.full_name()] = books::StoredBytesAs(p, as.stored_types.at(p.full_name()));
  }
  TALLY_ASSIGN_OR_RETURN(as.count, books::CountRecipe(model.count.recipe, std::move(options)));
  return as;
}

std::string_view PresetOf(const CountedModel& model) {
  if (model.stored_types.empty() || HasMxfp4(model)) return "";
  for (const std::string_view name : QuantPresetNames()) {
    if (SameMatrices(model, TypesOf(model, *FindQuantPreset(name)))) return name;
  }
  return "";
}

std::vector<std::string_view> FitPresets(const CountedModel& model) {
  std::vector<std::string_view> names;
  for (const std::string_view name : kOffered) {
    const PresetTypes of = TypesOf(model, *FindQuantPreset(name));
    if (of.fallback <= of.whole && !SameMatrices(model, of)) names.push_back(name);
  }
  return names;
}

}  // namespace tally
