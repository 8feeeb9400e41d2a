// SPDX-License-Identifier: Apache-2.0
// Session files: what was saved goes on with the same bits, and nothing else is loaded.
#include "engine/session/session_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/session/session_json.h"
#include "tests/session/chat_model.h"
#include "tests/support/allocations.h"

namespace tally {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Exported(const Engine& engine, int32_t sequence) {
  Bytes bytes;
  const Status status = engine.Export(sequence, [&](std::span<const uint8_t> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return bytes;
}

Result<int32_t> Imported(Engine& engine, const Bytes& bytes) {
  size_t at = 0;
  return engine.Import([&](std::span<uint8_t> piece) {
    if (piece.size() > bytes.size() - at) return BadInput("no more bytes");
    std::copy_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), piece.size(), piece.begin());
    at += piece.size();
    return Status();
  });
}

std::vector<float> Step(Engine& engine, int32_t sequence, int32_t token) {
  const BatchRow row{.token = token, .sequence = sequence, .want_logits = true};
  const auto logits = engine.StepAll({&row, 1});
  EXPECT_TRUE(logits.ok()) << logits.status().message();
  return logits.ok() ? std::vector<float>(logits->Row(0), logits->Row(0) + logits->cols) : std::vector<float>();
}

struct Cache {
  const char* golden;
  KvType kv;
};

class CacheTest : public testing::TestWithParam<Cache> {};

// 300 positions: the windows have given up the first block, and the last one is partial and holds more than is counted.
TEST_P(CacheTest, ASequenceAsBytesGoesOnWithTheSameBits) {
  const TempFolder folder;
  const EngineOptions options = ChatOptions(2, GetParam().kv);
  const Opened opened = Open(WriteChatModel(folder, GetParam().golden), options);
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t sequence = *engine.NewSequence();
  for (int i = 0; i < 330; ++i) Step(engine, sequence, 'a' + i * i % 26);
  ASSERT_TRUE(engine.Truncate(sequence, 300).ok());
  const Bytes bytes = Exported(engine, sequence);

  const auto other = NewEngine(opened.model, options);
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_EQ((*other)->Fingerprint(), engine.Fingerprint());
  // Blocks that are not fresh.
  const int32_t before = *(*other)->NewSequence();
  for (int i = 0; i < 200; ++i) Step(**other, before, 'z');
  (*other)->Free(before);
  const auto copy = Imported(**other, bytes);
  ASSERT_TRUE(copy.ok()) << copy.status().message();
  EXPECT_EQ((*other)->Length(*copy), 300);
  EXPECT_EQ(Exported(**other, *copy), bytes);
  for (const int32_t token : {'q', 'r', 's'}) EXPECT_EQ(Step(**other, *copy, token), Step(engine, sequence, token));
}

INSTANTIATE_TEST_SUITE_P(Models, CacheTest,
                         testing::Values(Cache{kFull, KvType::kF16}, Cache{kFull, KvType::kQ8_0}, Cache{kFull, KvType::kF32},
                                         Cache{kFull, KvType::kBF16}, Cache{kWindow, KvType::kF16}, Cache{kWindow, KvType::kQ8_0},
                                         Cache{kLatent, KvType::kF16}, Cache{kLatent, KvType::kF32}, Cache{kConv, KvType::kF16},
                                         Cache{kConv, KvType::kQ8_0}));

TEST(Import, RefusesWhatIsNoSequenceOfTheseLayers) {
  const TempFolder folder;
  const Opened opened = Open(WriteChatModel(folder, kWindow), ChatOptions(2));
  ASSERT_NE(opened.engine, nullptr);
  Engine& engine = *opened.engine;
  const int32_t sequence = *engine.NewSequence();
  for (int i = 0; i < 300; ++i) Step(engine, sequence, 'a');
  const Bytes sound = Exported(engine, sequence);
  const auto expect = [&](size_t number, uint64_t value, const std::string& message) {  // u64s of the header: sequence_bytes.cc
    Bytes bytes = sound;
    std::memcpy(bytes.data() + 8 * number, &value, 8);
    const auto imported = Imported(engine, bytes);
    EXPECT_EQ(imported.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(imported.status().message(), message);
  };
  expect(0, 2049, "a KV cache of 2049 positions, and the context has room for 2048");
  expect(0, UINT64_MAX, "a KV cache of 18446744073709551615 positions, and the context has room for 2048");
  expect(0, 385, "no more bytes");
  expect(1, 1, "a KV cache of other layers");
  expect(2, 64, "a KV cache of other layers");
  expect(3, 64, "a KV cache of 300 positions with a state after 64");
  expect(4, 9, "a KV cache of other layers");
  expect(5, 64, "a KV cache of other layers");
  expect(6, 3, "a KV cache without the positions that a layer with a window of 8 needs");
  expect(9, 1, "a KV cache without the positions that a layer with a window of 0 needs");
  for (size_t bytes = 0; bytes < sound.size(); bytes += 1 + bytes / 3) {
    EXPECT_EQ(Imported(engine, {sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(bytes)}).status().message(),
              "no more bytes");
  }
  const auto again = Imported(engine, sound);  // nothing was left behind
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(Imported(engine, sound).status().code(), StatusCode::kNoRoom);  // two sequences are there
}

TEST(SessionJson, HoldsEveryMember) {
  ChatMessage full{.role = "assistant",
                   .content = "c\n\"\xc3\xa9",
                   .reasoning = "r",
                   .tool_calls = {{"i1", "n1", "{\"a\": 1}"}, {"i2", "n2", ""}},
                   .tool_call_id = "t",
                   .name = "f"};
  ChatRequest settings;
  settings.tools = {"{\"type\": \"function\"}", "{}"};
  settings.reasoning_effort = "high";
  settings.thinking = false;
  settings.add_generation_prompt = false;
  settings.now = 1764000000;
  settings.variables = {{"v", "[1]"}};
  const std::string text = SessionJson({User("u"), full}, settings);
  const auto read = ParseSessionJson(text);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(SessionJson(read->messages, *read), text);
  ASSERT_EQ(read->messages.size(), 2u);
  EXPECT_EQ(read->messages[1].content, full.content);
  EXPECT_EQ(read->messages[1].tool_calls[0].arguments, "{\"a\": 1}");
  EXPECT_EQ(read->thinking, std::optional(false));
  EXPECT_EQ(read->variables, settings.variables);
  EXPECT_FALSE(ParseSessionJson(SessionJson({}, {}))->thinking.has_value());
  const auto expect = [](const char* bad, const char* message) { EXPECT_EQ(ParseSessionJson(bad).status().message(), message); };
  expect("{\"\\x",
         "its messages: not valid JSON: parse error at line 1, column 4: syntax error while parsing object key - "
         "invalid string: forbidden character after backslash; last read: '\"\\x'; expected string literal");
  expect("[]", "its messages: expected a JSON object, found an array");
  expect(R"({"messages": {}})", "messages of the session is of another type");
  expect(R"({"messages": [1]})", "messages[0] is no object");
  expect(R"({"messages": [{"role": "user"}, {"content": 1}]})", "content of messages[1] is of another type");
  expect(R"({"messages": [{"tool_calls": [{"id": []}]}]})", "id of tool_calls[0] is of another type");
  expect(R"({"settings": {"now": 9223372036854775808}})", "now of settings is out of range");
  expect(R"({"settings": {"tools": [1]}})", "tools[0] is no text");
  expect(R"({"settings": {"variables": {"a": 1}}})", "a variable is no text");
}

TEST(Checksum, DoesNotDependOnThePieces) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += static_cast<char>(i * 37);
  Checksum whole;
  whole.Add(bytes);
  for (size_t piece = 1; piece < 20; ++piece) {
    Checksum sum;
    for (size_t at = 0; at < bytes.size(); at += piece) sum.Add(std::string_view(bytes).substr(at, piece));
    EXPECT_EQ(sum.value(), whole.value()) << piece;
  }
  Checksum longer;
  longer.Add(bytes + std::string(1, '\0'));
  EXPECT_NE(longer.value(), whole.value());
}

// A conversation of two turns, saved.
class Saved : public testing::Test {
 protected:
  void SetUp() override { Begin(kFull, ChatOptions()); }
  void Begin(const char* golden, const EngineOptions& options) {
    options_ = options;
    chat_.reset();
    opened_ = Open(WriteChatModel(folder_, golden), options);
    ASSERT_NE(opened_.engine, nullptr);
    chat_ = Converse(*opened_.engine, format_);
    ASSERT_TRUE(chat_->Say({User("what is the matter")}, Greedy(20)).ok());
    ASSERT_TRUE(chat_->Say({User("and why")}, Seeded(20, 1)).ok());
    chat_->settings().variables["v"] = "1";
    const Status saved = chat_->Save(path_);
    ASSERT_TRUE(saved.ok()) << saved.message();
  }
  // What loading the file into a conversation of an engine with these options says; it then holds what it held before.
  std::string Refusal(const std::string& path, const EngineOptions& options, std::shared_ptr<const Model> model = nullptr) {
    auto engine = NewEngine(model ? model : opened_.model, options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    const auto chat = Converse(**engine, format_);
    chat->SetMessages({User("mine")});
    const Status status = chat->Load(path);
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_EQ(chat->messages().size(), 1u);
    EXPECT_EQ(status.message().find('\n'), std::string::npos);
    return status.message();
  }
  std::string Refusal(const std::string& bytes) { return Refusal(folder_.Write("bad.session", bytes), options_); }
  // A file with one number of its header changed, and its checksums made right again.
  std::string Forged(size_t offset, uint64_t value, size_t bytes = 8) const {
    std::string file = ReadAll(path_);
    std::memcpy(file.data() + offset, &value, bytes);
    for (const size_t end : {offsetof(SessionHeader, checksum), file.size() - 8}) {
      Checksum checksum;
      checksum.Add(std::string_view(file).substr(0, end));
      const uint64_t sum = checksum.value();
      std::memcpy(file.data() + end, &sum, sizeof sum);
    }
    return file;
  }

  TempFolder folder_;
  const std::string path_ = folder_ / "a.session";
  std::shared_ptr<TestFormat> format_ = std::make_shared<TestFormat>();
  EngineOptions options_;
  Opened opened_;
  std::unique_ptr<Conversation> chat_;
};

TEST_F(Saved, GoesOnAsIfNothingHadHappened) {
  for (const char* golden : {kFull, kWindow, kLatent}) {
    SCOPED_TRACE(golden);
    Begin(golden, ChatOptions());
    const auto engine = NewEngine(opened_.model, ChatOptions());
    ASSERT_TRUE(engine.ok());
    const auto loaded = Converse(**engine, format_);
    ASSERT_TRUE(loaded->Say({User("something else")}, Greedy(50)).ok());
    const Status status = loaded->Load(path_);
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(loaded->tokens(), chat_->tokens());
    EXPECT_EQ(loaded->settings().variables.at("v"), "1");
    EXPECT_EQ(SessionJson(loaded->messages(), loaded->settings()), SessionJson(chat_->messages(), chat_->settings()));
    ASSERT_TRUE(loaded->Save(folder_ / "b.session").ok());
    EXPECT_EQ(ReadAll(folder_ / "b.session"), ReadAll(path_));
    const auto a = chat_->Say({User("well")}, Seeded(100, 7)), b = loaded->Say({User("well")}, Seeded(100, 7));
    ASSERT_TRUE(a.ok() && b.ok());
    EXPECT_EQ(a->generated.tokens, b->generated.tokens);
    EXPECT_EQ(a->reused_tokens, b->reused_tokens);
    EXPECT_GT(b->reused_tokens, 20);
  }
}

// Windows cannot go back to where a long answer began, whose thinking the next prompt leaves out: what is saved ends there.
TEST_F(Saved, WhatIsSavedIsOfUseWhereThinkingIsDropped) {
  Begin(kWindow, ChatOptions());
  format_->reasoning = 290;
  const auto turn = chat_->Say({User("no")}, Greedy(300));
  ASSERT_TRUE(turn.ok() && chat_->Save(path_).ok());
  const auto engine = NewEngine(opened_.model, ChatOptions());
  ASSERT_TRUE(engine.ok());
  const auto loaded = Converse(**engine, format_);
  ASSERT_TRUE(loaded->Load(path_).ok());
  const auto a = chat_->Say({User("well")}, Seeded(100, 7)), b = loaded->Say({User("well")}, Seeded(100, 7));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->generated.tokens, b->generated.tokens);
  EXPECT_EQ(b->reused_tokens, turn->reused_tokens + turn->generated.prompt_tokens);
}

TEST_F(Saved, MessagesAloneGiveTheSameAnswer) {
  ASSERT_TRUE(chat_->SaveMessages(path_).ok());
  EXPECT_LT(ReadAll(path_).size(), 2000u);
  const auto engine = NewEngine(opened_.model, options_);
  ASSERT_TRUE(engine.ok());
  const auto loaded = Converse(**engine, format_);
  ASSERT_TRUE(loaded->Load(path_).ok());
  EXPECT_EQ(loaded->tokens(), 0);
  const auto a = chat_->Say({User("well")}, Seeded(100, 7)), b = loaded->Say({User("well")}, Seeded(100, 7));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->generated.tokens, b->generated.tokens);
  EXPECT_EQ(b->reused_tokens, 0);
}

