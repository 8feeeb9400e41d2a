// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>

#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/str_operations.h"
#include "engine/text/utf8.h"

namespace tally::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

Status TypeError(BinaryOp op, const Value& a, const Value& b) {
  for (const Value* side : {&a, &b}) {
    if (side->IsUndefined()) return BadInput(side->reason());
  }
  const bool joins = op == BinaryOp::kAdd && (a.IsString() || a.IsList() || a.IsTuple());
  if (joins) {
    return BadInput("can only concatenate " + a.TypeName() + " (not \"" + b.TypeName() + "\") to " + a.TypeName());
  }
  return BadInput("unsupported operand type(s) for " + std::string(kSymbols[static_cast<size_t>(op)]) + ": '" + a.TypeName() +
                  "' and '" + b.TypeName() + "'");
}

Status Overflow() { return BadInput("an integer beyond 64 bits"); }

Result<Value> Integers(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd: return __builtin_add_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
    case BinaryOp::kSubtract: return __builtin_sub_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
    case BinaryOp::kMultiply: return __builtin_mul_overflow(a, b, &result) ? Result<Value>(Overflow()) : Value(result);
    case BinaryOp::kPower: return IntegerPower(a, b);
    default: break;
  }
  if (b == 0) return BadInput("division by zero");
  if (op == BinaryOp::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (a == INT64_MIN && b == -1) return op == BinaryOp::kModulo ? Result<Value>(Value(int64_t{0})) : Overflow();
  const bool lower = a % b != 0 && (a < 0) != (b < 0);  // Python rounds down
  return Value(op == BinaryOp::kModulo ? a % b + (lower ? b : 0) : a / b - (lower ? 1 : 0));
}

Result<Value> Floats(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd: return Value(a + b);
    case BinaryOp::kSubtract: return Value(a - b);
    case BinaryOp::kMultiply: return Value(a * b);
    case BinaryOp::kPower:
      if (a == 0 && b < 0) return BadInput("zero cannot be raised to a negative power");
      if (a < 0 && std::isfinite(b) && std::trunc(b) != b) return BadInput("complex numbers are not supported");
      if (std::isfinite(a) && std::isfinite(b) && std::isinf(std::pow(a, b))) return BadInput("a float out of range");
      return Value(std::pow(a, b));
    default: break;
  }
  if (b == 0) return BadInput("division by zero");
  if (op == BinaryOp::kDivide) return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == BinaryOp::kModulo) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  const double below = std::floor(quotient);
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : quotient - below > 0.5 ? below + 1 : below);
}

Result<Value> Repeat(Budget* budget, const Value& value, int64_t times) {
  const uint64_t n = times < 0 ? 0 : static_cast<uint64_t>(times);
  if (value.IsString()) {
    const Text& text = value.text();
    if (text.size() > 0 && n > budget->limits().text_bytes / text.size()) return budget->Make(budget->limits().text_bytes + 1);
    TALLY_RETURN_IF_ERROR(budget->Make(text.size() * n));
    TALLY_RETURN_IF_ERROR(budget->Step(n / 8));
    Text out;
    out.set_markup(text.markup());
    for (uint64_t i = 0; i < n && !text.empty(); ++i) out.Append(text);
    return Value(std::move(out));
  }
  const Values& items = value.sequence()->items;
  if (items.size() > 0 && n > static_cast<uint64_t>(kMaxRange) / items.size())
    return BadInput("a list that is repeated too often");
  Values out;
  for (uint64_t i = 0; i < n && !items.empty(); ++i) out.insert(out.end(), items.begin(), items.end());
  return MakeSequence(budget, value.sequence()->kind, std::move(out));
}

// What is no markup is escaped.
Result<Value> AddMarkup(Budget* budget, const Text& a, const Text& b) {
  Text out;
  out.set_markup(true);
  for (const Text* part : {&a, &b}) {
    if (part->markup()) {
      out.Append(*part);
    } else {
      TALLY_ASSIGN_OR_RETURN(const Text escaped, Escaped(budget, *part));
      out.Append(escaped);
    }
  }
  TALLY_RETURN_IF_ERROR(budget->Fits(out.size()));
  return Value(std::move(out));
}

