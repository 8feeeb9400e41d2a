// SPDX-License-Identifier: Apache-2.0
// Calls of functions as expressions: Grammar::FromCalls. Internal to the grammars.
#pragma once

#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/grammar/call_notation.h"
#include "engine/grammar/expressions.h"

namespace tally {

// `arguments`: appended, of each tool, notation by notation.
Result<Expr> CallsIn(Expressions& e, std::span<const CallNotation> notations, std::span<const CallTool> tools,
                     const CallGrammarOptions& options, std::vector<Expr>& arguments);

}  // namespace tally
