// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/recipe/roles.h"
#include "engine/weights/packed_file.h"

namespace tally {
namespace {

// Pages of a slice, in bytes; nullopt: too many.
std::optional<uint64_t> WholePages(uint64_t bytes) {
  const std::optional<uint64_t> end = CheckedAdd(bytes, kWeightPage - 1);
  return end ? std::optional(*end / kWeightPage * kWeightPage) : std::nullopt;
}

uint64_t SumsOf(uint64_t bytes) { return DivCeil(bytes, kPackedBlock); }

bool InRecord(const PackedWeight& w) {
  for (const Role role : {Role::kExpertGate, Role::kExpertUp, Role::kExpertDown}) {
    if (w.layer >= 0 && w.role == FactsOf(role).name) return true;
  }
  return false;
}

}  // namespace

Result<PackedLayout> PackedLayout::Of(std::vector<PackedWeight> weights, const std::string& place) {
  PackedLayout layout;
  std::map<int32_t, size_t> records;  // by layer
  layout.weights_ = std::move(weights);
  layout.places_.resize(layout.weights_.size());
  uint64_t sums = 0;
  std::optional<uint64_t> end = 0;  // of the data so far
  const auto bad = [&](const PackedWeight& w) {
    return BadInput(place + ": the weight " + Quote(w.role) + " of layer " + std::to_string(w.layer) +
                    " has no size that it can have");
  };
  for (size_t i = 0; i < layout.weights_.size(); ++i) {
    const PackedWeight& w = layout.weights_[i];
    Place& at = layout.places_[i];
    const std::optional<uint64_t> stride = WholePages(w.slice_bytes);
    const std::optional<uint64_t> all = stride ? CheckedMul(*stride, w.slices) : std::nullopt;
    if (!all || *all == 0 || *all > INT64_MAX || w.slices > UINT32_MAX) return bad(w);
    at.stride = *stride;
    at.sum_stride = SumsOf(*stride);
    if (InRecord(w)) {
      const auto [known, added] = records.try_emplace(w.layer, layout.records_.size());
      if (added)
        layout.records_.push_back({.layer = w.layer, .parts = {}, .experts = static_cast<int64_t>(w.slices), .bytes = 0});
      ExpertRecords* const record = &layout.records_[known->second];
      const std::optional<uint64_t> bytes = CheckedAdd(record->bytes, *stride);
      if (!bytes || record->experts != static_cast<int64_t>(w.slices)) return bad(w);
      record->parts.push_back({static_cast<WeightId>(i), record->bytes});
      record->bytes = *bytes;
      continue;
    }
    at.offset = *end;
    at.first_sum = sums;
    end = CheckedAdd(*end, *all);
    if (!end || *end > INT64_MAX) return bad(w);
    sums += at.sum_stride * w.slices;  // fewer than pages
  }
  layout.dense_bytes_ = *end;
  std::ranges::stable_sort(layout.records_, {}, &ExpertRecords::layer);
  for (const ExpertRecords& record : layout.records_) {
    layout.record_offsets_.push_back(*end);
    uint64_t record_sums = 0;
    for (const ExpertRecords::Part& part : record.parts) {
      Place& at = layout.places_[part.weight];
      at.offset = *end + part.offset;
      at.first_sum = sums + record_sums;
      record_sums += at.sum_stride;
    }
    for (const ExpertRecords::Part& part : record.parts) {
      Place& at = layout.places_[part.weight];
      at.stride = record.bytes;
      at.sum_stride = record_sums;
    }
    const std::optional<uint64_t> all = CheckedMul(record.bytes, static_cast<uint64_t>(record.experts));
    end = all ? CheckedAdd(*end, *all) : std::nullopt;
    if (!end || *end > INT64_MAX) return bad(layout.weights_[record.parts[0].weight]);
    sums += record_sums * static_cast<uint64_t>(record.experts);
  }
  layout.data_bytes_ = *end;
  layout.sums_ = sums;
  return layout;
}

PackedWeight PackedWeightOf(const PlannedWeight& w) {
  return {.role = std::string(FactsOf(w.role).name),
          .layer = w.layer,
          .dtype = w.view.dtype,
          .layout = static_cast<uint8_t>(w.view.layout),
          .slices = static_cast<uint64_t>(w.view.slices),
          .rows = static_cast<uint64_t>(w.view.rows),
          .cols = static_cast<uint64_t>(w.view.cols),
          .slice_bytes = w.slice_bytes};
}

Result<PackedLayout> PackedLayout::Of(const WeightPlan& plan, const std::string& place) {
  std::vector<PackedWeight> weights;
  weights.reserve(plan.weights.size());
  for (const PlannedWeight& w : plan.weights) weights.push_back(PackedWeightOf(w));
  return Of(std::move(weights), place);
}

PackedLayout::Piece PackedLayout::SliceOf(size_t weight, int64_t slice) const {
  const Place& at = places_[weight];
  const uint64_t n = static_cast<uint64_t>(slice);
  return {at.offset + n * at.stride, weights_[weight].slice_bytes, at.first_sum + n * at.sum_stride};
}

uint64_t PackedLayout::RecordOffset(size_t layer, int64_t expert) const {
  return record_offsets_[layer] + static_cast<uint64_t>(expert) * records_[layer].bytes;
}

}  // namespace tally
