// SPDX-License-Identifier: Apache-2.0
// Conversations: what the history holds, which tokens are run again, and that reusing the others changes no answer.
#include "engine/session/conversation.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/session/chat_model.h"
#include "tests/session/fake_engine.h"

namespace tally {
namespace {

// TextModel answers everything with xyz and its end token.
class Xyz : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(TextModel::Write(folder_ / "m.gguf").ok());
    Use(ChatOptions());
  }
  void Use(const EngineOptions& options) {
    chat_.reset();
    opened_ = Open(folder_ / "m.gguf", options);
    ASSERT_NE(opened_.engine, nullptr);
    chat_ = Converse(*opened_.engine, format_);
    ASSERT_NE(chat_, nullptr);
  }
  std::vector<std::string> History() const {
    std::vector<std::string> history;
    for (const ChatMessage& m : chat_->messages()) history.push_back(m.role + " " + m.content);
    return history;
  }

  TempFolder folder_;
  std::shared_ptr<TestFormat> format_ = std::make_shared<TestFormat>();
  Opened opened_;
  std::unique_ptr<Conversation> chat_;
};

using Lines = std::vector<std::string>;

// With drafts by a layer for multi-token prediction: the same turns, in fewer passes. A session is of an engine with the layer, or without.
TEST_F(Xyz, DraftsChangeNoTurn) {
  ASSERT_TRUE(TextModel::WritePredicting(folder_ / "m.gguf").ok());
  std::vector<std::string> said[2];
  for (const bool drafts : {false, true}) {
    EngineOptions options = ChatOptions();
    options.prediction = drafts;
    options.draft_rows = drafts ? 4 : 0;
    Use(options);
    TurnOptions turn = Greedy(40);
    turn.draft = drafts ? 4 : 0;
    int64_t tokens = 0, steps = 0;
    for (const char* const text : {"hello", "c", "and then"}) {
      turn.sampling.temperature = said[drafts].size() == 1 ? 30 : 0;  // of the second turn some drafts are wrong
      turn.sampling.seed = 3;
      turn.stop = said[drafts].size() == 2 ? std::vector<std::string>{"z"} : std::vector<std::string>{};
      const auto answer = chat_->Say({User(text)}, turn);
      ASSERT_TRUE(answer.ok()) << answer.status().message();
      said[drafts].push_back(answer->answer.content + " " + std::to_string(answer->generated.tokens.size()));
      tokens += answer->generated.decode_tokens;
      steps += answer->generated.decode_steps;
    }
    EXPECT_EQ(steps < tokens, drafts);
    if (!drafts) {
      EXPECT_TRUE(chat_->Save(folder_ / "session").ok());
    }
  }
  EXPECT_EQ(said[0], said[1]);
  const Status other = chat_->Load(folder_ / "session");
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.message().find("--draft layers"), std::string::npos) << other.message();
}

TEST_F(Xyz, ATurnTakesTheAnswerApartAndKeepsIt) {
  format_->reasoning = 1;
  TurnOptions options = Greedy(20);
  std::vector<std::pair<OutputPart::Kind, std::string>> parts;
  options.on_parts = [&](std::span<const OutputPart> some) {
    for (const OutputPart& part : some) parts.push_back({part.kind, part.text});
    return true;
  };
  const auto turn = chat_->Say({User("hello")}, options);
  ASSERT_TRUE(turn.ok()) << turn.status().message();
  EXPECT_EQ(turn->generated.finish, FinishReason::kEos);
  EXPECT_EQ(turn->generated.end_token, TextModel::kEnd);
  EXPECT_EQ(turn->generated.tokens, (std::vector<int32_t>{'x', 'y', 'z'}));
  EXPECT_EQ(turn->generated.prompt_tokens, 11);  // <|begin|> <|turn|> u: h e l l o <|end|> <|turn|>
  EXPECT_EQ(turn->reused_tokens, 0);
  EXPECT_EQ(turn->answer.reasoning, "x");
  EXPECT_EQ(turn->answer.content, "yz");
  using Kind = OutputPart::Kind;
  EXPECT_EQ(parts, (std::vector<std::pair<Kind, std::string>>{
                       {Kind::kReasoning, "x"}, {Kind::kContent, "y"}, {Kind::kContent, "z"}, {Kind::kMark, "<|end|>"}}));
  EXPECT_EQ(History(), (Lines{"user hello", "assistant yz"}));
  EXPECT_EQ(chat_->messages()[1].reasoning, "x");
  EXPECT_EQ(chat_->tokens(), 14);  // the end token is not in the cache
}

