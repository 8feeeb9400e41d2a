// SPDX-License-Identifier: Apache-2.0
// Matrix kernels against their roofs: one row against the read bandwidth, 512 rows against the peak of the dot product they use.
// Roofs are measured beside every pass, because a shared machine drifts; fractions are medians of pass against neighbouring roof.
// Every case is compared with the scalar reference before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/kernels/matmul/matmul.h"
#include "engine/kernels/pack_act/pack_act.h"
#include "engine/machine/instruction_set.h"
#include "engine/machine/machine.h"
#include "engine/machine/roofs.h"

namespace tally {
namespace {

int failures = 0;

struct Case {
  const char* name;
  DType dtype;
  ActKind kind;
  int64_t rows, cols;  // of one weight
  int64_t weights;     // copies, so that a pass reads more than the last-level cache holds
  int64_t n;           // rows of activations
  int64_t times = 1;   // a pass multiplies by each weight so often: above 1, for weights that stay in the caches
};

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

template <class Op>
const Kernel<Op>& Named(std::string_view name) {
  for (const Kernel<Op>& k : Kernels<Op>())
    if (k.name == name) return k;
  std::abort();
}

template <class Op>
void Run(Team& team, std::vector<AlignedBuffer<uint8_t>>& scratch, const Op& op, std::string_view kernel) {
  const Kernel<Op>& k = Named<Op>(kernel);
  const TaskPlan plan = k.plan(op, team.threads());
  for (auto& s : scratch) s.Resize(plan.scratch_bytes);
  auto body = [&](int t, int64_t b, int64_t e) { k.run(op, b, e, scratch[static_cast<size_t>(t)].span()); };
  team.Run(plan.tasks, plan.chunk, body);
}

// Panels of sane values: a run of encoded noise, at another place of it for each panel.
void FillPanels(DType t, int64_t cols, uint8_t* p, size_t bytes) {
  const WeightFormat& format = FormatOf(t);
  const size_t row = static_cast<size_t>(*StoredBytes(t, static_cast<uint64_t>(cols)));
  constexpr size_t kNoiseRows = 67;
  std::mt19937_64 rng(3);
  std::vector<float> x(kNoiseRows * static_cast<size_t>(cols));
  for (float& v : x) v = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 1000.0f;
  std::vector<uint8_t> stored(kNoiseRows * row);
  format.encode(x.data(), nullptr, static_cast<int64_t>(x.size()) / GetDTypeInfo(t).block_size, stored.data());
  const size_t panel = PanelBytes(t, cols);
  for (size_t at = 0; at < bytes; at += panel) {
    format.pack(cols, kPanelRows, {.data = stored.data() + at / panel * 7 % (kNoiseRows - kPanelRows) * row, .stride = row},
                p + at);
  }
}

struct Setup {
  AnonymousMemory memory;
  size_t bytes = 0;
  AlignedBuffer<float> x, out, want;
  AlignedBuffer<uint8_t> pack_bytes;
  RowGroup group;
  PackActOp pack;
  std::vector<MatMulOp> ops;

