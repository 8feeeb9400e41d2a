// SPDX-License-Identifier: Apache-2.0
// Figures of models with recurrent layers that are in dispute, beside what is counted.
#include "engine/studies/count.h"
#include "tests/claims/claims.h"

namespace tally {
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
  return common + (total - common) / static_cast<uint64_t>(r.n_experts) * static_cast<uint64_t>(r.top_k);
}

// FLOPs a token of the matrices before and after the recurrences of Mamba-2.
uint64_t MambaProjections(const Recipe& r, uint64_t inner) {
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  uint64_t layers = 0;
  for (const LayerRecipe& l : r.layers) layers += l.mixers.has(Mixer::kMamba2) ? 1 : 0;
  const uint64_t in = 2 * inner + 2 * u(r.mamba.groups) * u(r.mamba.state_dim) + u(r.mamba.heads);
  return layers * 2 * u(r.d_model) * (in + inner);
}

uint64_t PartFlops(const books::FlopsCount& step, books::Part part) {
  uint64_t sum = 0;
  for (const books::FlopsRow& row : step.rows) {
    if (row.part == part) sum += row.flops[static_cast<size_t>(books::FlopsView::kEverything)].value();
  }
  return sum;
}

}  // namespace

std::vector<HybridClaim> HybridClaims() {
  const Count coder = Counted("Qwen3-Coder-Next"), qwen = Counted("Qwen3.6-35B-A3B"), nano = Counted("Nemotron-3-Nano");
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const auto attending = [](const Recipe& r) {
    uint64_t n = 0;
    for (const LayerRecipe& l : r.layers) n += l.attends() ? 1 : 0;
    return n;
  };
  const uint64_t delta_layers = u(qwen.recipe.n_layers) - attending(qwen.recipe);
  const uint64_t square = u(qwen.recipe.delta.value_dim) * u(qwen.recipe.delta.value_dim);
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
           qwen.kv_bytes_per_token * u(qwen.recipe.n_layers) / attending(qwen.recipe), qwen.kv_bytes_per_token,
           "f16; and " + WithThousands(qwen.state_bytes) + " bytes of states, whatever the length"},
          {"Nemotron-3-Nano", "FLOPs a token of Mamba's matrices, heads twice as wide as the model (Megatron-LM)",
           MambaProjections(nano.recipe, 2 * u(nano.recipe.d_model)),
           MambaProjections(nano.recipe, u(nano.recipe.mamba.heads) * u(nano.recipe.mamba.head_dim)),
           "its heads are " + WithThousands(u(nano.recipe.mamba.heads) * u(nano.recipe.mamba.head_dim)) + " wide"},
          {"Qwen3.6-35B-A3B", "FLOPs a token of the delta rule, 8 N_v^2 a head (Megatron-LM)",
           delta_layers * u(qwen.recipe.delta.value_heads) * 8 * square,
           PartFlops(qwen.decode, books::Part::kRecurrence) + PartFlops(qwen.decode, books::Part::kStateWork),
           "7 N_k N_v + 6 N_v + 3 N_k a head"}};
}

std::string HybridClaimRows() {
  std::string rows;
  for (const HybridClaim& c : HybridClaims()) {
    rows += "| " + c.model + " | " + c.claim + " | " + WithThousands(c.claimed) + " | " + WithThousands(c.counted) + " | " +
            c.convention + " |\n";
  }
  return rows;
}

}  // namespace tally
