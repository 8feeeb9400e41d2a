// SPDX-License-Identifier: Apache-2.0
// Figures of a server, made up: gpt-oss-20b at its n-th step, one token a step.
#pragma once

#include "engine/page/live_figures.h"

namespace tally::page {

inline double SampleSeconds(uint64_t n) { return 0.061 + 0.004 * static_cast<double>(n * 37 % 11); }

inline LiveFigures SampleLive(uint64_t n, size_t layers = 24, size_t experts = 32, size_t top_k = 4) {
  LiveFigures f;
  f.model = "gpt-oss-20b";
  f.parameters = 20914757184;
  f.active_parameters = 3608310144;
  f.tokens = n;
  f.step.number = n + 1;
  f.step.rows = 1;
  f.step.seconds = SampleSeconds(n);
  f.step.flops_by_class = {
      {"linear", 7216620288}, {"attention", 400000 * (n + 40)}, {"norm", 1400000}, {"router", 4427040}, {"rope", 90000}};
  f.step.flops_by_type = {{"int8", 7100000000}, {"f32", 116620288 + 400000 * (n + 40) + 5917040}};
  f.step.bytes_by_kind = {{"weights stored", 2105000000}, {"weights packed", 2105000000}, {"KV read", 49152 * (n + 40)},
                          {"KV written", 49152},          {"activations read", 9000000},  {"activations written", 8000000}};
  f.step.parameters_touched = 3608310144;
  f.roofs = {true, 2, 42e9, {{"f32", 250e9}, {"bf16", 480e9}, {"int8", 1.21e12}}, "measured with 2 threads"};
  for (uint64_t step = n < 63 ? 0 : n - 63; step <= n; ++step) {
    f.recent.push_back({step, 1, SampleSeconds(step), 2105000000 + 49152 * (step + 41)});
  }
  f.kv_bytes = 49152 * (n + 40);
  f.budget_bytes = 402653184;
  f.running = 1;
  const auto chosen = [&](uint64_t step, size_t layer, size_t slot) {
    const uint64_t mixed = (step * 2654435761u + layer * 40503u + slot * 9973u) >> 3;
    return (mixed % experts) * (mixed / 7 % experts) / experts;  // some are used more
  };
  for (size_t layer = 0; layer < layers; ++layer) {
    LiveExperts e{static_cast<int32_t>(layer), std::vector<uint64_t>(experts), std::vector<uint64_t>(experts)};
    for (uint64_t step = 0; step <= n; ++step) {
      for (size_t slot = 0; slot < top_k; ++slot) ++e.total[chosen(step, layer, slot)];
    }
    for (size_t slot = 0; slot < top_k; ++slot) ++e.step[chosen(n, layer, slot)];
    f.experts.push_back(std::move(e));
  }
  return f;
}

}  // namespace tally::page
