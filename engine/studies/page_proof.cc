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

// Of the store that brings weights from disk; null: there is none.
const std::vector<ExpertRecords>* RecordsOf(const PackedWeights& weights) {
  if (weights.experts() != nullptr) return &weights.experts()->layers();
  return weights.layers() != nullptr ? &weights.layers()->layers() : nullptr;
}
std::span<const uint8_t> SlotsOf(const PackedWeights& weights) {
  if (weights.experts() != nullptr) return weights.experts()->memory();
  return weights.layers() != nullptr ? weights.layers()->memory() : std::span<const uint8_t>();
}

// Where the pages of a weight's slices are: in the arena, or in the records of a store.
class PagesOfWeight {
 public:
  PagesOfWeight(const PackedWeights& weights, WeightId id, size_t page, const TouchedPages& touched)
      : view_(weights.views()[id]), touched_(touched), page_(page) {
    if (view_.slots == nullptr) begin_ = static_cast<uint64_t>(view_.data - weights.arena().data());
    const std::vector<ExpertRecords>* const layers = RecordsOf(weights);
    for (size_t l = 0; layers != nullptr && l < layers->size(); ++l) {
      for (const ExpertRecords::Part& part : (*layers)[l].parts) {
        if (part.weight != id) continue;
        in_record_ = true;
        layer_ = l;
        begin_ = part.offset;
      }
    }
  }
  uint64_t lead() const { return begin_ % page_; }
  // Page `p` of a slice, counted from the one where it begins.
  bool Touched(uint32_t slice, uint64_t p) const {
    const uint64_t page = (begin_ + (view_.slots == nullptr ? slice * view_.slice_stride : 0)) / page_ + p;
    if (!in_record_) return touched_.arena[page];
    const auto record = touched_.records.find({layer_, view_.slots == nullptr ? 0 : static_cast<int32_t>(slice)});
    return record != touched_.records.end() && record->second[page];
  }

 private:
  const WeightView& view_;
  const TouchedPages& touched_;
  const uint64_t page_;
  uint64_t begin_ = 0;  // of its first slice in the arena or in its record
  bool in_record_ = false;
  size_t layer_ = 0;  // of the store
};

}  // namespace

Result<std::unique_ptr<WeightWatch>> WeightWatch::New(const PackedWeights& weights) {
  if (!weights.guarded()) return BadInput("the pages of weights are watched where the model was loaded with guard_slices");
  std::unique_ptr<WeightWatch> watch(new WeightWatch(weights));
  std::vector<std::span<const uint8_t>> ranges = {weights.arena()};
  if (RecordsOf(weights) != nullptr) ranges.push_back(SlotsOf(weights));
  TALLY_ASSIGN_OR_RETURN(watch->watch_, PageWatch::New(ranges));
  watch->arena_pages_ = (weights.arena().size() + watch->page_bytes() - 1) / watch->page_bytes();
  if (weights.experts() != nullptr) {
    weights.experts()->SetBeforeRefill([w = watch.get()](size_t layer, int32_t expert) { w->TakeRecord(layer, expert); });
  }
  if (weights.layers() != nullptr) weights.layers()->SetAfterUse([w = watch.get()](size_t layer) { w->TakeRecord(layer, 0); });
  return watch;
}

WeightWatch::~WeightWatch() {
  if (weights_.experts() != nullptr) weights_.experts()->SetBeforeRefill({});
  if (weights_.layers() != nullptr) weights_.layers()->SetAfterUse({});
}

size_t WeightWatch::FirstPage(size_t layer, int32_t expert) const {
  const uint8_t* slot = nullptr;
  if (const ExpertStore* const store = weights_.experts()) {
    const ExpertRecords::Part& part = store->layers()[layer].parts[0];
    slot = store->Table(part.weight)[expert] - part.offset;
  } else {
    slot = weights_.layers()->RecordOf(layer);
  }
  return static_cast<size_t>(slot - SlotsOf(weights_).data()) / page_bytes();
}

size_t WeightWatch::RecordPages(size_t layer) const { return (*RecordsOf(weights_))[layer].bytes / page_bytes(); }

template <class Fn>
void WeightWatch::ForEachInSlots(const Fn& fn) const {
  if (const LayerStore* const store = weights_.layers()) {
    for (size_t slot = 0; slot < LayerStore::kSlots; ++slot) fn(store->InSlot(slot), 0);
  }
  const ExpertStore* const store = weights_.experts();
  for (size_t layer = 0; store != nullptr && layer < store->layers().size(); ++layer) {
    const ExpertRecords& r = store->layers()[layer];
    for (int32_t e = 0; e < r.experts; ++e) {
      if (store->Table(r.parts[0].weight)[e] != nullptr) fn(layer, e);
    }
  }
}

void WeightWatch::AddRecord(size_t layer, int32_t expert, const std::vector<bool>& pages) {
  std::vector<bool>& sum = touched_.records[{layer, expert}];
  sum.resize(pages.size());
  for (size_t i = 0; i < pages.size(); ++i) sum[i] = sum[i] || pages[i];
}

void WeightWatch::TakeRecord(size_t layer, int32_t expert) {
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
  ForEachInSlots([&](size_t layer, int32_t expert) {
    const auto first = slots + static_cast<std::ptrdiff_t>(FirstPage(layer, expert));
    const auto end = first + static_cast<std::ptrdiff_t>(RecordPages(layer));
    AddRecord(layer, expert, {first, end});
    std::fill(first, end, false);
  });
  if (std::find(slots, pages.end(), true) != pages.end()) return InternalError("a slot was read that holds nothing");
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
