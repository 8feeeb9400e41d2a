// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/plan.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/recipe/roles.h"

namespace tally {
namespace {

class Planner {
 public:
  Planner(const Inventory& inventory, const ModelSpec& spec, uint64_t guard_page, const Shard& shard,
          const StreamedWeights& streamed)
      : inventory_(inventory), spec_(spec), guard_(guard_page), shard_(shard), streamed_(streamed) {}

  Result<WeightPlan> Plan() {
    plan_.guarded = guard_ > 0;
    plan_.shard = shard_;
    plan_.tied_head = spec_.recipe.tied_head;
    std::set<std::pair<int32_t, Role>> bound;
    for (const TensorBinding& binding : spec_.bindings) {
      const std::string name = WeightName(binding.role, binding.layer);
      if (!bound.emplace(binding.layer, binding.role).second) return InternalError(name + " is bound twice");
      if (binding.role == Role::kHead && spec_.recipe.tied_head) {
        return InternalError("the recipe says that the head is the embedding, yet " + name + " is bound");
      }
      TALLY_RETURN_IF_ERROR(FactsOf(binding.role).kind == WeightInfo::Kind::kBuffer ? AddHostVector(binding)
                                                                                    : AddWeight(binding));
    }
    if (!spec_.stored_head.empty()) TALLY_RETURN_IF_ERROR(AddStoredHead());
    return std::move(plan_);
  }

 private:
  const std::string& FileOf(const StoredTensor& t) const {
    return t.file < inventory_.files.size() ? inventory_.files[t.file].path : inventory_.path;
  }

  Status At(const StoredTensor& t, const std::string& what) const {
    return BadInput(FileOf(t) + ": tensor " + Quote(t.name) + " " + what);
  }

  Result<const StoredTensor*> Find(const TensorBinding& binding, const std::string& name) const {
    const StoredTensor* t = inventory_.Find(name);
    if (t == nullptr) {
      return BadInput(inventory_.path + ": tensor " + Quote(name) + " is missing (" + WeightName(binding.role, binding.layer) +
                      ")");
    }
    return t;
  }

  Status NoWholeBlocks(const StoredTensor& t, const std::vector<uint64_t>& shape, const DTypeInfo& type) const {
    return At(t, "has rows of " + std::to_string(shape.back()) + " elements, which " + std::string(type.name) +
                     " cannot cut into blocks of " + std::to_string(type.block_size));
  }

  // Checks that the tensor has the shape and the bytes for it, inside its file.
  Status Check(const StoredTensor& t, const std::vector<uint64_t>& shape) const {
    if (!ShapesAgree(t.shape, shape)) return At(t, "has shape " + ShapeText(t.shape) + ", expected " + ShapeText(shape));
    uint64_t elements = 1;
    for (uint64_t d : shape) {
      const std::optional<uint64_t> product = CheckedMul(elements, d);
      if (!product) return At(t, "has a shape too large for this machine: " + ShapeText(shape));
      elements = *product;
    }
    if (elements == 0) return At(t, "has no elements: shape " + ShapeText(shape));
    const DTypeInfo type = GetDTypeInfo(t.dtype);
    if (!shape.empty() && shape.back() % type.block_size != 0) return NoWholeBlocks(t, shape, type);
    const std::optional<uint64_t> bytes = StoredBytes(t.dtype, elements);
    if (!bytes || *bytes != t.bytes) {
      return At(t, "takes " + std::to_string(t.bytes) + " bytes, expected " + (bytes ? std::to_string(*bytes) : "more"));
    }
    if (t.file >= inventory_.files.size()) return InternalError("tensor '" + t.name + "' is in no file of the inventory");
    const std::optional<uint64_t> end = CheckedAdd(t.offset, t.bytes);
    if (!end || *end > inventory_.files[t.file].size) return At(t, "ends beyond its file");
    return {};
  }

  Status CheckVectorType(const StoredTensor& t) const {
    if (t.dtype == DType::kF32 || t.dtype == DType::kF16 || t.dtype == DType::kBF16) return {};
    return At(t, "is a vector of type " + std::string(DTypeName(t.dtype)) + ", expected F32, F16 or BF16");
  }

