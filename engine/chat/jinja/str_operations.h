// SPDX-License-Identifier: Apache-2.0
// What methods and filters do with strings. All of them keep the provenance of every byte.
#pragma once

#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/text.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

// str.replace; count < 0: all of them.
Result<Text> Replace(Budget* budget, const Text& text, const Text& old, const Text& with, int64_t count);
// str.split and str.rsplit; separator null: at white space; most < 0: everywhere.
// The lines of str.splitlines, each with the bytes of its ending.
struct Line {
  size_t begin = 0, end = 0, next = 0;
};
Result<std::vector<Line>> SplitLines(Budget* budget, std::string_view text);
Result<Values> Split(Budget* budget, const Text& text, const Text* separator, int64_t most, bool from_right);
Result<Text> Join(Budget* budget, const Text& separator, const std::vector<Text>& parts);
// With the five characters that HTML has entities for replaced. It is markup.
Result<Text> Escaped(Budget* budget, const Text& text);

}  // namespace tally::jinja
