// Auditing a model: it runs, and every step's charges are compared with closed form and checkpoint, to the integer.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "counters/books/model_count.h"
#include "counters/books/step_audit.h"
#include "engine/api/tally.h"
#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

struct AuditOptions {
  std::string path;             // of the checkpoint that the engine's model was loaded from: its headers are read again
  LoadOptions load;             // that the engine was made with
  std::vector<int32_t> prompt;  // at least one token
  int64_t decode_tokens = 8;    // greedy, whatever they are; fewer where the context ends
};

struct AuditReport {
  std::vector<books::AuditRow> stored;  // closed form against the files
  struct Step {
    Phase phase = Phase::kPrefill;
    uint64_t rows = 0, context = 0;  // positions of this step, and after it
    std::vector<books::AuditRow> audit;
  };
  std::vector<Step> steps;
  // Of a sparse layer over the whole run.
  struct Experts {
    int32_t layer = 0;
    std::vector<uint64_t> tokens;      // that chose each expert
    uint64_t slice_bytes = 0;          // of one expert, all its tensors, as stored
    std::vector<uint64_t> step_union;  // U of every step
    uint64_t run_union = 0;            // experts that any token chose
  };
  std::vector<Experts> experts;
  uint64_t compared = 0, differing = 0;  // rows
  bool head_is_copy = false;             // the file stores the head apart, byte for byte the embedding: no parameters of its own
};

// Runs the prompt in pieces of max_batch and decodes, with the ledger reset before every step: what it held is gone. A row that
// differs is no error: `differing` counts them. kBadInput: a checkpoint that cannot be read again or holds other tensors than were
// loaded, tokens that the model does not have, a prompt longer than the context.
TALLY_API Result<AuditReport> Audit(Engine& engine, const AuditOptions& options);

}  // namespace tally
