// The public interface: load a checkpoint, tokenize, step, generate, read the ledger. The headers beside this one add the figures
// of a run (summary.h), logits (logits.h, npy.h), a look into files (inspect.h), measuring (speed.h) and random checkpoints
// (synth.h).
//
// Errors are values (Status, Result: status.h); nothing here throws, prints or exits. What the standard library throws when
// memory is out passes through; what is large (weights, KV cache, activations, logits) is allocated otherwise, and is an error
// where it fails. Bad files, options and requests are kBadInput with one line that says what was expected; kInternal is a defect
// of ours; kInterrupted is the answer to a callback that asked to stop.
//
// Ownership: what is returned by value or smart pointer is the caller's; references, spans and views stay their owner's and say
// until when they hold. A null callback is one that is not called. Callbacks run on the calling thread, between ops, and must not
// call the engine they were called from; an exception of theirs leaves the engine fit only to be destroyed.
//
// Threads: a Model and its Tokenizer do not change after loading: any number of threads may use them at once. An Engine (its KV
// cache, scratch and ledger) belongs to one caller at a time; different engines may run at the same time, of one model or of
// several, and give the bits they give alone. After fork() the child may not use what its parent made. Each runs its ops on
// LoadOptions::threads threads, kept by the runtime for the calling thread and shared by all engines that it calls: callers that
// run side by side divide the cores between them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/books.h"
#include "counters/ledger.h"
#include "counters/record.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/graph/recipe.h"
#include "engine/session/batch.h"
#include "engine/session/sampling.h"
#include "engine/text/tokenizer.h"

namespace tally {

enum class ActivationsChoice : uint8_t { kAuto, kF32, kBF16, kInt8 };
enum class KvChoice : uint8_t { kAuto, kF32, kF16 };
// kRef: the scalar references. kBlas: OpenBLAS for matrices where it can: loaded then, its own threads switched off, both for the
// whole process; the bits may then depend on the number of threads. OpenBLAS starts those threads nonetheless unless the
// environment has OPENBLAS_NUM_THREADS=1 (the command sets it), and switching them off may be felt by others who use it.
enum class ImplName : uint8_t { kAuto, kRef, kBlas };

struct LoadOptions {
  int threads = 0;                                           // 0 or less: all cores available to us; at most 1024
  int64_t context = 0;                                       // KV positions to plan for; 0: min(trained length, 4096)
  int64_t max_batch = 512;                                   // rows of one Step; brought within 1 to context * sequences
  int64_t max_logit_rows = 0;                                // of them with want_logits; 0: one a sequence
  int32_t sequences = 1;                                     // of full context that the KV cache has room for; at least 1
  ActivationsChoice activations = ActivationsChoice::kAuto;  // by weight type
  KvChoice kv = KvChoice::kAuto;                             // f16; f32 when activations are f32
  ImplName impl = ImplName::kAuto;
  // An op is shared among the threads where that is estimated to save more than this; others run on the calling thread, as
  // waiting for threads costs more than it saves, much more on a busy machine. 0: the threads share every op.
  uint64_t share_gain_ns = 20'000;
  // Of LoadModel: every tensor and expert slice ends with a page of memory, an unused page following, which takes address space
  // only; no huge pages. For AuditOptions::mmu; slower, and the same bits.
  bool guard_slices = false;
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress;  // of LoadModel; false: stop, kInterrupted
};

// The memory a model and an engine take, in bytes, checked against the machine before anything is allocated: LoadModel checks its
// weights with an engine of the same options, NewEngine its engine beside the weights and the model's other engines.
struct MemoryPlan {
  uint64_t packed_weights = 0, kv = 0, scratch = 0;  // scratch: activations of a batch and its rows of logits, kernel scratch
  uint64_t total() const { return packed_weights + kv + scratch; }
  uint64_t available = 0;  // when it was checked; an engine's: the weights included
  int64_t context = 0;     // KV positions of a sequence
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

using SamplingOptions = SamplerConfig;

struct GenerateOptions {
  int64_t max_tokens = -1;  // -1: until the context is full
  SamplingOptions sampling;
  std::vector<std::string> stop;  // generation ends before any of these
  bool ignore_eos = false;        // end tokens are never drawn
  // Called once per generated token with the text that became certain (whole characters that cannot begin a stop string;
  // often empty, always so where there is no tokenizer), and once more with token -1 where text was held back until the end.
  // False: stop, kInterrupted in `finish`; it is not called again.
  std::function<bool(std::string_view piece, int32_t token)> on_token;
  std::function<bool()> interrupted;  // polled between prefill chunks and tokens; true: stop
};

enum class FinishReason : uint8_t { kLength, kEos, kStop, kContextFull, kInterrupted };

struct GenerateResult {
  std::vector<int32_t> tokens;  // generated, the end token not included
  std::string text;             // UTF-8; empty where there is no tokenizer
  int64_t prompt_tokens = 0;    // that were run
  int64_t decode_steps = 0;     // steps of one token; the first token comes from the prompt's own logits
  double prompt_seconds = 0;    // prefill
  double generate_seconds = 0;  // decode steps, sampling included
  FinishReason finish = FinishReason::kLength;
};

// kBadInput: no tokens, one beyond the vocabulary, more than the engine's context.
TALLY_API Status CheckTokens(const Engine& engine, std::span<const int32_t> tokens);

// Prefills `prompt` into a fresh sequence (in pieces of max_batch) and generates; the sequence is freed. The ledger goes on from
// where it stood: Reset it first to have the figures of this generation alone.
// kBadInput: an empty prompt, a token id beyond the vocabulary, a prompt longer than the context, a sampling option out of
// range, a stop string where there is no tokenizer; what Step refuses. An interruption is not an error: `finish` says so.
TALLY_API Result<GenerateResult> Generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace tally
