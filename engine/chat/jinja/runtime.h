// SPDX-License-Identifier: Apache-2.0
// What a rendering run owns and what its functions share: the budget, the time, the objects with state.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

class Runtime {
 public:
  Runtime(const Limits& limits, int64_t seconds) : budget(limits), now(seconds) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // An object lives as long as the run: namespaces and loops may refer to one another in circles.
  template <class T, class... Arguments>
  Result<T*> New(Arguments&&... arguments) {
    TALLY_RETURN_IF_ERROR(budget.MakeItems(4));
    auto made = std::make_unique<T>(std::forward<Arguments>(arguments)...);
    T* const object = made.get();
    objects_.push_back(std::move(made));
    return object;
  }

  Budget budget;
  const int64_t now;  // seconds since 1970
  int filters = 0;    // that apply one another now

 private:
  std::vector<std::unique_ptr<Object>> objects_;
};

// Filters, tests and methods, by name. `self` is what they are applied to.
using Operation = Result<Value> (*)(Runtime& run, const Value& self, const CallArguments& arguments);
Operation FindFilter(std::string_view name);  // null: there is none
Operation FindTest(std::string_view name);
// Calls one of a type's methods; an error where Python's type has it and this engine does not.
Result<Value> CallMethod(Runtime& run, const Method& method, const CallArguments& arguments);
// Whether Python's type of the value has this method.
bool HasMethod(const Value& self, std::string_view name);

// The arguments of a call, by the names of its parameters; null for those that were not given.
class Parameters {
 public:
  static Result<Parameters> Bind(const char* function, std::initializer_list<const char*> names, const CallArguments& arguments);

  const Value* operator[](size_t i) const { return values_[i]; }
  // An error where the value is missing or of another kind.
  Result<const Value*> Required(size_t i) const;
  Result<int64_t> Integer(size_t i, int64_t otherwise) const;
  Result<std::string_view> String(size_t i, std::string_view otherwise) const;  // as long as the arguments
  bool Flag(size_t i, bool otherwise = false) const;

 private:
  const char* function_ = nullptr;
  std::vector<const char*> names_;
  std::vector<const Value*> values_;
};

}  // namespace tally::jinja
