// SPDX-License-Identifier: Apache-2.0
// The audit: runs a model and compares every step's charges with the closed form and the checkpoint, exactly.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "counters/books/model_count.h"
#include "counters/books/step_audit.h"
#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/recipe/sizes.h"
#include "engine/session/generate.h"

namespace tally {

struct AuditOptions {
  std::vector<int32_t> prompt = {};  // at least one token
  int64_t decode_tokens =
      8;  // decode steps after the prompt, greedy; each takes one position of the context, and accepted drafts
  // Tokens that are drafted before each decode step at most, as RequestOptions::draft, in the engine's room for drafts.
  int64_t draft = 0;
  // Also compares, for each step, the pages of packed weights that were charged with those that were touched, as the
  // memory-management unit sees it. Requires LoadOptions::guard_slices; no other engine may run the model meanwhile. Audit then
  // installs handlers of SIGSEGV and SIGBUS while it runs. Faults elsewhere go to the previous handlers, which are restored.
  bool mmu = false;
  std::function<bool()> interrupted = {};  // polled between steps; true: stop, kInterrupted
};

// A run of pages of one slice that differ. Pages are counted from the first that holds a byte of the slice.
struct PageFinding {
  enum class Kind : uint8_t {
    kTouched,  // touched, not charged
    kCharged,  // charged, not touched
    kGuard     // touched, after the slice's last byte
  } kind{};
  uint32_t slice = 0;
  uint64_t first_page = 0, pages = 0;
};

// One weight in one step. A touched row is charged with the pages that hold a byte of it and, in panels, with the bytes of its
// panel.
struct PageRow {
  std::string tensor = {};
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  uint64_t charged_bytes = 0;  // packed bytes; bytes that two ops read count once
  uint64_t charged_pages = 0, touched_pages = 0;
  std::vector<PageFinding> findings = {};
  bool agrees() const { return findings.empty(); }
};

struct AuditReport {
  std::vector<books::AuditRow> stored = {};  // closed form against the files
  struct Step {
    Phase phase = Phase::kPrefill;
    uint64_t rows = 0, context = 0;  // positions of this step, and of the sequence after it, drafts included
    std::vector<books::AuditRow> audit = {};
    std::vector<PageRow> pages = {};  // with AuditOptions::mmu: every weight that was charged or touched
    uint64_t drafted = 0, accepted = 0;
    StackKind stack = StackKind::kText;
    bool of_text() const { return stack == StackKind::kText; }
    std::string_view kind() const {  // "prefill", "prediction"
      return of_text() ? kPhaseNames[static_cast<size_t>(phase)] : kStackKindNames[static_cast<size_t>(stack)];
    }
  };
  std::vector<Step> steps = {};
  // One sparse layer of the text over the whole run.
  struct Experts {
    int32_t layer = 0;
    std::vector<uint64_t> tokens = {};      // tokens routed to each expert
    uint64_t slice_bytes = 0;               // stored bytes of one expert, all its tensors
    std::vector<uint64_t> step_union = {};  // experts touched in each step (U)
    uint64_t run_union = 0;                 // experts touched in the run
  };
  std::vector<Experts> experts = {};
  // Of a model of several processes (LoadOptions::group): what each holds, and did in all steps. Empty: of one.
  struct Rank {
    std::string process = {};  // "rank 2 on alpha"
    uint64_t parameters = 0, copied_parameters = 0;
    uint64_t stored_bytes = 0, packed_bytes = 0;
    Cost useful = {}, copied = {}, executed = {};
  };
  std::vector<Rank> ranks = {};
  // What several processes hold or do at a site, beside the one of the lowest rank that does: `work` of all steps.
  struct Copy {
    Component component{};
    uint64_t parameters = 0;
    Cost work = {};
  };
  std::vector<Copy> copies = {};
  // Packed bytes of all weights: of one process; of copies; and what panels of parts take besides.
  uint64_t packed_alone = 0, packed_copies = 0, packed_padding = 0;
  uint64_t compared = 0, differing = 0;  // rows
  uint64_t page_bytes = 0;               // page size, if pages were watched; else 0
  // Quantised matrices that are F32 in memory, as latent attention needs them transposed by head: their bytes.
  uint64_t widened_stored = 0, widened_packed = 0;
  bool head_is_copy = false;  // the head is stored beside the embedding, with its type and values
};

// Runs the prompt in pieces of max_batch, then decodes. Resets the ledger before every step, and every pass for prediction. Rows that
// differ are not an error; `differing` counts them. kBadInput: tokens beyond the vocabulary, a context without room for the prompt and all
// decode steps; with mmu, weights without guards, pages that the system does not let the process watch, another such audit at the same
// time. kInterrupted. kInternal: a model that LoadModel did not make.
TALLY_API Result<AuditReport> Audit(Engine& engine, const AuditOptions& options);

// A decode step, no pass for prediction.
TALLY_API bool IsDecode(const AuditReport::Step& step);
TALLY_API std::string StepName(const AuditReport::Step& step);  // "prefill of 8", "decode of 1 at depth 9"

// The experts that rows chose between them, mean over the sparse layers, beside what is expected and what is possible: a prefill step,
// decode steps together, then the whole run.
struct ExpertUnion {
  std::string name = {};  // of the step or steps
  double rows = 0;        // of a step
  double measured = 0, uniform = 0, most = 0;
  double bytes = 0, uniform_bytes = 0, most_bytes = 0;  // of all layers
};
TALLY_API std::vector<ExpertUnion> ExpertUnions(const AuditReport& report, const Recipe& recipe);

}  // namespace tally
