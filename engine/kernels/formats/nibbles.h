// SPDX-License-Identifier: Apache-2.0
// Shared by formats of 32 4-bit codes and one scale per block. Byte j of a block's codes holds element j in its low nibble and
// element j + 16 in its high nibble. A 4-byte word of codes is two steps of its row, and a panel row is a block as stored.
//
// Panel, per 32 k: the scales of 16 rows, then 4 chunks of 64 bytes [16][4]. A byte of chunk j holds a code of step j in its low
// nibble and one of step j + 4 in its high nibble.
#ifndef TALLY_FORMATS_NIBBLES_H_
#define TALLY_FORMATS_NIBBLES_H_

#include "engine/kernels/formats/panel_row.h"

namespace tally {

inline int Nibble(const uint8_t* qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }

// F has a Block with the codes in qs, Scale(const Block&), the integer kValues[code] and Padding.
template <class F, class B>
struct NibbleFormat {
  using Block = B;
  static constexpr int kPanelCols = 32, kScaleWords = 1;
  static constexpr std::array<uint8_t, 5> kStrips = {sizeof(B) - 16, 4, 4, 4, 4};
  static constexpr bool kNarrow = true;

  static void PanelRow(const Block& b, uint8_t* row) { std::memcpy(row, &b, sizeof(b)); }
  static void DecodePanelRow(const uint8_t* row, float* out) { F::Decode(LoadAt<Block>(row), out); }
  static void Int8Row(const uint8_t* row, int, Int8Terms& terms) {
    const Block b = LoadAt<Block>(row);
    terms.scale = F::Scale(b);
    for (int i = 0; i < 32; ++i) terms.w[i] = F::kValues[Nibble(b.qs, i)];
  }
};

}  // namespace tally

#endif  // TALLY_FORMATS_NIBBLES_H_

#ifdef HWY_TARGET_INCLUDE
#include "engine/kernels/formats/vectors-inl.h"

#if defined(TALLY_FORMATS_NIBBLES_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef TALLY_FORMATS_NIBBLES_VECTORS
#undef TALLY_FORMATS_NIBBLES_VECTORS
#else
#define TALLY_FORMATS_NIBBLES_VECTORS
#endif

HWY_BEFORE_NAMESPACE();
namespace tally {
namespace HWY_NAMESPACE {

HWY_INLINE void NibbleSteps(const uint8_t* q, int c, int v, VU8& lo, VU8& hi) {
  const DU8 du8;
  const hn::Repartition<uint16_t, DU8> du16;
  const VU8 mask = hn::Set(du8, 15);
  const VU8 x = hn::LoadU(du8, q + 64 * c + kVecBytes * v);
  lo = hn::And(x, mask);
  hi = hn::And(hn::BitCast(du8, hn::ShiftRight<4>(hn::BitCast(du16, x))), mask);
}

// The values of 32 codes in the order of the columns.
HWY_INLINE void LookUpNibbles(const int8_t* values, const uint8_t* codes, uint8_t* HWY_RESTRICT quants) {
  const hn::FixedTag<uint8_t, 16> d8;
  const auto table = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(values));
  const auto pairs = hn::LoadU(d8, codes);
  hn::Store(hn::TableLookupBytes(table, hn::And(pairs, hn::Set(d8, 15))), d8, quants);
  hn::Store(hn::TableLookupBytes(table, hn::ShiftRight<4>(pairs)), d8, quants + 16);
}

}  // namespace HWY_NAMESPACE
}  // namespace tally
HWY_AFTER_NAMESPACE();

#endif  // toggle
#endif  // HWY_TARGET_INCLUDE
