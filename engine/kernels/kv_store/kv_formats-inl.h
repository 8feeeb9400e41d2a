// The list of KV formats: one include and one case for each.
//
// A format is a header like kv_plain-inl.h: a scalar struct (sizes, Key, Value, Store) for the reference and KvLayout, and a
// KvVectors of it (kv_vectors-inl.h) for the Highway kernels.
#include "engine/kernels/kv_store/kv_plain-inl.h"

#ifndef TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
#define TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
namespace tally {

// Calls f with an object of the type's scalar struct.
template <class F>
decltype(auto) WithKvFormat(KvType type, F&& f) {
  switch (type) {
    case KvType::kF32: return f(KvF32());
    case KvType::kF16: return f(KvF16());
  }
  __builtin_unreachable();
}

}  // namespace tally
#endif  // TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
