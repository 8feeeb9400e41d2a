// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/plan.h"

#include <gtest/gtest.h>

namespace tally {
namespace {

Recipe SmallRecipe() {
  Recipe r;
  r.n_layers = 2;
  r.d_model = 16;
  r.all.attention.n_heads = 2;
  r.all.attention.n_kv_heads = 2;
  r.all.attention.head_dim = 4;
  r.all.ffn.width = 32;
  r.vocab = 1 << 10;
  r.all.attention.scale = 0.5f;
  r.layers.resize(2);
  FillLayers(r);
  return r;
}

// Views without data, of F32.
WeightView ViewOf(const Recipe& r, Role role) {
  WeightView w;
  w.layout = WeightLayout::kPanel16;
  w.cols = role == Role::kDown ? r.all.ffn.width : r.d_model;
  w.rows = role == Role::kHead ? r.vocab : role == Role::kGate || role == Role::kUp ? r.all.ffn.width : r.d_model;
  w.panel_stride = PanelBytes(w.dtype, w.cols);
  return w;
}

uint64_t Bytes(const Recipe& r, const PlanOptions& options, int threads) {
  const RopeFrequencies none;
  return PlanBytes({r, [&](Role role, int32_t) { return ViewOf(r, role); }, none, none}, options, threads);
}

TEST(PlanBytes, MoreThanAnyMachineHasIsNoSmallPlan) {
  const Recipe r = SmallRecipe();
  const auto plan = [&](int64_t max_batch, int64_t max_logit_rows, int threads) {
    return Bytes(r, {.max_batch = max_batch, .max_logit_rows = max_logit_rows}, threads);
  };
  EXPECT_LT(plan(8, 1, 2), uint64_t{1} << 20);
  for (int64_t huge : {INT64_MAX / 2, int64_t{1} << 61, int64_t{1} << 62}) EXPECT_EQ(plan(huge, 1, 1), UINT64_MAX) << huge;
  EXPECT_EQ(plan(1, int64_t{1} << 52, 1), UINT64_MAX);     // logits
  EXPECT_EQ(plan(int64_t{1} << 50, 1, 1024), UINT64_MAX);  // the threads' scratch
}

// Scratch of every kernel that may run is in the plan: of attention, and of OpenBLAS, which unpacks weights into it.
TEST(PlanBytes, HoldsTheScratchOfAttentionAndBlas) {
  Recipe r = SmallRecipe();
  const uint64_t small = Bytes(r, {.max_batch = 1}, 8) - Bytes(r, {.max_batch = 1}, 1);
  ChangeLayers(r, [](LayerRecipe& l) { l.attention.head_dim = 256; });
  EXPECT_GT(Bytes(r, {.max_batch = 1}, 8) - Bytes(r, {.max_batch = 1}, 1), small + 7 * 128 * sizeof(float));
}

// The norm of queries and keys is RMS with a weight alone, whatever the layer's norms are and however many heads it has.
TEST(MakePlan, NormsOfQueriesAndKeysAreRmsInAnyModel) {
  const RopeFrequencies none;
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const int32_t heads : {1, 2}) {
      Recipe r = SmallRecipe();
      r.norm = kind;
      ChangeLayers(r, [&](LayerRecipe& l) {
        l.attention.n_heads = l.attention.n_kv_heads = heads;
        l.attention.qk_norm = QkNormKind::kHead;
      });
      const auto weight = [&](Role role, int32_t) {
        static constexpr uint8_t kData = 0;  // a view with data is a weight that the model has
        WeightView view = ViewOf(r, role);
        view.data = &kData;
        return view;
      };
      Plan plan;
      ASSERT_TRUE(MakePlan({r, weight, none, none}, {.max_batch = 1}, plan).ok());
      int norms = 0;
      for (const PlannedOp& planned : plan.ops) {
        const auto* op = std::get_if<NormOp>(&planned.op);
        if (op == nullptr) continue;
        const Component c = planned.sites[0].component;
        const bool of_heads = c == Component::kAttnQNorm || c == Component::kAttnKNorm;
        norms += of_heads;
        EXPECT_EQ(op->kind, of_heads ? NormKind::kRms : kind);
        EXPECT_EQ(op->groups, of_heads ? heads : 1);
        EXPECT_EQ(op->bias.empty(), of_heads || kind == NormKind::kRms);
      }
      EXPECT_EQ(norms, 4);
    }
  }
}

// The packed input of each matrix lies in the plan's memory for packs, which the logits follow.
TEST(MakePlan, PacksHaveRoomWhateverIsWidest) {
  Recipe latent = SmallRecipe();
  ChangeLayers(latent, [](LayerRecipe& l) {
    l.mixers = Mixer::kLatentAttention;
    l.latent = {.kv_rank = 8, .q_rank = 4096, .nope_dim = 2, .rope_dim = 2, .v_dim = 6};
  });
  latent.rope = {.style = RopeStyle::kAdjacentPair, .dim = 2, .scaling = {}};
  Recipe compressed = latent;
  ChangeLayers(compressed, [](LayerRecipe& l) { std::swap(l.latent.kv_rank, l.latent.q_rank); });
  Recipe sparse = SmallRecipe();
  ChangeLayers(sparse, [](LayerRecipe& l) {
    l.feed_forward = FeedForward::kSparse;
    l.experts = {.n_experts = 4, .top_k = 3, .width = 5, .shared_width = 96};
  });
  for (const Recipe& r : {SmallRecipe(), latent, compressed, sparse}) {
    const RopeFrequencies two{.inv_freq = {1}}, none;
    Plan plan;
    const auto weight = [&](Role role, int32_t) { return ViewOf(r, role); };
    ASSERT_TRUE(MakePlan({r, weight, two, none}, {.max_batch = 3, .max_logit_rows = 1}, plan).ok());
    const uint8_t* end = reinterpret_cast<const uint8_t*>(plan.logits.data);
    for (const PlannedOp& planned : plan.ops) {
      const auto* op = std::get_if<PackActOp>(&planned.op);
      if (op == nullptr) continue;
      const size_t bytes = static_cast<size_t>(op->pack.rows) * ActRowBytes(op->pack.format, op->pack.cols);
      EXPECT_LE(op->pack.data + bytes, end) << op->pack.rows << " rows of " << op->pack.cols;
    }
  }
}

TEST(CannotRun, NamesWhatNoPlanCovers) {
  Recipe r = SmallRecipe();
  EXPECT_TRUE(CannotRun(r).empty());
  ChangeLayers(r, [](LayerRecipe& l) { l.residual = {.kind = Residual::kParallel, .scale = 0.5f, .post_norms = true}; });
  r.norm = NormKind::kLayer;
  EXPECT_EQ(CannotRun(r),
            (std::vector<std::string>{"LayerNorm after attention and feed-forward",
                                      "a residual scale with norms after the blocks", "parallel blocks with norms after them"}));
}

}  // namespace
}  // namespace tally
