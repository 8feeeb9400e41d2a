// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/base/format.h"
#include "engine/chat/jinja/parser.h"
#include "engine/chat/jinja/scope_analysis.h"

namespace tally::jinja {
namespace {

using Kind = Token::Kind;
using Ends = std::initializer_list<std::string_view>;

class StatementParser : public ExpressionParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  Result<Body> ParseAll() { return ParseBody({}); }

 private:
  // Statements up to one of the tags `ends`, whose name is the next token then; without ends, all of them.
  Result<Body> ParseBody(Ends ends);
  // The rest of a tag and the body that it opens.
  Result<Body> ParseBlock(Ends ends);
  // The same, of a tag with a single end, which is read too.
  Result<Body> ParseBlock(std::string_view end);

  Status ParseTag(Body* body);
  Result<Statement> ParseStatement(const std::string& tag);
  Result<If> ParseIf();
  Result<For> ParseFor();
  Status ParseSet(Statement* statement);
  Result<Macro> ParseMacro();
  Result<CallBlock> ParseCallBlock();
  Result<FilterBlock> ParseFilterBlock();
  Result<With> ParseWith();
  Result<Print> ParsePrint();
  Result<Scoped> ParseNamedBlock();
  Status ParseSignature(Macro* macro);
  Status ParseMacroBody(std::string_view end, Macro* macro);

  int loops_ = 0;  // around the current statement, in the same macro
};

Result<Body> StatementParser::ParseBody(Ends ends) {
  const Nesting nesting(&depth_);
  TALLY_RETURN_IF_ERROR(CheckNesting());
  Body body;
  while (!Is(Kind::kEnd)) {
    const int line = Now().line;
    if (Is(Kind::kData)) {
      body.statements.push_back({line, Data{Text(Take().text, true)}});
    } else if (Is(Kind::kPrintBegin)) {
      Take();
      Print print;
      TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
      print.values.push_back(std::move(value));
      TALLY_RETURN_IF_ERROR(Expect(Kind::kPrintEnd));
      body.statements.push_back({line, std::move(print)});
    } else {
      TALLY_RETURN_IF_ERROR(Expect(Kind::kBlockBegin));
      if (Is(Kind::kName) && std::find(ends.begin(), ends.end(), Now().text) != ends.end()) return body;
      TALLY_RETURN_IF_ERROR(ParseTag(&body));
      TALLY_RETURN_IF_ERROR(Expect(Kind::kBlockEnd));
    }
  }
  if (ends.size() == 0) return body;
  std::string expected;
  for (const std::string_view end : ends) expected += (expected.empty() ? "'" : " or '") + std::string(end) + "'";
  return Fail("Unexpected end of template. Jinja was looking for the following tags: " + expected);
}

Result<Body> StatementParser::ParseBlock(Ends ends) {
  TakeOperator(":");
  TALLY_RETURN_IF_ERROR(Expect(Kind::kBlockEnd));
  return ParseBody(ends);
}

Result<Body> StatementParser::ParseBlock(std::string_view end) {
  TALLY_ASSIGN_OR_RETURN(Body body, ParseBlock({end}));
  Take();
  return body;
}

Status StatementParser::ParseTag(Body* body) {
  const int line = Now().line;
  if (!Is(Kind::kName)) return Fail("tag name expected");
  const std::string tag = Take().text;
  Result<Statement> statement = ParseStatement(tag);
  TALLY_RETURN_IF_ERROR(statement.status());
  statement->line = line;
  body->statements.push_back(std::move(*statement));
  return {};
}

Result<Statement> StatementParser::ParseStatement(const std::string& tag) {
  const int line = Now().line;
  Statement statement;
  if (tag == "if") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseIf());
  } else if (tag == "for") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseFor());
  } else if (tag == "set") {
    TALLY_RETURN_IF_ERROR(ParseSet(&statement));
  } else if (tag == "macro") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseMacro());
  } else if (tag == "call") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseCallBlock());
  } else if (tag == "filter") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseFilterBlock());
  } else if (tag == "with") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseWith());
  } else if (tag == "print") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParsePrint());
  } else if (tag == "block") {
    TALLY_ASSIGN_OR_RETURN(statement.node, ParseNamedBlock());
  } else if (tag == "generation") {
    const int around = std::exchange(loops_, 0);
    TALLY_ASSIGN_OR_RETURN(Body inside, ParseBlock("endgeneration"));
    loops_ = around;
    statement.node = Scoped{std::move(inside)};
  } else if (tag == "break" || tag == "continue") {
    if (loops_ == 0) return AtLine(line, "'" + tag + "' outside of a loop");
    if (tag == "break") statement.node = Break{};
    if (tag == "continue") statement.node = Continue{};
  } else if (tag == "include" || tag == "import" || tag == "from" || tag == "extends" || tag == "autoescape") {
    return AtLine(line, "the statement '" + tag + "' is not supported in chat templates");
  } else {
    return AtLine(line, "Encountered unknown tag " + Quote(tag));
  }
  return statement;
}

Result<If> StatementParser::ParseIf() {
  If node;
  while (true) {
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseTuple(false));
    TALLY_ASSIGN_OR_RETURN(Body body, ParseBlock({"elif", "else", "endif"}));
    node.branches.push_back({std::move(condition), std::move(body)});
    if (TakeName("elif")) continue;
    if (TakeName("else")) {
      TALLY_ASSIGN_OR_RETURN(node.otherwise, ParseBlock("endif"));
    } else {
      Take();
    }
    return node;
  }
}

