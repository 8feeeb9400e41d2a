// SPDX-License-Identifier: Apache-2.0
// What tests of conversations share: small random checkpoints that write letters, and a format made by hand.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/session/conversation.h"
#include "engine/studies/synth.h"
#include "loaders/loaders.h"
#include "tests/app/text_model.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {

// Full attention, a window of 8 positions in two of three layers, latent attention, and short convolutions of 4 positions.
inline constexpr const char* kFull = "llama/llama-a-f32-gqa-untied";
inline constexpr const char* kWindow = "gptoss/gptoss-a-top4of8-realyarn";
inline constexpr const char* kLatent = "deepseek_v2/deepseek2-b-f32-qlora-groups";
inline constexpr const char* kConv = "lfm2/lfm2-b-bf16-taps4-untied";

// A network of the shape of that golden, with TextModel's tokenizer. It draws the letters c to z: of others all logits are 0. So
// answers, rendered again, are the tokens that were drawn.
inline std::string WriteChatModel(const TempFolder& folder, const std::string& golden, uint64_t seed = 1) {
  const std::string words = folder / "words.gguf", path = folder / ("model-" + std::to_string(seed) + ".gguf");
  EXPECT_TRUE(TextModel::Write(words).ok());
  SynthOptions options;
  options.type = DType::kF32;
  options.seed = seed;
  options.vocab_from = words;
  std::ifstream golden_config(std::string(TALLY_SOURCE_DIR) + "/tests/goldens/" + golden + "/config.json");
  nlohmann::json config = nlohmann::json::parse(golden_config, nullptr, false);
  config["vocab_size"] = TextModel::kVocab;
  const auto made = Synthesize(folder.Write("config.json", config.dump()), path, options);
  EXPECT_TRUE(made.ok()) << made.status().message();
  const auto inventory = ReadGguf(path);
  EXPECT_TRUE(inventory.ok()) << inventory.status().message();
  const StoredTensor* head = inventory.ok() ? inventory->Find("output.weight") : nullptr;
  EXPECT_NE(head, nullptr);
  if (head == nullptr) return path;
  const std::vector<uint8_t> zeros(head->bytes / TextModel::kVocab);
  const int fd = ::open(path.c_str(), O_WRONLY);
  for (int32_t id = 0; id < TextModel::kVocab; ++id) {
    if (id >= 'c' && id <= 'z') continue;
    const off_t at = static_cast<off_t>(head->offset + static_cast<uint64_t>(id) * zeros.size());
    EXPECT_EQ(::pwrite(fd, zeros.data(), zeros.size(), at), static_cast<ssize_t>(zeros.size()));
  }
  ::close(fd);
  return path;
}

// <|turn|>ROLE's first letter, a colon, the content<|end|> for each message; an assistant's has no letter, so that the answer begins
// at <|turn|>.
class TestFormat final : public ChatFormat {
 public:
  size_t reasoning = 0;      // bytes of an answer that are thinking; they are dropped from history
  std::string refused = {};  // content that the template refuses
  std::string call = {};     // a piece of an answer that is a call

  Result<std::vector<PromptSegment>> RenderWhole(const ChatRequest& request, std::vector<std::string>*) const override {
    std::vector<PromptSegment> segments = {{"<|begin|>", true}};
    for (const ChatMessage& message : request.messages) {
      if (!refused.empty() && message.content == refused) return BadInput("the template refuses this");
      segments.push_back({"<|turn|>", true});
      if (message.role != "assistant") segments.push_back({message.role.substr(0, 1) + ":", true});
      segments.push_back({message.content, false});
      segments.push_back({"<|end|>", true});
    }
    if (request.add_generation_prompt) segments.push_back({"<|turn|>", true});
    return segments;
  }
  std::unique_ptr<OutputParser> NewParser(std::string_view, const ChatRequest&) const override {
    return std::make_unique<Parser>(*this);
  }
  std::string Description() const override { return "test"; }

 private:
  // Holds back each piece until the next comes.
  class Parser final : public OutputParser {
   public:
    explicit Parser(const TestFormat& format) : format_(format), reasoning_(format.reasoning) {}
    void Push(OutputPiece piece, std::vector<OutputPart>* parts) override {
      Finish(parts);
      held_ = OutputPart{.kind = OutputPart::Kind::kContent, .text = std::string(piece.text), .call = {}};
      if (piece.control) held_->kind = OutputPart::Kind::kMark;
      if (!piece.control && reasoning_ > 0) {
        held_->kind = OutputPart::Kind::kReasoning;
        reasoning_ -= std::min(reasoning_, piece.text.size());
      }
      if (piece.text == format_.call) {
        held_->kind = OutputPart::Kind::kCall;
        held_->call = ToolCall{.id = {}, .name = held_->text, .arguments = "{}"};
      }
    }
    void Finish(std::vector<OutputPart>* parts) override {
      if (held_) parts->push_back(*std::exchange(held_, std::nullopt));
    }

   private:
    const TestFormat& format_;
    size_t reasoning_;
    std::optional<OutputPart> held_;
  };
};

inline EngineOptions ChatOptions(int32_t sequences = 1, KvType kv = KvType::kF16) {
  EngineOptions options = SmallOptions();
  options.context = 2048;
  options.max_batch = 64;
  options.sequences = sequences;
  options.kv = kv;
  return options;
}

inline TurnOptions Greedy(int64_t max_tokens) {
  TurnOptions options;
  options.max_tokens = max_tokens;
  options.sampling.temperature = 0;
  return options;
}

inline TurnOptions Seeded(int64_t max_tokens, uint64_t seed) {
  TurnOptions options;
  options.max_tokens = max_tokens;
  options.sampling = {.repeat_penalty = 1.1, .top_k = 12, .temperature = 1, .seed = seed};
  return options;
}

inline ChatMessage User(std::string content) {
  ChatMessage message;
  message.role = "user";
  message.content = std::move(content);
  return message;
}

inline std::unique_ptr<Conversation> Converse(Engine& engine, const std::shared_ptr<const ChatFormat>& format) {
  auto conversation = NewConversation(engine, format);
  EXPECT_TRUE(conversation.ok()) << conversation.status().message();
  return conversation.ok() ? std::move(conversation).value() : nullptr;
}

}  // namespace tally