Result<Value> Add(Budget* budget, const Value& a, const Value& b) {
  if (a.IsString() && b.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Make(a.text().size() + b.text().size()));
    if (a.text().markup() || b.text().markup()) return AddMarkup(budget, a.text(), b.text());
    Text out = a.text();
    out.Append(b.text());
    return Value(std::move(out));
  }
  if ((a.IsList() && b.IsList()) || (a.IsTuple() && b.IsTuple())) {
    TALLY_RETURN_IF_ERROR(budget->MakeItems(a.sequence()->items.size() + b.sequence()->items.size()));
    Values items = a.sequence()->items;
    items.insert(items.end(), b.sequence()->items.begin(), b.sequence()->items.end());
    return MakeSequence(budget, a.IsList() ? Sequence::Kind::kList : Sequence::Kind::kTuple, std::move(items));
  }
  return TypeError(BinaryOp::kAdd, a, b);
}

bool Repeatable(const Value& value) { return value.IsString() || value.IsList() || value.IsTuple(); }

template <class T>
int ThreeWay(const T& a, const T& b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

// Python compares an int with a float exactly.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return ThreeWay(a.integer(), b.integer());
  return ThreeWay(a.number(), b.number());
}

Result<bool> EqualItems(Budget* budget, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(budget, a[i], b[i]));
    if (!equal) return false;
  }
  return true;
}

Result<bool> EqualDicts(Budget* budget, const Dict& a, const Dict& b) {
  if (a.items().size() != b.items().size()) return false;
  for (const auto& [key, value] : a.items()) {
    TALLY_ASSIGN_OR_RETURN(const std::string hash, HashKey(budget, key));
    const Value* other = b.Find(hash);
    if (other == nullptr) return false;
    TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(budget, value, *other));
    if (!equal) return false;
  }
  return true;
}

}  // namespace

bool IsTrue(const Value& value) {
  if (value.IsUndefined() || value.IsNone()) return false;
  if (value.IsNumber()) return value.number() != 0;
  if (value.IsString()) return !value.text().empty();
  if (value.dict() != nullptr) return !value.dict()->items().empty();
  if (const Sequence* sequence = value.sequence()) return !sequence->HasLength() || !sequence->items.empty();
  return true;
}

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return Floats(BinaryOp::kPower, static_cast<double>(base), static_cast<double>(exponent));
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  int64_t result = 1;
  for (; exponent > 0; --exponent) {  // 63 times at most
    if (__builtin_mul_overflow(result, base, &result)) return Overflow();
  }
  return Value(result);
}

Result<Value> Arithmetic(Budget* budget, BinaryOp op, const Value& a, const Value& b) {
  if (a.IsInteger() && b.IsInteger()) return Integers(op, a.integer(), b.integer());
  if (a.IsNumber() && b.IsNumber()) return Floats(op, a.number(), b.number());
  if (op == BinaryOp::kAdd) return Add(budget, a, b);
  if (op == BinaryOp::kModulo && a.IsString()) return PercentFormat(budget, a.text(), b);
  if (op == BinaryOp::kMultiply && Repeatable(a) && b.IsInteger()) return Repeat(budget, a, b.integer());
  if (op == BinaryOp::kMultiply && a.IsInteger() && Repeatable(b)) return Repeat(budget, b, a.integer());
  return TypeError(op, a, b);
}

Result<Value> Negated(const Value& value) {
  if (value.IsUndefined()) return BadInput(value.reason());
  if (value.IsInteger()) return Integers(BinaryOp::kSubtract, 0, value.integer());
  if (value.IsFloat()) return Value(-value.number());
  return BadInput("bad operand type for unary -: '" + value.TypeName() + "'");
}

