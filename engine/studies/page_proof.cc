// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/page_proof.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "engine/kernels/formats/weight_format.h"

namespace tally {
namespace {

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
  // A row alone: its own bytes of each strip. The panel is charged once.
  void MarkRow(uint64_t row) {
    const uint64_t panel = row / kPanelRows, lane = row % kPanelRows;
    const std::span<const uint8_t> strips = FormatOf(view_.dtype).strips;
    for (uint64_t at = panel * view_.panel_stride; at < (panel + 1) * view_.panel_stride;) {
      for (const uint64_t bytes : strips) {
        Mark(at + lane * bytes, at + (lane + 1) * bytes);
        at += kPanelRows * bytes;
      }
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
