// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/bill.h"

#include <algorithm>
#include <tuple>

namespace tally {
namespace {

// Sorts the ranges and joins those that overlap or are adjacent.
template <class Range>
void Join(std::vector<Range>& ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return std::tie(a.slice, a.begin) < std::tie(b.slice, b.begin); });
  size_t n = 0;
  for (const Range& range : ranges) {
    if (n > 0 && ranges[n - 1].slice == range.slice && range.begin <= ranges[n - 1].end) {
      ranges[n - 1].end = std::max(ranges[n - 1].end, range.end);
    } else {
      ranges[n++] = range;
    }
  }
  ranges.resize(n);
}

}  // namespace

void TouchUnion::Add(const TouchUnion& other) {
  if (other.slices_ == nullptr) return;
  if (slices_ == nullptr) *this = TouchUnion(other.slices_);
  for (size_t i = 0; i < std::min(whole_.size(), other.whole_.size()); ++i) whole_[i] |= other.whole_[i];
  for (const Range& range : other.ranges_) AddRange(range);
}

// Grows with the distinct ranges only: an embedding row that is touched at every step is kept once.
void TouchUnion::Merge() {
  std::erase_if(ranges_, [&](const Range& range) { return Whole(range.slice); });
  Join(ranges_);
  most_ranges_ = std::max(kFewRanges, 2 * ranges_.size());
}

uint64_t TouchUnion::Parameters(WeightId first, WeightId end) const {
  std::vector<Range> partial = ranges_;
  Join(partial);
  auto range = partial.begin();
  uint64_t sum = 0;
  for (WeightId id = first; id < end; ++id) {
    const WeightSlices::Weight& w = slices_->weights()[id];
    uint64_t rows = 0;
    for (size_t slice = w.first; slice < w.first + w.slices; ++slice) {
      while (range != partial.end() && range->slice < slice) ++range;
      if (Whole(slice)) {
        rows += w.rows;
        continue;
      }
      for (; range != partial.end() && range->slice == slice; ++range) rows += range->end - range->begin;
    }
    sum += rows * w.cols;
  }
  return sum;
}

uint64_t TouchUnion::touched(WeightId id) const {
  return slices_ != nullptr && slices_->Find(id) != nullptr ? Parameters(id, id + 1) : 0;
}

uint64_t TouchUnion::parameters() const {
  return slices_ != nullptr ? Parameters(0, static_cast<WeightId>(slices_->weights().size())) : 0;
}

std::vector<RowRange> TouchUnion::ranges(WeightId id, uint32_t slice) const {
  const WeightSlices::Weight* w = slices_ != nullptr ? slices_->Find(id) : nullptr;
  if (w == nullptr || slice >= w->slices) return {};
  if (Whole(w->first + slice)) return {{0, w->rows}};
  std::vector<Range> of_slice;
  for (const Range& range : ranges_) {
    if (range.slice == w->first + slice) of_slice.push_back(range);
  }
  Join(of_slice);
  std::vector<RowRange> out;
  for (const Range& range : of_slice) out.push_back({range.begin, range.end});
  return out;
}

BillWork& BillWork::operator+=(const BillWork& o) {
  useful += o.useful;
  rows += o.rows;
  logit_rows += o.logit_rows;
  rows_again += o.rows_again;
  rows_in_vain += o.rows_in_vain;
  return *this;
}

DraftWork& DraftWork::operator+=(const DraftWork& o) {
  rows += o.rows;
  accepted += o.accepted;
  rejected += o.rejected;
  in_vain += o.in_vain;
  predicting += o.predicting;
  return *this;
}

BillWork Bill::total() const {
  BillWork sum = work[0];
  sum += work[1];
  return sum;
}

Bill& Bill::operator+=(const Bill& o) {
  for (size_t p = 0; p < work.size(); ++p) work[p] += o.work[p];
  drafts += o.drafts;
  touched.Add(o.touched);
  touched_elsewhere = std::max(touched_elsewhere, o.touched_elsewhere);  // the union is this at least
  return *this;
}

}  // namespace tally