TEST_F(Saved, WithoutATurnOnlyTheHistory) {
  const auto engine = NewEngine(opened_.model, options_);
  const auto chat = Converse(**engine, format_);
  chat->SetMessages({User("not said yet")});
  ASSERT_TRUE(chat->Save(path_).ok());
  ASSERT_TRUE(chat_->Load(path_).ok());
  EXPECT_EQ(chat_->tokens(), 0);
  ASSERT_EQ(chat_->messages().size(), 1u);
  EXPECT_EQ(chat_->messages()[0].content, "not said yet");
}

TEST_F(Saved, EveryLengthButTheWholeIsRefused) {
  const std::string file = ReadAll(path_);
  EXPECT_NE(Refusal(file.substr(0, 7)).find("no session file: it does not begin with TALLYSES"), std::string::npos);
  EXPECT_NE(Refusal(file.substr(0, 63)).find("the session file is cut short: 63 bytes"), std::string::npos);
  EXPECT_NE(Refusal("").find("the file is empty"), std::string::npos);
  for (size_t bytes = 64; bytes < file.size(); bytes += 1 + bytes / 5) {
    EXPECT_NE(
        Refusal(file.substr(0, bytes))
            .find("the session file has " + std::to_string(bytes) + " bytes, and its header says " + std::to_string(file.size())),
        std::string::npos);
  }
  EXPECT_NE(Refusal(file + "x").find(" bytes, and its header says "), std::string::npos);
}

