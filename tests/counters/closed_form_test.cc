// SPDX-License-Identifier: Apache-2.0
#include "counters/books/closed_form.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "counters/books/books.h"
#include "engine/recipe/recipe.h"
#include "tests/counters/expression.h"
#include "tests/counters/recipes.h"

namespace tally::books {
namespace {

TEST(Form, ReadsAsAFormula) {
  const Form H = Form::Symbol("H", 4), K = Form::Symbol("K", 2), D = Form::Symbol("D", 8), P = Form::Symbol("P", 5);
  struct Case {
    Form form;
    const char* text;
    uint64_t value;
  };
  const Case cases[] = {
      {0, "0", 0},
      {7, "7", 7},
      {2 * ((H + 2 * K) * D), "2 (H + 2 K) D", 128},
      {(H + 2 * K) * D, "(H + 2 K) D", 64},
      {3 * (2 * H), "6 H", 24},
      {0 * H, "0", 0},
      {1 * H + 0, "H", 4},
      {H + H, "2 H", 8},
      {Form(2) + 3, "5", 5},
      {2 * (H + K), "2 (H + K)", 12},
      {H * D * 2, "2 H D", 64},
      {(P * (P + 1)).Half(), "(P (P + 1) / 2)", 15},
      {(2 * P).Half(), "P", 5},
      {4 * H * (P * (P + 1)).Half(), "4 H (P (P + 1) / 2)", 240},
      {P - (H - K), "P - (H - K)", 3},
      {(P - H) * D, "(P - H) D", 8},
      {H + K + 2 * H + 1 + K + 3, "3 H + 2 K + 4", 20},
      {(2 * H + 4 * D).Half(), "H + 2 D", 20},
      {(H + 2) * (H + 2), "(H + 2) (H + 2)", 36},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(c.form.text(), c.text);
    EXPECT_EQ(c.form.value(), c.value) << c.text;
    EXPECT_FALSE(c.form.overflow()) << c.text;
  }
}

TEST(Form, SaysWhenItDoesNotFit) {
  const Form big = Form::Symbol("a", uint64_t{1} << 40), one = Form::Symbol("b", 1), odd = Form::Symbol("c", 3);
  EXPECT_TRUE((big * big).overflow());
  EXPECT_EQ((big * big).text(), "a a");
  EXPECT_TRUE((big * big + 1).overflow());
  EXPECT_TRUE((one - odd).overflow());
  EXPECT_TRUE(odd.Half().overflow());
  EXPECT_TRUE((Form(uint64_t{1} << 40) * Form(uint64_t{1} << 40)).overflow());
  EXPECT_FALSE((big * one).overflow());
}

std::vector<std::pair<const char*, Recipe>> AllRecipes() {
  Recipe whole = Sparse(Decoder(16, 2048, 16, 16, 128, 0, 50304, false), 64, 8, 1024);  // OLMoE
  ChangeLayers(whole, [](LayerRecipe& l) {
    l.attention.qk_norm = QkNormKind::kWhole;
    l.experts.routing = RoutingRule::kSoftmaxThenTopK;
  });
  Recipe gemma = Decoder(34, 2560, 8, 4, 256, 10240, 262208, true);
  ChangeLayers(gemma, [](LayerRecipe& l) {
    l.attention.qk_norm = QkNormKind::kHead;
    l.residual.post_norms = true;
    l.network.activation = ActivationKind::kGeluTanh;
  });
  gemma.embedding_scale = 50.6f;
  gemma.local_rope = {.style = RopeStyle::kRotateHalf, .dim = 128, .scaling = {}};
  for (size_t i = 0; i < gemma.layers.size(); ++i) {
    if (i % 6 == 5) continue;
    gemma.layers[i].attention.window = 1024;
    gemma.layers[i].attention.rope = LayerRope::kLocal;
  }
  Recipe shared = Sparse(Decoder(24, 2048, 16, 16, 128, 0, 151936, false), 60, 4, 1408);  // Qwen1.5-MoE-A2.7B
  ChangeLayers(shared, [](LayerRecipe& l) {
    l.attention.q_bias = l.attention.k_bias = l.attention.v_bias = l.experts.shared_gate = true;
    l.experts.shared_width = 5632;
    l.experts.routing = RoutingRule::kSoftmaxThenTopKRenormed;
  });
  return {{"gpt2", Gpt2(12, 768, 12)},     {"llama-3.2-1b", Decoder(16, 2048, 32, 8, 64, 8192, 128256, true)},
          {"gpt-oss-20b", GptOss(24, 32)}, {"olmoe", whole},
          {"gemma-3-4b", gemma},           {"qwen1.5-moe", shared},
          {"deepseek-v3", DeepSeekV3()}};
}

// What is printed is what was computed: the text alone, evaluated by other code.
TEST(ClosedForm, TextsEvaluateToTheirValues) {
  const Workload kSteps[] = {{1, 1024, 1024, 1024}, {1, 1024, 1024, 1}, {1, 7, 7, 7},    {3, 100, 100, 1}, {1, 1, 1, 1},
                             {1, 1, 1024, 1},       {8, 1, 4096, 1},    {1, 7, 2000, 7}, {2, 64, 130, 1},  {1, 200, 1100, 200}};
  for (const auto& [name, recipe] : AllRecipes()) {
    SCOPED_TRACE(name);
    std::map<std::string, uint64_t> symbols = SymbolsOf(recipe);
    for (const ParameterForm& p : ParameterForms(recipe)) {
      SCOPED_TRACE(p.name);
      for (const Form* f : {&p.count, &p.active, &p.touched}) {
        EXPECT_FALSE(f->overflow());
        EXPECT_EQ(Expression(f->text(), symbols).Value(), f->value()) << f->text();
      }
      EXPECT_EQ(p.count.value(), p.slices * p.rows * p.cols);
    }
    for (const Workload& w : kSteps) {
      symbols["B"] = w.sequences;
      symbols["P"] = w.rows;
      symbols["S"] = w.context;
      for (const WorkForm& f : WorkForms(recipe, w)) {
        SCOPED_TRACE(std::string(ComponentName(f.component)));
        for (const Form* form : {&f.flops, &f.special, &f.full_square}) {
          EXPECT_FALSE(form->overflow());
          if (symbols.count("W") == 1 && recipe.layers[std::max(f.layer, 0)].attention.window > 0)
            symbols["W"] = static_cast<uint64_t>(recipe.layers[std::max(f.layer, 0)].attention.window);
          EXPECT_EQ(Expression(form->text(), symbols).Value(), form->value()) << form->text();
        }
      }
    }
  }
}

uint64_t Matmul(const std::vector<WorkForm>& forms, Form WorkForm::*view) {
  uint64_t sum = 0;
  for (const WorkForm& f : forms) sum += f.matmul ? (f.*view).value() : 0;
  return sum;
}

// The figures of karpathy/nanoGPT transformer_sizing.ipynb (291,648,307,200) and of the course texts
// (shared/reference/published_claims.md), which count products of the full square.
TEST(ClosedForm, PublishedFlops) {
  const Workload whole{1, 1024, 1024, 1024};
  EXPECT_EQ(Matmul(WorkForms(Gpt2(12, 768, 12), whole), &WorkForm::full_square), 291'648'307'200u);
  EXPECT_EQ(Matmul(WorkForms(Gpt2(48, 1600, 25), whole), &WorkForm::full_square), 3'506'703'564'800u);
  EXPECT_EQ(Matmul(WorkForms(Gpt2(48, 1600, 25), {1, 16384, 16384, 16384}), &WorkForm::full_square), 133'416'668'364'800u);
  // A decode token of gpt-oss-20b: 7,214,284,800 in weights; attention of 12 full layers and 12 that see 128.
  auto decode = [](uint64_t context) { return Matmul(WorkForms(GptOss(24, 32), {1, 1, context, 1}), &WorkForm::flops); };
  EXPECT_EQ(decode(1024), 7'214'284'800u + 226'492'416u);
  EXPECT_EQ(decode(8192), 7'214'284'800u + 1'635'778'560u);
}

// Sums over the rows of a step, one by one, against the formulas' shortcuts.
TEST(ClosedForm, VisiblePositionsAreSummed) {
  Recipe r = Decoder(1, 32, 2, 1, 16, 64, 100, true);
  for (const int32_t window : {0, 1, 5, 16}) {
    r.layers[0].attention.window = window;
    for (uint64_t context = 1; context <= 24; ++context) {
      for (uint64_t rows = 1; rows <= context; ++rows) {
        uint64_t visible = 0;
        for (uint64_t i = context - rows; i < context; ++i)
          visible += window > 0 ? std::min<uint64_t>(i + 1, static_cast<uint64_t>(window)) : i + 1;
        for (const WorkForm& f : WorkForms(r, {3, rows, context, 1})) {
          if (f.component != Component::kAttention) continue;
          if (f.work_class == WorkClass::kAttention) {
            EXPECT_EQ(f.flops.value(), 3 * 4 * visible * 2 * 16) << window << " " << context << " " << rows;
            EXPECT_EQ(f.full_square.value(), 3 * 4 * rows * context * 2 * 16);
          } else {
            EXPECT_EQ(f.flops.value(), 3 * 4 * visible * 2) << window << " " << context << " " << rows;
            EXPECT_EQ(f.special.value(), 3 * 2 * (visible + rows * 16));
          }
        }
      }
    }
  }
}

TEST(ClosedForm, PredictionLayersAreCountedApart) {
  const Recipe r = DeepSeekV3();
  uint64_t with = 0, layers = 0;
  for (const ParameterForm& p : ParameterForms(r)) {
    with += p.count.value();
    EXPECT_EQ(p.apart(), p.layer == 61) << p.name;
    layers += p.apart() ? 1 : 0;
  }
  EXPECT_EQ(ClosedFormCounts(r).total, 671'026'419'200u);
  EXPECT_GT(layers, 10u);
  // A layer of attention 187,107,328, router 1,835,264, 257 experts of 44,040,192; eh_proj 2 * 7168^2; five norms. (README_WEIGHTS.md of
  // deepseek-ai/DeepSeek-V3 says 11.5B, which is this without eh_proj.)
  EXPECT_EQ(with - ClosedFormCounts(r).total, 187'107'328u + 1'835'264u + 257u * 44'040'192ull + 2u * 7168 * 7168 + 5u * 7168);
}

uint64_t FlopsAt(const Recipe& r, int32_t layer, Component component, WorkClass work_class) {
  uint64_t sum = 0;
  for (const WorkForm& f : WorkForms(r, {2, 3, 5, 1})) {
    if (f.layer == layer && f.component == component && f.work_class == work_class) sum += f.flops.value();
  }
  return sum;
}

// Six rows. A table for each rope that a layer turns by, 3 a pair; 6 a pair of each head that turns; a scaled embedding one an element.
TEST(ClosedForm, RopesByLayerAndScaledEmbeddings) {
  Recipe r = Decoder(4, 32, 2, 1, 16, 64, 100, true);
  const auto rope = [&](int32_t layer) { return FlopsAt(r, layer, Component::kRope, WorkClass::kRope); };
  EXPECT_EQ(rope(-1), 6u * 3 * 8);
  EXPECT_EQ(FlopsAt(r, -1, Component::kEmbedding, WorkClass::kResidualBias), 0u);
  r.embedding_scale = 5.6f;
  EXPECT_EQ(FlopsAt(r, -1, Component::kEmbedding, WorkClass::kResidualBias), 6u * 32);
  r.local_rope = {.style = RopeStyle::kRotateHalf, .dim = 4, .scaling = {}};
  r.layers[1].attention.rope = LayerRope::kLocal;
  r.layers[2].attention.rope = LayerRope::kNone;
  EXPECT_EQ(rope(-1), 6u * 3 * (8 + 2));
  EXPECT_EQ(rope(0), 6u * 3 * 6 * 8);
  EXPECT_EQ(rope(1), 6u * 3 * 6 * 2);
  EXPECT_EQ(rope(2), 0u);
  for (LayerRecipe& layer : r.layers) layer.attention.rope = LayerRope::kLocal;
  EXPECT_EQ(rope(-1), 6u * 3 * 2);
  for (LayerRecipe& layer : r.layers) layer.attention.rope = LayerRope::kNone;
  EXPECT_EQ(rope(-1), 0u);
  const auto all = [](const Recipe& recipe) {
    std::vector<uint64_t> flops;
    for (const WorkForm& f : WorkForms(recipe, {2, 3, 5, 1})) flops.push_back(f.flops.value());
    return flops;
  };
  Recipe parallel = r;
  ChangeLayers(parallel, [](LayerRecipe& l) { l.residual.kind = Residual::kParallel; });
  EXPECT_EQ(all(parallel), all(r));
}

TEST(ClosedForm, CachedElements) {
  const auto first = [](const Recipe& r) { return CachedPerPosition(r, r.layers[0]); };
  EXPECT_EQ(first(GptOss(24, 32)).value(), 1024u);
  EXPECT_EQ(first(GptOss(24, 32)).text(), "2 K D");
  EXPECT_EQ(first(DeepSeekV3()).value(), 576u);
  EXPECT_EQ(CachedPositions({.attention = {.window = 128}}, 1000), 128u);
  EXPECT_EQ(CachedPositions({.attention = {.window = 128}}, 100), 100u);
  EXPECT_EQ(CachedPositions({}, 1000), 1000u);
}

}  // namespace
}  // namespace tally::books
