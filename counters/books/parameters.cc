// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "counters/books/weight_table.h"

namespace tally::books {
namespace {

// Adds the scales of FP8 codes that are stored in `t`.
void AddScales(const TensorBinding& b, const StoredTensor& t, const StoredTensor* scales, WeightInfo& w) {
  if (scales == nullptr || t.shape.empty() || t.shape.back() == 0) return;
  const auto grid = FindScaleGrid(scales->shape, t.elements() / t.shape.back(), t.shape.back());
  if (!grid) return;
  const uint64_t slices = b.names.size() > 1 ? 1 : w.slices, element = GetDTypeInfo(scales->dtype).block_bytes;
  const uint64_t bytes = slices * ScalesOfSlice(b, *grid) * element;
  w.stored_bytes += bytes;
  w.scale_bytes += bytes;
  w.row_scale_bytes = ScalesOfRow(b, *grid) * element;
}

bool IsLearned(const TensorBinding& b) { return FactsOf(b.role).kind != WeightInfo::Kind::kBuffer && !b.names.empty(); }

// Adds `all` parameters of which one token activates `active`.
void Add(ParameterCounts& counts, WeightInfo::Kind kind, uint64_t all, uint64_t active) {
  using Kind = WeightInfo::Kind;
  const bool head = kind == Kind::kHead || kind == Kind::kTiedEmbeddingHead;
  counts.total += all;
  counts.active_all += active;
  if (kind == Kind::kBlock || head) counts.active_head += active;
  if (kind == Kind::kBlock) counts.active_none += active;
}

}  // namespace

std::vector<WeightInfo> WeightTable(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<WeightInfo> table;
  table.reserve(spec.bindings.size());
  for (const TensorBinding& b : spec.bindings) {
    if (!IsLearned(b)) continue;
    WeightInfo w = WeightInfoOf(b, spec.stack_of(b.layer));
    for (size_t i = 0; i < b.names.size(); ++i) {
      const StoredTensor* t = inventory.Find(b.names[i]);
      if (t == nullptr) continue;
      if (!b.scales.empty()) AddScales(b, *t, inventory.Find(b.scales[i]), w);
      // All rows of a tensor have the same number of bytes. The blocks of a split weight have one dimension more.
      const std::span<const uint64_t> shape = b.split ? std::span(t->shape).first(b.shape.size()) : t->shape;
      w.stored_bytes += b.rows.all() ? t->bytes : t->bytes / b.StoredRows(shape) * b.mapped_rows();
    }
    table.push_back(std::move(w));
  }
  return table;
}

std::vector<DType> WeightTypes(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<DType> types;
  for (const TensorBinding& b : spec.bindings) {
    if (!IsLearned(b)) continue;
    const StoredTensor* t = inventory.Find(b.names.front());
    types.push_back(b.type(t != nullptr ? t->dtype : DType::kF32));
  }
  return types;
}

NotRun CountNotRun(const Inventory& inventory, const ModelSpec& spec) {
  NotRun all;
  for (const std::string& name : spec.not_run) {
    const StoredTensor* t = inventory.Find(name);
    if (t == nullptr) continue;
    const bool number = t->dtype != DType::kI64 && t->dtype != DType::kI32 && t->dtype != DType::kBOOL;
    const bool learned = number && !inventory.HoldsScales(*t);
    ++all.tensors;
    all.parameters += learned ? t->elements() : 0;
    all.bytes += t->bytes;
    if (name != spec.stored_head) continue;
    all.head = name;
    all.head_parameters = t->elements();
    all.head_bytes = t->bytes;
  }
  for (const PartNotRun& part : spec.parts_not_run) all.names += (all.names.empty() ? "" : ", ") + part.name;
  return all;
}

ParameterCounts CountParameters(std::span<const WeightInfo> weights, int32_t top_k) {
  ParameterCounts counts;
  for (const WeightInfo& w : weights) {
    if (w.kind == WeightInfo::Kind::kBuffer) continue;
    const uint64_t slice = w.rows * w.cols;
    const uint64_t active = w.experts ? static_cast<uint64_t>(top_k) : w.slices;
    Add(counts, w.kind, w.slices * slice, active * slice);
  }
  return counts;
}

ParameterCounts ClosedFormCounts(const Recipe& r) {
  ParameterCounts counts;
  for (const ParameterForm& p : ParameterForms(r)) {
    if (!p.apart()) Add(counts, p.kind, p.count.value(), p.active.value());
  }
  return counts;
}

}  // namespace tally::books
