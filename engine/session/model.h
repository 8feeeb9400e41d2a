// SPDX-License-Identifier: Apache-2.0
// A checkpoint in memory: loading it, and its properties.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/books.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/grammar/vocabulary.h"
#include "engine/recipe/sizes.h"
#include "engine/text/tokenizer.h"

namespace tally {

class Communicator;
class Model;

struct EngineOptions {
  int threads = 0;      // 0 or less: all cores available to the process; at most 1024
  int64_t context = 0;  // KV positions of a sequence; 0: min(trained length, 4096)
  // Rows of one Step; clamped to 1 .. context * sequences. 0: kBatchRows; where weights are read from disk, more, up to kMostBatchRows, as
  // long as they take at most 1/32 of what the budget leaves for the weights that are (MemoryPlan::batch_rows): each that several rows need
  // is read once a step.
  int64_t max_batch = 0;
  static constexpr int64_t kBatchRows = 512, kMostBatchRows = 2048;
  int64_t max_logit_rows = 0;  // rows of one Step with want_logits; 0: one for each sequence, and draft_rows
  // Rows of one Step that a scheduler may fill with drafts (RequestOptions::draft). In steps of up to 1 + draft_rows rows, attention is
  // divided among threads by positions too, as it is for one row.
  int64_t draft_rows = 0;
  // True: the checkpoint's layer for multi-token prediction is loaded, and Engine::Predict runs it. LoadModel and NewEngine must be given
  // the same value. kBadInput: the checkpoint has no such layer, the family's cannot be run, or several processes run the model.
  bool prediction = false;
  int32_t sequences = 1;  // maximum number of live sequences; at least 1
  // The most bytes of the KV cache, one budget of all sequences and layers. A Step or Fork that does not fit is refused. 0: full context
  // for all.
  uint64_t kv_bytes = 0;
  ActivationMode activations = ActivationMode::kAuto;  // by weight type
  std::optional<KvType> kv = {};                       // none: f16, or f32 if activations are kF32
  ImplChoice impl = ImplChoice::kAuto;
  // An op is shared among the threads only if that is estimated to save at least this many nanoseconds, since joining threads has
  // a cost, which is high on a busy machine. 0: always share.
  uint64_t share_gain_ns = 20'000;
  // Bytes of memory for packed weights, of LoadModel. Experts that do not fit are read from disk when rows choose them, or, of a model
  // without experts, layers in every step; with the same results. All else is in memory. kAutoBudget: what memory leaves after KV cache and
  // scratch. kAllWeights: all weights are in memory.
  uint64_t weights_budget = kAllWeights;
  static constexpr uint64_t kAllWeights = UINT64_MAX, kAutoBudget = 0;
};

// How a model is divided among several processes. kAll: every matrix is divided. kExperts: each expert belongs to one process, and every
// process has all of attention and of the other mixers, which takes fewer messages. kAuto: the one that is estimated to be faster, by the
// speed of the network and of memory, measured when the model is loaded.
enum class Split : uint8_t { kAuto, kAll, kExperts };
inline constexpr std::array<std::string_view, 3> kSplitNames = {"auto", "all", "experts"};

struct LoadOptions {
  // Every tensor and expert slice ends at a page boundary and is followed by an unused page, which takes address space only; no huge
  // pages. For AuditOptions::mmu. Slower, with the same results.
  bool guard_slices = false;
  std::function<bool(uint64_t done_bytes, uint64_t total_bytes)> progress = {};  // false: stop, kInterrupted
  // Called before the weights are read; recipe(), tokenizer() and chat_templates() are valid by then. LoadModel ends with the error
  // that it returns.
  std::function<Status(const Model& model)> before_weights = {};
  // The processes that run the model together, each of which loads its part; null: this process alone. It must outlive the model. All
  // processes must pass the same path and options. If one fails, all return its error, which names the process. The program steps engines
  // in the first process only; the others call FollowGroup.
  Communicator* group = nullptr;
  Split split = Split::kAuto;
};

// Bytes of memory of a model and an engine, checked before anything is allocated. LoadModel checks its weights together with an
// engine of the options that it is given; NewEngine checks its engine together with the weights and the model's other engines.
struct MemoryPlan {
  // In memory; without guards. scratch: activations and logits of a batch, kernel scratch.
  uint64_t packed_weights = 0, kv = 0, scratch = 0;
  uint64_t total() const { return packed_weights + kv + scratch; }
  uint64_t available = 0;                          // at the check; for an engine the weights, already in memory, are included
  int64_t context = 0;                             // KV positions of a sequence
  int64_t batch_rows = EngineOptions::kBatchRows;  // of a step where EngineOptions::max_batch is 0
  // Of a model whose weights are not all in memory: of packed_weights, those that always are, and of all weights. With experts: slots of a
  // layer, of the layer that has the fewest, and its experts. Without: layers that a step reads from disk, of how many, and their bytes.
  uint64_t dense_weights = 0, all_weights = 0;
  int64_t expert_slots = 0, experts = 0;
  int64_t streamed_layers = 0, layers = 0;
  uint64_t streamed_bytes = 0;
  bool streams() const { return expert_slots > 0 || streamed_layers > 0; }
};

// Parameter counts by convention (counters/books/books.h): total, active(all), active(head), active(none).
using ParameterCounts = books::ParameterCounts;

// A loaded checkpoint. References and views that its members return are valid for the model's lifetime.
class TALLY_API Model {
 public:
  virtual ~Model() = default;
  ModelSizes sizes() const { return SizesOf(recipe()); }
  virtual const Recipe& recipe() const = 0;                   // internal
  virtual const Tokenizer* tokenizer() const = 0;             // null: token ids in, token ids out
  virtual const Status& tokenizer_status() const = 0;         // what is wrong with the checkpoint's tokenizer, which is null then
  virtual const std::vector<std::string>& notes() const = 0;  // for the user: what the files leave open, what was not followed
  // The checkpoint's chat templates, the default one first; empty: it has none. An error: what is wrong with them.
  virtual const Result<std::vector<ChatTemplateSource>>& chat_templates() const = 0;
  virtual const MemoryPlan& memory_plan() const = 0;        // for the options of LoadModel; an engine's may differ
  virtual const ParameterCounts& parameters() const = 0;    // from the inventory
  virtual const books::NotRun& not_run() const = 0;         // stored and not run
  virtual std::string Description() const = 0;              // "gpt-oss, 24 layers, MXFP4 + BF16, 12.8 GiB packed"
  virtual std::span<const DType> matrix_types() const = 0;  // the types of its matrices, by bytes, largest first
  // The bytes of its tokens, for grammars; made when it is first asked for, by any thread. Null: there is no tokenizer.
  std::shared_ptr<const Vocabulary> vocabulary() const;

 private:
  mutable std::once_flag vocabulary_once_;
  mutable std::shared_ptr<const Vocabulary> vocabulary_;
};

TALLY_API std::string JoinTypes(std::span<const DType> types);  // "MXFP4 + Q8_0"

// Path of the bundled model, installed with the library or in the source tree. kBadInput: it is in
// neither place.
TALLY_API Result<std::string> DemoModelPath();

// Reads a GGUF file (any shard of a split one) or a Hugging Face directory, weights included, into memory. The files are not needed
// afterwards. `engine`: the threads that read, and the engine that must fit beside the weights. Not null on success. A tokenizer that
// cannot be read is no error: see tokenizer_status(). kBadInput: an unreadable or malformed file, an unknown family, options that the
// model cannot take. kNoRoom: more memory or threads than available. kInterrupted.
TALLY_API Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, const EngineOptions& engine,
                                                         const LoadOptions& options = {});

// The memory that LoadModel would take for the weights and an engine of these options, from the files' headers alone; there need not be
// as much now. Errors of LoadModel.
TALLY_API Result<MemoryPlan> PlanModel(const std::string& path, const EngineOptions& engine);

}  // namespace tally
