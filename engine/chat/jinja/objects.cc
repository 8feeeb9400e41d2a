// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/objects.h"

#include <algorithm>
#include <ctime>

#include "engine/chat/jinja/ast.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/text/utf8.h"

namespace tally::jinja {

const Value* Loop::Attribute(std::string_view name) {
  const auto index = static_cast<int64_t>(index0_), length = static_cast<int64_t>(items_.size());
  if (name == "index") {
    attribute_ = index + 1;
  } else if (name == "index0") {
    attribute_ = index;
  } else if (name == "revindex") {
    attribute_ = length - index;
  } else if (name == "revindex0") {
    attribute_ = length - index - 1;
  } else if (name == "first") {
    attribute_ = index == 0;
  } else if (name == "last") {
    attribute_ = index + 1 == length;
  } else if (name == "length") {
    attribute_ = length;
  } else if (name == "depth") {
    attribute_ = int64_t{depth0_} + 1;
  } else if (name == "depth0") {
    attribute_ = int64_t{depth0_};
  } else if (name == "previtem") {
    attribute_ = index0_ > 0 ? items_[index0_ - 1] : Value::MakeUndefined("there is no previous item");
  } else if (name == "nextitem") {
    attribute_ = index0_ + 1 < items_.size() ? items_[index0_ + 1] : Value::MakeUndefined("there is no next item");
  } else {
    return nullptr;
  }
  return &attribute_;
}

Result<Value> Loop::Cycle(const CallArguments& arguments) const {
  if (arguments.positional.empty()) return BadInput("no items for cycling given");
  return arguments.positional[index0_ % arguments.positional.size()];
}

Result<Value> Loop::Changed(Budget* budget, const CallArguments& arguments) {
  bool same = asked_ && last_.size() == arguments.positional.size();
  for (size_t i = 0; same && i < last_.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(same, Equal(budget, last_[i], arguments.positional[i]));
  }
  asked_ = true;
  last_ = arguments.positional;
  return Value(!same);
}

const Value* MacroObject::Attribute(std::string_view name) {
  if (name == "name") {
    attribute_ = Value::Literal(macro_->name);
  } else if (name == "catch_kwargs") {
    attribute_ = macro_->uses_kwargs;
  } else if (name == "catch_varargs") {
    attribute_ = macro_->uses_varargs;
  } else if (name == "caller") {
    attribute_ = macro_->uses_caller;
  } else {
    return nullptr;
  }
  return &attribute_;
}

namespace {

Result<Value> RangeOf(Runtime& run, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("range", {"start", "stop", "step"}, arguments));
  if (p[0] == nullptr) return BadInput("range expected at least 1 argument, got 0");
  TALLY_ASSIGN_OR_RETURN(int64_t start, p.Integer(0, 0));
  TALLY_ASSIGN_OR_RETURN(int64_t stop, p.Integer(1, 0));
  TALLY_ASSIGN_OR_RETURN(const int64_t step, p.Integer(2, 1));
  if (p[1] == nullptr) stop = std::exchange(start, 0);
  if (step == 0) return BadInput("range() arg 3 must not be zero");
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kMaxRange)
      return BadInput("a range of more than " + std::to_string(kMaxRange) + " numbers");
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  TALLY_RETURN_IF_ERROR(run.budget.Step(items.size()));
  return MakeSequence(&run.budget, Sequence::Kind::kRange, std::move(items));
}

// The arguments of dict() and namespace(): a mapping or pairs, then names.
Result<Dict> DictArguments(Runtime& run, const char* function, const CallArguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) return BadInput(std::string(function) + " expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.dict() != nullptr) {
      dict = *from.dict();
    } else {
      TALLY_ASSIGN_OR_RETURN(const Values pairs, Iterate(&run.budget, from));
      for (const Value& pair : pairs) {
        if (!IsIterable(pair)) return BadInput("cannot convert dictionary update sequence element to a sequence");
        TALLY_ASSIGN_OR_RETURN(const Values two, Iterate(&run.budget, pair));
        if (two.size() != 2) return BadInput("a dictionary's items have a key and a value");
        TALLY_ASSIGN_OR_RETURN(std::string key, HashKey(&run.budget, two[0]));
        dict.Set(std::move(key), two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set("s" + name, Text(name, false), value);
  TALLY_RETURN_IF_ERROR(run.budget.Step(dict.items().size()));
  TALLY_RETURN_IF_ERROR(run.budget.MakeItems(4 * dict.items().size()));
  return dict;
}

Result<Value> DictOf(Runtime& run, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(Dict dict, DictArguments(run, "dict", arguments));
  return MakeDict(&run.budget, std::move(dict));
}

Result<Value> NamespaceOf(Runtime& run, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Dict dict, DictArguments(run, "namespace", arguments));
  TALLY_ASSIGN_OR_RETURN(Namespace * space, run.New<Namespace>());
  for (const auto& [key, value] : dict.items()) {
    if (key.IsString()) space->Set(key.text().bytes(), value);
  }
  return Value(space);
}

Result<Value> JoinerOf(Runtime& run, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("joiner", {"sep"}, arguments));
  TALLY_ASSIGN_OR_RETURN(Joiner * joiner, run.New<Joiner>(p[0] != nullptr ? *p[0] : Value::Literal(", ")));
  return Value(joiner);
}

Result<Value> RaiseException(Runtime&, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("raise_exception", {"message"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* message, p.Required(0));
  if (message->IsString()) return BadInput(message->text().bytes());
  return BadInput("raise_exception called");
}

Result<Value> StrftimeNow(Runtime& run, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("strftime_now", {"format"}, arguments));
  TALLY_RETURN_IF_ERROR(p.Required(0).status());
  TALLY_ASSIGN_OR_RETURN(const std::string_view given, p.String(0, ""));
  constexpr size_t kMost = 4096;
  if (given.size() > 256) return BadInput("a date format of more than 256 bytes");
  const std::string format(given);
  const auto seconds = static_cast<std::time_t>(run.now);
  std::tm local = {};
  if (::localtime_r(&seconds, &local) == nullptr) return BadInput("a date out of range");
  char buffer[kMost];
  const size_t length = std::strftime(buffer, kMost, format.c_str(), &local);
  std::string storage;
  return Value(Text(std::string(WellFormed({buffer, length}, &storage)), p[0]->text().AllTrusted()));
}

}  // namespace

const std::map<std::string_view, Function::Body>& GlobalFunctions() {
  static const std::map<std::string_view, Function::Body> functions = {
      {"range", RangeOf},
      {"dict", DictOf},
      {"namespace", NamespaceOf},
      {"joiner", JoinerOf},
      {"raise_exception", RaiseException},
      {"strftime_now", StrftimeNow},
  };
  return functions;
}

}  // namespace tally::jinja
