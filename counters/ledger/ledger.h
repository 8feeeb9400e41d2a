// SPDX-License-Identifier: Apache-2.0
// The ledger: the cost of every op that ran.
//
// Costs are linear in an op's amounts (counters/cost/cost.h). AddOp takes the unit costs of an op; a charge adds amounts; reading
// multiplies the two. Work is booked by phase, row by row (see Phase). The parameters touched in a step are a set: an expert that
// two tokens of a batch share, or a tied matrix that is gathered from and multiplied by, counts once.
//
// A row may name the bill of the request it is for (bill.h). Its useful work goes to that bill. What a step does once for several rows,
// above all reading weights, is divided among them:
//   a slice that the step's data chose (an expert)   by the rows that chose it
//   ops of the rows with logits (the head)           by rows with logits
//   the last norm, if some rows want hidden states   by rows with either
//   all else                                         by rows
// All but the first, and what the first leaves over, are summed by entry of Cost and divided once a step, in whole numbers; the remainder r
// goes to the first r of these rows, one to each. So the bills and unbilled() together are the useful totals to the integer.
//
// A drafted row of a bill has a cost of its own within the step, until it is known whether it was accepted (SettleDrafts): so the work of
// rows that were rejected is known to the integer.
//
// Parameters are counted in elements. No call fails. Not to be used by two threads at once.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "counters/ledger/bill.h"
#include "counters/ledger/touch_set.h"
#include "engine/base/export.h"
#include "engine/base/stack.h"

namespace tally {

// The sum over a set of ops.
struct Account {
  Cost useful = {};
  Cost executed = {};
  Cost copied = {};  // of `useful`, where several processes run one model: what one of a lower rank does too
  uint64_t ops = 0;  // runs of ops with at least one row
};

inline constexpr int32_t kNoBill = -1;

// How a row of a step is booked.
struct BookedRow {
  Phase phase = Phase::kPrefill;  // kPrefill or kDecode
  bool logits = false;
  bool again = false;      // a row at this position has run for the request before: after a preemption, say
  int32_t bill = kNoBill;  // from Ledger::OpenBill; a closed one counts as kNoBill
  bool draft = false;      // drafted; without a bill it is a row like others
  bool hidden = false;     // wants its hidden state
  // All rows of a step are of one stack. The work of a row for prediction is charged and billed, and neither the step nor the row is
  // counted: no token runs (DraftWork::predicting).
  StackKind stack = StackKind::kText;
};

// The rows of a step that an op's rows are.
inline constexpr uint8_t kAllRows = 0, kLogitRows = 1, kOutputRows = 2;  // all; with logits; with logits or a hidden state
inline constexpr size_t kRowSets = 3;

// The phase that the once-per-step work of a step with these rows is booked under. No rows: kPrefill.
TALLY_API Phase PhaseOf(std::span<const BookedRow> rows);

// Experts of a layer that a step's rows chose, each once, of a model that reads some from disk.
struct ExpertUses {
  uint64_t hits = 0;        // in memory
  uint64_t misses = 0;      // read from disk
  uint64_t first_uses = 0;  // of the misses: never read before
  uint64_t disk_bytes = 0;
  ExpertUses& operator+=(const ExpertUses& o) {
    hits += o.hits;
    misses += o.misses;
    first_uses += o.first_uses;
    disk_bytes += o.disk_bytes;
    return *this;
  }
  bool operator==(const ExpertUses&) const = default;
};

// One Step() of the engine.
struct StepRecord {
  Phase phase = Phase::kPrefill;
  uint32_t rows = 0;  // tokens in the batch
  uint32_t logit_rows = 0;
  uint64_t parameters_touched = 0;  // the union over the step's ops and tokens
  ExpertUses experts = {};          // of all layers
};

// Unit costs of an op at one site.
struct SiteCost {
  Site site = {};
  struct Unit {
    Amount amount = {};
    Cost useful = {}, executed = {}, copied = {};  // for one of `amount`
  };
  std::vector<Unit> units = {};
};

// May be moved between steps.
class Ledger {
 public:
  Ledger() = default;
  Ledger(Ledger&&) = default;
  Ledger& operator=(Ledger&&) = default;

  // --- the engine's side

