// SPDX-License-Identifier: Apache-2.0
// The interface of a weight format: constants, and functions that pack, read and multiply it.
//
// <format>.h defines a format: a struct Format<NAME> of constants and scalar functions (panel_row.h, plain.h), and for each
// Highway target a struct Vector<NAME> (vectors-inl.h, matmul/float-inl.h). <format>.cc makes a WeightFormat of them. Other code
// uses formats through FindWeightFormat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kernels/pack_act/act_pack.h"
#include "engine/kernels/weight_view.h"

namespace tally {

struct EmbedOp;
struct MatJob;

// Consecutive rows of a matrix in memory, in the file's format. `scales` is set if the scales are in a tensor of their own
// (Hugging Face, some quantised types); `data` then holds blocks without scales, codes in the order of the elements.
struct StagedRows {
  const uint8_t* data = nullptr;
  size_t stride = 0;                // bytes between rows; several rows long if other matrices' rows lie between them
  const uint8_t* scales = nullptr;  // one byte for each block
  size_t scale_stride = 0;
};

// 32 consecutive weights of a row in the int8 product:
//   acc = fma(float(sum(w[i] * q_x[i])), scale * x_scale, acc). The sum is exact, as |sum| < 2^24.
// then, if ActFormat has minima, for each of its `sums` parts:
//   acc = fma(minimum[part], x_scale * float(sum of the part's q_x), acc)
struct Int8Terms {
  float scale = 0;     // x_scale comes from the pack and includes scale_mul
  int16_t w[32] = {};  // multiplied by the integer scales of the halves
  float minimum[2] = {};
};

// FLOPs of a matrix product beyond the useful ones (2 K per output). A lane is an output row of the weight.
struct ExecutedCost {
  uint64_t products = 0;  // per lane and activation row, in the product's arithmetic type
  uint64_t scaling = 0;   // per lane and activation row: applying scales, class quantise
  uint64_t widening = 0;  // per lane and group of rows: decoding weights to f32, class quantise
};

// A format's kernels on one Highway target.
struct FormatKernels {
  void (*matmul)(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch);
  void (*embed)(const EmbedOp& op, int64_t begin, int64_t end);
  ExecutedCost (*executed)(ActKind kind, int64_t cols);  // of matmul with activations of `kind`
};

// FLOPs of widening 32 columns of one row to f32.
struct WideningFlops {
  uint64_t rows = 0;     // reference, from rows as stored
  uint64_t panels = 0;   // reference, from panels
  uint64_t vectors = 0;  // Highway kernels
};

struct WeightFormat {
  ActKind act;                      // preferred kind of activations
  ActFormat int8;                   // used if act is kInt8
  bool narrow;                      // int8 products may be summed in 16 bits before they are widened
  bool powers_of_2;                 // scales are powers of two: their exponents are added to those of x_scale
  int panel_cols;                   // columns of a panel's block
  std::span<const uint8_t> strips;  // bytes of one row in each strip of a panel's block
  size_t panel_block_bytes;         // kPanelRows * (sum of strips)
  size_t decoded_block_bytes;       // scratch of the int8 kernels for 32 decoded columns of a panel
  WideningFlops widening;

  // Converts `blocks` stored blocks to and from f32. Encode rounds to nearest; a quantised block with an infinity or NaN becomes
  // all NaN. importance: weights of the values' squared errors, one for each x, or null for equal weights; formats with one
  // scale per block of 32 ignore it.
  void (*decode)(const uint8_t* stored, int64_t blocks, float* out);
  void (*encode)(const float* x, const float* importance, int64_t blocks, uint8_t* stored);
  // Packs rows [0, valid) of `src` with `cols` columns into one panel. Its other rows become zeros.
  void (*pack)(int64_t cols, int valid, const StagedRows& src, uint8_t* panel);
  // Reads row `row` of a panel as [cols] f32.
  void (*unpack)(const uint8_t* panel, int row, int64_t cols, float* out);
  // Reads columns [32 kb, 32 kb + 32) of row `row` of a panel. Null if act is not kInt8.
  void (*int8_terms)(const uint8_t* panel, int row, int64_t kb, Int8Terms& terms);

  FormatKernels (*kernels)();  // of the current Highway target

  // Multiplies of the int8 product for 32 columns of an output beyond the dot products (Int8Terms): scale * x_scale unless the scales
  // are powers of two, the fma of the sum, the halves' integer scales, and an fma for each minimum.
  int scaling_multiplies() const { return (powers_of_2 ? 1 : 2) + (int8.sums > 1 ? int8.sums : 0) + int8.minimum_sums(); }

  // The scalar reference of the matrix product.
  ExecutedCost ReferenceExecuted(ActKind kind, int64_t cols) const;
  int64_t group_cols(DType t) const {  // loading may pack a panel in column ranges; ranges start at multiples of this
    const int64_t block = GetDTypeInfo(t).block_size;
    return block > panel_cols ? block : panel_cols;
  }
};

// Null if `t` is no weight type.
const WeightFormat* FindWeightFormat(DType t);

// Whether there is a product of the weight type by such activations: the preferred kind, f32, and of formats that prefer int8 also bf16,
// if there is AMX: then weights are rounded to bf16.
bool TakesActivations(DType t, ActKind k);

// `t` must be a weight type (IsWeightType); the types of matrices are checked when weights are planned.
inline const WeightFormat& FormatOf(DType t) { return *FindWeightFormat(t); }

}  // namespace tally
