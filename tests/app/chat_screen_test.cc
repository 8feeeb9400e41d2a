// SPDX-License-Identifier: Apache-2.0
// What a conversation shows of an answer and of its cost.
#include "engine/app/chat_screen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/app/words.h"
#include "tests/app/lines.h"

namespace tally::app {
namespace {

using Kind = OutputPart::Kind;

TEST(ChatScreen, WhatAModelWritesDoesNotSteerTheTerminal) {
  EXPECT_EQ(Readable("a\x1b[2J\tb\n\xC3\xA9\r\x07"), "a\\x1b[2J\tb\n\xC3\xA9\\r\\x07");
  EXPECT_EQ(CallLine({.name = "get\n", .arguments = "{\"city\": \"\x1b\"}"}), "call get\\n {\"city\": \"\\x1b\"}");
}

TEST(ChatScreen, PartsGoWhereTheyBelong) {
  const std::vector<OutputPart> parts = {{.kind = Kind::kMark, .text = "<|channel|>"},
                                         {.kind = Kind::kReasoning, .text = "Hm.\x1b"},
                                         {.kind = Kind::kContent, .text = "It is "},
                                         {.kind = Kind::kContent, .text = "warm."},
                                         {.kind = Kind::kCall, .text = "{\"city\""},
                                         {.kind = Kind::kCall, .text = "}", .call = ToolCall{.name = "look", .arguments = "{}"}},
                                         {.kind = Kind::kCall, .text = "{"}};
  for (const bool thinking : {true, false}) {
    AnswerScreen screen(thinking);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    for (const OutputPart& part : parts) EXPECT_TRUE(screen.Show({&part, 1}));
    screen.End();
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "It is warm.\ncall look {}\n(a call that was not finished)\n");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), thinking ? "[thinking]\nHm.\\x1b\n[/thinking]\n" : "");
  }
}

TEST(ChatScreen, ACostFitsTheTerminal) {
  TurnFigures turn{.books = {.figures = {.prompt_tokens = 12, .generated_tokens = 1, .prompt_tokens_per_second = 1202},
                             .ended = "length",
                             .first_token_seconds = 0.0025},
                   .reused_tokens = 3450,
                   .context_used = 3463,
                   .context = 4096};
  EXPECT_EQ(TurnLine(turn, 0),
            "prompt 12 tokens at 1,202/s (3,450 reused); answer 1 token; the first after 2.50 ms; context 3,463 of 4,096; ended: "
            "length\n");
  for (const std::string& line : LinesOf(TurnLine(turn, 40))) EXPECT_LE(TextWidth(line), 40u) << line;
}

}  // namespace
}  // namespace tally::app
