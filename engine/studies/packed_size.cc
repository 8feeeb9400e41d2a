// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/packed_size.h"

#include <vector>

#include "engine/base/checked.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/weights/plan.h"

namespace tally {
namespace {

uint64_t Panels(const WeightView& view) {
  switch (view.layout) {
    case WeightLayout::kVector: return 1;
    case WeightLayout::kRowMajor: return static_cast<uint64_t>(view.rows);
    case WeightLayout::kPanel16: break;
  }
  return static_cast<uint64_t>(view.panels());
}

}  // namespace

DType PackedType(Role role, DType stored) { return role == Role::kKB && GetDTypeInfo(stored).quantised ? DType::kF32 : stored; }

WeightView PackedView(const Recipe& recipe, const Shard& shard, Role role, int32_t layer, DType type) {
  const std::vector<uint64_t> shape = RoleShape(recipe, role, layer);
  const Held held = HeldOf(recipe, shard, role, layer);
  const RoleFacts& facts = FactsOf(role);
  if (held.empty()) return {};
  WeightView view;
  view.dtype = facts.vector ? DType::kF32 : type;
  view.layout = LayoutFor(role, recipe);
  if (type == DType::kFP8 && view.layout == WeightLayout::kRowMajor) view.layout = WeightLayout::kPanel16;
  const size_t own_rank = facts.vector ? 1 : 2;
  view.slices = shape.size() <= own_rank ? 1 : facts.taps ? static_cast<int64_t>(shape[0]) : held.slices.size();
  view.cols = facts.vector ? held.size() : static_cast<int64_t>(shape.back());
  view.rows = facts.vector ? 1 : held.size();
  const DTypeInfo info = GetDTypeInfo(view.dtype);
  const uint64_t row = static_cast<uint64_t>(view.cols) / info.block_size * info.block_bytes;
  switch (view.layout) {
    case WeightLayout::kVector: view.panel_stride = static_cast<uint64_t>(view.cols) * sizeof(float); break;
    case WeightLayout::kRowMajor: view.panel_stride = row; break;
    case WeightLayout::kPanel16: view.panel_stride = PanelBytes(view.dtype, view.cols); break;
  }
  const uint64_t slice = SaturatingAdd(SaturatingMul(view.panel_stride, Panels(view)), kWeightPage - 1);
  view.slice_stride = slice / kWeightPage * kWeightPage;
  view.stored_row_bytes = row;
  return view;
}

uint64_t PackedBytes(const WeightView& view) {
  return SaturatingMul(static_cast<uint64_t>(view.slices), SaturatingMul(view.panel_stride, Panels(view)));
}

}  // namespace tally
