// SPDX-License-Identifier: Apache-2.0
// Helpers for the Describe() of ops.
#pragma once

#include <string_view>
#include <vector>

#include "counters/cost/op_description.h"
#include "engine/base/dtype.h"
#include "engine/base/mat.h"
#include "engine/kernels/pack_act/act_pack.h"
#include "engine/kernels/weight_view.h"

namespace tally {

inline constexpr OperandRole kIn = OperandRole::kInput, kOut = OperandRole::kOutput, kInOut = OperandRole::kInOut;

template <class Names, class Kind>
std::string_view NameOf(const Names& names, Kind kind) {
  return names[static_cast<size_t>(kind)];
}

template <class T>
std::vector<int64_t> Shape(const Mat<T>& m) {
  return {m.rows, m.cols};
}

template <class T>
int64_t Size(std::span<T> s) {
  return static_cast<int64_t>(s.size());
}

inline std::vector<int64_t> List(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

// Slice and rows of each group, flattened.
inline std::vector<int64_t> Groups(const ActPack& x) {
  std::vector<int64_t> list;
  for (const RowGroup& g : x.groups) list.insert(list.end(), {g.slice, g.rows});
  return list;
}

inline void DescribePack(const ActPack& x, OperandRole role, std::string_view name, OpDescription& d) {
  d.Add(name, role, NameOf(kActKindNames, x.format.kind), {x.rows, x.cols});
  d.Set("groups", Groups(x));
}

// Adds nothing for an empty view.
inline void DescribeWeight(std::string_view name, const WeightView& w, OpDescription& d) {
  if (w.empty()) return;
  if (w.layout == WeightLayout::kVector) {
    d.Add(name, OperandRole::kWeight, DTypeName(w.dtype), {w.slices, w.cols}, w.id);
  } else {
    d.Add(name, OperandRole::kWeight, DTypeName(w.dtype), {w.slices, w.rows, w.cols}, w.id);
  }
}

}  // namespace tally
