#include "engine/recipe/model_spec.h"

#include <algorithm>

namespace tally {

bool ShapesAgree(std::span<const uint64_t> stored, std::span<const uint64_t> wanted) {
  if (stored.size() + 1 == wanted.size() && wanted.size() > 1 && wanted[0] == 1) wanted = wanted.subspan(1);
  return std::ranges::equal(stored, wanted);
}

WeightInfo WeightInfoOf(const TensorBinding& b, const Recipe& recipe) {
  const RoleFacts& facts = FactsOf(b.role);
  WeightInfo w;
  w.name = WeightName(b.role, b.layer);
  w.layer = b.layer;
  w.component = facts.component;
  w.kind = b.role == Role::kTokenEmbedding && recipe.tied_head ? WeightInfo::Kind::kTiedEmbeddingHead : facts.kind;
  w.slices = b.shape.size() > (facts.vector ? 1 : 2) ? static_cast<uint32_t>(b.shape[0]) : 1;
  w.rows = facts.vector ? 1 : b.shape[b.row_dimension()];
  w.cols = b.shape.back();
  return w;
}

}  // namespace tally
