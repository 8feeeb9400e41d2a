// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V3.2 (2025) and GLM-5 (2026): DeepSeek-V3 whose attention sees the positions that an indexer chooses. Counted, not run. The
// indexer has heads of its own, whose queries come from the compressed ones, one key a position with a LayerNorm, and a weight a head
// (transformers' DeepseekV32Indexer and GlmMoeDsaIndexer). Some of GLM-5.2's layers use the choice of an earlier layer.
#include <algorithm>

#include "models/counted.h"
#include "models/deepseek.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr std::string_view kHf[] = {"DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM"};
constexpr std::string_view kHfTypes[] = {"deepseek_v32", "glm_moe_dsa"};

// Whether a layer has an indexer; those for multi-token prediction have one.
std::vector<bool> ReadIndexed(Config& c, const Recipe& r) {
  std::vector<bool> indexed;
  for (const std::string& type : c.Strings("indexer_types")) indexed.push_back(type == "full");
  if (indexed.empty()) indexed.assign(static_cast<size_t>(r.n_layers), true);
  if (indexed.size() < static_cast<size_t>(r.n_layers)) c.Fail("indexer_types lists fewer layers than there are");
  indexed.resize(static_cast<size_t>(r.n_layers) + static_cast<size_t>(r.mtp_layers), true);
  return indexed;
}

void Read(Config& c, ModelSpec& spec) {
  Recipe& r = spec.recipe;
  ReadDeepseek(c, spec);
  r.family = c.Is({"DeepseekV32ForCausalLM", "deepseek_v32"}) ? "deepseek-v3.2" : "glm-5";
  const auto heads = static_cast<uint64_t>(c.Int("index_n_heads", 1, kMaxHeads, r.family == "glm-5" ? 32 : 64)),
             dim = static_cast<uint64_t>(c.Int("index_head_dim", 1, kMaxHeads, 128)),
             chosen = static_cast<uint64_t>(c.Int("index_topk", 1, kMaxContext, 2048));
  const std::vector<bool> indexed = ReadIndexed(c, r);
  if (!c.ok()) return;
  CountedParts parts(r);
  const auto E = static_cast<uint64_t>(r.d_model), rank = static_cast<uint64_t>(r.all.latent.q_rank);
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  for (size_t i = 0; i < indexed.size(); ++i) {
    parts.At(static_cast<int32_t>(i));
    const bool runs = i < static_cast<size_t>(r.n_layers);
    if (runs) {
      parts.See(Component::kAttention, 2 * u(r.all.attention.n_heads) * (2 * u(r.all.latent.kv_rank) + u(r.all.latent.rope_dim)),
                1, chosen);
    }
    if (!indexed[i]) continue;
    if (runs) parts.See(Component::kIndexer, 2 * heads * dim + 2 * heads);  // with keys; each head's by its weight
    parts.Matrix("indexer.attn_q_b", Component::kIndexer, heads * dim, rank);
    parts.Matrix("indexer.attn_k", Component::kIndexer, dim, E);
    parts.Vector("indexer.k_norm", Component::kIndexer, dim);
    parts.Vector("indexer.k_norm.bias", Component::kIndexer, dim);
    parts.Matrix("indexer.proj", Component::kIndexer, heads, E);
  }
  const auto layers = std::count(indexed.begin(), indexed.begin() + r.n_layers, true);
  parts.only().caches = {{"index keys", static_cast<uint64_t>(layers), dim}};
}

}  // namespace

extern constinit const Family kDeepseek32Family = {
    "deepseek-v3.2", {}, kHf, kHfTypes, Read, {}, {}, {}, "attention to the positions that an indexer chooses"};

}  // namespace tally
