// SPDX-License-Identifier: Apache-2.0
// A parsed template.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;  // never null unless said so
using Expressions = std::vector<ExpressionPtr>;

// f(positional..., name=value..., *star, **stars)
struct Arguments {
  Expressions positional = {};
  std::vector<std::pair<std::string, ExpressionPtr>> named = {};
  ExpressionPtr star = {}, stars = {};  // may be null
};

struct Constant {
  Value value;
};
struct Name {
  std::string name;
};
struct TupleDisplay {
  Expressions items;
};
struct ListDisplay {
  Expressions items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
};
struct Attribute {
  ExpressionPtr object;
  std::string name;
};
struct Item {
  ExpressionPtr object, index;
};
struct Slice {
  ExpressionPtr object, start, stop, step;  // the last three may be null
};
struct Call {
  ExpressionPtr function;
  Arguments arguments;
};
struct Filter {
  ExpressionPtr value;  // null: the text of a filter block
  std::string name;
  Arguments arguments;
};
struct Test {
  ExpressionPtr value;
  std::string name;
  Arguments arguments;
};
struct Unary {
  enum class Op : uint8_t { kNot, kMinus, kPlus } op;
  ExpressionPtr operand;
};
struct Binary {
  BinaryOp op;
  ExpressionPtr left = {}, right = {};
};
struct Logical {
  bool is_and;
  ExpressionPtr left = {}, right = {};
};
struct Concatenation {  // a ~ b
  Expressions parts;
};
struct Comparison {  // a < b == c
  ExpressionPtr first;
  std::vector<std::pair<CompareOp, ExpressionPtr>> rest;
};
struct Conditional {                          // value if condition else otherwise
  ExpressionPtr condition, value, otherwise;  // the last may be null
};

struct Expression {
  int line = 1;
  int depth = 1;  // of expressions in one another
  std::variant<Constant, Name, TupleDisplay, ListDisplay, DictDisplay, Attribute, Item, Slice, Call, Filter, Test, Unary, Binary,
               Logical, Concatenation, Comparison, Conditional>
      node;
};

// Calls `visit` for each expression right below this one, in the order of evaluation of jinja2.
void ForEachChild(const Expression& expression, const std::function<void(const Expression&)>& visit);

// What is assigned to: a name, the attribute of a namespace, or several of them.
struct Target {
  int line = 1;
  std::string name = {};           // empty: several
  std::string attribute = {};      // of the namespace `name`, unless empty
  std::vector<Target> parts = {};  // nested no deeper than kMaxNesting
};

struct Statement;
struct Body {
  std::vector<Statement> statements;
  // Of a body with a scope of its own: names that are undefined where it begins, whatever the scopes around it have (scope_analysis.h).
  std::vector<std::string> hidden;
};

struct Data {
  Text text;
};
struct Print {
  Expressions values;
};
struct Branch {
  ExpressionPtr condition;
  Body body;
};
struct If {
  std::vector<Branch> branches;  // if, elif...
  Body otherwise;
};
struct For {
  Target target;
  ExpressionPtr items, condition;  // the condition may be null
  bool recursive = false;
  Body body, otherwise;
};
struct Set {
  Target target;
  ExpressionPtr value;
};
struct SetBlock {
  Target target;
  ExpressionPtr filter;  // filters, the innermost applied to the text; may be null
  Body body;
};
struct Macro {
  std::string name;  // "caller" for a call block
  std::vector<std::string> parameters;
  Expressions defaults;  // of the last parameters
  Body body;
  bool uses_kwargs = false, uses_varargs = false, uses_caller = false;
};
struct CallBlock {
  Macro caller;
  ExpressionPtr call;  // a Call
};
struct FilterBlock {
  ExpressionPtr filter;
  Body body;
};
struct With {
  std::vector<std::pair<Target, ExpressionPtr>> values;
  Body body;
};
// {% generation %} and {% block %}: a scope of their own.
struct Scoped {
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line = 1;
  std::variant<Data, Print, If, For, Set, SetBlock, Macro, CallBlock, FilterBlock, With, Scoped, Break, Continue> node;
};

}  // namespace tally::jinja
