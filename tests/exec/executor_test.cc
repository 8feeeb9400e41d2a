// The door: validates, picks, charges, runs every task once, taps.
#include "engine/exec/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

namespace tally {
namespace {

struct CountOp {
  static constexpr std::string_view kName = "count";
  std::vector<std::atomic<int>>* hits = nullptr;
  bool valid = true, blas_can = true, has_key = true;
  uint64_t flops = 5;
  std::string* ran = nullptr;
  std::atomic<int>* calls = nullptr;
  int* described = nullptr;  // how often its touches were asked for
  Mat<float> out;
  Status Validate() const { return valid ? Status() : InternalError("not valid"); }
  Cost Useful() const {
    Cost c;
    c.AddFlops(WorkClass::kNorm, flops);
    return c;
  }
  void Touches(WeightTouches& t) const {
    if (described != nullptr) ++*described;
    t.push_back({.id = 0, .slice = 0, .row_begin = 0, .row_end = 2});
  }
  Mat<const float> Output() const { return out; }
  bool CostKey(OpKey& key) const {
    key = {flops};
    return has_key;
  }
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
  static constexpr auto kExecuted = [](const CountOp&) {
    Cost c;
    c.AddFlops(WorkClass::kNorm, 8);
    return c;
  };
  static const Kernel<CountOp> kTable[] = {
      {"hwy", kCan, kPlan, RunCount<0>, kExecuted},
      {"ref", kCan, kPlan, RunCount<1>, kExecuted},
      {"blas", [](const CountOp& op) -> const char* { return op.blas_can ? nullptr : "cannot"; }, kPlan, RunCount<2>, kExecuted}};
  return kTable;
}

namespace {

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
  Status Run() {
    ledger_.BeginStep(Phase::kPrefill, 1, 1);
    Status status = executor_.Run({2, Component::kHead}, op_);
    ledger_.EndStep();
    return status;
  }
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
  EXPECT_EQ(ledger_.last_step().account.useful.Flops(WorkClass::kNorm), 5u);
  EXPECT_EQ(ledger_.last_step().account.executed.Flops(WorkClass::kNorm), 8u);
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
  op_.flops = 1'000'000;
  calls_ = 0;
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(calls_, (all + 2) / 3);
  for (const auto& n : hits_) EXPECT_EQ(n, 3);
}

// Step after step, an op at its place is charged what it costs now, whatever was remembered of the step before.
TEST_F(ExecutorTest, ChargesWhatAnOpCostsNow) {
  const auto step = [&](Phase phase, int ops, Site site) {
    executor_.BeginStep(phase, 1, 1);
    for (int i = 0; i < ops; ++i) {
      EXPECT_TRUE(executor_.Run(site, op_).ok());
    }
    executor_.EndStep();
    const Account& account = ledger_.last_step().account;
    EXPECT_EQ(account.ops, static_cast<uint64_t>(ops));
    EXPECT_EQ(account.useful.Flops(WorkClass::kNorm), static_cast<uint64_t>(ops) * op_.flops);
    EXPECT_EQ(account.executed.Flops(WorkClass::kNorm), static_cast<uint64_t>(ops) * 8);
  };
  const Site head{2, Component::kHead}, router{1, Component::kRouter};
  step(Phase::kDecode, 2, head);
  step(Phase::kDecode, 2, head);  // remembered
  EXPECT_EQ(ledger_.at(Phase::kDecode, head).useful.Flops(WorkClass::kNorm), 20u);
  step(Phase::kDecode, 3, head);  // one more than before
  op_.flops = 6;
  step(Phase::kDecode, 2, head);  // costs more
  step(Phase::kPrefill, 2, head);
  step(Phase::kDecode, 2, router);
  EXPECT_EQ(ledger_.at(Phase::kDecode, head).useful.Flops(WorkClass::kNorm), 20u + 15 + 12);
  EXPECT_EQ(ledger_.at(Phase::kPrefill, head).useful.Flops(WorkClass::kNorm), 12u);
  EXPECT_EQ(ledger_.at(Phase::kDecode, router).useful.Flops(WorkClass::kNorm), 12u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).useful.Flops(WorkClass::kNorm), 20u + 15 + 12 + 12);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 11u);
  executor_.SetImpl(ImplChoice::kRef);
  step(Phase::kDecode, 2, router);
  EXPECT_EQ(ran_, "ref");
  ledger_.Reset();
  step(Phase::kDecode, 2, router);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 2u);
  Ledger other;
  executor_.SetLedger(&other);
  executor_.BeginStep(Phase::kDecode, 1, 1);
  EXPECT_TRUE(executor_.Run(router, op_).ok());
  executor_.EndStep();
  EXPECT_EQ(other.total(Phase::kDecode).useful.Flops(WorkClass::kNorm), 6u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 2u);
  executor_.SetLedger(&ledger_);
}

