// Where every weight of a model comes from and where it goes, worked out and checked before anything is read
// or allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "counters/cost/site.h"
#include "engine/base/status.h"
#include "engine/kernels/weight_view.h"
#include "engine/recipe/model_spec.h"
#include "loaders/inventory/inventory.h"

namespace tally {

inline constexpr uint64_t kWeightPage = 4096;

struct PlannedWeight {
  Role role{};
  int32_t layer = -1;
  Storage storage = Storage::kPlain;
  std::optional<DType> split;                // TensorBinding::split: sources = {blocks, scales}
  std::vector<const StoredTensor*> sources;  // else one tensor that holds all slices, or one per slice
  WeightView view;                           // data still null
  WeightInfo info;
  uint64_t arena_offset = 0;  // of its first slice
  uint64_t slice_bytes = 0;   // of the packed slice, what is added to fill its page not included

  RowMap rows;               // of a stored slice
  uint64_t stored_rows = 0;  // that a stored slice has, of view.stored_row_bytes bytes; of a vector elements; not of kTransposed

  // Rows taken one at a time, every rows.step-th: they are read together with those between them, which other weights take.
  bool striped() const { return rows.block == 1 && rows.first < rows.step; }
  bool vector() const { return view.layout == WeightLayout::kVector; }
  DType stored_dtype() const { return split.value_or(sources[0]->dtype); }
};

struct PlannedHostVector {
  Role role{};
  const StoredTensor* source = nullptr;
};

struct WeightPlan {
  std::vector<PlannedWeight> weights;  // weights[i].view.id == i
  std::vector<PlannedHostVector> host_vectors;
  uint64_t arena_bytes = 0;  // guards included
  uint64_t guard_bytes = 0;  // address space that is never written, and so takes no memory
  bool guarded = false;      // each slice ends with a page, and a guard follows
  bool tied_head = false;    // the head is the token embedding

  uint64_t packed_bytes() const { return arena_bytes - guard_bytes; }

  // The view of a role's weight, without data; an empty view where the model has none. layer -1 for roles outside the layers.
  WeightView View(Role role, int32_t layer) const;
};

// The layout that a role's weight is packed in: kRowMajor for tables only gathered from (untied embeddings,
// positions), kVector for 1-D roles and expert biases, else kPanel16.
WeightLayout LayoutFor(Role role, const Recipe& recipe);

// Pointers in the plan are into `inventory`.
// guard_page: bytes of a page of memory where each slice is to end with a page, an unused one following (the
// watching of engine/machine/page_watch.h); 0: slices start with a page, and nothing stands between them. kBadInput: a missing
// tensor, a type that cannot be run, a shape that was not expected or does not divide into blocks.
Result<WeightPlan> PlanWeights(const Inventory& inventory, const ModelSpec& spec, uint64_t guard_page);

}  // namespace tally
