// SPDX-License-Identifier: Apache-2.0
// Tokens into a tree: the grammar of jinja2 3.1 (https://jinja.palletsprojects.com/en/stable/templates/).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/lexer.h"

namespace tally::jinja {

// Errors begin with "line N: ".
Result<Body> ParseTemplate(std::string_view source);

// What the parsers of expressions and of statements share.
class TokenReader {
 protected:
  explicit TokenReader(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Now() const { return tokens_[at_]; }
  const Token& After() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& Take() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool Is(Token::Kind kind) const { return Now().kind == kind; }
  bool IsName(std::string_view name) const { return Is(Token::Kind::kName) && Now().text == name; }
  bool IsOperator(std::string_view op) const { return Is(Token::Kind::kOperator) && Now().text == op; }
  bool TakeName(std::string_view name) { return IsName(name) && (Take(), true); }
  bool TakeOperator(std::string_view op) { return IsOperator(op) && (Take(), true); }
  Status Expect(Token::Kind kind);
  Status ExpectOperator(std::string_view op);
  Status ExpectName(std::string_view name);
  Result<std::string> AnyName();
  Status Fail(std::string_view reason) const { return AtLine(Now().line, reason); }
  Status Unexpected(std::string_view expected) const;

  // Counts how deep the parser is; an error where that is too deep.
  class Nesting {
   public:
    explicit Nesting(int* depth) : depth_(depth) { ++*depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ~Nesting() { --*depth_; }

   private:
    int* depth_;
  };
  Status CheckNesting() const;
  int depth_ = 0;

 private:
  std::vector<Token> tokens_;  // the last is kEnd
  size_t at_ = 0;
};

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
};

}  // namespace tally::jinja
