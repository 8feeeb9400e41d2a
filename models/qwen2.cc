// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (Qwen team 2024): Llama's decoder with biases of q, k and v.
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kGguf[] = {"qwen2"};
constexpr std::string_view kHf[] = {"Qwen2ForCausalLM"};
constexpr std::string_view kHfTypes[] = {"qwen2"};

void Read(Config& c, ModelSpec& spec) {
  ReadDecoder(c, spec, {.norm_eps = 1e-6, .n_kv_heads = 32, .n_heads = 32, .context = 32768, .vocab = 151936});
  ReadFeedForwardWidth(c, spec.recipe);
  ReadQwenWindows(c, spec.recipe);
  SetBiases(spec.recipe, true, false);
  ExpectSilu(c);
}

}  // namespace

extern constinit const Family kQwen2Family = {"qwen2", kGguf, kHf, kHfTypes, Read};

}  // namespace tally
