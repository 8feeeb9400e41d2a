// SPDX-License-Identifier: Apache-2.0
// Parameter counts of built-in models against published totals that are exact to the last digit: those of the catalogue's claims, and
// those below.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "models/catalog/catalog.h"

namespace tally {
namespace {

// What a published total has beyond the text model.
enum class Besides : uint8_t {
  kNothing,
  kPrediction,        // layers for multi-token prediction
  kPredictionCopies,  // and their copies of embedding and head, which are stored
  kUntoldPrediction,  // one such layer, which the configuration does not tell of
  kParts,             // parts that are not run: the tower of a model that sees
  kAll,               // kPrediction and kParts
  kTiedCopy,          // the embedding a second time, as the head
};

struct PublishedTotal {
  std::string_view name;
  uint64_t published;
  Besides with = Besides::kNothing;
  uint64_t more = 0;  // numbers that are stored and not learned
};

// Hugging Face hub's counts (safetensors) and llama.cpp's n_params, as public repositories quote them; of gpt2 the course texts'.
constexpr PublishedTotal kTotals[] = {
    {"gpt2", 124'439'808},
    {"gpt2-medium", 354'823'168},
    {"gpt2-large", 774'030'080},
    {"gpt2-xl", 1'557'611'200},
    {"gpt-oss-20b", 20'914'757'184},
    {"gpt-oss-120b", 116'829'156'672},
    {"Llama-2-7B", 6'738'415'616},
    {"Llama-3.1-8B", 8'030'261'248},
    {"Llama-3.1-70B", 70'553'706'496},
    {"Llama-3.2-1B", 1'235'814'400},
    {"Llama-4-Scout", 108'641'793'536, Besides::kParts},
    {"Llama-4-Maverick", 401'583'781'376, Besides::kParts},
    {"TinyLlama-1.1B", 1'100'048'384},
    {"Mixtral-8x7B", 46'702'792'704},
    {"Phi-4-mini", 3'836'021'760},
    {"DeepSeekMoE-16B", 16'375'728'128},
    {"DeepSeek-V2-Lite", 15'706'484'224},
    {"DeepSeek-V2", 235'741'434'880},
    {"MiniCPM-2B", 2'724'880'896},
    {"LFM2-1.2B", 1'170'340'608},
    {"Nemotron-3-Nano", 31'577'940'288},
    {"Falcon-7B", 7'217'189'760, Besides::kTiedCopy},
    {"Gemma-3-1B", 999'885'952},
    {"Gemma-3-4B", 4'300'079'472, Besides::kParts},
    {"Gemma-3-12B", 12'187'325'040, Besides::kParts},
    {"Gemma-3-27B", 27'432'406'640, Besides::kParts},
    {"GLM-4-9B", 9'399'951'360},
    {"GLM-4-9B-0414", 9'400'279'040},
    {"GLM-4.5", 358'337'791'296, Besides::kPredictionCopies},
    {"GLM-4.5-Air", 110'468'824'832, Besides::kPredictionCopies},
    {"GLM-5", 753'864'139'008, Besides::kPrediction},
    {"Qwen1.5-MoE-A2.7B", 14'315'784'192},
    {"Qwen3-0.6B", 596'049'920},
    {"Qwen3-0.6B", 751'632'384, Besides::kTiedCopy},
    {"Qwen3-1.7B", 1'720'574'976},
    {"Qwen3-1.7B", 2'031'739'904, Besides::kTiedCopy},
    {"Qwen3-4B", 4'022'468'096},
    {"Qwen3-8B", 8'190'735'360},
    {"Qwen3-14B", 14'768'307'200},
    {"Qwen3-32B", 32'762'123'264},
    {"Qwen3-30B-A3B", 30'532'122'624},
    {"Qwen3-235B-A22B", 235'093'634'560},
    {"Qwen3-Coder-Next", 79'674'391'296},
    {"Qwen3-Next-80B-A3B", 79'674'391'296},
    {"Qwen3-Next-80B-A3B", 81'324'862'720, Besides::kUntoldPrediction},
    {"Qwen3.5-4B", 4'205'751'296},
    {"Qwen3.5-27B", 27'781'427'952, Besides::kAll},
    {"Qwen3.5-35B-A3B", 35'951'822'704, Besides::kAll},
    {"Qwen3.6-35B-A3B", 35'951'822'704, Besides::kAll},
    {"Qwen3.8-Flash-Next", 179'999'981'459, Besides::kAll, 35},  // multipliers and sizes of the hash
    {"MiniMax-M3", 427'040'140'160, Besides::kParts},
};

CatalogModel Known(std::string_view name) {
  Result<CatalogModel> model = FindCatalogModel(name);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? std::move(model).value() : CatalogModel{};
}

uint64_t Prediction(const Recipe& recipe) {
  uint64_t sum = 0;
  for (const books::ParameterForm& p : books::ParameterForms(recipe)) sum += p.apart() ? p.count.value() : 0;
  return sum;
}

uint64_t Embedding(const Recipe& r) { return static_cast<uint64_t>(r.vocab) * static_cast<uint64_t>(r.d_model); }

uint64_t CountedWith(const CatalogModel& model, Besides with) {
  uint64_t sum = books::ClosedFormCounts(model.recipe).total;
  if (with == Besides::kPrediction || with == Besides::kPredictionCopies || with == Besides::kAll)
    sum += Prediction(model.recipe);
  if (with == Besides::kPredictionCopies) sum += 2 * Embedding(model.recipe);
  if (with == Besides::kUntoldPrediction) {
    Recipe recipe = model.recipe;
    recipe.mtp_layers = 1;
    sum += Prediction(recipe);
  }
  if (with == Besides::kTiedCopy) sum += Embedding(model.recipe);
  if (with == Besides::kParts || with == Besides::kAll) {
    for (const PartNotRun& part : model.parts_not_run) sum += part.parameters.value_or(0);
  }
  return sum;
}

// "7,615,616,512"; nullopt: rounded, or nothing.
std::optional<uint64_t> Exact(std::string_view text) {
  std::string digits(text);
  std::erase(digits, ',');
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return error == std::errc() && end == digits.data() + digits.size() ? std::optional(value) : std::nullopt;
}

TEST(Totals, AreExact) {
  size_t exact = 0;
  for (const std::string_view name : CountedNames()) {
    const CatalogModel model = Known(name);
    const books::ParameterCounts counts = books::ClosedFormCounts(model.recipe);
    const std::optional<uint64_t> published = Exact(model.claim.total);
    if (published && name != "GPT-J-6B") {  // whose vocabulary is said to be larger than its files' (docs/claims.md)
      EXPECT_EQ(counts.total, *published) << name;
      ++exact;
    }
    if (const std::optional<uint64_t> rest = Exact(model.claim.non_embedding)) {
      EXPECT_EQ(counts.active_none, *rest) << name;
    }
    exact += std::ranges::any_of(kTotals, [&](const PublishedTotal& t) { return t.name == name; }) && !published ? 1 : 0;
  }
  for (const PublishedTotal& t : kTotals) EXPECT_EQ(CountedWith(Known(t.name), t.with) + t.more, t.published) << t.name;
  EXPECT_GE(exact, 90u);
}

// FP8 in blocks of 128 by 128, each with a scale that the hub counts as a number.
TEST(Totals, OfModelsStoredInFp8) {
  for (const auto& [name, published] : {std::pair{"DeepSeek-V3", 684'531'386'000}, std::pair{"DeepSeek-V3.2", 685'396'921'376}}) {
    const CatalogModel model = Known(name);
    uint64_t scales = 0;
    for (const books::ParameterForm& p : books::ParameterForms(model.recipe)) {
      const bool whole = p.vector || p.component == Component::kEmbedding || p.component == Component::kHead ||
                         p.component == Component::kRouter || p.component == Component::kPrediction || p.name == "indexer.proj";
      if (!whole) scales += p.slices * ((p.rows + 127) / 128) * ((p.cols + 127) / 128);
    }
    EXPECT_EQ(CountedWith(model, Besides::kPredictionCopies) + scales, static_cast<uint64_t>(published)) << name;
  }
}

}  // namespace
}  // namespace tally
