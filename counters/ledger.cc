#include "counters/ledger.h"

#include <algorithm>
#include <utility>

namespace tally {
namespace {

// Sites come from the graph, never from a file; the bound only keeps a wild layer number from asking for
// memory.
constexpr int32_t kMaxLayers = 1 << 16;

// Steps that all differ (batches of many sizes) bring new tariffs each; a model has a few for each of its ops.
constexpr size_t kMostTariffs = 4096;
constexpr size_t kMostRows = 1024;  // not yet marked

// Where charges of a site are kept; two wild layers may share it.
size_t SiteIndex(Site site) {
  return static_cast<size_t>(std::clamp(site.layer, -1, kMaxLayers) + 1) * kComponents + static_cast<size_t>(site.component);
}
bool IsWild(Site site) { return site.layer < -1 || site.layer > kMaxLayers; }

}  // namespace

Account& Account::operator+=(const Account& o) {
  useful += o.useful;
  executed += o.executed;
  ops += o.ops;
  return *this;
}

void Ledger::SetWeights(std::vector<WeightInfo> weights) {
  weights_ = std::move(weights);
  Reset();
}

void Ledger::Reset() {
  marks_.Reset(weights_);
  marked_ = open_ = false;
  step_ = 0;
  bad_touches_ = 0;
  last_ = {};
  single_ = {};
  runs_.clear();
  run_ = {};
  slice_charges_.clear();
  slices_.clear();
  touches_.clear();
  routine_ = {};
  ForgetTariffs();
  int32_t last_layer = -1;
  facts_.clear();
  for (const WeightInfo& w : weights_) {
    last_layer = std::max(last_layer, w.layer);
    facts_.push_back({.slices = w.slices, .rows = w.rows, .cols = w.cols});
  }
  for (int p = 0; p < 2; ++p) {
    totals_[p] = {};
    counts_[p] = {};
    // Room for every layer that has a weight, so that charging does not allocate.
    sites_[p].assign((static_cast<size_t>(std::clamp(last_layer, -1, kMaxLayers)) + 2) * kComponents, Account{});
  }
}

void Ledger::ForgetTariffs() {
  tariffs_.clear();
  units_.clear();
  tariff_touches_.clear();
  linear_.clear();
  sliced_.clear();
  sliced_ever_.clear();
  rows_ever_.clear();
  ++generation_;
}

void Ledger::BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows) {
  if (open_) EndStep();
  if (tariffs_.size() > kMostTariffs) {
    FoldEver();
    PostRoutine(false);
    routine_ = {};
    ForgetTariffs();
  }
  open_ = true;
  marked_ = false;
  if (++step_ == 0) {  // after 2^32 steps an old one would look like this one
    for (Linear& l : linear_) l.step = 0;
    step_ = 1;
  }
  runs_.clear();
  run_ = {routine_.begin(), routine_.begin()};  // where it may well begin again
  slice_charges_.clear();
  slices_.clear();
  touches_.clear();
  if (has_single_) single_ = {};
  has_single_ = false;
  last_.phase = phase;
  last_.rows = rows;
  last_.logit_rows = logit_rows;
}

void Ledger::Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches) {
  if (!open_) BeginStep(Phase::kPrefill, 0, 0);  // an op run on its own (a test, a bench) is a step of no rows
  has_single_ = true;
  for (Account* sum : {&single_, &SiteAccount(last_.phase, site), &totals_[static_cast<int>(last_.phase)]}) {
    sum->useful += useful;
    sum->executed += executed;
    ++sum->ops;
  }
  touches_.insert(touches_.end(), touches.begin(), touches.end());
}

