// SPDX-License-Identifier: Apache-2.0
#include "engine/session/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace tally {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

double Logit(float x) { return std::isnan(x) ? kNone : static_cast<double>(x); }

}  // namespace

TokenLogprobs LogprobsOf(std::span<const float> logits, int32_t token, int32_t n) {
  double most = kNone;
  for (const float x : logits) most = std::max(most, Logit(x));
  double sum = 0;
  for (const float x : logits) sum += std::exp(Logit(x) - most);
  const double log_sum = most + std::log(sum);
  const auto logprob = [&](size_t id) { return std::isfinite(log_sum) ? Logit(logits[id]) - log_sum : kNone; };
  const double own = Logit(logits[static_cast<size_t>(token)]);
  TokenLogprobs found{.logprob = logprob(static_cast<size_t>(token)),
                      .rank = std::ranges::count_if(logits, [own](float x) { return Logit(x) >= own; })};
  const auto better = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob || (a.logprob == b.logprob && a.token < b.token);
  };
  for (size_t id = 0; n > 0 && id < logits.size(); ++id) {
    const TokenLogprob one{static_cast<int32_t>(id), logprob(id)};
    if (static_cast<int32_t>(found.top.size()) == n) {
      if (!better(one, found.top.back())) continue;
      found.top.pop_back();
    }
    found.top.insert(std::upper_bound(found.top.begin(), found.top.end(), one, better), one);
  }
  return found;
}

}  // namespace tally
