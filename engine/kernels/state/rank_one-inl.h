// SPDX-License-Identifier: Apache-2.0
// Updates S = w S + k u^T of a tile of a state, with its columns as lanes: fma(k, u, w S) for each element. Columns do not mix, and sums
// over rows have one accumulator a column, so that a result depends neither on how columns are grouped nor on the vectors' length.
#if defined(TALLY_KERNELS_STATE_RANK_ONE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_STATE_RANK_ONE_INL_H
#undef TALLY_KERNELS_STATE_RANK_ONE_INL_H
#else
#define TALLY_KERNELS_STATE_RANK_ONE_INL_H
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/kernels/state/state_tiles.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using StateD = hn::CappedTag<float, 16>;
using StateV = hn::Vec<StateD>;

// Targets with 32 vector registers keep twice as many columns in them.
inline constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64;

// kVectors vectors of neighbouring columns. kTail: the last has `count` lanes.
template <int kVectors, bool kTail>
struct StateColumns {
  static constexpr int kCount = kVectors;
  size_t count = 0;
  HWY_INLINE StateV Load(const float* p, int i) const {
    const StateD d;
    const float* const at = p + i * static_cast<int64_t>(hn::Lanes(d));
    if constexpr (kTail) {
      if (i + 1 == kVectors) return hn::LoadN(d, at, count);
    }
    return hn::LoadU(d, at);
  }
  HWY_INLINE void Store(StateV v, float* p, int i) const {
    const StateD d;
    float* const at = p + i * static_cast<int64_t>(hn::Lanes(d));
    if constexpr (kTail) {
      if (i + 1 == kVectors) return hn::StoreN(v, d, at, count);
    }
    hn::StoreU(v, d, at);
  }
};

// body(columns, first): all of `width` columns, kVectors vectors at a time, then one.
template <int kVectors, class Body>
HWY_INLINE void ForStateColumns(int64_t width, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(StateD()));
  int64_t c = 0;
  for (; c + kVectors * lanes <= width; c += kVectors * lanes) body(StateColumns<kVectors, false>(), c);
  for (; c + lanes <= width; c += lanes) body(StateColumns<1, false>(), c);
  if (c < width) body(StateColumns<1, true>{static_cast<size_t>(width - c)}, c);
}

struct ReplayStep {
  const float *k, *u, *w;  // k and w of the head; u of the tile's columns
};

// Rows [first, first + kRows) of S; elements stay in registers over the steps. kRowDecays: w is of each row.
template <int kRows, bool kRowDecays, class Columns>
HWY_INLINE void ReplayRowsOf(const Columns& columns, int64_t stride, int64_t c, int64_t first, const float* from, float* to,
                             const ReplayStep* steps, size_t n) {
  constexpr int kCount = Columns::kCount;
  const StateD d;
  StateV s[kRows][kCount];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCount; ++i) s[r][i] = columns.Load(from + (first + r) * stride + c, i);
  }
  for (size_t t = 0; t < n; ++t) {
    StateV w = hn::Set(d, steps[t].w[0]);
    StateV u[kCount];
    for (int i = 0; i < kCount; ++i) u[i] = columns.Load(steps[t].u + c, i);
    for (int r = 0; r < kRows; ++r) {
      const StateV k = hn::Set(d, steps[t].k[first + r]);
      if constexpr (kRowDecays) w = hn::Set(d, steps[t].w[first + r]);
      for (int i = 0; i < kCount; ++i) s[r][i] = hn::MulAdd(k, u[i], hn::Mul(w, s[r][i]));
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kCount; ++i) columns.Store(s[r][i], to + (first + r) * stride + c, i);
  }
}

// Replays positions [at, p): the tile of `to` becomes the state after p positions. Returns it, or `from` if there are none. `k_head`: whose
// k the task's head uses. kRowDecays: as in ReplayRowsOf.
template <bool kRowDecays = false>
const float* ReplayTile(const StateTask& task, const ReplayRows& rows, int64_t k_head, const float* from) {
  constexpr int64_t kSteps = 64;
  std::array<ReplayStep, kSteps> steps;
  float* const to = task.To();
  for (int64_t done = 0; done < task.Replayed(); done += kSteps) {
    const int64_t n = std::min(kSteps, task.Replayed() - done);
    for (int64_t t = 0; t < n; ++t) {
      const float* const row = ReplayRow(task.layout, task.table, task.table.at + done + t);
      steps[static_cast<size_t>(t)] = {row + rows.KAt(k_head), row + rows.UAt(task.head) + task.column,
                                       row + rows.WAt(task.head)};
    }
    ForStateColumns<2>(task.columns, [&](const auto& columns, int64_t c) HWY_ATTR {
      int64_t r = 0;
      for (; r + 4 <= task.shape.rows; r += 4)
        ReplayRowsOf<4, kRowDecays>(columns, task.columns, c, r, from, to, steps.data(), static_cast<size_t>(n));
      for (; r < task.shape.rows; ++r)
        ReplayRowsOf<1, kRowDecays>(columns, task.columns, c, r, from, to, steps.data(), static_cast<size_t>(n));
    });
    from = to;
  }
  return from;
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_STATE_RANK_ONE_INL_H
