// SPDX-License-Identifier: Apache-2.0
// Shared by families with Mamba-2.
#pragma once

#include <limits>
#include <string_view>

#include "engine/recipe/model_spec.h"
#include "models/binding.h"
#include "models/config.h"

namespace tally {

// Hugging Face's keys of the sizes, with the published defaults; 0: required.
struct Mamba2Keys {
  std::string_view heads = "mamba_n_heads", head_dim = "mamba_d_head", state_dim = "mamba_d_state", groups = "mamba_n_groups",
                   taps = "mamba_d_conv", conv_bias = "mamba_conv_bias", proj_bias = "mamba_proj_bias";
  int32_t n_heads = 128, dim = 0, n_state = 256, n_groups = 1;
  // The width of all heads if head_dim is "auto" or missing; 0: mamba_expand times the model's.
  int32_t inner = 0;
};
// Sizes of Mamba-2 and its convolution; the output is gated, then normalised, in GGUF by group.
void ReadMamba2(Config& config, Recipe& recipe, const Mamba2Keys& keys);

// Entries of tables of names; `mixer`: what stands before the tensors' own names.
// clang-format off
#define TALLY_MAMBA_GGUF                                       \
  {Role::kSsmConv, "blk.#.ssm_conv1d.weight", Storage::kTaps}, \
  {Role::kSsmA, "blk.#.ssm_a"},                                \
  {Role::kSsmD, "blk.#.ssm_d"}
#define TALLY_MAMBA_HF(mixer)                                    \
  {Role::kSsmIn, mixer "in_proj.weight"},                        \
  {Role::kSsmConv, mixer "conv1d.weight", Storage::kConv1d},     \
  {Role::kSsmConvBias, mixer "conv1d.bias"},                     \
  {Role::kSsmDtBias, mixer "dt_bias"},                         \
  {Role::kSsmA, mixer "A_log", Storage::kMinusExp},              \
  {Role::kSsmD, mixer "D"},                                      \
  {Role::kSsmNorm, mixer "norm.weight"},                         \
  {Role::kSsmOut, mixer "out_proj.weight"}
// clang-format on

}  // namespace tally
