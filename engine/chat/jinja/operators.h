// SPDX-License-Identifier: Apache-2.0
// What Python's operators do with values. Every error says why, without the line; an undefined operand fails with its reason.
#pragma once

#include <compare>
#include <optional>
#include <string_view>

#include "engine/base/status.h"
#include "engine/chat/jinja/value.h"

namespace tally::jinja {

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

bool IsTrue(const Value& value);

Result<Value> Arithmetic(Budget* budget, BinaryOp op, const Value& a, const Value& b);
Result<Value> Negated(const Value& value);
Result<bool> Equal(Budget* budget, const Value& a, const Value& b);
// Less than zero, zero or more, as a is less than b, equal or greater; an error where Python does not order them.
Result<int> Order(Budget* budget, const Value& a, const Value& b);
Result<bool> Compare(Budget* budget, CompareOp op, const Value& a, const Value& b);
Result<bool> Contains(Budget* budget, const Value& container, const Value& item);

// What a `for` walks over: items, keys, characters. An iterator is used up by it.
Result<Values> Iterate(Budget* budget, const Value& value);
bool IsIterable(const Value& value);
Result<int64_t> Length(Budget* budget, const Value& value);

// value.name: a method or attribute, else an item; undefined where there is neither.
Result<Value> GetAttribute(Budget* budget, const Value& value, std::string_view name);
// The same without items.
Result<Value> GetOwnAttribute(Budget* budget, const Value& value, std::string_view name);
// value[index]: an item, else, for a string, an attribute.
Result<Value> GetItem(Budget* budget, const Value& value, const Value& index);
// value[start:stop:step], of which none need be given.
Result<Value> GetSlice(Budget* budget, const Value& value, const Value& start, const Value& stop, const Value& step);

// 64-bit results, or an error.
Result<Value> IntegerPower(int64_t base, int64_t exponent);

}  // namespace tally::jinja
