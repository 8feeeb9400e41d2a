// SPDX-License-Identifier: Apache-2.0
// What a command printed, as lines of a terminal.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/render/words.h"
#include "tests/app/lines.h"

namespace tally {

// At most `most` lines, none of them wider than `width` columns.
inline void ExpectScreen(const std::string& text, size_t width, size_t most) {
  const std::vector<std::string> lines = LinesOf(text);
  EXPECT_GT(lines.size(), 3u) << text;
  EXPECT_LE(lines.size(), most) << text;
  for (const std::string& line : lines) EXPECT_LE(TextWidth(line), width) << line << "\n" << text;
}

}  // namespace tally
