// Frequencies of rotary position embedding, with a checkpoint's context-extension rule applied.
//
// Sources: RoPE (Su et al. 2021, arXiv 2104.09864); linear interpolation (Chen et al. 2023, arXiv 2306.15595); YaRN (Peng et al.
// 2023, arXiv 2309.00071, section 3.2 "NTK-by-parts", 3.4 attention temperature); Llama 3.1's rule from Meta's reference code.
#pragma once

#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/recipe/recipe.h"

namespace tally {

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [dim/2], radians per position
  float magnitude = 1;          // cos and sin are multiplied by it (YaRN); scores scale by its square
};

// YaRN's attention temperature: 0.1 mscale ln(factor) + 1; mscale is DeepSeek's.
double YarnMagnitude(double factor, double mscale = 1);

// `freq_factors` are the checkpoint's divisors of the unscaled frequencies (GGUF rope_freqs.weight), [dim/2]; empty: none.
// RopeStyle::kNone gives no frequencies. kBadInput: an odd or negative dim; a theta, factor, context or divisor that is not a
// positive finite number; divisors of another length than dim/2, or missing although rope.freq_factors is set.
Result<RopeFrequencies> MakeRopeFrequencies(const Rope& rope, std::span<const float> freq_factors = {});

}  // namespace tally
