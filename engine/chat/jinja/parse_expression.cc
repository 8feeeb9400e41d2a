// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

#include "engine/base/format.h"
#include "engine/chat/jinja/parser.h"

namespace tally::jinja {
namespace {

using Kind = Token::Kind;

template <class Op>
struct Symbol {
  std::string_view text;
  Op op;
};
constexpr Symbol<BinaryOp> kSums[] = {{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSubtract}};
constexpr Symbol<BinaryOp> kProducts[] = {
    {"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}};
constexpr Symbol<CompareOp> kComparisons[] = {{"==", CompareOp::kEqual},  {"!=", CompareOp::kNotEqual},
                                              {"<", CompareOp::kLess},    {"<=", CompareOp::kLessEqual},
                                              {">", CompareOp::kGreater}, {">=", CompareOp::kGreaterEqual}};

template <class Op, size_t n>
const Symbol<Op>* FindSymbol(const Symbol<Op> (&symbols)[n], const Token& token) {
  if (token.kind != Kind::kOperator) return nullptr;
  const auto* found = std::find_if(std::begin(symbols), std::end(symbols), [&](const auto& s) { return s.text == token.text; });
  return found == std::end(symbols) ? nullptr : found;
}

template <class Node>
std::optional<Node> NodeIf(bool is, Node node) {
  return is ? std::optional<Node>(std::move(node)) : std::nullopt;
}
std::optional<Binary> NodeOf(const Symbol<BinaryOp>* symbol) {
  return symbol == nullptr ? std::nullopt : std::optional<Binary>(Binary{.op = symbol->op});
}

}  // namespace

template <class Node>
Result<ExpressionPtr> ExpressionParser::Make(int line, Node node) {
  auto made = std::make_unique<Expression>(Expression{line, 1, std::move(node)});
  ForEachChild(*made, [&](const Expression& child) { made->depth = std::max(made->depth, child.depth + 1); });
  if (made->depth > kMaxNesting) return AtLine(line, "nested deeper than " + std::to_string(kMaxNesting));
  return made;
}

// Operands with operators of one level between them. `node_now`: of the operator that is read next; nothing: it is none of the level.
template <class Operand, class NodeNow>
Result<ExpressionPtr> ExpressionParser::FromTheLeft(const Operand& operand, const NodeNow& node_now) {
  TALLY_ASSIGN_OR_RETURN(ExpressionPtr left, operand());
  while (auto node = node_now()) {
    const int line = Take().line;
    TALLY_ASSIGN_OR_RETURN(node->right, operand());
    node->left = std::move(left);
    TALLY_ASSIGN_OR_RETURN(left, Make(line, *std::move(node)));
  }
  return left;
}

Result<ExpressionPtr> ExpressionParser::ParseExpression(bool with_conditional) {
  const Nesting nesting(&depth_);
  TALLY_RETURN_IF_ERROR(CheckNesting());
  return with_conditional ? ParseConditional() : ParseOr();
}

Result<ExpressionPtr> ExpressionParser::ParseConditional() {
  const int line = Now().line;
  TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (TakeName("if")) {
    ExpressionPtr otherwise;
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr condition, ParseOr());
    if (TakeName("else")) {
      TALLY_ASSIGN_OR_RETURN(otherwise, ParseExpression());
    }
    TALLY_ASSIGN_OR_RETURN(value, Make(line, Conditional{std::move(condition), std::move(value), std::move(otherwise)}));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::ParseOr() {
  return FromTheLeft([&] { return ParseAnd(); }, [&] { return NodeIf(IsName("or"), Logical{.is_and = false}); });
}

Result<ExpressionPtr> ExpressionParser::ParseAnd() {
  return FromTheLeft([&] { return ParseNot(); }, [&] { return NodeIf(IsName("and"), Logical{.is_and = true}); });
}

Result<ExpressionPtr> ExpressionParser::ParseNot() {
  if (!IsName("not")) return ParseComparison();
  const Nesting nesting(&depth_);
  TALLY_RETURN_IF_ERROR(CheckNesting());
  const int line = Take().line;
  TALLY_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseNot());
  return Make(line, Unary{Unary::Op::kNot, std::move(operand)});
}

Result<ExpressionPtr> ExpressionParser::ParseComparison() {
  const int line = Now().line;
  Comparison comparison;
  TALLY_ASSIGN_OR_RETURN(comparison.first, ParseSum());
  while (true) {
    CompareOp op;
    if (const auto* symbol = FindSymbol(kComparisons, Now())) {
      op = symbol->op;
      Take();
    } else if (TakeName("in")) {
      op = CompareOp::kIn;
    } else if (IsName("not") && After().kind == Kind::kName && After().text == "in") {
      Take();
      Take();
      op = CompareOp::kNotIn;
    } else {
      break;
    }
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr operand, ParseSum());
    comparison.rest.emplace_back(op, std::move(operand));
  }
  if (comparison.rest.empty()) return std::move(comparison.first);
  return Make(line, std::move(comparison));
}

Result<ExpressionPtr> ExpressionParser::ParseSum() {
  return FromTheLeft([&] { return ParseConcatenation(); }, [&] { return NodeOf(FindSymbol(kSums, Now())); });
}

Result<ExpressionPtr> ExpressionParser::ParseConcatenation() {
  const int line = Now().line;
  Concatenation all;
  do {
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr part, ParseProduct());
    all.parts.push_back(std::move(part));
  } while (TakeOperator("~"));
  if (all.parts.size() == 1) return std::move(all.parts[0]);
  return Make(line, std::move(all));
}

Result<ExpressionPtr> ExpressionParser::ParseProduct() {
  return FromTheLeft([&] { return ParsePower(); }, [&] { return NodeOf(FindSymbol(kProducts, Now())); });
}

// From the left, unlike Python.
Result<ExpressionPtr> ExpressionParser::ParsePower() {
  return FromTheLeft([&] { return ParseUnary(); }, [&] { return NodeIf(IsOperator("**"), Binary{.op = BinaryOp::kPower}); });
}

Result<ExpressionPtr> ExpressionParser::ParseUnary(bool with_filters) {
  const Nesting nesting(&depth_);
  TALLY_RETURN_IF_ERROR(CheckNesting());
  ExpressionPtr value;
  if (IsOperator("-") || IsOperator("+")) {
    const Token& sign = Take();
    TALLY_ASSIGN_OR_RETURN(value, ParseUnary(false));
    const Unary::Op op = sign.text == "-" ? Unary::Op::kMinus : Unary::Op::kPlus;
    TALLY_ASSIGN_OR_RETURN(value, Make(sign.line, Unary{op, std::move(value)}));
  } else {
    TALLY_ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  TALLY_ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (!with_filters) return value;
  return ParseFiltersAndTests(std::move(value));
}

Result<ExpressionPtr> ExpressionParser::ParsePrimary() {
  const int line = Now().line;
  switch (Now().kind) {
    case Kind::kString: return ParseStrings();
    case Kind::kInteger:
    case Kind::kFloat: return ParseNumber();
    case Kind::kName: {
      const std::string name = Take().text;
      if (name == "true" || name == "True") return Make(line, Constant{Value(true)});
      if (name == "false" || name == "False") return Make(line, Constant{Value(false)});
      if (name == "none" || name == "None") return Make(line, Constant{Value()});
      special_.kwargs |= name == "kwargs";
      special_.varargs |= name == "varargs";
      special_.caller |= name == "caller";
      return Make(line, Name{name});
    }
    default: break;
  }
  if (IsOperator("[")) return ParseList();
  if (IsOperator("{")) return ParseDict();
  if (!TakeOperator("(")) return Fail("unexpected '" + Describe(Now()) + "'");
  TALLY_ASSIGN_OR_RETURN(ExpressionPtr inside, ParseTuple(true, {}, true));
  TALLY_RETURN_IF_ERROR(ExpectOperator(")"));
  return inside;
}

Result<ExpressionPtr> ExpressionParser::ParseNumber() {
  const Token& token = Take();
  const std::string& text = token.text;
  if (token.kind == Kind::kFloat) return Make(token.line, Constant{Value(std::strtod(text.c_str(), nullptr))});
  const char kind = text.size() > 2 ? static_cast<char>(text[1] | 0x20) : '0';
  const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data() + (base == 10 ? 0 : 2), end, number, base);
  if (read.ec != std::errc() || read.ptr != end) return AtLine(token.line, "an integer beyond 64 bits: " + Quote(text));
  return Make(token.line, Constant{Value(number)});
}

// Strings beside one another are one.
Result<ExpressionPtr> ExpressionParser::ParseStrings() {
  const int line = Now().line;
  std::string all;
  while (Is(Kind::kString)) all += Take().text;
  return Make(line, Constant{Value::Literal(std::move(all))});
}

Result<ExpressionPtr> ExpressionParser::ParseTuple(bool with_conditional, std::string_view end, bool parenthesized) {
  const int line = Now().line;
  Expressions items;
  bool is_tuple = false;
  while (true) {
    if (Is(Kind::kPrintEnd) || Is(Kind::kBlockEnd) || IsOperator(")") || (!end.empty() && IsName(end))) break;
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression(with_conditional));
    items.push_back(std::move(item));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return std::move(items[0]);
  if (!is_tuple && !parenthesized) return Fail("Expected an expression, got '" + Describe(Now()) + "'");
  return Make(line, TupleDisplay{std::move(items)});
}

Result<ExpressionPtr> ExpressionParser::ParseList() {
  const int line = Take().line;
  ListDisplay list;
  while (!IsOperator("]")) {
    if (!list.items.empty()) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("]")) break;
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr item, ParseExpression());
    list.items.push_back(std::move(item));
  }
  Take();
  return Make(line, std::move(list));
}