  Status CheckMatrixType(const StoredTensor& t, Storage storage) const {
    if (!IsWeightType(t.dtype)) {
      return At(t, "has type " + std::string(DTypeName(t.dtype)) + ", which cannot be run; expected " + WeightTypeNames());
    }
    if (storage == Storage::kTransposed && GetDTypeInfo(t.dtype).quantised) {
      return At(t, "has type " + std::string(DTypeName(t.dtype)) + ", which cannot be transposed; expected F32, F16 or BF16");
    }
    return {};
  }

  Status AddHostVector(const TensorBinding& binding) {
    if (binding.names.size() != 1) return InternalError("a buffer is bound to more than one tensor");
    TALLY_ASSIGN_OR_RETURN(const StoredTensor* t, Find(binding, binding.names[0]));
    TALLY_RETURN_IF_ERROR(CheckVectorType(*t));
    TALLY_RETURN_IF_ERROR(Check(*t, binding.shape));
    plan_.host_vectors.push_back({binding.role, binding.layer, t});
    return {};
  }

  Status AddStoredHead() {
    plan_.stored_head = inventory_.Find(spec_.stored_head);
    for (const PlannedWeight& w : plan_.weights) {
      if (w.role == Role::kTokenEmbedding) plan_.embedding = w.sources[0];
    }
    if (plan_.embedding == nullptr && !shard_.alone()) {  // no row of it is held
      plan_.stored_head = nullptr;
      return {};
    }
    if (plan_.stored_head == nullptr || plan_.embedding == nullptr) return InternalError("no head is stored beside an embedding");
    const StoredTensor &head = *plan_.stored_head, &embedding = *plan_.embedding;
    if (head.dtype == embedding.dtype && head.shape == embedding.shape) return Check(head, embedding.shape);
    return HeadDiffers(FileOf(head), head, embedding);
  }

  Status AddWeight(const TensorBinding& binding) {
    const bool vector = binding.vector();
    const size_t rank = binding.shape.size(), own_rank = vector ? 1 : 2;
    const std::string name = WeightName(binding.role, binding.layer);
    if ((rank != own_rank && rank != own_rank + 1) || binding.names.empty()) {
      return InternalError(name + " is bound with shape " + ShapeText(binding.shape) + " to " +
                           std::to_string(binding.names.size()) + " tensors");
    }
    PlannedWeight w;
    w.role = binding.role;
    w.layer = binding.layer;
    w.storage = binding.storage;
    w.rows = binding.rows;
    w.split = binding.split;
    w.info = WeightInfoOf(binding, spec_.stack_of(binding.layer));
    WeightView& view = w.view;
    view.layout = LayoutFor(binding.role, spec_.recipe);
    if (!binding.scales.empty() && view.layout == WeightLayout::kRowMajor) view.layout = WeightLayout::kPanel16;
    view.slices = static_cast<int64_t>(rank > own_rank ? binding.shape[0] : 1);
    view.cols = static_cast<int64_t>(w.info.cols);
    view.rows = static_cast<int64_t>(w.info.rows);
    if (view.slices > UINT32_MAX) return InternalError(name + " has too many slices");

    TALLY_RETURN_IF_ERROR(FindSources(binding, name, w));
    w.source_per_slice = !w.split && w.sources.size() > 1;
    // A process that is alone holds what the binding has, which need not be of a whole recipe.
    const int64_t rows = FactsOf(binding.role).vector ? view.cols : view.rows;
    w.held = shard_.alone() ? Held{{0, view.slices}, {{{0, rows}}}} : HeldOf(spec_.recipe, shard_, binding.role, binding.layer);
    w.all_slices = view.slices;
    if (w.held.empty()) {
      view = {.dtype = w.vector() || w.ragged() ? DType::kF32 : w.stored_dtype(),
              .layout = view.layout,
              .slices = 0,
              .cols = view.cols};
      plan_.not_held.push_back({w.role, w.layer, view});
      return {};
    }
    if (w.held.rows.size() > 1 && w.striped_outputs()) return InternalError(name + " cannot be divided as it is stored");
    if (!w.scales.empty()) {
      const uint64_t element = GetDTypeInfo(w.scales[0]->dtype).block_bytes;
      view.stored_scale_bytes = HeldScales(binding, w) * element;
      view.row_scale_bytes = ScalesOfRow(binding, w.grid) * element;
    }
    TakeHeld(w);
    TALLY_RETURN_IF_ERROR(Place(name, w));
    plan_.weights.push_back(std::move(w));
    return {};
  }

