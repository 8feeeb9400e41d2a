// SPDX-License-Identifier: Apache-2.0
// Rows of q, k and v in tensors that hold all three (RoleName::rows).
#pragma once

#include "engine/recipe/model_spec.h"
#include "models/binding.h"

namespace tally {

namespace internal {

struct QkvWidths {
  uint64_t d, queries, q, kv;  // of a head, of the queries of a key-value head, of all queries, of all keys

  explicit QkvWidths(const Recipe& r)
      : d(static_cast<uint64_t>(r.all.attention.head_dim)),
        queries(static_cast<uint64_t>(r.all.attention.n_heads / r.all.attention.n_kv_heads) * d),
        q(static_cast<uint64_t>(r.all.attention.n_heads) * d),
        kv(static_cast<uint64_t>(r.all.attention.n_kv_heads) * d) {}
};

}  // namespace internal

// All of q, then k, then v.
inline RowMap QInTurn(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {0, w.q, w.q};
}
inline RowMap KInTurn(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {w.q, w.kv, w.kv};
}
inline RowMap VInTurn(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {w.q + w.kv, w.kv, w.kv};
}

// GGUF files with the three as one tensor, all of q, then k, then v.
inline constexpr RoleName kGgufFusedQkv[] = {
    {Role::kQ, "blk.#.attn_qkv.weight", Storage::kPlain, QInTurn},
    {Role::kQBias, "blk.#.attn_qkv.bias", Storage::kPlain, QInTurn},
    {Role::kK, "blk.#.attn_qkv.weight", Storage::kPlain, KInTurn},
    {Role::kKBias, "blk.#.attn_qkv.bias", Storage::kPlain, KInTurn},
    {Role::kV, "blk.#.attn_qkv.weight", Storage::kPlain, VInTurn},
    {Role::kVBias, "blk.#.attn_qkv.bias", Storage::kPlain, VInTurn},
};

// For each key-value head its queries, its key and its value: rows [key-value heads, n_heads / n_kv_heads + 2, head_dim].
inline RowMap QOfGroups(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {0, w.queries, w.queries + 2 * w.d};
}
inline RowMap KOfGroups(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {w.queries, w.d, w.queries + 2 * w.d};
}
inline RowMap VOfGroups(const Recipe& r) {
  const internal::QkvWidths w(r);
  return {w.queries + w.d, w.d, w.queries + 2 * w.d};
}

}  // namespace tally
