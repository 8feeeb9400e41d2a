// SPDX-License-Identifier: Apache-2.0
#include "counters/books/training.h"

#include <algorithm>

namespace tally::books {

Result<TrainingCount> CountTraining(const Count& count) {
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
    t.forward[v] = forward.total[v];
    t.backward[v] = times(2, t.forward[v]);
    times(3, t.forward[v]);
  }
  t.update = times(12, N);
  t.update_special = times(2, N);
  t.kaplan = times(6, count.parameters.active_none);
  const Recipe& r = count.recipe;
  const uint64_t width = times(static_cast<uint64_t>(std::max(r.n_heads, 0)), static_cast<uint64_t>(std::max(r.head_dim, 0)));
  const uint64_t attention = times(times(12, static_cast<uint64_t>(std::max(r.n_layers, 0))), times(width, t.positions));
  t.palm = times(6, count.parameters.active_all) + attention;
  if (!fits || t.palm < attention) return BadInput("these counts do not fit 64 bits: the prompt or the batch is too large");
  return t;
}

}  // namespace tally::books