// What a step was charged stays in it: one that an exception left open, one whose ledger is taken away.
TEST_F(ExecutorTest, AStepLeftOpenKeepsItsCharges) {
  const Site head{2, Component::kHead};
  for (int i = 0; i < 3; ++i) {
    executor_.BeginStep(Phase::kPrefill, 1, 1);
    ASSERT_TRUE(executor_.Run(head, op_).ok());
  }
  executor_.BeginStep(Phase::kDecode, 1, 1);
  ASSERT_TRUE(executor_.Run(head, op_).ok());
  EXPECT_EQ(ledger_.total(Phase::kPrefill).ops, 3u);
  executor_.SetLedger(nullptr);
  ASSERT_TRUE(executor_.Run(head, op_).ok());
  executor_.SetLedger(&ledger_);
  ASSERT_TRUE(executor_.Run(head, op_).ok());
  executor_.EndStep();
  EXPECT_EQ(ledger_.total(Phase::kPrefill).ops, 3u);
  EXPECT_EQ(ledger_.total(Phase::kDecode).ops, 2u);
  EXPECT_EQ(ledger_.steps(Phase::kPrefill), 3u);
  EXPECT_EQ(ledger_.bad_touches(), 0u);
}

// A tap sees the ledger as it stands after the op, and may reset it in the middle of a step.
TEST_F(ExecutorTest, TapsMayReadAndResetTheLedger) {
  uint64_t ops = 0;
  bool reset = false;
  executor_.SetTap([&](Site, std::string_view, Mat<const float>) {
    EXPECT_EQ(ledger_.total(Phase::kDecode).ops + ledger_.total(Phase::kPrefill).ops, ++ops);
    EXPECT_EQ(ledger_.parameters_touched_ever(), 20u);
    if (reset) {
      ledger_.Reset();
      ops = 0;
    }
  });
  for (int step = 0; step < 9; ++step) {
    executor_.BeginStep(Phase::kDecode, 1, 1);
    for (int i = 0; i < 4; ++i) {
      reset = step % 3 == 2 && i == 1;
      ASSERT_TRUE(executor_.Run({2, Component::kHead}, op_).ok());
    }
    executor_.EndStep();
    EXPECT_EQ(ledger_.bad_touches(), 0u);
  }
}

TEST_F(ExecutorTest, AnInvalidOpIsNeitherRunNorCharged) {
  op_.valid = false;
  const Status status = Run();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "layer 2 head (count): not valid");
  EXPECT_EQ(hits_[0], 0);
  EXPECT_EQ(ledger_.last_step().account.ops, 0u);
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

// An op that came before its neighbours did breaks the run of tariffs: once the step is seen to stay, it is described again, and once.
TEST_F(ExecutorTest, StepsThatStayAreDescribedInOrder) {
  static constexpr uint64_t kNoKey = 99;
  int described = 0;
  op_.described = &described;
  uint64_t flops = 0, steps = 0;
  const auto step = [&](std::vector<uint64_t> ops) {
    const int before = described;
    executor_.BeginStep(Phase::kDecode, 1, 1);
    for (const uint64_t n : ops) {
      op_.flops = n;
      op_.has_key = n != kNoKey;
      flops += n;
      EXPECT_TRUE(executor_.Run({2, Component::kHead}, op_).ok());
    }
    executor_.EndStep();
    ++steps;
    EXPECT_EQ(ledger_.last_step().account.ops, ops.size());
    EXPECT_EQ(ledger_.total(Phase::kDecode).useful.TotalFlops(), flops);
    EXPECT_EQ(ledger_.steps(Phase::kDecode), steps);
    return described - before;
  };
  EXPECT_EQ(step({1, 2, 3, 4}), 4);
  EXPECT_EQ(step({1, 2, 3, 4}), 0);
  EXPECT_EQ(step({5, 2, 7, 8}), 3);
  int again = 0;
  for (int i = 0; i < 100; ++i) again += step({5, 2, 7, 8});
  EXPECT_EQ(again, 4);
  EXPECT_EQ(step({5, 2, 7, 8, 11}), 1);  // longer
  EXPECT_EQ(step({5, 2, 7, 8}), 0);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(step({5, 2, i % 2 == 0 ? 9u : 10u, 8}), 1) << "never the same for long";
  EXPECT_EQ(step({kNoKey, 20, 21, 22}), 4);
  EXPECT_EQ(step({kNoKey, 23, 21, 24}), 3);
  again = 0;
  for (int i = 0; i < 100; ++i) again += step({kNoKey, 23, 21, 24});
  EXPECT_EQ(again, 100 + 3) << "an op that has no tariff does not keep the others from theirs";
  for (int i = 0; i < 7; ++i) again += step({kNoKey, 23, 25, 24}) - 1;
  EXPECT_EQ(again, 100 + 3 + 1) << "too few to say that they stay";
  EXPECT_EQ(ledger_.bad_touches(), 0u);
}

TEST_F(ExecutorTest, WithoutALedgerNothingIsCharged) {
  executor_.SetLedger(nullptr);
  ASSERT_TRUE(Run().ok());
  EXPECT_EQ(hits_[0], 1);
  EXPECT_EQ(ledger_.last_step().account.ops, 0u);
}

}  // namespace
}  // namespace tally
