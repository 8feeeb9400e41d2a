// SPDX-License-Identifier: Apache-2.0
// Figures of a model from its recipe alone: parameters by convention, memory by type, the work of a prefill and of a decode step.
// docs/accounting.md defines each figure.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "counters/books/figure.h"
#include "counters/books/parts.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/status.h"

namespace tally::books {

// The type of each tensor when a whole model is counted as `type`. It depends on the type's use (formats.inc):
//   FormatUse::kEverything   `type`
//   kMatrices                as in GGUF files: matrices `type`; vectors, learned positions and the router F32
//   kExperts                 as gpt-oss is published: the experts' matrices `type`, the rest BF16. Only for mixtures of experts.
// A matrix whose rows are not a whole number of blocks is F16 (kExperts: BF16).
TALLY_API DType StoredType(const ParameterForm& tensor, DType type);
TALLY_API uint64_t StoredBytesAs(const ParameterForm& tensor, DType type);  // scales included

struct CountOptions {
  uint64_t prompt = 0;        // P: positions of the prefill; 0: min(1024, trained context)
  uint64_t context = 0;       // S: positions that the decode token sees, its own included; 0: the same as `prompt`
  uint64_t batch = 1;         // B: sequences
  DType type = DType::kBF16;  // weights are counted as this type (StoredType)
  KvType kv = KvType::kF16;   // of the cache
  // Bytes of a checkpoint's tensors by name ("blk.3.ffn_gate_exps"). Tensors named here are counted by them instead of `type`.
  std::map<std::string, uint64_t> stored_bytes = {};
};

// Three ways to count the FLOPs of a step.
enum class FlopsView : uint8_t {
  kFullSquare,  // matrix products without masks: the convention of the courses, of torch's FlopCounterMode and of nanoGPT
  kCausal,      // matrix products; attention counts visible positions only
  kEverything   // all classes, without `special` (exp, divide, ...)
};
inline constexpr int kFlopsViews = 3;
TALLY_API std::string_view FlopsViewName(FlopsView view);  // "matmul, full square"; static

struct FlopsRow {
  Part part{};
  std::array<Figure<Form>, kFlopsViews> flops = {};
  Figure<Form> special = {};
};
// Of a model that is counted and not run (Recipe::counted_only), matrix products are counted and other work is not. Figures that include
// other work are then incomplete (figure.h).
struct FlopsCount {
  Workload workload = {};
  std::vector<FlopsRow> rows = {};  // in the order of Part, without empty ones
  std::array<Figure<uint64_t>, kFlopsViews> total{};
  Figure<uint64_t> special = {};
  std::array<Figure<uint64_t>, kWorkClasses> by_class{}, special_by_class{};
  std::vector<WorkForm> sites = {};  // layer by layer
};

// Elements that a sequence of `context` positions has in the cache of a counted-only model. Positions too few for an entry have none.
TALLY_API uint64_t CachedElements(const CountedCache& cache, uint64_t context);
// Those that the last position reads.
TALLY_API uint64_t ReadElements(const CountedCache& cache, uint64_t context);

// Bytes of so many of its elements. Each entry is a vector.
TALLY_API uint64_t CachedBytes(const CountedCache& cache, uint64_t elements, const KvStorage& storage);

// Experts of a layer that `rows` rows are expected to use with uniform routing: X (1 - (1 - k/X)^rows).
TALLY_API double UniformExperts(double experts, double top_k, double rows);
// What a step of `rows` rows at `positions` different positions reads of a tensor of `bytes` bytes that is no experts', if no two rows have
// the same token.
TALLY_API uint64_t BytesRead(const ParameterForm& tensor, uint64_t bytes, uint64_t rows, uint64_t positions);
// Bytes of weights that a step reads, and the experts of a layer in them: expected with uniform routing, and at most
// (min(rows k, X) experts).
struct WeightTraffic {
  double uniform = 0, uniform_experts = 0;
  uint64_t most = 0, most_experts = 0;
};

// The counted steps, and the cache.
struct StepCount {
  Form kv_elements_per_token = {};  // cached per token, all layers
  Form kv_per_token = {};           // the same in bytes, as CountOptions::kv stores them
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_bytes_at_context = 0;     // held: B sequences of S positions, window layers capped
  Figure<uint64_t> kv_bytes_read = {};  // of these, by a decode step: what windows, chunks and indexers choose
  Form state_elements = {};             // of a sequence, whatever its length (StateElements)
  uint64_t state_bytes = 0;             // the same in f32: what a step reads of a sequence, and what it writes
  FlopsCount prefill = {};              // B sequences of P positions, the head at all positions
  FlopsCount prefill_last = {};         // the same, the head at the last position of each sequence only
  FlopsCount decode = {};               // one token in each of B sequences, at position S - 1
};

// A sentence that names the incomplete figures and what they lack; "" if all are complete.
TALLY_API std::string PartialWords(const StepCount& count);

// The steps as Tally runs them.
struct Count : StepCount {
  SharedRecipe recipe = {};  // SizesOf it
  std::vector<ParameterForm> tensors = {};
  ParameterCounts parameters = {};
  uint64_t touched = 0;     // parameters that a decode step of one token reads
  uint64_t prediction = 0;  // parameters of multi-token-prediction layers; no other total includes them
  struct Memory {
    DType type{};
    uint64_t bytes = 0;
  };
  std::vector<Memory> memory = {};      // bytes of the weights as each type that the model can be stored as
  uint64_t weight_bytes = 0;            // as `options.type`, or as stored
  uint64_t weight_bytes_per_token = 0;  // bytes that a decode step of one token reads
  // Latent attention as published, not as run (Workload::expanded); none for other models.
  std::optional<StepCount> expanded = {};
  WeightTraffic prefill_traffic = {}, decode_traffic = {};
  // FLOPs (FlopsView::kEverything) per byte, with uniform routing.
  // Decode: FLOPs / (weight bytes + KV and states read and written). Prefill: FLOPs of prefill_last / (weight bytes + KV written + states
  // read and written).
  Figure<double> prefill_intensity = {}, decode_intensity = {};
  CountOptions options = {};  // with the defaults filled in
  std::vector<std::string> warnings = {};
};

// kBadInput: counts that do not fit 64 bits; a batch of 0; a kExperts type for a model without experts; a recipe without layers.
TALLY_API Result<Count> CountRecipe(const Recipe& recipe, CountOptions options);

}  // namespace tally::books
