// SPDX-License-Identifier: Apache-2.0
// Runs a parsed template.
#pragma once

#include <string>

#include "engine/base/status.h"
#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/chat/jinja/scope.h"

namespace tally::jinja {

class Interpreter {
 public:
  explicit Interpreter(Runtime* run) : run_(*run) {}

  // The text of a template, with these variables. Errors begin with "line N: ".
  Result<Text> Render(const Body& body, const std::vector<std::pair<std::string, Value>>& variables);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  Result<Flow> Run(const Body& body);
  Result<Flow> Run(const Statement& statement);
  // The same in a scope of its own, which is the current one.
  Result<Flow> RunInScope(const Body& body);
  // The same in a new scope within the current one; what it prints is added to `text`.
  Result<Flow> Capture(const Body& body, Text* text);

  Result<Flow> Do(const Data& node);
  Result<Flow> Do(const Print& node);
  Result<Flow> Do(const If& node);
  Result<Flow> Do(const For& node);
  Result<Flow> Do(const Set& node);
  Result<Flow> Do(const SetBlock& node);
  Result<Flow> Do(const Macro& node);
  Result<Flow> Do(const CallBlock& node);
  Result<Flow> Do(const FilterBlock& node);
  Result<Flow> Do(const With& node);
  Result<Flow> Do(const Scoped& node);
  Result<Flow> Do(const Break& node);
  Result<Flow> Do(const Continue& node);

  // A `for` over items, within the scope that the statement stands in.
  Status RunLoop(const For& node, const Value& items, Scope* scope, int depth0);
  Result<Values> LoopItems(const For& node, const Value& items, Scope* scope);
  Status Assign(const Target& target, const Value& value);
  Status Write(const Text& text);
  // The text of a set or filter block, through its filters.
  Result<Value> Filtered(const Expression& filter, Text text);

  Result<Value> Eval(const Expression& expression);
  Result<Value> EvalOr(const ExpressionPtr& expression, Value otherwise);
  Result<Values> EvalAll(const Expressions& expressions);
  Result<Value> Eval(const Constant& node);
  Result<Value> Eval(const Name& node);
  Result<Value> Eval(const TupleDisplay& node);
  Result<Value> Eval(const ListDisplay& node);
  Result<Value> Eval(const DictDisplay& node);
  Result<Value> Eval(const Attribute& node);
  Result<Value> Eval(const Item& node);
  Result<Value> Eval(const Slice& node);
  Result<Value> Eval(const Call& node);
  Result<Value> Eval(const Filter& node);
  Result<Value> Eval(const Test& node);
  Result<Value> Eval(const Unary& node);
  Result<Value> Eval(const Binary& node);
  Result<Value> Eval(const Logical& node);
  Result<Value> Eval(const Concatenation& node);
  Result<Value> Eval(const Comparison& node);
  Result<Value> Eval(const Conditional& node);

  Result<CallArguments> EvalArguments(const Arguments& arguments);
  Result<Value> CallValue(const Value& function, CallArguments arguments);
  Result<Value> CallMacro(const MacroObject& object, CallArguments arguments);
  Status BindParameters(const Macro& macro, CallArguments* arguments);
  Result<Value> CallLoop(const Loop& loop, const CallArguments& arguments);

  // Counts how deep statements and expressions are within one another.
  class Descent {
   public:
    explicit Descent(int* depth) : depth_(depth) { ++*depth_; }
    Descent(const Descent&) = delete;
    Descent& operator=(const Descent&) = delete;
    ~Descent() { --*depth_; }

   private:
    int* depth_;
  };
  // An error where that is too deep, or the steps are used up.
  Status Enter();

  // The line of the innermost node that failed.
  template <class T>
  Result<T> Located(Result<T> result, int line) {
    if (!result.ok() && failed_line_ == 0) failed_line_ = line;
    return result;
  }

  Runtime& run_;
  Scopes scopes_;
  Text* out_ = nullptr;
  Value filter_input_;  // of the filter block that is being applied
  int depth_ = 0;
  int failed_line_ = 0;
};

}  // namespace tally::jinja
