// SPDX-License-Identifier: Apache-2.0
// What a command printed, as lines of a terminal.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "engine/app/words.h"

namespace tally {

// Lines as a terminal has them: without carriage returns.
inline std::vector<std::string> ScreenLines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  return lines;
}

// At most `most` lines, none of them wider than `width` columns.
inline void ExpectScreen(const std::string& text, size_t width, size_t most) {
  const std::vector<std::string> lines = ScreenLines(text);
  EXPECT_GT(lines.size(), 3u) << text;
  EXPECT_LE(lines.size(), most) << text;
  for (const std::string& line : lines) EXPECT_LE(app::TextWidth(line), width) << line << "\n" << text;
}

}  // namespace tally
