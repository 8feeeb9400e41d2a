// A family reads a checkpoint's hyper-parameters into a Recipe and names its tensors.
#pragma once

#include <span>
#include <string_view>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

struct Family {
  std::string_view name;
  std::span<const std::string_view> gguf_architectures;  // general.architecture
  std::span<const std::string_view> hf_architectures;    // config.json architectures[0]
  std::span<const std::string_view> hf_model_types;      // config.json model_type, where there are no architectures
  // Fills recipe and bindings; a key that is missing and has no published default is an error naming key and
  // file.
  Result<ModelSpec> (*read)(const Inventory&);
};

// Every family the engine runs: one explicit array, in registry.cc.
std::span<const Family* const> Families();

// Finds the family of `inventory`, reads it, and checks that every stored tensor is claimed exactly once (by
// a binding, as a buffer, or as not run) with the bound shape; an unknown architecture or tensor is an error
// that names it.
Result<ModelSpec> ReadModelSpec(const Inventory& inventory);

}  // namespace tally
