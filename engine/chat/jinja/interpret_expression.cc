// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "engine/base/format.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"

namespace tally::jinja {

Result<Value> Interpreter::Eval(const Expression& expression) {
  const Descent descent(&depth_);
  Status enters = Enter();
  if (!enters.ok()) return Located(Result<Value>(std::move(enters)), expression.line);
  return Located(std::visit([&](const auto& node) { return Eval(node); }, expression.node), expression.line);
}

Result<Value> Interpreter::EvalOr(const ExpressionPtr& expression, Value otherwise) {
  return expression == nullptr ? Result<Value>(std::move(otherwise)) : Eval(*expression);
}

Result<Values> Interpreter::EvalAll(const Expressions& expressions) {
  Values values;
  values.reserve(expressions.size());
  for (const ExpressionPtr& expression : expressions) {
    TALLY_ASSIGN_OR_RETURN(Value value, Eval(*expression));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::Eval(const Constant& node) { return node.value; }

Result<Value> Interpreter::Eval(const Name& node) {
  const Value* found = scopes_.Current()->Find(node.name);
  return found != nullptr ? *found : Value::MakeUndefined("'" + node.name + "' is undefined");
}

Result<Value> Interpreter::Eval(const TupleDisplay& node) {
  TALLY_ASSIGN_OR_RETURN(Values items, EvalAll(node.items));
  return MakeSequence(&run_.budget, Sequence::Kind::kTuple, std::move(items));
}

Result<Value> Interpreter::Eval(const ListDisplay& node) {
  TALLY_ASSIGN_OR_RETURN(Values items, EvalAll(node.items));
  return MakeList(&run_.budget, std::move(items));
}

Result<Value> Interpreter::Eval(const DictDisplay& node) {
  Dict dict;
  for (const auto& [key_node, value_node] : node.items) {
    TALLY_ASSIGN_OR_RETURN(Value key, Eval(*key_node));
    TALLY_ASSIGN_OR_RETURN(Value value, Eval(*value_node));
    TALLY_ASSIGN_OR_RETURN(std::string hash, HashKey(&run_.budget, key));
    dict.Set(std::move(hash), std::move(key), std::move(value));
  }
  return MakeDict(&run_.budget, std::move(dict));
}

Result<Value> Interpreter::Eval(const Attribute& node) {
  TALLY_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  return GetAttribute(&run_.budget, object, node.name);
}

Result<Value> Interpreter::Eval(const Item& node) {
  TALLY_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  TALLY_ASSIGN_OR_RETURN(const Value index, Eval(*node.index));
  return GetItem(&run_.budget, object, index);
}

Result<Value> Interpreter::Eval(const Slice& node) {
  TALLY_ASSIGN_OR_RETURN(const Value object, Eval(*node.object));
  TALLY_ASSIGN_OR_RETURN(const Value start, EvalOr(node.start, Value()));
  TALLY_ASSIGN_OR_RETURN(const Value stop, EvalOr(node.stop, Value()));
  TALLY_ASSIGN_OR_RETURN(const Value step, EvalOr(node.step, Value()));
  return GetSlice(&run_.budget, object, start, stop, step);
}

Result<Value> Interpreter::Eval(const Unary& node) {
  TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*node.operand));
  switch (node.op) {
    case Unary::Op::kNot: return Value(!IsTrue(value));
    case Unary::Op::kMinus: return Negated(value);
    case Unary::Op::kPlus: break;
  }
  if (value.IsUndefined()) return BadInput(value.reason());
  if (!value.IsNumber()) return BadInput("bad operand type for unary +: '" + value.TypeName() + "'");
  return value.IsBool() ? Value(value.integer()) : value;
}

Result<Value> Interpreter::Eval(const Binary& node) {
  TALLY_ASSIGN_OR_RETURN(const Value left, Eval(*node.left));
  TALLY_ASSIGN_OR_RETURN(const Value right, Eval(*node.right));
  return Arithmetic(&run_.budget, node.op, left, right);
}

Result<Value> Interpreter::Eval(const Logical& node) {
  TALLY_ASSIGN_OR_RETURN(Value left, Eval(*node.left));
  if (IsTrue(left) != node.is_and) return left;
  return Eval(*node.right);
}

Result<Value> Interpreter::Eval(const Concatenation& node) {
  Text all;
  for (const ExpressionPtr& part : node.parts) {
    TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*part));
    TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run_.budget, value));
    TALLY_RETURN_IF_ERROR(run_.budget.Make(all.size() + text.size()));
    all.Append(text);
  }
  return Value(std::move(all));
}

