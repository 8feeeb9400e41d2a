// SPDX-License-Identifier: Apache-2.0
// The tasks of a recurrence whose state is, head by head, a matrix S in tiles of kStateTile columns: [cols / 64][rows][64], then a last
// narrower one. A task does a tile of a head, for the positions of a run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/kernels/op.h"
#include "engine/kernels/state/state_runs.h"

namespace tally {

inline constexpr int64_t kStateTile = 64;

inline int64_t RoundUp16(int64_t n) { return (n + 15) / 16 * 16; }

struct StateTiles {
  int64_t heads, rows, cols;  // of S
  int64_t tiles() const { return (cols + kStateTile - 1) / kStateTile; }
  int64_t floats() const { return heads * rows * cols; }
  int64_t tasks(const StateRuns& runs) const { return static_cast<int64_t>(runs.runs.size()) * heads * tiles(); }
  // Threads take chunks as they become free. With few rows a task is short, and neighbouring ones are one stream of memory.
  TaskPlan Plan(const StateRuns& runs, int threads, size_t scratch_bytes) const {
    const int64_t n = tasks(runs), rows_of_run = n == 0 ? 0 : static_cast<int64_t>(runs.order.size() / runs.runs.size());
    return {n, rows_of_run >= 8 ? 1 : std::max<int64_t>(1, n / (8 * int64_t{threads})), scratch_bytes};
  }
};

struct StateTask {
  const StateLayout& layout;
  const StateTiles& shape;
  const StateRun& run;
  const StateTable& table;
  int64_t head = 0, column = 0, columns = 0;
  int64_t offset = 0;  // of the tile, in floats of a state
  bool first = false;  // tile of its head
  bool last = false;   // of all

  StateTask(const StateLayout& state, const StateTiles& tiles, const StateRuns& runs, std::span<const StateTable> states,
            int64_t task)
      : layout(state),
        shape(tiles),
        run(runs.runs[static_cast<size_t>(task / (tiles.heads * tiles.tiles()))]),
        table(states[static_cast<size_t>(run.table)]) {
    const int64_t tile = task % tiles.tiles();
    head = task / tiles.tiles() % tiles.heads;
    column = tile * kStateTile;
    columns = std::min(kStateTile, tiles.cols - column);
    offset = (head * tiles.cols + column) * tiles.rows;
    first = tile == 0;
    last = head + 1 == tiles.heads && tile + 1 == tiles.tiles();
  }

  int64_t floats() const { return shape.rows * columns; }
  float* To() const { return StateRecurrence(table.to) + offset; }
  // The tile that the first update reads: that of `from`. Without `from`, zeros, which this writes to To().
  const float* From() const {
    if (table.from != nullptr) return StateRecurrence(table.from) + offset;
    std::memset(To(), 0, static_cast<size_t>(floats()) * sizeof(float));
    return To();
  }
  // Positions that are replayed before the run's first.
  int64_t Replayed() const { return run.position - table.at; }

  // After the run's row t: writes the tile of `mid` if the state after that row is kept.
  void KeepMid(int64_t t) const {
    if (table.mid == nullptr || run.position + t + 1 != table.mid_at) return;
    std::memcpy(StateRecurrence(table.mid) + offset, To(), static_cast<size_t>(floats()) * sizeof(float));
    ZeroPadding(table.mid);
  }
  // After the last row.
  void Finish() const { ZeroPadding(table.to); }

 private:
  void ZeroPadding(uint8_t* state) const {
    if (!last) return;
    float* const s = StateRecurrence(state);
    std::fill(s + shape.floats(), s + layout.recurrence, 0.0f);
  }
};

// A row that replays S = w S + k u^T: k of each of k_heads, u and w of each of u_heads, zeros up to a multiple of 16.
struct ReplayRows {
  int64_t k_heads, k_dim, u_heads, u_dim;
  int64_t w_dim = 1;  // k_dim: each row of S has a w of its own
  int64_t used() const { return k_heads * k_dim + u_heads * (u_dim + w_dim); }
  int64_t floats() const { return RoundUp16(used()); }
  int64_t KAt(int64_t head) const { return head * k_dim; }
  int64_t UAt(int64_t head) const { return k_heads * k_dim + head * u_dim; }
  int64_t WAt(int64_t head) const { return k_heads * k_dim + u_heads * u_dim + head * w_dim; }

  // Writes what a row holds besides u: the head's w, and the k of k_head unless an earlier head has written it. `row` null: not kept.
  void Keep(const StateTask& task, int64_t k_head, bool first_of_k_head, const float* k, const float* w, float* row) const {
    if (row == nullptr) return;
    if (task.first) std::memcpy(row + WAt(task.head), w, static_cast<size_t>(w_dim) * sizeof(float));
    if (task.first && first_of_k_head) std::memcpy(row + KAt(k_head), k, static_cast<size_t>(k_dim) * sizeof(float));
    if (task.last) std::fill(row + used(), row + floats(), 0.0f);
  }
};

}  // namespace tally
