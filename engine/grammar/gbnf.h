// SPDX-License-Identifier: Apache-2.0
// Grammars as llama.cpp writes them (GBNF): https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
#pragma once

#include <string_view>

#include "engine/base/status.h"
#include "engine/grammar/expressions.h"

namespace tally {

// The texts of rule `root`. Rules `name ::= ...`, alternatives, "literals", [classes] of characters and their complements, `.`, groups,
// * + ? {n} {n,m}, comments from # on. kBadInput names what is wrong or not supported (tokens, `<[id]>`), and its line.
Result<Expr> ParseGbnf(Expressions& e, std::string_view text);

}  // namespace tally
