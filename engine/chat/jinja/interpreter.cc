// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/interpreter.h"

#include <algorithm>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"

namespace tally::jinja {
Result<Text> Interpreter::Render(const Body& body, const std::vector<std::pair<std::string, Value>>& variables) {
  const Scopes::Entered context(&scopes_);
  for (const auto& [name, function] : GlobalFunctions()) {
    TALLY_ASSIGN_OR_RETURN(Function * object, run_.New<Function>(function));
    scopes_.Current()->Set(name, Value(object));
  }
  for (const auto& [name, value] : variables) scopes_.Current()->Set(name, value);
  Text text;
  const Result<Flow> flow = Capture(body, &text);
  if (flow.ok()) return text;
  return BadInput("line " + std::to_string(std::max(failed_line_, 1)) + ": " + flow.status().message());
}

Result<Interpreter::Flow> Interpreter::RunInScope(const Body& body) {
  TALLY_RETURN_IF_ERROR(run_.budget.Step(body.hidden.size()));
  for (const std::string& name : body.hidden) scopes_.Current()->Set(name, Value::MakeUndefined("'" + name + "' is undefined"));
  return Run(body);
}

Result<Interpreter::Flow> Interpreter::Run(const Body& body) {
  for (const Statement& statement : body.statements) {
    TALLY_ASSIGN_OR_RETURN(const Flow flow, Run(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Run(const Statement& statement) {
  const Descent descent(&depth_);
  Status enters = Enter();
  if (!enters.ok()) return Located(Result<Flow>(std::move(enters)), statement.line);
  return Located(std::visit([&](const auto& node) { return Do(node); }, statement.node), statement.line);
}

Status Interpreter::Enter() {
  const int limit = run_.budget.limits().depth;
  if (depth_ > limit) {
    return BadInput("calls and expressions nested deeper than " + std::to_string(limit) + " (a macro that calls itself?)");
  }
  return run_.budget.Step();
}

Result<Interpreter::Flow> Interpreter::Capture(const Body& body, Text* text) {
  Text* const before = std::exchange(out_, text);
  const Scopes::Entered scope(&scopes_);
  Result<Flow> flow = RunInScope(body);
  out_ = before;
  return flow;
}

Status Interpreter::Write(const Text& text) {
  TALLY_RETURN_IF_ERROR(run_.budget.Make(text.size()));
  TALLY_RETURN_IF_ERROR(run_.budget.Fits(out_->size() + text.size()));
  out_->Append(text);
  return {};
}

Result<Interpreter::Flow> Interpreter::Do(const Data& node) {
  TALLY_RETURN_IF_ERROR(Write(node.text));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const Print& node) {
  for (const ExpressionPtr& expression : node.values) {
    TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*expression));
    if (value.IsString()) {
      TALLY_RETURN_IF_ERROR(Write(value.text()));
    } else {
      TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run_.budget, value));
      TALLY_RETURN_IF_ERROR(Write(text));
    }
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const If& node) {
  for (const auto& [condition, body] : node.branches) {
    TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*condition));
    if (IsTrue(value)) return Run(body);
  }
  return Run(node.otherwise);
}

Result<Interpreter::Flow> Interpreter::Do(const For& node) {
  TALLY_ASSIGN_OR_RETURN(const Value items, Eval(*node.items));
  Scope* const scope = scopes_.Current();
  if (node.recursive) scope->Keep();
  TALLY_RETURN_IF_ERROR(RunLoop(node, items, scope, 0));
  return Flow::kNext;
}

Result<Values> Interpreter::LoopItems(const For& node, const Value& items, Scope* scope) {
  TALLY_ASSIGN_OR_RETURN(Values all, Iterate(&run_.budget, items));
  if (node.condition == nullptr) return all;
  Values some;
  for (Value& item : all) {
    const Scopes::Entered test(&scopes_, scope);
    TALLY_RETURN_IF_ERROR(Assign(node.target, item));
    TALLY_ASSIGN_OR_RETURN(const Value holds, Eval(*node.condition));
    if (IsTrue(holds)) some.push_back(std::move(item));
  }
  return some;
}

Status Interpreter::RunLoop(const For& node, const Value& items, Scope* scope, int depth0) {
  TALLY_ASSIGN_OR_RETURN(Values walked, LoopItems(node, items, scope));
  TALLY_ASSIGN_OR_RETURN(Loop * loop, run_.New<Loop>(std::move(walked), depth0, node.recursive ? &node : nullptr, scope));
  bool finished = false;  // jinja2 runs `else` where no iteration came to its end, were there any or not
  for (size_t i = 0; i < loop->items().size(); ++i) {
    const Scopes::Entered iteration(&scopes_, scope);
    loop->set_index(i);
    scopes_.Current()->Set("loop", Value(loop));
    TALLY_RETURN_IF_ERROR(Assign(node.target, loop->items()[i]));
    TALLY_ASSIGN_OR_RETURN(const Flow flow, RunInScope(node.body));
    if (flow == Flow::kBreak) break;
    finished = finished || flow == Flow::kNext;
  }
  if (finished || node.otherwise.statements.empty()) return {};
  const Scopes::Entered otherwise(&scopes_, scope);
  return RunInScope(node.otherwise).status();
}

