// SPDX-License-Identifier: Apache-2.0
// Sequences that begin with what others have run have the bits of those that ran it themselves: windows, chunks, latent attention,
// convolutions, and a cache so small that blocks are evicted and used again.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/session/stepper.h"
#include "tests/support/open_engine.h"

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;

const std::string kGoldens = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/";

struct Steps {
  Steps(const std::shared_ptr<const Model>& model, const EngineOptions& options) {
    auto opened = Stepper::Create(std::dynamic_pointer_cast<const LoadedModel>(model), options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    stepper = std::move(opened).value();
  }
  SequenceStore& store() { return stepper->store(); }
  // Runs what the sequence lacks of the text, in pieces. The last token's logits.
  std::vector<float> Run(int32_t s, const Tokens& text, size_t piece, bool remember) {
    std::vector<float> logits;
    for (size_t at = static_cast<size_t>(store().Length(s)); at < text.size();) {
      std::vector<BatchRow> rows;
      for (const size_t end = std::min(text.size(), at + piece); at < end; ++at)
        rows.push_back({text[at], s, at + 1 == text.size()});
      const auto out = stepper->Step(rows);
      EXPECT_TRUE(out.ok()) << out.status().message();
      if (!out.ok() || !out->failed.empty()) {
        ADD_FAILURE() << "a step failed";
        return {};
      }
      if (at == text.size()) logits.assign(out->Logits(0).begin(), out->Logits(0).end());
      if (remember) store().Remember(s, "key", std::span(text).first(at), 2);
    }
    return logits;
  }

  std::unique_ptr<Stepper> stepper;
};

TEST(Reuse, SharedBeginningsHaveTheBitsOfSeparateRuns) {
  for (const char* name :
       {"llama/llama-a-f32-gqa-untied/model.gguf", "gptoss/gptoss-a-top4of8-realyarn", "llama4/llama4-a-f32-chunks-temperature",
        "deepseek_v3/deepseek3-a-f32-groups-mtp", "lfm2_moe/lfm2moe-a-f32-top3of6/model.gguf"}) {
    SCOPED_TRACE(name);
    EngineOptions options = SmallOptions();
    options.context = 600;
    options.max_batch = 64;
    options.sequences = 3;
    const auto loaded = LoadModel(kGoldens + name, options);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    const int32_t vocab = (*loaded)->recipe().vocab;
    const auto text = [&](int64_t shared, int32_t branch, int64_t n) {
      Tokens tokens;
      for (int64_t i = 0; i < n; ++i)
        tokens.push_back(static_cast<int32_t>((i * i + 7 * i + (i < shared ? 0 : branch * 31)) % vocab));
      return tokens;
    };
    const std::vector<Tokens> texts = {text(0, 0, 330),  text(300, 1, 340), text(300, 2, 301), text(256, 3, 400),
                                       text(10, 4, 420), text(330, 5, 345), text(70, 6, 500),  text(300, 1, 420),
                                       text(0, 0, 420),  text(70, 6, 520)};
    Steps apart(*loaded, options);
    std::vector<std::vector<float>> expected;
    for (const Tokens& tokens : texts) {
      const auto s = apart.store().NewSequence();
      ASSERT_TRUE(s.ok());
      expected.push_back(apart.Run(*s, tokens, 64, false));
      apart.store().Free(*s);
    }
    for (const bool small : {false, true}) {
      options.kv_bytes = small ? apart.store().BytesFor(options.context) * 3 / 2 : uint64_t{64} << 20;
      Steps shared(*loaded, options);
      int64_t reused = 0;
      for (size_t i = 0; i < texts.size(); ++i) {
        const auto s = shared.store().NewSequenceFor("key", std::span(texts[i]).first(texts[i].size() - 1));
        ASSERT_TRUE(s.ok()) << s.status().message();
        reused += shared.store().Length(*s);
        EXPECT_EQ(shared.Run(*s, texts[i], i % 2 == 0 ? 64 : 37, true), expected[i]) << "text " << i << ", small " << small;
        shared.store().Free(*s);
        EXPECT_TRUE(shared.store().Verify().ok());
      }
      // Recurrent layers begin where a step or most of one has ended.
      const int64_t lost = AnyLayer((*loaded)->recipe(), &LayerRecipe::recurrent) ? 64 : 0;
      EXPECT_GT(reused, small ? 300 : 300 + 300 + 256 + 10 + 330 + 70 + 340 + 330 + 500 - 1 - lost) << small;
    }
  }
}

}  // namespace
}  // namespace tally
