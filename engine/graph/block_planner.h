// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: the planner of a block, and what the plan knows of each block (recipe/layer.h lists them). A block's planner is in a
// file of its own, planner_*.cc.
#pragma once

#include <memory>
#include <optional>

#include "engine/graph/plan_builder.h"

namespace tally {

// Made once a plan, for a block that some layer has.
class BlockPlanner {
 public:
  explicit BlockPlanner(PlanBuilder& builder) : b_(builder) {}
  virtual ~BlockPlanner() = default;
  BlockPlanner(const BlockPlanner&) = delete;
  BlockPlanner& operator=(const BlockPlanner&) = delete;

  // Takes the buffers that all layers with the block share, and asks for room in those that blocks share.
  virtual void Buffers() = 0;
  // Plans the block of the layer at hand. Returns its last matrix. A feed-forward may overwrite `in`.
  virtual Role Make(Mat<float> in) = 0;

 protected:
  using Work = PlanBuilder::Work;
  using As = PlanBuilder::As;
  using Columns = PlanBuilder::Columns;
  using SharedPack = PlanBuilder::SharedPack;

  PlanBuilder& b_;
};

struct BlockPlan {
  std::unique_ptr<BlockPlanner> (*planner)(PlanBuilder& builder) = nullptr;
  // What a layer's block keeps of earlier positions, with `layer` and `mixer` left out. nullopt: the layer reads another's. Null: blocks of
  // this kind keep nothing.
  std::optional<LayerCache> (*cache)(const LayerRecipe& layer, const LayerPart& part, KvType type) = nullptr;
};

template <class Planner>
std::unique_ptr<BlockPlanner> NewPlanner(PlanBuilder& builder) {
  return std::make_unique<Planner>(builder);
}

#define TALLY_BLOCK(name, member) extern const BlockPlan k##name##Plan;
TALLY_MIXERS(TALLY_BLOCK)
TALLY_FEED_FORWARDS(TALLY_BLOCK)
#undef TALLY_BLOCK
// By Mixer and by FeedForward.
#define TALLY_BLOCK(name, member) &k##name##Plan,
inline constexpr const BlockPlan* kMixerPlans[] = {TALLY_MIXERS(TALLY_BLOCK)};
inline constexpr const BlockPlan* kFeedForwardPlans[] = {TALLY_FEED_FORWARDS(TALLY_BLOCK)};
#undef TALLY_BLOCK

}  // namespace tally
