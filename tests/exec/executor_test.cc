// SPDX-License-Identifier: Apache-2.0
// The door: validates, picks, charges, runs every task once, taps.
#include "engine/exec/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/support/charges.h"

namespace tally {
namespace {

struct CountOp {
  static constexpr std::string_view kName = "count";
  std::vector<std::atomic<int>>* hits = nullptr;
  bool valid = true, blas_can = true;
  int64_t rows = 1;
  uint64_t flops = 5;  // a row
  std::string* ran = nullptr;
  std::atomic<int>* calls = nullptr;
  int* costed = nullptr;  // how often its unit costs were asked for
  Mat<float> out;
  Status Validate() const { return valid ? Status() : InternalError("not valid"); }
  CostAmounts Amounts() const { return RowAmounts(rows); }
  Cost Useful(const CostAmounts& n) const {
    if (costed != nullptr && n[Amount::kRows] > 0) ++*costed;
    Cost c;
    c.AddFlops(WorkClass::kNorm, n[Amount::kRows] * flops);
    c.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * 100);
    return c;
  }
  void Touches(WeightTouches& t) const { t.push_back({.id = 0, .slice = 0, .row_begin = 0, .row_end = 2}); }
  Mat<const float> Output() const { return out; }
  void Describe(OpDescription& d) const { d.Set("flops", static_cast<int64_t>(flops)); }
};

template <int kWhich>
void RunCount(const CountOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch) {
  EXPECT_EQ(scratch.size(), 100u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(scratch.data()) % 64, 0u);
  ++*op.calls;
  if (begin == 0) *op.ran = kWhich == 0 ? "hwy" : kWhich == 1 ? "ref" : "blas";
  for (int64_t t = begin; t < end; ++t) ++(*op.hits)[static_cast<size_t>(t)];
}

}  // namespace

template <>
std::span<const Kernel<CountOp>> Kernels<CountOp>() {
  static constexpr auto kPlan = [](const CountOp& op, int) {
    return TaskPlan{.tasks = static_cast<int64_t>(op.hits->size()), .chunk = 3, .scratch_bytes = 100};
  };
  static constexpr auto kCan = [](const CountOp&) -> const char* { return nullptr; };
  static constexpr auto kExecuted = [](const CountOp&, const CostAmounts& n) {
    Cost c;
    c.AddFlops(WorkClass::kNorm, 8 * n[Amount::kRows]);
    return c;
  };
  static const Kernel<CountOp> kTable[] = {
      {"hwy", kCan, kPlan, RunCount<0>, kExecuted},
      {"ref", kCan, kPlan, RunCount<1>, kExecuted},
      {"blas", [](const CountOp& op) -> const char* { return op.blas_can ? nullptr : "cannot"; }, kPlan, RunCount<2>, kExecuted}};
  return kTable;
}

// Charged in two parts: its products at one site, adding them at another.
struct TwoPartOp {
  static constexpr std::string_view kName = "two_part";
  static constexpr size_t kParts = 2;
  Status Validate() const { return {}; }
  CostAmounts Amounts() const { return RowAmounts(3); }
  Cost Useful(const CostAmounts& n, size_t part) const {
    Cost c;
    c.AddFlops(part == 0 ? WorkClass::kLinear : WorkClass::kResidualBias, n[Amount::kRows] * (part == 0 ? 10 : 1));
    return c;
  }
  void Touches(WeightTouches&) const {}
  Mat<const float> Output() const { return {}; }
  void Describe(OpDescription&) const {}
};

template <>
std::span<const Kernel<TwoPartOp>> Kernels<TwoPartOp>() {
  static const Kernel<TwoPartOp> kTable[] = {
      {"hwy", [](const TwoPartOp&) -> const char* { return nullptr; }, [](const TwoPartOp&, int) { return TaskPlan{}; },
       [](const TwoPartOp&, int64_t, int64_t, std::span<uint8_t>) {},
       [](const TwoPartOp& op, const CostAmounts& n, size_t part) { return op.Useful(n, part); }}};
  return kTable;
}

namespace {

const Site kHead{2, Component::kHead};

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() : team_(2), executor_(team_, &ledger_), hits_(50) {
    WeightInfo w;
    w.rows = 4;
    w.cols = 10;
    ledger_.SetWeights({w});
    op_.hits = &hits_;
    op_.ran = &ran_;
    op_.calls = &calls_;
  }
  // A step of one op.
  Status Run() {
    Begin(1, 0);
    Status status = executor_.Run(executor_.Add({kHead}), op_, true);
    executor_.EndStep();
    return status;
  }
  void Begin(size_t prefill, size_t decode) {
    std::vector<BookedRow> rows = RowsIn(Phase::kPrefill, prefill, 0);
    rows.insert(rows.end(), decode, {.phase = Phase::kDecode});
    executor_.BeginStep(rows);
  }
  uint64_t Flops(Phase p, Site site = kHead) const { return ledger_.at(p, site).useful.Flops(WorkClass::kNorm); }