  // Scales of the held rows of a slice. A scale that rows of several processes share counts for the first row.
  static uint64_t HeldScales(const TensorBinding& binding, const PlannedWeight& w) {
    if (binding.storage == Storage::kTransposedHeads) return ScalesOfSlice(binding, w.grid);
    const auto blocks = [&](int64_t rows) { return (static_cast<uint64_t>(rows) + w.grid.rows - 1) / w.grid.rows; };
    uint64_t n = 0;
    for (const HeldRows& h : w.held.rows) n += blocks(h.rows.end) - blocks(h.rows.begin);
    return n * ScalesOfRow(binding, w.grid);
  }

  // Reduces the view, its info and its sources to what is held.
  static void TakeHeld(PlannedWeight& w) {
    WeightView& view = w.view;
    const Span slices = w.taps() ? Span{0, view.slices} : w.held.slices;
    for (auto* tensors : {&w.sources, &w.scales}) {
      if (!w.source_per_slice || tensors->empty()) continue;
      *tensors = std::vector(tensors->begin() + slices.begin, tensors->begin() + slices.end);
    }
    view.slices = slices.size();
    w.info.slices = static_cast<uint32_t>(view.slices);
    (w.vector() ? view.cols : view.rows) = w.held.size();
    w.info.rows = static_cast<uint64_t>(view.rows);
    w.info.cols = static_cast<uint64_t>(view.cols);
    w.info.copied = w.info.slices * static_cast<uint64_t>(w.held.copied()) * (w.vector() ? 1 : w.info.cols);
  }

  // Rows of a stored slice: the binding's, or as stored if the binding takes only some.
  Result<uint64_t> StoredRows(const TensorBinding& binding, const StoredTensor& t) const {
    const uint64_t rows = binding.mapped_rows();
    if (binding.rows.all() || rows == 0) return rows;
    const bool striped = binding.rows.block == 1 && binding.rows.first < binding.rows.step;  // whole stripes are read
    const uint64_t held = binding.StoredRows(t.shape);
    const uint64_t needed = striped ? rows * binding.rows.step : binding.rows.Stored(rows - 1) + 1;
    if (held >= needed) return held;
    return At(t, "has shape " + ShapeText(t.shape) + ", expected at least " + ShapeText(binding.StoredShape(needed)));
  }

  // Finds the sources, their types and shapes.
  Status FindSources(const TensorBinding& binding, const std::string& name, PlannedWeight& w) const {
    const bool vector = binding.vector(), transposed = w.transposed();
    const bool row_major = w.view.layout == WeightLayout::kRowMajor, some_rows = !w.rows.all();
    const bool columns_can_be_taken = w.rows.block >= binding.mapped_rows() || w.striped_outputs();
    if (((transposed || w.split) && (vector || row_major)) || (transposed && w.split) || (IsComputed(w.storage) && !vector) ||
        (w.taps() != FactsOf(binding.role).taps) || (some_rows && (row_major || w.rows.step < w.rows.block)) ||
        (some_rows && transposed && !columns_can_be_taken) || (some_rows && !w.split && binding.names.size() > 1)) {
      return InternalError(name + " cannot be stored as its binding says");
    }
    if (w.split) return FindSplit(binding, name, w);

    w.stored_rows = binding.mapped_rows();
    std::vector<uint64_t> shape = binding.StoredShape(w.stored_rows);
    if (binding.names.size() > 1) {  // one tensor per expert
      if (binding.names.size() != static_cast<uint64_t>(w.view.slices)) {
        return InternalError(name + " has " + std::to_string(w.view.slices) + " slices but is bound to " +
                             std::to_string(binding.names.size()) + " tensors");
      }
      shape.erase(shape.begin());
    }
    for (const std::string& tensor : binding.names) {
      TALLY_ASSIGN_OR_RETURN(const StoredTensor* t, Find(binding, tensor));
      if (some_rows) {
        TALLY_ASSIGN_OR_RETURN(w.stored_rows, StoredRows(binding, *t));
        shape = binding.StoredShape(w.stored_rows);
      }
      if (binding.scales.empty()) {
        TALLY_RETURN_IF_ERROR(vector ? CheckVectorType(*t) : CheckMatrixType(*t, w.storage));
      } else {
        TALLY_RETURN_IF_ERROR(FindScales(binding, *t, w));
      }
      TALLY_RETURN_IF_ERROR(Check(*t, shape));
      if (!w.sources.empty() && t->dtype != w.sources[0]->dtype) {
        return At(*t, "has type " + std::string(DTypeName(t->dtype)) + ", but " + Quote(w.sources[0]->name) + " has " +
                          std::string(DTypeName(w.sources[0]->dtype)));
      }
      w.sources.push_back(t);
    }
    return {};
  }

