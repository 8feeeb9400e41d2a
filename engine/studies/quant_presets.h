// SPDX-License-Identifier: Apache-2.0
// The presets of quantize: which type each tensor of a model gets. Names, numbers (general.file_type) and rules are llama.cpp's
// (include/llama.h, enum llama_ftype; src/llama-quant.cpp, llama_tensor_get_type_impl and tensor_type_fallback).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"
#include "loaders/inventory/inventory.h"

namespace tally {

enum class PresetKind : uint8_t {
  kPlain,  // every tensor has the type: F32, F16, BF16
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K_S,
  kQ3_K_M,
  kQ3_K_L,
  kQ4_K_S,
  kQ4_K_M,
  kQ5_K_S,
  kQ5_K_M,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMxfp4Moe
};

struct QuantPreset {
  std::string_view name;
  PresetKind kind;
  DType type;  // of tensors without a rule
  int file_type;
};

// In any case; "Q4_K" is Q4_K_M, as with llama.cpp. Null: there is none.
const QuantPreset* FindQuantPreset(std::string_view name);
std::vector<std::string_view> QuantPresetNames();

// What the rules ask of a model.
struct QuantModel {
  std::string architecture;
  int64_t layers = 0, experts = 0, heads = 1, kv_heads = 1;
  int64_t value_tensors = 0;  // that hold attention values: attn_v, attn_qkv, attn_kv_b
  bool tied_head = true;
  bool importance = false;
};
// Of a GGUF file. kBadInput: a key has another type.
Result<QuantModel> QuantModelOf(const Inventory& inventory);

// True if presets other than the plain ones change the tensor: matrices and experts' matrices that are no norm, router or position.
bool MayQuantise(const StoredTensor& t);

struct QuantChoice {
  DType type;
  bool fallback = false;  // its rows are not whole blocks of the type that the preset has for it
};
// The type of a tensor that MayQuantise allows. `value_index`: how many tensors of attention values come before it. `pure`: the preset's
// type, without its rules.
QuantChoice QuantTypeOf(const QuantPreset& preset, const QuantModel& model, const StoredTensor& t, int64_t value_index,
                        bool pure);

// The types of all of a model's tensors, in their order. Tensors that MayQuantise excludes, and MXFP4 experts, keep the type
// that they have.
std::vector<QuantChoice> QuantTypesOf(const QuantPreset& preset, const QuantModel& model, std::span<const StoredTensor> tensors,
                                      bool pure);

bool HoldsValues(std::string_view name);  // of attention

}  // namespace tally
