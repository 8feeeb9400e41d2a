// SPDX-License-Identifier: Apache-2.0
// Attention against its two roofs: decode against the read bandwidth (or, where many heads share a KV head, against the
// peak), prefill against the peak of the types of its products. The roofs are measured beside every pass, because a shared
// machine's drift; fractions are medians of pass against neighbouring roof. FLOPs are the useful ones (class attention).
// Every case is compared with the scalar reference before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/attention/attention.h"
#include "engine/machine/machine.h"
#include "engine/machine/roofs.h"

namespace tally {
namespace {

int failures = 0;

struct Case {
  const char* name;
  int64_t heads, kv_heads, head_dim;
  int64_t window;
  KvType type;
  int64_t layers;       // copies of the cache, so that a pass reads more than the last-level cache holds
  int64_t depth, rows;  // the rows' positions are depth - rows .. depth - 1
};

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// A cache of `layers` layers filled with values in [-1, 1], and one op a layer.
struct Setup {
  AnonymousMemory memory;
  std::vector<std::vector<uint8_t*>> blocks;
  std::vector<KvTable> tables;
  std::vector<KvRow> rows;
  AlignedBuffer<float> q, out;
  std::vector<AttentionOp> ops;
  AlignedBuffer<float> partials;
  size_t bytes = 0;

