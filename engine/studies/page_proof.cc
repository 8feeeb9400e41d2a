// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/page_proof.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

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

// Where the pages of a weight's slices are: in the arena, or in the records of a store.
class PagesOfWeight {
 public:
  PagesOfWeight(const PackedWeights& weights, WeightId id, size_t page, const TouchedPages& touched)
      : view_(weights.views()[id]), touched_(touched), page_(page) {
    if (view_.slots == nullptr) {
      begin_ = static_cast<uint64_t>(view_.data - weights.arena().data());
      return;
    }
    const std::vector<ExpertRecords>& layers = weights.experts()->layers();
    for (size_t l = 0; l < layers.size(); ++l) {
      for (const ExpertRecords::Part& part : layers[l].parts) {
        if (part.weight != id) continue;
        layer_ = l;
        begin_ = part.offset;
      }
    }
  }
  uint64_t lead() const { return begin_ % page_; }
  // Page `p` of a slice, counted from the one where it begins.
  bool Touched(uint32_t slice, uint64_t p) const {
    if (view_.slots == nullptr) return touched_.arena[(begin_ + slice * view_.slice_stride) / page_ + p];
    const auto record = touched_.records.find({layer_, static_cast<int32_t>(slice)});
    return record != touched_.records.end() && record->second[begin_ / page_ + p];
  }

 private:
  const WeightView& view_;
  const TouchedPages& touched_;
  const uint64_t page_;
  uint64_t begin_ = 0;  // of its first slice in the arena, or of each in its record
  size_t layer_ = 0;    // of the store
};

}  // namespace

Result<std::unique_ptr<WeightWatch>> WeightWatch::New(const PackedWeights& weights) {
  if (!weights.guarded()) return BadInput("the pages of weights are watched where the model was loaded with guard_slices");
  std::unique_ptr<WeightWatch> watch(new WeightWatch(weights));
  std::vector<std::span<const uint8_t>> ranges = {weights.arena()};
  if (weights.experts() != nullptr) ranges.push_back(weights.experts()->memory());
  TALLY_ASSIGN_OR_RETURN(watch->watch_, PageWatch::New(ranges));
  watch->arena_pages_ = (weights.arena().size() + watch->page_bytes() - 1) / watch->page_bytes();
  if (weights.experts() != nullptr) {
    weights.experts()->SetBeforeRefill([w = watch.get()](size_t layer, int32_t expert) { w->TakeExpert(layer, expert); });
  }
  return watch;
}

WeightWatch::~WeightWatch() {
  if (weights_.experts() != nullptr) weights_.experts()->SetBeforeRefill({});
}

size_t WeightWatch::FirstPage(size_t layer, int32_t expert) const {
  const ExpertStore& store = *weights_.experts();
  const ExpertRecords::Part& part = store.layers()[layer].parts[0];
  const uint8_t* const slot = store.Table(part.weight)[expert] - part.offset;
  return static_cast<size_t>(slot - store.memory().data()) / page_bytes();
}

size_t WeightWatch::RecordPages(size_t layer) const { return weights_.experts()->layers()[layer].bytes / page_bytes(); }

void WeightWatch::AddRecord(size_t layer, int32_t expert, const std::vector<bool>& pages) {
  std::vector<bool>& sum = touched_.records[{layer, expert}];
  sum.resize(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) sum[i] = sum[i] || pages[i];
}

void WeightWatch::TakeExpert(size_t layer, int32_t expert) {
  if (!watch_->started() || !failed_.ok()) return;
  const Result<std::vector<bool>> pages = watch_->Take(arena_pages_ + FirstPage(layer, expert), RecordPages(layer));
  if (!pages.ok()) {
    failed_ = pages.status();
    return;
  }
  AddRecord(layer, expert, *pages);
}

Status WeightWatch::Start() {
  touched_ = {};
  failed_ = {};
  return watch_->Start();
}

Result<TouchedPages> WeightWatch::Stop() {
  TALLY_ASSIGN_OR_RETURN(std::vector<bool> pages, watch_->Stop());
  TALLY_RETURN_IF_ERROR(failed_);
  const auto slots = pages.begin() + static_cast<std::ptrdiff_t>(arena_pages_);
  if (const ExpertStore* const store = weights_.experts()) {
    for (size_t layer = 0; layer < store->layers().size(); ++layer) {
      const ExpertRecords& r = store->layers()[layer];
      for (int32_t e = 0; e < r.experts; ++e) {
        if (store->Table(r.parts[0].weight)[e] == nullptr) continue;
        const auto first = slots + static_cast<std::ptrdiff_t>(FirstPage(layer, e));
        const auto end = first + static_cast<std::ptrdiff_t>(RecordPages(layer));
        AddRecord(layer, e, {first, end});
        std::fill(first, end, false);
      }
    }
  }
  if (std::find(slots, pages.end(), true) != pages.end()) return InternalError("a slot was read that holds no expert");
  pages.resize(arena_pages_);
  touched_.arena = std::move(pages);
  return std::move(touched_);
}

std::vector<PageRow> ComparePages(const Ledger& ledger, const PackedWeights& weights, size_t page_bytes,
                                  const TouchedPages& touched) {
  std::vector<PageRow> rows;
  for (size_t id = 0; id < weights.views().size(); ++id) {
    const WeightView& view = weights.views()[id];
    const WeightInfo& info = weights.infos()[id];
    PageRow row;
    row.tensor = info.name;
    row.layer = info.layer;
    row.component = info.component;
    const uint64_t slice_bytes = info.packed_bytes / info.slices;
    const PagesOfWeight of_weight(weights, static_cast<WeightId>(id), page_bytes, touched);
    for (uint32_t s = 0; s < info.slices; ++s) {
      SlicePages pages(view, of_weight.lead(), slice_bytes, page_bytes);
      pages.Charge(ledger.touched().ranges(static_cast<WeightId>(id), s));
      row.charged_bytes += pages.bytes();
      const uint64_t guard = pages.charged().size();
      for (uint64_t p = 0; p < guard; ++p) {
        const bool charged = pages.charged()[p], read = of_weight.Touched(s, p);
        row.charged_pages += charged ? 1 : 0;
        row.touched_pages += read ? 1 : 0;
        if (charged != read) AddFinding(row, s, read ? PageFinding::Kind::kTouched : PageFinding::Kind::kCharged, p);
      }
      if (of_weight.Touched(s, guard)) {
        ++row.touched_pages;
        AddFinding(row, s, PageFinding::Kind::kGuard, guard);
      }
    }
    if (row.charged_pages > 0 || row.touched_pages > 0) rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace tally
