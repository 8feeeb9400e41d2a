// SPDX-License-Identifier: Apache-2.0
// Scalar functions of formats that are not quantised. Format<NAME> defines kType, kAct, Bits (the type of an element's bits),
// ToF32(Bits) and FromF32(float). A panel's block is one step of 4 bytes per row: one f32, or two elements of 16 bits.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "engine/kernels/formats/panel_row.h"

namespace tally {

inline constexpr std::array<uint8_t, 1> kStepStrip = {4};

template <class F>
inline constexpr int kPlainStepCols = 4 / sizeof(typename F::Bits);

// Packing is a transpose of 4-byte words: word w of row r goes to word 16 w + r. It reads one cache line of a few rows in turn, so
// that the 1 KiB written stays in the first-level cache and rows whose stride is a power of two do not evict one another. An odd
// element of 16 bits is padded with a zero.
template <class F>
void PackPlain(int64_t cols, int valid, const StagedRows& src, uint8_t* panel) {
  constexpr size_t kWord = 4, kStep = kPanelRows * kWord, kLine = 16;
  const size_t bytes = static_cast<size_t>(cols) * sizeof(typename F::Bits), words = bytes / kWord, tail = bytes % kWord;
  for (size_t begin = 0; begin < words; begin += kLine) {
    const size_t end = begin + kLine < words ? begin + kLine : words;
    if (valid == kPanelRows && end - begin == kLine) {
      for (size_t r = 0; r < kPanelRows; r += 4) {
        const uint8_t* const rows = src.data + r * src.stride;
        for (size_t w = begin; w < end; w += 4) TransposeWords(rows + w * kWord, src.stride, panel + w * kStep + r * kWord);
      }
      continue;
    }
    for (size_t r = 0; r < static_cast<size_t>(valid); ++r) {
      const uint8_t* row = src.data + r * src.stride;
      for (size_t w = begin; w < end; ++w) std::memcpy(panel + w * kStep + r * kWord, row + w * kWord, kWord);
    }
  }
  for (size_t r = 0; r < static_cast<size_t>(kPanelRows); ++r) {
    const bool exists = r < static_cast<size_t>(valid);
    for (size_t w = exists ? words : 0; w * kWord < bytes; ++w) {
      uint8_t* word = panel + w * kStep + r * kWord;
      std::memset(word, 0, kWord);
      if (exists) std::memcpy(word, src.data + r * src.stride + words * kWord, tail);
    }
  }
}

template <class F>
void UnpackPlain(const uint8_t* panel, int row, int64_t cols, float* out) {
  using Bits = typename F::Bits;
  constexpr int64_t n = kPlainStepCols<F>;
  for (int64_t k = 0; k < cols; ++k) {
    Bits bits;
    std::memcpy(&bits, panel + k / n * 64 + row * 4 + k % n * static_cast<int64_t>(sizeof(Bits)), sizeof(bits));
    out[k] = F::ToF32(bits);
  }
}

template <class F>
void DecodePlain(const uint8_t* stored, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i, stored += sizeof(typename F::Bits)) {
    typename F::Bits bits;
    std::memcpy(&bits, stored, sizeof(bits));
    out[i] = F::ToF32(bits);
  }
}

template <class F>
void EncodePlain(const float* x, const float*, int64_t n, uint8_t* stored) {
  for (int64_t i = 0; i < n; ++i, stored += sizeof(typename F::Bits)) {
    const typename F::Bits bits = F::FromF32(x[i]);
    std::memcpy(stored, &bits, sizeof(bits));
  }
}

template <class F>
constexpr WeightFormat MakePlain(FormatKernels (*kernels)()) {
  static_assert(sizeof(typename F::Bits) == GetDTypeInfo(F::kType).block_bytes);
  return {.act = F::kAct,
          .int8 = {},
          .narrow = false,
          .powers_of_2 = false,
          .panel_cols = kPlainStepCols<F>,
          .strips = kStepStrip,
          .panel_block_bytes = 64,
          .decoded_block_bytes = 0,
          .widening = {},
          .decode = DecodePlain<F>,
          .encode = EncodePlain<F>,
          .pack = PackPlain<F>,
          .unpack = UnpackPlain<F>,
          .int8_terms = nullptr,
          .kernels = kernels};
}

}  // namespace tally
