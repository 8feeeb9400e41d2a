// SPDX-License-Identifier: Apache-2.0
// The audit of a step: figures from the recipe's closed form, from the checkpoint's tensors and from the ledger, row by row. A row
// agrees if the figures that it has are equal.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "counters/books/closed_form.h"
#include "counters/ledger/ledger.h"
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
  kStateWritten
};
inline constexpr int kAuditAccounts = 11;
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
  bool agrees() const { return (!inventory.has_value() || *inventory == closed) && (!ledger.has_value() || *ledger == closed); }
};

// Inputs of a step's closed form besides the recipe. U, the experts that a step touches in a layer, is taken from the ledger.
struct StepFacts {
  Workload work = {};
  Phase phase = Phase::kPrefill;
  uint64_t distinct_tokens = 1;     // R: rows of the embedding that the step reads
  uint64_t distinct_positions = 1;  // R_p: rows of the learned positions that the step reads
  KvStorage kv = {};
};

// Elements and bytes of each tensor: closed form against the files. `inventory` is the table made from the files alone
// (weight_table.h), `types` the stored type of each entry.
TALLY_API std::vector<AuditRow> AuditStored(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                            std::span<const DType> types);

// The ledger must hold exactly one step since Reset, and name weights as `inventory` does.
TALLY_API std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                          std::span<const DType> types, const Ledger& ledger, const StepFacts& facts);

// Tokens routed to each expert in the ledger's last step: [layer] -> [expert].
TALLY_API std::map<int32_t, std::vector<uint64_t>> ExpertTokens(const Ledger& ledger);

}  // namespace tally::books
