// Sequences over a loaded model, stepped in batches.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/ledger/ledger.h"
#include "counters/ledger/record.h"
#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/session/batch.h"
#include "engine/session/model.h"

namespace tally {

// Sequences over one model: their KV cache, the ledger of what they cost, and the buffers to step in.
class TALLY_API Engine {
 public:
  virtual ~Engine() = default;
  virtual const MemoryPlan& memory_plan() const = 0;
  int64_t context() const { return memory_plan().context; }  // most positions of a sequence
  virtual int64_t max_batch() const = 0;                     // most rows of one Step
  virtual int64_t max_logit_rows() const = 0;                // most of them with want_logits
  // An empty sequence, by number, to be given back with Free. kBadInput: LoadOptions::sequences are in use already.
  virtual Result<int32_t> NewSequence() = 0;
  // A new sequence that begins with the first `length` positions of another and shares their memory, but for the last
  // length % 128, which are copied. Both then go on apart, with the bits of sequences that never met. kBadInput: no such sequence,
  // a length it does not have, positions that a sliding window needs and has already dropped, LoadOptions::sequences are in use,
  // no room for the copy; nothing has changed then.
  virtual Result<int32_t> Fork(int32_t sequence, int64_t length) = 0;
  virtual int64_t Length(int32_t sequence) const = 0;  // positions; 0 where there is no such sequence
  // Keeps the first `length` positions. kBadInput: no such sequence, a length it does not have, positions that a sliding window
  // has already dropped.
  virtual Status Truncate(int32_t sequence, int64_t length) = 0;
  virtual void Free(int32_t sequence) = 0;  // an unknown one is ignored
  // Runs the rows (1 to max_batch, any mix of sequences, each sequence's in order from its length on) and returns the logits
  // asked for (at most max_logit_rows), in row order: [rows with want_logits, vocab], f32, valid until the next Step; with none,
  // [0, vocab]. kBadInput: more rows than that, a token beyond the vocabulary, no such sequence, a full context or cache, logits
  // that are NaN or infinite (naming layer and op), not enough memory. Rows without logits are looked at too: there it is the
  // last layer's output that must be finite. After an error the sequences are as they were before the call, but for positions
  // that a sliding window has meanwhile dropped.
  virtual Result<Mat<const float>> Step(std::span<const BatchRow> rows) = 0;
  virtual Ledger& ledger() = 0;  // of every Step since it was made or Reset; lives as long as the engine
  virtual const Model& model() const = 0;
  virtual std::string_view target() const = 0;  // the instruction set that kernels run on, "AVX3_ZEN4"
  virtual bool used_blas() const = 0;           // OpenBLAS has run
  virtual KvType kv_type() const = 0;           // of the KV cache
  virtual int threads() const = 0;              // that ops are shared among, as the system gave them
  // Called after every op with a view of its output, row-major f32 [rows, width] (rows of the step, or one for each row and
  // expert; empty where an op has nothing to show), valid during the call. Null: no more calls.
  virtual void SetTap(std::function<void(Site, std::string_view op, Mat<const float>)> tap) = 0;
  // Called after every op with its record (record.h): what it was charged with, how it was run and how long that took. Ops are
  // timed only while a recorder is set. Null: no more calls.
  virtual void SetRecorder(Recorder recorder) = 0;
  // From now on, keeps which kernel ran for each op and why others were passed over.
  virtual void EnableExplain() = 0;
  virtual std::vector<std::string> Explanations() const = 0;  // one line an op: "attn.q matmul: hwy (blas: ...)"
};

// Any number of engines may share a model, each with options of its own (`progress` is not used); the model lives at least as
// long as they do. kBadInput: options the model cannot take, more memory or threads than there are; kInternal: a model that
// LoadModel did not make. Never null where it is ok.
TALLY_API Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const LoadOptions& options);

}  // namespace tally
