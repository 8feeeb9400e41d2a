// SPDX-License-Identifier: Apache-2.0
// Compiled grammars, the latest used of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/grammar/grammar.h"

namespace tally {

// Appends a part to a key of several, so that other parts give another key.
inline void AddToKey(std::string_view part, std::string& key) { (key += std::to_string(part.size()) + ':') += part; }

// Any number of threads may use it at once.
class TALLY_API GrammarCache {
 public:
  // What `make` makes, unless that was made before for the same key and is not full. Errors of `make`.
  Result<std::shared_ptr<Grammar>> Get(std::string key, const std::function<Result<std::shared_ptr<Grammar>>()>& make);

 private:
  static constexpr size_t kMost = 64;
  static constexpr uint64_t kMostBytes = uint64_t{512} << 20;  // of all together, about
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<Grammar>>> known_;  // the latest first
};

}  // namespace tally
