// SPDX-License-Identifier: Apache-2.0
#include "counters/books/model_count.h"

#include <gtest/gtest.h>

#include <cmath>

#include "counters/books/training.h"
#include "engine/recipe/recipe.h"
#include "tests/counters/expression.h"
#include "tests/counters/recipes.h"

namespace tally::books {
namespace {

Count MustCount(const Recipe& recipe, const CountOptions& options) {
  auto count = CountRecipe(recipe, options);
  EXPECT_TRUE(count.ok()) << count.status().message();
  return count.ok() ? std::move(count).value() : Count();
}

uint64_t BytesAs(const Count& c, DType type) {
  for (const Count::Memory& m : c.memory) {
    if (m.type == type) return m.bytes;
  }
  return 0;
}

double Share(const Count& c, Part part, FlopsView view) {
  const size_t v = static_cast<size_t>(view);
  for (const FlopsRow& row : c.prefill.rows) {
    if (row.part == part)
      return std::round(1e4 * static_cast<double>(row.flops[v].number().value().value()) /
                        static_cast<double>(c.prefill.total[v].number().value())) /
             100;
  }
  return 0;
}

// The checkpoint sizes of the gpt-oss card, and the bytes that a token reads (shared/reference/published_claims.md).
TEST(Count, GptOssMemory) {
  const Count small = MustCount(GptOss(24, 32), {.type = DType::kMXFP4}),
              large = MustCount(GptOss(36, 128), {.type = DType::kMXFP4});
  EXPECT_EQ(small.weight_bytes, 13'761'264'768u);
  EXPECT_EQ(BytesAs(small, DType::kMXFP4), 13'761'264'768u);
  EXPECT_EQ(large.weight_bytes, 65'248'815'744u);
  EXPECT_EQ(small.weight_bytes_per_token, 3'708'089'088u);
  EXPECT_EQ(large.weight_bytes_per_token, 5'002'907'904u);
  EXPECT_EQ(small.touched, 3'608'310'144u);
  EXPECT_EQ(BytesAs(small, DType::kBF16), 2 * 20'914'757'184u);
  EXPECT_EQ(BytesAs(small, DType::kF32), 4 * 20'914'757'184u);
  EXPECT_EQ(small.kv_bytes_per_token, 24u * 2 * 8 * 64 * 2);
}

TEST(Count, WindowsCapTheCache) {
  const Count c = MustCount(GptOss(24, 32), {.context = 8192, .batch = 3});
  EXPECT_EQ(c.kv_bytes_at_context, 3u * 12 * (8192 + 128) * 1024 * 2);
  EXPECT_EQ(c.kv_bytes_read, c.kv_bytes_at_context);
  // Of a chunk a row reads what is before it, and layers that share a cache read it each.
  Recipe chunks = Decoder(2, 64, 4, 2, 16, 96, 100, true);
  chunks.layers[0].attention.chunk = 8;
  const Count chunked = MustCount(chunks, {.context = 11});
  EXPECT_EQ(chunked.kv_bytes_at_context, (8u + 11) * 64 * 2);
  EXPECT_EQ(chunked.kv_bytes_read, (3u + 11) * 64 * 2);
  chunks.layers[0].attention.chunk = 0;
  chunks.layers[1].attention.cache_of = 0;
  const Count shared = MustCount(chunks, {.context = 11});
  EXPECT_EQ(shared.kv_bytes_at_context, 11u * 64 * 2);
  EXPECT_EQ(shared.kv_bytes_read, 2u * 11 * 64 * 2);
  EXPECT_EQ(c.decode.workload.context, 8192u);
  EXPECT_EQ(c.prefill.workload.rows, 1024u);
}

// A table of n-grams, an indexer, caches of fewer positions and a state, none of which anything runs.
TEST(Count, OfModelsThatAreCountedOnly) {
  Recipe r = Decoder(2, 64, 4, 2, 16, 96, 100, true);
  const Count plain = MustCount(r, {.prompt = 8, .context = 33});
  CountedOnly& only = r.counted_only.emplace();
  only.why = "an indexer";
  only.tensors = {{.name = "ngrams", .component = Component::kNgramTable, .rows = 1000, .cols = 16, .looked_up = 4},
                  {.name = "indexer", .layer = 1, .component = Component::kIndexer, .rows = 8, .cols = 64},
                  {.name = "mix", .layer = 1, .component = Component::kStreams, .cols = 64, .vector = true}};
  only.caches = {{.name = "index keys", .layers = 2, .elements = 8, .every = 4},
                 {.name = "keys within the window", .layers = 1, .elements = 16, .window = 10}};
  only.state_elements = 5;
  const Count c = MustCount(r, {.prompt = 8, .context = 33});
  EXPECT_EQ(c.parameters.total, plain.parameters.total + 16'000 + 8 * 64 + 64);
  EXPECT_EQ(c.parameters.active_all, plain.parameters.active_all + 16'000 + 8 * 64 + 64);
  EXPECT_EQ(c.parameters.active_none, plain.parameters.active_none + 8 * 64 + 64);
  EXPECT_EQ(c.touched, plain.touched + 4 * 16 + 8 * 64 + 64);
  EXPECT_EQ(c.kv_bytes_per_token, plain.kv_bytes_per_token + 2 * (2 * 8 / 4 + 16));
  EXPECT_EQ(c.kv_bytes_at_context, plain.kv_bytes_at_context + 2 * (2 * 8 * (32 / 4) + 16 * 10));
  EXPECT_EQ(c.state_bytes, 5u * 4);
  EXPECT_EQ(c.weight_bytes_per_token, plain.weight_bytes_per_token + 2 * (4 * 16 + 8 * 64 + 64));
  // Matrix products are whole: those of the decoder, attention's among them, and of the indexer. Other work is not counted.
  constexpr size_t kFull = 0, kCausal = 1, kAll = 2;
  const uint64_t layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96,
                 products = 2 * (2 * layer + 100 * 64 + 8 * 64) + 2 * 4 * 64 * 33;
  EXPECT_EQ(c.decode.total[kFull], products);
  EXPECT_EQ(c.decode.total[kCausal], products);
  EXPECT_EQ(c.kv_bytes_read, c.kv_bytes_at_context);
  for (const Figure<uint64_t>* figure : {&c.decode.total[kAll], &c.decode.special, &c.prefill.total[kAll]}) {
    EXPECT_FALSE(figure->number().has_value());
    EXPECT_EQ(figure->lacks().front(), "norms");
  }
  EXPECT_FALSE(c.decode_intensity.whole() || c.prefill_intensity.whole());
  // Attention to 5 positions at most in layer 1, whose rows see 4 at a time; what is lacking and what is not known of reads.
  only.work = {{1, Component::kAttention, 10, true, 1, 0, 5}, {1, Component::kIndexer, 3, true, 4, 0, 0}};
  const Count chosen = MustCount(r, {.prompt = 8, .context = 33});
  EXPECT_EQ(chosen.decode.total[kCausal], products - 4 * 64 * 33 + 10 * 5 + 3 * (33 / 4));
  EXPECT_EQ(chosen.kv_bytes_read, c.kv_bytes_at_context - 2 * 2 * 32 * (33 - 5));
  const auto prefill = [&](uint64_t n) { return *MustCount(r, {.prompt = n}).prefill.total[kCausal].number(); };
  uint64_t seen = 0, blocks = 0;
  for (uint64_t t = 1; t <= 8; ++t) seen += std::min<uint64_t>(t, 5), blocks += t / 4;
  EXPECT_EQ(prefill(8), 8 * 2 * (2 * layer + 100 * 64 + 8 * 64) + 4 * 64 * 36 + 10 * seen + 3 * blocks);
  only.lacks_products = {"a part"};
  only.lacks_reads = {"a cache"};
  const Count part = MustCount(r, {.prompt = 8, .context = 33});
  EXPECT_FALSE(part.decode.total[kCausal].whole() || part.decode.total[kFull].whole() || part.kv_bytes_read.whole());
  EXPECT_NE(PartialWords(part).find("bytes read from the cache lack a cache"), std::string::npos) << PartialWords(part);
  only.work.clear();
  only.lacks_products.clear();
  only.lacks_reads.clear();
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_NE(c.warnings[0].find("counted and not run (an indexer)"), std::string::npos);
  EXPECT_FALSE(CountTraining(c).ok());
  // Elements of a cache that do not fit 64 bits, and a tensor of a layer that is not there.
  only.caches[0].elements = 1000;
  const auto far = CountRecipe(r, {.context = 100'000'000'000'000'000});
  ASSERT_FALSE(far.ok());
  EXPECT_NE(far.status().message().find("do not fit 64 bits"), std::string::npos) << far.status().message();
  only.caches.clear();
  only.tensors[1].layer = 2;
  EXPECT_EQ(CountRecipe(r, {.prompt = 8}).status().message(), "indexer is of layer 2 of 2");
}

// LFM2-1.2B: 10 of 16 layers have a convolution of 3 positions, and nothing a token.
TEST(Count, ConvolutionsKeepTheirLastRows) {
  Recipe r = Decoder(16, 2048, 32, 8, 64, 8192, 65536, true);
  ChangeLayers(r, [](LayerRecipe& l) { l.conv.taps = 3; });
  for (size_t i = 0; i < 16; ++i) {
    if (i != 2 && i != 5 && i != 8 && i != 10 && i != 12 && i != 14) r.layers[i].mixers = Mixer::kShortConv;
  }
  const Count c = MustCount(r, {.context = 8192});
  EXPECT_EQ(c.kv_elements_per_token.text(), "12 K D");
  EXPECT_EQ(c.kv_bytes_per_token, 6u * 1024 * 2);
  EXPECT_EQ(c.kv_bytes_at_context, 8192u * 6 * 1024 * 2);
  EXPECT_EQ(c.state_elements.text(), "10 (J - 1) E");
  EXPECT_EQ(c.state_bytes, 10u * 2 * 2048 * 4);
}

TEST(Count, ExpertsThatABatchShares) {
  const Recipe r = GptOss(24, 32);
  const Count c = MustCount(r, {.batch = 8, .type = DType::kMXFP4});
  EXPECT_NEAR(c.decode_traffic.uniform_experts, 21.0, 0.05);  // against min(8 * 4, 32)
  EXPECT_EQ(c.decode_traffic.most_experts, 32u);
  const Count one = MustCount(r, {.type = DType::kMXFP4});
  EXPECT_EQ(one.decode_traffic.most_experts, 4u);
  EXPECT_DOUBLE_EQ(one.decode_traffic.uniform_experts, 4);
  EXPECT_NEAR(one.decode_traffic.uniform, static_cast<double>(one.weight_bytes_per_token), 1);
  EXPECT_EQ(one.decode_traffic.most, one.weight_bytes_per_token);
}

// The course text 001: GPT-2 in its four sizes at 1,024, with the shares of its table.
TEST(Count, CourseSharesOfGpt2) {
  const Count small = MustCount(Gpt2(12, 768, 12), {}), xl = MustCount(Gpt2(48, 1600, 25), {});
  EXPECT_EQ(small.prefill.total[0], 291'648'307'200u);
  EXPECT_EQ(xl.prefill.total[0], 3'506'703'564'800u);
  constexpr FlopsView kFull = FlopsView::kFullSquare;
  EXPECT_DOUBLE_EQ(Share(small, Part::kFeedForward, kFull), 39.76);
  EXPECT_DOUBLE_EQ(Share(small, Part::kProjections, kFull), 19.88);
  EXPECT_DOUBLE_EQ(Share(small, Part::kAttention, kFull), 13.25);
  EXPECT_DOUBLE_EQ(Share(small, Part::kHead, kFull), 27.10);
  EXPECT_DOUBLE_EQ(Share(xl, Part::kFeedForward, kFull), 57.41);
  EXPECT_DOUBLE_EQ(Share(xl, Part::kHead, kFull), 4.70);
  EXPECT_EQ(*small.prefill.total[0].number() - *small.prefill_last.total[0].number(), 1023ull * 2 * 50257 * 768);
  EXPECT_LT(*small.prefill.total[1].number(), *small.prefill.total[0].number());
  EXPECT_GT(*small.prefill.total[2].number(), *small.prefill.total[1].number());
}

TEST(Count, PartsAndClassesAddUp) {
  for (const Recipe& r : {GptOss(24, 32), Gpt2(12, 768, 12), DeepSeekV3()}) {
    const Count c = MustCount(r, {.prompt = 300, .context = 700, .batch = 2});
    for (const FlopsCount* f : {&c.prefill, &c.prefill_last, &c.decode}) {
      uint64_t classes = 0, special = 0, sites = 0;
      for (const Figure<uint64_t>& n : f->by_class) classes += n.number().value();
      for (const Figure<uint64_t>& n : f->special_by_class) special += n.number().value();
      for (const WorkForm& s : f->sites) sites += s.flops.value();
      EXPECT_EQ(classes, f->total[2]);
      EXPECT_EQ(special, f->special);
      EXPECT_EQ(sites, f->total[2]);
    }
    uint64_t total = 0;
    for (const ParameterForm& p : c.tensors) total += p.apart() ? 0 : p.count.value();
    EXPECT_EQ(total, c.parameters.total);
  }
}

// What is printed for a part of the model, all layers together, is what it says.
TEST(Count, PartsEvaluateToTheirValues) {
  Recipe gemma = Decoder(34, 2560, 8, 4, 256, 10240, 262208, true);
  for (size_t i = 0; i < gemma.layers.size(); ++i) gemma.layers[i].attention.window = i % 6 == 5 ? 0 : 1024;
  Recipe partial = DeepSeekV3();  // GLM-4.5 turns half of each head
  ChangeLayers(partial, [](LayerRecipe& l) {
    l.mixers = Mixer::kAttention;
    l.latent = {};
    l.attention.head_dim = 128;
  });
  for (const Recipe& r : {GptOss(24, 32), Gpt2(12, 768, 12), DeepSeekV3(), gemma, partial}) {
    for (const CountOptions& o : {CountOptions{}, CountOptions{.prompt = 3000, .context = 5000, .batch = 3},
                                  CountOptions{.prompt = 1, .context = 9}, CountOptions{.prompt = 64, .context = 1}}) {
      const Count c = MustCount(r, o);
      for (const FlopsCount* f : {&c.prefill, &c.prefill_last, &c.decode}) {
        std::map<std::string, uint64_t> symbols = SymbolsOf(r);
        symbols["B"] = f->workload.sequences;
        symbols["P"] = f->workload.rows;
        symbols["S"] = f->workload.context;
        for (const FlopsRow& row : f->rows) {
          for (const Figure<Form>* figure : {&row.flops[0], &row.flops[1], &row.flops[2], &row.special}) {
            const Form form = figure->number().value();
            EXPECT_EQ(Expression(form.text(), symbols).Value(), form.value()) << PartName(row.part) << ": " << form.text();
          }
        }
      }
    }
  }
}

// Sequences at one position read one row of the learned positions between them.
TEST(Count, PositionsOfABatch) {
  const Count c = MustCount(Gpt2(12, 768, 12), {.batch = 16, .type = DType::kF32});
  EXPECT_EQ(c.decode_traffic.most, c.weight_bytes_per_token);  // the embedding is the head, which is read whole
  EXPECT_EQ(c.prefill_traffic.most, c.weight_bytes);
}

TEST(Count, StoredTypes) {
  const Recipe r = GptOss(24, 32);
  for (const ParameterForm& p : ParameterForms(r)) {
    const DType q8 = StoredType(p, DType::kQ8_0), mx = StoredType(p, DType::kMXFP4);
    const bool experts = p.name.find("_exps") != std::string::npos && !p.vector;
    EXPECT_EQ(q8, p.vector || p.component == Component::kRouter ? DType::kF32 : DType::kQ8_0) << p.name;
    EXPECT_EQ(mx, experts ? DType::kMXFP4 : DType::kBF16) << p.name;
    EXPECT_EQ(StoredType(p, DType::kF16), DType::kF16);
  }
  ParameterForm odd;
  odd.rows = 3;
  odd.cols = 33;
  EXPECT_EQ(StoredType(odd, DType::kQ4_0), DType::kF16);
  EXPECT_EQ(StoredBytesAs(odd, DType::kQ4_0), 3u * 33 * 2);
  odd.expert = true;
  EXPECT_EQ(StoredType(odd, DType::kMXFP4), DType::kBF16);
  EXPECT_EQ(StoredBytesAs(odd, DType::kMXFP4), 3u * 33 * 2);
  odd.cols = 64;
  EXPECT_EQ(StoredBytesAs(odd, DType::kQ4_0), 3u * 2 * 18);
  EXPECT_EQ(StoredBytesAs(odd, DType::kMXFP4), 3u * 2 * 17);
  Recipe narrow = r;  // no parameter may be stored in nothing
  ChangeLayers(narrow, [](LayerRecipe& l) { l.experts.width = 100; });
  for (const ParameterForm& p : ParameterForms(narrow)) {
    for (const DType type : kWeightTypes)
      EXPECT_GE(4 * StoredBytesAs(p, type), p.count.value()) << p.name << " " << DTypeName(type);
  }
}

TEST(Count, RefusesAndWarns) {
  const Recipe gpt2 = Gpt2(12, 768, 12);
  auto message = [&](const Recipe& r, const CountOptions& o) {
    auto c = CountRecipe(r, o);
    return c.ok() ? std::string("counted") : std::string(c.status().message());
  };
  EXPECT_EQ(message(gpt2, {.batch = 0}), "a batch must have at least 1 sequence");
  EXPECT_EQ(message(gpt2, {.type = DType::kMXFP4}), "MXFP4 is a type of experts, and this model has none");
  Recipe none = GptOss(24, 32);
  ChangeLayers(none, [](LayerRecipe& l) { l.experts.n_experts = 0; });
  EXPECT_EQ(message(none, {}), "top_k is 4; expected 1 to the number of experts, 0");
  none = gpt2;
  none.vocab = 0;
  EXPECT_EQ(message(none, {}), "vocab is 0; expected at least 1");
  none = gpt2;
  none.context = 0;
  EXPECT_EQ(message(none, {}), "learned positions need a context; it is 0");
  const std::string too_much = "these counts do not fit 64 bits: the prompt, the context or the batch is too large";
  EXPECT_EQ(message(gpt2, {.prompt = uint64_t{1} << 40}), too_much);
  EXPECT_EQ(message(gpt2, {.context = uint64_t{1} << 62}), too_much);
  EXPECT_EQ(message(gpt2, {.batch = uint64_t{1} << 63}), too_much);
  const Count c = MustCount(gpt2, {.prompt = 16384});
  ASSERT_EQ(c.warnings.size(), 1u);
  EXPECT_EQ(c.warnings[0],
            "a prompt of 16,384 is longer than the 1,024 positions that the model was trained on; counted all the same");
  EXPECT_TRUE(MustCount(gpt2, {.prompt = 1024}).warnings.empty());
}

// A checkpoint's own bytes, where they are known, are what is counted.
TEST(Count, StoredBytesComeFirst) {
  const Recipe r = Gpt2(12, 768, 12);
  const Count plain = MustCount(r, {.type = DType::kF32});
  const Count stored = MustCount(r, {.type = DType::kF32, .stored_bytes = {{"blk.3.attn_qkv", 1000}}});
  EXPECT_EQ(plain.weight_bytes - stored.weight_bytes, 4u * 3 * 768 * 768 - 1000);
  EXPECT_EQ(plain.weight_bytes_per_token - stored.weight_bytes_per_token, 4u * 3 * 768 * 768 - 1000);
}

}  // namespace
}  // namespace tally::books
