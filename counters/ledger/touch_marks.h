// Which rows of which weights a step touched, and which any step did since Reset: sets, however often a row is touched.
#pragma once

#include <cstdint>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "engine/base/export.h"

namespace tally {

class TouchMarks {
 public:
  struct RowRange {
    uint64_t begin = 0, end = 0;
    bool operator==(const RowRange&) const = default;
  };
  TALLY_API void Reset(const std::vector<WeightInfo>& weights);
  // Of a step: nothing is touched yet.
  TALLY_API void Begin();
  TALLY_API void Touch(const WeightTouch& touch);
  // Only for what any step did.
  TALLY_API void TouchEver(const WeightTouch& touch);

  uint64_t parameters() const { return parameters_; }  // touched since Begin
  uint64_t parameters_ever() const { return parameters_ever_; }
  // Touches since Begin that named no weight of the table or rows outside of it; nothing else became of them.
  uint64_t bad() const { return bad_; }
  // Of one weight, since Begin: elements touched; slices of which some were; and of a slice what Ledger says of it.
  TALLY_API uint64_t touched(WeightId id) const;
  TALLY_API uint32_t slices(WeightId id) const;
  TALLY_API uint64_t uses(WeightId id, uint32_t slice) const;
  TALLY_API std::vector<RowRange> ranges(WeightId id, uint32_t slice) const;

 private:
  struct WeightSize {
    size_t first_slice = 0;  // in slices_
    uint32_t slices = 0;
    uint64_t rows = 0, cols = 0;
  };
  struct Slice {
    uint32_t whole_epoch = 0;    // the last step that touched every row
    uint32_t partial_epoch = 0;  // the last step that touched some rows; `rows` counts them
    uint32_t used_epoch = 0;     // the last step that used it, `used` times
    uint64_t used = 0;
    uint64_t rows = 0;
    uint64_t rows_ever = 0;  // all rows of the weight: nothing more to learn
  };
  struct SliceRows {                  // beside each Slice
    std::vector<uint32_t> row_epoch;  // row -> last step that touched it alone; allocated at the first partial touch
    std::vector<bool> row_ever;
  };
  bool IsBad(const WeightTouch& t) const;
  const Slice* Find(WeightId id, uint32_t slice) const;  // null: none, or no step yet
  uint64_t TouchRows(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end);
  void RowsEver(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end);

  std::vector<WeightSize> sizes_;  // of each weight
  std::vector<Slice> slices_;
  std::vector<SliceRows> slice_rows_;
  uint32_t epoch_ = 0;
  uint64_t parameters_ = 0, parameters_ever_ = 0, bad_ = 0;
};

}  // namespace tally
