// SPDX-License-Identifier: Apache-2.0
// Names of Gemma 2's and 3's tensors in Hugging Face files. Norms multiply by 1 + w; the files store w. Gemma 2 has no norms of
// queries and keys.
#pragma once

#include "models/binding.h"

namespace tally {

#define TALLY_LAYER "~model.layers.#."
inline constexpr RoleName kGemmaNames[] = {
    {Role::kOutputNorm, "~model.norm.weight", Storage::kPlusOne},
    {Role::kAttnNorm, TALLY_LAYER "input_layernorm.weight", Storage::kPlusOne},
    {Role::kAttnPostNorm, TALLY_LAYER "post_attention_layernorm.weight", Storage::kPlusOne},
    {Role::kFfnNorm, TALLY_LAYER "pre_feedforward_layernorm.weight", Storage::kPlusOne},
    {Role::kFfnPostNorm, TALLY_LAYER "post_feedforward_layernorm.weight", Storage::kPlusOne},
    {Role::kQNorm, TALLY_LAYER "self_attn.q_norm.weight", Storage::kPlusOne},
    {Role::kKNorm, TALLY_LAYER "self_attn.k_norm.weight", Storage::kPlusOne}};
#undef TALLY_LAYER

}  // namespace tally
