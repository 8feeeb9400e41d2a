// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/state/state_runs.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace tally {
namespace {

Status CheckTable(const StateLayout& layout, const StateRun& run, const StateTable& table, EarlierRows earlier) {
  const std::string which = "table " + std::to_string(run.table);
  const int64_t position = run.position, end = position + run.rows;
  if (table.to == nullptr) return InternalError(which + " has no state to write");
  if (table.at < 0 || table.at > position) {
    return InternalError(which + " has the state after " + std::to_string(table.at) + " positions, the step begins at " +
                         std::to_string(position));
  }
  if (table.at > 0 && table.from == nullptr) return InternalError(which + " has no state to read");
  if (table.at < position && table.from == table.to) {
    return InternalError(which + " would overwrite the state from which positions are done again");
  }
  if (table.mid != nullptr && (table.mid_at <= position || table.mid_at >= end || table.mid == table.to)) {
    return InternalError(which + " wants a state after " + std::to_string(table.mid_at) + " positions of a step of positions " +
                         std::to_string(position) + " to " + std::to_string(end));
  }
  if (end > table.count * kStateRows) {
    return InternalError(which + " holds " + std::to_string(table.count * kStateRows) + " positions, the step ends at " +
                         std::to_string(end));
  }
  const int64_t first = earlier == EarlierRows::kReplay ? table.at : std::max(table.at, position - layout.tail());
  for (int64_t i = std::max<int64_t>(first, 0); i < position; ++i) {
    if (table.rows[i / kStateRows] == nullptr) {
      return InternalError(which + " does not have the row of position " + std::to_string(i));
    }
  }
  return {};
}

void AddRun(std::span<const StateTable> states, const StateRun& run, bool replay, CostAmounts& n) {
  ++n[Amount::kRuns];
  if (replay) n[Amount::kReplayed] += static_cast<uint64_t>(run.position - states[static_cast<size_t>(run.table)].at);
}

}  // namespace

Status CheckRuns(const StateLayout& layout, const StateRuns& runs, std::span<const StateTable> states, int64_t n,
                 EarlierRows earlier) {
  if (static_cast<int64_t>(runs.order.size()) != n) return InternalError("runs do not order the step's rows");
  std::vector<bool> seen(static_cast<size_t>(n));
  for (const int32_t row : runs.order) {
    if (row < 0 || row >= n || seen[static_cast<size_t>(row)]) return InternalError("runs do not hold each row once");
    seen[static_cast<size_t>(row)] = true;
  }
  int64_t rows = 0;
  for (const StateRun& run : runs.runs) {
    if (run.table < 0 || static_cast<size_t>(run.table) >= states.size()) {
      return InternalError("a run names table " + std::to_string(run.table) + " of " + std::to_string(states.size()));
    }
    if (run.rows < 1 || run.begin != rows || run.position < 0) return InternalError("runs do not follow each other");
    rows += run.rows;
    TALLY_RETURN_IF_ERROR(CheckTable(layout, run, states[static_cast<size_t>(run.table)], earlier));
  }
  if (rows != n) return InternalError("runs hold " + std::to_string(rows) + " of " + std::to_string(n) + " rows");
  return {};
}

CostAmounts StateAmounts(const StateRuns& runs, std::span<const StateTable> states, bool replay) {
  CostAmounts n;
  n[Amount::kCalls] = runs.order.empty() ? 0 : 1;
  n[Amount::kRows] = runs.order.size();
  for (const StateRun& run : runs.runs) AddRun(states, run, replay, n);
  return n;
}

void AddStateRowAmounts(const StateRuns& runs, std::span<const StateTable> states, bool replay, std::span<const uint32_t> groups,
                        std::span<CostAmounts> amounts) {
  for (const int32_t row : runs.order) ++amounts[groups[static_cast<size_t>(row)]][Amount::kRows];
  for (const StateRun& run : runs.runs) {
    const int32_t first = runs.order[static_cast<size_t>(run.begin)];
    AddRun(states, run, replay, amounts[groups[static_cast<size_t>(first)]]);
  }
}

void AddReplayBytes(const StateLayout& layout, const CostAmounts& n, Cost& cost) {
  const uint64_t row = static_cast<uint64_t>(layout.replay) * sizeof(float);
  cost.AddBytes(ByteKind::kStateRead, n[Amount::kReplayed] * row);
  cost.AddBytes(ByteKind::kStateWritten, n[Amount::kRows] * row);
}

void DescribeRuns(const StateRuns& runs, std::span<const StateTable> states, OpDescription& d) {
  std::vector<int64_t> list;
  for (const StateRun& run : runs.runs) {
    const int64_t at = static_cast<size_t>(run.table) < states.size() ? states[static_cast<size_t>(run.table)].at : run.position;
    list.insert(list.end(), {run.table, run.position, run.rows, run.position - at});
  }
  d.Set("runs", std::move(list));
  d.Set("order", std::vector<int64_t>(runs.order.begin(), runs.order.end()));
}

}  // namespace tally
