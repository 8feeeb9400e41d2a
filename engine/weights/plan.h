// SPDX-License-Identifier: Apache-2.0
// The source and the destination of every weight of a model, planned and checked before anything is read or allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "counters/cost/site.h"
#include "engine/base/status.h"
#include "engine/kernels/weight_view.h"
#include "engine/recipe/model_spec.h"
#include "engine/recipe/shard.h"
#include "loaders/inventory/inventory.h"

namespace tally {

inline constexpr uint64_t kWeightPage = 4096;

struct PlannedWeight {
  Role role{};
  int32_t layer = -1;
  Storage storage = Storage::kPlain;
  std::optional<DType> split;                // TensorBinding::split: sources = {blocks, scales}
  std::vector<const StoredTensor*> sources;  // not split: one tensor that holds all slices, or one per slice that is held
  bool source_per_slice = false;
  std::vector<const StoredTensor*> scales;  // FP8: of each source; else empty
  ScaleGrid grid;                           // of each of them
  WeightView view;                          // data is null
  WeightInfo info;
  bool streamed = false;      // read from disk when it is used; it has no place in the arena
  uint64_t arena_offset = 0;  // of the first slice
  uint64_t lead = 0;          // with guards: bytes of a slice's stride before its first one
  uint64_t slice_bytes = 0;   // packed bytes of a slice, page padding excluded

  RowMap rows;               // TensorBinding::rows
  uint64_t stored_rows = 0;  // TensorBinding::StoredRows
  int64_t all_slices = 1;    // that the stored tensor has
  Held held;                 // the slices and rows of the binding that the view has

  // Calls fn(row of the binding, n) for each run of the binding's rows that rows [begin, begin + n) of the view consist of. Vectors:
  // elements.
  template <class Fn>
  Status ForRuns(uint64_t begin, uint64_t n, const Fn& fn) const {
    uint64_t at = 0;  // of the view
    for (const HeldRows& h : held.rows) {
      const uint64_t size = static_cast<uint64_t>(h.rows.size()), from = std::max(begin, at), to = std::min(begin + n, at + size);
      if (from < to) TALLY_RETURN_IF_ERROR(fn(static_cast<uint64_t>(h.rows.begin) + from - at, to - from));
      at += size;
    }
    return {};
  }

  // The weight takes every rows.step-th row. All rows are read once, and each weight bound to the tensor packs its own.
  bool striped() const { return rows.block == 1 && rows.first < rows.step; }
  bool vector() const { return view.layout == WeightLayout::kVector; }
  bool transposed() const { return storage == Storage::kTransposed || storage == Storage::kTransposedHeads; }
  // Slice k has the elements k, k + slices, k + 2 slices, ...
  bool taps() const { return storage == Storage::kTaps || storage == Storage::kConv1d; }
  bool striped_outputs() const { return striped() && storage == Storage::kTransposed; }  // every rows.step-th column
  uint64_t stored_outputs() const {  // of a transposed weight: elements of a stored row
    return storage == Storage::kTransposed ? stored_rows : static_cast<uint64_t>(view.rows);
  }
  // FP8 whose rows are no whole blocks of 128: held as F32, each value its code times its scale.
  bool ragged() const {
    return !scales.empty() && !transposed() && view.cols % static_cast<int64_t>(GetDTypeInfo(DType::kFP8).block_size) != 0;
  }
  DType stored_dtype() const { return scales.empty() ? split.value_or(sources[0]->dtype) : DType::kFP8; }
};

struct PlannedHostVector {
  Role role{};
  int32_t layer = -1;
  const StoredTensor* source = nullptr;
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;  // weights[i].view.id == i
  // Weights of which the shard holds nothing: role, layer, type of the values.
  struct NotHeld {
    Role role{};
    int32_t layer = -1;
    WeightView view;  // without rows
  };
  std::vector<NotHeld> not_held;
  std::vector<PlannedHostVector> host_vectors;
  uint64_t arena_bytes = 0;  // guards included
  uint64_t guard_bytes = 0;  // address space that is never written and takes no memory
  bool guarded = false;      // each slice ends at a page boundary, followed by a guard
  bool tied_head = false;    // the head is the token embedding
  Shard shard;               // whose weights they are
  // The head that is stored although it is tied; LoadWeights compares it with the embedding. Null: none.
  const StoredTensor *stored_head = nullptr, *embedding = nullptr;

  uint64_t packed_bytes() const { return arena_bytes - guard_bytes; }

  // The view of a role's weight, without data; without rows if the shard holds none, a default view if the model has none. layer: -1 for
  // roles outside the layers.
  WeightView View(Role role, int32_t layer) const;
};

// The packed layout of a role: kRowMajor for tables that are only gathered from (untied embeddings, positions), kVector for 1-D roles and
// expert biases, kPanel16 for the other matrices. FP8 has kPanel16 for all matrices.
WeightLayout LayoutFor(Role role, const Recipe& recipe);

// Weights that are read from disk when they are used, and have no place in the arena (records.h).
struct StreamedWeights {
  bool experts = false;           // matrices of experts
  std::set<int32_t> layers = {};  // all matrices of these layers; their vectors stay
};

// The plan points into `inventory`, which must outlive it. It has what the shard holds of each weight.
// guard_page: 0, slices start on a page; else the bytes of a page: slices end at a page boundary and are followed by an unused page
// (for engine/machine/page_watch.h). kBadInput: a missing tensor, a type that cannot be run, an unexpected shape, rows that are not a
// whole number of blocks, a tied head that is stored with another type or shape than the embedding.
Result<WeightPlan> PlanWeights(const Inventory& inventory, const ModelSpec& spec, uint64_t guard_page, const Shard& shard = {},
                               const StreamedWeights& streamed = {});

// The weights of experts' records: kExpertGate, kExpertUp, kExpertDown.
bool InRecords(Role role);

// kBadInput: the tied head that is stored in `file` is not a copy of the embedding.
Status HeadDiffers(const std::string& file, const StoredTensor& head, const StoredTensor& embedding);

}  // namespace tally