Result<Value> Interpreter::Eval(const Comparison& node) {
  TALLY_ASSIGN_OR_RETURN(Value left, Eval(*node.first));
  for (const auto& [op, operand] : node.rest) {
    TALLY_ASSIGN_OR_RETURN(Value right, Eval(*operand));
    TALLY_ASSIGN_OR_RETURN(const bool holds, Compare(&run_.budget, op, left, right));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Result<Value> Interpreter::Eval(const Conditional& node) {
  TALLY_ASSIGN_OR_RETURN(const Value holds, Eval(*node.condition));
  if (IsTrue(holds)) return Eval(*node.value);
  return EvalOr(node.otherwise,
                Value::MakeUndefined("the inline if-expression evaluated to false and no else section was defined."));
}

Result<Value> Interpreter::Eval(const Filter& node) {
  TALLY_ASSIGN_OR_RETURN(const Value value, EvalOr(node.value, filter_input_));
  const Operation filter = FindFilter(node.name);
  if (filter == nullptr) return BadInput("No filter named " + Quote(node.name) + ".");
  TALLY_ASSIGN_OR_RETURN(const CallArguments arguments, EvalArguments(node.arguments));
  return filter(run_, value, arguments);
}

Result<Value> Interpreter::Eval(const Test& node) {
  TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*node.value));
  const Operation test = FindTest(node.name);
  if (test == nullptr) return BadInput("No test named " + Quote(node.name) + ".");
  TALLY_ASSIGN_OR_RETURN(const CallArguments arguments, EvalArguments(node.arguments));
  return test(run_, value, arguments);
}

Result<CallArguments> Interpreter::EvalArguments(const Arguments& arguments) {
  CallArguments values;
  TALLY_ASSIGN_OR_RETURN(values.positional, EvalAll(arguments.positional));
  for (const auto& [name, expression] : arguments.named) {
    TALLY_ASSIGN_OR_RETURN(Value value, Eval(*expression));
    values.named.emplace_back(name, std::move(value));
  }
  if (arguments.star != nullptr) {
    TALLY_ASSIGN_OR_RETURN(const Value star, Eval(*arguments.star));
    TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run_.budget, star));
    values.positional.insert(values.positional.end(), items.begin(), items.end());
  }
  if (arguments.stars != nullptr) {
    TALLY_ASSIGN_OR_RETURN(const Value stars, Eval(*arguments.stars));
    if (stars.dict() == nullptr) return BadInput("argument after ** must be a mapping, not " + stars.TypeName());
    for (const auto& [key, value] : stars.dict()->items()) {
      if (!key.IsString()) return BadInput("keywords must be strings");
      const std::string& name = key.text().bytes();
      for (const auto& [other, ignored] : values.named) {
        TALLY_RETURN_IF_ERROR(run_.budget.Step());
        if (other == name) return BadInput("got multiple values for keyword argument " + Quote(name));
      }
      values.named.emplace_back(name, value);
    }
  }
  return values;
}

Result<Value> Interpreter::Eval(const Call& node) {
  TALLY_ASSIGN_OR_RETURN(const Value function, Eval(*node.function));
  TALLY_ASSIGN_OR_RETURN(CallArguments arguments, EvalArguments(node.arguments));
  return CallValue(function, std::move(arguments));
}

