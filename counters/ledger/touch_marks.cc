#include "counters/ledger/touch_marks.h"

#include <algorithm>

namespace tally {

void TouchMarks::Reset(const std::vector<WeightInfo>& weights) {
  sizes_.clear();
  slices_.clear();
  slice_rows_.clear();
  size_t n_slices = 0;
  for (const WeightInfo& w : weights) {
    sizes_.push_back({n_slices, w.slices, w.rows, w.cols});
    n_slices += w.slices;
  }
  slices_.resize(n_slices);
  slice_rows_.resize(n_slices);
  epoch_ = 0;
  parameters_ = parameters_ever_ = bad_ = 0;
}

void TouchMarks::Begin() {
  parameters_ = bad_ = 0;
  if (++epoch_ != 0) return;
  // After 2^32 steps old marks would look new.
  for (Slice& s : slices_) s.whole_epoch = s.partial_epoch = s.used_epoch = 0;
  for (SliceRows& s : slice_rows_) std::fill(s.row_epoch.begin(), s.row_epoch.end(), 0);
  epoch_ = 1;
}

bool TouchMarks::IsBad(const WeightTouch& t) const {
  return t.id >= sizes_.size() || t.slice >= sizes_[t.id].slices || t.row_begin > t.row_end || t.row_end > sizes_[t.id].rows;
}

void TouchMarks::Touch(const WeightTouch& t) {
  if (t.row_begin == t.row_end) return;
  if (IsBad(t)) {
    ++bad_;
    return;
  }
  const WeightSize& w = sizes_[t.id];
  const size_t slice = w.first_slice + t.slice;
  Slice& s = slices_[slice];
  if (s.used_epoch != epoch_) s.used = 0;
  s.used_epoch = epoch_;
  s.used += t.uses;
  if (s.whole_epoch == epoch_) return;  // this step has read all of it
  RowsEver(w, slice, t.row_begin, t.row_end);
  if (t.row_begin == 0 && t.row_end == w.rows) {
    const uint64_t before = s.partial_epoch == epoch_ ? s.rows : 0;
    s.whole_epoch = epoch_;
    parameters_ += (w.rows - before) * w.cols;
    return;
  }
  parameters_ += TouchRows(w, slice, t.row_begin, t.row_end) * w.cols;
}

void TouchMarks::TouchEver(const WeightTouch& t) {
  if (!IsBad(t)) RowsEver(sizes_[t.id], sizes_[t.id].first_slice + t.slice, t.row_begin, t.row_end);
}

// Marks rows [begin, end) of a slice that this step has not read as a whole; returns how many of them are new to the step.
uint64_t TouchMarks::TouchRows(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end) {
  Slice& s = slices_[slice];
  SliceRows& rows = slice_rows_[slice];
  if (rows.row_epoch.empty()) rows.row_epoch.resize(w.rows);
  if (s.partial_epoch != epoch_) {
    s.partial_epoch = epoch_;
    s.rows = 0;
  }
  uint64_t fresh = 0;
  for (uint32_t r = begin; r < end; ++r) {
    fresh += rows.row_epoch[r] != epoch_;
    rows.row_epoch[r] = epoch_;
  }
  s.rows += fresh;
  if (s.rows == w.rows) s.whole_epoch = epoch_;
  return fresh;
}

void TouchMarks::RowsEver(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end) {
  Slice& s = slices_[slice];
  if (s.rows_ever == w.rows) return;
  uint64_t first_time = 0;
  if (begin == 0 && end == w.rows) {
    first_time = w.rows - s.rows_ever;
  } else {
    std::vector<bool>& ever = slice_rows_[slice].row_ever;
    if (ever.empty()) ever.resize(w.rows);
    for (uint32_t r = begin; r < end; ++r) {
      first_time += !ever[r];
      ever[r] = true;
    }
  }
  s.rows_ever += first_time;
  parameters_ever_ += first_time * w.cols;
}

const TouchMarks::Slice* TouchMarks::Find(WeightId id, uint32_t slice) const {
  return epoch_ > 0 && id < sizes_.size() && slice < sizes_[id].slices ? &slices_[sizes_[id].first_slice + slice] : nullptr;
}

uint64_t TouchMarks::touched(WeightId id) const {
  uint64_t rows = 0;
  for (uint32_t i = 0; const Slice* s = Find(id, i); ++i) {
    rows += s->whole_epoch == epoch_ ? sizes_[id].rows : s->partial_epoch == epoch_ ? s->rows : 0;
  }
  return rows > 0 ? rows * sizes_[id].cols : 0;
}

uint32_t TouchMarks::slices(WeightId id) const {
  uint32_t n = 0;
  for (uint32_t i = 0; const Slice* s = Find(id, i); ++i) n += s->whole_epoch == epoch_ || s->partial_epoch == epoch_ ? 1 : 0;
  return n;
}

uint64_t TouchMarks::uses(WeightId id, uint32_t slice) const {
  const Slice* s = Find(id, slice);
  return s != nullptr && s->used_epoch == epoch_ ? s->used : 0;
}

std::vector<TouchMarks::RowRange> TouchMarks::ranges(WeightId id, uint32_t slice) const {
  const Slice* s = Find(id, slice);
  std::vector<RowRange> ranges;
  if (s == nullptr) return ranges;
  if (s->whole_epoch == epoch_) return {{0, sizes_[id].rows}};
  if (s->partial_epoch != epoch_) return ranges;
  const std::vector<uint32_t>& row_epoch = slice_rows_[sizes_[id].first_slice + slice].row_epoch;
  for (uint64_t r = 0; r < row_epoch.size(); ++r) {
    if (row_epoch[r] != epoch_) continue;
    if (ranges.empty() || ranges.back().end != r) ranges.push_back({r, r});
    ranges.back().end = r + 1;
  }
  return ranges;
}

}  // namespace tally
