// SPDX-License-Identifier: Apache-2.0
// Values with state or behaviour of their own.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

class Runtime;
struct For;
struct Macro;
class Scope;

struct CallArguments {
  Values positional = {};
  std::vector<std::pair<std::string, Value>> named = {};
};

// What `namespace(...)` makes: the only thing that templates can change.
class Namespace : public Object {
 public:
  std::string TypeName() const override { return "Namespace"; }
  const Value* Attribute(std::string_view name) override { return attributes_.FindName(name); }
  const Dict& attributes() const { return attributes_; }
  void Set(const std::string& name, Value value) { attributes_.Set("s" + name, Text(name, false), std::move(value)); }

 private:
  Dict attributes_;
};

// `loop` in the body of a `for`.
class Loop : public Object {
 public:
  // `recursive` and `scope`: what calling the loop runs again, and where; null where it is not recursive.
  Loop(Values items, int depth0, const For* recursive, Scope* scope)
      : items_(std::move(items)), depth0_(depth0), recursive_(recursive), scope_(scope) {}
  std::string TypeName() const override { return "LoopContext"; }
  const Value* Attribute(std::string_view name) override;
  bool Callable() const override { return true; }

  const Values& items() const { return items_; }
  int depth0() const { return depth0_; }
  const For* recursive() const { return recursive_; }
  Scope* scope() const { return scope_; }
  void set_index(size_t index0) { index0_ = index0; }
  Result<Value> Cycle(const CallArguments& arguments) const;
  Result<Value> Changed(Budget* budget, const CallArguments& arguments);

 private:
  Values items_;
  int depth0_;
  const For* recursive_;
  Scope* scope_;
  size_t index0_ = 0;
  Value attribute_;     // the one that was asked for last
  bool asked_ = false;  // whether something has changed
  Values last_;         // what was asked for then
};

// A macro, or the body of a call block, with the scope that it was defined in.
class MacroObject : public Object {
 public:
  MacroObject(const Macro* macro, Scope* scope) : macro_(macro), scope_(scope) {}
  std::string TypeName() const override { return "Macro"; }
  const Value* Attribute(std::string_view name) override;
  bool Callable() const override { return true; }
  const Macro& macro() const { return *macro_; }
  Scope* scope() const { return scope_; }

 private:
  const Macro* macro_;
  Scope* scope_;
  Value attribute_;
};

// `joiner(...)`.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string TypeName() const override { return "Joiner"; }
  bool Callable() const override { return true; }
  Value Next() { return std::exchange(used_, true) ? separator_ : Value::Literal(""); }

 private:
  Value separator_;
  bool used_ = false;
};

// A function that every template has: range, raise_exception and so on.
class Function : public Object {
 public:
  using Body = Result<Value> (*)(Runtime& run, const CallArguments& arguments);
  explicit Function(Body body) : body_(body) {}
  std::string TypeName() const override { return "function"; }
  bool Callable() const override { return true; }
  Result<Value> Call(Runtime& run, const CallArguments& arguments) const { return body_(run, arguments); }

 private:
  Body body_;
};
// By name: range, dict, namespace, joiner, raise_exception, strftime_now.
const std::map<std::string_view, Function::Body>& GlobalFunctions();

}  // namespace tally::jinja
