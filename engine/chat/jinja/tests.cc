// SPDX-License-Identifier: Apache-2.0
// The tests of jinja2: `value is name(arguments)`.
#include <algorithm>
#include <map>

#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/runtime.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

using Predicate = bool (*)(const Value& value);

// A test without arguments that looks at the value alone.
template <Predicate predicate>
Result<Value> Plain(Runtime&, const Value& self, const CallArguments& arguments) {
  TALLY_RETURN_IF_ERROR(Parameters::Bind("a test", {}, arguments).status());
  return Value(predicate(self));
}

bool IsDefined(const Value& v) { return !v.IsUndefined(); }
bool IsUndefinedTest(const Value& v) { return v.IsUndefined(); }
bool IsNoneTest(const Value& v) { return v.IsNone(); }
bool IsBoolean(const Value& v) { return v.IsBool(); }
bool IsTrueTest(const Value& v) { return v.IsBool() && v.integer() == 1; }
bool IsFalseTest(const Value& v) { return v.IsBool() && v.integer() == 0; }
bool IsIntegerTest(const Value& v) { return v.IsInteger() && !v.IsBool(); }
bool IsFloatTest(const Value& v) { return v.IsFloat(); }
bool IsNumberTest(const Value& v) { return v.IsNumber(); }
bool IsStringTest(const Value& v) { return v.IsString(); }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsIterableTest(const Value& v) { return IsIterable(v) || dynamic_cast<Loop*>(v.object()) != nullptr; }
bool IsSequence(const Value& v) {
  return v.IsUndefined() || v.IsString() || v.dict() != nullptr || (v.sequence() != nullptr && v.sequence()->Indexable());
}
bool IsCallable(const Value& v) {
  return v.IsUndefined() || v.method() != nullptr || (v.object() != nullptr && v.object()->Callable());
}
bool IsEscaped(const Value&) { return false; }

// Of two operands, the second of which is the argument.
template <CompareOp op>
Result<Value> Compares(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("a comparison", {"other"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* other, p.Required(0));
  TALLY_ASSIGN_OR_RETURN(const bool holds, Compare(&run.budget, op, self, *other));
  return Value(holds);
}

Result<Value> HasRemainder(Runtime& run, const Value& self, const Value& divisor, int64_t remainder) {
  TALLY_ASSIGN_OR_RETURN(const Value rest, Arithmetic(&run.budget, BinaryOp::kModulo, self, divisor));
  TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(&run.budget, rest, Value(remainder)));
  return Value(equal);
}

Result<Value> IsOdd(Runtime& run, const Value& self, const CallArguments&) {
  return HasRemainder(run, self, Value(int64_t{2}), 1);
}
Result<Value> IsEven(Runtime& run, const Value& self, const CallArguments&) {
  return HasRemainder(run, self, Value(int64_t{2}), 0);
}
Result<Value> IsDivisible(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("divisibleby", {"num"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* divisor, p.Required(0));
  return HasRemainder(run, self, *divisor, 0);
}

Result<Value> IsSameAs(Runtime& run, const Value& self, const CallArguments& arguments) {
  TALLY_ASSIGN_OR_RETURN(const Parameters p, Parameters::Bind("sameas", {"other"}, arguments));
  TALLY_ASSIGN_OR_RETURN(const Value* other, p.Required(0));
  if (self.IsString() && other->IsString()) TALLY_RETURN_IF_ERROR(run.budget.Read(self.text().size()));
  return Value(self.IsSame(*other));
}

// str.islower and str.isupper: of the letters that have a case, and there is one.
Result<Value> AllCased(Runtime& run, const Value& self, bool upper) {
  TALLY_ASSIGN_OR_RETURN(const Text text, Str(&run.budget, self));
  TALLY_RETURN_IF_ERROR(run.budget.Step(text.size() / 8));
  return Value(HasCase(text.bytes(), upper));
}
Result<Value> IsLower(Runtime& run, const Value& self, const CallArguments&) { return AllCased(run, self, false); }
Result<Value> IsUpper(Runtime& run, const Value& self, const CallArguments&) { return AllCased(run, self, true); }

template <Operation (*find)(std::string_view)>
Result<Value> IsKnown(Runtime&, const Value& self, const CallArguments&) {
  return Value(self.IsString() && find(self.text().bytes()) != nullptr);
}

const std::map<std::string_view, Operation>& Tests() {
  static const std::map<std::string_view, Operation> tests = {
      {"defined", Plain<IsDefined>},
      {"undefined", Plain<IsUndefinedTest>},
      {"none", Plain<IsNoneTest>},
      {"boolean", Plain<IsBoolean>},
      {"true", Plain<IsTrueTest>},
      {"false", Plain<IsFalseTest>},
      {"integer", Plain<IsIntegerTest>},
      {"float", Plain<IsFloatTest>},
      {"number", Plain<IsNumberTest>},
      {"string", Plain<IsStringTest>},
      {"mapping", Plain<IsMapping>},
      {"iterable", Plain<IsIterableTest>},
      {"sequence", Plain<IsSequence>},
      {"callable", Plain<IsCallable>},
      {"escaped", Plain<IsEscaped>},
      {"lower", IsLower},
      {"upper", IsUpper},
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisible},
      {"sameas", IsSameAs},
      {"filter", IsKnown<FindFilter>},
      {"test", IsKnown<FindTest>},
      {"in", Compares<CompareOp::kIn>},
      {"==", Compares<CompareOp::kEqual>},
      {"eq", Compares<CompareOp::kEqual>},
      {"equalto", Compares<CompareOp::kEqual>},
      {"!=", Compares<CompareOp::kNotEqual>},
      {"ne", Compares<CompareOp::kNotEqual>},
      {">", Compares<CompareOp::kGreater>},
      {"gt", Compares<CompareOp::kGreater>},
      {"greaterthan", Compares<CompareOp::kGreater>},
      {">=", Compares<CompareOp::kGreaterEqual>},
      {"ge", Compares<CompareOp::kGreaterEqual>},
      {"<", Compares<CompareOp::kLess>},
      {"lt", Compares<CompareOp::kLess>},
      {"lessthan", Compares<CompareOp::kLess>},
      {"<=", Compares<CompareOp::kLessEqual>},
      {"le", Compares<CompareOp::kLessEqual>},
  };
  return tests;
}

}  // namespace

Operation FindTest(std::string_view name) {
  const auto found = Tests().find(name);
  return found == Tests().end() ? nullptr : found->second;
}

}  // namespace tally::jinja