TEST_F(Saved, EveryFlippedBitIsRefused) {
  const std::string file = ReadAll(path_);
  for (size_t at = 0; at < file.size(); at += at < 400 ? 1 : 1 + at / 100) {
    std::string flipped = file;
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << at % 8));
    const std::string refusal = Refusal(flipped);
    if (at >= offsetof(SessionHeader, kv_type)) {
      EXPECT_NE(refusal.find("is damaged"), std::string::npos) << at << refusal;
    }
  }
}

TEST_F(Saved, ForeignFilesAreNamed) {
  const auto expect = [&](const std::string& refusal, const std::string& part) {
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  };
  EngineOptions q8 = options_, small = options_;
  q8.kv = KvType::kQ8_0;
  small.context = 64;
  expect(Refusal(path_, q8), "a session with a KV cache of type f16, and this one is of type q8_0");
  expect(Refusal(path_, small), "tokens, and the context has room for 64");
  // Of one shape, with other weights.
  const auto twin = LoadModel(WriteChatModel(folder_, kFull, 2), options_);
  ASSERT_TRUE(twin.ok());
  expect(Refusal(path_, options_, *twin), "a session with another model than llama, ");
  expect(Refusal(Forged(8, 1, 4)), "a session file of version 1; this program reads version 3");
}

