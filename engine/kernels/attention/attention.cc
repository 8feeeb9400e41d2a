// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/attention/attention.h"

#include <cmath>
#include <string>

#include "engine/kernels/attention/attention_internal.h"
#include "engine/kernels/attention/attention_ref.h"
#include "engine/kernels/describe.h"
#include "engine/kernels/kv_store/kv_q8_0-inl.h"
#include "engine/kernels/kv_store/kv_rows.h"
#include "engine/kernels/validate.h"

namespace tally {

Status AttentionOp::Validate() const {
  if (heads < 1 || layout.kv_heads < 1 || layout.k_dim < 1 || layout.v_dim < 1 || heads % layout.kv_heads != 0) {
    return InternalError(std::to_string(heads) + " heads of " + std::to_string(layout.k_dim) + " on " +
                         std::to_string(layout.kv_heads) + " KV heads: expected all at least 1 and heads a multiple of KV heads");
  }
  if (window < 0 || chunk < 0)
    return InternalError("window " + std::to_string(window) + ", chunk " + std::to_string(chunk) + "; expected 0 (none) or more");
  if (!std::isfinite(softcap) || softcap < 0) return InternalError("the soft cap is not a number >= 0");
  if (!slopes.empty() && slopes.size() != static_cast<size_t>(heads)) return InternalError("slopes are not one for each head");
  const int64_t n = static_cast<int64_t>(rows.size());
  TALLY_RETURN_IF_ERROR(CheckShape("q", q, n, heads * layout.k_dim));
  TALLY_RETURN_IF_ERROR(CheckShape("out", out, n, heads * layout.v_dim));
  if (!sinks.empty() && (sinks.dtype != DType::kF32 || sinks.layout != WeightLayout::kVector || sinks.cols != heads)) {
    return InternalError("sinks hold " + std::to_string(sinks.cols) + " elements of " + std::string(DTypeName(sinks.dtype)) +
                         "; expected a vector of " + std::to_string(heads) + " F32");
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    TALLY_RETURN_IF_ERROR(CheckRow(rows[i], i, tables));
    const PositionRange visible = VisiblePositions(*this, rows[i]);
    if (visible.end > tables[rows[i].table].count * kKvBlock) {
      return InternalError("row " + std::to_string(i) + " sees " + std::to_string(visible.end) +
                           " positions, its sequence's table holds " + std::to_string(tables[rows[i].table].count * kKvBlock));
    }
    if (partials.data != nullptr && visible.end > partials.ranges * kRangePositions) {
      return InternalError("row " + std::to_string(i) + " is at position " + std::to_string(rows[i].position) +
                           ", and there is room for " + std::to_string(partials.ranges) + " ranges");
    }
    // A row that continues the previous one sees nothing before what that one sees.
    const bool continues = i > 0 && rows[i].table == rows[i - 1].table && rows[i].position == rows[i - 1].position + 1;
    int64_t block = (continues ? int64_t{rows[i].position} : visible.begin) / kKvBlock;
    for (; block * kKvBlock < visible.end; ++block) {
      if (tables[rows[i].table].blocks[block] == nullptr) return MissingBlock(i, block);
    }
  }
  return {};
}

namespace {

void AddSinkBytes(const AttentionOp& op, const CostAmounts& n, Cost& cost) {
  if (op.sinks.empty()) return;
  cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * op.sinks.stored_row_bytes);
  cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * static_cast<uint64_t>(op.heads) * sizeof(float));
}

void AddActivationBytes(const AttentionOp& op, const CostAmounts& n, Cost& cost) {
  const uint64_t head_bytes = n[Amount::kRows] * static_cast<uint64_t>(op.heads) * sizeof(float);
  cost.AddBytes(ByteKind::kActivationsRead, head_bytes * op.layout.k_dim);
  cost.AddBytes(ByteKind::kActivationsWritten, head_bytes * op.layout.v_dim);
}

// Soft cap and slopes of `scores` scores.
void AddScoreRules(const AttentionOp& op, uint64_t scores, Cost& cost) {
  cost.AddFlops(WorkClass::kSoftmax, ((op.softcap != 0 ? 2 : 0) + (op.slopes.empty() ? 0 : 2)) * scores);
  cost.AddSpecial(WorkClass::kSoftmax, op.softcap != 0 ? scores : 0);
}

void AddRow(const AttentionOp& op, const KvRow& row, CostAmounts& n) {
  const PositionRange visible = VisiblePositions(op, row);
  ++n[Amount::kRows];
  n[Amount::kVisible] += static_cast<uint64_t>(visible.size());
  const int64_t group = OnTiles(op.layout) ? kTileStep : 16;
  n[Amount::kLanes] += static_cast<uint64_t>(group * PiecesTouched(visible, group));
  n[Amount::kJoins] += static_cast<uint64_t>(PiecesTouched(visible, kKvBlock)) - 1;
  n[Amount::kRanges] += static_cast<uint64_t>(PiecesTouched(visible, kRangePositions));
}

