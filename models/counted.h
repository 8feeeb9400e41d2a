// SPDX-License-Identifier: Apache-2.0
// Records the parts of a family that are counted and not run (Recipe::counted_only). Sizes are those of the published checkpoints.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/recipe/recipe.h"

namespace tally {

class CountedParts {
 public:
  explicit CountedParts(Recipe& recipe) : recipe_(recipe), only_(recipe.counted_only.emplace()) {}

  // The parts added next belong to this layer; -1: outside the layers.
  void At(int32_t layer) { layer_ = layer; }
  void Matrix(std::string_view name, Component component, uint64_t rows, uint64_t cols) {
    only_.tensors.push_back({.name = std::string(name), .layer = layer_, .component = component, .rows = rows, .cols = cols});
  }
  void Vector(std::string_view name, Component component, uint64_t size) {
    Matrix(name, component, 1, size);
    only_.tensors.back().vector = true;
  }
  // A table of which a token reads `read` rows.
  void Table(std::string_view name, Component component, uint64_t rows, uint64_t cols, uint64_t read) {
    Matrix(name, component, rows, cols);
    only_.tensors.back().looked_up = read;
  }
  // The recipe's gated experts, those that are shared and the router, for a layer for multi-token prediction.
  void Mixture();
  // Kimi delta attention (Kimi Linear 2025): so many heads, a decay for each channel of a key. `full_gate`: the gate of the output is one
  // matrix, else of low rank. `decays`: stored numbers of the decay; 0: one a head.
  void DeltaAttention(uint64_t heads, uint64_t head_dim, uint64_t taps, bool full_gate, uint64_t decays = 0);
  // Residual streams that are mixed at one place (DeepSeek-V4's manifold-constrained hyper-connections).
  void MixedStreams(std::string_view place, uint64_t streams);

  // Products of each row.
  void Work(Component component, uint64_t flops) { only_.work.push_back({layer_, component, flops}); }
  // A convolution of `channels` with so many taps, and `products` multiply-adds for each of the state's `state` elements: products of the
  // state with a vector, and outer products that are added to it.
  void Recurrence(uint64_t state, uint64_t products, uint64_t taps, uint64_t channels) {
    if (taps > 0) Work(Component::kRecurrentConv, 2 * taps * channels);
    Work(Component::kRecurrence, 2 * products * state);
  }
  // Products of each row with the entries that it sees.
  void See(Component component, uint64_t flops, uint64_t every = 1, uint64_t most = 0, uint64_t window = 0) {
    only_.work.push_back({layer_, component, flops, true, every, window, most});
  }

  CountedOnly& only() { return only_; }

 private:
  Recipe& recipe_;
  CountedOnly& only_;
  int32_t layer_ = -1;
};

}  // namespace tally
