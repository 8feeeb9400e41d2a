// SPDX-License-Identifier: Apache-2.0
#include "loaders/checks.h"

#include <algorithm>

#include "loaders/inventory/message.h"

namespace tally::internal {

Status CheckUniqueNames(const std::string& path, const std::vector<StoredTensor>& tensors) {
  std::vector<const std::string*> names;
  names.reserve(tensors.size());
  for (const StoredTensor& t : tensors) names.push_back(&t.name);
  std::sort(names.begin(), names.end(), [](const std::string* a, const std::string* b) { return *a < *b; });
  const auto twice =
      std::adjacent_find(names.begin(), names.end(), [](const std::string* a, const std::string* b) { return *a == *b; });
  if (twice == names.end()) return {};
  return BadInput(Printable(path) + ": tensor " + Quote(**twice) + " appears twice");
}

}  // namespace tally::internal
