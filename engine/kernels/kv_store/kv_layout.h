// SPDX-License-Identifier: Apache-2.0
// The memory layout of one layer's KV blocks.
//
// A block holds kKvBlock absolute positions of every KV head of one layer. It consists of equal shares, one for each KV head. The
// format (kv_formats-inl.h) defines the layout of a share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "counters/cost/cost.h"
#include "engine/base/kinds.h"

namespace tally {

inline constexpr int64_t kKvBlock = 128;  // positions of a block

struct KvLayout {
  KvType type = KvType::kF32;
  int64_t kv_heads = 0;
  int64_t k_dim = 0;      // elements of a head's key
  int64_t v_dim = k_dim;  // elements of a head's value
  bool shared = false;    // a value is the first v_dim elements of its key (latent attention)

  // The type of attention's products with keys and with values (attention.h).
  Arith KeyArith() const { return type == KvType::kQ8_0 ? Arith::kInt8 : type == KvType::kBF16 ? Arith::kBF16 : Arith::kF32; }
  Arith ValueArith() const { return type == KvType::kQ8_0 || type == KvType::kBF16 ? Arith::kBF16 : Arith::kF32; }

  size_t HeadBytes() const;  // one head's share of a block, padding included
  size_t BlockBytes() const { return static_cast<size_t>(kv_heads) * HeadBytes(); }
  // Stored bytes of one key (value) in one head, scales included, padding excluded. A shared value has none of its own.
  size_t KeyBytes() const;
  size_t ValueBytes() const;
  size_t PositionBytes() const { return static_cast<size_t>(kv_heads) * (KeyBytes() + ValueBytes()); }
  size_t PaddedValueBytes() const;  // ValueBytes with padding

  // Element d of a head's key or value at position `lane` of the block (0 to kKvBlock - 1).
  float Key(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const;
  float Value(const uint8_t* block, int64_t head, int64_t lane, int64_t d) const;
  // Stores a head's key [k_dim] and value [v_dim] at position `lane`.
  void Store(uint8_t* block, int64_t head, int64_t lane, const float* k, const float* v) const;

  bool operator==(const KvLayout&) const = default;
};

// Elements of a key or value, padded to a multiple of 16.
constexpr int64_t KvPadded(int64_t dim) { return (dim + 15) / 16 * 16; }

}  // namespace tally
