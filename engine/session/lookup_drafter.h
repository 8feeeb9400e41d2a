// SPDX-License-Identifier: Apache-2.0
// Guesses the next tokens of a text from the text itself ("prompt lookup"; inference with reference, Yang et al. 2023, arXiv 2304.04487):
// finds an earlier occurrence of its last tokens, and proposes the tokens that followed there.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/session/draft_length.h"

namespace tally {

// Guesses depend only on the text and on how many earlier guesses were right, not on what else the engine runs.
class LookupDrafter {
 public:
  static constexpr int64_t kLongest = 4;  // tokens of the text's end that are looked for at most

  // `most`: tokens that are proposed at once; 0: none ever are.
  explicit LookupDrafter(int64_t most) : length_(most) {}
  // To be called before each step that may have drafts. Returns at most `most` tokens that may follow `tokens`. Empty: the last token
  // (after wrong guesses, the last two) does not occur earlier, or drafting pauses. Valid until the next call.
  std::span<const int32_t> Propose(std::span<const int32_t> tokens, int64_t most);
  DraftLength& length() { return length_; }

 private:
  DraftLength length_;
  std::vector<int32_t> proposed_;
};

// An earlier occurrence of the last `length` tokens of `tokens`: of the longest such end (at most kLongest tokens), the latest
// occurrence. `next`: the position after it. length 0: the last token does not occur earlier.
struct EarlierPlace {
  int64_t length = 0, next = 0;
};
EarlierPlace FindEarlier(std::span<const int32_t> tokens);

}  // namespace tally
