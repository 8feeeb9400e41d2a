// How keys and values lie in memory: the layout of one layer's blocks, as a value.
//
// A block holds kKvBlock absolute positions of every KV head of one layer. It is a row of equal shares, one a KV head; what is in
// a share is the format's own (one struct a format, see kv_formats-inl.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/base/kinds.h"

namespace tally {

inline constexpr int64_t kKvBlock = 128;  // positions of a block

struct KvLayout {
  KvType type = KvType::kF32;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;      // elements of a head's key
  int64_t v_dim = k_dim;  // elements of a head's value

  size_t HeadBytes() const;  // of one head's share of a block, padding included
  size_t BlockBytes() const { return static_cast<size_t>(kv_heads) * HeadBytes(); }
  // Useful bytes of one position in one head: what is stored of a key and of a value, scales included, padding left out. A format
  // that reads values from the bytes of the keys has no ValueBytes.
  size_t KeyBytes() const;
  size_t ValueBytes() const;
  size_t PositionBytes() const { return static_cast<size_t>(kv_heads) * (KeyBytes() + ValueBytes()); }
  size_t PaddedValueBytes() const;  // as ValueBytes, padding included

  // Element d of the key or value of a position (`lane` of its block, 0 to kKvBlock - 1) in a head.
  float Key(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const;
  float Value(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const;
  // Stores the key [k_dim] and value [v_dim] of a position in a head.
  void Store(uint8_t* block, int64_t head, int64_t lane, const float* k, const float* v) const;

  bool operator==(const KvLayout&) const = default;
};

// Elements of a key or value with its padding, in formats that pad to whole groups of 16.
constexpr int64_t KvPadded(int64_t dim) { return (dim + 15) / 16 * 16; }

}  // namespace tally
