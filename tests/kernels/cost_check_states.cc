// SPDX-License-Identifier: Apache-2.0
// CheckCosts: the ops that read and write states, and those beside them in recurrent layers.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "engine/kernels/delta_rule/delta_rule.h"
#include "engine/kernels/delta_rule/delta_rule_ref.h"
#include "engine/kernels/gated_norm/gated_norm.h"
#include "engine/kernels/gated_norm/gated_norm_ref.h"
#include "engine/kernels/rates/rates.h"
#include "engine/kernels/rates/rates_ref.h"
#include "engine/kernels/ssm_scan/ssm_scan.h"
#include "engine/kernels/ssm_scan/ssm_scan_ref.h"
#include "tests/kernels/cost_check.h"
#include "tests/kernels/cost_sweep.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

class StateSweep : public CostSweep {
 public:
  using CostSweep::CostSweep;

  void Run() {
    Convolutions();
    Rates();
    DeltaRules();
    SsmScans();
    GatedNorms();
  }

 private:
  // Three sequences of a step of 6 rows: a new one; one whose last positions are done again; one that goes on in place.
  struct Step {
    static constexpr int64_t kRows = 6;
    std::vector<StateRun> runs = {{0, 0, 0, 2}, {1, 36, 2, 1}, {2, 40, 3, 3}};
    std::vector<int32_t> order = {1, 4, 0, 2, 3, 5};
    std::vector<StateTable> tables;
    std::vector<uint8_t*> blocks;
    Step(Memory& m, const StateLayout& layout) {
      for (int i = 0; i < 6; ++i) blocks.push_back(m.Bytes(layout.rows_bytes()));
      for (size_t i = 0; i < 3; ++i) {
        uint8_t *const from = m.Bytes(layout.state_bytes()), *const to = m.Bytes(layout.state_bytes());
        tables.push_back({.from = from, .at = 0, .to = to, .rows = blocks.data() + 2 * i, .count = 2});
      }
      tables[0].from = nullptr;
      tables[1].at = 31;
      tables[2].at = 40;
      tables[2].to = const_cast<uint8_t*>(tables[2].from);
    }
    StateRuns View(size_t some = 3) const {
      size_t rows = 0;
      for (size_t i = 0; i < some; ++i) rows += static_cast<size_t>(runs[i].rows);
      return {std::span(runs).first(some), std::span(order).first(rows)};
    }
  };
  template <class Op>
  void CheckOtherRuns(const Step& step, const Op& op) {
    for (size_t some = 0; some <= 3 && check_linear_; ++some) {
      Op other = op;
      other.runs = step.View(some);
      CheckLinear("other runs", other);
    }
  }

  void Convolutions() {
    for (const auto& [taps, d] : {std::array<int64_t, 2>{1, 5}, {3, 20}, {4, 333}}) {
      for (const bool all : {false, true}) {  // with a bias, an activation and a gate
        if (stopped_) return;
        Memory& m = NewMemory();
        CausalConvOp op;
        op.layout = {.recurrence = 16, .replay = 16, .taps = taps, .channels = d};
        const Step step(m, op.layout);
        op.x = m.Matrix(Step::kRows, d);
        op.taps = m.Vector(taps, d, 2);
        op.runs = step.View();
        op.states = step.tables;
        op.out = m.Matrix(Step::kRows, d);
        if (all) {
          op.bias = m.Vector(1, d, 4);
          op.activation = ActivationKind::kSilu;
          op.gate = m.Matrix(Step::kRows, d);
        }
        std::vector<uint8_t> scratch(static_cast<size_t>(ConvInputs::kScratch) * 4);
        const int64_t tasks = (d + kConvTask - 1) / kConvTask;
        Counted c;
        c.at(WorkClass::kLinear) = CountOf([&] { CausalConvRef<Counting, float, float>(op, 0, tasks, scratch); });
        c.at(WorkClass::kResidualBias) = CountOf([&] { CausalConvRef<float, Counting, float>(op, 0, tasks, scratch); });
        c.at(WorkClass::kActivation) = CountOf([&] { CausalConvRef<float, float, Counting>(op, 0, tasks, scratch); });
        c.at(ByteKind::kStateRead) = c.at(ByteKind::kStateWritten) = 3 * static_cast<uint64_t>((taps - 1) * d * 4);
        AddWeight(op.taps, static_cast<uint64_t>(taps), c);
        AddWeight(op.bias, 1, c);
        Compare(std::to_string(taps) + " taps of " + std::to_string(d) + (all ? ", all" : ""), op, c);
        CheckOtherRuns(step, op);
      }
    }
  }

