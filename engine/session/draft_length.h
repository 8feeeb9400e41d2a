// SPDX-License-Identifier: Apache-2.0
// How many tokens are drafted at once: more while guesses are right, fewer and less often while they are wrong. Internal to the session.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tally {

class DraftLength {
 public:
  static constexpr int64_t kMostPause = 31;  // steps

  // `most`: tokens that are drafted at once; 0: none ever are.
  explicit DraftLength(int64_t most) : most_(most), length_(most) {}
  // To be called before each step that may have drafts: the tokens to draft, at most `most`; 0 while it pauses.
  int64_t Next(int64_t most) {
    most = std::min(most, length_);
    if (most <= 0) return 0;
    if (pause_ == 0) return most;
    --pause_;
    return 0;
  }
  bool missed() const { return misses_ > 0; }  // the last drafts cost more than they saved
  // `drafted` of the proposed tokens ran, and the first `accepted` of them were right. `row_cost`: the cost of one more row, as a
  // fraction of a step of one row. Drafting pays if at least that fraction of the drafts is right.
  void Settle(int64_t drafted, int64_t accepted, double row_cost) {
    if (drafted == 0) return;
    rate_ += (static_cast<double>(accepted) / static_cast<double>(drafted) - rate_) / 4;
    if (accepted > 0 && rate_ >= row_cost) {
      misses_ = 0;
      length_ = std::min(most_, 2 * std::max(length_, accepted));
      return;
    }
    // 0, 1, 3, 7, ... steps
    pause_ = std::min(kMostPause, (int64_t{1} << std::min<int64_t>(misses_, 6)) - 1);
    ++misses_;
    length_ = std::max<int64_t>(1, length_ / 2);
  }

 private:
  int64_t most_;
  int64_t length_;      // tokens that are drafted; half as many after a miss, twice after a hit
  double rate_ = 1;     // part of the tokens that are right; recent ones count more
  int64_t misses_ = 0;  // steps in a row whose drafts did not pay
  int64_t pause_ = 0;   // steps without a draft
};

}  // namespace tally
