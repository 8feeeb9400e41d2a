// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/grammar_cache.h"

#include <algorithm>

namespace tally {

Result<std::shared_ptr<Grammar>> GrammarCache::Get(std::string key,
                                                   const std::function<Result<std::shared_ptr<Grammar>>()>& make) {
  {
    const std::scoped_lock lock(mutex_);
    const auto place = std::ranges::find(known_, key, &std::pair<std::string, std::shared_ptr<Grammar>>::first);
    if (place != known_.end() && !place->second->is_full()) {
      known_.splice(known_.begin(), known_, place);
      return known_.front().second;
    }
    if (place != known_.end()) known_.erase(place);
  }
  Result<std::shared_ptr<Grammar>> made = make();
  if (!made.ok()) return made.status();
  const std::scoped_lock lock(mutex_);
  known_.emplace_front(std::move(key), *made);
  uint64_t bytes = 0;
  size_t kept = 0;
  for (auto it = known_.begin(); it != known_.end(); ++it, ++kept) {
    bytes += it->second->bytes();
    if (kept > 0 && (kept >= kMost || bytes > kMostBytes)) {
      known_.erase(it, known_.end());
      break;
    }
  }
  return made;
}

}  // namespace tally
