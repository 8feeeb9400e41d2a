// SPDX-License-Identifier: Apache-2.0
// A family reads a checkpoint's hyper-parameters into a Recipe and names its tensors.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"
#include "models/binding.h"
#include "models/config.h"
#include "models/readings.h"

namespace tally {

// quantization_config.quant_method as published checkpoints of a family have it: the experts' matrices are of this type, and the rest is
// BF16 if torch_dtype does not say.
struct QuantMethod {
  std::string_view name;  // empty: none
  DType expert_type = DType::kF32;
};

struct Family {
  std::string_view name;                                 // Recipe::family, unless read() sets another
  std::span<const std::string_view> gguf_architectures;  // general.architecture
  std::span<const std::string_view> hf_architectures;    // config.json architectures[0]
  std::span<const std::string_view> hf_model_types;      // config.json model_type, used if there are no architectures
  // Fills recipe, buffers and not_run, for both formats, with or without tensors. A missing key without a published default is an
  // error naming key and file. Errors are kept in Config.
  void (*read)(Config&, ModelSpec&);
  std::span<const RoleName> hf_names = {};    // names that differ from HfDecoderNames()
  std::span<const RoleName> gguf_names = {};  // names that differ from GgufName()
  QuantMethod quant_method = {};
  std::string_view not_run = {};  // the feature of its models that nothing runs, so that they are only counted; empty: they run
  // The first of its layers for multi-token prediction can be run: it has the names of a layer behind the last one, whose mixer and
  // feed-forward are its own too, and roles kNext*.
  bool runs_prediction = false;
};

// All families (registry.cc).
std::span<const Family* const> Families();

// The family of a checkpoint or configuration. An unknown architecture is an error that names it and the known ones.
Result<const Family*> FamilyOf(const Inventory& inventory);

// Finds the family of `inventory` and reads recipe and bindings. The tensors are not checked and may be missing. Models that the
// engine cannot run are read too. Errors as of FamilyOf. `made_with`: as of BindRoles. `prediction`: a further stack has the first
// layer for multi-token prediction; kBadInput: the checkpoint has none, or those of its family cannot be run.
Result<ModelSpec> ReadFamily(const Inventory& inventory, std::optional<DType> made_with = std::nullopt, bool prediction = false);

// ReadFamily, then CheckQuantMethod, and CheckClaims and CheckTypes (binding.h).
Result<ModelSpec> ReadModelSpec(const Inventory& inventory, bool prediction = false);

// CheckClaims' error, with properties of the configuration that may be the reason.
Status WithReasons(const Status& claimed, const Inventory& inventory, const ModelSpec& spec);

// kBadInput: the configuration names a method of quantisation that cannot be read. Those of FP8 can, as far as their tensors can be
// claimed, and the family's own (Family::quant_method). Others change weights when they are loaded, whatever is stored.
Status CheckQuantMethod(const Inventory& inventory);

// The weight types that a configuration without tensors names: dtype or torch_dtype, F32 by default, and Family::quant_method.
struct CountTypes {
  DType type = DType::kF32, expert_type = DType::kF32;
  std::string other_method;  // a method of quantisation that the types do not describe; empty: none
  std::string note;          // not empty: the configuration does not say the type
};
Result<CountTypes> ReadCountTypes(const Inventory& inventory);

// The method of quantisation that a configuration names ("fp8", "gptq", "MLX's affine format"); "unnamed": it is quantised without a name;
// empty: it is not.
std::string QuantMethodOf(const Metadata& metadata);

// An architecture's name in lower case, letters and digits only, without "ForCausalLM" and the like.
std::string BareArchitecture(std::string_view architecture);

// An architecture that is refused by name, whatever its files have.
struct UnsupportedArchitecture {
  std::string_view hf, gguf;  // its name in architectures, in general.architecture; empty: none. '*': whatever follows
  std::string_view why;       // "it has state-space layers"
};
std::span<const UnsupportedArchitecture> UnsupportedArchitectures();

// The names in general.architecture of a family that is only counted; its GGUF files are refused by them.
std::vector<std::string_view> CountedInGguf(const Family& family);

// Why an architecture is refused, by any of its names: GGUF's, an entry of architectures, or model_type. Empty: it is not known as refused.
std::string WhyUnsupported(std::string_view architecture);

}  // namespace tally