Result<bool> Equal(Budget* budget, const Value& a, const Value& b) {
  TALLY_RETURN_IF_ERROR(budget->Step());
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0 && !std::isnan(a.number()) && !std::isnan(b.number());
  if (a.IsString() && b.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Read(std::min(a.text().size(), b.text().size())));
    return a.text().bytes() == b.text().bytes();
  }
  if (a.IsUndefined() || b.IsUndefined()) return a.IsUndefined() && b.IsUndefined();
  if (a.IsSame(b)) return true;
  const bool both_lists = a.IsList() && b.IsList();
  if (both_lists || (a.IsTuple() && b.IsTuple())) return EqualItems(budget, a.sequence()->items, b.sequence()->items);
  if (a.dict() != nullptr && b.dict() != nullptr) return EqualDicts(budget, *a.dict(), *b.dict());
  if (a.sequence() != nullptr && b.sequence() != nullptr && a.sequence()->kind == b.sequence()->kind &&
      a.sequence()->kind == Sequence::Kind::kRange) {
    return EqualItems(budget, a.sequence()->items, b.sequence()->items);
  }
  return false;
}

Result<int> Order(Budget* budget, const Value& a, const Value& b) {
  TALLY_RETURN_IF_ERROR(budget->Step());
  for (const Value* side : {&a, &b}) {
    if (side->IsUndefined()) return BadInput(side->reason());
  }
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b);
  if (a.IsString() && b.IsString()) {
    TALLY_RETURN_IF_ERROR(budget->Read(std::min(a.text().size(), b.text().size())));
    return a.text().bytes().compare(b.text().bytes());
  }
  if (!(a.IsList() && b.IsList()) && !(a.IsTuple() && b.IsTuple())) {
    return BadInput("'<' not supported between instances of '" + a.TypeName() + "' and '" + b.TypeName() + "'");
  }
  const Values& left = a.sequence()->items;
  const Values& right = b.sequence()->items;
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(budget, left[i], right[i]));
    if (!equal) return Order(budget, left[i], right[i]);
  }
  return ThreeWay(left.size(), right.size());
}

Result<bool> Compare(Budget* budget, CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEqual: return Equal(budget, a, b);
    case CompareOp::kIn: return Contains(budget, b, a);
    case CompareOp::kNotEqual:
    case CompareOp::kNotIn: {
      TALLY_ASSIGN_OR_RETURN(const bool holds, op == CompareOp::kNotEqual ? Equal(budget, a, b) : Contains(budget, b, a));
      return !holds;
    }
    default: break;
  }
  TALLY_ASSIGN_OR_RETURN(const int order, Order(budget, a, b));
  if ((a.IsFloat() && std::isnan(a.number())) || (b.IsFloat() && std::isnan(b.number()))) return false;
  switch (op) {
    case CompareOp::kLess: return order < 0;
    case CompareOp::kLessEqual: return order <= 0;
    case CompareOp::kGreater: return order > 0;
    default: return order >= 0;
  }
}

Result<bool> Contains(Budget* budget, const Value& container, const Value& item) {
  if (container.IsString()) {
    if (item.IsUndefined()) return BadInput("'in <string>' requires string as left operand, not Undefined");
    if (!item.IsString()) return BadInput("'in <string>' requires string as left operand, not " + item.TypeName());
    TALLY_RETURN_IF_ERROR(budget->Read(container.text().size() + item.text().size()));
    return FindText(container.text().bytes(), item.text().bytes(), 0) != std::string::npos;
  }
  if (container.dict() != nullptr) {
    TALLY_ASSIGN_OR_RETURN(const std::string key, HashKey(budget, item));
    return container.dict()->Find(key) != nullptr;
  }
  if (!IsIterable(container)) return BadInput("argument of type '" + container.TypeName() + "' is not iterable");
  const Sequence* sequence = container.sequence();
  if (sequence != nullptr && sequence->HasLength()) {
    for (const Value& each : sequence->items) {
      TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(budget, each, item));
      if (equal) return true;
    }
    return false;
  }
  if (sequence != nullptr) {  // an iterator is walked until the item is found
    while (sequence->taken < sequence->items.size()) {
      TALLY_ASSIGN_OR_RETURN(const bool equal, Equal(budget, sequence->items[sequence->taken++], item));
      if (equal) return true;
    }
  }
  return false;
}

}  // namespace tally::jinja