// The model's file is edited in one place, and loaded again.
TEST_F(Saved, OneChangedBitOfAWeightIsAnotherModel) {
  const std::string path = WriteChatModel(folder_, kFull), file = ReadAll(path);
  const auto inventory = ReadGguf(path);
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  for (const char* name : {"token_embd.weight", "blk.0.attn_norm.weight", "blk.1.attn_k.weight", "blk.0.ffn_down.weight"}) {
    const StoredTensor* tensor = inventory->Find(name);
    ASSERT_NE(tensor, nullptr) << name;
    std::string edited = file;
    edited[tensor->offset + tensor->bytes / 8 * 4] ^= 1;
    const auto other = LoadModel(folder_.Write("edited.gguf", edited), options_);
    ASSERT_TRUE(other.ok()) << other.status().message();
    EXPECT_NE(Refusal(path_, options_, *other).find("a session with another model than llama, "), std::string::npos) << name;
  }
  const auto same = LoadModel(folder_.Write("copy.gguf", file), options_);
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ((*NewEngine(*same, options_))->Fingerprint(), opened_.engine->Fingerprint());
}

// Files whose checksums are right: only somebody who means to makes them.
TEST_F(Saved, ForgedNumbersAreRefusedInLittleMemory) {
  const AllocationPeak peak;
  const auto expect = [&](const std::string& file, const std::string& part) {
    const std::string refusal = Refusal(file);
    EXPECT_NE(refusal.find(part), std::string::npos) << refusal;
  };
  const std::string file = ReadAll(path_);
  const auto number = [&](size_t offset) {
    uint64_t value;
    std::memcpy(&value, file.data() + offset, sizeof value);
    return value;
  };
  constexpr size_t kHistory = offsetof(SessionHeader, history_bytes), kTokens = offsetof(SessionHeader, tokens);
  constexpr size_t kCache = offsetof(SessionHeader, cache_bytes);
  for (const size_t offset : {kHistory, kTokens, kCache}) {
    for (const uint64_t value : {uint64_t{1} << 40, uint64_t{1} << 62, UINT64_MAX}) {
      expect(Forged(offset, value), "bytes, and its header says");
    }
  }
  const size_t tokens = sizeof(SessionHeader) + number(kHistory), cache = tokens + 4 * number(kTokens);
  expect(Forged(tokens, 300, 4), "a session with token 300: ids of this model are 0 to 299");
  expect(Forged(tokens, 0xffffffff, 4), "a session with token -1");
  expect(Forged(sizeof(SessionHeader), '[', 1), "a session that cannot be read: its messages: ");
  expect(Forged(cache, number(kTokens) - 1), "a session whose KV cache is not that of its tokens");
  expect(Forged(cache, 2048), "a KV cache that is cut short");
  expect(Forged(cache, UINT64_MAX), "a KV cache of 18446744073709551615 positions");
  EXPECT_LT(peak.Largest(), 8 << 20);
}