// Merging one block or range: 1 compare, 1 subtract, 1 exp, 3 FLOPs for the sum, 3 dim for the output.
void AddJoins(uint64_t joins, int64_t dim, Cost& cost) {
  cost.AddFlops(WorkClass::kSoftmax, joins * (5 + 3 * dim));
  cost.AddSpecial(WorkClass::kSoftmax, joins);
}

}  // namespace

CostAmounts AttentionOp::Amounts() const {
  CostAmounts n;
  n[Amount::kCalls] = rows.empty() ? 0 : 1;
  for (const KvRow& row : rows) AddRow(*this, row, n);
  return n;
}

void AttentionOp::AddRowAmounts(std::span<const uint32_t> groups, std::span<CostAmounts> amounts) const {
  for (size_t i = 0; i < rows.size(); ++i) AddRow(*this, rows[i], amounts[groups[i]]);
}

Cost AttentionOp::Useful(const CostAmounts& n) const {
  Cost cost;
  const uint64_t scores = n[Amount::kVisible], queries = n[Amount::kRows] * heads, sunk = sinks.empty() ? 0 : queries;
  cost.AddFlops(WorkClass::kAttention, 2 * scores * heads * layout.k_dim, layout.KeyArith());
  cost.AddFlops(WorkClass::kAttention, 2 * scores * heads * layout.v_dim, layout.ValueArith());
  cost.AddFlops(WorkClass::kSoftmax, 4 * scores * heads + 3 * sunk);
  AddScoreRules(*this, scores * heads, cost);
  cost.AddSpecial(WorkClass::kSoftmax, scores * heads + queries * layout.v_dim + sunk);
  cost.AddBytes(ByteKind::kKvRead, scores * layout.PositionBytes());
  AddActivationBytes(*this, n, cost);
  AddSinkBytes(*this, n, cost);
  return cost;
}

void AttentionOp::Touches(WeightTouches& touches) const {
  if (!sinks.empty() && !rows.empty()) touches.push_back({sinks.id, 0, 0, 1});
}

// Scores and softmax are computed for whole groups of 16 positions; p.v over the padded v_dim, in f32 for visible positions, in bf16
// for whole groups. An odd k_dim has a zero beside it in bf16, blocks of 32 are whole in int8. Per block, the reductions of the maximum
// and of the sum over 16 lanes take 15 FLOPs each. int8: q is rounded (3 FLOPs an element with its sum, a product and two divides a
// block of 32), sums are scaled (3 FLOPs), and values cost a product an element to widen; it is counted as if each row were alone
// (rows of a tile share it), and as if each row of q were rounded once (slices of a split row repeat it).
// On matrix tiles each product is done once, or kSplitProducts times, in bf16, over whole steps of 32 positions. It is counted as if each
// row were alone (a chunk of queries also multiplies the steps that only others of it see). Splitting takes a subtraction an element of q,
// of the probabilities, and of keys and values; q8_0 is scaled by a multiply-add an element, and a scale is multiplied in every lane of its
// vector: two of a key's, of a value's eight a position.
Cost ExecutedAttentionHwy(const AttentionOp& op, const CostAmounts& n) {
  Cost cost;
  const KvLayout& layout = op.layout;
  const uint64_t padded = KvPadded(layout.v_dim), heads = op.heads;
  const uint64_t scores = n[Amount::kVisible], lanes = n[Amount::kLanes],
                 blocks = n[Amount::kRows] + n[Amount::kJoins];  // of one query head
  const uint64_t queries = n[Amount::kRows] * heads, sunk = op.sinks.empty() ? 0 : queries;
  const Arith keys = layout.KeyArith(), values = layout.ValueArith();
  const uint64_t step = keys == Arith::kInt8   ? kKvQ8Block
                        : keys == Arith::kBF16 ? 2
                                               : 1,
                 steps = (static_cast<uint64_t>(layout.k_dim) + step - 1) / step,  // of a key
      positions = values == Arith::kBF16 || OnTiles(layout) ? lanes : scores;
  if (OnTiles(layout)) {
    const bool split = keys == Arith::kF32;
    const uint64_t dims = static_cast<uint64_t>(layout.k_dim + layout.v_dim), tasks = static_cast<uint64_t>(HeadTasks(op));
    cost.AddFlops(WorkClass::kAttention, (split ? kSplitProducts : 1) * 2 * heads * lanes * dims, Arith::kBF16);
    if (split) cost.AddFlops(WorkClass::kQuantize, queries * layout.k_dim + lanes * (heads + tasks * dims));
    if (keys == Arith::kInt8) {
      const int64_t scales = 2 * KvQ8Blocks(layout.k_dim) + 8 * KvQ8Blocks(layout.v_dim);
      cost.AddFlops(WorkClass::kQuantize, tasks * lanes * (2 * dims + static_cast<uint64_t>(scales)));
    }
  } else {
    cost.AddFlops(WorkClass::kAttention, 2 * heads * lanes * steps * step, keys);
    cost.AddFlops(WorkClass::kAttention, 2 * heads * positions * padded, values);
  }
  cost.AddFlops(WorkClass::kSoftmax, heads * (4 * lanes + 2 * 15 * blocks) + 3 * sunk);
  cost.AddSpecial(WorkClass::kSoftmax, lanes * heads + queries * padded + sunk);
  AddScoreRules(op, lanes * heads, cost);
  AddJoins((blocks + n[Amount::kRanges]) * heads, padded, cost);
  cost.AddBytes(ByteKind::kKvRead, layout.kv_heads * (lanes * layout.KeyBytes() + positions * layout.PaddedValueBytes()));
  if (keys == Arith::kInt8 && !OnTiles(layout)) {
    const uint64_t tasks = static_cast<uint64_t>(layout.kv_heads * TasksPerKvHead(op));
    cost.AddFlops(WorkClass::kQuantize, queries * (3 * static_cast<uint64_t>(layout.k_dim) + steps));
    cost.AddSpecial(WorkClass::kQuantize, 2 * queries * steps);
    cost.AddFlops(WorkClass::kQuantize, 3 * heads * lanes * steps + tasks * lanes * padded);
  }
  AddActivationBytes(op, n, cost);
  AddSinkBytes(op, n, cost);
  return cost;
}

