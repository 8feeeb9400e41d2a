// SPDX-License-Identifier: Apache-2.0
// Variables by name, scope within scope.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace tally::jinja {

class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  // Null: no scope around here has it.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
      const auto found = scope->values_.find(name);
      if (found != scope->values_.end()) return &found->second;
    }
    return nullptr;
  }
  void Set(std::string_view name, Value value) { values_.insert_or_assign(std::string(name), std::move(value)); }

  // A macro was defined in here, so that the scope and those around it outlive their statements.
  void Keep() {
    for (Scope* scope = this; scope != nullptr && !scope->kept_; scope = scope->parent_) scope->kept_ = true;
  }
  bool kept() const { return kept_; }

 private:
  Scope* const parent_;
  std::map<std::string, Value, std::less<>> values_;
  bool kept_ = false;
};

// The scopes of a run. Current() is the one that names are looked up in.
class Scopes {
 public:
  Scope* Current() const { return current_; }

  // Enters a scope for as long as this lives; it is within `parent`.
  class Entered {
   public:
    Entered(Scopes* scopes, Scope* parent) : scopes_(scopes), before_(scopes->current_), scope_(std::make_unique<Scope>(parent)) {
      scopes_->current_ = scope_.get();
    }
    explicit Entered(Scopes* scopes) : Entered(scopes, scopes->current_) {}
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;
    ~Entered() {
      scopes_->current_ = before_;
      if (scope_->kept()) scopes_->kept_.push_back(std::move(scope_));
    }

   private:
    Scopes* scopes_;
    Scope* before_;
    std::unique_ptr<Scope> scope_;
  };

 private:
  Scope* current_ = nullptr;
  std::vector<std::unique_ptr<Scope>> kept_;
};

}  // namespace tally::jinja