Result<ExpressionPtr> ExpressionParser::ParseDict() {
  const int line = Take().line;
  DictDisplay dict;
  while (!IsOperator("}")) {
    if (!dict.items.empty()) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    if (IsOperator("}")) break;
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr key, ParseExpression());
    TALLY_RETURN_IF_ERROR(ExpectOperator(":"));
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
    dict.items.emplace_back(std::move(key), std::move(value));
  }
  Take();
  return Make(line, std::move(dict));
}

Result<ExpressionPtr> ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (IsOperator(".") || IsOperator("[")) {
      TALLY_ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (IsOperator("(")) {
      TALLY_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::ParseSubscript(ExpressionPtr value) {
  const int line = Now().line;
  if (TakeOperator(".")) {
    if (Is(Kind::kName)) return Make(line, Attribute{std::move(value), Take().text});
    if (!Is(Kind::kInteger)) return Fail("expected name or number");
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr index, ParseNumber());
    return Make(line, Item{std::move(value), std::move(index)});
  }
  Take();
  ExpressionPtr bounds[3];
  bool is_slice = false;
  for (size_t i = 0; i < 3; ++i) {
    if (!IsOperator(":") && !IsOperator("]")) {
      TALLY_ASSIGN_OR_RETURN(bounds[i], ParseExpression());
    }
    if (i < 2 && TakeOperator(":")) {
      is_slice = true;
    } else {
      break;
    }
  }
  TALLY_RETURN_IF_ERROR(ExpectOperator("]"));
  if (is_slice) return Make(line, Slice{std::move(value), std::move(bounds[0]), std::move(bounds[1]), std::move(bounds[2])});
  if (bounds[0] == nullptr) {
    TALLY_ASSIGN_OR_RETURN(bounds[0], Make(line, TupleDisplay{}));
  }
  return Make(line, Item{std::move(value), std::move(bounds[0])});
}

Result<Arguments> ExpressionParser::ParseArguments() {
  const int line = Now().line;
  const auto invalid = [&] { return AtLine(line, "invalid syntax for function call expression"); };
  TALLY_RETURN_IF_ERROR(ExpectOperator("("));
  Arguments arguments;
  bool first = true;
  while (!IsOperator(")")) {
    if (!first) TALLY_RETURN_IF_ERROR(ExpectOperator(","));
    first = false;
    if (IsOperator(")")) break;
    if (TakeOperator("*")) {
      if (arguments.star != nullptr || arguments.stars != nullptr) return invalid();
      TALLY_ASSIGN_OR_RETURN(arguments.star, ParseExpression());
    } else if (TakeOperator("**")) {
      if (arguments.stars != nullptr) return invalid();
      TALLY_ASSIGN_OR_RETURN(arguments.stars, ParseExpression());
    } else if (Is(Kind::kName) && After().kind == Kind::kOperator && After().text == "=") {
      if (arguments.stars != nullptr) return invalid();
      std::string name = Take().text;
      Take();
      TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      for (const auto& [other, ignored] : arguments.named) {
        if (other == name) return AtLine(line, "keyword argument repeated: " + name);
      }
      arguments.named.emplace_back(std::move(name), std::move(value));
      if (arguments.named.size() > kMaxParameters) {
        return AtLine(line, "more than " + std::to_string(kMaxParameters) + " named arguments");
      }
    } else {
      if (arguments.star != nullptr || arguments.stars != nullptr || !arguments.named.empty()) return invalid();
      TALLY_ASSIGN_OR_RETURN(ExpressionPtr value, ParseExpression());
      arguments.positional.push_back(std::move(value));
    }
  }
  Take();
  return arguments;
}

Result<ExpressionPtr> ExpressionParser::ParseCall(ExpressionPtr function) {
  const int line = Now().line;
  TALLY_ASSIGN_OR_RETURN(Arguments arguments, ParseArguments());
  return Make(line, Call{std::move(function), std::move(arguments)});
}

Result<ExpressionPtr> ExpressionParser::ParseFiltersAndTests(ExpressionPtr value) {
  while (true) {
    if (IsOperator("|")) {
      TALLY_ASSIGN_OR_RETURN(value, ParseFilters(std::move(value)));
    } else if (IsName("is")) {
      TALLY_ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (IsOperator("(")) {
      TALLY_ASSIGN_OR_RETURN(value, ParseCall(std::move(value)));
    } else {
      return value;
    }
  }
}

Result<ExpressionPtr> ExpressionParser::ParseFilters(ExpressionPtr value, bool first_without_pipe) {
  while (first_without_pipe || TakeOperator("|")) {
    first_without_pipe = false;
    const int line = Now().line;
    Filter filter;
    TALLY_ASSIGN_OR_RETURN(filter.name, AnyName());
    while (TakeOperator(".")) {
      TALLY_ASSIGN_OR_RETURN(const std::string more, AnyName());
      filter.name += "." + more;
    }
    if (IsOperator("(")) {
      TALLY_ASSIGN_OR_RETURN(filter.arguments, ParseArguments());
    }
    filter.value = std::move(value);
    TALLY_ASSIGN_OR_RETURN(value, Make(line, std::move(filter)));
  }
  return value;
}

Result<ExpressionPtr> ExpressionParser::ParseTest(ExpressionPtr value) {
  const int line = Take().line;
  const bool negated = TakeName("not");
  Test test;
  TALLY_ASSIGN_OR_RETURN(test.name, AnyName());
  while (TakeOperator(".")) {
    TALLY_ASSIGN_OR_RETURN(const std::string more, AnyName());
    test.name += "." + more;
  }
  const bool operand =
      Is(Kind::kName) || Is(Kind::kString) || Is(Kind::kInteger) || Is(Kind::kFloat) || IsOperator("[") || IsOperator("{");
  if (IsOperator("(")) {
    TALLY_ASSIGN_OR_RETURN(test.arguments, ParseArguments());
  } else if (operand && !IsName("else") && !IsName("or") && !IsName("and")) {
    if (IsName("is")) return Fail("You cannot chain multiple tests with is");
    const Nesting nesting(&depth_);
    TALLY_RETURN_IF_ERROR(CheckNesting());
    TALLY_ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    TALLY_ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    test.arguments.positional.push_back(std::move(argument));
  }
  test.value = std::move(value);
  TALLY_ASSIGN_OR_RETURN(ExpressionPtr made, Make(line, std::move(test)));
  if (!negated) return made;
  return Make(line, Unary{Unary::Op::kNot, std::move(made)});
}

Result<Target> ExpressionParser::ParseOneTarget(bool with_attributes) {
  const Nesting nesting(&depth_);
  TALLY_RETURN_IF_ERROR(CheckNesting());
  Target target;
  target.line = Now().line;
  if (TakeOperator("(")) {
    TALLY_ASSIGN_OR_RETURN(target, ParseTarget(with_attributes));
    TALLY_RETURN_IF_ERROR(ExpectOperator(")"));
    return target;
  }
  if (!Is(Kind::kName)) return Fail("can't assign to '" + Describe(Now()) + "'");
  static constexpr std::string_view kConstants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kConstants), std::end(kConstants), Now().text) != std::end(kConstants)) {
    return Fail("can't assign to '" + Now().text + "'");
  }
  target.name = Take().text;
  if (with_attributes && TakeOperator(".")) {
    TALLY_ASSIGN_OR_RETURN(target.attribute, AnyName());
  }
  return target;
}

Result<Target> ExpressionParser::ParseTarget(bool with_attributes, std::string_view end) {
  Target all;
  all.line = Now().line;
  bool is_tuple = false;
  while (true) {
    if (IsOperator(")") || Is(Kind::kBlockEnd) || (!end.empty() && IsName(end))) break;
    TALLY_ASSIGN_OR_RETURN(Target part, ParseOneTarget(with_attributes));
    all.parts.push_back(std::move(part));
    if (!TakeOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && all.parts.size() == 1) return Target(std::move(all.parts[0]));
  if (all.parts.empty()) return Fail("Expected an expression, got '" + Describe(Now()) + "'");
  return all;
}

}  // namespace tally::jinja
