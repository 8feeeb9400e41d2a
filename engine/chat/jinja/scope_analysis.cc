// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/scope_analysis.h"

#include <map>
#include <set>

namespace tally::jinja {
namespace {

// Names in copies of scopes, one for each branch; published templates have a few thousand.
constexpr size_t kMaxCopied = 500000;

// How a scope gets a name's first value.
enum class Origin : uint8_t { kParameter, kOutside, kUndefined };

// The names of a scope.
struct Symbols {
  const Symbols* parent = nullptr;
  std::map<std::string, Origin> names = {};
  std::set<std::string> stored = {};

  bool Known(const std::string& name) const {
    for (const Symbols* scope = this; scope != nullptr; scope = scope->parent) {
      if (scope->names.count(name) > 0) return true;
    }
    return false;
  }
  bool KnownAround(const std::string& name) const { return parent != nullptr && parent->Known(name); }

  void Load(const std::string& name) {
    if (!Known(name)) names[name] = Origin::kOutside;
  }
  void Store(const std::string& name) {
    stored.insert(name);
    if (names.count(name) == 0) names[name] = KnownAround(name) ? Origin::kOutside : Origin::kUndefined;
  }
  void Declare(const std::string& name) {
    stored.insert(name);
    names[name] = Origin::kParameter;
  }
  // What several branches did, of which at most one runs: what only some set may be needed from outside.
  void Join(const std::vector<Symbols>& branches) {
    std::set<std::string> added;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stored) {
        if (stored.count(name) == 0) added.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, origin] : branch.names) names[name] = origin;
      stored.insert(branch.stored.begin(), branch.stored.end());
    }
    for (const std::string& name : added) names[name] = Origin::kOutside;
  }
};

void Loads(const Expression& expression, Symbols* symbols) {
  if (const auto* name = std::get_if<Name>(&expression.node)) symbols->Load(name->name);
  ForEachChild(expression, [&](const Expression& child) { Loads(child, symbols); });
}

void Loads(const ExpressionPtr& expression, Symbols* symbols) {
  if (expression != nullptr) Loads(*expression, symbols);
}

void Stores(const Target& target, Symbols* symbols) {
  if (!target.attribute.empty()) {
    symbols->Load(target.name);
  } else if (!target.name.empty()) {
    symbols->Store(target.name);
  }
  for (const Target& part : target.parts) Stores(part, symbols);
}

void Declares(const Target& target, Symbols* symbols) {
  if (!target.name.empty()) symbols->Declare(target.name);
  for (const Target& part : target.parts) Declares(part, symbols);
}

// What a statement does to the names of the scope that it stands in.
class Visitor {
 public:
  Visitor(Symbols* symbols, size_t* copied) : symbols_(symbols), copied_(copied) {}

  void VisitAll(const Body& body) {
    for (const Statement& statement : body.statements) std::visit(*this, statement.node);
  }

  void operator()(const Data&) {}
  void operator()(const Print& node) {
    for (const ExpressionPtr& value : node.values) Loads(value, symbols_);
  }
  // All elif together count as one branch, in which one follows the other.
  void operator()(const If& node) {
    Loads(node.branches[0].condition, symbols_);
    *copied_ += node.branches.size() * symbols_->names.size();
    if (*copied_ > kMaxCopied) return;
    std::vector<Symbols> branches(3, *symbols_);
    Visitor(&branches[0], copied_).VisitAll(node.branches[0].body);
    for (size_t i = 1; i < node.branches.size(); ++i) {
      Loads(node.branches[i].condition, &branches[1]);
      std::vector<Symbols> body(1, branches[1]);
      Visitor(&body[0], copied_).VisitAll(node.branches[i].body);
      branches[1].Join(body);
    }
    Visitor(&branches[2], copied_).VisitAll(node.otherwise);
    symbols_->Join(branches);
  }
  void operator()(const For& node) { Loads(node.items, symbols_); }
  void operator()(const Set& node) {
    Loads(node.value, symbols_);
    Stores(node.target, symbols_);
  }
  void operator()(const SetBlock& node) { Stores(node.target, symbols_); }
  void operator()(const Macro& node) { symbols_->Store(node.name); }
  void operator()(const CallBlock& node) { Loads(node.call, symbols_); }
  void operator()(const FilterBlock& node) { Loads(node.filter, symbols_); }
  void operator()(const With& node) {
    for (const auto& [target, value] : node.values) Loads(value, symbols_);
  }
  void operator()(const Scoped&) {}
  void operator()(const Break&) {}
  void operator()(const Continue&) {}

 private:
  Symbols* symbols_;
  size_t* copied_;
};

// Goes through the bodies that have scopes of their own.
class Analyzer {
 public:
  // A body whose scope has these names to begin with.
  void Scope(Body* body, Symbols symbols) {
    Visitor(&symbols, &copied_).VisitAll(*body);
    for (const auto& [name, origin] : symbols.names) {
      if (origin == Origin::kUndefined) body->hidden.push_back(name);
    }
    Inside(body, symbols);
  }
  bool exceeded() const { return copied_ > kMaxCopied; }

 private:
  void Inside(Body* body, const Symbols& around) {
    for (Statement& statement : body->statements) {
      std::visit([&](auto& node) { Open(node, around); }, statement.node);
    }
  }

  template <class Node>
  void Open(Node&, const Symbols&) {}  // opens no scope
  void Open(If& node, const Symbols& around) {
    for (auto& [condition, body] : node.branches) Inside(&body, around);
    Inside(&node.otherwise, around);
  }
  void Open(For& node, const Symbols& around) {
    Symbols symbols{&around};
    symbols.Declare("loop");
    Declares(node.target, &symbols);
    Scope(&node.body, std::move(symbols));
    Scope(&node.otherwise, Symbols{&around});
  }
  void Open(Macro& node, const Symbols& around) {
    Symbols symbols{&around};
    for (const std::string& name : node.parameters) symbols.Declare(name);
    if (node.uses_caller) symbols.Declare("caller");
    if (node.uses_kwargs) symbols.Declare("kwargs");
    if (node.uses_varargs) symbols.Declare("varargs");
    for (const ExpressionPtr& value : node.defaults) Loads(value, &symbols);
    Scope(&node.body, std::move(symbols));
  }
  void Open(CallBlock& node, const Symbols& around) { Open(node.caller, around); }
  void Open(SetBlock& node, const Symbols& around) { Scope(&node.body, Symbols{&around}); }
  void Open(FilterBlock& node, const Symbols& around) { Scope(&node.body, Symbols{&around}); }
  void Open(Scoped& node, const Symbols& around) { Scope(&node.body, Symbols{&around}); }
  void Open(With& node, const Symbols& around) {
    Symbols symbols{&around};
    for (const auto& [target, value] : node.values) Declares(target, &symbols);
    Scope(&node.body, std::move(symbols));
  }

  size_t copied_ = 0;
};

}  // namespace

Status FindHiddenNames(Body* body) {
  Analyzer analyzer;
  analyzer.Scope(body, {});
  return analyzer.exceeded() ? BadInput("too many names and branches") : Status();
}

}  // namespace tally::jinja
