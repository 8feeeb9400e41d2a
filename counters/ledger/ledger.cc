#include "counters/ledger/ledger.h"

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

// Whether what was given is of the tariffs that were charged, in whatever order.
template <class Given, class Charged>
bool SameTariffs(std::span<const Given> given, const std::vector<Charged>& charged) {
  std::vector<uint32_t> a, b;
  for (const Given& g : given) a.push_back(g.tariff);
  for (const Charged& c : charged) b.push_back(c.tariff);
  std::ranges::sort(a);
  std::ranges::sort(b);
  return a == b;
}

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
  open_ = has_single_ = false;
  single_ = {};
  log_.Clear();
  books_ = {};
  books_.marks.Reset(weights_);
  ForgetTariffs();
  int32_t last_layer = -1;
  for (const WeightInfo& w : weights_) last_layer = std::max(last_layer, w.layer);
  for (std::vector<Account>& sites : books_.sites) {
    // Room for every layer that has a weight, so that charging does not allocate.
    sites.assign((static_cast<size_t>(std::clamp(last_layer, -1, kMaxLayers)) + 2) * kComponents, Account{});
  }
}

void Ledger::ForgetTariffs() {
  tariffs_.clear();
  units_.clear();
  tariff_touches_.clear();
  sliced_.clear();
  books_.slices_ever.clear();
  crowded_ = false;
  ++generation_;
}

// For another step; of the one before nothing need be kept.
void Ledger::MakeRoom() {
  if (has_single_) single_ = {};
  has_single_ = false;
  if (!log_.IsFull() && !crowded_) return;
  Settle();
  log_.Clear();
  books_.steps = books_.marked = 0;
  if (!crowded_) return;
  FoldEver();
  PostRoutine();
  books_.routine = {};
  ForgetTariffs();
}

void Ledger::Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches) {
  if (!open_) BeginStep(Phase::kPrefill, 0, 0);  // an op run on its own (a test, a bench) is a step of no rows
  has_single_ = true;
  const Phase phase = log_.last().phase;
  for (Account* sum : {&single_, &SiteAccount(phase, site), &books_.totals[static_cast<int>(phase)]}) {
    sum->useful += useful;
    sum->executed += executed;
    ++sum->ops;
  }
  log_.touches().insert(log_.touches().end(), touches.begin(), touches.end());
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
    known.sliced = static_cast<uint32_t>(sliced_.size());
    Sliced s{.tariff = index,
             .slices = tariff.touches.empty() ? 0 : UINT32_MAX,
             .first_ever = static_cast<uint32_t>(books_.slices_ever.size())};
    for (const WeightTouch& t : tariff.touches) {
      s.slices = t.id < weights_.size() ? std::min(s.slices, weights_[t.id].slices) : 0;
      if (t.id < weights_.size()) s.slice_parameters += (t.row_end - t.row_begin) * weights_[t.id].cols;
    }
    books_.slices_ever.resize(books_.slices_ever.size() + (s.slices + 63) / 64);
    sliced_.push_back(s);
  }
  units_.insert(units_.end(), tariff.units.begin(), tariff.units.end());
  units_.resize(known.first_unit + known.units);
  tariff_touches_.insert(tariff_touches_.end(), tariff.touches.begin(), tariff.touches.end());
  tariffs_.push_back(known);
  crowded_ = tariffs_.size() > kMostTariffs;
  return {uint64_t{generation_} << 32 | index};
}

void Ledger::GiveAmounts(TariffId id, const CostAmounts& amounts) {
  if (Knows(id)) log_.AddAmounts(id.index(), amounts);
}

void Ledger::GiveSlices(TariffId id) {
  if (!Knows(id)) return log_.DropSlices();
  log_.AddSlices(id.index());
}

void Ledger::CountDefect() { ++books_.bad_touches; }

template <class F>
void Ledger::ForEachTariff(std::span<const StepLog::Run> runs, F f) const {
  for (const StepLog::Run& run : runs) {
    for (uint32_t i = run.begin; i < run.end; ++i) f(tariffs_[i]);
  }
}

// --- accounts ---

