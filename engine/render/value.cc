// SPDX-License-Identifier: Apache-2.0
#include "engine/render/value.h"

#include <algorithm>

namespace tally {

Value::Value(std::initializer_list<Value> items) {
  const bool object = std::ranges::all_of(items, [](const Value& item) {
    const List* const pair = std::get_if<List>(&item.value_);
    return pair != nullptr && pair->size() == 2 && pair->front().IsText();
  });
  if (!object) {
    value_ = List(items);
    return;
  }
  Members members;
  for (const Value& item : items) members.emplace_back(item.items()[0].Text(), item.items()[1]);
  value_ = std::move(members);
}

Value Value::Object() {
  Value value;
  value.value_ = Members();
  return value;
}

bool Value::IsNumber() const {
  return std::holds_alternative<int64_t>(value_) || std::holds_alternative<uint64_t>(value_) ||
         std::holds_alternative<double>(value_);
}

double Value::Number() const {
  return std::visit(
      [](const auto& x) -> double {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(x)>>) {
          return static_cast<double>(x);
        } else {
          return 0;
        }
      },
      value_);
}

const Value* Value::Find(std::string_view key) const {
  const Members* const all = std::get_if<Members>(&value_);
  if (all == nullptr) return nullptr;
  const auto at = std::ranges::find(*all, key, &Members::value_type::first);
  return at != all->end() ? &at->second : nullptr;
}

const Value& Value::operator[](std::string_view key) const {
  static const Value nothing;
  const Value* const found = Find(key);
  return found != nullptr ? *found : nothing;
}

Value& Value::operator[](std::string_view key) {
  if (!std::holds_alternative<Members>(value_)) value_ = Members();
  if (const Value* const found = Find(key)) return const_cast<Value&>(*found);
  return std::get<Members>(value_).emplace_back(key, Value()).second;
}

void Value::Update(const Value& object) {
  for (const auto& [key, value] : object.members()) (*this)[key] = value;
}

Value& Value::Add(Value item) {
  if (!std::holds_alternative<List>(value_)) value_ = List();
  return std::get<List>(value_).emplace_back(std::move(item));
}

}  // namespace tally
