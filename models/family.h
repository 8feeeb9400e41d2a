// A family reads a checkpoint's hyper-parameters into a Recipe and names its tensors.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/readings.h"

namespace tally {

// quantization_config.quant_method as published checkpoints of a family have it: the experts' matrices are of this type, and the rest
// is BF16 where torch_dtype does not say.
struct QuantMethod {
  std::string_view name;  // empty: none
  DType expert_type = DType::kF32;
};

struct Family {
  std::string_view name;                                 // Recipe::family, unless read() says otherwise
  std::span<const std::string_view> gguf_architectures;  // general.architecture
  std::span<const std::string_view> hf_architectures;    // config.json architectures[0]
  std::span<const std::string_view> hf_model_types;      // config.json model_type, where there are no architectures
  // Fills the recipe, buffers and what is not run, of either format and with or without tensors. A key that is missing and has no
  // published default is an error naming key and file; errors are kept in Config.
  void (*read)(Config&, ModelSpec&);
  std::span<const RoleName> hf_names = {};    // where they differ from HfDecoderNames()
  std::span<const RoleName> gguf_names = {};  // where they differ from GgufName()
  QuantMethod quant_method = {};
};

// Every family: one explicit array, in registry.cc.
std::span<const Family* const> Families();

// Finds the family of `inventory` and reads recipe and bindings; the tensors are not compared with them, and need not be there. An
// unknown architecture is an error that names it and the known ones. What the engine cannot run is read all the same.
Result<ModelSpec> ReadFamily(const Inventory& inventory);

// The same, and checks that every stored tensor is claimed exactly once (by bindings, as a buffer, or as not run) with the bound
// shape; an unknown tensor is an error that names it.
Result<ModelSpec> ReadModelSpec(const Inventory& inventory);

// What a GGUF file of this recipe, of the family it names, would hold.
Result<std::vector<TensorBinding>> GgufBindings(const Recipe& recipe);

// The types of the weights that a configuration without tensors speaks of: torch_dtype or dtype, F32 where it is silent, and what
// Family::quant_method says. Other quantisation is not looked at.
struct CountTypes {
  DType type = DType::kF32, expert_type = DType::kF32;
};
Result<CountTypes> ReadCountTypes(const Inventory& inventory);

}  // namespace tally