Account& Ledger::SiteAccount(Phase phase, Site site) const {
  std::vector<Account>& sites = books_.sites[static_cast<int>(phase)];
  const size_t at = SiteIndex(site);
  if (at >= sites.size()) sites.resize((at / kComponents + 1) * kComponents);
  return sites[at];
}

// All that `times` charges cost; with amounts, only that they were.
void Ledger::Add(const KnownTariff& tariff, uint64_t times, Account& sum) const {
  sum.ops += times;
  if (tariff.units > 1) return;
  sum.useful.AddTimes(units_[tariff.first_unit].useful, times);
  sum.executed.AddTimes(units_[tariff.first_unit].executed, times);
}

void Ledger::AddAmounts(const KnownTariff& tariff, const CostAmounts& amounts, Account& sum) const {
  for (uint32_t i = 0; i < tariff.units && tariff.units > 1; ++i) {
    sum.useful.AddTimes(units_[tariff.first_unit + i].useful, amounts[i]);
    sum.executed.AddTimes(units_[tariff.first_unit + i].executed, amounts[i]);
  }
}

// What a step was charged with by tariffs; `site`: only there.
void Ledger::AddStep(const StepLog::Step& step, std::optional<Site> site, Account& sum) const {
  const auto here = [&](const KnownTariff& t) { return !site || SiteIndex(t.site) == SiteIndex(*site); };
  ForEachTariff(step.runs, [&](const KnownTariff& tariff) {
    if (here(tariff)) Add(tariff, 1, sum);
  });
  for (const StepLog::Amounts& given : step.amounts) {
    if (here(tariffs_[given.tariff])) AddAmounts(tariffs_[given.tariff], given.amounts, sum);
  }
}

void Ledger::BeginRoutine(const StepLog::Step& step) const {
  Routine& routine = books_.routine;
  routine.phase = step.phase;
  routine.runs.assign(step.runs.begin(), step.runs.end());
  routine.plain = routine.examined = false;
  routine.linear.clear();
  routine.sliced.clear();
  ForEachTariff(step.runs, [&](const KnownTariff& tariff) {
    if (tariff.units > 1) routine.linear.push_back({.tariff = static_cast<uint32_t>(&tariff - tariffs_.data())});
    if (tariff.by_slice) routine.sliced.push_back(sliced_[tariff.sliced]);
  });
}

// The routine's steps into the accounts.
void Ledger::PostRoutine() const {
  Routine& routine = books_.routine;
  if (routine.steps == 0) return;
  Account& total = books_.totals[static_cast<int>(routine.phase)];
  ForEachTariff(routine.runs, [&](const KnownTariff& tariff) {
    for (Account* sum : {&SiteAccount(routine.phase, tariff.site), &total}) Add(tariff, routine.steps, *sum);
  });
  for (Linear& linear : routine.linear) {
    const KnownTariff& tariff = tariffs_[linear.tariff];
    for (Account* sum : {&SiteAccount(routine.phase, tariff.site), &total}) AddAmounts(tariff, linear.sum, *sum);
    linear.sum = {};
  }
  routine.steps = 0;
}

Account Ledger::Sum(Phase p, std::optional<Site> site) const {
  if (site && IsWild(*site)) return {};
  Settle();
  if (books_.routine.phase == p) PostRoutine();
  Account sum;
  const std::vector<Account>& sites = books_.sites[static_cast<int>(p)];
  if (!site) {
    sum = books_.totals[static_cast<int>(p)];
  } else if (SiteIndex(*site) < sites.size()) {
    sum = sites[SiteIndex(*site)];
  }
  if (const StepLog::Step step = log_.last(); open_ && step.phase == p) AddStep(step, site, sum);
  return sum;
}

Account Ledger::total(Phase p) const { return Sum(p, std::nullopt); }
Account Ledger::at(Phase p, Site site) const { return Sum(p, site); }

StepRecord Ledger::last_step() const {
  const StepLog::Step step = log_.last();
  StepRecord record{.phase = step.phase, .rows = step.rows, .logit_rows = step.logit_rows, .account = single_};
  AddStep(step, std::nullopt, record.account);
  Settle();
  record.parameters_touched = open_ ? Marked().parameters() : books_.last_parameters_touched;
  return record;
}

// --- from the log into the books ---