  explicit Setup(const Case& c) {
    WeightView w;
    w.dtype = c.dtype;
    w.layout = WeightLayout::kPanel16;
    w.rows = c.rows;
    w.cols = c.cols;
    w.panel_stride = PanelBytes(c.dtype, c.cols);
    w.slice_stride = (w.panel_stride * static_cast<size_t>(w.panels()) + 4095) / 4096 * 4096;
    w.stored_row_bytes = *StoredBytes(c.dtype, static_cast<uint64_t>(c.cols));
    bytes = w.slice_stride * static_cast<size_t>(c.weights);
    memory = std::move(AnonymousMemory::Allocate(bytes, true)).value();
    for (int64_t i = 0; i < c.weights; ++i) {
      FillPanels(c.dtype, c.cols, memory.data() + static_cast<size_t>(i) * w.slice_stride,
                 w.panel_stride * static_cast<size_t>(w.panels()));
    }
    x.Resize(static_cast<size_t>(c.n * c.cols));
    std::mt19937 rng(5);
    for (float& v : x.span()) v = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 500.0f;
    out.Resize(static_cast<size_t>(c.n * c.rows));
    want.Resize(out.size());
    group = {0, c.n, 0};
    const ActFormat format = ActFormatFor(c.dtype, c.kind);
    pack_bytes.Resize(static_cast<size_t>(c.n) * ActRowBytes(format, c.cols) + 64);
    pack = {.x = {x.data(), c.n, c.cols}, .row_index = {}, .pack = {format, c.n, c.cols, pack_bytes.data(), {&group, 1}}};
    for (int64_t i = 0; i < c.weights; ++i) {
      w.data = memory.data() + static_cast<size_t>(i) * w.slice_stride;
      ops.push_back({.x = pack.pack, .w = w, .bias = {}, .out = {out.data(), c.n, c.rows}, .out_row = {}});
    }
  }
};

double PeakOf(const ArithmeticPeaks& peaks, const Case& c) {
  if (c.kind == ActKind::kF32) return peaks.f32;
  if (c.kind == ActKind::kBF16) return peaks.bf16 > 0 ? peaks.bf16 : peaks.f32;
  return FormatOf(c.dtype).narrow ? peaks.int8_narrow : peaks.int8;
}

void Bench(benchmark::State& state, const Case& c) {
  Team team(2);
  std::vector<AlignedBuffer<uint8_t>> scratch(2);
  Setup s(c);
  Run(team, scratch, s.pack, "hwy");
  // A few rows of the reference: the first panels of the first weight.
  MatMulOp small = s.ops[0];
  small.w.rows = std::min<int64_t>(c.rows, 48);
  small.out = {s.want.data(), c.n, small.w.rows, c.rows};
  Run(team, scratch, small, "ref");
  Run(team, scratch, s.ops[0], "hwy");
  for (int64_t r = 0; r < c.n; ++r) {
    for (int64_t i = 0; i < small.w.rows; ++i) {
      const double got = s.out[static_cast<size_t>(r * c.rows + i)], want = s.want[static_cast<size_t>(r * c.rows + i)];
      if (!(std::fabs(got - want) <= 1e-3 * (1 + std::fabs(want)))) {
        ++failures;
        return state.SkipWithError("differs from the reference");
      }
    }
  }
  std::vector<double> share;
  const double flops = 2.0 * static_cast<double>(c.n * c.rows * c.cols * c.weights * c.times);
  const double weight_bytes =
      static_cast<double>(s.ops[0].w.panel_stride) * static_cast<double>(s.ops[0].w.panels() * c.weights * c.times);
  for (auto _ : state) {
    const double roof = c.n <= 16 ? ReadBandwidth(team, {s.memory.data(), s.bytes}, 0.02) : PeakOf(MeasurePeaks(team, 0.03), c);
    const double begin = MonotonicSeconds();
    Run(team, scratch, s.pack, "hwy");
    for (int64_t i = 0; i < c.times; ++i) {
      for (const MatMulOp& op : s.ops) Run(team, scratch, op, "hwy");
    }
    const double seconds = MonotonicSeconds() - begin;
    state.SetIterationTime(seconds);
    share.push_back((c.n <= 16 ? weight_bytes : flops) / seconds / roof);
  }
  state.counters[c.n <= 16 ? "of_read_bandwidth" : "of_peak"] = Median(share);
  state.counters[c.n <= 16 ? "GB/s" : "GFLOP/s"] = benchmark::Counter(
      (c.n <= 16 ? weight_bytes : flops) * 1e-9 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
  state.SetLabel(std::string(HwyTargetName()));
}

constexpr Case kCases[] = {
    {"decode/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 1},
    {"decode/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 80, 1},
    {"decode/MXFP4", DType::kMXFP4, ActKind::kInt8, 5760, 2880, 80, 1},
    {"decode/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 1},
    {"decode/BF16_f32", DType::kBF16, ActKind::kF32, 8192, 2048, 20, 1},
    {"decode/F16_f32", DType::kF16, ActKind::kF32, 8192, 2048, 20, 1},
    {"decode/F32", DType::kF32, ActKind::kF32, 8192, 2048, 10, 1},
    {"decode/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 80, 1},
    {"decode/Q6_K", DType::kQ6_K, ActKind::kInt8, 8192, 2048, 60, 1},
    {"cached/Q8_0", DType::kQ8_0, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q4_0", DType::kQ4_0, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/MXFP4", DType::kMXFP4, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q4_K", DType::kQ4_K, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q5_K", DType::kQ5_K, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q6_K", DType::kQ6_K, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q3_K", DType::kQ3_K, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/Q2_K", DType::kQ2_K, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/IQ4_NL", DType::kIQ4_NL, ActKind::kInt8, 768, 2048, 1, 1, 50},
    {"cached/BF16", DType::kBF16, ActKind::kBF16, 256, 2048, 1, 1, 50},
    {"batch8/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 8},
    {"batch8/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 80, 8},
    {"batch8/MXFP4", DType::kMXFP4, ActKind::kInt8, 5760, 2880, 80, 8},
    {"batch4/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 4},
    {"batch6/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 6},
    {"batch12/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 12},
    {"batch2/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 2},
    {"batch5/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 40, 5},
    {"batch2/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 80, 2},
    {"batch4/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 80, 4},
    {"batch5/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 80, 5},
    {"batch8/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 80, 8},
    {"batch2/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 80, 2},
    {"batch4/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 80, 4},
    {"batch5/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 80, 5},
    {"batch2/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 2},
    {"batch4/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 4},
    {"batch5/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 5},
    {"prefill/Q4_K", DType::kQ4_K, ActKind::kInt8, 8192, 2048, 2, 512},
    {"prefill/Q6_K", DType::kQ6_K, ActKind::kInt8, 8192, 2048, 2, 512},
    {"prefill/Q8_0", DType::kQ8_0, ActKind::kInt8, 8192, 2048, 2, 512},
    {"prefill/Q4_0", DType::kQ4_0, ActKind::kInt8, 8192, 2048, 2, 512},
    {"prefill/MXFP4", DType::kMXFP4, ActKind::kInt8, 5760, 2880, 2, 512},
    {"decode/FP8", DType::kFP8, ActKind::kBF16, 8192, 2048, 40, 1},
    {"batch8/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 8},
    {"batch16/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 20, 16},
    {"prefill64/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 10, 64},
    {"prefill/FP8", DType::kFP8, ActKind::kBF16, 8192, 2048, 2, 512},
    {"expert32/Q8_0", DType::kQ8_0, ActKind::kInt8, 2048, 2048, 8, 32},
    {"expert32/Q4_K", DType::kQ4_K, ActKind::kInt8, 2048, 2048, 8, 32},
    {"expert32/MXFP4", DType::kMXFP4, ActKind::kInt8, 2880, 2880, 8, 32},
    {"expert64/Q8_0", DType::kQ8_0, ActKind::kInt8, 2048, 2048, 8, 64},
    {"expert64/Q4_K", DType::kQ4_K, ActKind::kInt8, 2048, 2048, 8, 64},
    {"expert64/MXFP4", DType::kMXFP4, ActKind::kInt8, 2880, 2880, 8, 64},
    {"prefill/BF16", DType::kBF16, ActKind::kBF16, 8192, 2048, 2, 512},
    {"prefill/BF16_f32", DType::kBF16, ActKind::kF32, 8192, 2048, 2, 512},
    {"prefill/F32", DType::kF32, ActKind::kF32, 8192, 2048, 2, 512},
};

}  // namespace
}  // namespace tally

// TALLY_TARGET=AVX2: with that instruction set.
int main(int argc, char** argv) {
  if (const char* const target = std::getenv("TALLY_TARGET"); target != nullptr) {
    if (const tally::Status limited = tally::LimitInstructionSet(target); !limited.ok()) {
      std::fprintf(stderr, "matmul_bench: %s\n", limited.message().c_str());
      return 2;
    }
  }
  for (const tally::Case& c : tally::kCases) {
    benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { tally::Bench(state, c); })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond)
        ->MinTime(0.3);
  }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return tally::failures == 0 ? 0 : 1;  // the library's own answer to an error is 0
}
