// SPDX-License-Identifier: Apache-2.0
// A family's reading of a checkpoint: its recipe, and which stored tensor plays which role.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "counters/cost/site.h"
#include "engine/recipe/recipe.h"
#include "engine/recipe/roles.h"

namespace tally {

// How a tensor is laid out in the file. The engine's layout: matrices [out, in], experts [X, out, in], vectors [n].
enum class Storage : uint8_t {
  kPlain,            // the engine's layout
  kTransposed,       // [in, out] (GPT-2's Conv1D)
  kTransposedHeads,  // each slice [in, out], from the stored rows that the row map takes. Quantised rows are widened to F32.
  kPlusOne,          // a vector w; the engine uses 1 + w, computed in f32 (Gemma's norms)
  kOverRoot,         // a vector w of n elements; the engine uses w / sqrt(n), computed in f32 (the norm of Gemma 4's router)
  kMinusExp,         // a vector w; the engine uses -exp(w), computed in f32 (the decays of recurrent layers)
  kExp,              // a vector w; the engine uses exp(w), computed in f32 (those of Ling 3)
  kSoftplus,         // a vector w; the engine uses ln(1 + exp(w)), computed in f64 (xIELU's alphas)
  kTaps,             // the taps of a convolution, vectors [taps, n], as [n, taps]
  kConv1d,           // the same as [n, 1, taps] (torch's Conv1d)
};

// The engine's values are computed from the stored ones.
constexpr bool IsComputed(Storage s) {
  return s == Storage::kPlusOne || s == Storage::kOverRoot || s == Storage::kMinusExp || s == Storage::kExp ||
         s == Storage::kSoftplus;
}

// The rows (of a vector: elements; of kTransposed: columns) of a stored slice that a binding takes. Row r of the binding (of
// kTransposedHeads: column r) is stored row first + r / block * step + r % block; block 0 takes all rows in order. Examples:
//   gate and up in alternating rows                {0, 1, 2} and {1, 1, 2}
//   k of q, k and v in rows [heads, 3, D]          {D, D, 3 D}
//   the last n of m rows                           {m - n, n, n}
struct RowMap {
  uint64_t first = 0, block = 0, step = 0;
  bool all() const { return block == 0; }
  uint64_t Stored(uint64_t row) const { return all() ? row : first + row / block * step + row % block; }
  bool operator==(const RowMap&) const = default;
};

struct TensorBinding {
  Role role{};
  int32_t layer = -1;
  std::vector<std::string> names;  // one stored tensor; or one per expert; or {blocks, scales} if split
  std::vector<uint64_t> shape;     // in the engine's layout
  Storage storage = Storage::kPlain;
  RowMap rows = {};           // with kTransposed: one run of columns, or every step-th
  uint64_t stored_heads = 0;  // not 0: a vector that is stored as a matrix with so many rows (Cohere's norms of heads)
  // Set to the format if blocks of n elements and b bytes are stored in two U8 tensors: codes [..., in / n, b - 1] and scales
  // [..., in / n].
  std::optional<DType> split = {};

  // FP8: the tensor of scales of each of `names`, which are F8_E4M3 (FindScaleGrid); else empty.
  std::vector<std::string> scales = {};

  // Type of the weight's values. `tensor`: type of its first stored tensor; ignored if the format is in several tensors.
  DType type(DType tensor) const { return scales.empty() ? split.value_or(tensor) : DType::kFP8; }

  bool vector() const { return FactsOf(role).vector; }
  size_t row_dimension() const { return shape.size() - (vector() ? 1 : 2); }  // index in `shape` (of a vector: of the elements)
  // The things that `rows` maps: rows of the binding, or, with kTransposedHeads, columns.
  uint64_t mapped_rows() const { return storage == Storage::kTransposedHeads ? shape.back() : shape[row_dimension()]; }
  // The shape of the stored tensor that has all slices, of which each has `stored_rows` rows for `rows` to take from.
  std::vector<uint64_t> StoredShape(uint64_t stored_rows) const;
  // The rows that a stored slice has for `rows` to take from.
  uint64_t StoredRows(std::span<const uint64_t> stored_shape) const;
};

// The family's reading of a checkpoint.
struct ModelSpec {
  Recipe recipe;  // of the text, the first stack
  // The other stacks that run. They share the text's weights of layer -1.
  std::vector<Recipe> further = {};
  std::vector<TensorBinding> bindings;
  std::vector<std::string> buffers;  // stored but not learned, such as causal masks
  std::vector<std::string> not_run;  // learned and stored, but not used by the graph
  // The parts that not_run's tensors belong to. For a configuration without tensors: the parts that it describes.
  std::vector<PartNotRun> parts_not_run = {};
  // Tied head: the head that is stored beside the embedding, one of not_run; else empty.
  std::string stored_head = {};
  // Notes on the metadata for the checkpoint's user: keys that look misspelt, ids that are ignored. One sentence each.
  std::vector<std::string> notes = {};
  // The keys that config.json lacks and the defaults used for them, as one sentence; empty: none.
  std::string defaults = {};

  std::vector<const Recipe*> stacks() const;       // the text first
  const Recipe& stack_of(int32_t layer) const;     // which has the layer of this number; -1: the text
  const Recipe* find_stack(StackKind kind) const;  // null: the model has none
};

// The scales of an FP8 matrix: one for each block of rows and columns, the last ones shorter.
struct ScaleGrid {
  uint64_t rows = 1, cols = 1;
};
// The grid of a tensor of scales: of one element, [rows] or [rows, 1], or [ceil(rows / 128), ceil(cols / 128)] (DeepSeek-V3, 2024,
// section 3.3); of a tensor with the matrices of all experts also [experts, rows, 1], [experts, 1, 1] and [experts, rows / 128, ...].
// `rows`, `cols`: of the codes. nullopt: another shape.
std::optional<ScaleGrid> FindScaleGrid(std::span<const uint64_t> scales, uint64_t rows, uint64_t cols);
// Scales that one slice of the binding needs, blocks of rows counted from its first row, and that one stored row needs.
uint64_t ScalesOfSlice(const TensorBinding& binding, const ScaleGrid& grid);
uint64_t ScalesOfRow(const TensorBinding& binding, const ScaleGrid& grid);

// True if the shapes are equal, or if the first dimension of `stored` is the first two of `wanted` as one (heads; a single expert;
// a matrix of one row), or if a vector is stored with two or more dimensions of extent 1 besides its own (torch's views), or one
// of one element without dimensions.
bool ShapesAgree(std::span<const uint64_t> stored, std::span<const uint64_t> wanted);

// The ledger's entry for a bound weight of the recipe's stack, without its bytes.
WeightInfo WeightInfoOf(const TensorBinding& binding, const Recipe& recipe);

}  // namespace tally
