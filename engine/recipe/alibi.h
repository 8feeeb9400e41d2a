// SPDX-License-Identifier: Apache-2.0
// Attention with linear biases (Press et al. 2022, arXiv 2108.12409).
#pragma once

#include <cstdint>
#include <vector>

namespace tally {

// The slope of each head. With H heads and P the next power of two, 2^(-bias i / P) for i = 1 .. P; of those, if H is not P, the even
// ones in order, then the odd ones, H together (BLOOM's and MPT's modelling code in transformers; `bias` is MPT's alibi_bias_max).
std::vector<float> AlibiSlopes(int32_t heads, double bias);

}  // namespace tally
