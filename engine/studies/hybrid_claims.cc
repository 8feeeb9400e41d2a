// SPDX-License-Identifier: Apache-2.0
// Figures of models with recurrent layers, tables that are looked up or layers that differ that are in dispute, beside what is counted.
#include <algorithm>

#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"
#include "engine/studies/settled_claims.h"

namespace tally {
namespace hybrids {
namespace {

using books::Count;
using books::WithThousands;

Count Counted(const char* name) {
  CountRequest request;
  request.model = name;
  Result<CountedModel> count = CountModel(request);
  return count.ok() ? std::move(count->count) : Count();
}

// llmfit takes a twentieth of any mixture for what every token uses, and shares the rest among the experts.
uint64_t ByLlmfit(uint64_t total, const Recipe& r) {
  const uint64_t common = total / 20;
  return common + (total - common) / static_cast<uint64_t>(r.all.experts.n_experts) * static_cast<uint64_t>(r.all.experts.top_k);
}

// FLOPs a token of the matrices before and after the recurrences of Mamba-2.
uint64_t MambaProjections(const Recipe& r, uint64_t inner) {
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  uint64_t layers = 0;
  for (const LayerRecipe& l : r.layers) layers += l.mixers.has(Mixer::kMamba2) ? 1 : 0;
  const uint64_t in = 2 * inner + 2 * u(r.all.mamba.groups) * u(r.all.mamba.state_dim) + u(r.all.mamba.heads);
  return layers * 2 * u(r.d_model) * (in + inner);
}

// Bytes of KV, f16, that each further position adds once the windows are full.
uint64_t GrowingKv(const Recipe& r) {
  uint64_t elements = 0;
  for (const LayerRecipe& l : r.layers) {
    if (l.attention.window == 0 && l.attention.cache_of < 0) elements += books::CachedPerPosition(r, l).value();
  }
  return 2 * elements;
}

// The recipe as if every layer kept all positions and had a cache of its own.
Recipe NoSharing(Recipe r) {
  for (LayerRecipe& l : r.layers) l.attention.window = 0, l.attention.cache_of = -1;
  return r;
}

// Elements of layers' embeddings: stored, and read for a token.
std::string Tables(const Count& c) {
  uint64_t stored = 0, read = 0;
  for (const books::ParameterForm& p : c.tensors) {
    if (p.kind != WeightInfo::Kind::kTable) continue;
    stored += p.count.value();
    read += p.touched.value();
  }
  return "a table of " + WithThousands(stored) + ", of which a token reads " + WithThousands(read);
}

uint64_t PartFlops(const books::FlopsCount& step, books::Part part) {
  uint64_t sum = 0;
  for (const books::FlopsRow& row : step.rows) {
    if (row.part == part) sum += row.flops[static_cast<size_t>(books::FlopsView::kEverything)].number().value().value();
  }
  return sum;
}

std::vector<HybridClaim> AllHybridClaims() {
  const Count coder = Counted("Qwen3-Coder-Next"), qwen = Counted("Qwen3.6-35B-A3B"), nano = Counted("Nemotron-3-Nano");
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const auto attending = [](const Recipe& r) {
    uint64_t n = 0;
    for (const LayerRecipe& l : r.layers) n += l.attends() ? 1 : 0;
    return n;
  };
  const Count e2b = Counted("Gemma-4-E2B"), e4b = Counted("Gemma-4-E4B"), dense = Counted("Gemma-4-12B"),
              moe = Counted("Gemma-4-26B-A4B");
  const uint64_t delta_layers = u(qwen.recipe->n_layers) - attending(qwen.recipe);
  const uint64_t square = u(qwen.recipe->all.delta.value_dim) * u(qwen.recipe->all.delta.value_dim);
  return {{"Qwen3-Coder-Next", "active parameters by llmfit's formula for every mixture, 5 % and k/X of the rest (llmfit #544)",
           ByLlmfit(coder.parameters.total, coder.recipe), coder.parameters.active_none,
           "without embedding and head; with the head " + WithThousands(coder.parameters.active_head) + ", with both " +
               WithThousands(coder.parameters.active_all)},
          {"Nemotron-3-Nano", "3.2B active (card)", 3'200'000'000, nano.parameters.active_head, "with the head"},
          {"Nemotron-3-Nano", "3.6B active with embeddings (card)", 3'600'000'000, nano.parameters.active_all,
           "with embedding and head"},
          {"Nemotron-3-Nano", "A3.5B (llama.cpp's label)", 3'500'000'000, nano.parameters.active_all,
           "digits dropped, with embedding and head"},
          {"Nemotron-3-Nano", "A3B (its name)", 3'000'000'000, nano.parameters.active_none, "without embedding and head"},
          {"Qwen3.6-35B-A3B", "35B (its name)", 35'000'000'000, qwen.parameters.total, "of what runs"},
          {"Qwen3.6-35B-A3B", "A3B (its name)", 3'000'000'000, qwen.parameters.active_head,
           "with the head; without embedding and head " + WithThousands(qwen.parameters.active_none) + ", with both " +
               WithThousands(qwen.parameters.active_all)},
          {"Qwen3.6-35B-A3B", "bytes of KV a token, all layers charged (llmfit #951)",
           qwen.kv_bytes_per_token * u(qwen.recipe->n_layers) / attending(qwen.recipe), qwen.kv_bytes_per_token,
           "f16; and " + WithThousands(qwen.state_bytes) + " bytes of states, whatever the length"},
          {"Nemotron-3-Nano", "FLOPs a token of Mamba's matrices, heads twice as wide as the model (Megatron-LM)",
           MambaProjections(nano.recipe, 2 * u(nano.recipe->d_model)),
           MambaProjections(nano.recipe, u(nano.recipe->all.mamba.heads) * u(nano.recipe->all.mamba.head_dim)),
           "its heads are " + WithThousands(u(nano.recipe->all.mamba.heads) * u(nano.recipe->all.mamba.head_dim)) + " wide"},
          {"Qwen3.6-35B-A3B", "FLOPs a token of the delta rule, 8 N_v^2 a head (Megatron-LM)",
           delta_layers * u(qwen.recipe->all.delta.value_heads) * 8 * square,
           PartFlops(qwen.decode, books::Part::kRecurrence) + PartFlops(qwen.decode, books::Part::kStateWork),
           "7 N_k N_v + 6 N_v + 3 N_k a head"},
          {"Gemma-4-E2B", "2.3B effective (its card)", 2'300'000'000, e2b.parameters.active_head,
           "with the head, without " + Tables(e2b)},
          {"Gemma-4-E2B", "5.1B with embeddings (its card)", 5'100'000'000, e2b.parameters.total,
           "the text model, table included; the towers, and keys and values that no layer uses, are the rest"},
          {"Gemma-4-E4B", "4.5B effective (its card)", 4'500'000'000, e4b.parameters.active_head,
           "with the head, without " + Tables(e4b)},
          {"Gemma-4-26B-A4B", "3.8B active (its card)", 3'800'000'000, moe.parameters.active_all,
           "with the head, which is the embedding; without it " + WithThousands(moe.parameters.active_none)},
          {"Gemma-4-E2B", "bytes of KV a position, all layers charged", GrowingKv(NoSharing(e2b.recipe)), GrowingKv(e2b.recipe),
           "f16, beyond the windows: layers that see all and have a cache of their own"},
          {"Gemma-4-12B", "128 KB of KV a position (Rapid-MLX #1423)", 131'072, GrowingKv(dense.recipe),
           "f16, beyond the windows; within them " + WithThousands(dense.kv_bytes_per_token)},
          {"Gemma-4-12B", "64 KB of KV a position (the same)", 65'536, GrowingKv(dense.recipe), "the same"},
          {"Gemma-4-12B", "384 KB of KV a position (the same)", 393'216, GrowingKv(dense.recipe), "the same"}};
}

}  // namespace
}  // namespace hybrids

std::vector<HybridClaim> HybridClaims() { return hybrids::AllHybridClaims(); }

}  // namespace tally