Ledger::TariffId Ledger::AddTariff(const Tariff& tariff) {
  const uint32_t index = static_cast<uint32_t>(tariffs_.size());
  KnownTariff known;
  known.site = tariff.site;
  known.first_unit = static_cast<uint32_t>(units_.size());
  known.units = static_cast<uint32_t>(std::clamp<size_t>(tariff.units.size(), 1, tariff.by_slice ? 1 : kCostAmounts));
  known.first_touch = static_cast<uint32_t>(tariff_touches_.size());
  known.touches = static_cast<uint32_t>(tariff.touches.size());
  known.by_slice = tariff.by_slice;
  if (known.by_slice) {
    known.detail = static_cast<uint32_t>(sliced_.size());
    Sliced s{.tariff = index,
             .slices = tariff.touches.empty() ? 0 : UINT32_MAX,
             .first_ever = static_cast<uint32_t>(sliced_ever_.size())};
    for (const WeightTouch& t : tariff.touches) {
      s.slices = t.id < facts_.size() ? std::min(s.slices, facts_[t.id].slices) : 0;
      if (t.id < facts_.size()) s.slice_parameters += (t.row_end - t.row_begin) * facts_[t.id].cols;
    }
    sliced_ever_.resize(sliced_ever_.size() + (s.slices + 63) / 64);
    sliced_.push_back(s);
  } else if (known.units > 1) {
    known.detail = static_cast<uint32_t>(linear_.size());
    linear_.push_back({.tariff = index});
  }
  units_.insert(units_.end(), tariff.units.begin(), tariff.units.end());
  units_.resize(known.first_unit + known.units);
  tariff_touches_.insert(tariff_touches_.end(), tariff.touches.begin(), tariff.touches.end());
  tariffs_.push_back(known);
  return {index, generation_, known.detail};
}

bool Ledger::GiveAmounts(TariffId id, const CostAmounts& amounts) {
  if (!Knows(id) || id.linear >= linear_.size()) return false;
  Linear& l = linear_[id.linear];
  if (l.tariff != id.index || l.step == step_) return false;
  l.step = step_;
  for (size_t i = 0; i < kCostAmounts; ++i) l.before[i] += l.last[i];
  l.last = amounts;
  return true;
}

void Ledger::BeginRun(uint32_t tariff) {
  if (run_.begin != run_.end) runs_.push_back(run_);
  run_ = {tariff, tariff};
}

void Ledger::EndStep() {
  if (!open_) return;
  open_ = false;
  const bool routine = routine_.steps > 0 && routine_.phase == last_.phase && routine_.run == run_ && routine_.runs == runs_;
  if (!routine) {
    PostRoutine(true);
    routine_.phase = last_.phase;
    routine_.run = run_;
    routine_.runs = runs_;
    routine_.plain = routine_.examined = false;
  } else if (!routine_.examined) {
    ExamineRoutine();
  }
  if (!routine_.plain || !QuicklyTouched(last_.parameters_touched)) {
    Mark();
    marked_ = true;
    last_.parameters_touched = marks_.parameters();
    bad_touches_ += marks_.bad();
  }
  ++routine_.steps;
  Counts& counts = counts_[static_cast<int>(last_.phase)];
  ++counts.steps;
  counts.rows += last_.rows;
  counts.logit_rows += last_.logit_rows;
  counts.parameters_touched += last_.parameters_touched;
}

template <class F>
void Ledger::ForEachTariff(const std::vector<Run>& runs, const Run& last, F f) const {
  for (const Run& run : runs) {
    for (uint32_t i = run.begin; i < run.end; ++i) f(tariffs_[i]);
  }
  for (uint32_t i = last.begin; i < last.end; ++i) f(tariffs_[i]);
}

// --- accounts ---

Account& Ledger::SiteAccount(Phase phase, Site site) {
  std::vector<Account>& sites = sites_[static_cast<int>(phase)];
  const size_t at = SiteIndex(site);
  if (at >= sites.size()) sites.resize((at / kComponents + 1) * kComponents);
  return sites[at];
}

void Ledger::Add(const KnownTariff& tariff, uint64_t times, Account& sum) const {
  sum.useful.AddTimes(units_[tariff.first_unit].useful, times);
  sum.executed.AddTimes(units_[tariff.first_unit].executed, times);
  sum.ops += times;
}

void Ledger::AddLinear(const KnownTariff& tariff, const CostAmounts& amounts, uint64_t times, Account& sum) const {
  for (uint32_t i = 0; i < tariff.units; ++i) {
    sum.useful.AddTimes(units_[tariff.first_unit + i].useful, amounts[i]);
    sum.executed.AddTimes(units_[tariff.first_unit + i].executed, amounts[i]);
  }
  sum.ops += times;
}

// All steps of the routine; the step under way is not yet one of them.
void Ledger::AddRoutine(const KnownTariff& tariff, Account& sum) const {
  if (tariff.units <= 1) return Add(tariff, routine_.steps, sum);
  const Linear& l = linear_[tariff.detail];
  CostAmounts amounts = l.before;
  const bool of_routine = !open_ || l.step != step_;
  for (size_t i = 0; i < kCostAmounts && of_routine; ++i) amounts[i] += l.last[i];
  AddLinear(tariff, amounts, routine_.steps, sum);
}

