// SPDX-License-Identifier: Apache-2.0
// Checks, counts and descriptions of a step's runs, shared by the ops on states, and the places of a state's parts.
#pragma once

#include <span>

#include "counters/cost/cost.h"
#include "counters/cost/op_description.h"
#include "engine/base/status.h"
#include "engine/kernels/state/state.h"

namespace tally {

// Whether an op reads the rows of positions before the step, and from which one of a run on.
enum class EarlierRows : uint8_t {
  kTail,    // those of the last taps - 1 positions
  kReplay,  // all from StateTable::at on
};

// Ok if the runs hold each of n rows once, and their tables have what the op reads and writes.
Status CheckRuns(const StateLayout& layout, const StateRuns& runs, std::span<const StateTable> states, int64_t n,
                 EarlierRows earlier);

// kCalls, kRows, kRuns; with `replay` also kReplayed.
CostAmounts StateAmounts(const StateRuns& runs, std::span<const StateTable> states, bool replay);
// Adds row i's to amounts[groups[i]].
void AddStateRowAmounts(const StateRuns& runs, std::span<const StateTable> states, bool replay, std::span<const uint32_t> groups,
                        std::span<CostAmounts> amounts);

// Adds what a recurrence does beyond useful work. It reads the rows of replayed positions, and writes the rows of the step, counted as if
// all were kept. `mid` is not counted.
void AddReplayBytes(const StateLayout& layout, const CostAmounts& n, Cost& cost);

// [table, position, rows, replayed positions] of each run, one after another; and the order of the rows.
void DescribeRuns(const StateRuns& runs, std::span<const StateTable> states, OpDescription& d);

// The recurrence's floats of a state, and its tail [taps - 1, channels].
inline float* StateRecurrence(uint8_t* state) { return reinterpret_cast<float*>(state); }
inline const float* StateRecurrence(const uint8_t* state) { return reinterpret_cast<const float*>(state); }
inline float* StateTail(const StateLayout& layout, uint8_t* state) { return StateRecurrence(state) + layout.recurrence; }
inline const float* StateTail(const StateLayout& layout, const uint8_t* state) {
  return StateRecurrence(state) + layout.recurrence;
}
// The part of a row that replays the recurrence; null if the row is not kept.
inline float* ReplayRow(const StateLayout& layout, const StateTable& table, int64_t position) {
  float* const row = StateRow(layout, table, position);
  return row == nullptr ? nullptr : row + layout.channels;
}

}  // namespace tally
