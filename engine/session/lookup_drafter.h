// SPDX-License-Identifier: Apache-2.0
// Guesses at the next tokens of a text from the text itself ("prompt lookup"; inference with reference, Yang et al. 2023, arXiv 2304.04487):
// where its end stood before, what followed then is proposed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/session/draft_length.h"

namespace tally {

// Guesses are a function of the text and of how earlier ones fared, so that a request drafts the same whenever it may.
class LookupDrafter {
 public:
  static constexpr int64_t kLongest = 4;  // tokens of the text's end that are looked for at most

  // `most`: tokens that are proposed at once; 0: none ever are.
  explicit LookupDrafter(int64_t most) : length_(most) {}
  // To be called before each step that may have drafts. At most `most` tokens that may follow `tokens`; none: the end of the text is new,
  // or guesses were wrong of late. Valid until the next call.
  std::span<const int32_t> Propose(std::span<const int32_t> tokens, int64_t most);
  DraftLength& length() { return length_; }

 private:
  DraftLength length_;
  std::vector<int32_t> proposed_;
};

// The most recent place at which the end of `tokens` stood before: how many of its tokens match, kLongest at most and the longest there
// is, and the position after them. length 0: the last token is new.
struct EarlierPlace {
  int64_t length = 0, next = 0;
};
EarlierPlace FindEarlier(std::span<const int32_t> tokens);

}  // namespace tally
