// The ledger: what every op that ran was charged with.
//
// The executor charges each op at the moment it runs. Within a step the touched parameters are a set: an expert that two
// tokens of a batch share, or a tied matrix that is both gathered from and multiplied by, is touched once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost.h"
#include "counters/site.h"

namespace tally {

enum class Phase : uint8_t { kPrefill, kDecode };

// The sum over a set of ops.
struct Account {
  Cost useful;
  Cost executed;
  uint64_t ops = 0;
  Account& operator+=(const Account& o);
};

// One Step() of the engine.
struct StepRecord {
  Phase phase = Phase::kPrefill;
  uint32_t rows = 0;               // tokens in the batch
  uint32_t logit_rows = 0;         // rows whose logits were asked for
  Account account;
  uint64_t parameters_touched = 0;  // the step's set (union over its ops and tokens)
};

class Ledger {
 public:
  // `weights[id]` describes weight `id`; ids are handed to the views that ops carry.
  void SetWeights(std::vector<WeightInfo> weights);
  const std::vector<WeightInfo>& weights() const { return weights_; }

  void BeginStep(Phase phase, uint32_t rows, uint32_t logit_rows);
  void Charge(Site site, std::string_view op, const Cost& useful, const Cost& executed, std::span<const WeightTouch> touches);
  void EndStep();

  const StepRecord& last_step() const { return last_; }
  // Sums since Reset, by phase; and by phase, layer (-1 first) and component.
  const Account& total(Phase p) const { return totals_[static_cast<int>(p)]; }
  uint64_t steps(Phase p) const { return steps_[static_cast<int>(p)]; }
  uint64_t rows(Phase p) const { return rows_[static_cast<int>(p)]; }
  const Account& at(Phase p, Site site) const;
  // Parameters touched by any step since Reset.
  uint64_t parameters_touched_ever() const { return touched_ever_; }
  // Stored bytes of the touched weight rows of `touches`.
  void Reset();

 private:
  struct SliceState;
  std::vector<WeightInfo> weights_;
  std::vector<uint64_t> first_slice_;            // weight -> index of its first slice in slice_epoch_
  std::vector<uint32_t> slice_epoch_;            // step that touched the whole slice
  std::vector<uint64_t> slice_rows_;             // rows of the slice touched in this step, when only some were
  std::vector<std::vector<uint32_t>> row_epoch_;  // per slice, lazily: step that touched the row
  std::vector<bool> slice_ever_;
  std::vector<std::vector<bool>> row_ever_;
  std::vector<uint64_t> rows_ever_;
  uint32_t epoch_ = 0;
  uint64_t touched_ever_ = 0;
  StepRecord last_;
  Account totals_[2];
  uint64_t steps_[2] = {}, rows_[2] = {};
  std::vector<Account> sites_[2];
};

}  // namespace tally
