// SPDX-License-Identifier: Apache-2.0
// Log probabilities of tokens, as the model gives them: before bias, penalties, temperature and filters. Natural logarithms.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/export.h"

namespace tally {

struct TokenLogprob {
  int32_t token = -1;
  double logprob = 0;  // minus infinity if the logit is that, or NaN
};

struct TokenLogprobs {
  double logprob = 0;                  // of the token itself
  int64_t rank = 0;                    // how many tokens are at least as probable, itself included
  std::vector<TokenLogprob> top = {};  // the most probable tokens, the best first; of equal ones the lower id
};

// The log probability of a token in `logits` [vocab], and those of the `n` best.
TALLY_API TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t n);

}  // namespace tally
