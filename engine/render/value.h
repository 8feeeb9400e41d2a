// SPDX-License-Identifier: Apache-2.0
// A value of a report: what its documents are made of. JSON and CSV write it (json.h).
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/export.h"

namespace tally {

// Nothing, a truth, a number, a text, a list, or an object, whose members keep the order in which they were written.
class TALLY_API Value {
 public:
  using List = std::vector<Value>;
  using Members = std::vector<std::pair<std::string, Value>>;

  Value(std::nullptr_t = nullptr) {}  // NOLINT(google-explicit-constructor): documents are written as nested braces
  template <class T>
  requires std::is_arithmetic_v<T> Value(T x) {  // NOLINT(google-explicit-constructor)
    if constexpr (std::is_same_v<T, bool>) {
      value_ = x;
    } else if constexpr (std::is_floating_point_v<T>) {
      value_ = double{x};
    } else if constexpr (std::is_signed_v<T>) {
      value_ = int64_t{x};
    } else {
      value_ = uint64_t{x};
    }
  }
  Value(const char* text) : value_(std::string(text)) {}       // NOLINT(google-explicit-constructor)
  Value(std::string_view text) : value_(std::string(text)) {}  // NOLINT(google-explicit-constructor)
  Value(std::string text) : value_(std::move(text)) {}         // NOLINT(google-explicit-constructor)
  template <class T>
  Value(const std::optional<T>& x) : Value(x ? Value(*x) : Value()) {}  // NOLINT(google-explicit-constructor)
  template <std::ranges::input_range R>
  requires(!std::convertible_to<R, std::string_view>) Value(const R& items)  // NOLINT(google-explicit-constructor)
      : value_(List(std::ranges::begin(items), std::ranges::end(items))) {}
  // An object where each item is a pair that begins with a text, else a list.
  Value(std::initializer_list<Value> items);  // NOLINT(google-explicit-constructor)

  static Value Array(std::initializer_list<Value> items = {}) { return FromList(items); }
  static Value Object();
  // A list of what `make` makes of each item.
  template <class R, class Make>
  static Value ListOf(const R& items, const Make& make) {
    List list;
    for (const auto& item : items) list.emplace_back(make(item));
    return FromList(std::move(list));
  }

  bool IsNull() const { return std::holds_alternative<std::nullptr_t>(value_); }
  bool IsNumber() const;
  bool IsText() const { return std::holds_alternative<std::string>(value_); }
  const std::string& Text() const { return std::get<std::string>(value_); }
  double Number() const;  // of a number; else 0
  bool IsStructured() const { return std::holds_alternative<List>(value_) || std::holds_alternative<Members>(value_); }
  // Of an object.
  const Members& members() const { return std::get<Members>(value_); }
  const Value* Find(std::string_view key) const;        // null: there is none
  const Value& operator[](std::string_view key) const;  // nothing where there is none
  Value& operator[](std::string_view key);              // makes an object of nothing
  void Update(const Value& object);                     // its members become this one's
  // Of a list.
  const List& items() const { return std::get<List>(value_); }
  const Value& operator[](size_t i) const { return items()[i]; }
  Value& operator[](size_t i) { return std::get<List>(value_)[i]; }
  Value& Add(Value item);  // makes a list of nothing; the item in it

  const auto& variant() const { return value_; }

 private:
  static Value FromList(List items) {
    Value value;
    value.value_ = std::move(items);
    return value;
  }
  std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string, List, Members> value_ = nullptr;
};

}  // namespace tally
