// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: compiles a recipe and its weights into the ops of a plan.
#pragma once

#include <array>
#include <iterator>
#include <memory>

#include "engine/graph/block_planner.h"

namespace tally {

class Planner : private PlanBuilder {
 public:
  using PlanBuilder::PlanBuilder;

  void Make();

 private:
  void Buffers();
  void Embed();
  void EmbedTokens(Role table, float scale, Mat<float> out);
  void EmbedLayers();
  void LayerEmbedding();
  void Turns(const Rope& rope, const RopeFrequencies& frequencies, RopeTurns& turns);
  void Layer();
  void FeedForwards(Mat<float> in);
  void EndBlock(Role norm, Role last, const Span& part, bool ends, const Columns& columns);
  void AddOutput(Role norm, Role last, const Span& part);
  void AddNormed(Role role, float eps, Mat<const float> x, Mat<float> out);

  // planner_prediction.cc
  void Predict();

  // planner_shard.cc
  void EmbedOwned(Role table, float scale, Mat<float> out);
  void Head();
  void ShardBuffers(Mat<float> logits);

  // Null where no layer has the block.
  std::array<std::unique_ptr<BlockPlanner>, std::size(kMixerPlans)> mixers_;
  std::array<std::unique_ptr<BlockPlanner>, std::size(kFeedForwardPlans)> feed_forwards_;
  Mat<float> own_logits_;
  Mat<float> narrow_, normed_, ffn_normed_, beside_, layer_inputs_, layer_given_, layer_gate_;
};

}  // namespace tally