namespace {

const char* AlwaysSupported(const AttentionOp&) { return nullptr; }

// One task for each row and query head.
TaskPlan PlanRef(const AttentionOp& op, int) {
  return {static_cast<int64_t>(op.rows.size()) * op.heads, 1, 3 * static_cast<size_t>(op.layout.v_dim) * sizeof(float)};
}
void RunRef(const AttentionOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  float* o = reinterpret_cast<float*>(scratch.data());
  for (int64_t t = begin; t < end; ++t) {
    AttendReference<float, float, float, float>(op, t / op.heads, t % op.heads, o, o + op.layout.v_dim);
  }
}
// The reference does not merge the first block of a range, and not the first range if there is no sink.
Cost ExecutedRef(const AttentionOp& op, const CostAmounts& n) {
  Cost cost = op.Useful(n);
  if (op.layout.KeyArith() == Arith::kInt8) {
    const uint64_t blocks = KvQ8Blocks(op.layout.k_dim), heads = op.heads;
    cost.AddFlops(WorkClass::kQuantize,
                  2 * n[Amount::kRows] * heads * op.layout.k_dim + 3 * n[Amount::kVisible] * heads * blocks);
    cost.AddSpecial(WorkClass::kQuantize, 2 * n[Amount::kRows] * heads * blocks);
  }
  AddJoins((n[Amount::kJoins] + (op.sinks.empty() ? 0 : n[Amount::kRows])) * op.heads, op.layout.v_dim, cost);
  return cost;
}

constexpr Kernel<AttentionOp> kKernels[] = {
    {"hwy", AlwaysSupported, PlanAttentionHwy, RunAttentionHwy, ExecutedAttentionHwy},
    {"ref", AlwaysSupported, PlanRef, RunRef, ExecutedRef},
};

}  // namespace

void AttentionOp::Describe(OpDescription& d) const {
  d.Add("q", kIn, "f32", Shape(q));
  d.Add("cache", OperandRole::kCache, NameOf(kKvTypeNames, layout.type), {layout.kv_heads, layout.k_dim, layout.v_dim});
  DescribeWeight("sinks", sinks, d);
  d.Add("out", kOut, "f32", Shape(out));
  d.Set("heads", heads);
  d.Set("scale", static_cast<double>(scale));
  d.Set("window", window);
  d.Set("chunk", chunk);
  if (both_ways != BothWays::kWhole) d.Set("span", NameOf(kBothWaysNames, both_ways));
  d.Set("softcap", static_cast<double>(softcap));
  d.Set("alibi", slopes.empty() ? "no" : "yes");
  DescribeRows(rows, d);
}

template <>
std::span<const Kernel<AttentionOp>> Kernels<AttentionOp>() {
  return kKernels;
}

std::array<double, kAriths> AttentionByType(const Cost& useful, const Cost& executed) {
  const auto flops = [](const Cost& cost, int arith) {
    return static_cast<double>(cost.Flops(WorkClass::kAttention, static_cast<Arith>(arith)));
  };
  std::array<double, kAriths> by_type{}, share{};
  double all = 0, products = 0;
  for (int a = 0; a < kAriths; ++a) all += by_type[static_cast<size_t>(a)] = flops(useful, a);
  // Of f32's products those that were executed in bf16 were executed so many times.
  const double split = flops(useful, static_cast<int>(Arith::kF32)) > 0 ? double{kSplitProducts} : 1;
  for (int a = 0; a < kAriths; ++a) {
    products += share[static_cast<size_t>(a)] = flops(executed, a) / (a == static_cast<int>(Arith::kBF16) ? split : 1);
  }
  if (products == 0) return by_type;
  for (size_t a = 0; a < kAriths; ++a) by_type[a] = all * share[a] / products;
  by_type[static_cast<size_t>(Arith::kBF16)] *= split;
  return by_type;
}

}  // namespace tally
