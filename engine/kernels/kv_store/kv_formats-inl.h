// The list of KV formats: one include and one case a format. Nothing else in the engine names one.
//
// A format is one header like kv_plain-inl.h: a scalar struct (sizes, Key, Value, Store), used by the reference and by KvLayout,
// and a KvVectors of it (kv_vectors-inl.h), used by the Highway kernels.
//
// q8_0 would keep bytes [Kp][16] and [Vp] with f32 scales [C] of keys and of values behind them in each head's share; kDirect is
// false, WidenKeys and WidenValues multiply by the scales, and Store finds them. A latent layout would have one KV head with
// k_dim = R_kv + D_r and v_dim = R_kv, and keys only (ValueBytes 0); Value and WidenValues read the first R_kv elements of the
// keys, and Store leaves its v aside.
#include "engine/kernels/kv_store/kv_plain-inl.h"

#ifndef TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
#define TALLY_KERNELS_KV_STORE_KV_FORMATS_INL_H
namespace tally {

// Calls f with an object of the format's scalar struct.
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
