// From a recipe and a table of names to bindings: which roles a model has and their shapes follow from the table of roles
// (engine/recipe/roles.inc); a family only says what Hugging Face's files call them, and what differs from GGUF's usual names.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// What a file calls a role. '#' in the name stands for the layer, '*' for the expert (one tensor each), '~' for a prefix that some
// files have.
struct RoleName {
  Role role;
  std::string_view name;
  Storage storage = Storage::kPlain;
  RowMap (*rows)(const Recipe&) = nullptr;    // null: all rows of the tensor
  std::optional<DType> split = std::nullopt;  // TensorBinding::split: name_blocks and name_scales
};

std::string ExpandName(std::string_view name, int32_t layer, std::string_view prefix, int64_t expert = 0);

// Hugging Face decoders in Llama's manner: model.layers.#.self_attn.q_proj and its like.
std::span<const RoleName> HfDecoderNames();

bool IsStored(const Inventory& inventory, std::string_view name);
// Some layer's tensor of this name ('#': the layer) is in the files. For what a family lets the files decide,
// such as biases: where one layer has it all must, and CheckClaims says so.
bool AnyLayerHas(const Inventory& inventory, const Recipe& recipe, std::string_view name);
bool AnyLayerHas(const Inventory& gguf, const Recipe& recipe, Role role);

// Binds every role of the recipe to its name: that of `own`, or else HfDecoderNames' or GGUF's. Of the names of a layer's experts,
// those up to the first that is not stored, which CheckClaims then names. A role without a name is a defect (kInternal).
Status BindRoles(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, ModelSpec& spec);

// Every binding's tensors are stored with the right shape and a type that can be run there (matrices of one op, such as gate
// and up, with the same), and every stored tensor is claimed exactly once, row by row: by bindings, as a buffer, or as not run. Errors
// name the tensor, what was found and what was expected.
Status CheckClaims(const Inventory& inventory, const ModelSpec& spec);

}  // namespace tally
