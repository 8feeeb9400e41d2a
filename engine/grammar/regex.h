// SPDX-License-Identifier: Apache-2.0
// Regular expressions: ECMA-262's with the flag u, as JSON Schema has them, and what Python writes alike.
#pragma once

#include <functional>
#include <string_view>

#include "engine/base/status.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/expressions.h"

namespace tally {

// How one character of a set is spelled: Utf8Of, JsonPlain.
using Spelling = std::function<Expr(Expressions&, const CodePoints&)>;

struct RegexOptions {
  // A match may begin and end anywhere, unless ^ or $ say otherwise; else the whole text is to match, and ^ at its beginning and $ at its
  // end say nothing.
  bool search = false;
  Spelling spelling = Utf8Of;
};

// The texts that match. Alternatives, groups (captured or not, named), classes, \d \w \s and their complements, \p{Category}, escapes,
// counts (greedy or not: it is one language), ^ and $ where texts may begin and end, and lookahead; in counts of at most 16,
// lookahead in others too. kBadInput names what is wrong or not supported (back references, \b, lookbehind, flags), and where.
Result<Expr> ParseRegex(Expressions& e, std::string_view pattern, const RegexOptions& options);

}  // namespace tally
