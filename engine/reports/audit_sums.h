// SPDX-License-Identifier: Apache-2.0
// Sums of an audit's rows.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "counters/books/step_audit.h"
#include "engine/render/table.h"

namespace tally {

// Rows, added up over steps and layers.
struct AuditSums {
  uint64_t rows = 0, differing = 0, closed = 0;
  std::optional<uint64_t> files = {}, run = {};
  void Add(const books::AuditRow& row);
  void AddCells(std::vector<Cell>& row) const;  // "rows", "closed form", "files", "run", ""
};

}  // namespace tally
