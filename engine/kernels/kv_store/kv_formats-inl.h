// SPDX-License-Identifier: Apache-2.0
// The list of KV formats: one include and one case for each.
//
// A format is a header like kv_plain-inl.h: a scalar struct (sizes, Key, Value, Store) for the reference and KvLayout, and a
// KvVectors of it (kv_vectors-inl.h) for the Highway kernels.
#include "engine/kernels/kv_store/kv_bf16-inl.h"
#include "engine/kernels/kv_store/kv_plain-inl.h"
#include "engine/kernels/kv_store/kv_q8_0-inl.h"
#include "engine/kernels/kv_store/kv_shared-inl.h"

#ifndef TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
#define TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
namespace tally {

// Calls f with an object of the layout's scalar struct.
template <class F>
decltype(auto) WithKvFormat(const KvLayout& layout, F&& f) {
  switch (layout.type) {
    case KvType::kF32: return layout.shared ? f(KvSharedF32()) : f(KvF32());
    case KvType::kF16: return layout.shared ? f(KvSharedF16()) : f(KvF16());
    case KvType::kBF16: return layout.shared ? f(KvSharedBF16()) : f(KvBF16());
    case KvType::kQ8_0: return layout.shared ? f(KvSharedQ8_0()) : f(KvQ8_0());
  }
  __builtin_unreachable();
}

}  // namespace tally
#endif  // TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