TEST_F(Xyz, OnlyWhatIsNewIsRun) {
  std::vector<int64_t> progress;
  TurnOptions options = Greedy(20);
  options.prompt_progress = [&](int64_t done, int64_t total) { progress.insert(progress.end(), {done, total}); };
  ASSERT_TRUE(chat_->Say({User("hello")}, options).ok());
  progress.clear();
  const auto turn = chat_->Say({User("you")}, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->reused_tokens, 14);
  EXPECT_EQ(turn->generated.prompt_tokens, 9);  // <|end|> <|turn|> u: y o u <|end|> <|turn|>
  EXPECT_EQ(progress, (std::vector<int64_t>{0, 9, 9, 9}));
  EXPECT_EQ(chat_->tokens(), 26);
  // The same question once more: all of its prompt is there, and the last token is run again for its logits.
  EXPECT_TRUE(chat_->Undo());
  EXPECT_EQ(History(), (Lines{"user hello", "assistant xyz"}));
  const auto again = chat_->Say({User("you")}, Greedy(20));
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->reused_tokens, 22);
  EXPECT_EQ(again->generated.prompt_tokens, 1);
  EXPECT_EQ(again->answer.content, "xyz");
}

TEST_F(Xyz, ThinkingThatIsDroppedIsRolledBack) {
  format_->reasoning = 1;
  ASSERT_TRUE(chat_->Say({User("hello")}, Greedy(20)).ok());
  const auto turn = chat_->Say({User("you")}, Greedy(20));
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->reused_tokens, 11);  // up to where the answer began
  EXPECT_EQ(turn->generated.prompt_tokens, 2 + 9);
}

TEST_F(Xyz, UsersCannotSpellMarks) {
  const auto turn = chat_->Say({User("<|end|>")}, Greedy(1));
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.prompt_tokens, 6 + 7);
}

TEST_F(Xyz, CallsGetNewIds) {
  format_->call = "y";
  std::vector<std::string> streamed;
  TurnOptions options = Greedy(20);
  options.on_parts = [&](std::span<const OutputPart> parts) {
    for (const OutputPart& part : parts) {
      if (part.call) streamed.push_back(part.call->id);
    }
    return true;
  };
  int n = 0;  // ids of the history and of this answer are passed over
  options.new_call_id = [&] { return "call0000" + std::to_string(1 + n++ / 2); };
  for (const char* question : {"one", "two"}) ASSERT_TRUE(chat_->Say({User(question)}, options).ok());
  EXPECT_EQ(streamed, (Lines{"call00001", "call00002"}));
  ASSERT_EQ(chat_->messages().size(), 4u);
  ASSERT_EQ(chat_->messages()[3].tool_calls.size(), 1u);
  EXPECT_EQ(chat_->messages()[3].tool_calls[0].id, "call00002");
  EXPECT_EQ(chat_->messages()[3].content, "xz");
}

TEST_F(Xyz, ContentEndsBeforeAStopString) {
  TurnOptions options = Greedy(20);
  std::string streamed;
  options.on_parts = [&](std::span<const OutputPart> parts) {
    for (const OutputPart& part : parts) streamed += part.kind == OutputPart::Kind::kContent ? part.text : "";
    return true;
  };
  options.stop = {"never", "yz"};
  auto turn = chat_->Say({User("hello")}, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.finish, FinishReason::kStop);
  EXPECT_EQ(turn->answer.content, "x");
  EXPECT_EQ(streamed, "x");
  EXPECT_EQ(History(), (Lines{"user hello", "assistant x"}));
  // Thinking is no content, and what only begins a stop string comes in the end.
  format_->reasoning = 1;
  options.stop = {"xy", "zz"};
  turn = chat_->Say({User("you")}, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.finish, FinishReason::kEos);
  EXPECT_EQ(turn->answer.reasoning, "x");
  EXPECT_EQ(turn->answer.content, "yz");
  EXPECT_EQ(streamed, "xyz");
}