const Ledger::Counts& Ledger::Settled(Phase p) const {
  Settle();
  return books_.counts[static_cast<int>(p)];
}

void Ledger::Settle() const {
  const size_t ended = log_.size() - (open_ ? 1 : 0);
  for (; books_.steps < ended; ++books_.steps) SettleStep(log_.step(books_.steps));
}

void Ledger::SettleStep(const StepLog::Step& step) const {
  Routine& routine = books_.routine;
  if (routine.phase == step.phase && std::ranges::equal(routine.runs, step.runs)) {
    if (!routine.examined) ExamineRoutine();
  } else {
    PostRoutine();
    BeginRoutine(step);
  }
  ++routine.steps;
  SettleAmounts(step.amounts);
  uint64_t parameters = 0;
  if (!routine.plain || !QuicklyTouched(step, parameters)) {
    Mark(step);
    books_.marked = books_.steps + 1;
    parameters = books_.marks.parameters();
    books_.bad_touches += books_.marks.bad();
    if (!SameTariffs(step.slice_charges, routine.sliced)) ++books_.bad_touches;
  }
  books_.last_parameters_touched = parameters;
  Counts& counts = books_.counts[static_cast<int>(step.phase)];
  ++counts.steps;
  counts.rows += step.rows;
  counts.logit_rows += step.logit_rows;
  counts.parameters_touched += parameters;
}

void Ledger::SettleAmounts(std::span<const StepLog::Amounts> given) const {
  std::vector<Linear>& charges = books_.routine.linear;
  bool in_order = given.size() == charges.size();
  for (size_t i = 0; i < given.size(); ++i) {
    const bool in_place = i < charges.size() && charges[i].tariff == given[i].tariff;
    in_order = in_order && in_place;
    const auto charge =
        in_place ? charges.begin() + static_cast<int64_t>(i) : std::ranges::find(charges, given[i].tariff, &Linear::tariff);
    if (charge == charges.end()) continue;  // a defect
    for (size_t a = 0; a < kCostAmounts; ++a) charge->sum[a] += given[i].amounts[a];
  }
  if (!in_order && !SameTariffs(given, charges)) ++books_.bad_touches;
}

// --- what was touched ---

// Looks at how the routine's tariffs touch each weight: once it has come again.
void Ledger::ExamineRoutine() const {
  Routine& routine = books_.routine;
  routine.plain = routine.examined = true;
  using Standing = Routine::Standing;
  routine.standing.assign(weights_.size(), Standing::kFree);
  books_.marks.Begin();
  books_.marked = 0;
  ForEachTariff(routine.runs, [&](const KnownTariff& tariff) {
    for (uint32_t i = 0; i < tariff.touches; ++i) {
      const WeightTouch& t = tariff_touches_[tariff.first_touch + i];
      if (!tariff.by_slice) books_.marks.Touch(t);
      if (t.id >= weights_.size()) {
        routine.plain = false;
        continue;
      }
      const WeightInfo& w = weights_[t.id];
      const bool whole = t.row_begin == 0 && t.row_end == w.rows;
      Standing& standing = routine.standing[t.id];
      if (tariff.by_slice) {
        if (!whole || standing != Standing::kFree) routine.plain = false;
        standing = Standing::kBySlice;
      } else {
        if (standing == Standing::kBySlice) routine.plain = false;
        if (standing == Standing::kFree) standing = Standing::kOther;
        if (standing == Standing::kOther && whole && w.slices == 1) standing = Standing::kWhole;
      }
    }
  });
  routine.parameters = books_.marks.parameters();
  if (books_.marks.bad() > 0) routine.plain = false;
}

