// SPDX-License-Identifier: Apache-2.0
// MiniMax-M3 (MiniMax 2026): dense layers first, then experts beside a shared one, whose attention sees the blocks of 128 positions that
// an indexer chooses. Counted, not run. Tensors are those of llama.cpp's minimax-m3 and transformers' minimax_m3_vl.
#include "models/counted.h"
#include "models/family.h"
#include "models/readings.h"
#include "models/vision.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"MiniMaxM3SparseForConditionalGeneration", "MiniMaxM3SparseForCausalLM"};
constexpr std::string_view kHfTypes[] = {"minimax_m3_vl", "minimax_m3_vl_text", "minimax_m3"};

// A transformer over patches of several frames with a norm before it, two matrices for each patch and two for what is merged of them.
void AddVision(const Config& c, ModelSpec& spec, uint64_t out) {
  const auto number = [&](const char* key) { return VisionNumber(c, key); };
  const auto width = number("hidden_size"), d_ff = number("intermediate_size"), layers = number("num_hidden_layers"),
             patch = number("patch_size"), inner = number("projection_dim"),
             frames = number("img_token_compression_config.temporal_patch_size"),
             merge = number("img_token_compression_config.spatial_merge_size");
  if (!width || !d_ff || !layers || !patch || !inner || !frames || !merge) {
    return spec.parts_not_run.push_back({"vision_tower", std::nullopt});
  }
  const VisionEncoder v{*width, *d_ff, *layers, 3 * *frames * *patch * *patch};
  const auto two = [&](uint64_t in) { return in * *inner + *inner + *inner * out + out; };
  spec.parts_not_run.push_back({"vision_tower", v.patch * v.width + v.LayerParameters() + 2 * v.width});
  spec.parts_not_run.push_back({"multi_modal_projector", two(*width)});
  spec.parts_not_run.push_back({"patch_merge_mlp", two(*merge * *merge * out)});
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  bool sees = false;
  if (c.Is({"MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl"})) {
    sees = c.inventory().tensors.empty();
    EnterTextModel(c, spec, {"vision_tower.", "multi_modal_projector.", "patch_merge_mlp."});
  }
  ReadDecoder(
      c, spec,
      {.norm_eps = 1e-6, .n_kv_heads = 4, .head_dim = 128, .n_heads = 64, .context = 524288, .vocab = 200064, .rotated = 0.5});
  if (c.Bool("use_qk_norm", true)) r.all.attention.qk_norm = QkNormKind::kHead;
  r.all.ffn.width = c.Int("dense_intermediate_size", 1, kMaxWidth, 12288);
  ReadExperts(c, r, "num_local_experts", "intermediate_size");
  r.all.experts.shared_width = c.Int("n_shared_experts", 0, 64, 1) * c.Int("shared_intermediate_size", 1, kMaxWidth, 3072);
  r.all.experts.router_bias = c.Bool("use_routing_bias", true);
  const auto flags = [&](std::string_view key) {
    std::vector<int64_t> of = c.Ints(key);
    if (of.empty()) of.assign(r.layers.size(), 1);
    if (of.size() != r.layers.size()) c.Fail(std::string(key) + " lists other than the layers there are");
    of.resize(r.layers.size());
    return of;
  };
  const std::vector<int64_t> sparse = flags("moe_layer_freq"), indexed = flags("sparse_attention_config.sparse_attention_freq");
  const auto heads =
                 static_cast<uint64_t>(c.Int("sparse_attention_config.sparse_num_index_heads|index_n_heads", 1, kMaxHeads, 4)),
             dim = static_cast<uint64_t>(c.Int("sparse_attention_config.sparse_index_dim|index_head_dim", 1, kMaxHeads, 128)),
             chosen = static_cast<uint64_t>(c.Int("sparse_attention_config.sparse_topk_blocks", 1, kMaxContext, 16)) *
                      static_cast<uint64_t>(c.Int("sparse_attention_config.sparse_block_size", 1, 1 << 16, 128)),
             E = static_cast<uint64_t>(r.d_model);
  if (!c.ok()) return;
  if (sees) AddVision(c, spec, E);
  CountedParts parts(r);
  uint64_t layers = 0;
  for (size_t i = 0; i < r.layers.size(); ++i) {
    SetSparse(r.layers[i], sparse[i] != 0);
    if (indexed[i] == 0) continue;
    ++layers;
    parts.At(static_cast<int32_t>(i));
    parts.See(Component::kIndexer, 2 * heads * dim);
    parts.See(Component::kAttention,
              4 * static_cast<uint64_t>(r.all.attention.n_heads) * static_cast<uint64_t>(r.all.attention.head_dim), 1, chosen);
    parts.Matrix("indexer.q_proj", Component::kIndexer, heads * dim, E);
    parts.Matrix("indexer.k_proj", Component::kIndexer, dim, E);
    parts.Vector("indexer.q_norm", Component::kIndexer, dim);
    parts.Vector("indexer.k_norm", Component::kIndexer, dim);
  }
  parts.only().caches = {{"index keys", layers, dim}};
}

}  // namespace

extern constinit const Family kMiniMaxM3Family = {
    "minimax-m3", {}, kHf, kHfTypes, Read, {}, {}, {}, "attention to the blocks that an indexer chooses"};

}  // namespace tally
