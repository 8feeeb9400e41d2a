// A checkpoint in memory: loading it, and what is known of it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "counters/books/books.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/status.h"
#include "engine/recipe/recipe.h"
#include "engine/session/memory_plan.h"
#include "engine/text/tokenizer.h"

namespace tally {

struct LoadOptions {
  int threads = 0;             // 0 or less: all cores available to us; at most 1024
  int64_t context = 0;         // KV positions to plan for; 0: min(trained length, 4096)
  int64_t max_batch = 512;     // rows of one Step; brought within 1 to context * sequences
  int64_t max_logit_rows = 0;  // of them with want_logits; 0: one a sequence
  int32_t sequences = 1;       // most that live at once; at least 1
  // Of the KV cache, which all sequences share: a Step or Fork that finds it full is refused. 0: room for `sequences` of full
  // context. Layers of different windows have parts of their own, as large as a sequence of full context needs them in proportion.
  uint64_t kv_bytes = 0;
  ActivationMode activations = ActivationMode::kAuto;  // by weight type
  std::optional<KvType> kv;                            // none: f16, or f32 when activations are f32
  ImplChoice impl = ImplChoice::kAuto;
  // An op is shared among the threads where that is estimated to save more than this; others run on the calling thread, as
  // waiting for threads costs more than it saves, much more on a busy machine. 0: the threads share every op.
  uint64_t share_gain_ns = 20'000;
  // Of LoadModel: every tensor and expert slice ends with a page of memory, an unused page following, which takes address space
  // only; no huge pages. For AuditOptions::mmu; slower, and the same bits.
  bool guard_slices = false;
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress;  // of LoadModel; false: stop, kInterrupted
};

// Parameter counts by convention (counters/books/books.h): total, active(all), active(head), active(none).
using ParameterCounts = books::ParameterCounts;

// A loaded checkpoint. References and views that its members return hold for as long as the model does.
class TALLY_API Model {
 public:
  virtual ~Model() = default;
  virtual const Recipe& recipe() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;           // null: token ids in, token ids out
  virtual const MemoryPlan& memory_plan() const = 0;        // of the load's options; an engine's own may differ
  virtual const ParameterCounts& parameters() const = 0;    // from the inventory
  virtual std::string Description() const = 0;              // "gpt-oss, 24 layers, MXFP4 + BF16, 12.8 GiB"
  virtual std::span<const DType> matrix_types() const = 0;  // the types of its matrices, by bytes, most first
};

TALLY_API std::string JoinTypes(std::span<const DType> types);  // "MXFP4 + Q8_0"

// The bundled model's file (models/demo/README.md), beside the installed library or in the source tree that it was built from.
// kBadInput: it is in neither place.
TALLY_API Result<std::string> DemoModelPath();

// Reads a GGUF file (any shard of a split one) or a Hugging Face directory, weights included, into memory; the files are not
// needed afterwards. Never null where it is ok. kBadInput: a file that cannot be read or is not what it should be, a family that
// is not known, options that the model cannot take, more memory or threads than there are; kInterrupted.
TALLY_API Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, const LoadOptions& options);

}  // namespace tally
