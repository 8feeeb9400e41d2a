// The public interface: load a checkpoint, tokenize, step, generate, read the ledger.
//
// Errors are values (Status, Result); nothing here prints, exits or keeps globals. A Model is immutable after loading and may
// be shared; an Engine (its KV cache, scratch and ledger) belongs to one caller at a time.
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
#include "engine/base/dtype.h"
#include "engine/base/mat.h"
#include "engine/base/status.h"
#include "engine/graph/recipe.h"
#include "engine/session/batch.h"
#include "engine/session/sampling.h"
#include "engine/text/tokenizer.h"

namespace tally {

enum class ActivationsChoice : uint8_t { kAuto, kF32, kBF16, kInt8 };
enum class KvChoice : uint8_t { kAuto, kF32, kF16 };
enum class ImplName : uint8_t { kAuto, kRef, kBlas };

struct LoadOptions {
  int threads = 0;                                           // 0: all cores available to us
  int64_t context = 0;                                       // KV positions to plan for; 0: min(trained length, 4096)
  int64_t max_batch = 512;                                   // rows of one Step
  int64_t max_logit_rows = 0;                                // of them with want_logits; 0: one a sequence
  int32_t sequences = 1;                                     // of full context that the KV cache has room for
  ActivationsChoice activations = ActivationsChoice::kAuto;  // by weight type
  KvChoice kv = KvChoice::kAuto;                             // f16; f32 when activations are f32
  ImplName impl = ImplName::kAuto;
  // An op is shared among the threads where that is estimated to save more than this; others run on the calling thread, as
  // waiting for threads costs more than it saves, much more on a busy machine. 0: the threads share every op.
  uint64_t share_gain_ns = 20'000;
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress;  // false: stop, kInterrupted
};

// The memory a model and an engine take, checked against the machine before anything is allocated: LoadModel checks its
// weights with an engine of the same options, NewEngine its engine beside the weights and the model's other engines.
struct MemoryPlan {
  uint64_t packed_weights = 0, kv = 0, scratch = 0;  // scratch: activations of a batch and its rows of logits, kernel scratch
  uint64_t total() const { return packed_weights + kv + scratch; }
  uint64_t available = 0;  // when it was checked; an engine's: the weights included
  int64_t context = 0;     // KV positions of a sequence
};

// Parameter counts by convention (counters/books/books.h): total, active(all), active(head), active(none).
using ParameterCounts = books::ParameterCounts;

class Model {
 public:
  virtual ~Model() = default;
  virtual const Recipe& recipe() const = 0;
  virtual const Tokenizer* tokenizer() const = 0;           // null: token ids in, token ids out
  virtual const MemoryPlan& memory_plan() const = 0;        // of the load's options; an engine's own may differ
  virtual const ParameterCounts& parameters() const = 0;    // from the inventory
  virtual std::string Description() const = 0;              // "gpt-oss, 24 layers, MXFP4 + BF16, 12.8 GiB"
  virtual std::span<const DType> matrix_types() const = 0;  // the types of its matrices, by bytes, most first
};

std::string JoinTypes(std::span<const DType> types);  // "MXFP4 + Q8_0"

// The bundled model's file (models/demo/README.md), beside the installed library or in the source tree that it was built from.
// kBadInput: it is in neither place.
Result<std::string> DemoModelPath();

Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, const LoadOptions& options);

class Engine {
 public:
  virtual ~Engine() = default;
  virtual const MemoryPlan& memory_plan() const = 0;
  int64_t context() const { return memory_plan().context; }  // most positions of a sequence
  virtual int64_t max_batch() const = 0;                     // most rows of one Step
  virtual int64_t max_logit_rows() const = 0;                // most of them with want_logits
  virtual Result<int32_t> NewSequence() = 0;
  virtual int64_t Length(int32_t sequence) const = 0;
  virtual Status Truncate(int32_t sequence, int64_t length) = 0;  // keeps the first `length` positions
  virtual void Free(int32_t sequence) = 0;
  // Runs the rows (any mix of sequences, at most max_batch) and returns the logits asked for (at most max_logit_rows), in row
  // order: [rows with want_logits, vocab], valid until the next Step. NaN or infinite logits are an error naming layer and op.
  virtual Result<Mat<const float>> Step(std::span<const BatchRow> rows) = 0;
  virtual Ledger& ledger() = 0;
  virtual const Model& model() const = 0;
  virtual std::string_view target() const = 0;  // the Highway target, "AVX3_ZEN4"
  virtual bool used_blas() const = 0;
  virtual int threads() const = 0;
  // Views of every op's output as it runs; row-major f32.
  virtual void SetTap(std::function<void(Site, std::string_view op, Mat<const float>)> tap) = 0;
  virtual void EnableExplain() = 0;
  virtual std::vector<std::string> Explanations() const = 0;
};

// Any number of engines may share a model, each with options of its own (`progress` is not used). kBadInput: options the model
// cannot take, or more memory than there is.
Result<std::unique_ptr<Engine>> NewEngine(std::shared_ptr<const Model> model, const LoadOptions& options);

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
  std::function<bool()> interrupted;  // polled between prefill chunks and tokens
};

enum class FinishReason : uint8_t { kLength, kEos, kStop, kContextFull, kInterrupted };

struct GenerateResult {
  std::vector<int32_t> tokens;  // generated, the end token not included
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t decode_steps = 0;     // steps of one token; the first token comes from the prompt's own logits
  double prompt_seconds = 0;    // prefill
  double generate_seconds = 0;  // decode steps, sampling included
  FinishReason finish = FinishReason::kLength;
};

// kBadInput: no tokens, one beyond the vocabulary, more than the engine's context.
Status CheckTokens(const Engine& engine, std::span<const int32_t> tokens);

// Prefills `prompt` into a fresh sequence (in pieces of max_batch) and generates; the sequence is freed.
// kBadInput: an empty prompt, a token id beyond the vocabulary, a prompt longer than the context, a sampling option out of
// range, a stop string where there is no tokenizer. An interruption is not an error: `finish` says so.
Result<GenerateResult> Generate(Engine& engine, std::span<const int32_t> prompt, const GenerateOptions& options);

}  // namespace tally
