// SPDX-License-Identifier: Apache-2.0
// The memory of a sequence in a recurrent layer, and how a step's rows find it.
//
// A state is what a layer knows after some positions: the recurrence's own floats, then the tail, which is the convolution's inputs of the
// last taps - 1 positions, the oldest first. All bytes of it are written.
//
// A row belongs to one position: the convolution's inputs, then what replays a step of the recurrence. Rows are kept of the last positions
// only, in blocks of kStateRows.
//
// To go back to an earlier position, a sequence takes an earlier state of it, and the next step replays the positions in between from their
// rows. That gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kernels/kv_store/kv_store.h"

namespace tally {

inline constexpr int64_t kStateRows = 32;  // positions of a block of rows

struct StateLayout {
  int64_t recurrence = 0;  // floats of the recurrence's state; a multiple of 16
  int64_t replay = 0;      // floats of a row that replay the recurrence; a multiple of 16
  int64_t taps = 1;        // of the convolution
  int64_t channels = 0;    // of the convolution
  bool operator==(const StateLayout&) const = default;

  int64_t tail() const { return taps - 1; }
  int64_t state_floats() const { return recurrence + tail() * channels; }
  int64_t row_floats() const { return channels + replay; }
  size_t state_bytes() const { return static_cast<size_t>(state_floats()) * sizeof(float); }
  size_t rows_bytes() const { return static_cast<size_t>(kStateRows * row_floats()) * sizeof(float); }  // of a block
};

// The memory of one sequence in a layer, for a step that begins at position p.
struct StateTable {
  const uint8_t* from = nullptr;  // the state after `at` positions; null: zeros
  int64_t at = 0;                 // at most p; positions [at, p) are replayed from their rows
  uint8_t* to = nullptr;          // gets the state after the step's last position; may be `from`, if at = p
  uint8_t* mid = nullptr;         // gets the state after `mid_at` positions, p < mid_at < the step's end; null: there is none
  int64_t mid_at = 0;
  uint8_t* const* rows = nullptr;  // rows[i]: the block of position i kStateRows; null: its rows are not kept
  int64_t count = 0;               // blocks
};

// The rows of a sequence in a step: of the batch, rows order[begin], ..., order[begin + rows - 1], at consecutive positions.
struct StateRun {
  int32_t table = 0;     // index into the tables
  int32_t position = 0;  // of its first row
  int32_t begin = 0, rows = 0;
};

// A step's rows by sequence.
struct StateRuns {
  std::span<const StateRun> runs;
  std::span<const int32_t> order;  // [n]
};

inline float* StateRow(const StateLayout& layout, const StateTable& table, int64_t position) {
  uint8_t* const block = table.rows[position / kStateRows];
  return block == nullptr ? nullptr : reinterpret_cast<float*>(block) + position % kStateRows * layout.row_floats();
}

}  // namespace tally