void Ledger::AddStep(const KnownTariff& tariff, Account& sum) const {
  if (tariff.units <= 1) return Add(tariff, 1, sum);
  AddLinear(tariff, linear_[tariff.detail].last, 1, sum);
}

// The routine's steps into the accounts. `step_is_apart`: the last step has been charged, but is none of them.
void Ledger::PostRoutine(bool step_is_apart) {
  ForEachTariff(routine_.runs, routine_.run, [&](const KnownTariff& tariff) {
    Account* const sums[] = {&SiteAccount(routine_.phase, tariff.site), &totals_[static_cast<int>(routine_.phase)]};
    if (tariff.units <= 1) {
      for (Account* sum : sums) Add(tariff, routine_.steps, *sum);
      return;
    }
    Linear& l = linear_[tariff.detail];
    CostAmounts amounts = std::exchange(l.before, {});
    if (!step_is_apart || l.step != step_) {
      for (size_t i = 0; i < kCostAmounts; ++i) amounts[i] += l.last[i];
      l.last = {};
    }
    for (Account* sum : sums) AddLinear(tariff, amounts, routine_.steps, *sum);
  });
  routine_.steps = 0;
}

Account Ledger::Sum(Phase p, std::optional<Site> site) const {
  Account sum;
  const std::vector<Account>& sites = sites_[static_cast<int>(p)];
  if (!site) {
    sum = totals_[static_cast<int>(p)];
  } else if (!IsWild(*site) && SiteIndex(*site) < sites.size()) {
    sum = sites[SiteIndex(*site)];
  }
  const auto here = [&](const KnownTariff& t) { return !site || (!IsWild(*site) && SiteIndex(t.site) == SiteIndex(*site)); };
  if (routine_.phase == p && routine_.steps > 0) {
    ForEachTariff(routine_.runs, routine_.run, [&](const KnownTariff& tariff) {
      if (here(tariff)) AddRoutine(tariff, sum);
    });
  }
  if (open_ && last_.phase == p) {
    ForEachTariff(runs_, run_, [&](const KnownTariff& tariff) {
      if (here(tariff)) AddStep(tariff, sum);
    });
  }
  return sum;
}

const StepRecord& Ledger::last_step() const {
  last_.account = single_;
  ForEachTariff(runs_, run_, [&](const KnownTariff& tariff) { AddStep(tariff, last_.account); });
  if (open_) last_.parameters_touched = Marked().parameters();
  return last_;
}

Account Ledger::total(Phase p) const { return Sum(p, std::nullopt); }
Account Ledger::at(Phase p, Site site) const { return Sum(p, site); }

// --- what was touched ---

// Looks at how the routine's tariffs touch each weight: once it has come again.
void Ledger::ExamineRoutine() {
  routine_.plain = routine_.examined = true;
  routine_.sliced.clear();
  using Standing = Weight::Standing;
  for (Weight& w : facts_) w.standing = Standing::kFree;
  marks_.Begin();
  ForEachTariff(routine_.runs, routine_.run, [&](const KnownTariff& tariff) {
    if (tariff.by_slice) routine_.sliced.push_back(sliced_[tariff.detail]);
    for (uint32_t i = 0; i < tariff.touches; ++i) {
      const WeightTouch& t = tariff_touches_[tariff.first_touch + i];
      if (!tariff.by_slice) marks_.Touch(t);
      if (t.id >= weights_.size()) {
        routine_.plain = false;
        continue;
      }
      Weight& w = facts_[t.id];
      const bool whole = t.row_begin == 0 && t.row_end == w.rows;
      Standing& standing = w.standing;
      if (tariff.by_slice) {
        if (!whole || standing != Standing::kFree) routine_.plain = false;
        standing = Standing::kBySlice;
      } else {
        if (standing == Standing::kBySlice) routine_.plain = false;
        if (standing == Standing::kFree) standing = Standing::kOther;
        if (standing == Standing::kOther && whole && w.slices == 1) standing = Standing::kWhole;
      }
    }
  });
  routine_.parameters = marks_.parameters();
  if (marks_.bad() > 0) routine_.plain = false;
}

