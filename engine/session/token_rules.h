// SPDX-License-Identifier: Apache-2.0
// Which tokens of an answer may be drawn, besides what a grammar says.
#pragma once

#include <cstdint>
#include <vector>

namespace tally {

// All tokens are of the vocabulary.
struct TokenRules {
  int64_t min_tokens = 0;                            // before so many, no end token is drawn and none of `stop`
  std::vector<int32_t> stop = {};                    // the answer ends before any of these
  std::vector<int32_t> allowed = {};                 // no other token is drawn; empty: any may be
  std::vector<int32_t> never = {};                   // tokens that are not drawn
  std::vector<std::vector<int32_t>> forbidden = {};  // sequences, none empty, that never stand in the answer
  // Whether they say anything about what is drawn.
  bool Hold() const { return min_tokens > 0 || !allowed.empty() || !never.empty() || !forbidden.empty(); }
};

}  // namespace tally
