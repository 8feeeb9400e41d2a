// SPDX-License-Identifier: Apache-2.0
#include "counters/ledger/ledger.h"

namespace tally {

void Ledger::SetWeights(std::vector<WeightInfo> weights) {
  weights_ = std::move(weights);
  Reset();
}

void Ledger::Reset() {
  for (Op& op : ops_) op.amounts = {};
  counts_ = {};
  touched_.Reset(weights_);
  last_ = {};
  open_ = false;
}

uint32_t Ledger::AddOp(std::vector<SiteCost> sites) {
  ops_.push_back({std::move(sites), {}});
  return static_cast<uint32_t>(ops_.size() - 1);
}

void Ledger::BeginStep(const StepRows& rows) {
  EndStep();
  open_ = true;
  last_ = rows;
  touched_.BeginStep();
  ++counts_[static_cast<size_t>(rows.phase())].steps;
  for (size_t p = 0; p < rows.rows.size(); ++p) {
    counts_[p].rows += rows.rows[p];
    counts_[p].logit_rows += rows.logit_rows[p];
  }
}

void Ledger::EndStep() {
  if (open_) counts_[static_cast<size_t>(last_.phase())].parameters_touched += touched_.parameters();
  open_ = false;
}

void Ledger::Charge(Site site, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches) {
  if (!open_) BeginStep({});
  CostAmounts once;
  once[Amount::kCalls] = 1;
  Charge(AddOp({{.site = site, .units = {{Amount::kCalls, useful, executed}}}}), last_.phase(), once);
  for (const WeightTouch& t : touches) Touch(t);
}

template <class Wanted>
Account Ledger::Sum(Phase p, const Wanted& wanted) const {
  Account sum;
  for (const Op& op : ops_) {
    const CostAmounts& n = op.amounts[static_cast<size_t>(p)];
    for (size_t part = 0; part < op.sites.size(); ++part) {
      if (!wanted(op.sites[part].site)) continue;
      if (part == 0) sum.ops += n[Amount::kCalls];
      for (const SiteCost::Unit& unit : op.sites[part].units) {
        sum.useful.AddTimes(unit.useful, n[unit.amount]);
        sum.executed.AddTimes(unit.executed, n[unit.amount]);
      }
    }
  }
  return sum;
}

Account Ledger::total(Phase p) const {
  return Sum(p, [](Site) { return true; });
}
Account Ledger::at(Phase p, Site site) const {
  return Sum(p, [&](Site s) { return s == site; });
}

StepRecord Ledger::last_step() const {
  return {
      .phase = last_.phase(), .rows = last_.all(), .logit_rows = last_.all_logits(), .parameters_touched = touched_.parameters()};
}

}  // namespace tally
