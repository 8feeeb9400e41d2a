// Recipes of models that are counted, whether the engine runs them or not.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/recipe/recipe.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// The recipe of a Hugging Face configuration, with or without tensors beside it (ReadConfigJson, ReadHuggingFace), or of a GGUF
// file of a family that is run. Families that are run (models/family.h) read their own; besides, the architectures in
// CountedArchitectures() are known. Of a configuration with several parts the text model counts. kBadInput names the file and the
// key, or the architecture and the known ones.
Result<Recipe> ReadCountRecipe(const Inventory& inventory);

// "Qwen2ForCausalLM, ...": the architectures that are only counted.
std::string CountedArchitectures();

// Whether the configuration is of an architecture that is only counted: then no family reads its tensors.
bool IsOnlyCounted(const Inventory& inventory);

struct CountTypes {
  DType type = DType::kF32, expert_type = DType::kF32;
};
// The types of the weights that a configuration without tensors speaks of: torch_dtype or dtype, F32 where it is silent; where
// quantization_config says mxfp4, MXFP4 of the experts and BF16 of the rest. Other quantisation is not looked at.
Result<CountTypes> ReadCountTypes(const Inventory& inventory);

}  // namespace tally