// What the step, one of a plain routine, touched, without looking at every weight: what the routine touches anyway, the slices (each
// tariff has weights of its own) and some rows. False: it is not as simple as that.
bool Ledger::QuicklyTouched(uint64_t& parameters) {
  uint64_t sum = routine_.parameters;
  uint32_t at = 0;
  if (slice_charges_.size() != routine_.sliced.size()) return false;
  for (size_t i = 0; i < slice_charges_.size(); ++i) {
    const Sliced& s = routine_.sliced[i];
    const uint32_t end = slice_charges_[i].end;
    if (slice_charges_[i].tariff != s.tariff) return false;
    sum += (end - at) * s.slice_parameters;
    for (uint32_t next = 0; at < end; ++at) {
      const uint32_t slice = slices_[at].slice;
      if (slice < next || slice >= s.slices) return false;  // perhaps one twice
      sliced_ever_[s.first_ever + slice / 64] |= uint64_t{1} << slice % 64;
      next = slice + 1;
    }
  }
  constexpr size_t kFew = 4;
  if (touches_.size() > kFew) return false;
  for (size_t i = 0; i < touches_.size(); ++i) {
    const WeightTouch& t = touches_[i];
    if (t.id >= facts_.size()) return false;
    const Weight& w = facts_[t.id];
    if (t.slice >= w.slices || t.row_begin >= t.row_end || t.row_end > w.rows) return false;
    if (w.standing == Weight::Standing::kWhole) continue;
    const auto same = [&](const WeightTouch& other) { return other.id == t.id; };
    if (w.standing != Weight::Standing::kFree ||
        std::any_of(touches_.begin(), touches_.begin() + static_cast<int64_t>(i), same)) {
      return false;
    }
    sum += (t.row_end - t.row_begin) * w.cols;
    rows_ever_.push_back(t);
  }
  if (rows_ever_.size() > kMostRows) FoldEver();
  parameters = sum;
  return true;
}

// Marks all that the step touched.
void Ledger::Mark() const {
  marks_.Begin();
  ForEachTariff(runs_, run_, [&](const KnownTariff& tariff) {
    for (uint32_t i = 0; i < tariff.touches && !tariff.by_slice; ++i) marks_.Touch(tariff_touches_[tariff.first_touch + i]);
  });
  uint32_t at = 0;
  for (const SliceCharge& c : slice_charges_) {
    const KnownTariff& tariff = tariffs_[c.tariff];
    if (!tariff.by_slice) marks_.Touch({.row_end = 1});  // of no weight: a defect
    for (; at < c.end; ++at) {
      for (uint32_t i = 0; i < tariff.touches; ++i) {
        WeightTouch t = tariff_touches_[tariff.first_touch + i];
        t.slice = slices_[at].slice;
        t.uses = slices_[at].uses;
        marks_.Touch(t);
      }
    }
  }
  for (const WeightTouch& t : touches_) marks_.Touch(t);
}

// The marks of the last step.
TouchMarks& Ledger::Marked() const {
  if (!marked_ && step_ > 0) {
    Mark();
    marked_ = !open_;
  }
  return marks_;
}

// Into the marks what steps of the routine touched.
void Ledger::FoldEver() const {
  for (const WeightTouch& t : rows_ever_) marks_.TouchEver(t);
  rows_ever_.clear();
  for (const Sliced& s : sliced_) {
    const KnownTariff& tariff = tariffs_[s.tariff];
    for (uint32_t slice = 0; slice < s.slices; ++slice) {
      uint64_t& word = sliced_ever_[s.first_ever + slice / 64];
      if ((word >> slice % 64 & 1) == 0) continue;
      word &= ~(uint64_t{1} << slice % 64);
      for (uint32_t i = 0; i < tariff.touches; ++i) {
        WeightTouch t = tariff_touches_[tariff.first_touch + i];
        t.slice = slice;
        marks_.TouchEver(t);
      }
    }
  }
}

uint64_t Ledger::parameters_touched_ever() const {
  FoldEver();
  return Marked().parameters_ever();
}

uint64_t Ledger::bad_touches() const { return bad_touches_ + (open_ ? Marked().bad() : 0); }
uint64_t Ledger::touched_last(WeightId id) const { return Marked().touched(id); }
uint32_t Ledger::slices_last(WeightId id) const { return Marked().slices(id); }
uint64_t Ledger::uses_last(WeightId id, uint32_t slice) const { return Marked().uses(id, slice); }
std::vector<Ledger::RowRange> Ledger::ranges_last(WeightId id, uint32_t slice) const { return Marked().ranges(id, slice); }

}  // namespace tally
