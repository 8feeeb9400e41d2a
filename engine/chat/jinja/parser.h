// SPDX-License-Identifier: Apache-2.0
// Tokens into a tree: the grammar of jinja2 3.1 (https://jinja.palletsprojects.com/en/stable/templates/).
#pragma once

#include <string>
#include <string_view>

#include "engine/base/status.h"
#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/token_reader.h"

namespace tally::jinja {

// Errors begin with "line N: ".
Result<Body> ParseTemplate(std::string_view source);

class ExpressionParser : public TokenReader {
 protected:
  using TokenReader::TokenReader;

  // Names that were read since the innermost macro began, which say what it takes besides its parameters.
  struct SpecialNames {
    bool kwargs = false, varargs = false, caller = false;
  };
  SpecialNames special_;

  Result<ExpressionPtr> ParseExpression(bool with_conditional = true);
  // Expressions with commas between them are a tuple. `end`: a name that ends it.
  Result<ExpressionPtr> ParseTuple(bool with_conditional = true, std::string_view end = {}, bool parenthesized = false);
  Result<ExpressionPtr> ParseFilters(ExpressionPtr value, bool first_without_pipe = false);
  Result<Target> ParseTarget(bool with_attributes, std::string_view end = {});

 private:
  Result<ExpressionPtr> ParseConditional();
  Result<ExpressionPtr> ParseOr();
  Result<ExpressionPtr> ParseAnd();
  Result<ExpressionPtr> ParseNot();
  Result<ExpressionPtr> ParseComparison();
  Result<ExpressionPtr> ParseSum();
  Result<ExpressionPtr> ParseConcatenation();
  Result<ExpressionPtr> ParseProduct();
  Result<ExpressionPtr> ParsePower();
  Result<ExpressionPtr> ParseUnary(bool with_filters = true);
  Result<ExpressionPtr> ParsePrimary();
  Result<ExpressionPtr> ParseNumber();
  Result<ExpressionPtr> ParseStrings();
  Result<ExpressionPtr> ParseList();
  Result<ExpressionPtr> ParseDict();
  Result<ExpressionPtr> ParsePostfix(ExpressionPtr value);
  Result<ExpressionPtr> ParseFiltersAndTests(ExpressionPtr value);
  Result<ExpressionPtr> ParseSubscript(ExpressionPtr value);
  Result<ExpressionPtr> ParseCall(ExpressionPtr function);
  Result<ExpressionPtr> ParseTest(ExpressionPtr value);
  Result<Arguments> ParseArguments();
  Result<Target> ParseOneTarget(bool with_attributes);

  template <class Node>
  Result<ExpressionPtr> Make(int line, Node node);
  template <class Operand, class NodeNow>
  Result<ExpressionPtr> FromTheLeft(const Operand& operand, const NodeNow& node_now);
};

}  // namespace tally::jinja
