// SPDX-License-Identifier: Apache-2.0
// The ops of recurrent layers against their two roofs: decode against the bandwidth of reading (the state is read and written), prefill
// against the f32 peak. The roofs are measured beside every pass, because a shared machine's drift; fractions are medians of pass against
// neighbouring roof. FLOPs are the useful ones, without special ones; us is the time of a layer and token. Every case is compared with the
// scalar reference before it is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/kernels/ops.h"
#include "engine/machine/machine.h"
#include "engine/machine/roofs.h"

namespace tally {
namespace {

int failures = 0;

double Median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<int64_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

// Operands of an op, filled at random; on huge pages, as an engine's are.
class Operands {
 public:
  explicit Operands(uint32_t seed) : rng_(seed) {}
  Mat<float> Uniform(int64_t rows, int64_t cols, float lo, float hi) {
    auto memory = AnonymousMemory::Allocate(static_cast<size_t>(rows * cols) * sizeof(float), true);
    if (!memory.ok()) std::abort();
    float* const data = reinterpret_cast<float*>(memory->data());
    buffers_.push_back(std::move(*memory));
    std::uniform_real_distribution<float> next(lo, hi);
    for (int64_t i = 0; i < rows * cols; ++i) data[i] = next(rng_);
    return {data, rows, cols};
  }
  WeightView Vectors(int64_t slices, int64_t cols, float lo, float hi) {
    WeightView w;
    w.slices = slices;
    w.rows = 1;
    w.cols = cols;
    w.slice_stride = w.panel_stride = static_cast<size_t>(cols) * 4;
    w.stored_row_bytes = static_cast<uint64_t>(cols) * 4;
    w.data = reinterpret_cast<const uint8_t*>(Uniform(slices, cols, lo, hi).data);
    return w;
  }

 private:
  std::mt19937 rng_;
  std::vector<AnonymousMemory> buffers_;
};

// Gated delta net of Qwen3.5 and Qwen3-Next: 16 key heads and 32 value heads of 128.
DeltaRuleOp DeltaRule(Operands& o, int64_t rows) {
  constexpr int64_t kKeyHeads = 16, kHeads = 32, kDim = 128;
  DeltaRuleOp op;
  const float unit = std::sqrt(3.0f / kDim);  // vectors of length about 1
  op.q = o.Uniform(rows, kKeyHeads * kDim, -unit, unit);
  op.k = o.Uniform(rows, kKeyHeads * kDim, -unit, unit);
  op.v = o.Uniform(rows, kHeads * kDim, -1, 1);
  op.decay = o.Uniform(rows, kHeads, 0.5f, 1);
  op.beta = o.Uniform(rows, kHeads, 0, 1);
  op.out = o.Uniform(rows, kHeads * kDim, 0, 0);
  op.key_heads = kKeyHeads;
  op.value_heads = kHeads;
  op.q_scale = 1 / std::sqrt(static_cast<float>(kDim));
  op.layout.recurrence = DeltaRuleOp::StateOf(kHeads, kDim, kDim);
  op.layout.replay = DeltaRuleOp::ReplayOf(kKeyHeads, kHeads, kDim, kDim);
  return op;
}

// Kimi-Linear: 32 heads of 128, a decay for each element of the keys.
DeltaRuleOp ChannelDelta(Operands& o, int64_t rows) {
  constexpr int64_t kHeads = 32, kDim = 128;
  DeltaRuleOp op = DeltaRule(o, rows);
  const float unit = std::sqrt(3.0f / kDim);
  op.q = o.Uniform(rows, kHeads * kDim, -unit, unit);
  op.k = o.Uniform(rows, kHeads * kDim, -unit, unit);
  op.decay = o.Uniform(rows, kHeads * kDim, 0.5f, 1);
  op.key_heads = kHeads;
  op.channel_decay = true;
  op.layout.replay = DeltaRuleOp::ReplayOf(kHeads, kHeads, kDim, kDim, kDim);
  return op;
}

// Mamba-2 of Nemotron 3 Nano: 64 heads of 64, 8 groups, states of 128.
SsmScanOp SsmScan(Operands& o, int64_t rows) {
  constexpr int64_t kHeads = 64, kDim = 64, kGroups = 8, kState = 128;
  SsmScanOp op;
  op.x = o.Uniform(rows, kHeads * kDim, -1, 1);
  op.b = o.Uniform(rows, kGroups * kState, -1, 1);
  op.c = o.Uniform(rows, kGroups * kState, -1, 1);
  op.step = o.Uniform(rows, kHeads, 0.01f, 0.5f);
  op.decay = o.Uniform(rows, kHeads, 0.5f, 1);
  op.skip = o.Vectors(1, kHeads, 0.5f, 1);
  op.out = o.Uniform(rows, kHeads * kDim, 0, 0);
  op.heads = kHeads;
  op.groups = kGroups;
  op.layout.recurrence = SsmScanOp::StateOf(kHeads, kState, kDim);
  op.layout.replay = SsmScanOp::ReplayOf(kHeads, kGroups, kState, kDim);
  return op;
}

CausalConvOp Convolution(Operands& o, int64_t rows) {
  constexpr int64_t kChannels = 8192, kTaps = 4;
  CausalConvOp op;
  op.x = o.Uniform(rows, kChannels, -1, 1);
  op.taps = o.Vectors(kTaps, kChannels, -1, 1);
  op.activation = ActivationKind::kSilu;
  op.layout.taps = kTaps;
  op.layout.channels = kChannels;
  op.out = o.Uniform(rows, kChannels, 0, 0);
  return op;
}

template <int64_t kDim>
RatesOp Rates(Operands& o, int64_t rows) {
  RatesOp op;
  op.x = o.Uniform(rows, 32 * kDim, -4, 4);
  op.bias = o.Vectors(1, 32 * kDim, -4, 0);
  op.a = o.Vectors(1, 32, -8, -1);
  op.beta = o.Uniform(rows, 32, -2, 2);
  op.decay = o.Uniform(rows, 32 * kDim, 0, 0);
  return op;
}

GatedNormOp GatedNorm(Operands& o, int64_t rows) {
  GatedNormOp op;
  op.x = o.Uniform(rows, 4096, -1, 1);
  op.gate = o.Uniform(rows, 4096, -2, 2);
  op.groups = 32;
  op.weight = o.Vectors(1, 128, 0.5f, 1);
  op.out = o.Uniform(rows, 4096, 0, 0);
  return op;
}

template <class Op>
constexpr bool kHasStates = requires(Op op) {
  op.states;
};

// One op a layer, with a state of its own that is updated in place. Rows are kept of the last positions.
template <class Op>
struct Layers {
  static constexpr int64_t kPosition = 64, kKept = 3;  // the step's first; blocks of rows
  Operands operands{7};
  AnonymousMemory memory;
  std::vector<std::vector<uint8_t*>> blocks;
  std::vector<StateTable> tables;
  std::vector<int32_t> order;
  StateRun run;
  std::vector<Op> ops;
  size_t state_bytes = 0;