Result<For> StatementParser::ParseFor() {
  For node;
  TALLY_ASSIGN_OR_RETURN(node.target, ParseTarget(false, "in"));
  TALLY_RETURN_IF_ERROR(ExpectName("in"));
  TALLY_ASSIGN_OR_RETURN(node.items, ParseTuple(false, "recursive"));
  if (TakeName("if")) {
    TALLY_ASSIGN_OR_RETURN(node.condition, ParseExpression());
  }
  node.recursive = TakeName("recursive");
  ++loops_;
  TALLY_ASSIGN_OR_RETURN(node.body, ParseBlock({"endfor", "else"}));
  --loops_;
  if (Take().text == "else") {
    TALLY_ASSIGN_OR_RETURN(node.otherwise, ParseBlock("endfor"));
  }
  return node;
}

Status StatementParser::ParseSet(Statement* statement) {
  TALLY_ASSIGN_OR_RETURN(Target target, ParseTarget(true));
  if (TakeOperator("=")) {
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
    statement->node = Set{std::move(target), std::move(value)};
    return {};
  }
  SetBlock block;
  block.target = std::move(target);
  TALLY_ASSIGN_OR_RETURN(block.filter, ParseFilters(nullptr));
  TALLY_ASSIGN_OR_RETURN(block.body, ParseBlock("endset"));
  statement->node = std::move(block);
  return {};
}

Status StatementParser::ParseSignature(Macro* macro) {
  TALLY_RETURN_IF_ERROR(ExpectOperator("("));
  while (!IsOperator(")")) {
    if (!macro->parameters.empty()) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    TALLY_ASSIGN_OR_RETURN(std::string name, AnyName());
    if (std::find(macro->parameters.begin(), macro->parameters.end(), name) != macro->parameters.end()) {
      return Fail("two parameters with the name '" + name + "'");
    }
    macro->parameters.push_back(std::move(name));
    if (macro->parameters.size() > kMaxParameters) return Fail("more than " + std::to_string(kMaxParameters) + " parameters");
    if (TakeOperator("=")) {
      TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return Fail("non-default argument follows default argument");
    }
  }
  Take();
  return {};
}

Status StatementParser::ParseMacroBody(std::string_view end, Macro* macro) {
  const int loops_around = std::exchange(loops_, 0);
  const SpecialNames around = std::exchange(special_, {});
  TALLY_ASSIGN_OR_RETURN(macro->body, ParseBlock(end));
  const auto takes = [&](bool named, const char* name) {
    return named && std::find(macro->parameters.begin(), macro->parameters.end(), name) == macro->parameters.end();
  };
  macro->uses_kwargs = takes(special_.kwargs, "kwargs");
  macro->uses_varargs = takes(special_.varargs, "varargs");
  macro->uses_caller = takes(special_.caller, "caller");
  loops_ = loops_around;
  special_ = {special_.kwargs || around.kwargs, special_.varargs || around.varargs, special_.caller || around.caller};
  return {};
}

Result<Macro> StatementParser::ParseMacro() {
  Macro macro;
  TALLY_ASSIGN_OR_RETURN(macro.name, AnyName());
  TALLY_RETURN_IF_ERROR(ParseSignature(&macro));
  TALLY_RETURN_IF_ERROR(ParseMacroBody("endmacro", &macro));
  return macro;
}

Result<CallBlock> StatementParser::ParseCallBlock() {
  CallBlock block;
  block.caller.name = "caller";
  const int line = Now().line;
  if (IsOperator("(")) TALLY_RETURN_IF_ERROR(ParseSignature(&block.caller));
  TALLY_ASSIGN_OR_RETURN(block.call, ParseExpression());
  if (!std::holds_alternative<Call>(block.call->node)) return AtLine(line, "expected call");
  TALLY_RETURN_IF_ERROR(ParseMacroBody("endcall", &block.caller));
  return block;
}

Result<FilterBlock> StatementParser::ParseFilterBlock() {
  FilterBlock block;
  TALLY_ASSIGN_OR_RETURN(block.filter, ParseFilters(nullptr, true));
  TALLY_ASSIGN_OR_RETURN(block.body, ParseBlock("endfilter"));
  return block;
}

Result<With> StatementParser::ParseWith() {
  With with;
  while (!Is(Kind::kBlockEnd)) {
    if (!with.values.empty()) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    TALLY_ASSIGN_OR_RETURN(Target target, ParseTarget(false));
    TALLY_RETURN_IF_ERROR(ExpectOperator("="));
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    with.values.emplace_back(std::move(target), std::move(value));
  }
  TALLY_ASSIGN_OR_RETURN(with.body, ParseBlock("endwith"));
  return with;
}

Result<Print> StatementParser::ParsePrint() {
  Print print;
  while (!Is(Kind::kBlockEnd)) {
    if (!print.values.empty()) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    print.values.push_back(std::move(value));
  }
  return print;
}

// A block is rendered where it stands: nothing extends a chat template.
Result<Scoped> StatementParser::ParseNamedBlock() {
  TALLY_ASSIGN_OR_RETURN(const std::string name, AnyName());
  TakeName("scoped");
  TakeName("required");
  const int around = std::exchange(loops_, 0);
  TALLY_ASSIGN_OR_RETURN(Body body, ParseBlock("endblock"));
  loops_ = around;
  TakeName(name);
  return Scoped{std::move(body)};
}

}  // namespace

Result<Body> ParseTemplate(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) return BadInput("more than " + std::to_string(kMaxTemplateBytes) + " bytes");
  TALLY_ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  TALLY_ASSIGN_OR_RETURN(Body body, StatementParser(std::move(tokens)).ParseAll());
  TALLY_RETURN_IF_ERROR(FindHiddenNames(&body));
  return body;
}

}  // namespace tally::jinja
