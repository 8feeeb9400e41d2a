// SPDX-License-Identifier: Apache-2.0
// Figures in dispute of what a token costs: parameters that are charged to it, FLOPs of training, bytes of a decode step.
#include <algorithm>

#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"
#include "engine/studies/settled_claims.h"

namespace tally {
namespace work {
namespace {

using books::Count;
using books::WithThousands;

Count Counted(const char* name, const books::CountOptions& options = {}, bool type_given = false) {
  CountRequest request;
  request.model = name;
  request.options = options;
  request.type_given = type_given;
  Result<CountedModel> count = CountModel(request);
  return count.ok() ? std::move(count->count) : Count();
}

uint64_t U(int32_t n) { return static_cast<uint64_t>(n); }

// Norms, biases and other vectors.
uint64_t Vectors(const Count& c) {
  uint64_t sum = 0;
  for (const books::ParameterForm& p : c.tensors) sum += p.vector ? p.count.value() : 0;
  return sum;
}

// FLOPs of a training token as torchtitan counts them: 6 for each parameter that it uses, embedding left out, and 6 for each element of
// queries, keys, weights and values in a full square of `seq` positions, with or without windows.
uint64_t ByTorchtitan(const Count& c, uint64_t seq, bool windows) {
  uint64_t flops = 6 * c.parameters.active_head;
  for (const LayerRecipe& l : c.recipe->layers) {
    const Attention& shape = l.attention;
    const uint64_t seen = windows && l.attention.window > 0 ? std::min(seq, U(l.attention.window)) : seq;
    flops += 6 * U(shape.n_heads) * 2 * U(shape.head_dim) * seen;
  }
  return flops;
}

// Forward and backward of a token, matrix products, each position what it sees.
uint64_t TrainingToken(const Count& c) {
  return 3 * c.prefill.total[static_cast<size_t>(books::FlopsView::kCausal)].number().value() / c.options.prompt;
}

std::string SixN(const Count& c) {
  return "6 N alone: without embedding and head " + WithThousands(6 * c.parameters.active_none) + ", with the head " +
         WithThousands(6 * c.parameters.active_head) + ", with both " + WithThousands(6 * c.parameters.active_all);
}

uint64_t DecodeBytes(const Count& c) { return c.weight_bytes_per_token + 2 * c.state_bytes; }

std::vector<HybridClaim> AllWorkClaims() {
  constexpr uint64_t kSeq = 4096;
  const Count olmo = Counted("Olmo-3-7B"), r1 = Counted("DeepSeek-V3"), qwen = Counted("Qwen3-30B-A3B"),
              small = Counted("gpt-oss-20b", {.prompt = kSeq}), large = Counted("gpt-oss-120b", {.prompt = kSeq}),
              flash = Counted("DeepSeek-V4-Flash"), coder = Counted("Qwen3-Coder-Next", {.type = DType::kQ4_K}, true),
              ling = Counted("Ling-3.0-flash");
  const std::string causal = "matrix products forward and backward, each position what it sees; " + SixN(small);
  std::vector<HybridClaim> claims = {
      {"Olmo-3-7B", "528,384 parameters (llmfit hf_models.json)", Vectors(olmo), olmo.parameters.total,
       "the figure is the sum of its norms, 129 of 4,096"},
      {"DeepSeek-R1", "29.6B, a repository of GGUF files (llmfit #622)", 29'600'000'000, r1.parameters.total,
       "DeepSeek-V3's sizes, without multi-token prediction"},
      {"Qwen3-30B-A3B", "parameters that a decode step reads, all experts charged (llmfit #474, #449, #230)",
       qwen.parameters.total, qwen.touched, "8 of 128 experts, one row of the embedding"},
      {"Ling-3.0-flash", "5.1B active (its card)", 5'100'000'000, ling.parameters.active_head, "with the head"},
      {"Ling-3.0-flash", "5.5B active (vLLM recipes #743)", 5'500'000'000, ling.parameters.active_all,
       "with embedding and head; without either " + WithThousands(ling.parameters.active_none)},
      {"gpt-oss-20b", "FLOPs of a training token at 4,096, windows ignored (torchtitan before #4300)",
       ByTorchtitan(small, kSeq, false), TrainingToken(small), causal},
      {"gpt-oss-20b", "the same with windows, each a full square (torchtitan since #4300)", ByTorchtitan(small, kSeq, true),
       TrainingToken(small), "the same"},
      {"gpt-oss-20b", "the same, 6 N of active parameters without embedding and head (marin #4447)",
       6 * small.parameters.active_none, TrainingToken(small), "the same"},
      {"gpt-oss-20b", "the same, 6 N of active parameters with both", 6 * small.parameters.active_all, TrainingToken(small),
       "the same"},
      {"gpt-oss-120b", "FLOPs of a training token at 4,096, windows ignored (torchtitan before #4300)",
       ByTorchtitan(large, kSeq, false), TrainingToken(large), "as of gpt-oss-20b; " + SixN(large)},
      {"gpt-oss-120b", "the same with windows, each a full square (torchtitan since #4300)", ByTorchtitan(large, kSeq, true),
       TrainingToken(large), "the same"},
      {"DeepSeek-V4-Flash", "290,942,278,866 with multi-token prediction (torchtitan #4441)", 290'942'278'866,
       flash.parameters.total + flash.prediction, "41 biases of 256 of its routers, which are buffers there, counted"},
      {"Qwen3-Coder-Next", "bytes that a token reads, 3.75 % of a file of 51 GB (llama.cpp #19480)",
       51'000'000'000 / 10'000 * 375, DecodeBytes(coder),
       "matrices as Q4_K, with the head; " + WithThousands(2 * coder.state_bytes) + " of them states, read and written"}};
  return claims;
}

}  // namespace
}  // namespace work

std::vector<HybridClaim> WorkClaims() { return work::AllWorkClaims(); }

}  // namespace tally