  // `weights[id]` describes the weight whose views have this id. Resets the ledger and drops all bills.
  TALLY_API void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  // Adds an op for the ledger's lifetime and returns the index to charge it by. A fused op has a SiteCost for each of its parts.
  // `of`: which rows of the step its rows are. `touches`: what bills count as touched. By default each run touches it for all rows of the
  // op; with `chosen`, a run touches the slices that ChooseSlices names, for the rows that it names.
  TALLY_API uint32_t AddOp(std::vector<SiteCost> sites, uint8_t of = kAllRows, WeightTouches touches = {}, bool chosen = false);
  // Charges belong to the step begun last.
  TALLY_API void BeginStep(std::span<const BookedRow> rows);
  // The rows of a step by phase and bill. With more than one group, Charge needs the amounts of each if the op's rows differ.
  size_t groups() const { return groups_.size(); }
  std::span<const uint32_t> row_groups() const { return row_groups_[0]; }  // of each row
  bool billed() const { return billed_; }                                  // some row of the step has a bill
  // Charges a run of an op. `of_groups`: the row amounts of each group; empty: those of each row are the same.
  void Charge(uint32_t op, const CostAmounts& amounts, std::span<const CostAmounts> of_groups = {}) {
    if (phase_ == Phase::kMixed || !of_groups.empty()) return ChargeGroups(ops_[op], amounts, of_groups);
    ops_[op].amounts[billed_ ? kPending : static_cast<size_t>(phase_)] += amounts;
  }
  void Touch(const WeightTouch& touch) { touched_.Touch(touch); }
  // With bills, after Charge: the rows of the step that chose each slice of the op (WeightTouch::rows). The cost of a slice
  // (Amount::kSlices) is divided by them. `touches` come weight by weight; all weights of the op have the slices of the first.
  TALLY_API void ChooseSlices(uint32_t op, std::span<const WeightTouch> touches);
  // With bills: adds a touch for one row of the step to the touches that AddOp was given.
  TALLY_API void TouchForRow(size_t row, const WeightTouch& touch);
  void BookUses(int32_t layer, const ExpertUses& uses) {
    std::vector<ExpertUses>& layers = expert_uses_[static_cast<size_t>(phase_)];
    if (layers.size() <= static_cast<size_t>(layer)) layers.resize(static_cast<size_t>(layer) + 1);
    layers[static_cast<size_t>(layer)] += uses;
    last_.experts += uses;
  }
  TALLY_API void EndStep();

  // --- bills

  // A new, empty bill. Ids of closed bills are used again.
  TALLY_API int32_t OpenBill();
  bool IsOpen(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < bills_.size() && bills_[static_cast<size_t>(id)].open;
  }
  // Includes the steps that have ended, and possibly ops of the one in progress; an empty bill if `id` is not open. Valid until the next
  // call of CloseBill or SetWeights.
  TALLY_API const Bill& bill(int32_t id);
  // Not during a step that has rows of the bill. An empty bill if `id` is not open.
  TALLY_API Bill CloseBill(int32_t id);
  // Counts `rows` of the bill's rows as run in vain: those of a sequence that failed. Not for drafted rows (SettleDrafts).
  TALLY_API void MarkInVain(int32_t id, Phase phase, uint64_t rows);
  // Of the drafted rows of the bill's last step, the first `accepted` were accepted and the others rejected. Rows still undecided when the
  // bill's next step begins, or when it is closed, are rejected.
  TALLY_API void SettleDrafts(int32_t id, uint64_t accepted);
  // The useful work of rows without a bill since Reset, as if they had one together.
  TALLY_API Cost unbilled() const;

  // --- the reader's side: sums since Reset; a step in progress counts up to its last finished op

  TALLY_API Account total(Phase p) const;
  TALLY_API Account at(Phase p, Site site) const;
  TALLY_API std::vector<std::pair<Site, Account>> sites(Phase p) const;  // those with ops that ran, by layer and component
  // Steps begun; kMixed: steps with rows of both phases. rows and logit_rows of kMixed are 0.
  uint64_t steps(Phase p) const { return counts_[static_cast<size_t>(p)].steps; }
  uint64_t rows(Phase p) const { return counts_[static_cast<size_t>(p)].rows; }
  uint64_t logit_rows(Phase p) const { return counts_[static_cast<size_t>(p)].logit_rows; }
  // Sum over the steps that have ended of the parameters that each touched; divided by steps(p) it is the mean.
  uint64_t parameters_touched(Phase p) const { return counts_[static_cast<size_t>(p)].parameters_touched; }
  // By layer of the model; empty: all experts are always in memory. Steps with rows of both phases are in kMixed.
  std::span<const ExpertUses> expert_uses(Phase p) const { return expert_uses_[static_cast<size_t>(p)]; }
  const DraftWork& drafts() const { return drafts_; }  // of all bills
  TALLY_API StepRecord last_step() const;
  // The weight rows touched in the last step, and in any step.
  const TouchSet& touched() const { return touched_; }
  // Clears the charges. Ops, the table of weights and bills stay: a bill holds all that was done for its request.
  TALLY_API void Reset();
  uint64_t resets() const { return resets_; }  // calls of Reset