  Team team_;
  Ledger ledger_;
  Executor executor_;
  std::vector<std::atomic<int>> hits_;
  std::string ran_;
  std::atomic<int> calls_{0};
  CountOp op_;
};

TEST_F(ExecutorTest, RunsEveryTaskOnceAndCharges) {
  ASSERT_TRUE(Run().ok());
  for (const auto& n : hits_) EXPECT_EQ(n, 1);
  EXPECT_EQ(ran_, "hwy");
  EXPECT_EQ(ledger_.total(Phase::kPrefill).useful.Flops(WorkClass::kNorm), 5u);
  EXPECT_EQ(ledger_.total(Phase::kPrefill).executed.Flops(WorkClass::kNorm), 8u);
  EXPECT_EQ(ledger_.last_step().parameters_touched, 20u);
}

// How many times the kernel was called tells who ran it: the op's tasks go out in chunks of three where the team shares them.
TEST_F(ExecutorTest, SharesLongOpsOnly) {
  const int all = static_cast<int>(hits_.size());
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(calls_, 1);
  executor_.SetShareGain(0);
  calls_ = 0;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(calls_, (all + 2) / 3);
  executor_.SetShareGain(kShareGainNanoseconds);
  op_.rows = 200'000;
  calls_ = 0;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(calls_, (all + 2) / 3);
  for (const auto& n : hits_) EXPECT_EQ(n, 3);
}

// Unit costs are asked for once; a charge is by the amounts that the op has now. What decides them anew is a kernel or a ledger.
TEST_F(ExecutorTest, ChargesAmountsAtAnOpsIndex) {
  int costed = 0;
  op_.costed = &costed;
  const Site router{1, Component::kRouter};
  const size_t a = executor_.Add({kHead}), b = executor_.Add({router});
  const auto step = [&](Phase phase, int64_t rows, bool reshaped) {
    op_.rows = rows;
    Begin(phase == Phase::kPrefill ? static_cast<size_t>(rows) : 0, phase == Phase::kDecode ? static_cast<size_t>(rows) : 0);
    for (const size_t i : {a, b, b}) {
      EXPECT_TRUE(executor_.Run(i, op_, reshaped).ok());
    }
    executor_.EndStep();
  };
  step(Phase::kDecode, 1, false);
  EXPECT_EQ(costed, 2);
  step(Phase::kDecode, 1, false);
  step(Phase::kPrefill, 7, true);
  EXPECT_EQ(costed, 2);
  EXPECT_EQ(Flops(Phase::kDecode), 10u);
  EXPECT_EQ(Flops(Phase::kDecode, router), 20u);
  EXPECT_EQ(Flops(Phase::kPrefill, router), 70u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 6u);
  executor_.SetImpl(ImplChoice::kRef);
  step(Phase::kDecode, 1, false);
  EXPECT_EQ(ran_, "ref");
  EXPECT_EQ(costed, 4);
  EXPECT_EQ(Flops(Phase::kDecode), 15u);  // those of the other kernel stay
  ledger_.Reset();
  step(Phase::kDecode, 1, false);
  EXPECT_EQ(Flops(Phase::kDecode), 5u);
  EXPECT_EQ(costed, 4);
  Ledger other;
  executor_.SetLedger(&other);
  step(Phase::kDecode, 1, false);
  EXPECT_EQ(other.total(Phase::kDecode).useful.Flops(WorkClass::kNorm), 15u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 3u);
  executor_.SetLedger(&ledger_);
}

// Rows are booked by their own phase; what the step does once is mixed.
TEST_F(ExecutorTest, MixedStepsBookEachRow) {
  const size_t all = executor_.Add({kHead}), routed = executor_.Add({{3, Component::kFfnDown}});
  Begin(3, 2);
  op_.rows = 5;
  ASSERT_TRUE(executor_.Run(all, op_, true).ok());
  op_.rows = 20;  // four for each
  ASSERT_TRUE(executor_.Run(routed, op_, true).ok());
  executor_.EndStep();
  EXPECT_EQ(Flops(Phase::kPrefill), 15u);
  EXPECT_EQ(Flops(Phase::kDecode), 10u);
  EXPECT_EQ(Flops(Phase::kMixed), 0u);
  EXPECT_EQ(Flops(Phase::kPrefill, {3, Component::kFfnDown}), 60u);
  EXPECT_EQ(Flops(Phase::kDecode, {3, Component::kFfnDown}), 40u);
  EXPECT_EQ(ledger_.total(Phase::kMixed).useful.Bytes(ByteKind::kWeightsStored), 200u);
  EXPECT_EQ(ledger_.total(Phase::kPrefill).useful.Bytes(ByteKind::kWeightsStored), 0u);
  EXPECT_EQ(ledger_.total(Phase::kMixed).ops, 2u);
  EXPECT_EQ(ledger_.steps(Phase::kMixed), 1u);
  EXPECT_EQ(ledger_.rows(Phase::kPrefill), 3u);
  EXPECT_EQ(ledger_.rows(Phase::kDecode), 2u);
  EXPECT_EQ(ledger_.parameters_touched(Phase::kMixed), 20u);
}

