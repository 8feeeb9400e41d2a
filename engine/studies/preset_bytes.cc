// SPDX-License-Identifier: Apache-2.0
#include <span>
#include <vector>

#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"
#include "engine/studies/preset_types.h"
#include "engine/studies/quant_presets.h"

namespace tally {
namespace {

using books::ParameterForm;

// A tensor as the GGUF file has it from which Quantize starts.
StoredTensor TensorOf(const CountedModel& model, const ParameterForm& p) {
  StoredTensor t;
  t.name = p.full_name() + (p.name.ends_with(".bias") ? "" : ".weight");
  if (p.slices > 1) t.shape.push_back(p.slices);
  if (!p.vector) t.shape.push_back(p.rows);
  t.shape.push_back(p.cols);
  const auto& types = model.start_type ? model.start_types : model.stored_types;
  const auto stored = types.find(p.full_name());
  const bool whole = books::StoredType(p, DType::kQ8_0) == DType::kF32;  // what no preset quantises
  t.dtype = stored != types.end() ? stored->second
            : whole               ? DType::kF32
                                  : books::StoredType(p, model.start_type.value_or(model.count.options.type));
  return t;
}

QuantModel PresetFacts(const Recipe& r, std::span<const StoredTensor> tensors) {
  QuantModel m;
  m.architecture = r.family;
  m.layers = r.n_layers;
  m.experts = r.all.experts.n_experts;
  // Of the first layer, as QuantModelOf has them.
  const LayerRecipe first = r.layers.empty() ? LayerRecipe() : r.layers.front();
  m.heads = first.attention.n_heads;
  m.kv_heads = first.attends() ? first.attention.n_kv_heads : 0;
  m.tied_head = r.tied_head;
  for (const StoredTensor& t : tensors) m.value_tensors += HoldsValues(t.name) ? 1 : 0;
  return m;
}

}  // namespace

PresetTypes PresetTypesOf(const CountedModel& model, const QuantPreset& preset) {
  std::vector<StoredTensor> tensors;
  std::vector<std::string> names;
  for (const ParameterForm& p : model.count.tensors) {
    if (p.apart()) continue;
    tensors.push_back(TensorOf(model, p));
    names.push_back(p.full_name());
  }
  const std::vector<QuantChoice> choices = QuantTypesOf(preset, PresetFacts(model.count.recipe, tensors), tensors, false);
  PresetTypes of;
  for (size_t i = 0; i < choices.size(); ++i) {
    const DTypeInfo type = GetDTypeInfo(choices[i].type);
    const auto elements = static_cast<uint64_t>(tensors[i].elements());
    of.types[names[i]] = choices[i].type;
    of.bytes += elements / type.block_size * type.block_bytes;
  }
  return of;
}

Result<uint64_t> PresetBytes(const CountedModel& model, std::string_view preset) {
  const QuantPreset* const known = FindQuantPreset(preset);
  if (known == nullptr) return BadInput(Quote(preset) + " is no preset of quantize");
  return PresetTypesOf(model, *known).bytes;
}

}  // namespace tally
