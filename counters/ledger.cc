#include "counters/ledger.h"

#include <algorithm>
#include <utility>

namespace tally {
namespace {

// Sites come from the graph, never from a file; the bound only keeps a wild layer number from asking for
// memory.
constexpr int32_t kMaxLayers = 1 << 16;

size_t SiteIndex(Site site) { return static_cast<size_t>(site.layer + 1) * kComponents + static_cast<size_t>(site.component); }

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
  sizes_.clear();
  slices_.clear();
  slice_rows_.clear();
  size_t n_slices = 0;
  int32_t last_layer = -1;
  for (const WeightInfo& w : weights_) {
    sizes_.push_back({n_slices, w.slices, w.rows, w.cols});
    n_slices += w.slices;
    last_layer = std::max(last_layer, w.layer);
  }
  slices_.resize(n_slices);
  slice_rows_.resize(n_slices);
  epoch_ = 0;
  open_ = false;
  touched_ever_ = bad_touches_ = 0;
  last_ = {};
  single_ = {};
  repeated_.clear();
  repeated_costs_.clear();
  ++generation_;
  for (int p = 0; p < 2; ++p) {
    totals_[p] = {};
    steps_[p] = rows_[p] = logit_rows_[p] = touched_[p] = 0;
    // Room for every layer that has a weight, so that charging does not allocate.
    sites_[p].assign((static_cast<size_t>(std::clamp(last_layer, -1, kMaxLayers)) + 2) * kComponents, Account{});
  }
}

void Ledger::BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows) {
  if (open_) EndStep();
  open_ = true;
  last_ = {};
  single_ = {};
  last_.phase = phase;
  last_.rows = rows;
  last_.logit_rows = logit_rows;
  if (++epoch_ == 0) {  // after 2^32 steps old marks would look new
    for (SliceState& s : slices_) s.whole_epoch = s.partial_epoch = s.used_epoch = 0;
    for (SliceRows& s : slice_rows_) std::fill(s.row_epoch.begin(), s.row_epoch.end(), 0);
    for (RepeatedCount& r : repeated_) r.epoch = 0;
    epoch_ = 1;
  }
}

void Ledger::Charge(Site site, std::string_view /*op*/, const Cost& useful, const Cost& executed,
                    std::span<const WeightTouch> touches) {
  if (!open_) BeginStep(Phase::kPrefill, 0, 0);  // an op run on its own (a test, a bench) is a step of no rows
  single_.useful += useful;
  single_.executed += executed;
  ++single_.ops;
  for (Account* sum : {&SiteAccount(last_.phase, site), &totals_[static_cast<int>(last_.phase)]}) {
    sum->useful += useful;
    sum->executed += executed;
    ++sum->ops;
  }
  for (const WeightTouch& t : touches) Touch(t);
}

bool Ledger::ChargeAgain(Repeatable what, std::span<const WeightTouch> touches) {
  if (!open_ || what.generation != generation_ || what.index >= repeated_.size()) return false;
  RepeatedCount& r = repeated_[what.index];
  if (r.phase != last_.phase || r.epoch == epoch_) return false;  // once a step, so that a step's own sum can be told
  ++r.count;
  unsettled_ = true;
  r.epoch = epoch_;
  for (const WeightTouch& t : touches) Touch(t);
  return true;
}

Ledger::Repeatable Ledger::ChargeRepeatable(Repeatable replaces, Site site, const Cost& useful, const Cost& executed,
                                            std::span<const WeightTouch> touches) {
  if (!open_) BeginStep(Phase::kPrefill, 0, 0);
  const bool known = replaces.generation == generation_ && replaces.index < repeated_.size();
  if (!known || repeated_[replaces.index].epoch == epoch_) {  // this step's sum still needs that one
    replaces = {static_cast<uint32_t>(repeated_.size()), generation_};
    repeated_.emplace_back();
    repeated_costs_.emplace_back();
  }
  Settle(replaces.index);
  repeated_costs_[replaces.index] = {site, useful, executed};
  RepeatedCount& r = repeated_[replaces.index];
  r.phase = last_.phase;
  r.count = 1;
  unsettled_ = true;
  r.epoch = epoch_;
  for (const WeightTouch& t : touches) Touch(t);
  return replaces;
}

Account& Ledger::SiteAccount(Phase phase, Site site) const {
  std::vector<Account>& sites = sites_[static_cast<int>(phase)];
  site.layer = std::clamp(site.layer, -1, kMaxLayers);
  const size_t at = SiteIndex(site);
  if (at >= sites.size()) sites.resize((static_cast<size_t>(site.layer) + 2) * kComponents);
  return sites[at];
}

void Ledger::Settle(size_t repeated) const {
  RepeatedCount& r = repeated_[repeated];
  const RepeatedCost& cost = repeated_costs_[repeated];
  if (r.count == 0) return;
  for (Account* sum : {&SiteAccount(r.phase, cost.site), &totals_[static_cast<int>(r.phase)]}) {
    sum->useful.AddTimes(cost.useful, r.count);
    sum->executed.AddTimes(cost.executed, r.count);
    sum->ops += r.count;
  }
  r.count = 0;
}

void Ledger::SettleAll() const {
  if (!unsettled_) return;
  for (size_t i = 0; i < repeated_.size(); ++i) Settle(i);
  unsettled_ = false;
}