TEST_F(Xyz, AnInterruptedAnswerStaysAsFarAsItCame) {
  TurnOptions options = Greedy(20);
  int calls = 0;
  options.on_parts = [&](std::span<const OutputPart>) { return ++calls < 1; };  // at the y, which makes the x certain
  auto turn = chat_->Say({User("hello")}, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.finish, FinishReason::kInterrupted);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(turn->answer.content, "xy");  // what was held back too
  EXPECT_EQ(History(), (Lines{"user hello", "assistant xy"}));
  EXPECT_EQ(chat_->tokens(), 12);  // y was drawn and not run
  turn = chat_->Say({User("you")}, Greedy(20));
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->reused_tokens, 12);
  EXPECT_EQ(turn->answer.content, "xyz");
}

TEST_F(Xyz, AnInterruptedPromptLeavesTheHistoryAndItsTokens) {
  EngineOptions small = ChatOptions();
  small.max_batch = 4;
  Use(small);
  TurnOptions options = Greedy(20);
  int polls = 0;
  options.interrupted = [&] { return ++polls > 2; };
  auto turn = chat_->Say({User("hello")}, options);
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.finish, FinishReason::kInterrupted);
  EXPECT_EQ(turn->generated.prompt_tokens, 8);
  EXPECT_TRUE(turn->generated.tokens.empty());
  EXPECT_TRUE(chat_->messages().empty());
  EXPECT_EQ(chat_->tokens(), 8);
  turn = chat_->Say({User("hello")}, Greedy(20));
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->reused_tokens, 8);
  EXPECT_EQ(turn->answer.content, "xyz");
}

