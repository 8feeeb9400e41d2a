// SPDX-License-Identifier: Apache-2.0
// Template text into tokens, with the white-space rules of chat templates: trim_blocks (a newline after a block or comment goes) and
// lstrip_blocks (so do the blanks before one that stands first on its line), `-` and `+` in tags, one trailing newline of the template
// dropped (https://jinja.palletsprojects.com/en/stable/templates/#whitespace-control).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"

namespace tally::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,
    kPrintBegin,
    kPrintEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string text = {};  // of strings: without quotes and escapes; of numbers: as written, without underscores
};

// Errors begin with "line N: ".
Result<std::vector<Token>> Tokenize(std::string_view source);
// "line 3: reason", kBadInput
Status AtLine(int line, std::string_view reason);

}  // namespace tally::jinja
