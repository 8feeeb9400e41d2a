// SPDX-License-Identifier: Apache-2.0
#include "engine/session/lookup_drafter.h"

#include <algorithm>

namespace tally {

EarlierPlace FindEarlier(std::span<const int32_t> tokens) {
  EarlierPlace best;
  const int64_t n = static_cast<int64_t>(tokens.size());
  const auto at = [&](int64_t i) { return tokens[static_cast<size_t>(i)]; };
  for (int64_t last = n - 2; last >= best.length && best.length < LookupDrafter::kLongest; --last) {
    if (at(last) != at(n - 1)) continue;
    const int64_t most = std::min(LookupDrafter::kLongest, last + 1);
    int64_t length = 1;
    while (length < most && at(last - length) == at(n - 1 - length)) ++length;
    if (length > best.length) best = {length, last + 1};
  }
  return best;
}

std::span<const int32_t> LookupDrafter::Propose(std::span<const int32_t> tokens, int64_t most) {
  proposed_.clear();
  most = length_.Next(most);
  if (most == 0) return {};
  const EarlierPlace place = FindEarlier(tokens);
  if (place.length < (length_.missed() ? 2 : 1)) return {};  // a single token is weak evidence
  // A text that repeats itself goes on beyond its end.
  for (size_t i = static_cast<size_t>(place.next); static_cast<int64_t>(proposed_.size()) < most; ++i) {
    proposed_.push_back(i < tokens.size() ? tokens[i] : proposed_[i - tokens.size()]);
  }
  return proposed_;
}

}  // namespace tally