  Status Make(Op (*make)(Operands&, int64_t), int64_t layers, int64_t rows) {
    const Op op = make(operands, rows);
    ops.assign(static_cast<size_t>(layers), op);
    if constexpr (kHasStates<Op>) {
      state_bytes = op.layout.state_bytes();
      const size_t block = op.layout.rows_bytes(), layer = state_bytes + kKept * block;
      TALLY_ASSIGN_OR_RETURN(memory, AnonymousMemory::Allocate(layer * static_cast<size_t>(layers), true));
      std::memset(memory.data(), 0, memory.size());
      const int64_t count = (kPosition + rows + kStateRows - 1) / kStateRows;
      run = {.table = 0, .position = kPosition, .begin = 0, .rows = static_cast<int32_t>(rows)};
      for (int64_t t = 0; t < rows; ++t) order.push_back(static_cast<int32_t>(t));
      for (int64_t l = 0; l < layers; ++l) {
        uint8_t* const at = memory.data() + static_cast<size_t>(l) * layer;
        auto& list = blocks.emplace_back(static_cast<size_t>(count));
        for (int64_t b = std::max<int64_t>(0, count - kKept); b < count; ++b) {
          list[static_cast<size_t>(b)] = at + state_bytes + static_cast<size_t>(b % kKept) * block;
        }
        tables.push_back({.from = at, .at = kPosition, .to = at, .rows = list.data(), .count = count});
      }
      for (size_t l = 0; l < ops.size(); ++l) {
        ops[l].runs = {{&run, 1}, order};
        ops[l].states = {&tables[l], 1};
      }
    }
    return ops[0].Validate();
  }
};

template <class Op>
void RunOn(Team& team, const Kernel<Op>& kernel, const Op& op, std::vector<AlignedBuffer<uint8_t>>& scratch) {
  const TaskPlan plan = kernel.plan(op, team.threads());
  scratch.resize(static_cast<size_t>(team.threads()));
  for (auto& s : scratch) {
    if (s.size() < plan.scratch_bytes) (void)s.Resize(plan.scratch_bytes);
  }
  auto body = [&](int thread, int64_t begin, int64_t end) {
    kernel.run(op, begin, end, scratch[static_cast<size_t>(thread)].span());
  };
  team.Run(plan.tasks, plan.chunk, body);
}

std::vector<float> Values(Mat<const float> m) {
  std::vector<float> v;
  for (int64_t r = 0; r < m.rows; ++r) v.insert(v.end(), m.Row(r), m.Row(r) + m.cols);
  return v;
}

// Both kernels on the last layer, from the same state and the same values in place.
template <class Op>
bool Verify(Team& team, const Layers<Op>& l) {
  const Op& op = l.ops.back();
  std::vector<AlignedBuffer<uint8_t>> scratch;
  std::vector<uint8_t> state;
  if constexpr (kHasStates<Op>) state.assign(op.states[0].to, op.states[0].to + l.state_bytes);
  std::vector<float> x;
  if constexpr (std::is_same_v<Op, RatesOp>) x = Values(op.x);
  std::vector<std::vector<float>> results;
  for (const size_t kernel : {0, 1}) {
    RunOn(team, Kernels<Op>()[kernel], op, scratch);
    results.push_back(Values(op.Output()));
    if constexpr (kHasStates<Op>) {
      const float* const s = reinterpret_cast<const float*>(op.states[0].to);
      results.back().insert(results.back().end(), s, s + l.state_bytes / 4);
      std::memcpy(op.states[0].to, state.data(), l.state_bytes);
    }
    if constexpr (std::is_same_v<Op, RatesOp>) std::memcpy(op.x.data, x.data(), x.size() * 4);
  }
  double most = 0, worst = 0;
  for (size_t i = 0; i < results[0].size(); ++i) {
    most = std::max<double>(most, std::fabs(results[1][i]));
    worst = std::max<double>(worst, std::fabs(results[0][i] - results[1][i]));
  }
  return most > 0 && worst < 2e-5 * most;
}

template <class Op>
void Bench(benchmark::State& state, Op (*make)(Operands&, int64_t), int64_t layers, int64_t rows) {
  Team team(static_cast<int>(state.range(0)));
  Layers<Op> l;
  const auto fail = [&](const std::string& why) {
    ++failures;
    state.SkipWithError(why.c_str());
  };
  if (const Status status = l.Make(make, layers, rows); !status.ok()) return fail(status.message());
  if (!Verify(team, l)) return fail("differs from the reference");
  const Kernel<Op>& kernel = Kernels<Op>()[0];
  const Cost cost = TotalUseful(l.ops[0]);
  const double n = static_cast<double>(layers), flops = n * static_cast<double>(cost.TotalFlops());
  const double bytes = n * static_cast<double>(cost.Bytes(ByteKind::kStateRead) + cost.Bytes(ByteKind::kStateWritten));
  std::vector<AlignedBuffer<uint8_t>> scratch;
  std::vector<double> seconds, of_peak, peak, of_bandwidth, bandwidth;
  for (auto _ : state) {
    const double start = MonotonicSeconds();
    for (const Op& op : l.ops) RunOn(team, kernel, op, scratch);
    const double took = MonotonicSeconds() - start;
    state.SetIterationTime(took);
    seconds.push_back(took);
    peak.push_back(MeasurePeaks(team, 0.01).f32);
    of_peak.push_back(flops / took / peak.back());
    if (rows > 1 || bytes == 0 || l.memory.size() < size_t{32} << 20) continue;
    bandwidth.push_back(ReadBandwidth(team, {l.memory.data(), l.memory.size()}, 0));
    of_bandwidth.push_back(bytes / took / bandwidth.back());
  }
  state.counters["us"] = Median(seconds) * 1e6 / (n * static_cast<double>(rows));
  state.counters["GFLOPs"] = flops / Median(seconds) * 1e-9;
  state.counters["of_peak"] = Median(of_peak);
  state.counters["peak_GFLOPs"] = Median(peak) * 1e-9;
  if (bandwidth.empty()) return;
  state.counters["GB/s"] = bytes / Median(seconds) * 1e-9;
  state.counters["of_bandwidth"] = Median(of_bandwidth);
  state.counters["roof_GB/s"] = Median(bandwidth) * 1e-9;
}

// Decode: states of more layers than the last-level cache holds. Prefill: 512 rows.
template <class Op>
void Register(const std::string& name, Op (*make)(Operands&, int64_t)) {
  const int cores = AvailableCores();
  for (const bool decode : {true, false}) {
    const int64_t layers = decode ? 48 : 1, rows = decode ? 1 : 512;
    auto* b = benchmark::RegisterBenchmark(((decode ? "decode/" : "prefill/") + name).c_str(),
                                           [=](benchmark::State& state) { Bench(state, make, layers, rows); });
    // A fixed number of passes: the library's search for one would fill and verify the states again and again.
    b->UseManualTime()->Iterations(15)->Unit(benchmark::kMillisecond)->ArgName("threads")->Arg(1);
    if (cores > 1) b->Arg(cores);
  }
}

}  // namespace
}  // namespace tally

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  tally::Register("delta_rule_16_32_128x128", tally::DeltaRule);
  tally::Register("channel_delta_32_128x128", tally::ChannelDelta);
  tally::Register("ssm_scan_64_64_g8_n128", tally::SsmScan);
  tally::Register("causal_conv_8192_4", tally::Convolution);
  tally::Register("rates_32", tally::Rates<1>);
  tally::Register("rates_32x128", tally::Rates<128>);
  tally::Register("gated_norm_32_128", tally::GatedNorm);
  benchmark::RunSpecifiedBenchmarks();
  return tally::failures == 0 ? 0 : 1;  // the library's own answer to an error is 0
}