Result<Value> Interpreter::CallLoop(const Loop& loop, const CallArguments& arguments) {
  if (loop.recursive() == nullptr) return BadInput("The loop must have the 'recursive' marker to be called recursively.");
  TALLY_ASSIGN_OR_RETURN(const Parameters parameters, Parameters::Bind("loop", {"iterable"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* items, parameters.Required(0));
  Text text;
  Text* const before = std::exchange(out_, &text);
  const Status status = RunLoop(*loop.recursive(), *items, loop.scope(), loop.depth0() + 1);
  out_ = before;
  TALLY_RETURN_IF_ERROR(status);
  return Value(std::move(text));
}

Status Interpreter::Assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value* found = scopes_.Current()->Find(target.name);
    auto* space = found == nullptr ? nullptr : dynamic_cast<Namespace*>(found->object());
    if (space == nullptr) return BadInput("cannot assign attribute on non-namespace object");
    space->Set(target.attribute, value);
    return {};
  }
  if (!target.name.empty()) {
    scopes_.Current()->Set(target.name, value);
    return {};
  }
  if (!IsIterable(value)) return BadInput("cannot unpack non-iterable " + value.TypeName() + " object");
  TALLY_ASSIGN_OR_RETURN(const Values items, Iterate(&run_.budget, value));
  if (items.size() != target.parts.size()) {
    const std::string expected = " values to unpack (expected " + std::to_string(target.parts.size());
    if (items.size() > target.parts.size()) return BadInput("too many" + expected + ")");
    return BadInput("not enough" + expected + ", got " + std::to_string(items.size()) + ")");
  }
  for (size_t i = 0; i < items.size(); ++i) TALLY_RETURN_IF_ERROR(Assign(target.parts[i], items[i]));
  return {};
}

Result<Interpreter::Flow> Interpreter::Do(const Set& node) {
  TALLY_ASSIGN_OR_RETURN(const Value value, Eval(*node.value));
  TALLY_RETURN_IF_ERROR(Assign(node.target, value));
  return Flow::kNext;
}

Result<Value> Interpreter::Filtered(const Expression& filter, Text text) {
  const Value before = std::exchange(filter_input_, Value(std::move(text)));
  Result<Value> filtered = Eval(filter);
  filter_input_ = before;
  return filtered;
}

Result<Interpreter::Flow> Interpreter::Do(const SetBlock& node) {
  Text text;
  TALLY_ASSIGN_OR_RETURN(const Flow flow, Capture(node.body, &text));
  if (flow != Flow::kNext) return flow;  // a loop around is left, and nothing assigned
  if (node.filter == nullptr) {
    TALLY_RETURN_IF_ERROR(Assign(node.target, Value(std::move(text))));
    return Flow::kNext;
  }
  TALLY_ASSIGN_OR_RETURN(const Value value, Filtered(*node.filter, std::move(text)));
  TALLY_RETURN_IF_ERROR(Assign(node.target, value));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const Macro& node) {
  scopes_.Current()->Keep();
  TALLY_ASSIGN_OR_RETURN(MacroObject * macro, run_.New<MacroObject>(&node, scopes_.Current()));
  scopes_.Current()->Set(node.name, Value(macro));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const CallBlock& node) {
  scopes_.Current()->Keep();
  TALLY_ASSIGN_OR_RETURN(MacroObject * caller, run_.New<MacroObject>(&node.caller, scopes_.Current()));
  const Call& call = std::get<Call>(node.call->node);
  TALLY_ASSIGN_OR_RETURN(const Value function, Eval(*call.function));
  TALLY_ASSIGN_OR_RETURN(CallArguments arguments, EvalArguments(call.arguments));
  arguments.named.emplace_back("caller", Value(caller));
  TALLY_ASSIGN_OR_RETURN(const Value value, CallValue(function, std::move(arguments)));
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run_.budget, value));
  TALLY_RETURN_IF_ERROR(Write(text));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const FilterBlock& node) {
  Text inside;
  TALLY_ASSIGN_OR_RETURN(const Flow flow, Capture(node.body, &inside));
  if (flow != Flow::kNext) return flow;
  TALLY_ASSIGN_OR_RETURN(const Value value, Filtered(*node.filter, std::move(inside)));
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run_.budget, value));
  TALLY_RETURN_IF_ERROR(Write(text));
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::Do(const With& node) {
  std::vector<Value> values;
  for (const auto& [target, expression] : node.values) {
    TALLY_ASSIGN_OR_RETURN(Value value, Eval(*expression));
    values.push_back(std::move(value));
  }
  const Scopes::Entered scope(&scopes_);
  for (size_t i = 0; i < values.size(); ++i) TALLY_RETURN_IF_ERROR(Assign(node.values[i].first, values[i]));
  return RunInScope(node.body);
}

Result<Interpreter::Flow> Interpreter::Do(const Scoped& node) {
  const Scopes::Entered scope(&scopes_);
  return RunInScope(node.body);
}

Result<Interpreter::Flow> Interpreter::Do(const Break&) { return Flow::kBreak; }
Result<Interpreter::Flow> Interpreter::Do(const Continue&) { return Flow::kContinue; }

}  // namespace tally::jinja
