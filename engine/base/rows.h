// SPDX-License-Identifier: Apache-2.0
// What a row of a sequence can be besides a token at the next position that sees the past.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tally {

// What rotary embedding turns heads by; `t` also chooses learned positions and temperatures. M-RoPE (Qwen2-VL, Wang et al. 2024) turns
// some frequencies by time, some by height and some by width. -1: not given; height and width are then the time.
struct RowPosition {
  int32_t t = -1, h = -1, w = -1;
  bool given() const { return t != -1 || h != -1 || w != -1; }
  RowPosition Whole() const { return {t, h == -1 ? t : h, w == -1 ? t : w}; }
  int32_t Largest() const { return t > h ? (t > w ? t : w) : (h > w ? h : w); }
  bool operator==(const RowPosition&) const = default;
};

// Rows of a sequence, by their order in it: [begin, end). Empty: none.
struct RowSpan {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
  bool operator==(const RowSpan&) const = default;
};

// What a layer's attention shows a row of a span whose rows see one another: all of them, whatever the layer's window is (Gemma 3); those
// that the window does not hide, and all later ones (Gemma 4); the past alone.
enum class BothWays : uint8_t { kWhole, kWithinWindow, kNot };
inline constexpr std::array<std::string_view, 3> kBothWaysNames = {"whole", "within window", "not"};

// What an embedding is found by: a hash of what it was made from (a picture and how it was prepared), and its row among those of one hash.
// A hash of 0: none, so that the row is never found.
struct RowIdentity {
  uint64_t high = 0, low = 0;
  int32_t row = 0;
  bool known() const { return high != 0 || low != 0; }
  bool operator==(const RowIdentity&) const = default;
};

// A row of a prefix that is no token, or has a position of its own, or sees other rows than the past (Sequences::NewSequenceFor).
struct PrefixRow {
  int64_t index = 0;       // its place in the sequence
  bool embedding = false;  // its embedding was given; it also has a token
  RowIdentity identity = {};
  RowPosition position = {};
  RowSpan both_ways = {};
  bool operator==(const PrefixRow&) const = default;
};

}  // namespace tally
