// SPDX-License-Identifier: Apache-2.0
// What the parsers of expressions and of statements share.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/lexer.h"

namespace tally::jinja {

// Walks over the tokens of a template.
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
  // As jinja2 calls a token in its messages.
  static std::string Describe(const Token& token);

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

}  // namespace tally::jinja
