// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/model_spec.h"

#include <algorithm>

namespace tally {

std::optional<ScaleGrid> FindScaleGrid(std::span<const uint64_t> scales, uint64_t rows, uint64_t cols) {
  constexpr uint64_t kBlock = 128;
  uint64_t n = 1;
  for (const uint64_t d : scales) n *= d;
  const auto blocks = [](uint64_t extent) { return extent / kBlock + (extent % kBlock != 0 ? 1 : 0); };
  if (n == 1) return ScaleGrid{rows, cols};
  if (n == rows && (scales.size() == 1 || scales.front() == rows || scales.back() == 1)) return ScaleGrid{1, cols};
  if (scales.size() == 3) {  // of the matrices of all experts
    const uint64_t own = scales[0] > 0 ? rows / scales[0] : 0;
    if (own * scales[0] != rows) return std::nullopt;
    if (n == scales[0]) return ScaleGrid{own, cols};
    return own % kBlock == 0 && scales[1] == own / kBlock && scales[2] == blocks(cols) ? std::optional(ScaleGrid{kBlock, kBlock})
                                                                                       : std::nullopt;
  }
  if (scales.size() == 2 && scales[0] == blocks(rows) && scales[1] == blocks(cols)) return ScaleGrid{kBlock, kBlock};
  return std::nullopt;
}

uint64_t ScalesOfRow(const TensorBinding& b, const ScaleGrid& grid) {
  const uint64_t cols = b.storage == Storage::kTransposedHeads ? b.shape[b.shape.size() - 2] : b.shape.back();
  return (cols + grid.cols - 1) / grid.cols;
}

uint64_t ScalesOfSlice(const TensorBinding& b, const ScaleGrid& grid) {
  return (b.mapped_rows() + grid.rows - 1) / grid.rows * ScalesOfRow(b, grid);
}

bool ShapesAgree(std::span<const uint64_t> stored, std::span<const uint64_t> wanted) {
  if (wanted.size() == 1 && stored.size() > 2) {
    std::vector<uint64_t> longer(stored.begin(), stored.end());
    std::erase(longer, uint64_t{1});
    return longer == std::vector<uint64_t>(wanted.begin(), wanted.end());
  }
  if (stored.empty()) return wanted.empty() || (wanted.size() == 1 && wanted[0] == 1);
  if (stored.size() + 1 != wanted.size()) return std::ranges::equal(stored, wanted);
  return wanted[0] > 0 && stored[0] % wanted[0] == 0 && stored[0] / wanted[0] == wanted[1] &&
         std::ranges::equal(stored.subspan(1), wanted.subspan(2));
}

std::vector<uint64_t> TensorBinding::StoredShape(uint64_t stored_rows) const {
  if (stored_heads > 0) return {stored_heads, shape[0] / stored_heads};
  if (storage == Storage::kTaps) return {shape[1], shape[0]};
  if (storage == Storage::kConv1d) return {shape[1], 1, shape[0]};
  std::vector<uint64_t> stored = shape;
  if (storage == Storage::kPlain || IsComputed(storage)) {
    stored[row_dimension()] = stored_rows;
    return stored;
  }
  std::swap(stored[stored.size() - 2], stored[stored.size() - 1]);
  (storage == Storage::kTransposed ? stored.back() : stored[stored.size() - 2]) = stored_rows;
  return stored;
}

uint64_t TensorBinding::StoredRows(std::span<const uint64_t> stored) const {
  if (rows.all()) return mapped_rows();
  if (storage == Storage::kTransposed) return stored.empty() ? 0 : stored.back();
  const size_t at = row_dimension();
  if (stored.size() + 1 == shape.size() && shape[0] > 0 && !stored.empty()) return stored[0] / shape[0];
  return at < stored.size() ? stored[at] : 0;
}

std::vector<const Recipe*> ModelSpec::stacks() const {
  std::vector<const Recipe*> all{&recipe};
  for (const Recipe& r : further) all.push_back(&r);
  return all;
}

const Recipe& ModelSpec::stack_of(int32_t layer) const {
  for (const Recipe& r : further) {
    if (layer >= r.first_layer && layer < r.end_layer()) return r;
  }
  return recipe;
}

const Recipe* ModelSpec::find_stack(StackKind kind) const {
  for (const Recipe* const r : stacks()) {
    if (r->stack == kind) return r;
  }
  return nullptr;
}

WeightInfo WeightInfoOf(const TensorBinding& b, const Recipe& recipe) {
  const RoleFacts& facts = FactsOf(b.role);
  WeightInfo w;
  w.name = WeightName(b.role, b.layer);
  w.layer = b.layer;
  w.component = facts.component;
  w.kind = b.role == Role::kTokenEmbedding && recipe.tied_head ? WeightInfo::Kind::kTiedEmbeddingHead : facts.kind;
  w.experts = facts.experts;
  w.slices = b.shape.size() > (facts.vector ? 1 : 2) ? static_cast<uint32_t>(b.shape[0]) : 1;
  w.rows = facts.vector ? 1 : b.shape[b.row_dimension()];
  w.cols = b.shape.back();
  return w;
}

}  // namespace tally
