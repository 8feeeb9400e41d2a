// SPDX-License-Identifier: Apache-2.0
// JSON Schema as expressions (Grammar::FromSchema says which). Internal to the grammars.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/grammar/call_notation.h"
#include "engine/grammar/expressions.h"
#include "engine/grammar/grammar.h"

namespace tally {

struct SchemaParts {
  Expr root = Expressions::kNone;
  std::vector<std::string> ignored =
      {};  // keywords and formats without a meaning for this document, as "/properties/a: format color"
};

// kBadInput, "PLACE: ...": a keyword that cannot be held exactly, a value of it that the standard does not have, a reference to what is
// not there; a schema too large.
Result<SchemaParts> ParseSchema(Expressions& e, std::string_view schema, const SchemaOptions& options);
// Arguments of a call, which are an object, in its notation. kBadInput too: names or values that it cannot write.
Result<Expr> ParseArguments(Expressions& e, const CallTool& tool, const CallNotation& notation);
// Any document; `object`: any that is an object.
Result<Expr> AnyJson(Expressions& e, bool object, const SchemaOptions& options);
// Whether `root`, of an `e` that is finished, has the document, with its members in some order and its numbers and strings written as
// ParseSchema has them. kBadInput: it is no JSON; too many orders would have to be tried.
Result<bool> AcceptsDocument(Expressions& e, Expr root, std::string_view document, const SchemaOptions& options);

}  // namespace tally
