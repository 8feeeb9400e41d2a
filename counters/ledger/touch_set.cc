// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/touch_set.h"

namespace tally {

void TouchSet::Touch(const WeightTouch& t) {
  if (t.row_begin == t.row_end) return;
  const WeightSlices::Weight* found = weights_.Find(t);
  if (found == nullptr) {
    ++bad_;
    return;
  }
  const WeightSlices::Weight& w = *found;
  Slice& s = slices_[w.first + t.slice];
  if (s.step != step_) {
    s.step = step_;
    s.rows = s.uses = 0;
  }
  s.uses += t.uses;
  if (s.rows == w.rows) return;
  const uint64_t before = s.rows;
  if (t.row_begin == 0 && t.row_end == w.rows) {
    s.rows = w.rows;
    s.whole_ever = true;
  } else {
    if (s.row_steps.empty()) s.row_steps.resize(w.rows);
    for (uint32_t r = t.row_begin; r < t.row_end; ++r) {
      s.rows += s.row_steps[r] != step_ ? 1 : 0;
      s.row_steps[r] = step_;
    }
  }
  parameters_ += (s.rows - before) * w.cols;
}

uint64_t TouchSet::parameters_ever() const {
  uint64_t sum = 0;
  for (const WeightSlices::Weight& w : weights_.weights()) {
    for (uint32_t i = 0; i < w.slices; ++i) {
      const Slice& s = slices_[w.first + i];
      uint64_t rows = s.whole_ever ? w.rows : 0;
      for (size_t r = 0; r < s.row_steps.size() && !s.whole_ever; ++r) rows += s.row_steps[r] != 0 ? 1 : 0;
      sum += rows * w.cols;
    }
  }
  return sum;
}

const TouchSet::Slice* TouchSet::Find(WeightId id, uint32_t slice) const {
  const WeightSlices::Weight* w = weights_.Find(id);
  if (w == nullptr || slice >= w->slices) return nullptr;
  const Slice& s = slices_[w->first + slice];
  return s.step == step_ ? &s : nullptr;
}

uint64_t TouchSet::touched(WeightId id) const {
  const WeightSlices::Weight* w = weights_.Find(id);
  if (w == nullptr) return 0;
  uint64_t rows = 0;
  for (uint32_t i = 0; i < w->slices; ++i) {
    const Slice* s = Find(id, i);
    rows += s != nullptr ? s->rows : 0;
  }
  return rows * w->cols;
}

uint32_t TouchSet::slices(WeightId id) const {
  const WeightSlices::Weight* w = weights_.Find(id);
  uint32_t n = 0;
  for (uint32_t i = 0; w != nullptr && i < w->slices; ++i) n += Find(id, i) != nullptr ? 1 : 0;
  return n;
}

uint64_t TouchSet::uses(WeightId id, uint32_t slice) const {
  const Slice* s = Find(id, slice);
  return s != nullptr ? s->uses : 0;
}

std::vector<RowRange> TouchSet::ranges(WeightId id, uint32_t slice) const {
  const Slice* s = Find(id, slice);
  if (s == nullptr) return {};
  if (s->rows == weights_.weights()[id].rows) return {{0, s->rows}};
  std::vector<RowRange> ranges;
  for (uint64_t r = 0; r < s->row_steps.size(); ++r) {
    if (s->row_steps[r] != step_) continue;
    if (ranges.empty() || ranges.back().end != r) ranges.push_back({r, r});
    ranges.back().end = r + 1;
  }
  return ranges;
}

}  // namespace tally
