// What the ops say of themselves: operands with shapes as the kernels take them, and the parameters that decide what is done.
#include <initializer_list>

#include "engine/kernels/attention/attention.h"
#include "engine/kernels/embed.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"

namespace tally {
namespace {

constexpr OperandRole kIn = OperandRole::kInput, kOut = OperandRole::kOutput, kInOut = OperandRole::kInOut;

template <class Names, class Kind>
std::string_view NameOf(const Names& names, Kind kind) {
  return names[static_cast<size_t>(kind)];
}

template <class T>
std::vector<int64_t> Shape(const Mat<T>& m) {
  return {m.rows, m.cols};
}

template <class T>
int64_t Size(std::span<T> s) {
  return static_cast<int64_t>(s.size());
}

std::vector<int64_t> List(std::span<const int32_t> values) { return {values.begin(), values.end()}; }

// [slice, rows] of each group, one after another.
std::vector<int64_t> Groups(const ActPack& x) {
  std::vector<int64_t> list;
  for (const RowGroup& g : x.groups) list.insert(list.end(), {g.slice, g.rows});
  return list;
}

void DescribePack(const ActPack& x, OperandRole role, std::string_view name, OpDescription& d) {
  d.Add(name, role, NameOf(kActKindNames, x.format.kind), {x.rows, x.cols});
  d.Set("groups", Groups(x));
}

// [table, position] of each row, one after another.
void DescribeRows(std::span<const KvRow> rows, OpDescription& d) {
  std::vector<int64_t> list;
  for (const KvRow& r : rows) list.insert(list.end(), {r.table, r.position});
  d.Set("rows", std::move(list));
}

// Nothing where the op has no such weight.
void DescribeWeight(std::string_view name, const WeightView& w, OpDescription& d) {
  if (w.empty()) return;
  if (w.layout == WeightLayout::kVector) {
    d.Add(name, OperandRole::kWeight, DTypeName(w.dtype), {w.slices, w.cols}, w.id);
  } else {
    d.Add(name, OperandRole::kWeight, DTypeName(w.dtype), {w.slices, w.rows, w.cols}, w.id);
  }
}

}  // namespace

void EmbedOp::Describe(OpDescription& d) const {
  d.Add("ids", kIn, "i32", {Size(ids)});
  DescribeWeight("table", table, d);
  d.Add("out", add_to_out ? kInOut : kOut, "f32", Shape(out));
  d.Set("layout", table.layout == WeightLayout::kPanel16 ? "panel16" : "row_major");
  d.Set("ids", List(ids));
}

void NormOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  DescribeWeight("weight", weight, d);
  DescribeWeight("bias", bias, d);
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("kind", NameOf(kNormKindNames, kind));
  d.Set("groups", groups);
  d.Set("eps", static_cast<double>(eps));
}

void PackActOp::Describe(OpDescription& d) const {
  d.Add("x", kIn, "f32", Shape(x));
  DescribePack(pack, kOut, "pack", d);
  d.Set("offset", int64_t{pack.format.offset});
  d.Set("scale_mul", static_cast<double>(pack.format.scale_mul));
  if (!row_index.empty()) d.Set("row_index", List(row_index));
}

void MatMulOp::Describe(OpDescription& d) const {
  DescribePack(x, kIn, "x", d);
  DescribeWeight("w", w, d);
  DescribeWeight("bias", bias, d);
  d.Add("out", add_to_out ? kInOut : kOut, "f32", {x.rows, w.rows});
  d.Set("activation", NameOf(kActivationKindNames, activation));
  d.Set("work_class", NameOf(kWorkClassNames, work_class));
  if (!out_row.empty()) d.Set("out_row", List(out_row));
}

void GatedMatMulOp::Describe(OpDescription& d) const {
  DescribePack(x, kIn, "x", d);
  DescribeWeight("gate", gate, d);
  DescribeWeight("up", up, d);
  DescribeWeight("gate_bias", gate_bias, d);
  DescribeWeight("up_bias", up_bias, d);
  d.Add("out", kOut, "f32", {x.rows, gate.rows});
  d.Set("activation", NameOf(kActivationKindNames, activation));
  d.Set("swiglu_alpha", static_cast<double>(swiglu_alpha));
  d.Set("swiglu_limit", static_cast<double>(swiglu_limit));
}

void RopeTableOp::Describe(OpDescription& d) const {
  d.Add("positions", kIn, "i32", {Size(positions)});
  d.Add("inv_freq", kIn, "f32", {Size(inv_freq)});
  d.Add("cos", kOut, "f32", Shape(cos));
  d.Add("sin", kOut, "f32", Shape(sin));
  d.Set("magnitude", static_cast<double>(magnitude));
  d.Set("positions", List(positions));
}

void RopeOp::Describe(OpDescription& d) const {
  d.Add("x", kInOut, "f32", Shape(x));
  d.Add("cos", kIn, "f32", Shape(cos));
  d.Add("sin", kIn, "f32", Shape(sin));
  d.Set("style", NameOf(kRopeStyleNames, style));
  d.Set("heads", heads);
  d.Set("head_dim", head_dim);
  d.Set("dim", dim);
}

void KvStoreOp::Describe(OpDescription& d) const {
  d.Add("k", kIn, "f32", Shape(k));
  d.Add("v", kIn, "f32", Shape(v));
  d.Add("cache", OperandRole::kCache, NameOf(kKvTypeNames, layout.type),
        {layout.kv_heads, layout.k_dim, layout.v_dim});  // of one position
  DescribeRows(rows, d);
}

void AttentionOp::Describe(OpDescription& d) const {
  d.Add("q", kIn, "f32", Shape(q));
  d.Add("cache", OperandRole::kCache, NameOf(kKvTypeNames, layout.type), {layout.kv_heads, layout.k_dim, layout.v_dim});
  DescribeWeight("sinks", sinks, d);
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("heads", heads);
  d.Set("scale", static_cast<double>(scale));
  d.Set("window", window);
  DescribeRows(rows, d);
}

void RouteOp::Describe(OpDescription& d) const {
  d.Add("logits", kIn, "f32", Shape(logits));
  d.Add("experts", kOut, "i32", Shape(experts));
  d.Add("weights", kOut, "f32", Shape(weights));
  d.Set("rule", NameOf(kRoutingRuleNames, rule));
}

void MoeCombineOp::Describe(OpDescription& d) const {
  d.Add("y", kIn, "f32", Shape(y));
  d.Add("weights", kIn, "f32", Shape(weights));
  d.Add("out", kInOut, "f32", Shape(out));
}

}  // namespace tally