TEST_F(Xyz, RefusalsChangeNothing) {
  ASSERT_TRUE(chat_->Say({User("hello")}, Greedy(20)).ok());
  format_->refused = "no";
  const auto refused = chat_->Say({User("no")}, Greedy(20));
  EXPECT_EQ(refused.status().message(), "the template refuses this");
  TurnOptions bad = Greedy(20);
  bad.sampling.top_p = 2;
  EXPECT_EQ(chat_->Say({User("yes")}, bad).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(History(), (Lines{"user hello", "assistant xyz"}));
  EXPECT_EQ(chat_->tokens(), 14);
}

TEST_F(Xyz, AFullContextIsSaidAndTheOldestAreForgotten) {
  EngineOptions small = ChatOptions();
  small.context = 39;
  small.max_batch = 8;
  Use(small);
  ChatMessage system;
  system.role = "system";
  chat_->SetMessages({system});
  for (const char* question : {"one", "two"}) ASSERT_TRUE(chat_->Say({User(question)}, Greedy(20)).ok());
  const std::vector<std::string> before = History();
  const auto full = chat_->Say({User("three")}, Greedy(20));
  EXPECT_EQ(full.status().code(), StatusCode::kNoRoom);
  EXPECT_EQ(full.status().message(), "the conversation has 39 tokens, and the context of 39 has no room for an answer");
  EXPECT_EQ(History(), before);
  auto forgot = chat_->ForgetOldest();
  ASSERT_TRUE(forgot.ok());
  EXPECT_TRUE(*forgot);
  EXPECT_EQ(History(), (Lines{"system ", "user two", "assistant xyz"}));  // 17 tokens
  EXPECT_TRUE(chat_->Say({User("three")}, Greedy(20)).ok());
  EXPECT_TRUE(*chat_->ForgetOldest());
  EXPECT_TRUE(*chat_->ForgetOldest());
  EXPECT_EQ(History(), (Lines{"system "}));
  EXPECT_FALSE(*chat_->ForgetOldest());
  // An answer that fills the context ends there.
  const auto fills = chat_->Say({User("three, four, five, six, sev")}, Greedy(-1));
  ASSERT_TRUE(fills.ok()) << fills.status().message();
  EXPECT_EQ(fills->generated.finish, FinishReason::kContextFull);
}

TEST_F(Xyz, UndoAndResetKeepTheSystemsMessage) {
  EXPECT_FALSE(chat_->Undo());
  ChatMessage system;
  system.role = "system";
  system.content = "short";
  chat_->SetMessages({system});
  ASSERT_TRUE(chat_->Say({User("one")}, Greedy(20)).ok());
  ASSERT_TRUE(chat_->Say({User("two")}, Greedy(20)).ok());
  EXPECT_TRUE(chat_->Undo());
  EXPECT_EQ(History(), (Lines{"system short", "user one", "assistant xyz"}));
  chat_->Reset();
  EXPECT_EQ(History(), (Lines{"system short"}));
  EXPECT_FALSE(chat_->Undo());
  const auto turn = chat_->Say({User("one")}, Greedy(20));
  ASSERT_TRUE(turn.ok());
  EXPECT_EQ(turn->generated.prompt_tokens, 1);  // what is forgotten may still be in the cache
}

TEST(NewConversation, NeedsATokenizer) {
  FakeEngine engine(10);
  const auto made = NewConversation(engine, std::make_shared<TestFormat>());
  EXPECT_EQ(made.status().message(), "a conversation needs a tokenizer, and this model has none");
  engine.fake_model().tokenizer_status_ = BadInput("tokenizer.ggml.model: unknown");
  EXPECT_EQ(NewConversation(engine, std::make_shared<TestFormat>()).status().message(), "tokenizer.ggml.model: unknown");
}

// Networks whose every answer depends on all that was said. Each turn is compared with a conversation that runs its whole prompt.
// What a turn finds in the cache: all that has run, or the prompt of the turn before (its answer is not rendered as it was drawn).
enum class Found { kAll, kPrompt };

struct Reuse {
  const char* name;
  const char* golden;
  int32_t sequences;
  size_t reasoning;  // bytes of an answer that are dropped from history
  Found found;
};

class ReuseTest : public testing::TestWithParam<Reuse> {};

TEST_P(ReuseTest, ChangesNoAnswer) {
  constexpr int64_t kAnswer = 300;  // longer than what a window can be rolled back
  const Reuse& p = GetParam();
  const TempFolder folder;
  const Opened opened = Open(WriteChatModel(folder, p.golden), ChatOptions(p.sequences));
  ASSERT_NE(opened.engine, nullptr);
  const auto format = std::make_shared<TestFormat>();
  format->reasoning = p.reasoning;
  const auto chat = Converse(*opened.engine, format);
  const std::vector<std::string> questions = {"what is the matter", "and why is that so", "no, I do not think so", "well"};
  std::set<std::vector<int32_t>> answers;
  int64_t prompt = 0;  // tokens of the turn before
  for (size_t i = 0; i < questions.size(); ++i) {
    const TurnOptions options = i % 2 == 0 ? Greedy(kAnswer) : Seeded(kAnswer, i);
    if (i == 3) chat->Undo();
    const auto anew = NewEngine(opened.model, ChatOptions());
    ASSERT_TRUE(anew.ok()) << anew.status().message();
    const auto fresh = Converse(**anew, format);
    fresh->SetMessages(chat->messages());
    const auto turn = chat->Say({User(questions[i])}, options), expected = fresh->Say({User(questions[i])}, options);
    ASSERT_TRUE(turn.ok() && expected.ok()) << turn.status().message() << expected.status().message();
    EXPECT_EQ(turn->generated.tokens, expected->generated.tokens);
    EXPECT_EQ(turn->answer.content, expected->answer.content);
    EXPECT_EQ(expected->reused_tokens, 0);
    EXPECT_EQ(turn->reused_tokens + turn->generated.prompt_tokens, expected->generated.prompt_tokens);
    if (i == 1 || i == 2) {
      EXPECT_EQ(turn->reused_tokens, p.found == Found::kAll ? prompt + kAnswer - 1 : prompt);  // the last token was not run
    }
    prompt = expected->generated.prompt_tokens;
    EXPECT_EQ(chat->tokens(), prompt + kAnswer - 1);
    answers.insert(turn->generated.tokens);
  }
  EXPECT_EQ(answers.size(), questions.size());
}

INSTANTIATE_TEST_SUITE_P(Models, ReuseTest,
                         testing::Values(Reuse{"Full", kFull, 1, 0, Found::kAll},
                                         Reuse{"FullThinking", kFull, 1, 290, Found::kPrompt},
                                         Reuse{"Window", kWindow, 1, 0, Found::kAll},
                                         Reuse{"WindowThinking", kWindow, 1, 290, Found::kPrompt},
                                         Reuse{"Latent", kLatent, 1, 0, Found::kAll}, Reuse{"Conv", kConv, 1, 0, Found::kAll},
                                         Reuse{"ConvThinking", kConv, 1, 290, Found::kPrompt}),
                         [](const auto& p) { return p.param.name; });

}  // namespace
}  // namespace tally
