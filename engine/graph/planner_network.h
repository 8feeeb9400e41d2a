// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: what the planners of a dense feed-forward and of experts share (planner_feed_forward.cc).
#pragma once

#include "engine/graph/block_planner.h"

namespace tally {

class NetworkPlanner : public BlockPlanner {
 protected:
  using BlockPlanner::BlockPlanner;

  void FirstMatrices(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index = nullptr,
                     RowsOf of = RowsOf::kBatch);
  void ScaleHidden(Role role, Mat<float> own, int64_t cols);

 private:
  void ApplyXielu(Role role, Mat<float> hidden);
};

}  // namespace tally
