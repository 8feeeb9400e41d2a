// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/quant_presets.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace tally {
namespace {

using K = PresetKind;
constexpr QuantPreset kPresets[] = {
    {"F32", K::kPlain, DType::kF32, 0},         {"F16", K::kPlain, DType::kF16, 1},
    {"BF16", K::kPlain, DType::kBF16, 32},      {"Q8_0", K::kQ8_0, DType::kQ8_0, 7},
    {"Q4_0", K::kQ4_0, DType::kQ4_0, 2},        {"Q4_1", K::kQ4_1, DType::kQ4_1, 3},
    {"Q5_0", K::kQ5_0, DType::kQ5_0, 8},        {"Q5_1", K::kQ5_1, DType::kQ5_1, 9},
    {"Q2_K", K::kQ2_K, DType::kQ2_K, 10},       {"Q3_K_S", K::kQ3_K_S, DType::kQ3_K, 11},
    {"Q3_K_M", K::kQ3_K_M, DType::kQ3_K, 12},   {"Q3_K_L", K::kQ3_K_L, DType::kQ3_K, 13},
    {"Q4_K_S", K::kQ4_K_S, DType::kQ4_K, 14},   {"Q4_K_M", K::kQ4_K_M, DType::kQ4_K, 15},
    {"Q5_K_S", K::kQ5_K_S, DType::kQ5_K, 16},   {"Q5_K_M", K::kQ5_K_M, DType::kQ5_K, 17},
    {"Q6_K", K::kQ6_K, DType::kQ6_K, 18},       {"IQ4_NL", K::kIQ4_NL, DType::kIQ4_NL, 25},
    {"IQ4_XS", K::kIQ4_XS, DType::kIQ4_XS, 30}, {"MXFP4_MOE", K::kMxfp4Moe, DType::kMXFP4, 38},
};

bool Has(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

int64_t LayerOf(std::string_view name) {  // of "blk.N."; -1: none
  if (!name.starts_with("blk.")) return -1;
  int64_t layer = -1;
  std::from_chars(name.data() + 4, name.data() + name.size(), layer);
  return layer;
}

// The first and last eighth of `n`, and every third between.
bool MoreBits(int64_t i, int64_t n) { return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2; }

DType ValueType(const QuantPreset& preset, const QuantModel& m, int64_t i) {
  DType type = preset.type;
  const bool grouped = m.kv_heads > 0 && m.heads / m.kv_heads >= 4;
  switch (preset.kind) {
    case K::kQ2_K: type = grouped ? DType::kQ4_K : DType::kQ3_K; break;
    case K::kQ3_K_M: type = i < 2 ? DType::kQ5_K : DType::kQ4_K; break;
    case K::kQ3_K_L: type = DType::kQ5_K; break;
    case K::kIQ4_NL:
    case K::kIQ4_XS: type = grouped ? DType::kQ5_K : type; break;
    case K::kQ4_K_M:
    case K::kQ5_K_M: type = MoreBits(i, m.value_tensors) ? DType::kQ6_K : type; break;
    case K::kQ4_K_S: type = i < 4 ? DType::kQ5_K : type; break;
    default: break;
  }
  const bool of_70b = (m.architecture == "llama" || m.architecture == "qwen2") && m.layers == 80 && m.heads != m.kv_heads;
  if (of_70b && (type == DType::kQ3_K || type == DType::kQ4_K)) type = DType::kQ5_K;
  return m.experts == 8 ? DType::kQ8_0 : type;
}

DType DownType(const QuantPreset& preset, const QuantModel& m, int64_t i) {
  const int64_t n = m.layers;
  const bool falcon = m.architecture == "falcon", more = MoreBits(i, n), first = i < n / 8;
  switch (preset.kind) {
    case K::kQ2_K: return DType::kQ3_K;
    case K::kQ3_K_M: return i < n / 16 ? DType::kQ5_K : !falcon || more ? DType::kQ4_K : preset.type;
    case K::kQ3_K_L: return falcon ? DType::kQ4_K : DType::kQ5_K;
    case K::kQ4_K_M:
      if (falcon) return i < n / 16 ? DType::kQ6_K : more ? DType::kQ5_K : preset.type;
      return more ? DType::kQ6_K : preset.type;
    case K::kIQ4_NL:
    case K::kIQ4_XS: return first && !m.importance ? DType::kQ5_K : preset.type;
    case K::kQ5_K_M: return more ? DType::kQ6_K : preset.type;
    case K::kQ4_K_S: return first && !falcon ? DType::kQ5_K : preset.type;
    case K::kQ4_0: return first && m.importance ? DType::kQ4_1 : preset.type;
    case K::kQ5_0: return first && m.importance ? DType::kQ5_1 : preset.type;
    default: return preset.type;
  }
}

DType OutputType(const QuantPreset& preset, const QuantModel& m) {
  if (m.architecture == "falcon") return preset.kind == K::kQ3_K_L ? DType::kQ4_K : preset.type;
  if (m.experts == 8) {
    constexpr K kMore[] = {K::kQ2_K, K::kQ3_K_S, K::kQ3_K_M, K::kIQ4_NL, K::kQ4_K_S, K::kQ4_K_M, K::kIQ4_XS};
    return std::find(std::begin(kMore), std::end(kMore), preset.kind) != std::end(kMore) ? DType::kQ5_K : preset.type;
  }
  switch (preset.kind) {
    case K::kQ2_K: return DType::kQ3_K;
    case K::kQ3_K_M: return DType::kQ4_K;
    case K::kQ3_K_L: return DType::kQ5_K;
    default: return preset.type;
  }
}

DType TypeByRule(const QuantPreset& preset, const QuantModel& m, const StoredTensor& t, int64_t value_index) {
  const std::string_view name = t.name;
  const bool whole = t.shape.back() % GetDTypeInfo(preset.type).block_size == 0;
  if (name == "output.weight" || (m.tied_head && name == "token_embd.weight")) {
    if (preset.kind == K::kMxfp4Moe || preset.kind == K::kQ8_0 || m.architecture == "falcon" || !whole) return DType::kQ8_0;
    return DType::kQ6_K;
  }
  if (preset.kind == K::kMxfp4Moe) return t.shape.size() > 2 ? DType::kMXFP4 : DType::kQ8_0;
  if (name == "token_embd.weight") return preset.type;
  if (HoldsValues(name)) return ValueType(preset, m, value_index);
  if (Has(name, "attn_k.weight")) return m.experts == 8 ? DType::kQ8_0 : preset.type;
  if (Has(name, "ffn_down")) return DownType(preset, m, LayerOf(name));
  if (Has(name, "attn_output.weight")) return OutputType(preset, m);
  return preset.type;
}

// A type with blocks of 32 for rows that are not whole blocks of 256.
DType Fallback(DType type) {
  switch (type) {
    case DType::kIQ4_XS: return DType::kIQ4_NL;
    case DType::kQ2_K:
    case DType::kQ3_K: return DType::kQ4_0;
    case DType::kQ4_K: return DType::kQ5_0;
    case DType::kQ5_K: return DType::kQ5_1;
    case DType::kQ6_K: return DType::kQ8_0;
    default: return DType::kF16;
  }
}

}  // namespace

const QuantPreset* FindQuantPreset(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (upper == "Q3_K" || upper == "Q4_K" || upper == "Q5_K") upper += "_M";
  for (const QuantPreset& p : kPresets) {
    if (p.name == upper) return &p;
  }
  return nullptr;
}

std::vector<std::string_view> QuantPresetNames() {
  std::vector<std::string_view> names;
  for (const QuantPreset& p : kPresets) names.push_back(p.name);
  return names;
}

bool HoldsValues(std::string_view name) {
  return Has(name, "attn_v.weight") || Has(name, "attn_qkv.weight") || Has(name, "attn_kv_b.weight");
}

Result<QuantModel> QuantModelOf(const Inventory& inventory) {
  QuantModel m;
  const Metadata& data = inventory.metadata;
  TALLY_ASSIGN_OR_RETURN(const auto architecture, data.GetString("general.architecture"));
  m.architecture = architecture.value_or("");
  const auto read = [&](const char* key, int64_t& value) -> Status {
    const std::string whole = m.architecture + "." + key;
    if (const MetaValue* v = data.Find(whole); v != nullptr && std::holds_alternative<std::vector<int64_t>>(*v)) {
      const auto& each = std::get<std::vector<int64_t>>(*v);  // a value a layer
      if (!each.empty()) value = each.front();
      return {};
    }
    TALLY_ASSIGN_OR_RETURN(const auto found, data.GetInt(whole));
    value = found.value_or(value);
    return {};
  };
  TALLY_RETURN_IF_ERROR(read("block_count", m.layers));
  TALLY_RETURN_IF_ERROR(read("expert_count", m.experts));
  TALLY_RETURN_IF_ERROR(read("attention.head_count", m.heads));
  m.kv_heads = m.heads;
  TALLY_RETURN_IF_ERROR(read("attention.head_count_kv", m.kv_heads));
  m.tied_head = inventory.Find("output.weight") == nullptr;
  m.value_tensors = std::count_if(inventory.tensors.begin(), inventory.tensors.end(),
                                  [](const StoredTensor& t) { return HoldsValues(t.name); });
  return m;
}

bool MayQuantise(const StoredTensor& t) {
  const std::string_view name = t.name;
  if (t.shape.size() < 2 || !name.ends_with("weight")) return false;
  for (const char* part :
       {"_norm.weight", "ffn_gate_inp", "position_embd", "token_types", "rel_pos", "patch_embd", "conv1d", "shortconv.conv"}) {
    if (Has(name, part)) return false;
  }
  return true;
}

QuantChoice QuantTypeOf(const QuantPreset& preset, const QuantModel& model, const StoredTensor& t, int64_t value_index,
                        bool pure) {
  if (preset.kind == K::kPlain) return {preset.type};
  const DType type = pure ? preset.type : TypeByRule(preset, model, t, value_index);
  const auto fits = [&](DType as) { return t.shape.back() % GetDTypeInfo(as).block_size == 0; };
  if (fits(type)) return {type};
  const DType other = Fallback(type);
  return {fits(other) ? other : DType::kF16, true};
}

std::vector<QuantChoice> QuantTypesOf(const QuantPreset& preset, const QuantModel& model, std::span<const StoredTensor> tensors,
                                      bool pure) {
  std::vector<int64_t> value_layers;
  for (const StoredTensor& t : tensors) {
    if (HoldsValues(t.name)) value_layers.push_back(LayerOf(t.name));
  }
  std::vector<QuantChoice> choices;
  for (const StoredTensor& t : tensors) {
    const int64_t layer = LayerOf(t.name);
    const auto before = std::count_if(value_layers.begin(), value_layers.end(), [&](int64_t l) { return l < layer; });
    const bool stays = !MayQuantise(t) || t.dtype == DType::kMXFP4;
    choices.push_back(stays ? QuantChoice{t.dtype} : QuantTypeOf(preset, model, t, before, pure));
  }
  return choices;
}

}  // namespace tally
