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

// How the file holds it. Shapes of the role are the engine's: matrices [out, in], experts [X, out, in], vectors [n].
enum class Storage : uint8_t {
  kPlain,       // as the engine wants it
  kTransposed,  // [in, out] (GPT-2's Conv1D)
  kPlusOne,     // a vector w of which the engine wants 1 + w, in f32 (Gemma's norms)
};

// Which rows of a stored slice (of a vector: elements) a binding has: its row r is stored row first + r / block * step + r % block.
// Block 0: all of them, in order. Gate and up, row by row in turn: {0, 1, 2} and {1, 1, 2}; [heads, 3, D] rows of q, k, v: {D, D, 3 D}
// is k; the last n rows of m: {m - n, n, n}.
struct RowMap {
  uint64_t first = 0, block = 0, step = 0;
  bool all() const { return block == 0; }
  uint64_t Stored(uint64_t row) const { return all() ? row : first + row / block * step + row % block; }
  bool operator==(const RowMap&) const = default;
};

struct TensorBinding {
  Role role{};
  int32_t layer = -1;
  std::vector<std::string> names;  // one stored tensor; or one per expert, to be stacked; or {blocks, scales} where split
  std::vector<uint64_t> shape;     // as the engine wants it
  Storage storage = Storage::kPlain;
  RowMap rows = {};  // not with kTransposed
  // The format, where its blocks of n elements and b bytes are split in two tensors: the codes in one of shape [..., in / n, b - 1] U8,
  // the scales in one of [..., in / n] U8.
  std::optional<DType> split = {};

  // Of its values, where `tensor` is the type of its first stored tensor.
  DType type(DType tensor) const { return split.value_or(tensor); }

  bool vector() const { return FactsOf(role).vector; }
  size_t row_dimension() const { return shape.size() - (vector() ? 1 : 2); }  // of shape, which rows or elements are counted in
};

// The family's reading of a checkpoint.
struct ModelSpec {
  Recipe recipe;
  std::vector<TensorBinding> bindings;
  std::vector<std::string> buffers;  // stored but not learned: causal masks and their like
  std::vector<std::string> not_run;  // learned and present, but not used by this family's graph
};

// A stored tensor of this shape can be what `wanted` says: a leading 1 may be left out (a single expert, a matrix of one row).
bool ShapesAgree(std::span<const uint64_t> stored, std::span<const uint64_t> wanted);

// What the ledger knows of a bound weight, but for its bytes.
WeightInfo WeightInfoOf(const TensorBinding& binding, const Recipe& recipe);

}  // namespace tally