  // Finds the scales of F8_E4M3 codes.
  Status FindScales(const TensorBinding& binding, const StoredTensor& codes, PlannedWeight& w) const {
    if (binding.scales.size() != binding.names.size() || binding.vector() || w.storage == Storage::kTransposed) {
      return InternalError(WeightName(binding.role, binding.layer) + " cannot be stored as codes and scales");
    }
    if (codes.dtype != DType::kF8_E4M3) {
      return At(codes, "has type " + std::string(DTypeName(codes.dtype)) + ", expected F8_E4M3, as others of its weight have");
    }
    TALLY_ASSIGN_OR_RETURN(const StoredTensor* scales, Find(binding, binding.scales[w.sources.size()]));
    TALLY_RETURN_IF_ERROR(CheckVectorType(*scales));
    TALLY_RETURN_IF_ERROR(Check(*scales, scales->shape));
    const uint64_t cols = codes.shape.empty() ? 0 : codes.shape.back(), rows = cols == 0 ? 0 : codes.elements() / cols;
    const DTypeInfo type = GetDTypeInfo(DType::kFP8);
    if (cols == 0 || (cols % type.block_size != 0 && w.transposed())) return NoWholeBlocks(codes, {rows, cols}, type);
    const auto grid = FindScaleGrid(scales->shape, rows, cols);
    if (!grid) {
      return At(*scales, "has shape " + ShapeText(scales->shape) + ", expected a scale for all, for each of " +
                             std::to_string(rows) + " rows, or for each 128 x 128 of " + ShapeText(codes.shape));
    }
    if (!w.scales.empty() && (grid->rows != w.grid.rows || grid->cols != w.grid.cols || scales->dtype != w.scales[0]->dtype)) {
      return At(*scales, "scales otherwise than " + Quote(w.scales[0]->name));
    }
    w.grid = *grid;
    w.scales.push_back(scales);
    return {};
  }

  Status FindSplit(const TensorBinding& binding, const std::string& name, PlannedWeight& w) const {
    if (binding.names.size() != 2) return InternalError(name + " needs a tensor of blocks and one of scales");
    TALLY_ASSIGN_OR_RETURN(const StoredTensor* blocks, Find(binding, binding.names[0]));
    TALLY_ASSIGN_OR_RETURN(const StoredTensor* scales, Find(binding, binding.names[1]));
    const DTypeInfo type = GetDTypeInfo(*w.split);
    for (const StoredTensor* t : {blocks, scales}) {
      if (t->dtype == DType::kU8) continue;
      return At(*t, "has type " + std::string(DTypeName(t->dtype)) + ", expected U8 (" + std::string(type.name) + ")");
    }
    TALLY_ASSIGN_OR_RETURN(w.stored_rows, StoredRows(binding, *scales));
    std::vector<uint64_t> shape = binding.shape;
    shape[binding.row_dimension()] = w.stored_rows;
    if (shape.back() % type.block_size != 0) return NoWholeBlocks(*blocks, shape, type);
    shape.back() /= type.block_size;
    TALLY_RETURN_IF_ERROR(Check(*scales, shape));
    shape.push_back(type.block_bytes - 1);
    TALLY_RETURN_IF_ERROR(Check(*blocks, shape));
    w.sources = {blocks, scales};
    return {};
  }

