// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: what the planners of attention and latent attention share (planner_attention.cc).
#pragma once

#include <algorithm>

#include "engine/graph/block_planner.h"

namespace tally {

class HeadsPlanner : public BlockPlanner {
 protected:
  // Heads of a matrix: head h has columns [h * stride, h * stride + dim) of `m`.
  struct Heads {
    Mat<float> m;
    int64_t stride, dim;
  };

  HeadsPlanner(PlanBuilder& builder, Mixer mixer) : BlockPlanner(builder), mixer_(mixer) {}

  const Rope& LayersRope() const;
  bool Rotates() const;
  void Rotate(const Heads& x, int64_t heads, const Heads* out = nullptr);
  void StoreKv(Mat<const float> k, Mat<const float> v, const KvLayout& layout, Work work);
  // `shared`: a process of a lower rank reads the same keys and values.
  void Attend(Mat<const float> q, Mat<float> out, const Span& heads, const KvLayout& layout, bool shared);

 private:
  int32_t Cache() const;

  const Mixer mixer_;
};

inline LayerCache KvCache(const LayerRecipe& l, const KvLayout& layout) {
  return {.window = std::max(l.attention.window, l.attention.chunk), .layout = layout};
}

}  // namespace tally
