// SPDX-License-Identifier: Apache-2.0
// What a conversation shows of an answer and of its cost.
#include "engine/app/chat_screen.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/render/words.h"
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
                                         {.kind = Kind::kContent, .text = "\n\n"},
                                         {.kind = Kind::kContent, .text = " So\n"},
                                         {.kind = Kind::kContent, .text = " it is."},
                                         {.kind = Kind::kCall, .text = "{"}};
  for (const bool thinking : {true, false}) {
    AnswerScreen screen(thinking);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    for (const OutputPart& part : parts) EXPECT_TRUE(screen.Show({&part, 1}));
    screen.End();
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "It is warm.\ncall look {}\nSo\n it is.\n(a call that was not finished)\n");
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
            "prompt 12 (3,450 reused) at 1,202/s; answer 1; the first after 2.50 ms; context 3,463 of 4,096; ended: length\n");
  turn.books.figures.decode_tokens = turn.books.figures.generated_tokens = 1200;
  turn.books.figures.decode_tokens_per_second = 24.3;
  turn.books.figures.parameters.active_all = 1234567890;
  turn.books.ended = "end of text";
  for (const size_t width : {80u, 120u, 200u}) {
    const std::vector<std::string> lines = LinesOf(TurnLine(turn, width));
    ASSERT_EQ(lines.size(), 1u) << TurnLine(turn, width);
    EXPECT_LE(TextWidth(lines[0]), width);
    EXPECT_NE(lines[0].find(" a token"), std::string::npos) << lines[0];
    EXPECT_EQ(lines[0].find("1,234,567,890 parameters") != std::string::npos, width == 200) << lines[0];
  }
  for (const std::string& line : LinesOf(TurnLine(turn, 40))) EXPECT_LE(TextWidth(line), 40u) << line;
}

}  // namespace
}  // namespace tally::app