TEST_F(ExecutorTest, AFusedOpIsChargedAtEachOfItsSites) {
  const size_t op = executor_.Add({{0, Component::kFfnDown}, {0, Component::kMoeCombine}});
  Begin(0, 3);
  ASSERT_TRUE(executor_.Run(op, TwoPartOp(), true).ok());
  executor_.EndStep();
  EXPECT_EQ(ledger_.at(Phase::kDecode, {0, Component::kFfnDown}).useful.TotalFlops(), 30u);
  EXPECT_EQ(ledger_.at(Phase::kDecode, {0, Component::kMoeCombine}).useful.TotalFlops(), 3u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).useful.TotalFlops(), 33u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 1u);
}

// What a step was charged stays in it: one that an exception left open, one whose ledger is taken away.
TEST_F(ExecutorTest, AStepLeftOpenKeepsItsCharges) {
  const size_t op = executor_.Add({kHead});
  for (int i = 0; i < 3; ++i) {
    Begin(1, 0);
    ASSERT_TRUE(executor_.Run(op, op_, false).ok());
  }
  Begin(0, 1);
  ASSERT_TRUE(executor_.Run(op, op_, false).ok());
  EXPECT_EQ(ledger_.total(Phase::kPrefill).ops, 3u);
  executor_.SetLedger(nullptr);
  ASSERT_TRUE(executor_.Run(op, op_, false).ok());
  executor_.SetLedger(&ledger_);
  ASSERT_TRUE(executor_.Run(op, op_, false).ok());
  executor_.EndStep();
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 2u);
  EXPECT_EQ(ledger_.steps(Phase::kPrefill), 3u);
  EXPECT_EQ(ledger_.parameters_touched(Phase::kPrefill), 60u);
}

// A tap sees the ledger as it stands after the op, and may reset it in the middle of a step.
TEST_F(ExecutorTest, TapsMayReadAndResetTheLedger) {
  const size_t op = executor_.Add({kHead});
  uint64_t ops = 0;
  bool reset = false;
  executor_.SetTap([&](Site, std::string_view, Mat<const float>) {
    EXPECT_EQ(ledger_.total(Phase::kDecode).ops, ++ops);
    EXPECT_EQ(ledger_.touched().parameters_ever(), 20u);
    if (!reset) return;
    ledger_.Reset();
    ops = 0;
  });
  for (int step = 0; step < 9; ++step) {
    Begin(0, 1);
    for (int i = 0; i < 4; ++i) {
      reset = step % 3 == 2 && i == 1;
      ASSERT_TRUE(executor_.Run(op, op_, false).ok());
    }
    executor_.EndStep();
    EXPECT_EQ(ledger_.touched().bad(), 0u);
  }
}

TEST_F(ExecutorTest, AnInvalidOpIsNeitherRunNorCharged) {
  op_.valid = false;
  const Status status = Run();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "layer 2 head (count): not valid");
  EXPECT_EQ(hits_[0], 0);
  EXPECT_EQ(ledger_.total(Phase::kPrefill).ops, 0u);
}

TEST_F(ExecutorTest, ChoosesByName) {
  executor_.SetImpl(ImplChoice::kRef);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ran_, "ref");
  executor_.SetImpl(ImplChoice::kBlas);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ran_, "blas");
  EXPECT_TRUE(executor_.used_blas());
}

TEST_F(ExecutorTest, ExplainsWhatWasPassedOver) {
  executor_.SetImpl(ImplChoice::kBlas);
  executor_.EnableExplain();
  op_.blas_can = false;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(ran_, "hwy");
  EXPECT_FALSE(executor_.used_blas());
  EXPECT_EQ(executor_.explanations().at("head count"), "hwy (blas: cannot) (ref: not needed)");
}

TEST_F(ExecutorTest, TapsTheOutputAfterTheRun) {
  std::vector<float> values = {1, 2, 3};
  op_.out = Mat<float>(values.data(), 1, 3);
  int taps = 0;
  executor_.SetTap([&](Site site, std::string_view op, Mat<const float> out) {
    ++taps;
    EXPECT_EQ(site.layer, 2);
    EXPECT_EQ(op, "count");
    EXPECT_EQ(out.data, values.data());
    EXPECT_EQ(hits_[49], 1);
  });
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(taps, 1);
}

TEST_F(ExecutorTest, WithoutALedgerNothingIsCharged) {
  executor_.SetLedger(nullptr);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(hits_[0], 1);
  EXPECT_EQ(ledger_.total(Phase::kPrefill).ops, 0u);
}

TEST_F(ExecutorTest, AnOpThatFirstRanWithoutALedgerIsChargedOnceOneIsSet) {
  const size_t index = executor_.Add({kHead});
  executor_.SetLedger(nullptr);
  ASSERT_TRUE(executor_.Run(index, op_, true).ok());
  executor_.SetLedger(&ledger_);
  Begin(0, 1);
  ASSERT_TRUE(executor_.Run(index, op_, false).ok());
  executor_.EndStep();
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 1u);
}

}  // namespace
}  // namespace tally
