// What the costs of an op depend on. Weights stand for their shapes and types; rows that are alike for all ops are only counted.
#include "engine/kernels/attention/attention.h"
#include "engine/kernels/embed.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"

namespace tally {
namespace {

uint64_t Id(const WeightView& w) { return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(w.data)); }
uint64_t U(int64_t n) { return static_cast<uint64_t>(n); }
// Small numbers, 16 bits each.
template <class... N>
uint64_t Flags(N... n) {
  uint64_t flags = 0;
  ((flags = flags << 16 | static_cast<uint64_t>(n)), ...);
  return flags;
}

}  // namespace

bool EmbedOp::CostKey(OpKey& key) const {
  if (ids.size() != 1) return false;  // which rows are the same
  key = {Id(table), Flags(add_to_out)};
  return true;
}

bool NormOp::CostKey(OpKey& key) const {
  key = {Id(weight), Id(bias), U(weight.cols), U(x.rows), U(groups), Flags(kind)};
  return true;
}

bool PackActOp::CostKey(OpKey& key) const {
  key = {U(pack.rows), U(pack.cols), Flags(pack.format.kind, pack.format.offset != 0, pack.format.sums)};
  return true;
}

bool MatMulOp::CostKey(OpKey& key) const {
  key = {Id(w),     Id(bias),           U(w.rows) << 32 | U(w.cols),
         U(x.rows), U(ActiveGroups(x)), Flags(x.format.kind, activation, add_to_out, work_class)};
  return true;
}

bool GatedMatMulOp::CostKey(OpKey& key) const {
  key = {Id(gate),
         Id(up),
         Id(gate_bias),
         Id(up_bias),
         U(gate.rows) << 32 | U(gate.cols),
         U(x.rows) << 32 | U(ActiveGroups(x)),
         Flags(x.format.kind, activation)};
  return true;
}

bool RopeTableOp::CostKey(OpKey& key) const {
  key = {positions.size(), inv_freq.size(), U(cos.cols)};
  return true;
}

bool RopeOp::CostKey(OpKey& key) const {
  key = {U(x.rows), U(heads), U(head_dim), U(dim)};
  return true;
}

bool KvStoreOp::CostKey(OpKey& key) const {
  key = {rows.size(), U(kv_heads), U(head_dim), Flags(type)};
  return true;
}

bool AttentionOp::CostKey(OpKey& key) const {
  key = {Id(sinks), U(heads), U(kv_heads), U(head_dim), Flags(type, rows.empty())};
  return true;
}

bool RouteOp::CostKey(OpKey& key) const {
  key = {U(logits.rows), U(logits.cols), U(top_k), Flags(rule)};
  return true;
}

bool MoeCombineOp::CostKey(OpKey& key) const {
  key = {U(out.rows), U(out.cols), U(weights.cols)};
  return true;
}

}  // namespace tally
