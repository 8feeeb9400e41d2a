// SPDX-License-Identifier: Apache-2.0
// The audit of a step: figures from the recipe's closed form, from the checkpoint's tensors and from the ledger, row by row. A row
// agrees if the figures that it has are equal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "counters/books/closed_form.h"
#include "counters/books/communication.h"
#include "counters/ledger/ledger.h"
#include "counters/ledger/process_books.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"

namespace tally::books {

enum class AuditAccount : uint8_t {
  kStored,      // parameters of a tensor
  kTouched,     // parameters of a tensor that the step touched
  kTouchedSet,  // parameters of all weights that the step touched
  kExpertRows,  // sum over experts of the rows routed to them (rows x k)
  kFlops,
  kSpecial,
  kWeightBytes,  // as stored
  kKvRead,
  kKvWritten,
  kStateRead,
  kStateWritten,
  kSent,  // by rank
  kReceived,
  kFlopsInVain,     // of drafted rows that were not accepted
  kKvWrittenInVain  // the same
};
inline constexpr int kAuditAccounts = 15;
// "parameters stored", "KV bytes read"; static.
TALLY_API std::string_view AccountName(AuditAccount account);

// One figure of one layer (-1: outside the layers) and component. FLOPs and special operations are of one class of work.
struct AuditRow {
  AuditAccount account{};
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  WorkClass work_class = WorkClass::kLinear;
  std::string tensor = {};                 // accounts per tensor: "attn_q.bias"; else empty
  std::string form = {};                   // the closed form as an expression
  uint64_t closed = 0;                     // the value of the closed form
  std::optional<uint64_t> inventory = {};  // from the files, if they determine the figure
  std::optional<uint64_t> ledger = {};     // as charged, if running determines the figure
  int32_t rank = -1;                       // accounts by rank
  bool agrees() const { return (!inventory.has_value() || *inventory == closed) && (!ledger.has_value() || *ledger == closed); }
};

// Inputs of a step's closed form besides the recipe. U, the experts that a step touches in a layer, is taken from the ledger.
struct StepFacts {
  Workload work = {};
  Phase phase = Phase::kPrefill;
  uint64_t distinct_tokens = 1;     // R: rows of the embedding that the step reads
  uint64_t distinct_positions = 1;  // R_p: rows of the learned positions that the step reads
  KvStorage kv = {};
  GatheredBytesOf gathered = {};  // with several processes only
};

// The charges of one step of a stack, by one process or by all that run the model. With several processes
// these are sums without copies: what a lower rank does, holds or touches too counts once.
class StepCharges {
 public:
  // The ledger must hold exactly one step since Reset.
  TALLY_API StepCharges(const Ledger& ledger, Phase phase);
  // One ledger for each rank, with exactly one step since Reset. `own_experts`: a rank's slices of experts are its own (Shard).
  TALLY_API StepCharges(std::span<const ProcessBooks> ranks, Phase phase, bool own_experts);

  struct Weight {
    uint64_t touched = 0;                    // elements
    uint32_t slices = 0;                     // experts: slices with touched elements
    std::vector<uint64_t> expert_rows = {};  // rows routed to each
  };
  const std::map<std::pair<int32_t, Component>, Cost>& sites() const { return sites_; }  // by layer and component
  TALLY_API Cost At(int32_t layer, Component component) const;
  TALLY_API const Weight* Find(const std::string& name) const;  // null: there is no such weight
  // U: experts touched in this layer. The maximum over the layer's tensors, as all of them are touched alike.
  TALLY_API uint64_t Union(int32_t layer) const;
  // Tokens routed to each expert: [layer] -> [expert].
  const std::map<int32_t, std::vector<uint64_t>>& expert_tokens() const { return expert_tokens_; }
  uint64_t touched() const { return touched_; }  // elements of all weights
  uint64_t bad_touches() const { return bad_; }

 private:
  void Finish(std::span<const WeightInfo> weights);

  std::map<std::pair<int32_t, Component>, Cost> sites_;
  std::map<std::string, Weight> weights_;
  std::map<int32_t, uint32_t> unions_;
  std::map<int32_t, std::vector<uint64_t>> expert_tokens_;
  uint64_t touched_ = 0, bad_ = 0;
};

// Elements and bytes of each tensor: closed form against the files. `stacks`: those that are loaded. `inventory` is the table made from the
// files alone (weight_table.h), `types` the stored type of each entry.
TALLY_API std::vector<AuditRow> AuditStored(std::span<const Recipe* const> stacks, std::span<const WeightInfo> inventory,
                                            std::span<const DType> types);

// The same. AuditRow::ledger is what the ranks hold together, without copies.
TALLY_API std::vector<AuditRow> AuditStored(std::span<const Recipe* const> stacks, std::span<const WeightInfo> inventory,
                                            std::span<const DType> types, std::span<const ProcessBooks> ranks);

// The charges name weights as `inventory` does. With facts.work.predicting: of a pass; the recipe's last layer is the one that ran.
TALLY_API std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                          std::span<const DType> types, const StepCharges& charges, const StepFacts& facts);
// The ledger must hold exactly one step since Reset, and name weights as `inventory` does.
TALLY_API std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                          std::span<const DType> types, const Ledger& ledger, const StepFacts& facts);

// Of a step of one sequence whose last `rejected` rows were drafted and not accepted: what DraftWork::in_vain says of them. `facts`: of the
// step, with all its rows.
TALLY_API std::vector<AuditRow> AuditInVain(const Recipe& recipe, const StepFacts& facts, uint64_t rejected, const Cost& in_vain);

// Tokens routed to each expert in the ledger's last step: [layer] -> [expert].
TALLY_API std::map<int32_t, std::vector<uint64_t>> ExpertTokens(const Ledger& ledger);

// What each rank sent and received in a step with these tokens: closed form and ledger. `shard`: of any rank.
TALLY_API std::vector<AuditRow> AuditCommunication(const Recipe& recipe, const Shard& shard, std::span<const ProcessBooks> ranks,
                                                   std::span<const int32_t> tokens, const StepFacts& facts);

}  // namespace tally::books