  void Rates() {
    for (const auto& [rows, heads] : {std::array<int64_t, 2>{1, 1}, {3, 20}, {0, 4}}) {
      for (const int kind : {0, 1, 2, 3}) {  // 1: limits and beta; 2, 3: 24 elements a head and beta; 3: a bound
        if (stopped_) return;
        const bool all = kind > 0;
        const int64_t cols = kind > 1 ? 24 * heads : heads;
        Memory& m = NewMemory();
        RatesOp op;
        op.x = m.Matrix(rows, cols);
        op.bias = m.Vector(1, cols, 4);
        op.a = m.Vector(1, heads, 2);
        op.decay = m.Matrix(rows, cols);
        if (all) op.beta = m.Matrix(rows, heads);
        if (kind == 1) op.least = 0.001f, op.most = 0.1f;
        if (kind == 3) op.bound = -5;
        Counted c;
        c.at(WorkClass::kResidualBias) = CountOf([&] { RatesRef<Counting, float>(op, 0, op.x.rows); });
        c.at(WorkClass::kActivation) = CountOf([&] { RatesRef<float, Counting>(op, 0, op.x.rows); });
        if (rows > 0) {
          AddWeight(op.bias, 1, c);
          AddWeight(op.a, 1, c);
        }
        Compare(std::to_string(heads) + ", kind " + std::to_string(kind), op, c);
      }
    }
  }

  void DeltaRules() {
    struct Shape {
      int64_t key_heads, value_heads, k_dim, v_dim;
      bool tiled, channel_decay;
    };
    for (const Shape& s : {Shape{1, 1, 1, 1, false, false},
                           {2, 4, 8, 20, false, false},
                           {2, 6, 16, 70, true, false},
                           {1, 1, 1, 1, false, true},
                           {2, 2, 24, 70, false, true}}) {
      if (stopped_) return;
      Memory& m = NewMemory();
      DeltaRuleOp op;
      op.key_heads = s.key_heads;
      op.value_heads = s.value_heads;
      op.tiled = s.tiled;
      op.layout.recurrence = DeltaRuleOp::StateOf(s.value_heads, s.k_dim, s.v_dim);
      op.channel_decay = s.channel_decay;
      const int64_t decays = s.channel_decay ? s.k_dim : 1;
      op.layout.replay = DeltaRuleOp::ReplayOf(s.key_heads, s.value_heads, s.k_dim, s.v_dim, decays);
      const Step step(m, op.layout);
      op.q = m.Matrix(Step::kRows, s.key_heads * s.k_dim);
      op.k = m.Matrix(Step::kRows, s.key_heads * s.k_dim);
      op.v = m.Matrix(Step::kRows, s.value_heads * s.v_dim);
      op.decay = m.Matrix(Step::kRows, s.value_heads * decays);
      op.beta = m.Matrix(Step::kRows, s.value_heads);
      op.out = m.Matrix(Step::kRows, s.value_heads * s.v_dim);
      op.runs = step.View();
      op.states = step.tables;
      Counted c;
      c.at(WorkClass::kRecurrence) = CountOf([&] { DeltaRuleRef<Counting, float>(op, 0, TilesOf(op).tasks(op.runs)); });
      c.at(ByteKind::kStateRead) = c.at(ByteKind::kStateWritten) = 3 * 4 * static_cast<uint64_t>(op.layout.recurrence);
      const std::string name = std::to_string(s.value_heads) + " heads of " + std::to_string(s.k_dim) + " x " +
                               std::to_string(s.v_dim) + (s.channel_decay ? ", channel decays" : "");
      Compare(name, op, c);
      CheckOtherRuns(step, op);
    }
  }