// What the step, one of a plain routine, touched, without looking at every weight: what the routine touches anyway, the slices (each
// tariff has weights of its own) and some rows. False: it is not as simple as that.
bool Ledger::QuicklyTouched(const StepLog::Step& step, uint64_t& parameters) const {
  const Routine& routine = books_.routine;
  parameters = routine.parameters;
  if (books_.rows_ever.size() > kMostRows) FoldEver();
  if (step.slice_charges.size() != routine.sliced.size()) return false;
  const SliceUse* use = step.slices.data();
  for (size_t i = 0; i < step.slice_charges.size(); ++i) {
    const Sliced& s = routine.sliced[i];
    const StepLog::Slices& given = step.slice_charges[i];
    if (given.tariff != s.tariff) return false;
    parameters += given.count * s.slice_parameters;
    const SliceUse* const end = use + given.count;
    for (uint32_t next = 0; use != end; ++use) {
      if (use->slice < next || use->slice >= s.slices) return false;  // perhaps one twice
      books_.slices_ever[s.first_ever + use->slice / 64] |= uint64_t{1} << use->slice % 64;
      next = use->slice + 1;
    }
  }
  constexpr size_t kFew = 4;
  if (step.touches.size() > kFew) return false;
  for (size_t i = 0; i < step.touches.size(); ++i) {
    const WeightTouch& t = step.touches[i];
    if (t.id >= weights_.size()) return false;
    const WeightInfo& w = weights_[t.id];
    if (t.slice >= w.slices || t.row_begin >= t.row_end || t.row_end > w.rows) return false;
    if (routine.standing[t.id] == Routine::Standing::kWhole) continue;
    const auto same = [&](const WeightTouch& other) { return other.id == t.id; };
    if (routine.standing[t.id] != Routine::Standing::kFree || std::ranges::any_of(step.touches.first(i), same)) return false;
    parameters += (t.row_end - t.row_begin) * w.cols;
    books_.rows_ever.push_back(t);
  }
  return true;
}

// Marks all that the step touched.
void Ledger::Mark(const StepLog::Step& step) const {
  TouchMarks& marks = books_.marks;
  marks.Begin();
  ForEachTariff(step.runs, [&](const KnownTariff& tariff) {
    for (uint32_t i = 0; i < tariff.touches && !tariff.by_slice; ++i) marks.Touch(tariff_touches_[tariff.first_touch + i]);
  });
  size_t at = 0;
  for (const StepLog::Slices& given : step.slice_charges) {
    const KnownTariff& tariff = tariffs_[given.tariff];
    for (const SliceUse& use : step.slices.subspan(at, given.count)) {
      for (uint32_t i = 0; i < tariff.touches && tariff.by_slice; ++i) {
        WeightTouch t = tariff_touches_[tariff.first_touch + i];
        t.slice = use.slice;
        t.uses = use.uses;
        marks.Touch(t);
      }
    }
    at += given.count;
  }
  for (const WeightTouch& t : step.touches) marks.Touch(t);
}

// The marks of the last step.
TouchMarks& Ledger::Marked() const {
  Settle();
  if (books_.marked != log_.size()) {
    Mark(log_.last());
    books_.marked = open_ ? 0 : log_.size();  // of a step under way there may be more to come
  }
  return books_.marks;
}

// Into the marks what steps of the routine touched.
void Ledger::FoldEver() const {
  for (const WeightTouch& t : books_.rows_ever) books_.marks.TouchEver(t);
  books_.rows_ever.clear();
  for (const Sliced& s : sliced_) {
    const KnownTariff& tariff = tariffs_[s.tariff];
    for (uint32_t slice = 0; slice < s.slices; ++slice) {
      uint64_t& word = books_.slices_ever[s.first_ever + slice / 64];
      if ((word >> slice % 64 & 1) == 0) continue;
      word &= ~(uint64_t{1} << slice % 64);
      for (uint32_t i = 0; i < tariff.touches; ++i) {
        WeightTouch t = tariff_touches_[tariff.first_touch + i];
        t.slice = slice;
        books_.marks.TouchEver(t);
      }
    }
  }
}

uint64_t Ledger::parameters_touched_ever() const {
  const TouchMarks& marks = Marked();
  FoldEver();
  return marks.parameters_ever();
}

uint64_t Ledger::bad_touches() const {
  Settle();
  return books_.bad_touches + (open_ ? Marked().bad() : 0);
}
uint64_t Ledger::touched_last(WeightId id) const { return Marked().touched(id); }
uint32_t Ledger::slices_last(WeightId id) const { return Marked().slices(id); }
uint64_t Ledger::uses_last(WeightId id, uint32_t slice) const { return Marked().uses(id, slice); }
std::vector<Ledger::RowRange> Ledger::ranges_last(WeightId id, uint32_t slice) const { return Marked().ranges(id, slice); }

}  // namespace tally
