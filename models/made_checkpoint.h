// SPDX-License-Identifier: Apache-2.0
// The checkpoint that a model is stored in, made from its config.json: what it says of the model, and its tensors without their bytes.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

struct MadeCheckpoint {
  Inventory inventory;  // GGUF: the keys of the architecture; Hugging Face: those of the config. The tensors have no places yet.
  ModelSpec spec;       // as ReadModelSpec reads the inventory
  std::vector<size_t> made_for;  // [tensors] the first of spec.bindings that takes it
};

struct MadeTypes {
  DType type = DType::kBF16;         // of matrices
  DType expert_type = DType::kBF16;  // of the experts' matrices
};

// The keys that a GGUF file of this architecture has for the recipe, without general.*; source: llama.cpp, src/llama-arch.cpp and
// convert_hf_to_gguf.py.
std::vector<std::pair<std::string, MetaValue>> GgufKeys(const ModelSpec& spec, std::string_view architecture);

// `config`: of ReadConfigJson or ReadConfigText. Vectors, learned positions and routers are F32. A matrix whose rows are not whole
// blocks of its type is Q8_0, or else F16, as with llama.cpp's quantiser. `prediction`: with the first layer for multi-token prediction,
// which is the spec's last layer; others are not made, nor copies of the embedding and the head for it. kBadInput: the family has no GGUF
// architecture, or reading the keys back gives another model: GGUF lacks a key; no layer for prediction that could be run.
Result<MadeCheckpoint> MakeGguf(const Inventory& config, const MadeTypes& types, bool prediction = false);

// The values of the tensor in which GGUF stores a scaling of rope (kRopeFactors, kRopeShortFactors, kRopeLongFactors). `published`: the
// recipe of the configuration, which has the scaling as numbers.
std::vector<float> GgufRopeFactors(Role role, const Recipe& published);

// Everything has the type; experts of another type are in the two tensors of their format. kBadInput: a quantised type; as MakeGguf of
// `prediction`.
Result<MadeCheckpoint> MakeHuggingFace(const Inventory& config, const MadeTypes& types, bool prediction = false);

}  // namespace tally
