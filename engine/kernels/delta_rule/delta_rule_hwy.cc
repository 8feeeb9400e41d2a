// SPDX-License-Identifier: Apache-2.0
// DeltaRuleOp with columns of the state as lanes. Each row takes one pass over a tile: it updates the state and makes the next row's
// products while the tile is in the first-level cache.
#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#ifndef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/delta_rule/delta_rule_hwy.cc"
#endif
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/kernels/delta_rule/delta_rule.h"
#include "engine/kernels/delta_rule/delta_rule_tiles.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/state/rank_one-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Columns that are in registers together.
inline constexpr int kDeltaVectors = kManyRegisters ? 4 : 2;

// Makes the factors of a row's products. q' = scale q; returns k . q' in 16 lanes, whatever the vectors' length: lane i sums the elements
// i, i + 16, ... in ascending order. kChannels: `scaled` gets w q', and `decayed` w k; else q', and nothing.
template <bool kChannels>
HWY_INLINE float PrepareRow(const float* k, const float* q, const float* w, float scale, int64_t n, float* scaled,
                            float* decayed) {
  const StateD d;
  const size_t lanes = hn::Lanes(d);
  const StateV factor = hn::Set(d, scale);
  HWY_ALIGN float sums[16] = {};
  for (size_t lane = 0; lane < 16; lane += lanes) {
    StateV sum = hn::Zero(d);
    for (size_t i = lane; i < static_cast<size_t>(n); i += 16) {
      const size_t count = std::min(static_cast<size_t>(n) - i, lanes);
      const auto load = [&](const float* p)
                            HWY_ATTR { return count == lanes ? hn::LoadU(d, p + i) : hn::LoadN(d, p + i, count); };
      const auto store = [&](StateV x, float* p)
                             HWY_ATTR { count == lanes ? hn::StoreU(x, d, p + i) : hn::StoreN(x, d, p + i, count); };
      const StateV x = hn::Mul(factor, load(q)), key = load(k);
      sum = hn::MulAdd(key, x, sum);
      if constexpr (kChannels) {
        const StateV decay = load(w);
        store(hn::Mul(decay, x), scaled);
        store(hn::Mul(decay, key), decayed);
      } else {
        store(x, scaled);
      }
    }
    hn::StoreU(sum, d, sums + lane);
  }
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

// A row's part of the pass over the state. kUpdate: S = w S + k u^T, from `from` to `to`. kProducts: a += S^T k_next, b += S^T q_next, of
// the state after the update. kChannels: w has K elements, else one.
template <bool kChannels, bool kUpdate, bool kProducts, class Columns>
HWY_INLINE void Pass(const Columns& columns, int64_t k_dim, int64_t stride, const float* from, float* to,
                     const float* HWY_RESTRICT w, const float* HWY_RESTRICT k, const StateV* u, const float* HWY_RESTRICT k_next,
                     const float* HWY_RESTRICT q_next, StateV* a, StateV* b) {
  constexpr int kCount = Columns::kCount;
  const StateD d;
  StateV decay = kUpdate ? hn::Set(d, *w) : hn::Zero(d);
  for (int64_t r = 0; r < k_dim; ++r) {
    if constexpr (kChannels && kUpdate) decay = hn::Set(d, w[r]);
    for (int i = 0; i < kCount; ++i) {
      StateV s = columns.Load(from + r * stride, i);
      if constexpr (kUpdate) {
        s = hn::MulAdd(hn::Set(d, k[r]), u[i], hn::Mul(decay, s));
        columns.Store(s, to + r * stride, i);
      }
      if constexpr (kProducts) {
        a[i] = hn::MulAdd(s, hn::Set(d, k_next[r]), a[i]);
        b[i] = hn::MulAdd(s, hn::Set(d, q_next[r]), b[i]);
      }
    }
  }
}

// What the update of a row and the products of the next row read.
struct DeltaRow {
  const float *k = nullptr, *decay = nullptr;
  const float *by_k = nullptr, *by_q = nullptr;  // what the state before the row is multiplied by: k and q', or w k and w q'
  float score = 0;
};

template <bool kChannels>
class DeltaTile {
 public:
  DeltaTile(const DeltaRuleOp& op, const StateTask& task, float* scratch)
      : op_(op),
        task_(task),
        k_dim_(op.k_dim()),
        key_head_(op.KeyHead(task.head)),
        queries_{scratch, scratch + RoundUp16(k_dim_)},
        keys_{scratch + 2 * RoundUp16(k_dim_), scratch + 3 * RoundUp16(k_dim_)} {}

  void Run() {
    const ReplayRows replay = RowsOf(op_);
    const float* from = ReplayTile<kChannels>(task_, replay, key_head_, task_.From());
    const int64_t at = task_.head * op_.v_dim() + task_.column, n = task_.run.rows;
    const bool first_of_key_head = FirstOfKeyHead(op_, task_.head);
    DeltaRow row = Prepare(0), next;
    ForStateColumns<kDeltaVectors>(task_.columns, [&](const auto& columns, int64_t c) HWY_ATTR { First(columns, c, from, row); });
    for (int64_t t = 0; t < n; ++t) {
      const int64_t r = Row(t);
      const bool more = t + 1 < n;
      if (more) next = Prepare(t + 1);
      if (t + 2 < n) PrefetchRow(Row(t + 2), at);
      float* const kept = ReplayRow(op_.layout, task_.table, task_.run.position + t);
      const Outputs o = {op_.beta.Row(r)[task_.head], op_.v.Row(r) + at, op_.out.Row(r) + at,
                         kept == nullptr ? nullptr : kept + replay.UAt(task_.head) + task_.column};
      ForStateColumns<kDeltaVectors>(task_.columns, [&](const auto& columns, int64_t c) HWY_ATTR {
        if (more) {
          Step<true>(columns, c, from, row, next, o);
        } else {
          Step<false>(columns, c, from, row, next, o);
        }
      });
      replay.Keep(task_, key_head_, first_of_key_head, row.k, row.decay, kept);
      from = task_.To();
      task_.KeepMid(t);
      row = next;
    }
    task_.Finish();
  }

 private:
  struct Outputs {
    float beta;
    const float* v;
    float *out, *u;  // of the tile's columns; u: null: not kept
  };

  int64_t Row(int64_t t) const { return op_.runs.order[static_cast<size_t>(task_.run.begin + t)]; }
  DeltaRow Prepare(int64_t t) {
    const int64_t r = Row(t), at = key_head_ * k_dim_;
    float *const q = queries_[t % 2], *const decayed = kChannels ? keys_[t % 2] : nullptr;
    const float *const k = op_.k.Row(r) + at, *const w = op_.decay.Row(r) + task_.head * op_.decay_dim();
    const float score = PrepareRow<kChannels>(k, op_.q.Row(r) + at, w, op_.q_scale, k_dim_, q, decayed);
    return {k, w, kChannels ? decayed : k, q, score};
  }
  void PrefetchRow(int64_t r, int64_t at) const {
    PrefetchFloats(op_.k.Row(r) + key_head_ * k_dim_, k_dim_);
    PrefetchFloats(op_.q.Row(r) + key_head_ * k_dim_, k_dim_);
    if (kChannels) PrefetchFloats(op_.decay.Row(r) + task_.head * k_dim_, k_dim_);
    PrefetchFloats(op_.v.Row(r) + at, task_.columns);
    PrefetchFloats(op_.out.Row(r) + at, task_.columns);
  }

  // The products of the first row.
  template <class Columns>
  HWY_INLINE void First(const Columns& columns, int64_t c, const float* from, const DeltaRow& row) {
    StateV a[Columns::kCount], b[Columns::kCount];
    for (int i = 0; i < Columns::kCount; ++i) a[i] = b[i] = hn::Zero(StateD());
    Pass<kChannels, false, true>(columns, k_dim_, task_.columns, from + c, nullptr, nullptr, nullptr, nullptr, row.by_k, row.by_q,
                                 a, b);
    for (int i = 0; i < Columns::kCount; ++i) {
      columns.Store(a[i], a_ + c, i);
      columns.Store(b[i], b_ + c, i);
    }
  }

  template <bool kMore, class Columns>
  HWY_INLINE void Step(const Columns& columns, int64_t c, const float* from, const DeltaRow& row, const DeltaRow& next,
                       const Outputs& o) {
    constexpr int kCount = Columns::kCount;
    const StateD d;
    const StateV w = hn::Set(d, *row.decay), beta = hn::Set(d, o.beta), score = hn::Set(d, row.score);
    StateV a[kCount], b[kCount], u[kCount];
    for (int i = 0; i < kCount; ++i) {
      const StateV v = columns.Load(o.v + c, i), by_k = columns.Load(a_ + c, i), by_q = columns.Load(b_ + c, i);
      u[i] = hn::Mul(beta, kChannels ? hn::Sub(v, by_k) : hn::NegMulAdd(w, by_k, v));
      columns.Store(hn::MulAdd(score, u[i], kChannels ? by_q : hn::Mul(w, by_q)), o.out + c, i);
      if (o.u != nullptr) columns.Store(u[i], o.u + c, i);
      a[i] = b[i] = hn::Zero(d);
    }
    Pass<kChannels, true, kMore>(columns, k_dim_, task_.columns, from + c, task_.To() + c, row.decay, row.k, u, next.by_k,
                                 next.by_q, a, b);
    for (int i = 0; kMore && i < kCount; ++i) {
      columns.Store(a[i], a_ + c, i);
      columns.Store(b[i], b_ + c, i);
    }
  }

  const DeltaRuleOp& op_;
  const StateTask& task_;
  int64_t k_dim_, key_head_;
  float *queries_[2], *keys_[2];                   // of the scratch; keys: with channel decays
  HWY_ALIGN float a_[kStateTile], b_[kStateTile];  // the products of the row that is next
};

void RunDeltaRule(const DeltaRuleOp& op, int64_t begin, int64_t end, float* scratch) {
  const StateTiles shape = TilesOf(op);
  for (int64_t t = begin; t < end; ++t) {
    const StateTask task(op.layout, shape, op.runs, op.states, t);
    if (op.channel_decay) {
      DeltaTile<true>(op, task, scratch).Run();
    } else {
      DeltaTile<false>(op, task, scratch).Run();
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunDeltaRule);
void RunDeltaRuleHwy(const DeltaRuleOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  HWY_DYNAMIC_DISPATCH(RunDeltaRule)(op, begin, end, reinterpret_cast<float*>(scratch.data()));
}

}  // namespace tally
#endif
