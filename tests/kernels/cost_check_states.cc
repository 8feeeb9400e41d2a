// SPDX-License-Identifier: Apache-2.0
// CheckCosts: the ops that read and write states, and those beside them in recurrent layers.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/kernels/causal_conv/causal_conv.h"
#include "engine/kernels/causal_conv/causal_conv_ref.h"
#include "tests/kernels/cost_check.h"
#include "tests/kernels/cost_sweep.h"
#include "tests/support/counting_scalar.h"

namespace tally {
namespace {

class StateSweep : public CostSweep {
 public:
  using CostSweep::CostSweep;

  void Run() { Convolutions(); }

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
};

}  // namespace

int CheckStateCosts(const std::function<bool(const std::string&)>& differs, bool linear) {
  StateSweep sweep(differs, linear);
  sweep.Run();
  return sweep.compared();
}

}  // namespace tally