  void SsmScans() {
    struct Shape {
      int64_t heads, groups, state_dim, head_dim;
    };
    for (const Shape& s : {Shape{1, 1, 1, 1}, {4, 2, 8, 20}, {4, 1, 16, 70}}) {
      for (const bool skips : {false, true}) {
        if (stopped_) return;
        Memory& m = NewMemory();
        SsmScanOp op;
        op.heads = s.heads;
        op.groups = s.groups;
        op.layout.recurrence = SsmScanOp::StateOf(s.heads, s.state_dim, s.head_dim);
        op.layout.replay = SsmScanOp::ReplayOf(s.heads, s.groups, s.state_dim, s.head_dim);
        const Step step(m, op.layout);
        op.x = m.Matrix(Step::kRows, s.heads * s.head_dim);
        op.b = m.Matrix(Step::kRows, s.groups * s.state_dim);
        op.c = m.Matrix(Step::kRows, s.groups * s.state_dim);
        op.step = m.Matrix(Step::kRows, s.heads);
        op.decay = m.Matrix(Step::kRows, s.heads);
        op.out = m.Matrix(Step::kRows, s.heads * s.head_dim);
        if (skips) op.skip = m.Vector(1, s.heads, 2);
        op.runs = step.View();
        op.states = step.tables;
        Counted c;
        c.at(WorkClass::kRecurrence) = CountOf([&] { SsmScanRef<Counting, float>(op, 0, TilesOf(op).tasks(op.runs)); });
        c.at(ByteKind::kStateRead) = c.at(ByteKind::kStateWritten) = 3 * 4 * static_cast<uint64_t>(op.layout.recurrence);
        AddWeight(op.skip, 1, c);
        const std::string name =
            std::to_string(s.heads) + " heads of " + std::to_string(s.state_dim) + " x " + std::to_string(s.head_dim);
        Compare(name + (skips ? ", skips" : ""), op, c);
        CheckOtherRuns(step, op);
      }
    }
  }

  void GatedNorms() {
    for (const auto& [rows, groups, k] : {std::array<int64_t, 3>{1, 1, 1}, {2, 3, 10}, {5, 1, 64}, {0, 1, 8}}) {
      for (const bool first : {false, true}) {
        if (stopped_) return;
        Memory& m = NewMemory();
        GatedNormOp op;
        op.x = m.Matrix(rows, groups * k);
        op.gate = m.Matrix(rows, groups * k);
        op.out = m.Matrix(rows, groups * k);
        op.groups = groups;
        op.weight = m.Vector(1, first ? groups * k : k, 2);
        op.gate_first = first;
        op.activation = first ? ActivationKind::kSilu : ActivationKind::kSigmoid;
        Counted c;
        c.at(WorkClass::kNorm) = CountOf([&] { GatedNormRef<Counting, float>(op, 0, op.x.rows * op.groups); });
        c.at(WorkClass::kActivation) = CountOf([&] { GatedNormRef<float, Counting>(op, 0, op.x.rows * op.groups); });
        if (rows > 0) AddWeight(op.weight, 1, c);
        Compare(first ? "gate first" : "norm first", op, c);
      }
    }
  }
};

}  // namespace

int CheckStateCosts(const std::function<bool(const std::string&)>& differs, bool linear) {
  StateSweep sweep(differs, linear);
  sweep.Run();
  return sweep.compared();
}

}  // namespace tally
