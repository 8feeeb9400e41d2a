// SPDX-License-Identifier: Apache-2.0
// How models with recurrent layers are read: which layer is what, the order of heads, rows of tensors that hold several matrices, factors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "models/made_checkpoint.h"
#include "tests/models/spec_tools.h"

namespace tally {
namespace {

using synthetic::Bound;
using synthetic::ExpectBadInput;
using synthetic::MustRead;
using synthetic::With;
using synthetic::Without;
using synthetic::WithoutTensors;

// A published model as a checkpoint without bytes.
MadeCheckpoint Made(const char* name, bool gguf) {
  const Inventory config = ReadConfigText(PublishedConfig(name), name).value();
  auto made = gguf ? MakeGguf(config, {}) : MakeHuggingFace(config, {});
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(made).value() : MadeCheckpoint{};
}

TEST(Hybrids, DeltaNetsOfEveryFormat) {
  for (const char* name : {"Qwen3.5-4B", "Qwen3.6-35B-A3B", "Qwen3-Coder-Next"}) {
    SCOPED_TRACE(name);
    const Recipe hf = Made(name, false).spec.recipe, gguf = Made(name, true).spec.recipe;
    Recipe same_order = hf;  // of the value heads
    ChangeLayers(same_order, [&](LayerRecipe& l) { l.delta.tiled = gguf.all.delta.tiled; });
    EXPECT_EQ(same_order.layers, gguf.layers);
    EXPECT_TRUE(hf.layers[2].mixers == Mixer::kDeltaRule && hf.layers[3].mixers == Mixer::kAttention);
    EXPECT_TRUE(hf.all.attention.gate && gguf.all.attention.gate);
    EXPECT_EQ(hf.rope.dim, 64);
    EXPECT_FALSE(hf.all.delta.tiled);
    EXPECT_EQ(gguf.all.delta.tiled, std::string_view(name) != "Qwen3-Coder-Next");
  }
}

TEST(Hybrids, RowsOfDeltaNets) {
  const ModelSpec next = Made("Qwen3-Coder-Next", false).spec, small = Made("Qwen3.5-4B", false).spec;
  // A key head's query, key, and the values and gates of two value heads, of 128 each.
  EXPECT_EQ(Bound(next, Role::kDeltaQ, 0)->rows, (RowMap{0, 128, 768}));
  EXPECT_EQ(Bound(next, Role::kDeltaK, 0)->rows, (RowMap{128, 128, 768}));
  EXPECT_EQ(Bound(next, Role::kDeltaV, 0)->rows, (RowMap{256, 256, 768}));
  EXPECT_EQ(Bound(next, Role::kDeltaGate, 0)->rows, (RowMap{512, 256, 768}));
  EXPECT_EQ(Bound(next, Role::kDeltaAlpha, 0)->rows, (RowMap{2, 2, 4}));
  EXPECT_EQ(Bound(small, Role::kDeltaV, 0)->rows, (RowMap{4096, 4096, 4096}));
  EXPECT_EQ(Bound(small, Role::kAttnGate, 3)->rows, (RowMap{256, 256, 512}));
  EXPECT_EQ(Bound(small, Role::kSsmA, 0)->storage, Storage::kMinusExp);
  EXPECT_EQ(Bound(small, Role::kAttnNorm, 0)->storage, Storage::kPlusOne);
  EXPECT_EQ(Bound(small, Role::kSsmNorm, 0)->storage, Storage::kPlain);
}

TEST(Hybrids, WhichLayersAttend) {
  const Inventory gguf = Made("Qwen3.5-4B", true).inventory, hf = Made("Qwen3.5-4B", false).inventory;
  const std::string list = "qwen35.attention.recurrent_layers", types = "text_config.layer_types";
  std::vector<bool> flags;
  std::vector<int64_t> numbers;
  std::vector<std::string> names;
  for (int i = 0; i < 32; ++i) {
    flags.push_back(i % 4 != 3);
    numbers.push_back(i % 4 != 3);
    names.emplace_back(i % 4 != 3 ? "linear_attention" : "full_attention");
  }
  EXPECT_EQ(MustRead(With(gguf, list, flags)).recipe, MustRead(gguf).recipe);
  EXPECT_EQ(MustRead(With(gguf, list, numbers)).recipe, MustRead(gguf).recipe);
  EXPECT_EQ(MustRead(With(hf, types, names)).recipe, MustRead(hf).recipe);
  flags.pop_back();
  ExpectBadInput(With(gguf, list, flags), {"attention.recurrent_layers lists 31 layers of 32"});
  names.back() = "sliding_attention";
  ExpectBadInput(With(hf, types, names), {"layer_types 'sliding_attention' is not supported"});
  ExpectBadInput(With(hf, "text_config.attn_output_gate", false), {"attn_output_gate false is not supported"});
  ExpectBadInput(With(hf, "text_config.rope_parameters.mrope_section", std::vector<int64_t>{1, 1, 1}), {"sections of M-RoPE"});
  Recipe by_time = MustRead(hf).recipe;
  EXPECT_EQ(by_time.rope.sections, (std::array<int32_t, 3>{11, 11, 10}));
  by_time.rope.sections = {};
  by_time.rope.sections_interleaved = false;
  EXPECT_EQ(MustRead(With(hf, "text_config.rope_parameters.mrope_section", std::vector<int64_t>{32, 0, 0})).recipe, by_time);
  ExpectBadInput(With(gguf, "qwen35.rope.dimension_sections", std::vector<int64_t>{32, 0, 0, 0}), {"sections of M-RoPE"});
}

TEST(Hybrids, LayersOfNemotron) {
  const MadeCheckpoint hf = Made("Nemotron-3-Nano", false), gguf = Made("Nemotron-3-Nano", true);
  const Recipe& r = hf.spec.recipe;
  EXPECT_EQ(r.layers, gguf.spec.recipe.layers);
  EXPECT_EQ(r.family, "nemotron-h-moe");
  EXPECT_TRUE(r.layers[0].mixers == Mixer::kMamba2 && r.layers[0].feed_forward.empty());
  EXPECT_TRUE(r.layers[1].mixers.empty() && r.layers[1].sparse());
  EXPECT_TRUE(r.layers[5].mixers == Mixer::kAttention && r.layers[5].feed_forward.empty());
  EXPECT_TRUE(!r.all.network.gated && r.all.network.activation == ActivationKind::kRelu2);
  EXPECT_EQ(r.all.mamba.norm_groups, 8);
  EXPECT_EQ(Bound(gguf.spec, Role::kSsmNorm, 0)->StoredShape(0), (std::vector<uint64_t>{8, 512}));
  EXPECT_EQ(Bound(gguf.spec, Role::kSsmA, 0)->StoredShape(0), (std::vector<uint64_t>{64, 1}));
  ExpectBadInput(With(hf.inventory, "hybrid_override_pattern", std::string("MX")),
                 {"hybrid_override_pattern 'X' is not supported"});
  ExpectBadInput(With(hf.inventory, "mlp_hidden_act", std::string("silu")), {"mlp_hidden_act 'silu' is not supported"});
}

TEST(Hybrids, FactorsOfFalconH1) {
  const Recipe r = Made("Falcon-H1-0.5B", false).spec.recipe;
  EXPECT_TRUE(r.layers[0].mixers.has(Mixer::kAttention) && r.layers[0].mixers.has(Mixer::kMamba2));
  EXPECT_FLOAT_EQ(r.layers[0].attention.scale, 0.390625f / 8);
  EXPECT_FLOAT_EQ(r.all.mamba.multipliers[1], 1.25f * 0.25f);
  EXPECT_FLOAT_EQ(r.all.attention.out_scale, 0.9375f);
  EXPECT_FLOAT_EQ(r.all.network.down_scale, 0.5859375f);
  EXPECT_FALSE(r.all.mamba.norm);
}

// A file of either format is the same model.
TEST(Hybrids, GroupsOfMamba2) {
  const MadeCheckpoint hf = Made("Codestral-Mamba-7B", false), gguf = Made("Codestral-Mamba-7B", true);
  EXPECT_EQ(hf.spec.recipe, gguf.spec.recipe);
  EXPECT_EQ(hf.spec.recipe.all.mamba.norm_groups, 8);
}

TEST(Hybrids, StepsAreLimited) {
  const Inventory hf = Made("Codestral-Mamba-7B", false).inventory;
  const Recipe usual = MustRead(hf).recipe;
  EXPECT_EQ(usual.all.mamba.dt_min, 0);
  EXPECT_TRUE(std::isinf(usual.all.mamba.dt_max));
  const Recipe r = MustRead(With(hf, "time_step_limit", std::vector<double>{0.001, 0.1})).recipe;
  EXPECT_FLOAT_EQ(r.all.mamba.dt_min, 0.001f);
  EXPECT_FLOAT_EQ(r.all.mamba.dt_max, 0.1f);
  EXPECT_EQ(MustRead(With(hf, "time_step_limit", std::vector<int64_t>{0, 100})).recipe.all.mamba.dt_max, 100);
  ExpectBadInput(With(hf, "time_step_limit", std::vector<double>{0.1, 0.001}), {"steps are limited"});
  ExpectBadInput(With(hf, "time_step_limit", std::vector<double>{0.1}), {"time_step_limit"});
}

TEST(Hybrids, KimiDeltaAttention) {
  const MadeCheckpoint kimi = Made("Kimi-Linear-48B-A3B", false), kimi_gguf = Made("Kimi-Linear-48B-A3B", true),
                       ling = Made("Ling-3.0-tiny", false), ling_gguf = Made("Ling-3.0-tiny", true);
  const Recipe &k = kimi.spec.recipe, &l = ling.spec.recipe;
  EXPECT_EQ(k.layers, kimi_gguf.spec.recipe.layers);
  EXPECT_EQ(k.all.delta, kimi_gguf.spec.recipe.all.delta);
  EXPECT_EQ(l.layers, ling_gguf.spec.recipe.layers);
  EXPECT_EQ(l.all.delta, ling_gguf.spec.recipe.all.delta);
  EXPECT_TRUE(k.layers[2].mixers == Mixer::kDeltaRule && k.layers[3].mixers == Mixer::kLatentAttention);
  EXPECT_TRUE(k.layers[24].mixers == Mixer::kDeltaRule && k.layers[26].mixers == Mixer::kLatentAttention);
  EXPECT_TRUE(k.rope.style == RopeStyle::kNone && l.rope.style == RopeStyle::kAdjacentPair);
  EXPECT_EQ(k.all.delta.gate_rank, 128);
  EXPECT_EQ(l.all.delta.gate_rank, 0);
  EXPECT_EQ(k.all.delta.decay_bound, 0);
  EXPECT_EQ(l.all.delta.decay_bound, -5);
  EXPECT_TRUE(l.all.attention.gate && !k.all.attention.gate);
  EXPECT_EQ(Bound(kimi.spec, Role::kSsmA, 0)->storage, Storage::kMinusExp);
  EXPECT_EQ(Bound(ling.spec, Role::kSsmA, 0)->storage, Storage::kExp);
  EXPECT_EQ(Bound(kimi_gguf.spec, Role::kSsmA, 0)->StoredShape(0), (std::vector<uint64_t>{32, 1}));
  EXPECT_EQ(Bound(kimi.spec, Role::kDeltaConvV, 0)->StoredShape(0), (std::vector<uint64_t>{4096, 1, 4}));
  EXPECT_EQ(Bound(ling.spec, Role::kAttnGate, 3)->shape, (std::vector<uint64_t>{16, 1536}));
}

TEST(Hybrids, LayersOfKimiDeltaAttention) {
  const Inventory kimi = Made("Kimi-Linear-48B-A3B", false).inventory, ling = Made("Ling-3.0-tiny", false).inventory,
                  gguf = Made("Ling-3.0-tiny", true).inventory;
  const auto of = [&](const Inventory& inventory, const std::string& key, MetaValue value) {
    return With(inventory, key, std::move(value));
  };
  ExpectBadInput(of(kimi, "linear_attn_config.kda_layers", std::vector<int64_t>{1, 2, 3, 4}),
                 {"layer 4 must be in one of kda_layers and full_attn_layers"});
  ExpectBadInput(of(kimi, "linear_attn_config.gate_lower_bound", -5.0), {"linear_attn_config.gate_lower_bound", "not supported"});
  ExpectBadInput(of(kimi, "mla_use_nope", false), {"mla_use_nope false is not supported"});
  ExpectBadInput(of(kimi, "hidden_act", std::string("situ")), {"hidden_act 'situ' is not supported"});
  ExpectBadInput(of(ling, "kda_safe_gate", false), {"kda_safe_gate false is not supported"});
  ExpectBadInput(of(ling, "kda_lower_bound", 5.0), {"kda_lower_bound is not negative"});
  ExpectBadInput(of(ling, "gated_attention_proj_granularity_type", std::string("element_wise")),
                 {"'element_wise' is not supported"});
  ExpectBadInput(of(ling, "expert_swiglu_limit_list", std::vector<double>{0, 4}), {"lists 2 layers of 24"});
  std::vector<double> limits(24);
  limits[20] = 4, limits[23] = 7;
  const auto limited = [&](float Experts::*limit) {
    return [limit](const Recipe& r) { return std::pair(r.layers[20].experts.*limit, r.layers[23].experts.*limit); };
  };
  const auto shared = limited(&Experts::shared_limit), experts = limited(&Experts::limit);
  for (const Recipe& r : {MustRead(of(ling, "expert_swiglu_limit_list", limits)).recipe,
                          MustRead(of(gguf, "bailingmoe3.swiglu_clamp_exp", limits)).recipe}) {
    EXPECT_EQ(experts(r), std::pair(4.0f, 7.0f));
    EXPECT_EQ(shared(r), std::pair(0.0f, 0.0f));
  }
  EXPECT_EQ(shared(MustRead(of(ling, "share_expert_swiglu_limit_list", limits)).recipe), std::pair(4.0f, 7.0f));
  limits[0] = 5;
  ExpectBadInput(of(gguf, "bailingmoe3.swiglu_clamp_shexp", limits), {"swiglu_clamp_shexp 5 of a dense layer is not supported"});
  limits[0] = -5;
  ExpectBadInput(of(gguf, "bailingmoe3.swiglu_clamp_shexp", limits), {"swiglu_clamp_shexp has -5"});
  ExpectBadInput(Without(gguf, "bailingmoe3.kda.gate_lower_bound"), {"kda.gate_lower_bound"});
  // Kimi Linear's shared experts: all of their tensors are missing, or none is.
  const Inventory file = Made("Kimi-Linear-48B-A3B", true).inventory, some = WithoutTensors(file, "*ffn_gate_shexp.weight"),
                  none = WithoutTensors(WithoutTensors(some, "*ffn_up_shexp.weight"), "*ffn_down_shexp.weight");
  ExpectBadInput(some, {"ffn_gate_shexp"});
  EXPECT_TRUE(MustRead(none).recipe.all.experts.shared_activation && MustRead(none).recipe.all.experts.shared_width == 0);
  EXPECT_FALSE(MustRead(file).recipe.all.experts.shared_activation);
}

// llama.cpp does not load a file without these keys, types and names, or turns other pairs.
TEST(Hybrids, GgufFilesAreAsLlamaCppNeedsThem) {
  const Inventory nemotron = Made("Nemotron-3-Nano", true).inventory, pythia = Made("Pythia-1.4B", true).inventory;
  EXPECT_EQ(nemotron.metadata.GetString("general.architecture").value(), "nemotron_h_moe");
  const std::string eps = "nemotron_h_moe.attention.layer_norm_epsilon", rms = "nemotron_h_moe.attention.layer_norm_rms_epsilon";
  EXPECT_TRUE(nemotron.metadata.Find(eps) != nullptr && nemotron.metadata.Find(rms) != nullptr);
  EXPECT_EQ(MustRead(Without(nemotron, rms)).recipe, MustRead(nemotron).recipe);
  const MetaValue* const parallel = pythia.metadata.Find("gptneox.use_parallel_residual");
  ASSERT_NE(parallel, nullptr);
  EXPECT_EQ(*parallel, MetaValue(true));
  const Inventory phi = Made("Phi-4-mini", true).inventory, qwen = Made("Qwen3.5-4B", true).inventory;
  const MetaValue* const context = phi.metadata.Find("phi3.rope.scaling.original_context_length");
  ASSERT_NE(context, nullptr);
  EXPECT_EQ(*context, MetaValue(int64_t{4096}));
  const Inventory falcon = Made("Falcon-7B", true).inventory;
  EXPECT_NE(falcon.Find("blk.0.attn_norm.weight"), nullptr);
  EXPECT_EQ(falcon.Find("blk.0.attn_norm_2.weight"), nullptr);
  const MetaValue* const sections = qwen.metadata.Find("qwen35.rope.dimension_sections");
  ASSERT_NE(sections, nullptr);
  EXPECT_EQ(*sections, MetaValue(std::vector<int64_t>{11, 11, 10, 0}));
}

}  // namespace
}  // namespace tally
