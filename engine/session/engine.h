// SPDX-License-Identifier: Apache-2.0
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
#include "counters/ledger/process_books.h"
#include "counters/ledger/record.h"
#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/session/batch.h"
#include "engine/session/model.h"

namespace tally {

// Sequences over one model: their KV cache, the ledger of their costs, and the buffers of a step.
class TALLY_API Engine {
 public:
  virtual ~Engine() = default;
  virtual const MemoryPlan& memory_plan() const = 0;
  int64_t context() const { return memory_plan().context; }  // maximum positions of a sequence
  virtual int64_t max_batch() const = 0;                     // maximum rows of one Step
  virtual int64_t max_logit_rows() const = 0;                // maximum rows with want_logits
  virtual int64_t draft_rows() const { return 0; }           // EngineOptions::draft_rows, as far as there are logits for them
  // Requests that can decode in one Step, with room for the drafts.
  int64_t max_requests() const { return max_logit_rows() - draft_rows(); }
  // The number of a new, empty sequence, to be freed with Free. kNoRoom: EngineOptions::sequences are in use.
  virtual Result<int32_t> NewSequence() = 0;
  // A new sequence with the first `length` positions of another. It shares their memory, except for the last length % 128
  // positions, which are copied. Results are the same bits as without sharing. kBadInput: no such sequence, a length it does not
  // have, positions that a sliding window or a recurrent layer needs and has already dropped. kNoRoom: EngineOptions::sequences are
  // in use, no room for the copy. Nothing changes on an error.
  virtual Result<int32_t> Fork(int32_t sequence, int64_t length) = 0;
  // A new sequence with all positions of another, in memory of its own: Fork without the sharing. kBadInput: no such sequence.
  // kNoRoom: EngineOptions::sequences are in use, no room. Nothing changes on an error.
  virtual Result<int32_t> Copy(int32_t sequence) = 0;
  // A new sequence with as many of the first `tokens` as are remembered for this key, maybe none: Length tells. The caller leaves out
  // the token whose logits it wants. Results are the same bits as without. kNoRoom: EngineOptions::sequences are in use.
  virtual Result<int32_t> NewSequenceFor(std::string_view key, std::span<const int32_t> tokens) = 0;
  // The length of such a sequence, were it made now.
  virtual int64_t Reusable(std::string_view key, std::span<const int32_t> tokens) const = 0;
  // From now on NewSequenceFor finds the positions of the sequence, which have run `tokens`, until others need their memory; also after
  // Free. To be called after each step, since the next one drops positions that a window has left. A sequence has one key. With recurrent
  // layers, only positions that have a state are found: the last `states` (0 to 2) that the sequence has.
  virtual void Remember(int32_t sequence, std::string_view key, std::span<const int32_t> tokens, int32_t states) = 0;
  virtual int64_t Length(int32_t sequence) const = 0;  // positions; 0 if there is no such sequence
  // Keeps the first `length` positions. kBadInput: no such sequence, a length it does not have, positions that a sliding window
  // has already dropped, a state that recurrent layers have given up: they can go back over the last steps, some 32 positions.
  virtual Status Truncate(int32_t sequence, int64_t length) = 0;
  // Of the rows with `draft` that the last Step ran for this sequence, keeps the first `accepted`, which its bill then names as accepted.
  // The others are taken back as by Truncate, and named as not accepted. kBadInput: the sequence has fewer; errors of Truncate.
  virtual Status KeepDrafts(int32_t sequence, int64_t accepted) = 0;
  // True if drafts can be had of Predict: EngineOptions::prediction.
  virtual bool predicts() const { return false; }
  // Guesses at the tokens after each wish's by the checkpoint's layer for multi-token prediction, at most max_logit_rows wishes, each of
  // another sequence: for each its guesses, maybe none. They are a function of the sequence's tokens, unless positions of others were reused.
  // To be run as rows with `draft` behind the wish's token. Changes no sequence. Valid until the next call. kBadInput: no such sequence; errors
  // of the layer's ops.
  virtual Result<std::span<const std::vector<int32_t>>> Predict(std::span<const DraftWish>) {
    return BadInput("the engine has no layer for multi-token prediction");
  }
  virtual void Free(int32_t sequence) = 0;  // an unknown one is ignored
  // Writes a sequence's KV cache as bytes, block by block: `write` gets what follows, valid during the call. With several processes: all
  // parts in order. kBadInput: no such sequence; errors of `write`.
  virtual Status Export(int32_t sequence, const std::function<Status(std::span<const uint8_t> bytes)>& write) const = 0;
  // How many bytes Export writes. kBadInput: no such sequence.
  virtual Result<uint64_t> ExportedBytes(int32_t sequence) const = 0;
  // A new sequence out of the bytes of Export; its next steps give the same bits. `read` fills what it is given with the bytes that
  // follow. They must come from an engine of the same Fingerprint() and kv_type(). kBadInput: bytes that Export did not make, more
  // positions than the context. kNoRoom: EngineOptions::sequences are in use, no room. Errors of `read`. Nothing changes on an error.
  virtual Result<int32_t> Import(const std::function<Status(std::span<uint8_t> bytes)>& read) = 0;
  virtual uint64_t KvBudget() const = 0;                   // bytes of the KV cache of all sequences
  virtual uint64_t KvBytesInUse() const = 0;               // of live sequences; what is shared counts once
  virtual uint64_t KvBytesOf(int32_t sequence) const = 0;  // of one sequence, with what it shares
  // The most bytes that a sequence of `positions` takes.
  virtual uint64_t KvBytesFor(int64_t positions) const = 0;
  // The most positions that a sequence can have: the context, or what the KV cache holds of one sequence alone.
  int64_t MostPositions() const;
  // What a KV cache depends on besides its type: a checksum of the family's name, of all weights (shapes, types, every byte) and of the
  // frequencies of the rotary embedding. The first call for a model reads all weights, on the engine's threads; the model keeps what it
  // found. The same on every machine.
  virtual uint64_t Fingerprint() const = 0;
  // Runs 1 to max_batch rows, any mix of sequences; the rows of a sequence are in order, from its length on. Returns the logits of the rows
  // with want_logits (at most max_logit_rows).
  // A sequence fails alone. The others continue, with the same bits as without it. kNoRoom: its context or the cache is full.
  // kNotFinite: its logits, or a row's output of the last layer, are NaN or infinite (names layer and op); a key or value is beyond the KV type.
  // Errors of the whole step, after which all sequences are as before, but that windows and recurrent layers may have dropped what they
  // could have rolled back to. kBadInput: no rows or too many, a token beyond the vocabulary, no such sequence or bill. kNoRoom: not
  // enough memory.
  virtual Result<StepOutput> Step(std::span<const BatchRow> rows) = 0;
  // Step for rows that stand or fall together: the first sequence's error is the step's, and all sequences are as before. Logits
  // [rows with want_logits, vocab] in row order, valid until the next step.
  Result<Mat<const float>> StepAll(std::span<const BatchRow> rows);
  virtual Ledger& ledger() = 0;  // sums over every Step since creation or Reset; lives as long as the engine
  // Not ok: the group of processes has failed, and no step will run again. Any thread.
  virtual Status Health() const { return {}; }
  // A bill of the ledger's, of all processes that run the model: Ledger::OpenBill and CloseBill. If the group has failed, only this
  // process's part.
  virtual int32_t OpenBill() { return ledger().OpenBill(); }
  virtual Bill CloseBill(int32_t bill) { return ledger().CloseBill(bill); }
  // The books of each process that runs the model, this one's first. All count from the same Reset. Errors of the group.
  virtual Result<std::vector<ProcessBooks>> Books() = 0;
  virtual const Model& model() const = 0;
  virtual std::string_view target() const = 0;  // the instruction set of the kernels, "AVX3_ZEN4"
  virtual bool used_blas() const = 0;           // true if OpenBLAS was chosen for some op
  virtual KvType kv_type() const = 0;           // of the KV cache
  virtual ActivationMode activations() const { return ActivationMode::kAuto; }
  virtual int threads() const = 0;             // threads that share ops, as granted by the system
  virtual int processes() const { return 1; }  // that run the model
  // Called after every op with a view of its output, valid during the call: row-major f32 [rows, width], rows of the step or one
  // for each row and expert; empty for some ops. Null: no more calls.
  virtual void SetTap(std::function<void(Site, std::string_view op, Mat<const float>)> tap) = 0;
  // Called after every op with its record (record.h): charges, kernel and time. Ops are timed only while a recorder is set. Null:
  // no more calls.
  virtual void SetRecorder(Recorder recorder) = 0;
  // From now on all processes of the model keep which op runs when. To be called right after SetRecorder. A single process does nothing.
  virtual Status RecordRanks() { return {}; }
  // Returns what the other processes have kept since RecordRanks, and ends that. Times are by this process's clock. At most the first half
  // million ops of each. Errors of the group.
  virtual Result<std::vector<RankOps>> RankRecords() { return std::vector<RankOps>(); }
  // From now on keeps which kernel ran for each op and why others were passed over.
  virtual void EnableExplain() = 0;
  virtual std::vector<std::string> Explanations() const = 0;  // one line per op: "attn.q matmul: hwy (blas: ...)"
};

// Any number of engines may share a model, each with its own options. The engines keep the model alive.
// kBadInput: options the model cannot take. kNoRoom: more memory or threads than available. kInternal: a model that LoadModel did not make.
// Not null on success.
TALLY_API Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const EngineOptions& options);

// For every process of a group (LoadOptions::group) but the first: makes engines and steps as the first one does, until the first one's
// model ends. `engine`: the options that LoadModel had; their threads are this process's. Errors of the group.
TALLY_API Status FollowGroup(const std::shared_ptr<const Model>& model, const EngineOptions& engine);

}  // namespace tally
