// SPDX-License-Identifier: Apache-2.0
// The bill of a request: the useful work of its rows, and the weights that they touched. Executed work is the engine's and in no bill.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "counters/ledger/touch_set.h"
#include "counters/ledger/weight_slices.h"
#include "engine/base/export.h"

namespace tally {

// A bit for each slice of the weights, and ranges of rows of slices that were not touched as a whole.
class TouchUnion {
 public:
  TouchUnion() = default;
  explicit TouchUnion(std::shared_ptr<const WeightSlices> slices) : slices_(std::move(slices)) {
    if (slices_ != nullptr) whole_.resize((slices_->count() + 63) / 64);
  }
  // Ignores weights, slices and rows that do not exist.
  void Touch(const WeightTouch& t) {
    const WeightSlices::Weight* w = slices_ != nullptr ? slices_->Find(t) : nullptr;
    if (w == nullptr || t.row_begin == t.row_end) return;
    const size_t slice = w->first + t.slice;
    if (t.row_begin == 0 && t.row_end == w->rows) {
      TouchSlice(slice);
    } else {
      AddRange({static_cast<uint32_t>(slice), t.row_begin, t.row_end});
    }
  }
  // The union with a set of the same weights.
  TALLY_API void Add(const TouchUnion& other);
  // All rows of the slice of this number.
  void TouchSlice(size_t slice) { whole_[slice / 64] |= uint64_t{1} << slice % 64; }

  TALLY_API uint64_t parameters() const;                                      // elements
  TALLY_API uint64_t touched(WeightId id) const;                              // elements
  TALLY_API std::vector<RowRange> ranges(WeightId id, uint32_t slice) const;  // ascending, disjoint, adjacent ranges merged

 private:
  struct Range {
    uint32_t slice = 0, begin = 0, end = 0;  // slice: its number in slices_
  };
  bool Whole(size_t slice) const { return (whole_[slice / 64] >> slice % 64 & 1) != 0; }
  void AddRange(const Range& range) {
    if (Whole(range.slice)) return;
    if (ranges_.size() >= most_ranges_) Merge();
    ranges_.push_back(range);
  }
  TALLY_API void Merge();
  uint64_t Parameters(WeightId first, WeightId end) const;

  std::shared_ptr<const WeightSlices> slices_;
  std::vector<uint64_t> whole_;
  std::vector<Range> ranges_;  // in any order, some of them perhaps overlapping
  size_t most_ranges_ = kFewRanges;
  static constexpr size_t kFewRanges = 64;
};

// The work of a bill in one phase.
struct BillWork {
  // What a step does once for several rows is divided among them; see Ledger.
  Cost useful = {};
  uint64_t rows = 0;          // that ran, those of failed steps among them
  uint64_t logit_rows = 0;    // of them: with logits
  uint64_t rows_again = 0;    // of `rows`: ran at a position that had run before (BookedRow::again)
  uint64_t rows_in_vain = 0;  // of `rows`: whose results were dropped (Ledger::MarkInVain)

  TALLY_API BillWork& operator+=(const BillWork& o);
};

// Rows that were drafted (BookedRow::draft): tokens that ran before it was known whether they are drawn. Their work is part of the work of
// their phase. rows - accepted - rejected are undecided.
struct DraftWork {
  uint64_t rows = 0;
  uint64_t accepted = 0;  // their tokens were drawn
  uint64_t rejected = 0;  // their results were dropped; also in rows_in_vain
  Cost in_vain = {};      // the useful work of those that were rejected
  // The useful work of layers for multi-token prediction (BookedRow::stack): all of it, for prompts too, and for drafts that were
  // rejected. Rows without a bill are not included.
  Cost predicting = {};

  TALLY_API DraftWork& operator+=(const DraftWork& o);
};

struct Bill {
  std::array<BillWork, 2> work = {};  // prefill, decode
  DraftWork drafts = {};
  TouchUnion touched = {};
  // With several processes: elements that other processes touched for the request, each counted by the lowest rank that touched it. `work`
  // covers all processes, copied work included.
  uint64_t touched_elsewhere = 0;

  const BillWork& at(Phase p) const { return work[p == Phase::kDecode ? 1 : 0]; }
  // Both phases.
  TALLY_API BillWork total() const;
  // Adds another bill of the same ledger: the sums of the work, the union of the weights.
  TALLY_API Bill& operator+=(const Bill& o);
  // The union over the rows of the bill. Those of several bills do not add up.
  uint64_t parameters_touched() const { return touched.parameters() + touched_elsewhere; }
};

}  // namespace tally
