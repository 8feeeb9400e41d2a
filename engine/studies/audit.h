// Auditing a model: it runs, and every step's charges are compared with closed form and checkpoint, to the integer.
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
#include "engine/session/generate.h"

namespace tally {

struct AuditOptions {
  std::vector<int32_t> prompt;  // at least one token
  int64_t decode_tokens = 8;    // greedy, whatever they are; fewer where the context ends
  // Compares also the pages of the packed weights that each step was charged with and those it touched, as the
  // memory-management unit saw them. The model must have been loaded with LoadOptions::guard_slices, and nobody else may run it
  // meanwhile. Audit then has the process's handlers of SIGSEGV and SIGBUS for as long as it runs: faults
  // elsewhere go to those it found, which it puts back.
  bool mmu = false;
  std::function<bool()> interrupted;  // polled between steps; true: stop, kInterrupted
};

// Pages of one slice that are not as charged, `pages` of them, counted from the first that holds a byte of the slice.
struct PageFinding {
  enum class Kind : uint8_t {
    kTouched,  // and not charged
    kCharged,  // and not touched
    kGuard     // touched, behind the slice's last byte
  } kind{};
  uint32_t slice = 0;
  uint64_t first_page = 0, pages = 0;
};

// One weight in one step. A row is charged with the pages that hold a byte of it, in panels too, and with the bytes of its panel.
struct PageRow {
  std::string tensor;
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  uint64_t charged_bytes = 0;  // as packed: a set, what two ops read counted once
  uint64_t charged_pages = 0, touched_pages = 0;
  std::vector<PageFinding> findings;
  bool agrees() const { return findings.empty(); }
};

struct AuditReport {
  std::vector<books::AuditRow> stored;  // closed form against the files
  struct Step {
    Phase phase = Phase::kPrefill;
    uint64_t rows = 0, context = 0;  // positions of this step, and after it
    std::vector<books::AuditRow> audit;
    std::vector<PageRow> pages;  // with AuditOptions::mmu: of each weight that was charged or touched
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
  uint64_t page_bytes = 0;               // of the pages that were watched; 0: none were
  bool head_is_copy = false;             // the file stores the head apart, with the embedding's type and values
};

// Runs the prompt in pieces of max_batch and decodes, with the ledger reset before every step: what it held is gone. A row that
// differs is no error: `differing` counts them. kBadInput: tokens that the model does not have, a prompt longer than the context; with
// mmu, weights without guards, pages that the system does not let us watch, another such audit at the same time. kInterrupted: as
// asked. kInternal: a model that LoadModel did not make.
TALLY_API Result<AuditReport> Audit(Engine& engine, const AuditOptions& options);

}  // namespace tally
