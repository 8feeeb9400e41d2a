// SPDX-License-Identifier: Apache-2.0
// Bindings of a model's roles to stored tensors. The roles and their shapes follow from the recipe (engine/recipe/roles.inc). A
// family lists the names in Hugging Face files, and names that differ from GGUF's usual ones.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// The name of a role's tensor in a file. '#' stands for the layer, '*' for the expert (one tensor each), '~' for a prefix that
// some files have. A role may have several names: the first that is stored counts. Experts need one form of their names: BindRoles finds
// the others in Hugging Face files.
struct RoleName {
  Role role;
  std::string_view name;
  Storage storage = Storage::kPlain;
  RowMap (*rows)(const Recipe&) = nullptr;    // null: all rows of the tensor
  std::optional<DType> split = std::nullopt;  // TensorBinding::split: name_blocks and name_scales
  bool prediction = false;                    // the name in a layer for multi-token prediction, and in no other
};

// A special prefix: what follows it stands in place of "model." or "~model." at the beginning of a name. "(body)language_model.model.":
// "~model.layers" is language_model.model.layers, and "~lm_head" language_model.lm_head; "(body)model.language_model.":
// model.language_model.layers and lm_head; "(body)": layers and lm_head.
inline constexpr std::string_view kBody = "(body)";

// The prefix by which the files' names of layers and embedding begin: kBody with "language_model.model.", "model.language_model.", ... or
// nothing. Files of one model differ in it: transformers has written those with a vision tower in several ways, those of a class without a
// head without "model.", and text models that are saved alone in all of them. Empty: "model.", or there are no such names.
std::string FindBody(const Inventory& inventory);

std::string ExpandName(std::string_view name, int32_t layer, std::string_view prefix, int64_t expert = 0);

// The usual names of Hugging Face decoders: model.layers.#.self_attn.q_proj and so on.
std::span<const RoleName> HfDecoderNames();
// Names in GGUF files other than GgufName's: gate and up of all experts in one tensor.
std::span<const RoleName> GgufOtherNames();

bool IsStored(const Inventory& inventory, std::string_view name);
// True if the files have the tensor of this name ('#': the layer) in some layer. For optional tensors such as biases: if one
// layer has them, CheckClaims requires them in all.
bool AnyLayerHas(const Inventory& inventory, const Recipe& recipe, std::string_view name, std::string_view prefix = "");
bool AnyLayerHas(const Inventory& gguf, const Recipe& recipe, Role role);

// The name of a role's tensor outside the layers: from `own` or else from HfDecoderNames or GgufName. Stored or not.
std::string TensorName(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, Role role);

// Binds every role of the recipe to its name, from `own` or else from HfDecoderNames or GgufName. Expert tensors are bound up to
// and including the first missing one, which CheckClaims reports. A tied head that is stored beside the embedding is not run; one
// that is stored alone is bound as the embedding. kInternal: a role without a name.
// A layer for prediction whose matrix (kNextProj) has a name in `own` that begins with "mtp." has names that begin with "mtp.layers.0." in
// place of "model.layers.#.", unless `own` has names for such layers alone (RoleName::prediction).
// Experts of Hugging Face files are found in every form that transformers publishes or saves: a tensor for each, whatever their names, or
// gate and up, and down, of all as one tensor, as [out, in] or transposed. Gate and up of the shared experts may be one tensor, too.
// `made_with`: for a checkpoint that is to be made, with experts of this type. All experts are bound.
Status BindRoles(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, ModelSpec& spec,
                 std::optional<DType> made_with = std::nullopt);

// Lists as buffers the scales of a quantised KV cache, with a note, and the stored tensors that are none of the spec's and
// that transformers, or llama.cpp, computes anew: frequencies and tables of rope, causal masks and their value, positions;
// and those without elements.
void AddBuffers(const Inventory& inventory, ModelSpec& spec);

// A tensor that bindings need.
struct NeededTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::optional<DType> part_of;  // U8: a part of a tensor of this type
  size_t binding = 0;            // the first of ModelSpec::bindings that takes it
};
// The tensors of a checkpoint, in the order of their bindings. Bindings that share a tensor take all of its rows.
std::vector<NeededTensor> NeededTensors(const ModelSpec& spec);

// Checks that the tensors of every binding are stored with the right shape, and that every row of every stored tensor is claimed
// exactly once: by a binding, as a buffer, or as not run. Errors name the tensor, what was found and what was expected.
Status CheckClaims(const Inventory& inventory, const ModelSpec& spec);

// Checks that the tensors of every binding have a type that can be run, and those of one matrix's experts the same. CheckClaims must
// have succeeded. Errors name the tensor and its type.
Status CheckTypes(const Inventory& inventory, const ModelSpec& spec);

}  // namespace tally