Result<Value> Interpreter::CallValue(const Value& function, CallArguments arguments) {
  if (function.IsUndefined()) return BadInput(function.reason());
  if (function.method() != nullptr) return CallMethod(run_, *function.method(), arguments);
  Object* const object = function.object();
  if (const auto* macro = dynamic_cast<MacroObject*>(object)) return CallMacro(*macro, std::move(arguments));
  if (const auto* loop = dynamic_cast<Loop*>(object)) return CallLoop(*loop, arguments);
  if (const auto* built_in = dynamic_cast<Function*>(object)) return built_in->Call(run_, arguments);
  if (auto* joiner = dynamic_cast<Joiner*>(object)) return joiner->Next();
  return BadInput("'" + function.TypeName() + "' object is not callable");
}

// Sets the parameters of a macro in the current scope, as jinja2's Macro does.
Status Interpreter::BindParameters(const Macro& macro, CallArguments* arguments) {
  Scope* const scope = scopes_.Current();
  auto& named = arguments->named;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    const auto found = std::find_if(named.begin(), named.end(), [&](const auto& n) { return n.first == name; });
    if (found == named.end()) return std::nullopt;
    std::optional<Value> value(std::move(found->second));
    named.erase(found);
    return value;
  };
  const size_t parameters = macro.parameters.size();
  TALLY_RETURN_IF_ERROR(run_.budget.Step(parameters * (1 + named.size() / 16)));
  std::vector<std::optional<Value>> given(parameters);
  for (size_t i = 0; i < parameters; ++i) {
    given[i] = i < arguments->positional.size() ? arguments->positional[i] : take(macro.parameters[i]);
  }
  if (macro.uses_caller) {
    scope->Set("caller", take("caller").value_or(Value::MakeUndefined("No caller defined")));
  }
  if (macro.uses_kwargs) {
    Dict kwargs;
    for (auto& [name, value] : named) kwargs.Set("s" + name, Text(name, false), std::move(value));
    TALLY_ASSIGN_OR_RETURN(Value all, MakeDict(&run_.budget, std::move(kwargs)));
    scope->Set("kwargs", std::move(all));
  } else if (!named.empty()) {
    return BadInput("macro " + Quote(macro.name) + " takes no keyword argument " + Quote(named[0].first));
  }
  const bool more = arguments->positional.size() > parameters;
  if (macro.uses_varargs) {
    Values rest;
    if (more) rest.assign(arguments->positional.begin() + static_cast<std::ptrdiff_t>(parameters), arguments->positional.end());
    TALLY_ASSIGN_OR_RETURN(Value all, MakeSequence(&run_.budget, Sequence::Kind::kTuple, std::move(rest)));
    scope->Set("varargs", std::move(all));
  } else if (more) {
    return BadInput("macro " + Quote(macro.name) + " takes not more than " + std::to_string(parameters) + " argument(s)");
  }
  const size_t first_default = parameters - macro.defaults.size();
  for (size_t i = 0; i < parameters; ++i) {
    if (given[i]) {
      scope->Set(macro.parameters[i], std::move(*given[i]));
    } else if (i < first_default) {
      scope->Set(macro.parameters[i], Value::MakeUndefined("parameter '" + macro.parameters[i] + "' was not provided"));
    } else {
      TALLY_ASSIGN_OR_RETURN(Value value, Eval(*macro.defaults[i - first_default]));
      scope->Set(macro.parameters[i], std::move(value));
    }
  }
  return {};
}

Result<Value> Interpreter::CallMacro(const MacroObject& object, CallArguments arguments) {
  const Macro& macro = object.macro();
  const Scopes::Entered scope(&scopes_, object.scope());
  TALLY_RETURN_IF_ERROR(BindParameters(macro, &arguments));
  Text text;
  Text* const before = std::exchange(out_, &text);
  const Result<Flow> flow = RunInScope(macro.body);
  out_ = before;
  TALLY_RETURN_IF_ERROR(flow.status());
  return Value(std::move(text));
}

}  // namespace tally::jinja
