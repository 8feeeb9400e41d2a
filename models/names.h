// What most checkpoints call their tensors. A family's own table goes first where it differs.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "models/binding.h"
#include "models/config.h"

namespace tally {

// GGUF has one name per role for all architectures (llama.cpp's gguf-py/gguf/constants.py).
std::span<const RoleName> GgufNames();

// Hugging Face decoders in Llama's manner: model.layers.#.self_attn.q_proj and its like.
std::span<const RoleName> HfDecoderNames();

// The last steps of a family's reading: generation defaults, the first error there was, the bindings.
Result<ModelSpec> Finish(Config& config, ModelSpec spec, std::initializer_list<std::span<const RoleName>> tables,
                         std::string_view prefix = "");

}  // namespace tally
