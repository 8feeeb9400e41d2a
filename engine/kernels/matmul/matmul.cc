// SPDX-License-Identifier: Apache-2.0
#include "engine/kernels/matmul/matmul.h"

#include <array>

#include "engine/kernels/describe.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/math_scalar.h"
#include "engine/kernels/matmul/matmul_blas.h"
#include "engine/kernels/matmul/matmul_job.h"
#include "engine/kernels/matmul/matmul_ref.h"
#include "engine/kernels/matmul/openblas.h"
#include "engine/kernels/matmul/stream.h"
#include "engine/kernels/target.h"
#include "engine/kernels/validate.h"

namespace tally {
namespace {

Arith ArithOf(ActKind k) {
  switch (k) {
    case ActKind::kF32: return Arith::kF32;
    case ActKind::kBF16: return Arith::kBF16;
    case ActKind::kInt8: return Arith::kInt8;
  }
  return Arith::kF32;
}

Status ValidatePack(const ActPack& x) {
  if (x.data == nullptr && x.rows > 0) return InternalError("no activations");
  if (x.format.kind == ActKind::kInt8 && x.cols % kInt8Block != 0) {
    return InternalError("int8 activations need a multiple of 32 columns");
  }
  int64_t next = 0;
  for (const RowGroup& g : x.groups) {
    if (g.row_begin != next || g.rows < 0) return InternalError("row groups do not follow on");
    next += g.rows;
  }
  if (next != x.rows) return InternalError("row groups do not cover the pack");
  return {};
}

Status ValidateWeight(const ActPack& x, const WeightView& w) {
  if (w.empty()) return InternalError("no weight");
  if (w.layout != WeightLayout::kPanel16 || !IsWeightType(w.dtype)) {
    return InternalError("a " + std::string(DTypeName(w.dtype)) + " weight in this layout cannot be multiplied");
  }
  if (w.data == nullptr || w.panel_stride < PanelBytes(w.dtype, w.cols)) return InternalError("weight panels overlap");
  if (w.cols % GetDTypeInfo(w.dtype).block_size != 0) return InternalError("weight columns are no whole number of blocks");
  if (w.cols != x.cols) {
    return InternalError("weight has " + std::to_string(w.cols) + " columns, activations " + std::to_string(x.cols));
  }
  if (!TakesActivations(w.dtype, x.format.kind)) {
    return InternalError("a " + std::string(DTypeName(w.dtype)) + " weight cannot be multiplied by " +
                         std::string(kActKindNames[static_cast<size_t>(x.format.kind)]) + " activations");
  }
  if (!(x.format == ActFormatFor(w.dtype, x.format.kind))) return InternalError("activations are packed for another weight type");
  for (const RowGroup& g : x.groups) {
    if (g.slice < 0 || g.slice >= w.slices) return InternalError("row group names slice " + std::to_string(g.slice));
  }
  return {};
}

Status ValidateVector(const WeightView& v, const WeightView& w) {
  if (v.empty()) return {};
  if (v.layout != WeightLayout::kVector || v.cols != w.rows || v.slices != w.slices)
    return InternalError("bias of another shape");
  return {};
}

void AddWeightBytes(const WeightView& w, uint64_t n, Cost& c) {
  if (w.empty()) return;
  const bool vector = w.layout == WeightLayout::kVector;
  c.AddBytes(ByteKind::kWeightsStored,
             n * (w.stored_row_bytes * static_cast<uint64_t>(vector ? 1 : w.rows) + w.stored_scale_bytes));
  c.AddBytes(ByteKind::kWeightsPacked,
             n * static_cast<uint64_t>(vector ? 4 * w.cols : w.panels() * static_cast<int64_t>(w.panel_stride)));
}

void Touch(const WeightView& w, const ActPack& x, WeightTouches& touches) {
  if (w.empty()) return;
  const uint32_t rows = w.layout == WeightLayout::kVector ? 1 : static_cast<uint32_t>(w.rows);
  for (const RowGroup& g : x.groups) {
    if (g.rows == 0) continue;
    touches.push_back({w.id, static_cast<uint32_t>(g.slice), 0, rows, static_cast<uint32_t>(g.rows), g.step_rows});
  }
}

CostAmounts AmountsOf(const ActPack& x) {
  CostAmounts n = RowAmounts(x.rows);
  n[Amount::kSlices] = static_cast<uint64_t>(ActiveGroups(x));
  return n;
}

// `outputs`: outputs per row that bias, activation and residual are applied to: w.rows, or more with masked lanes.
Cost JobUseful(const MatJob& job, const CostAmounts& amounts, WorkClass cls, uint64_t outputs) {
  Cost c;
  const uint64_t n = amounts[Amount::kRows], out = n * static_cast<uint64_t>(job.w.rows);
  const uint64_t weights = job.gated ? 2 : 1;
  c.AddFlops(cls, weights * 2 * out * static_cast<uint64_t>(job.w.cols), ArithOf(job.x.format.kind));
  const uint64_t done = n * outputs;
  const uint64_t adds = (job.bias.empty() ? 0 : done) + (job.up_bias.empty() ? 0 : done) + (job.add_to_out ? done : 0);
  c.AddFlops(WorkClass::kResidualBias, adds);
  const ElementCost each = job.gated ? ActivateGatedCost(job.activation) : ActivateCost(job.activation);
  c.AddFlops(WorkClass::kActivation, each.flops * done);
  c.AddSpecial(WorkClass::kActivation, each.special * done);
  for (const WeightView* w : {&job.w, &job.up, &job.bias, &job.up_bias}) AddWeightBytes(*w, amounts[Amount::kSlices], c);
  c.AddBytes(ByteKind::kActivationsRead, n * job.x.row_bytes() + (job.add_to_out ? 4 * out : 0));
  c.AddBytes(ByteKind::kActivationsWritten, 4 * out);
  return c;
}

// Cost of a kernel that computes `lanes` output rows of a slice, padding included. `epilogue`: outputs per row that bias,
// activation and residual are applied to. `lane`: FLOPs of a lane beyond the useful ones.
Cost JobExecuted(const MatJob& job, const CostAmounts& amounts, WorkClass cls, int64_t lanes, uint64_t epilogue,
                 const ExecutedCost& lane) {
  Cost c = JobUseful(job, amounts, cls, epilogue);
  const Arith arith = ArithOf(job.x.format.kind);
  const uint64_t n = amounts[Amount::kRows], cols = static_cast<uint64_t>(job.w.cols);
  const uint64_t computed = static_cast<uint64_t>(lanes) * n,
                 useful = static_cast<uint64_t>(job.w.rows) * n * (job.gated ? 2 : 1);
  c.AddFlops(cls, 2 * cols * (computed - useful) + lane.products * computed, arith);
  c.AddFlops(WorkClass::kQuantize,
             lane.scaling * computed + lane.widening * amounts[Amount::kSlices] * static_cast<uint64_t>(lanes));
  return c;
}

ExecutedCost HwyExecuted(const MatJob& job) { return FormatOf(job.w.dtype).kernels().executed(job.x.format.kind, job.w.cols); }
ExecutedCost RefExecuted(const MatJob& job) { return FormatOf(job.w.dtype).ReferenceExecuted(job.x.format.kind, job.w.cols); }

int64_t HwyLanes(const MatJob& job) { return job.pairs() * 2 * kPanelRows; }
uint64_t HwyEpilogue(const MatJob& job) { return HwyPadded(job.w.rows, kPanelRows); }

void RunHwy(const MatJob& job, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  FormatOf(job.w.dtype).kernels().matmul(job, begin, end, scratch);
}

TaskPlan PlanOf(const MatJob& job, int threads) {
  TaskPlan plan;
  plan.tasks = job.tasks();
  // Threads take chunks of neighbouring pairs of panels as they become free, since cores differ in speed and load. Many rows:
  // 1/16 of a thread's share, at most 8 pairs. Few rows, which stream the weights: 1/16 of the share, raised to 512 KiB of
  // weights but at most 1/4 of the share, since starting a stream has a cost.
  constexpr int64_t kStreamChunkBytes = 512 << 10;
  const int64_t smallest = plan.tasks / (threads * 16);
  if (job.max_group_rows() > StreamRows(job.x.format.kind)) {
    plan.chunk = job.x.format.amx ? std::clamp<int64_t>(plan.tasks / (threads * 4), 1, kAmxGroupPairs)
                                  : std::clamp<int64_t>(smallest, 1, 8);
  } else {
    const int64_t pair_bytes = static_cast<int64_t>(2 * job.w.panel_stride);
    plan.chunk = std::max<int64_t>(
        std::clamp(kStreamChunkBytes / std::max<int64_t>(pair_bytes, 1), smallest, plan.tasks / (threads * 4)), 1);
  }
  plan.scratch_bytes = MatJobScratchBytes(job);
  return plan;
}

std::span<const uint8_t> StreamOfJob(const MatJob& job, int64_t task, int64_t tasks, int64_t chunk) {
  if (job.x.groups.size() != 1 || job.w.slots != nullptr || tasks <= 0 || job.max_group_rows() > StreamRows(job.x.format.kind))
    return {};
  // Gate and up take turns in a chunk.
  const int64_t first = job.gated ? task : 2 * task, panels = job.gated ? std::min(tasks, chunk) : 2 * tasks;
  return {job.w.Panel(job.x.groups[0].slice, first),
          static_cast<size_t>(std::clamp<int64_t>(job.w.panels() - first, 0, panels)) * job.w.panel_stride};
}

template <class Op>
WorkClass ClassOf(const Op& op) {
  if constexpr (requires { op.work_class; }) {
    return op.work_class;
  } else {
    return WorkClass::kLinear;
  }
}

template <class Op>
constexpr Kernel<Op> HwyKernel() {
  return {"hwy", [](const Op&) -> const char* { return nullptr; },
          [](const Op& op, int threads) { return PlanOf(MatJob(op), threads); },
          [](const Op& op, int64_t b, int64_t e, std::span<uint8_t> s) { RunHwy(MatJob(op), b, e, s); },
          [](const Op& op, const CostAmounts& n) {
            const MatJob job(op);
            return JobExecuted(job, n, ClassOf(op), HwyLanes(job), HwyEpilogue(job), HwyExecuted(job));
          }};
}

template <class Op>
constexpr Kernel<Op> RefKernel() {
  return {"ref", [](const Op&) -> const char* { return nullptr; },
          [](const Op& op, int threads) {
            TaskPlan plan = PlanOf(MatJob(op), threads);
            plan.scratch_bytes = ReferenceScratchBytes(MatJob(op));
            return plan;
          },
          [](const Op& op, int64_t b, int64_t e, std::span<uint8_t> s) { MatJobReference<float>(MatJob(op), b, e, s); },
          [](const Op& op, const CostAmounts& n) {
            const MatJob job(op);
            return JobExecuted(job, n, ClassOf(op), job.w.rows * (job.gated ? 2 : 1), static_cast<uint64_t>(job.w.rows),
                               RefExecuted(job));
          }};
}

template <class Op>
constexpr Kernel<Op> BlasKernel() {
  return {"blas",
          [](const Op& op) -> const char* {
            if (op.x.format.kind != ActKind::kF32) return "activations are not f32";
            return LoadOpenBlas().ok() ? nullptr : "OpenBLAS cannot be loaded";
          },
          [](const Op& op, int threads) { return BlasPlan(MatJob(op), threads); },
          [](const Op& op, int64_t b, int64_t e, std::span<uint8_t> s) { RunBlas(MatJob(op), b, e, s); },
          [](const Op& op, const CostAmounts& n) {
            const MatJob job(op);
            return JobExecuted(job, n, ClassOf(op), job.w.rows * (job.gated ? 2 : 1), static_cast<uint64_t>(job.w.rows),
                               RefExecuted(job));
          }};
}

}  // namespace

MatJob::MatJob(const MatMulOp& op)
    : x(op.x), w(op.w), bias(op.bias), add_to_out(op.add_to_out), activation(op.activation), out(op.out), out_row(op.out_row) {}

MatJob::MatJob(const GatedMatMulOp& op)
    : x(op.x),
      w(op.gate),
      up(op.up),
      bias(op.gate_bias),
      up_bias(op.up_bias),
      gated(true),
      activation(op.activation),
      swiglu_alpha(op.swiglu_alpha),
      swiglu_limit(op.swiglu_limit),
      out(op.out) {}

std::span<const uint8_t> StreamOf(const MatMulOp& op, int64_t task, int64_t tasks, int64_t chunk) {
  return StreamOfJob(MatJob(op), task, tasks, chunk);
}
std::span<const uint8_t> StreamOf(const GatedMatMulOp& op, int64_t task, int64_t tasks, int64_t chunk) {
  return StreamOfJob(MatJob(op), task, tasks, chunk);
}

int64_t MatJob::max_group_rows() const {
  int64_t n = 0;
  for (const RowGroup& g : x.groups) n = std::max(n, g.rows);
  return n;
}

int64_t AmxInt8Pairs(const MatJob& job) {
  constexpr size_t kMostBytes = 5 << 18;
  const size_t pair = 2 * static_cast<size_t>(job.w.cols / kInt8Block) * FormatOf(job.w.dtype).decoded_block_bytes;
  return std::clamp<int64_t>(static_cast<int64_t>(kMostBytes / std::max<size_t>(pair, 1)), 1, kAmxInt8GroupPairs);
}

size_t MatJobScratchBytes(const MatJob& job) {
  if (job.x.format.kind == ActKind::kInt8) {
    if (job.max_group_rows() <= StreamRows(ActKind::kInt8)) return 0;
    // dot_vnni: two decoded panels. dot_maddubs: one decoded piece and the sums of every row.
    const size_t block = FormatOf(job.w.dtype).decoded_block_bytes;
    const size_t whole = 2 * static_cast<size_t>(job.w.cols / kInt8Block) * block;
    // amx_int8: some pairs of decoded panels, and the scales of a tile of activations, which are no more than a panel's.
    if (job.x.format.amx) return static_cast<size_t>(AmxInt8Pairs(job)) * whole + whole / 2;
    if (job.x.format.smmla) return 2 * whole;  // dot_arm: each scale twice
    return std::max(whole, kInt8PieceBytes / 512 * block + static_cast<size_t>(job.max_group_rows()) * 128);
  }
  if (job.x.format.amx) {  // matmul/amx_bf16-inl.h
    if (job.max_group_rows() <= kAmxRows) return 0;
    const size_t strip = 2 * kAmxRows * 32 * sizeof(float),
                 strips = static_cast<size_t>((job.max_group_rows() + 2 * kAmxRows - 1) / (2 * kAmxRows));
    return static_cast<size_t>(kAmxGroupPairs) * (strips * strip + kAmxPieceBytes) + strip;
  }
  const bool quantised = GetDTypeInfo(job.w.dtype).quantised;
  if (job.w.dtype == DType::kBF16 && job.x.format.kind == ActKind::kBF16 && HwyTargetHasSmmla() &&
      job.max_group_rows() > StreamRows(ActKind::kBF16)) {
    return static_cast<size_t>(kArmBf16PieceBytes + (job.max_group_rows() + 1) / 2 * 256);
  }
  if (job.x.format.kind == ActKind::kBF16 && (!quantised || job.max_group_rows() <= StreamRows(ActKind::kBF16))) return 0;
  if (!quantised && job.max_group_rows() <= StreamRows(ActKind::kF32)) return 0;
  return (static_cast<size_t>(kF32KBlock) + static_cast<size_t>(job.max_group_rows())) * 32 * sizeof(float);
}

Status MatMulOp::Validate() const {
  TALLY_RETURN_IF_ERROR(ValidatePack(x));
  TALLY_RETURN_IF_ERROR(ValidateWeight(x, w));
  TALLY_RETURN_IF_ERROR(ValidateVector(bias, w));
  TALLY_RETURN_IF_ERROR(CheckShape("output", out, out.rows, w.rows));
  if (out_row.empty() ? out.rows < x.rows : static_cast<int64_t>(out_row.size()) != x.rows)
    return InternalError("output rows do not fit");
  for (int32_t r : out_row) {
    if (r < 0 || r >= out.rows) return InternalError("output row out of range");
  }
  if (TakesTwo(activation)) return InternalError("SwiGLU needs a gate and an up weight");
  if (activation == ActivationKind::kXielu) return InternalError("xIELU is no part of a product");
  if (add_to_out && activation != ActivationKind::kNone) return InternalError("an activation cannot be added to the output");
  return {};
}

Status GatedMatMulOp::Validate() const {
  TALLY_RETURN_IF_ERROR(ValidatePack(x));
  TALLY_RETURN_IF_ERROR(ValidateWeight(x, gate));
  TALLY_RETURN_IF_ERROR(ValidateWeight(x, up));
  TALLY_RETURN_IF_ERROR(ValidateVector(gate_bias, gate));
  TALLY_RETURN_IF_ERROR(ValidateVector(up_bias, up));
  if (gate.dtype != up.dtype || gate.rows != up.rows || gate.slices != up.slices)
    return InternalError("gate and up weights differ");
  TALLY_RETURN_IF_ERROR(CheckShape("output", out, out.rows, gate.rows));
  if (out.rows < x.rows) return InternalError("output rows do not fit");
  if (activation == ActivationKind::kNone || activation == ActivationKind::kXielu)
    return InternalError("a gate needs an activation");
  return {};
}

CostAmounts MatMulOp::Amounts() const { return AmountsOf(x); }
CostAmounts GatedMatMulOp::Amounts() const { return AmountsOf(x); }
Cost MatMulOp::Useful(const CostAmounts& n) const {
  return JobUseful(MatJob(*this), n, work_class, static_cast<uint64_t>(w.rows));
}
Cost GatedMatMulOp::Useful(const CostAmounts& n) const {
  return JobUseful(MatJob(*this), n, WorkClass::kLinear, static_cast<uint64_t>(gate.rows));
}

void MatMulOp::Touches(WeightTouches& touches) const {
  Touch(w, x, touches);
  Touch(bias, x, touches);
}

void GatedMatMulOp::Touches(WeightTouches& touches) const {
  for (const WeightView* v : {&gate, &up, &gate_bias, &up_bias}) Touch(*v, x, touches);
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

template <>
std::span<const Kernel<MatMulOp>> Kernels<MatMulOp>() {
  static constexpr std::array<Kernel<MatMulOp>, 3> kTable = {HwyKernel<MatMulOp>(), RefKernel<MatMulOp>(),
                                                             BlasKernel<MatMulOp>()};
  return kTable;
}

template <>
std::span<const Kernel<GatedMatMulOp>> Kernels<GatedMatMulOp>() {
  static constexpr std::array<Kernel<GatedMatMulOp>, 3> kTable = {HwyKernel<GatedMatMulOp>(), RefKernel<GatedMatMulOp>(),
                                                                  BlasKernel<GatedMatMulOp>()};
  return kTable;
}

}  // namespace tally
