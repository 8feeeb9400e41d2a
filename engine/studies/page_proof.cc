#include "engine/studies/page_proof.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

namespace tally {
namespace {

constexpr uint64_t kStepBytes = 64;  // of a panel: 4 bytes of each of its rows (weight_view.h)

// What of a panel comes again and again: scales of its rows (quantised types), then steps.
struct PanelBlock {
  uint64_t scale_bytes = 0;  // of a row
  uint64_t steps = 1;
  uint64_t bytes() const { return scale_bytes * kPanelRows + steps * kStepBytes; }
};
PanelBlock BlockOf(DType type) {
  switch (type) {
    case DType::kQ8_0: return {2, 8};
    case DType::kQ4_0: return {2, 4};
    case DType::kMXFP4: return {1, 4};
    default: return {};
  }
}

// The pages of a slice, which begins `lead` bytes into the first of them and ends with the last.
class SlicePages {
 public:
  SlicePages(const WeightView& view, uint64_t lead, uint64_t slice_bytes, uint64_t page)
      : view_(view), lead_(lead), slice_bytes_(slice_bytes), page_(page), charged_((lead + slice_bytes) / page) {}

  void Charge(std::span<const RowRange> ranges) {
    for (const RowRange& r : ranges) {
      if (r.begin == 0 && r.end == static_cast<uint64_t>(view_.rows)) {
        Mark(0, slice_bytes_);
        bytes_ = slice_bytes_;
      } else if (view_.layout == WeightLayout::kRowMajor) {
        Mark(r.begin * view_.panel_stride, r.end * view_.panel_stride);
        bytes_ += (r.end - r.begin) * view_.panel_stride;
      } else {
        for (uint64_t row = r.begin; row < r.end; ++row) MarkRow(row);
      }
    }
  }
  const std::vector<bool>& charged() const { return charged_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void Mark(uint64_t begin, uint64_t end) {
    for (uint64_t p = (lead_ + begin) / page_; p <= (lead_ + end - 1) / page_; ++p) charged_[p] = true;
  }
  // A row alone: the scales and the 4 bytes of each step that are its own. The panel is charged once.
  void MarkRow(uint64_t row) {
    const uint64_t panel = row / kPanelRows, lane = row % kPanelRows;
    const PanelBlock block = BlockOf(view_.dtype);
    for (uint64_t at = panel * view_.panel_stride; at < (panel + 1) * view_.panel_stride; at += block.bytes()) {
      if (block.scale_bytes > 0) Mark(at + lane * block.scale_bytes, at + (lane + 1) * block.scale_bytes);
      const uint64_t steps = at + kPanelRows * block.scale_bytes + 4 * lane;
      for (uint64_t s = 0; s < block.steps; ++s) Mark(steps + s * kStepBytes, steps + s * kStepBytes + 4);
    }
    if (panel + 1 > panels_) bytes_ += view_.panel_stride;
    panels_ = panel + 1;
  }

  const WeightView& view_;
  const uint64_t lead_, slice_bytes_, page_;
  std::vector<bool> charged_;
  uint64_t bytes_ = 0;
  uint64_t panels_ = 0;  // below which all are charged that will be: rows come in order
};

void AddFinding(PageRow& row, uint32_t slice, PageFinding::Kind kind, uint64_t page) {
  if (!row.findings.empty()) {
    PageFinding& last = row.findings.back();
    if (last.slice == slice && last.kind == kind && last.first_page + last.pages == page) {
      ++last.pages;
      return;
    }
  }
  row.findings.push_back({kind, slice, page, 1});
}

}  // namespace

std::vector<PageRow> ComparePages(const Ledger& ledger, const PackedWeights& weights, size_t page_bytes,
                                  const std::vector<bool>& touched) {
  std::vector<PageRow> rows;
  for (size_t id = 0; id < weights.views().size(); ++id) {
    const WeightView& view = weights.views()[id];
    const WeightInfo& info = weights.infos()[id];
    PageRow row;
    row.tensor = info.name;
    row.layer = info.layer;
    row.component = info.component;
    const uint64_t slice_bytes = info.packed_bytes / info.slices;
    for (uint32_t s = 0; s < info.slices; ++s) {
      const uint64_t begin = static_cast<uint64_t>(view.Slice(s) - weights.arena().data());
      const uint64_t first = begin / page_bytes;
      SlicePages pages(view, begin % page_bytes, slice_bytes, page_bytes);
      pages.Charge(ledger.touched().ranges(static_cast<WeightId>(id), s));
      row.charged_bytes += pages.bytes();
      const uint64_t guard = pages.charged().size();
      for (uint64_t p = 0; p < guard; ++p) {
        const bool charged = pages.charged()[p], read = touched[first + p];
        row.charged_pages += charged ? 1 : 0;
        row.touched_pages += read ? 1 : 0;
        if (charged != read) AddFinding(row, s, read ? PageFinding::Kind::kTouched : PageFinding::Kind::kCharged, p);
      }
      if (touched[first + guard]) {
        ++row.touched_pages;
        AddFinding(row, s, PageFinding::Kind::kGuard, guard);
      }
    }
    if (row.charged_pages > 0 || row.touched_pages > 0) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tally
