// Rows of a table, widened 32 columns (a quantised block) at a time. A block starts with its scale, in a panel with
// those of all rows. A panel holds what follows as 32-bit words at a stride of 64 bytes: put together they are the
// bytes of a stored row, but for Q8_0's offset of 128.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/embed/embed_hwy.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

// after foreach_target.h, which decides the first target
#include "engine/base/float16.h"
#include "engine/base/quant_blocks.h"
#include "engine/kernels/lanes-inl.h"
#include "engine/kernels/math-inl.h"
#include "engine/kernels/embed/embed.h"

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 32>;
using V = hn::Vec<D>;

// What becomes of a widened row: see EmbedOp.
struct Finish {
  bool add;
  float scale;
};

template <class Tail>
HWY_INLINE void Put(Tail tail, V v, const Finish& finish, float* out, size_t count) {
  const D d;
  if (finish.scale != 1) v = hn::Mul(v, hn::Set(d, finish.scale));
  if (finish.add) v = hn::Add(LoadLanes(tail, d, out, count), v);
  StoreLanes(tail, v, d, out, count);
}

// `n` columns of F32, F16 or BF16.
template <DType kType>
HWY_INLINE void WidenFloats(const uint8_t* bytes, int64_t n, const Finish& finish, float* out) {
  const D d;
  ForLanes(d, n, [&](auto tail, int64_t i, size_t count) HWY_ATTR {
    if constexpr (kType == DType::kF32) {
      Put(tail, LoadLanes(tail, d, reinterpret_cast<const float*>(bytes) + i, count), finish, out + i, count);
    } else {
      const hn::RebindToUnsigned<D> du;
      const hn::Rebind<uint16_t, D> d16;
      const auto bits = LoadLanes(tail, d16, reinterpret_cast<const uint16_t*>(bytes) + i, count);
      if constexpr (kType == DType::kF16) {
        Put(tail, WidenF16(d, bits), finish, out + i, count);
      } else {
        Put(tail, hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, bits))), finish, out + i, count);
      }
    }
  });
}

inline constexpr int8_t kQ4_0Values[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};

// A block of 32 columns: the integers (MXFP4: halved) times the scale, one rounding.
template <DType kType>
HWY_INLINE void WidenBlock(const uint8_t* scale, const uint8_t* bytes, bool panel, const Finish& finish, float* out) {
  const hn::FixedTag<uint8_t, 16> d8;
  HWY_ALIGN uint8_t quants[32];
  if constexpr (kType == DType::kQ8_0) {
    const auto offset = hn::Set(d8, panel ? 0x80 : 0);
    for (int i : {0, 16}) hn::Store(hn::Xor(hn::LoadU(d8, bytes + i), offset), d8, quants + i);
  } else {
    const int8_t* values = kType == DType::kQ4_0 ? kQ4_0Values : kE2M1Doubled;
    const auto table = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(values));
    const auto pairs = hn::LoadU(d8, bytes);
    hn::Store(hn::TableLookupBytes(table, hn::And(pairs, hn::Set(d8, 15))), d8, quants);
    hn::Store(hn::TableLookupBytes(table, hn::ShiftRight<4>(pairs)), d8, quants + 16);
  }
  float scale_value;
  if constexpr (kType == DType::kMXFP4) {
    scale_value = E8M0ToF32(*scale);
  } else {
    uint16_t bits;
    std::memcpy(&bits, scale, sizeof(bits));
    scale_value = F16ToF32(bits);
  }
  const D d;
  const hn::Rebind<int8_t, D> di8;
  const hn::RebindToSigned<D> di32;
  for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
    const auto q = hn::LoadU(di8, reinterpret_cast<const int8_t*>(quants) + i);
    V v = hn::ConvertTo(d, hn::PromoteTo(di32, q));
    if constexpr (kType == DType::kMXFP4) v = hn::Mul(hn::Set(d, 0.5f), v);
    Put(std::false_type(), hn::Mul(hn::Set(d, scale_value), v), finish, out + i, hn::Lanes(d));
  }
}

template <DType kType>
void WidenRow(const WeightView& w, int64_t row, const Finish& finish, float* out) {
  constexpr DTypeInfo kInfo = GetDTypeInfo(kType);
  constexpr size_t kScaleBytes = !kInfo.quantised ? 0 : (kType == DType::kMXFP4 ? 1 : 2);
  constexpr size_t kBytes = 32 / kInfo.block_size * kInfo.block_bytes - kScaleBytes;  // of 32 columns of a row
  const bool panel = w.layout == WeightLayout::kPanel16;
  const int64_t rows = panel ? kPanelRows : 1, lane = row % rows;
  const uint8_t* block = w.Panel(0, row / rows);
  for (int64_t k = 0; k < w.cols; k += 32, block += rows * (kScaleBytes + kBytes)) {
    const int64_t n = std::min<int64_t>(32, w.cols - k);
    const uint8_t* bytes = block + rows * kScaleBytes + 4 * lane;
    HWY_ALIGN uint8_t words[kBytes];
    if (panel) {
      const size_t used = kBytes * static_cast<size_t>(n) / 32;
      for (size_t at = 0; at < used; at += 4) std::memcpy(words + at, bytes + kPanelRows * at, 4);
      bytes = words;
    }
    if constexpr (kInfo.quantised) {
      WidenBlock<kType>(block + kScaleBytes * lane, bytes, panel, finish, out + k);
    } else {
      WidenFloats<kType>(bytes, n, finish, out + k);
    }
  }
}

template <DType kType>
void WidenRows(const EmbedOp& op, int64_t begin, int64_t end) {
  for (int64_t t = begin; t < end; ++t) {
    WidenRow<kType>(op.table, op.ids[static_cast<size_t>(t)], {op.add_to_out, op.scale}, op.out.Row(t));
  }
}

void RunEmbed(const EmbedOp& op, int64_t begin, int64_t end) {
  switch (op.table.dtype) {
    case DType::kF32: return WidenRows<DType::kF32>(op, begin, end);
    case DType::kF16: return WidenRows<DType::kF16>(op, begin, end);
    case DType::kBF16: return WidenRows<DType::kBF16>(op, begin, end);
    case DType::kQ8_0: return WidenRows<DType::kQ8_0>(op, begin, end);
    case DType::kQ4_0: return WidenRows<DType::kQ4_0>(op, begin, end);
    case DType::kMXFP4: return WidenRows<DType::kMXFP4>(op, begin, end);
    default: return;  // refused by Validate
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tally {

HWY_EXPORT(RunEmbed);
void RunEmbedHwy(const EmbedOp& op, int64_t begin, int64_t end, std::span<uint8_t>) {
  HWY_DYNAMIC_DISPATCH(RunEmbed)(op, begin, end);
}

}  // namespace tally
#endif
