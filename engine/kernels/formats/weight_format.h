// What the rest of the house knows of a weight format: its facts, and functions for packing, reading and multiplying it.
//
// <format>.h defines a format: a struct Format<NAME> of facts and scalar functions (panel_row.h says which), and in each Highway
// target's namespace a struct Vector<NAME> with the pieces of its kernels (matmul/int8-inl.h, matmul/float-inl.h). <format>.cc makes a
// WeightFormat of them. Nothing else names a format: all others go through FindWeightFormat.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/kernels/pack_act/act_pack.h"
#include "engine/kernels/weight_view.h"

namespace tally {

struct EmbedOp;
struct MatJob;

// Consecutive rows of a matrix as a file holds them, in memory. Hugging Face keeps the scales of some quantised types in a tensor of
// their own: then `scales` is set, and `data` holds blocks without scales, in the order of elements.
struct StagedRows {
  const uint8_t* data = nullptr;
  size_t stride = 0;                // bytes from a row to the next; twice a row where rows of two matrices alternate
  const uint8_t* scales = nullptr;  // one byte a block
  size_t scale_stride = 0;
};

// 32 consecutive weights of a row as the int8 product has them. It adds for each term
//   fma(float(sum(w[i] * q_x[i])), scale * x_scale, acc), exact but for the fma: |sum| < 2^24.
struct Int8Terms {
  struct Term {
    float scale = 0;     // x_scale is the pack's, which holds scale_mul
    int16_t w[32] = {};  // sub-block scales multiplied in
  };
  int n = 1;
  Term term[2];
};

// FLOPs of a matrix product beyond the useful ones (2 K an output), for one output row (lane) of the weight.
struct ExecutedCost {
  uint64_t products = 0;  // a row of activations: of the product itself, in its arithmetic type
  uint64_t scaling = 0;   // a row of activations: applying scales, class quantise
  uint64_t widening = 0;  // a group of rows: decoding the weights to f32, class quantise
};

// A format's kernels on one Highway target.
struct FormatKernels {
  void (*matmul)(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch);
  void (*embed)(const EmbedOp& op, int64_t begin, int64_t end);
  ExecutedCost (*executed)(ActKind kind, int64_t cols);  // of matmul, where the activations are `kind`
};

// FLOPs of widening 32 columns of one row to f32, by what widens them.
struct WideningFlops {
  uint64_t rows = 0;     // the reference, from rows as stored
  uint64_t panels = 0;   // the reference, from panels
  uint64_t vectors = 0;  // the Highway kernels
};

struct WeightFormat {
  ActKind act;                      // what activations are packed as by preference; every format takes f32 too
  ActFormat int8;                   // where act is kInt8
  bool narrow;                      // int8 products may be summed in 16 bits before they are widened
  int panel_cols;                   // columns of a panel's block
  std::span<const uint8_t> strips;  // of a panel's block, in order: bytes of one row's piece of each
  size_t panel_block_bytes;         // kPanelRows * (sum of strips)
  size_t decoded_block_bytes;       // scratch that the int8 kernels need for 32 columns of a panel, decoded
  WideningFlops widening;

  // `blocks` blocks as stored to and from f32. Encode rounds to nearest; of a block with an infinity or NaN it makes one of NaN.
  void (*decode)(const uint8_t* stored, int64_t blocks, float* out);
  void (*encode)(const float* x, int64_t blocks, uint8_t* stored);
  // Rows [0, valid) of `src`, `cols` columns, into one panel; its other rows are zeros.
  void (*pack)(int64_t cols, int valid, const StagedRows& src, uint8_t* panel);
  // Row `row` of a panel, [cols] f32.
  void (*unpack)(const uint8_t* panel, int row, int64_t cols, float* out);
  // Block kb of 32 columns of row `row` of a panel; null where act is not kInt8.
  void (*int8_terms)(const uint8_t* panel, int row, int64_t kb, Int8Terms& terms);

  FormatKernels (*kernels)();  // of the Highway target that runs now

  // What the scalar reference of the matrix product executes.
  ExecutedCost ReferenceExecuted(ActKind kind, int64_t cols) const;
  int64_t group_cols(DType t) const {  // a panel can be made of column ranges that start at multiples of this
    const int64_t block = GetDTypeInfo(t).block_size;
    return block > panel_cols ? block : panel_cols;
  }
};

// Null: no weight has this type.
const WeightFormat* FindWeightFormat(DType t);

// The same for a type that is known to be one (IsWeightType): matrices are checked when they are bound.
inline const WeightFormat& FormatOf(DType t) { return *FindWeightFormat(t); }

}  // namespace tally