const StepRecord& Ledger::last_step() const {
  last_.account = single_;
  for (size_t i = 0; i < repeated_.size(); ++i) {
    if (epoch_ == 0 || repeated_[i].epoch != epoch_) continue;
    last_.account.useful += repeated_costs_[i].useful;
    last_.account.executed += repeated_costs_[i].executed;
    ++last_.account.ops;
  }
  return last_;
}

const Account& Ledger::total(Phase p) const {
  SettleAll();
  return totals_[static_cast<int>(p)];
}

void Ledger::Touch(const WeightTouch& t) {
  if (t.row_begin == t.row_end) return;
  if (t.id >= sizes_.size() || t.slice >= sizes_[t.id].slices || t.row_begin > t.row_end || t.row_end > sizes_[t.id].rows) {
    ++bad_touches_;
    return;
  }
  const WeightSize& w = sizes_[t.id];
  const size_t slice = w.first_slice + t.slice;
  SliceState& s = slices_[slice];
  if (s.used_epoch != epoch_) s.used = 0;
  s.used_epoch = epoch_;
  s.used += t.uses;
  if (s.whole_epoch == epoch_) return;  // this step has read all of it
  if (t.row_begin == 0 && t.row_end == w.rows) {
    const uint64_t before = s.partial_epoch == epoch_ ? s.rows : 0;
    s.whole_epoch = epoch_;
    last_.parameters_touched += (w.rows - before) * w.cols;
    touched_ever_ += (w.rows - s.rows_ever) * w.cols;
    s.rows_ever = w.rows;
    return;
  }
  last_.parameters_touched += TouchRows(w, slice, t.row_begin, t.row_end) * w.cols;
}

// Marks rows [begin, end) of a slice that this step has not read as a whole; returns how many of them are new
// to the step.
uint64_t Ledger::TouchRows(const WeightSize& w, size_t slice, uint32_t begin, uint32_t end) {
  SliceState& s = slices_[slice];
  SliceRows& rows = slice_rows_[slice];
  if (rows.row_epoch.empty()) rows.row_epoch.resize(w.rows);
  if (s.partial_epoch != epoch_) {
    s.partial_epoch = epoch_;
    s.rows = 0;
  }
  uint64_t fresh = 0;
  for (uint32_t r = begin; r < end; ++r) {
    fresh += rows.row_epoch[r] != epoch_;
    rows.row_epoch[r] = epoch_;
  }
  s.rows += fresh;
  if (s.rows == w.rows) s.whole_epoch = epoch_;
  if (s.rows_ever < w.rows) {
    if (rows.row_ever.empty()) rows.row_ever.resize(w.rows);
    uint64_t first_time = 0;
    for (uint32_t r = begin; r < end; ++r) {
      first_time += !rows.row_ever[r];
      rows.row_ever[r] = true;
    }
    s.rows_ever += first_time;
    touched_ever_ += first_time * w.cols;
  }
  return fresh;
}

void Ledger::EndStep() {
  if (!open_) return;
  open_ = false;
  const int p = static_cast<int>(last_.phase);
  ++steps_[p];
  rows_[p] += last_.rows;
  logit_rows_[p] += last_.logit_rows;
  touched_[p] += last_.parameters_touched;
}

const Ledger::SliceState* Ledger::Slice(WeightId id, uint32_t slice) const {
  return epoch_ > 0 && id < sizes_.size() && slice < sizes_[id].slices ? &slices_[sizes_[id].first_slice + slice] : nullptr;
}

uint64_t Ledger::touched_last(WeightId id) const {
  uint64_t rows = 0;
  for (uint32_t i = 0; const SliceState* s = Slice(id, i); ++i) {
    rows += s->whole_epoch == epoch_ ? weights_[id].rows : s->partial_epoch == epoch_ ? s->rows : 0;
  }
  return rows > 0 ? rows * weights_[id].cols : 0;
}

uint32_t Ledger::slices_last(WeightId id) const {
  uint32_t n = 0;
  for (uint32_t i = 0; const SliceState* s = Slice(id, i); ++i)
    n += s->whole_epoch == epoch_ || s->partial_epoch == epoch_ ? 1 : 0;
  return n;
}

uint64_t Ledger::uses_last(WeightId id, uint32_t slice) const {
  const SliceState* s = Slice(id, slice);
  return s != nullptr && s->used_epoch == epoch_ ? s->used : 0;
}

std::vector<Ledger::RowRange> Ledger::ranges_last(WeightId id, uint32_t slice) const {
  const SliceState* s = Slice(id, slice);
  std::vector<RowRange> ranges;
  if (s == nullptr) return ranges;
  if (s->whole_epoch == epoch_) return {{0, weights_[id].rows}};
  if (s->partial_epoch != epoch_) return ranges;
  const std::vector<uint32_t>& row_epoch = slice_rows_[sizes_[id].first_slice + slice].row_epoch;
  for (uint64_t r = 0; r < row_epoch.size(); ++r) {
    if (row_epoch[r] != epoch_) continue;
    if (ranges.empty() || ranges.back().end != r) ranges.push_back({r, r});
    ranges.back().end = r + 1;
  }
  return ranges;
}

const Account& Ledger::at(Phase p, Site site) const {
  static const Account kNothing{};
  SettleAll();
  const std::vector<Account>& sites = sites_[static_cast<int>(p)];
  if (site.layer < -1 || SiteIndex(site) >= sites.size()) return kNothing;
  return sites[SiteIndex(site)];
}

}  // namespace tally
