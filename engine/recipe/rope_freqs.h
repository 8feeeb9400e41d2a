// SPDX-License-Identifier: Apache-2.0
// Frequencies of rotary position embedding, with a checkpoint's context-extension rule applied.
//
// Sources: RoPE (Su et al. 2021, arXiv 2104.09864); linear interpolation (Chen et al. 2023, arXiv 2306.15595); YaRN (Peng et al.
// 2023, arXiv 2309.00071, section 3.2 "NTK-by-parts", 3.4 attention temperature); Llama 3.1's rule from Meta's reference code; LongRoPE
// (Ding et al. 2024, arXiv 2402.13753) and dynamic NTK as in transformers' modeling_rope_utils.py, chosen once by the context.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

struct RopeFrequencies {
  std::vector<float> inv_freq;     // [dim/2], radians per position
  std::vector<uint8_t> axes = {};  // M-RoPE: what a frequency turns by, [dim/2]: 0 time, 1 height, 2 width; else empty
  float magnitude = 1;             // cos and sin are multiplied by it (YaRN); scores scale by its square
};

// YaRN's attention temperature: 0.1 mscale ln(factor) + 1; mscale is DeepSeek's.
double YarnMagnitude(double factor, double mscale = 1);

// Divisors of the unscaled frequencies that a checkpoint stores, [dim/2] or empty: for all contexts (GGUF rope_freqs.weight), and
// longrope's.
struct StoredRopeFactors {
  std::span<const float> all, of_short, of_long;
};

// `context`: positions of a sequence; kDynamic and kLongRope choose by it.
// RopeStyle::kNone gives no frequencies. kBadInput: an odd or negative dim; a theta, factor, context or divisor that is not a
// positive finite number; divisors of another length than dim/2, or missing although the recipe says that they are stored.
Result<RopeFrequencies> MakeRopeFrequencies(const Rope& rope, const StoredRopeFactors& stored = {}, int64_t context = 0);

}  // namespace tally
