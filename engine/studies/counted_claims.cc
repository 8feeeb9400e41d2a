// SPDX-License-Identifier: Apache-2.0
// Figures in dispute of models that are counted and not run.
#include "engine/recipe/recipe.h"
#include "engine/studies/count.h"
#include "engine/studies/settled_claims.h"

namespace tally {
namespace counted {
namespace {

using books::Count;
using books::WithThousands;

struct Model {
  Count count;
  uint64_t parts = 0;  // parameters of parts that are not run, as far as they are known
};

Model Counted(const char* name, uint64_t context = 0) {
  CountRequest request;
  request.model = name;
  request.options.context = context;
  Result<CountedModel> counted = CountModel(request);
  if (!counted.ok()) return {};
  Model model{std::move(counted->count), 0};
  for (const PartNotRun& part : counted->not_run) model.parts += part.parameters.value_or(0);
  return model;
}

uint64_t Table(const Count& c) {
  uint64_t sum = 0;
  for (const books::ParameterForm& p : c.tensors) sum += p.component == Component::kNgramTable ? p.count.value() : 0;
  return sum;
}

std::string Active(const Count& c) {
  return "active: without embedding and head " + WithThousands(c.parameters.active_none) + ", with the head " +
         WithThousands(c.parameters.active_head) + ", with both " + WithThousands(c.parameters.active_all);
}

// Of the other's cache: "11.5 %".
std::string Percent(const Model& m, const Model& of) {
  return PercentOf(m.count.kv_bytes_at_context, of.count.kv_bytes_at_context, 1);
}

// Matrix products of a decoded token, each position what it sees.
const books::Figure<uint64_t>& Products(const Count& c) { return c.decode.total[static_cast<size_t>(books::FlopsView::kCausal)]; }

// Numbers that DeepSeek-V4 stores: experts in FP4, two a byte, with a scale for each 32; other matrices in FP8, with a scale for each 128 x
// 128; and the experts of each token of the layers that look them up.
uint64_t StoredNumbers(const Count& c, uint64_t hashed_layers) {
  uint64_t sum = hashed_layers * static_cast<uint64_t>(c.recipe->vocab) * static_cast<uint64_t>(c.recipe->all.experts.top_k);
  for (const books::ParameterForm& p : c.tensors) {
    const uint64_t n = p.count.value();
    const bool whole = p.vector || p.kind != WeightInfo::Kind::kBlock || p.component == Component::kRouter ||
                       p.component == Component::kCompressor || p.component == Component::kStreams ||
                       (p.component == Component::kIndexer && p.name != "indexer.attn_q_b");
    if (p.expert) {
      sum += n / 2 + n / 32;
    } else {
      sum += n + (whole ? 0 : p.slices * ((p.rows + 127) / 128) * ((p.cols + 127) / 128));
    }
  }
  return sum;
}

constexpr uint64_t kMillion = 1 << 20;

std::vector<FlopsShareClaim> AllFlopsShareClaims() {
  const Count sparse = Counted("DeepSeek-V3.2", kMillion).count;
  std::vector<FlopsShareClaim> claims;
  for (const auto& [model, printed] : {std::pair{"DeepSeek-V4-Pro", "27 %"}, {"DeepSeek-V4-Flash", "10 %"}}) {
    const Count count = Counted(model, kMillion).count;
    FlopsShareClaim claim{model, "DeepSeek-V3.2", kMillion, printed, "arXiv 2606.19348", 0, 0, {}};
    for (const auto& [name, of] : {std::pair<const char*, const Count*>{model, &count}, {"DeepSeek-V3.2", &sparse}}) {
      std::string lacks;
      for (const std::string& part : Products(*of).lacks()) lacks += (lacks.empty() ? "" : ", ") + part;
      if (!lacks.empty()) claim.lacks += (claim.lacks.empty() ? "" : "; ") + std::string(name) + " lacks " + lacks;
    }
    if (claim.lacks.empty()) {
      claim.flops = Products(count).number().value_or(0);
      claim.flops_of = Products(sparse).number().value_or(0);
    }
    claims.push_back(std::move(claim));
  }
  return claims;
}

std::vector<HybridClaim> AllCountedClaims() {
  const Model glm = Counted("GLM-5.3-Flash"), qwen = Counted("Qwen3.8-Flash-Next"), kimi = Counted("Kimi-K3"),
              flash = Counted("DeepSeek-V4-Flash", kMillion), pro = Counted("DeepSeek-V4-Pro", kMillion),
              sparse = Counted("DeepSeek-V3.2", kMillion), m3 = Counted("MiniMax-M3");
  const auto text = [](const Model& m) { return m.count.parameters.total; };
  const std::string without_mtp = "text model without multi-token prediction";
  return {
      {"GLM-5.3-Flash", "320B (its card)", 320'000'000'000, text(glm) + glm.count.prediction,
       "text model, " + WithThousands(glm.count.prediction) + " of multi-token prediction included"},
      {"GLM-5.3-Flash", "321.3B (llama.cpp #27773)", 321'300'000'000, text(glm) + glm.count.prediction,
       "the same; the rest is its vision tower, whose size no configuration here has"},
      {"GLM-5.3-Flash", "312B (unsloth #116)", 312'000'000'000, text(glm), without_mtp},
      {"GLM-5.3-Flash", "A17B (the same)", 17'000'000'000, glm.count.parameters.active_head, Active(glm.count)},
      {"DeepSeek-V4-Flash", "284B (its card)", 284'000'000'000, text(flash), without_mtp},
      {"DeepSeek-V4-Flash", "A13B (its card)", 13'000'000'000, flash.count.parameters.active_head, Active(flash.count)},
      {"DeepSeek-V4-Flash", "158,069,433,298, the hub's count; 157B from files' metadata (llama.cpp #26448)", 158'069'433'298,
       StoredNumbers(flash.count, 3),
       "numbers as stored: FP4 counted two a byte, with scales, tables and multi-token prediction"},
      {"DeepSeek-V4-Pro", "1.6T (its card)", 1'600'000'000'000, text(pro), without_mtp},
      {"DeepSeek-V4-Pro", "A49B (its card)", 49'000'000'000, pro.count.parameters.active_head, Active(pro.count)},
      {"DeepSeek-V4-Pro", "10 % of DeepSeek-V3.2's cache at 1,048,576 positions (arXiv 2606.19348)",
       (sparse.count.kv_bytes_at_context + 5) / 10, pro.count.kv_bytes_at_context,
       "bytes, every element f16, " + Percent(pro, sparse) + "; published caches are of mixed types"},
      {"DeepSeek-V4-Flash", "7 % of DeepSeek-V3.2's cache at 1,048,576 positions (arXiv 2606.19348)",
       (sparse.count.kv_bytes_at_context * 7 + 50) / 100, flash.count.kv_bytes_at_context, "the same, " + Percent(flash, sparse)},
      {"Qwen3.8-Flash-Next", "180.0B, the sum of its tensors", 179'999'981'459,
       text(qwen) + qwen.count.prediction + qwen.parts + 35,
       "with " + WithThousands(qwen.count.prediction) + " of multi-token prediction, " + WithThousands(qwen.parts) +
           " of a vision tower and 35 numbers of the hash"},
      {"Qwen3.8-Flash-Next", "125B (llama.cpp's label)", 125'000'000'000, text(qwen) - Table(qwen.count),
       "text model without a table of " + WithThousands(Table(qwen.count))},
      {"Qwen3.8-Flash-Next", "A6B (its card)", 6'000'000'000, qwen.count.parameters.active_none,
       "without embedding, table and head; with the head " + WithThousands(qwen.count.parameters.active_head)},
      {"Qwen3.8-Flash-Next", "parameters that a token reads, the whole table charged", qwen.count.parameters.active_all,
       qwen.count.touched, "16 rows of 160 of the table, one of the embedding"},
      {"Kimi-K3", "A50B (llama.cpp's label 2.8T.A50B)", 50'000'000'000, kimi.count.parameters.active_none, Active(kimi.count)},
      {"Kimi-K3", "A95B (a catalog entry of unsloth, 2.4T-A95B)", 95'000'000'000, kimi.count.parameters.active_none,
       "the same; 2.4T-A95B is Qwen3.8's"},
      {"Kimi-K3", "2.8T-A104B (its card)", 104'000'000'000, kimi.count.parameters.active_head, "with the head"},
      {"MiniMax-M3", "427,040,140,160, the hub's count", 427'040'140'160, text(m3) + m3.parts,
       "with " + WithThousands(m3.parts) + " of what sees"},
      {"MiniMax-M3", "A23B (its card)", 23'000'000'000, m3.count.parameters.active_none,
       "without embedding and head, digits dropped; with the head " + WithThousands(m3.count.parameters.active_head)},
  };
}

}  // namespace
}  // namespace counted

std::vector<FlopsShareClaim> FlopsShareClaims() { return counted::AllFlopsShareClaims(); }
std::vector<HybridClaim> CountedClaims() { return counted::AllCountedClaims(); }

}  // namespace tally
