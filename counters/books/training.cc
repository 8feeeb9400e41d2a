// SPDX-License-Identifier: Apache-2.0
#include "counters/books/training.h"

#include <algorithm>

#include "engine/recipe/recipe.h"

namespace tally::books {

Result<TrainingCount> CountTraining(const Count& count) {
  if (count.recipe->counted_only) {
    return BadInput("the FLOPs of training are those of models that run; this one has " + count.recipe->counted_only->why);
  }
  const uint64_t N = count.parameters.total;
  bool fits = true;
  const auto times = [&](uint64_t a, uint64_t b) {
    const Form product = Form(a) * Form(b);
    fits = fits && !product.overflow();
    return product.value();
  };
  TrainingCount t;
  t.f32 = {times(4, N), times(4, N), 0, times(8, N)};
  t.mixed = {times(2, N), times(2, N), times(4, N), times(8, N)};
  times(16, N);  // their sum
  t.sequences = count.options.batch;
  t.positions = count.options.prompt;
  const FlopsCount& forward = count.expanded ? count.expanded->prefill : count.prefill;
  for (size_t v = 0; v < t.forward.size(); ++v) {
    t.forward[v] = forward.total[v].number().value_or(0);  // whole: the model runs
    t.backward[v] = times(2, t.forward[v]);
    times(3, t.forward[v]);
  }
  t.update = times(12, N);
  t.update_special = times(2, N);
  t.kaplan = times(6, count.parameters.active_none);
  const Recipe& r = count.recipe;
  uint64_t width = 0;  // of the queries of all layers: L H D where all attend
  for (const LayerRecipe& l : r.layers) {
    const Attention& s = l.attention;
    const uint64_t own = times(static_cast<uint64_t>(std::max(s.n_heads, 0)), static_cast<uint64_t>(std::max(s.head_dim, 0)));
    fits = fits && !__builtin_add_overflow(width, l.attends() ? own : 0, &width);
  }
  const uint64_t attention = times(12, times(width, t.positions));
  t.palm = times(6, count.parameters.active_all) + attention;
  if (!fits || t.palm < attention) return BadInput("these counts do not fit 64 bits: the prompt or the batch is too large");
  return t;
}

}  // namespace tally::books
