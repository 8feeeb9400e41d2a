// The interface of a KV format to the Highway kernels: a specialisation of KvVectors.
#if defined(TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#endif

#include "hwy/highway.h"

namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using KvFloats = hn::CappedTag<float, 16>;
using KvVec = hn::Vec<KvFloats>;
constexpr KvFloats kKvFloats;
constexpr int kKvLanes = static_cast<int>(hn::MaxLanes(KvFloats()));

// Members. They take a head's share and the first position `lane` (keys: a multiple of 16).
//   Stored                  type of a stored element
//   kDirect                 true: register tiles read stored elements by an overload of Widen(const Stored*), keys as groups
//                           [Kp][16], values as rows [Vp]; false: every chunk is widened first
//   kWidens                 true: widening a chunk first is faster if several tiles use it
//   Keys, Values            address of the first element; positions are Kp or Vp elements apart (q8_0: about, for prefetching)
//   WidenKeys, WidenValues  a chunk as f32: groups [Kp][16], rows [Vp]
//   Store                   as in the format's scalar struct
template <class Format>
struct KvVectors;

}  // namespace HWY_NAMESPACE
}  // namespace tally

#endif  // TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
