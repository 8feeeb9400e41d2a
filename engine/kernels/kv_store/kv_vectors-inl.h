// What a KV format gives the Highway kernels: a specialisation of KvVectors, beside the format's scalar struct.
#if defined(TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#undef TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#else
#define TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using KvFloats = hn::CappedTag<float, 16>;
using KvVec = hn::Vec<KvFloats>;
constexpr KvFloats kKvFloats;
constexpr int kKvLanes = static_cast<int>(hn::MaxLanes(KvFloats()));

// Members; of a head's share, for positions from `lane` on (of keys a multiple of 16):
//   Stored                 type of a stored element
//   kDirect                register tiles may read it where it lies, by an overload of Widen(const Stored*): keys as groups
//                          [Kp][16], values as rows [Vp]; else every chunk is widened before tiles use it
//   kWidens                widening a chunk pays off where several tiles use it
//   Keys, Values           address of the first element, also for prefetching; Kp or Vp elements from position to position
//   WidenKeys, WidenValues  a chunk as f32: groups [Kp][16], rows [Vp]
//   Store                  as in the format's scalar struct
template <class Format>
struct KvVectors;

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // TALLY_KERNELS_KV_STORE_KV_VECTORS_INL_H
