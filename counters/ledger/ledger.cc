// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/ledger.h"

#include <algorithm>
#include <bit>
#include <map>

namespace tally {

Phase PhaseOf(std::span<const BookedRow> rows) {
  bool prefill = false, decode = false;
  for (const BookedRow& row : rows) (row.phase == Phase::kDecode ? decode : prefill) = true;
  return !decode ? Phase::kPrefill : prefill ? Phase::kMixed : Phase::kDecode;
}

void Ledger::SetWeights(std::vector<WeightInfo> weights) {
  weights_ = std::move(weights);
  slices_ = std::make_shared<WeightSlices>(weights_);
  bills_.clear();
  closed_.clear();
  groups_.clear();
  alone_ = nullptr;
  open_ = billed_ = false;
  Reset();
  ClearSums();
}

void Ledger::Reset() {
  ++resets_;
  alone_ != nullptr ? BillAlone() : SumPending();  // what a step in progress has charged
  for (Op& op : ops_) op.amounts = {};
  counts_ = {};
  expert_uses_ = {};
  touched_ = TouchSet(*slices_);
  unbilled_ = {};
  drafts_ = {};
  last_ = {};
  counted_ = false;
}

uint32_t Ledger::AddOp(std::vector<SiteCost> sites, uint8_t of, WeightTouches touches, bool chosen) {
  const uint32_t index = static_cast<uint32_t>(ops_.size());
  Op& op = ops_.emplace_back();
  op.sites = std::move(sites);
  op.of = of;
  op.chosen = chosen;
  op.touches = std::move(touches);
  op.first_entry = static_cast<uint32_t>(entries_.size());
  for (size_t amount = 0; amount < kAmounts; ++amount) {
    Cost useful;
    for (const SiteCost& site : op.sites) {
      for (const SiteCost::Unit& unit : site.units) {
        if (unit.amount == static_cast<Amount>(amount)) useful += unit.useful;
      }
    }
    if (amount == static_cast<size_t>(Amount::kSlices)) op.first_slice_entry = static_cast<uint32_t>(entries_.size());
    useful.ForEachEntry([&](size_t entry, uint64_t value) {
      entries_.push_back({static_cast<uint32_t>(amount), static_cast<uint32_t>(entry), value});
    });
  }
  op.end_entry = static_cast<uint32_t>(entries_.size());
  op.first_unit = static_cast<uint32_t>(units_.size());
  const WeightSlices::Weight* w = chosen && !op.touches.empty() ? slices_->Find(op.touches[0].id) : nullptr;
  op.slices = w != nullptr ? w->slices : 0;
  units_.insert(units_.end(), chosen ? op.slices : 1, index);
  for (BillSlot& slot : bills_) slot.units.resize((units_.size() + 63) / 64);
  for (std::vector<uint64_t>& ran : ran_) ran.resize((units_.size() + 63) / 64);
  return index;
}

uint32_t Ledger::FindGroup(const BookedRow& row) {
  BillSlot& slot = IsOpen(row.bill) ? bills_[static_cast<size_t>(row.bill)] : nobody_;
  const Phase phase = row.phase == Phase::kDecode ? Phase::kDecode : Phase::kPrefill;
  const bool draft = row.draft && slot.open;
  uint32_t& known = slot.groups[static_cast<size_t>(phase)];
  if (!draft && known < groups_.size() && groups_[known].slot == &slot && groups_[known].phase == phase &&
      !groups_[known].draft) {
    return known;
  }
  if (!slot.drafts.empty() && !predicting_) Settle(slot, 0);  // of an earlier step
  const uint32_t g = static_cast<uint32_t>(groups_.size());
  if (!draft) known = g;
  Group& group = groups_.emplace_back();
  group.slot = &slot;
  group.phase = phase;
  group.draft = draft;
  billed_ = billed_ || slot.open;
  return g;
}

void Ledger::BeginStep(std::span<const BookedRow> rows) {
  EndStep();
  predicting_ = !rows.empty() && rows[0].stack == StackKind::kPrediction;
  open_ = true;
  counted_ = !predicting_;
  billed_ = false;
  groups_.clear();
  for (std::vector<uint32_t>& groups : row_groups_) groups.clear();
  phase_rows_ = {};
  hidden_ = std::ranges::any_of(rows, &BookedRow::hidden);
  for (const BookedRow& row : rows) {
    const uint32_t g = FindGroup(row);
    groups_[g].again += row.again ? 1 : 0;
    for (size_t of = 0; of < kRowSets; ++of) {
      if ((of == kLogitRows && !row.logits) || (of == kOutputRows && !row.logits && !row.hidden)) continue;
      row_groups_[of].push_back(g);
      ++groups_[g].rows[of];
      ++phase_rows_[of][static_cast<size_t>(groups_[g].phase)];
    }
  }
  const Phase phase = PhaseOf(rows);
  BillSlot* const alone = billed_ && groups_.size() == 1 && !groups_[0].draft && !predicting_ ? groups_[0].slot : nullptr;
  if (alone != alone_ || phase != phase_) BillAlone();
  alone_ = alone;
  phase_ = phase;
  last_ = {.phase = phase_,
           .rows = static_cast<uint32_t>(row_groups_[0].size()),
           .logit_rows = static_cast<uint32_t>(row_groups_[1].size()),
           .parameters_touched = 0};
  touched_.BeginStep();
  if (predicting_) return;
  ++counts_[static_cast<size_t>(phase_)].steps;
  for (size_t p = 0; p < 2; ++p) {
    counts_[p].rows += phase_rows_[0][p];
    counts_[p].logit_rows += phase_rows_[1][p];
  }
}

// For steps of both phases: row amounts go to their row's phase, the rest to kMixed.
void Ledger::ChargeMixed(Op& op, const CostAmounts& amounts, std::span<const CostAmounts> of_groups) const {
  const std::array<uint32_t, 2>& rows = phase_rows_[RowsOf(op)];
  const uint64_t all = uint64_t{rows[0]} + rows[1];
  const size_t booked = billed_ ? kBilled : 0;
  std::array<CostAmounts, 2> parts;
  for (size_t g = 0; g < of_groups.size(); ++g) parts[static_cast<size_t>(groups_[g].phase)] += of_groups[g];
  CostAmounts once = amounts;
  for (size_t p = 0; p < 2; ++p) {
    for (size_t a = 0; a < kFirstRowAmount; ++a) parts[p][a] = 0;
    // Ops of experts have top_k rows for each row of the step.
    if (of_groups.empty() && all > 0) parts[p][Amount::kRows] = amounts[Amount::kRows] / all * rows[p];
    for (size_t a = kFirstRowAmount; a < kAmounts; ++a) once[a] -= parts[p][a];
    op.amounts[booked + p] += parts[p];
  }
  op.amounts[booked + static_cast<size_t>(Phase::kMixed)] += once;
}

void Ledger::ChargeGroups(Op& op, const CostAmounts& amounts, std::span<const CostAmounts> of_groups) {
  if (phase_ == Phase::kMixed) ChargeMixed(op, amounts, of_groups);
  if (!billed_) return;
  CostAmounts left = amounts;
  if (!of_groups.empty()) {
    CostAmounts by_row;
    for (size_t a = kFirstRowAmount; a < kAmounts; ++a) std::swap(left[a], by_row[a]);
    if (phase_ != Phase::kMixed) op.amounts[kBilled + static_cast<size_t>(phase_)] += by_row;
    for (const Entry& e : EntriesOf(op)) {
      if (e.amount < kFirstRowAmount) continue;
      for (size_t g = 0; g < of_groups.size(); ++g) groups_[g].cost[e.entry] += of_groups[g][e.amount] * e.value;
    }
  }
  op.amounts[kPending] += left;
}

void Ledger::ChooseSlices(uint32_t index, std::span<const WeightTouch> touches) {
  const Op& op = ops_[index];
  std::span<const Entry> costs = std::span(entries_).subspan(op.first_slice_entry, op.end_entry - op.first_slice_entry);
  size_t n = 0;
  while (n < costs.size() && costs[n].amount == static_cast<size_t>(Amount::kSlices)) ++n;
  costs = groups_.size() > 1 ? costs.first(n) : costs.first(0);
  Entries shares;  // of one row, for slices that `users` rows chose
  uint64_t users = 0;
  for (const WeightTouch& t : touches) {
    if (t.id != touches[0].id) break;
    if (t.uses != users) {
      users = t.uses;
      for (size_t i = 0; i < costs.size(); ++i) shares[i] = costs[i].value / users;
    }
    const size_t unit = op.first_unit + t.slice;
    const uint64_t bit = t.slice < op.slices ? uint64_t{1} << unit % 64 : 0;
    for (const int32_t row : std::span(t.rows, t.uses)) {
      Group& group = groups_[row_groups_[0][static_cast<size_t>(row)]];
      if (bit != 0 && group.slot->open) group.slot->units[unit / 64] |= bit;
      for (size_t i = 0; i < costs.size(); ++i) group.cost[costs[i].entry] += shares[i];
    }
    for (size_t i = 0; i < costs.size(); ++i) for_rows_[RowsOf(op)][costs[i].entry] -= shares[i] * users;
  }
}

void Ledger::TouchForRow(size_t row, const WeightTouch& touch) { groups_[row_groups_[0][row]].slot->bill.touched.Touch(touch); }

// Adds what is pending to the sums.
void Ledger::SumPending() {
  for (Op& op : ops_) {
    CostAmounts& pending = op.amounts[kPending];
    uint64_t any = 0;
    for (size_t a = 0; a < kAmounts; ++a) any |= pending[a];
    if (any == 0) continue;
    const size_t of = RowsOf(op);
    const uint64_t rows = alone_ != nullptr ? 1 : std::max<uint64_t>(1, row_groups_[of].size());
    const uint64_t run = pending[Amount::kRows], each = run / rows;  // ops of experts have top_k rows for each row of the step
    for (const Entry& e : EntriesOf(op)) {
      if (e.amount == kFirstRowAmount) {
        each_row_[of][e.entry] += each * e.value;
        for_rows_[of][e.entry] += (run - each * rows) * e.value;
      } else {
        for_rows_[of][e.entry] += pending[e.amount] * e.value;
      }
    }
    if (!op.chosen) ran_[of][op.first_unit / 64] |= uint64_t{1} << op.first_unit % 64;
    if (phase_ != Phase::kMixed) op.amounts[kBilled + static_cast<size_t>(phase_)] += pending;
    pending = {};
  }
}

void Ledger::ClearSums() {
  each_row_ = for_rows_ = {};
  for (std::vector<uint64_t>& ran : ran_) std::fill(ran.begin(), ran.end(), 0);
}

void Ledger::DivideAmongRows() {
  for (size_t of = 0; of < kRowSets; ++of) {
    const std::vector<uint32_t>& row_groups = row_groups_[of];
    const uint64_t rows = std::max<uint64_t>(1, row_groups.size());
    for (size_t entry = 0; entry < Cost::kEntries; ++entry) {
      const uint64_t all = for_rows_[of][entry], row_cost = each_row_[of][entry];
      if (all == 0 && row_cost == 0) continue;
      const uint64_t share = all / rows, remainder = all - share * rows;
      if (row_groups.empty()) unbilled_.AddEntry(entry, all + row_cost);
      for (Group& group : groups_) group.cost[entry] += (row_cost + share) * group.rows[of];
      for (size_t row = 0; row < remainder; ++row) ++groups_[row_groups[row]].cost[entry];
    }
  }
}

// Adds the units that ran for sets of rows of which `rows` counts the bill's, and those that rows of the bill chose.
void Ledger::TouchUnits(BillSlot& slot, const std::array<uint32_t, kRowSets>& rows) const {
  slot.known.resize(slot.units.size());
  for (size_t i = 0; i < slot.units.size(); ++i) {
    for (size_t of = 0; of < kRowSets; ++of) slot.units[i] |= rows[of] > 0 ? ran_[of][i] : 0;
    for (uint64_t more = slot.units[i] & ~slot.known[i]; more != 0; more &= more - 1) {
      const size_t unit = 64 * i + static_cast<size_t>(std::countr_zero(more));
      const Op& op = ops_[units_[unit]];
      for (WeightTouch t : op.touches) {
        if (op.chosen) t.slice = static_cast<uint32_t>(unit - op.first_unit);
        slot.bill.touched.Touch(t);
      }
    }
    slot.known[i] = slot.units[i];
  }
}

// Bills the pending amounts of steps that have one group.
void Ledger::BillAlone() {
  if (alone_ == nullptr) return;
  SumPending();
  Cost& useful = alone_->open ? alone_->bill.work[static_cast<size_t>(phase_)].useful : unbilled_;
  for (size_t entry = 0; entry < Cost::kEntries; ++entry) {
    for (size_t of = 0; of < kRowSets; ++of) useful.AddEntry(entry, each_row_[of][entry] + for_rows_[of][entry]);
  }
  if (alone_->open) TouchUnits(*alone_, {1, 1, 1});
  ClearSums();
}

void Ledger::BillGroups() {
  SumPending();
  DivideAmongRows();
  for (const Group& group : groups_) {
    BillSlot& slot = *group.slot;
    Cost& useful = slot.open ? slot.bill.work[static_cast<size_t>(group.phase)].useful : unbilled_;
    for (size_t entry = 0; entry < Cost::kEntries; ++entry) useful.AddEntry(entry, group.cost[entry]);
    if (group.draft) {
      OpenDraft& draft = slot.drafts.emplace_back(OpenDraft{.phase = group.phase, .resets = resets_});
      for (size_t entry = 0; entry < Cost::kEntries; ++entry) draft.cost.AddEntry(entry, group.cost[entry]);
      ++slot.bill.drafts.rows;
      ++drafts_.rows;
    }
    if (predicting_) AddPredicting(group);
    if (slot.open) TouchUnits(slot, group.rows);
  }
  ClearSums();
}

void Ledger::AddPredicting(const Group& group) {
  if (!group.slot->open) return;
  for (size_t entry = 0; entry < Cost::kEntries; ++entry) {
    for (DraftWork* const sum : {&group.slot->bill.drafts, &drafts_}) sum->predicting.AddEntry(entry, group.cost[entry]);
  }
}

void Ledger::EndStep() {
  if (!open_) return;
  open_ = false;
  if (counted_) counts_[static_cast<size_t>(phase_)].parameters_touched += touched_.parameters();
  if (!billed_) return;
  for (const Group& group : groups_) {
    if (!group.slot->open || predicting_) continue;
    BillWork& work = group.slot->bill.work[static_cast<size_t>(group.phase)];
    work.rows += group.rows[0];
    work.logit_rows += group.rows[1];
    work.rows_again += group.again;
  }
  if (alone_ == nullptr) BillGroups();
}

int32_t Ledger::OpenBill() {
  if (closed_.empty()) {
    closed_.push_back(static_cast<int32_t>(bills_.size()));
    bills_.emplace_back();
  }
  const int32_t id = closed_.back();
  closed_.pop_back();
  bills_[static_cast<size_t>(id)] = {.open = true, .bill = {.work = {}, .touched = TouchUnion(slices_)}};
  bills_[static_cast<size_t>(id)].units.resize((units_.size() + 63) / 64);
  return id;
}

const Bill& Ledger::bill(int32_t id) {
  static const Bill kEmpty;
  BillAlone();
  return IsOpen(id) ? bills_[static_cast<size_t>(id)].bill : kEmpty;
}

Bill Ledger::CloseBill(int32_t id) {
  if (!IsOpen(id)) return {};
  BillAlone();
  BillSlot& slot = bills_[static_cast<size_t>(id)];
  Settle(slot, 0);
  slot.open = false;
  closed_.push_back(id);
  return std::move(slot.bill);
}

void Ledger::MarkInVain(int32_t id, Phase phase, uint64_t rows) {
  if (IsOpen(id)) bills_[static_cast<size_t>(id)].bill.work[phase == Phase::kDecode ? 1 : 0].rows_in_vain += rows;
}

void Ledger::SettleDrafts(int32_t id, uint64_t accepted) {
  if (IsOpen(id)) Settle(bills_[static_cast<size_t>(id)], accepted);
}

void Ledger::Settle(BillSlot& slot, uint64_t accepted) {
  for (size_t i = 0; i < slot.drafts.size(); ++i) {
    const OpenDraft& draft = slot.drafts[i];
    if (i >= accepted) ++slot.bill.work[static_cast<size_t>(draft.phase)].rows_in_vain;
    for (DraftWork* const sum : {&slot.bill.drafts, &drafts_}) {
      if (sum == &drafts_ && draft.resets != resets_) continue;
      if (i < accepted) {
        ++sum->accepted;
      } else {
        ++sum->rejected;
        sum->in_vain += draft.cost;
      }
    }
  }
  slot.drafts.clear();
}

Cost Ledger::unbilled() const {
  Cost sum = unbilled_;
  for (const Op& op : ops_) {
    for (const Entry& e : EntriesOf(op)) {
      for (size_t p = 0; p < kPhases; ++p) sum.AddEntry(e.entry, op.amounts[p][e.amount] * e.value);
    }
  }
  return sum;
}

CostAmounts Ledger::AmountsOf(const Op& op, Phase p) const {
  CostAmounts n = op.amounts[static_cast<size_t>(p)];
  n += op.amounts[kBilled + static_cast<size_t>(p)];
  if (p == phase_ && p != Phase::kMixed) n += op.amounts[kPending];
  return n;
}

void Ledger::AddPart(const Op& op, size_t part, const CostAmounts& n, Account& sum) {
  if (part == 0) sum.ops += n[Amount::kCalls];
  for (const SiteCost::Unit& unit : op.sites[part].units) {
    sum.useful.AddTimes(unit.useful, n[unit.amount]);
    sum.executed.AddTimes(unit.executed, n[unit.amount]);
    sum.copied.AddTimes(unit.copied, n[unit.amount]);
  }
}

template <class Wanted>
Account Ledger::Sum(Phase p, const Wanted& wanted) const {
  Account sum;
  for (const Op& op : ops_) {
    const CostAmounts n = AmountsOf(op, p);
    for (size_t part = 0; part < op.sites.size(); ++part) {
      if (wanted(op.sites[part].site)) AddPart(op, part, n, sum);
    }
  }
  return sum;
}

std::vector<std::pair<Site, Account>> Ledger::sites(Phase p) const {
  std::map<std::pair<int32_t, Component>, Account> sums;
  for (const Op& op : ops_) {
    const CostAmounts n = AmountsOf(op, p);
    if (n == CostAmounts()) continue;
    for (size_t part = 0; part < op.sites.size(); ++part) {
      const Site site = op.sites[part].site;
      AddPart(op, part, n, sums[{site.layer, site.component}]);
    }
  }
  std::vector<std::pair<Site, Account>> all;
  for (const auto& [site, account] : sums) all.push_back({{site.first, site.second}, account});
  return all;
}

Account Ledger::total(Phase p) const {
  return Sum(p, [](Site) { return true; });
}
Account Ledger::at(Phase p, Site site) const {
  return Sum(p, [&](Site s) { return s == site; });
}

StepRecord Ledger::last_step() const {
  StepRecord step = last_;
  step.parameters_touched = touched_.parameters();
  return step;
}

}  // namespace tally
