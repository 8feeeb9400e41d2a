// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/formats/weight_format.h"

#include "engine/kernels/op.h"

namespace tally {

#define TALLY_FORMAT(name, elements, bytes, use) extern const WeightFormat kWeightFormat##name;
#include "engine/base/formats.inc"
#undef TALLY_FORMAT

const WeightFormat* FindWeightFormat(DType t) {
  static constexpr const WeightFormat* kFormats[] = {
#define TALLY_FORMAT(name, elements, bytes, use) &kWeightFormat##name,
#include "engine/base/formats.inc"
#undef TALLY_FORMAT
  };
  return IsWeightType(t) ? kFormats[static_cast<size_t>(t)] : nullptr;
}

ExecutedCost WeightFormat::ReferenceExecuted(ActKind kind, int64_t cols) const {
  const uint64_t blocks = static_cast<uint64_t>(cols / kInt8Block);
  // Per block: the product of the scales and an fma; an fma for each minimum.
  if (kind == ActKind::kInt8) return {.scaling = (3 + 2 * static_cast<uint64_t>(int8.minimum_sums())) * blocks};
  return {.widening = widening.panels * blocks};
}

size_t PanelBytes(DType t, int64_t cols) {
  const WeightFormat* f = FindWeightFormat(t);
  return f == nullptr ? 0 : static_cast<size_t>((cols + f->panel_cols - 1) / f->panel_cols) * f->panel_block_bytes;
}

bool TakesActivations(DType t, ActKind k) {
  const ActKind preferred = FormatOf(t).act;
  return k == ActKind::kF32 || k == preferred || (k == ActKind::kBF16 && preferred == ActKind::kInt8 && HwyTargetHasAmx());
}

ActFormat ActFormatFor(DType t, ActKind k) {
  const WeightFormat* f = FindWeightFormat(t);
  if (k == ActKind::kInt8 && f != nullptr && f->act == ActKind::kInt8) {
    ActFormat int8 = f->int8;
    int8.amx = int8.sums == 1 && HwyTargetHasAmx();  // amx_int8-inl.h
    int8.smmla = HwyTargetHasSmmla();                // dot_arm-inl.h
    return int8;
  }
  return {.kind = k, .amx = k == ActKind::kBF16 && HwyTargetHasAmx()};
}

}  // namespace tally