 private:
  // Indices of Op::amounts. A phase: steps without bills. kBilled + phase: steps with bills. kPending: amounts that are not on bills yet.
  static constexpr size_t kBilled = kPhases, kPending = 2 * kPhases;
  struct alignas(64) Op {
    std::array<CostAmounts, kPending + 1> amounts;
    std::vector<SiteCost> sites;
    uint8_t of = kAllRows;
    bool chosen = false;
    uint32_t first_entry = 0, end_entry = 0, first_slice_entry = 0;  // in entries_; of Amount::kSlices
    uint32_t first_unit = 0, slices = 0;  // in units_: one, or with `chosen` one for each of the slices
    WeightTouches touches;
  };
  // Useful cost of all parts of an op: `value` of `entry` (Cost::ForEachEntry) for one of `amount`.
  struct Entry {
    uint32_t amount = 0, entry = 0;
    uint64_t value = 0;
  };
  using Entries = std::array<uint64_t, Cost::kEntries>;
  struct Counts {
    uint64_t steps = 0, rows = 0, logit_rows = 0, parameters_touched = 0;
  };
  // A drafted row that has run.
  struct OpenDraft {
    Phase phase = Phase::kDecode;
    Cost cost = {};
    uint64_t resets = 0;  // of the ledger, when it ran
  };
  struct BillSlot {
    bool open = false;
    Bill bill = {};
    std::vector<uint64_t> units = {}, known = {};  // a bit for each of units_: touched by its rows; of these, in bill.touched
    std::array<uint32_t, 2> groups{};              // its group in the step, by phase, if it has one
    std::vector<OpenDraft> drafts = {};
  };
  // Rows of the step with one bill and phase; each drafted row is alone.
  struct Group {
    BillSlot* slot = nullptr;  // of bills_, or nobody_
    Phase phase = Phase::kPrefill;
    std::array<uint32_t, kRowSets> rows{};
    uint32_t again = 0;
    bool draft = false;
    Entries cost{};  // of these rows, without what EndStep divides
  };
  uint32_t FindGroup(const BookedRow& row);
  TALLY_API void ChargeGroups(Op& op, const CostAmounts& amounts, std::span<const CostAmounts> of_groups);
  void ChargeMixed(Op& op, const CostAmounts& amounts, std::span<const CostAmounts> of_groups) const;
  void SumPending();
  void ClearSums();
  void AddPredicting(const Group& group);
  void BillAlone();
  void BillGroups();
  void Settle(BillSlot& slot, uint64_t accepted);
  void DivideAmongRows();
  void TouchUnits(BillSlot& slot, const std::array<uint32_t, kRowSets>& rows) const;
  // The rows of an op in the step. Without hidden states, kOutputRows are kLogitRows, and their work is divided together.
  size_t RowsOf(const Op& op) const { return op.of == kOutputRows && !hidden_ ? kLogitRows : op.of; }
  std::span<const Entry> EntriesOf(const Op& op) const {
    return std::span(entries_).subspan(op.first_entry, op.end_entry - op.first_entry);
  }
  CostAmounts AmountsOf(const Op& op, Phase p) const;
  static void AddPart(const Op& op, size_t part, const CostAmounts& n, Account& sum);
  template <class Wanted>
  Account Sum(Phase p, const Wanted& wanted) const;

  std::vector<WeightInfo> weights_;
  std::shared_ptr<const WeightSlices> slices_ = std::make_shared<WeightSlices>();
  std::vector<Op> ops_;
  std::vector<Entry> entries_;
  std::vector<uint32_t> units_;  // the op of each set of weight rows that a run touches together
  std::array<Counts, kPhases> counts_;
  std::array<std::vector<ExpertUses>, kPhases> expert_uses_;
  uint64_t resets_ = 0;
  TouchSet touched_;
  BillSlot nobody_;              // of rows without a bill
  std::deque<BillSlot> bills_;   // groups_ and alone_ point into it
  std::vector<int32_t> closed_;  // ids of bills that are not open
  Cost unbilled_;                // of steps with bills
  DraftWork drafts_;
  StepRecord last_;
  // The step.
  Phase phase_ = Phase::kPrefill;
  bool open_ = false, billed_ = false;
  bool predicting_ = false;  // its rows are for prediction
  bool counted_ = false;     // the step is in counts_; false if Reset came during the step
  std::vector<Group> groups_;
  bool hidden_ = false;  // some row wants its hidden state
  std::array<std::vector<uint32_t>, kRowSets> row_groups_;
  std::array<std::array<uint32_t, 2>, kRowSets> phase_rows_{};  // [..][phase]
  // The bill of all rows of the step, if they have one bill and one phase, and no row is drafted or predicting; else null. Its amounts
  // stay pending until the bill is read, or a step has another bill or phase.
  BillSlot* alone_ = nullptr;
  // Sums of amounts that were pending, by RowsOf.
  std::array<Entries, kRowSets> each_row_{}, for_rows_{};  // of every row; of all together, to be divided among them
  std::array<std::vector<uint64_t>, kRowSets> ran_;        // a bit for each of units_ that was touched for all of them
};

}  // namespace tally
