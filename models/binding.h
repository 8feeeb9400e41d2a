// From a recipe and a table of names to bindings: which roles a model has and their shapes follow from the
// recipe; a family only says what the files call them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// What a file calls a role. '#' in the name stands for the layer, '~' for a prefix that some files have.
struct RoleName {
  Role role;
  std::string_view name;
  Storage storage = Storage::kPlain;
  bool hf_mxfp4 = false;  // name_blocks and name_scales
};

bool IsStored(const Inventory& inventory, std::string_view name);
// Some layer's tensor of this name ('#': the layer) is in the files. For what a family lets the files decide,
// such as biases: where one layer has it all must, and CheckClaims says so.
bool AnyLayerHas(const Inventory& inventory, const Recipe& recipe, std::string_view name);

// Whether the recipe's model has this role (in this layer; layer -1: outside of the layers), and the shape
// the engine wants.
bool HasRole(const Recipe& recipe, Role role, int32_t layer);
std::vector<uint64_t> RoleShape(const Recipe& recipe, Role role);

// Binds every role of the recipe to its name: the first that the tables, in their order, have. A role without
// a name is a defect (kInternal).
Status BindRoles(std::initializer_list<std::span<const RoleName>> tables, ModelSpec& spec, std::string_view prefix = "");

// Every binding's tensors are stored with the right shape and a type that can be run there (matrices of one op, such as gate
// and up, with the same), and every stored tensor is claimed exactly once: by a binding (the two halves of an interleaved tensor
// count as one), as a buffer, or as not run. Errors name the tensor, what was found and what was expected.
Status CheckClaims(const Inventory& inventory, const ModelSpec& spec);

}  // namespace tally