  static Result<Setup> Make(const Case& c) {
    Setup s;
    const int64_t blocks = (c.depth + kKvBlock - 1) / kKvBlock;
    const KvLayout layout{c.type, c.kv_heads, c.head_dim};
    const size_t block_bytes = layout.BlockBytes();
    s.bytes = block_bytes * blocks * c.layers;
    TALLY_ASSIGN_OR_RETURN(s.memory, AnonymousMemory::Allocate(s.bytes, true));
    std::mt19937 rng(7);
    std::vector<float> some(4096);
    for (float& x : some) x = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 1000.0f;
    for (int64_t l = 0; l < c.layers; ++l) {
      s.blocks.emplace_back();
      for (int64_t b = 0; b < blocks; ++b) {
        uint8_t* const block = s.memory.data() + (l * blocks + b) * block_bytes;
        s.blocks.back().push_back(block);
        for (int64_t lane = 0; lane < kKvBlock; ++lane) {
          for (int64_t h = 0; h < c.kv_heads; ++h) {
            layout.Store(block, h, lane, some.data() + rng() % (some.size() - c.head_dim),
                         some.data() + rng() % (some.size() - c.head_dim));
          }
        }
      }
    }
    for (const auto& layer : s.blocks) s.tables.push_back({layer.data(), blocks});
    for (int64_t i = 0; i < c.rows; ++i) s.rows.push_back({0, static_cast<int32_t>(c.depth - c.rows + i)});
    const size_t width = c.heads * c.head_dim;
    if (!s.q.Resize(c.rows * width) || !s.out.Resize(c.rows * width)) return BadInput("not enough memory");
    for (size_t i = 0; i < s.q.size(); ++i) s.q[i] = 2.0f * some[rng() % some.size()];
    const int64_t ranges = c.depth / (kRangeBlocks * kKvBlock) + 1, queries = std::max<int64_t>(c.heads, 32);
    if (!s.partials.Resize(queries * ranges * AttentionPartials::PartialFloats(c.head_dim))) return BadInput("not enough memory");
    for (int64_t l = 0; l < c.layers; ++l) {
      AttentionOp op;
      op.partials = {s.partials.data(), queries, ranges};
      op.q = Mat<const float>(s.q.data(), c.rows, width);
      op.out = Mat<float>(s.out.data(), c.rows, width);
      op.heads = c.heads, op.layout = layout, op.window = c.window;
      op.scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
      op.tables = {&s.tables[l], 1};
      s.ops.push_back(op);
    }
    return s;
  }
};

void RunOn(Team& team, const Kernel<AttentionOp>& kernel, const AttentionOp& op, std::vector<AlignedBuffer<uint8_t>>& scratch) {
  const TaskPlan plan = kernel.plan(op, team.threads());
  scratch.resize(team.threads());
  for (auto& s : scratch) (void)s.Resize(plan.scratch_bytes);
  auto body = [&](int thread, int64_t begin, int64_t end) { kernel.run(op, begin, end, scratch[thread].span()); };
  team.Run(plan.tasks, plan.chunk, body);
  auto later = [&](int thread, int64_t begin, int64_t end) { body(thread, plan.tasks + begin, plan.tasks + end); };
  if (plan.later > 0) team.Run(plan.later, 0, later);
}

// Compares the last rows of the last layer with the reference.
bool Verify(Team& team, Setup& s) {
  AttentionOp op = s.ops.back();
  const int64_t n = std::min<int64_t>(3, op.q.rows), first = op.q.rows - n;
  op.rows = std::span<const KvRow>(s.rows);
  std::vector<AlignedBuffer<uint8_t>> scratch;
  RunOn(team, Kernels<AttentionOp>()[0], op, scratch);
  std::vector<float> got(op.out.Row(first), op.out.Row(first) + n * op.out.stride);
  op.q = op.q.Rows(first, n);
  op.out = op.out.Rows(first, n);
  op.rows = op.rows.subspan(first);
  RunOn(team, Kernels<AttentionOp>()[1], op, scratch);
  double worst = 0;
  for (size_t i = 0; i < got.size(); ++i) worst = std::max<double>(worst, std::fabs(got[i] - op.out.data[i]));
  // Outputs are means of values up to 1. A p of few positions may be rounded to the other side; the reference rounds q to int8 where
  // matrix tiles round it to bf16.
  const bool other_q = op.layout.KeyArith() == Arith::kInt8 && HwyTargetHasAmx();
  return worst < (other_q ? 1e-3 : op.layout.ValueArith() == Arith::kBF16 ? 1e-4 : 2e-6);
}

void Attention(benchmark::State& state, const Case& c) {
  Team team(static_cast<int>(state.range(0)));
  auto made = Setup::Make(c);
  const auto fail = [&](const std::string& why) {
    ++failures;
    state.SkipWithError(why.c_str());
  };
  if (!made.ok()) return fail(made.status().message());
  Setup& s = *made;
  for (AttentionOp& op : s.ops) op.rows = s.rows;
  if (const Status status = s.ops[0].Validate(); !status.ok()) return fail(status.message());
  if (!Verify(team, s)) return fail("differs from the reference");
  const Kernel<AttentionOp>& kernel = Kernels<AttentionOp>()[0];
  const Cost cost = TotalUseful(s.ops[0]);
  const auto by_type = AttentionByType(cost, TotalExecuted(kernel, s.ops[0]));
  const double flops = static_cast<double>(cost.Flops(WorkClass::kAttention)) * static_cast<double>(c.layers);
  const double kv_bytes = static_cast<double>(cost.Bytes(ByteKind::kKvRead)) * static_cast<double>(c.layers);
  std::vector<AlignedBuffer<uint8_t>> scratch;
  std::vector<double> seconds, of_bandwidth, of_peak, bandwidth, peak;
  for (auto _ : state) {
    const double start = MonotonicSeconds();
    for (const AttentionOp& op : s.ops) RunOn(team, kernel, op, scratch);
    const double took = MonotonicSeconds() - start;
    state.SetIterationTime(took);
    seconds.push_back(took);
    const ArithmeticPeaks peaks = MeasurePeaks(team, 0.01);
    double at_peak = 0;
    for (const auto& [arith, rate] : {std::pair(Arith::kF32, peaks.f32),
                                      {Arith::kBF16, peaks.bf16 > 0 ? peaks.bf16 : peaks.f32},
                                      {Arith::kInt8, peaks.int8}}) {
      at_peak += by_type[static_cast<size_t>(arith)] * static_cast<double>(c.layers) / rate;
    }
    peak.push_back(flops / at_peak);
    of_peak.push_back(at_peak / took);
    if (c.rows == 1) {
      bandwidth.push_back(ReadBandwidth(team, {s.memory.data(), s.bytes}, 0));
      of_bandwidth.push_back(kv_bytes / took / bandwidth.back());
    }
  }
  state.counters["GFLOPs"] = flops / Median(seconds) * 1e-9;
  state.counters["of_peak"] = Median(of_peak);
  state.counters["peak_GFLOPs"] = Median(peak) * 1e-9;
  if (c.rows > 1) return;
  state.counters["GB/s"] = kv_bytes / Median(seconds) * 1e-9;
  state.counters["of_bandwidth"] = Median(of_bandwidth);
  state.counters["roof_GB/s"] = Median(bandwidth) * 1e-9;
}

constexpr Case kCases[] = {
    {"decode/H32_K8_D64_f16_8k", 32, 8, 64, 0, KvType::kF16, 12, 8192, 1},
    {"decode/H64_K8_D64_f16_8k", 64, 8, 64, 0, KvType::kF16, 12, 8192, 1},
    {"decode/H12_K12_D64_f16_8k", 12, 12, 64, 0, KvType::kF16, 8, 8192, 1},
    {"decode/H32_K8_D128_f16_8k", 32, 8, 128, 0, KvType::kF16, 6, 8192, 1},
    {"decode/H32_K8_D64_bf16_8k", 32, 8, 64, 0, KvType::kBF16, 12, 8192, 1},
    {"decode/H32_K8_D64_q8_0_8k", 32, 8, 64, 0, KvType::kQ8_0, 12, 8192, 1},
    {"decode/H32_K8_D64_f32_8k", 32, 8, 64, 0, KvType::kF32, 6, 8192, 1},
    {"decode/H32_K8_D64_f16_16k", 32, 8, 64, 0, KvType::kF16, 8, 16384, 1},
    {"decode/H32_K8_D64_bf16_16k", 32, 8, 64, 0, KvType::kBF16, 8, 16384, 1},
    {"decode/H32_K8_D64_q8_0_16k", 32, 8, 64, 0, KvType::kQ8_0, 8, 16384, 1},
    {"decode/H8_K1_D64_f16_16k", 8, 1, 64, 0, KvType::kF16, 32, 16384, 1},
    {"decode/H8_K1_D64_bf16_16k", 8, 1, 64, 0, KvType::kBF16, 32, 16384, 1},
    {"prefill/H32_K8_D64_f16_0-512", 32, 8, 64, 0, KvType::kF16, 4, 512, 512},
    {"prefill/H32_K8_D64_f32_0-512", 32, 8, 64, 0, KvType::kF32, 4, 512, 512},
    {"prefill/H32_K8_D64_f16_3584-4096", 32, 8, 64, 0, KvType::kF16, 1, 4096, 512},
    {"prefill/H32_K8_D64_bf16_3584-4096", 32, 8, 64, 0, KvType::kBF16, 1, 4096, 512},
    {"prefill/H32_K8_D64_q8_0_3584-4096", 32, 8, 64, 0, KvType::kQ8_0, 1, 4096, 512},
    {"prefill/H32_K8_D64_f16_7936-8192", 32, 8, 64, 0, KvType::kF16, 1, 8192, 256},
    {"prefill/H32_K8_D64_bf16_7936-8192", 32, 8, 64, 0, KvType::kBF16, 1, 8192, 256},
    {"prefill/H32_K8_D64_q8_0_7936-8192", 32, 8, 64, 0, KvType::kQ8_0, 1, 8192, 256},
    {"prefill/H64_K8_D64_f16_w128_0-1024", 64, 8, 64, 128, KvType::kF16, 2, 1024, 1024},
    {"prefill/H12_K12_D64_f16_0-512", 12, 12, 64, 0, KvType::kF16, 8, 512, 512},
    {"prefill/H32_K8_D128_f16_0-1024", 32, 8, 128, 0, KvType::kF16, 1, 1024, 1024},
};

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const int cores = tally::AvailableCores();
  for (const tally::Case& c : tally::kCases) {
    auto* b = benchmark::RegisterBenchmark(c.name, [&c](benchmark::State& state) { tally::Attention(state, c); });
    // A fixed number of passes: the library's search for one would fill and verify the cache again and again.
    b->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond)->ArgName("threads")->Arg(1);
    if (cores > 1) b->Arg(cores);
  }
  benchmark::RunSpecifiedBenchmarks();
  return tally::failures == 0 ? 0 : 1;  // the library's own answer to an error is 0
}
