// SPDX-License-Identifier: Apache-2.0
// A set of the values of an enumeration that has at most eight.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace tally {

template <class Enum>
class EnumSet {
 public:
  constexpr EnumSet() = default;
  constexpr EnumSet(Enum one) : bits_(Bit(one)) {}  // NOLINT(google-explicit-constructor): a set of one, on purpose
  constexpr EnumSet(std::initializer_list<Enum> some) {
    for (const Enum e : some) bits_ |= Bit(e);
  }
  constexpr bool has(Enum e) const { return (bits_ & Bit(e)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int size() const {
    int n = 0;
    for (uint8_t left = bits_; left != 0; left = static_cast<uint8_t>(left & (left - 1))) ++n;
    return n;
  }
  constexpr bool operator==(const EnumSet&) const = default;

 private:
  static constexpr uint8_t Bit(Enum e) { return static_cast<uint8_t>(1u << static_cast<unsigned>(e)); }
  uint8_t bits_ = 0;
};

}  // namespace tally
