// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/runtime.h"

#include <algorithm>

#include "engine/chat/jinja/operators.h"

namespace tally::jinja {

Result<Parameters> Parameters::Bind(const char* function, std::initializer_list<const char*> names,
                                    const CallArguments& arguments) {
  Parameters bound;
  bound.function_ = function;
  bound.names_ = names;
  bound.values_.assign(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return BadInput(std::string(function) + " takes at most " + std::to_string(names.size()) + " arguments");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(bound.names_.begin(), bound.names_.end(), name);
    if (found == bound.names_.end()) return BadInput(std::string(function) + " has no argument '" + name + "'");
    const Value*& place = bound.values_[static_cast<size_t>(found - bound.names_.begin())];
    if (place != nullptr) return BadInput(std::string(function) + " got two values for '" + name + "'");
    place = &value;
  }
  return bound;
}

Result<const Value*> Parameters::Required(size_t i) const {
  if (values_[i] == nullptr) return BadInput(std::string(function_) + " needs an argument '" + names_[i] + "'");
  return values_[i];
}

Result<int64_t> Parameters::Integer(size_t i, int64_t otherwise) const {
  if (values_[i] == nullptr) return otherwise;
  if (values_[i]->IsUndefined()) return BadInput(values_[i]->reason());
  if (!values_[i]->IsInteger()) {
    return BadInput(std::string(function_) + ": '" + names_[i] + "' is to be an int, not " + values_[i]->TypeName());
  }
  return values_[i]->integer();
}

Result<std::string_view> Parameters::String(size_t i, std::string_view otherwise) const {
  if (values_[i] == nullptr) return otherwise;
  if (values_[i]->IsUndefined()) return BadInput(values_[i]->reason());
  if (!values_[i]->IsString()) {
    return BadInput(std::string(function_) + ": '" + names_[i] + "' is to be a str, not " + values_[i]->TypeName());
  }
  return std::string_view(values_[i]->text().bytes());
}

bool Parameters::Flag(size_t i, bool otherwise) const { return values_[i] == nullptr ? otherwise : IsTrue(*values_[i]); }

}  // namespace tally::jinja
