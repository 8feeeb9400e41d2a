// Three accounts of one step, row by row: what the recipe's closed form says, what the checkpoint's own tensors say, and what the
// engine's kernels were charged with as they ran. They agree to the integer or the row is a finding.
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

// kTouchedSet: the step's set as a whole, all weights. kExpertRows: rows that a layer's experts were read for, each row's k counted.
enum class AuditAccount : uint8_t {
  kStored,
  kTouched,
  kTouchedSet,
  kExpertRows,
  kFlops,
  kSpecial,
  kWeightBytes,
  kKvRead,
  kKvWritten
};
inline constexpr int kAuditAccounts = 9;
// "parameters stored", "parameters touched", "touched, all", "expert rows", "FLOPs", "special", "weight bytes", "KV bytes read", "KV bytes written"; static.
TALLY_API std::string_view AccountName(AuditAccount account);

// One figure of one layer (-1: outside) and component. FLOPs and special operations are those of one class of work.
struct AuditRow {
  AuditAccount account{};
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  WorkClass work_class = WorkClass::kLinear;
  std::string tensor;                 // of accounts that go tensor by tensor: "attn_q.bias"
  std::string form;                   // the closed form as an expression
  uint64_t closed = 0;                // its value
  std::optional<uint64_t> inventory;  // where the files say it too
  std::optional<uint64_t> ledger;     // where running says it
  bool agrees() const { return (!inventory.has_value() || *inventory == closed) && (!ledger.has_value() || *ledger == closed); }
};

// What the closed form of a step needs to know besides the recipe. U, the experts that a layer's rows chose between them, is measured.
struct StepFacts {
  Workload work;
  Phase phase = Phase::kPrefill;
  uint64_t distinct_tokens = 1;     // R: rows of the embedding that the step gathers
  uint64_t distinct_positions = 1;  // rows of learned positions
  uint64_t kv_element_bytes = 2;
};

// What the files hold, tensor by tensor: elements and bytes. `inventory` is the table made from the files alone (weight_table.h);
// `types` the stored type of each of its entries.
TALLY_API std::vector<AuditRow> AuditStored(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                            std::span<const DType> types);

// The ledger must have been Reset before the step, and hold just that one. Its table and `inventory` name weights alike.
TALLY_API std::vector<AuditRow> AuditStep(const Recipe& recipe, std::span<const WeightInfo> inventory,
                                          std::span<const DType> types, const Ledger& ledger, const StepFacts& facts);

// Tokens that each expert of a sparse layer got in the ledger's last step: [layer] -> [expert].
TALLY_API std::map<int32_t, std::vector<uint64_t>> ExpertTokens(const Ledger& ledger);

}  // namespace tally::books