// Any bytes with right checksums load or are refused in one line.
TEST_F(Saved, ForgedBytesDoNoHarm) {
  const size_t size = ReadAll(path_).size();
  const auto engine = NewEngine(opened_.model, options_);
  ASSERT_TRUE(engine.ok());
  const auto chat = Converse(**engine, format_);
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    // Mostly in what is read as numbers and text; the rest are keys and values.
    const size_t offset = random() % (i % 4 == 0 ? size - 16 : 1000);
    const std::string path = folder_.Write("bad.session", Forged(offset, random(), 1 + random() % 8));
    const Status status = chat->Load(path);
    if (status.ok()) continue;
    EXPECT_EQ(status.code(), StatusCode::kBadInput) << offset;
    EXPECT_EQ(Printable(status.message()), status.message());
  }
  EXPECT_TRUE(chat->Load(path_).ok());
}

TEST_F(Saved, AnotherKindOfFileIsNotReplaced) {
  const std::string path = folder_ / "letter.txt";
  for (const char* text : {"TALLY", "Dear Sir or Madam"}) {
    folder_.Write("letter.txt", text);
    const Status status = chat_->Save(path);
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    EXPECT_NE(status.message().find("is no session file"), std::string::npos) << status.message();
    EXPECT_EQ(ReadAll(path), text);
  }
  folder_.Write("letter.txt", "");
  EXPECT_TRUE(chat_->Save(path).ok());
  EXPECT_TRUE(chat_->Load(path).ok());
}

TEST_F(Saved, AFileThatCannotBeWrittenLeavesTheOldOne) {
  const std::string before = ReadAll(path_);
  EXPECT_EQ(chat_->Save(folder_ / "nowhere/a.session").code(), StatusCode::kBadInput);
  EXPECT_EQ(chat_->Save(folder_.path()).code(), StatusCode::kBadInput);
  EXPECT_EQ(ReadAll(path_), before);
}

}  // namespace
}  // namespace tally
