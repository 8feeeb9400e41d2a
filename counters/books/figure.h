// SPDX-License-Identifier: Apache-2.0
// A figure that may be incomplete. It carries the names of what it lacks. An incomplete figure has no number, so that it cannot be
// printed, added, divided or compared by mistake.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tally::books {

// Names of what a figure lacks: "norms", "index scores". Empty: it is whole.
using Lacks = std::vector<std::string>;

// The names of both, each once.
inline Lacks Join(Lacks a, const Lacks& b) {
  for (const std::string& name : b) {
    bool there = false;
    for (const std::string& known : a) there = there || known == name;
    if (!there) a.push_back(name);
  }
  return a;
}

template <class T>
class Figure {
 public:
  Figure() = default;
  Figure(T whole) : value_(std::move(whole)) {}  // NOLINT(google-explicit-constructor): what lacks nothing is its number
  Figure(T counted, Lacks lacks) : value_(std::move(counted)), lacks_(std::move(lacks)) {}

  bool whole() const { return lacks_.empty(); }
  const Lacks& lacks() const { return lacks_; }
  // nullopt: the figure is incomplete.
  std::optional<T> number() const { return whole() ? std::optional<T>(value_) : std::nullopt; }

  // get(number), which lacks the same.
  template <class Get>
  auto Map(const Get& get) const -> Figure<decltype(get(std::declval<const T&>()))> {
    return {get(value_), lacks_};
  }

  // get(number, number of `other`), which lacks what either lacks.
  template <class U, class Get>
  auto With(const Figure<U>& other, const Get& get) const
      -> Figure<decltype(get(std::declval<const T&>(), std::declval<const U&>()))> {
    return {get(value_, other.value_), Join(lacks_, other.lacks_)};
  }

  // An incomplete figure equals no figure, not even itself.
  friend bool operator==(const Figure& a, const Figure& b) { return a.whole() && b.whole() && a.value_ == b.value_; }

 private:
  template <class>
  friend class Figure;
  T value_ = {};
  Lacks lacks_ = {};
};

}  // namespace tally::books