  // Sets packed sizes, the place in the arena, and the sizes in `info`.
  Status Place(const std::string& name, PlannedWeight& w) {
    WeightView& view = w.view;
    const uint64_t rows = static_cast<uint64_t>(view.rows), cols = static_cast<uint64_t>(view.cols);
    const uint64_t slices = static_cast<uint64_t>(view.slices);
    const DTypeInfo stored = GetDTypeInfo(w.stored_dtype());
    const std::optional<uint64_t> row_bytes = CheckedMul(cols, stored.block_bytes);
    if (!row_bytes || (w.scales.empty() && *row_bytes % stored.block_size != 0) || cols > (uint64_t{1} << 48)) {
      return InternalError(name + " has rows that cannot be packed");
    }
    view.stored_row_bytes = w.scales.empty() ? *row_bytes / stored.block_size : cols;
    view.dtype = w.vector() || w.ragged() || (w.transposed() && stored.quantised) ? DType::kF32 : w.stored_dtype();
    uint64_t count = 1;
    switch (view.layout) {
      case WeightLayout::kVector: view.panel_stride = cols * sizeof(float); break;
      case WeightLayout::kRowMajor: view.panel_stride = view.stored_row_bytes, count = rows; break;
      case WeightLayout::kPanel16:
        view.panel_stride = PanelBytes(view.dtype, view.cols), count = DivCeil(rows, kPanelRows);
        break;
    }
    const std::optional<uint64_t> slice = CheckedMul(view.panel_stride, count);
    const uint64_t page = guard_ > 0 ? guard_ : kWeightPage;
    const std::optional<uint64_t> room = slice ? CheckedAdd(*slice, page - 1 + guard_) : std::nullopt;
    const std::optional<uint64_t> all = room ? CheckedMul(*room / page * page, slices) : std::nullopt;
    w.streamed = InRecords(w.role) ? streamed_.experts : !w.vector() && streamed_.layers.contains(w.layer);
    const std::optional<uint64_t> arena = all ? CheckedAdd(plan_.arena_bytes, w.streamed ? 0 : *all) : std::nullopt;
    if (!arena) return BadInput(inventory_.path + ": " + name + " is too large for any machine");
    view.id = static_cast<WeightId>(plan_.weights.size());
    view.slice_stride = *room / page * page;
    w.slice_bytes = *slice;
    w.lead = guard_ > 0 ? view.slice_stride - guard_ - *slice : 0;
    w.arena_offset = plan_.arena_bytes + w.lead;
    plan_.arena_bytes = *arena;
    if (!w.streamed) plan_.guard_bytes += slices * guard_;

    w.info.stored_bytes = slices * (rows * view.stored_row_bytes + view.stored_scale_bytes);
    w.info.scale_bytes = slices * view.stored_scale_bytes;
    w.info.row_scale_bytes = view.row_scale_bytes;
    w.info.packed_bytes = slices * *slice;
    return {};
  }

  const Inventory& inventory_;
  const ModelSpec& spec_;
  const uint64_t guard_;
  const Shard shard_;
  const StreamedWeights& streamed_;
  WeightPlan plan_;
};

}  // namespace

WeightLayout LayoutFor(Role role, const Recipe& recipe) {
  if (FactsOf(role).vector) return WeightLayout::kVector;
  if (role == Role::kPositionEmbedding || role == Role::kLayerEmbedding) return WeightLayout::kRowMajor;
  if (role == Role::kTokenEmbedding && !recipe.tied_head) return WeightLayout::kRowMajor;
  return WeightLayout::kPanel16;
}

WeightView WeightPlan::View(Role role, int32_t layer) const {
  if (role == Role::kHead && tied_head) role = Role::kTokenEmbedding;
  const auto found = std::ranges::find_if(weights, [&](const PlannedWeight& w) { return w.role == role && w.layer == layer; });
  if (found != weights.end()) return found->view;
  const auto at = std::ranges::find_if(not_held, [&](const NotHeld& w) { return w.role == role && w.layer == layer; });
  return at == not_held.end() ? WeightView() : at->view;
}

// Versions of transformers differ: those before 5 run the embedding in the head's place, later ones the stored head.
Status HeadDiffers(const std::string& file, const StoredTensor& head, const StoredTensor& embedding) {
  return BadInput(file + ": tensor " + Quote(head.name) + " differs from " + Quote(embedding.name) +
                  ", yet tie_word_embeddings is true: set it to false to use the stored head, or remove the tensor");
}

bool InRecords(Role role) { return role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown; }

Result<WeightPlan> PlanWeights(const Inventory& inventory, const ModelSpec& spec, uint64_t guard_page, const Shard& shard,
                               const StreamedWeights& streamed) {
  return Planner(inventory, spec, guard_page, shard, streamed).Plan();
}

}  // namespace tally
