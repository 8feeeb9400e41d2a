// What a model costs, from its recipe alone: parameters by convention, memory by type, the work of a prefill and of a decode token.
// docs/conventions.md says in words what each figure counts.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
#include "engine/base/dtype.h"
#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally::books {

// How the tensors of a model are stored where it is said to have a weight type; formats.inc says which types are used how.
//   FormatUse::kEverything   all of it
//   kMatrices                as GGUF files have it: matrices so; vectors, learned positions and the router F32
//   kExperts                 as gpt-oss is published: the experts' matrices so, the rest BF16. Only for a mixture of experts.
// Matrices whose rows are no whole number of blocks are F16 (BF16 where `type` is one of experts).
TALLY_API DType StoredType(const ParameterForm& tensor, DType type);
TALLY_API uint64_t StoredBytesAs(const ParameterForm& tensor, DType type);  // of all of it, scales included

struct CountOptions {
  uint64_t prompt = 0;            // P: positions of the prefill; 0: 1,024, or the trained context where that is shorter
  uint64_t context = 0;           // S: positions that the decode token sees, its own included; 0: as many as the prompt has
  uint64_t batch = 1;             // B: sequences
  DType type = DType::kBF16;      // what weights are counted as
  uint64_t kv_element_bytes = 2;  // f16
  // A checkpoint's own bytes by tensor name ("blk.3.ffn_gate_exps"): used instead of `type` where not empty.
  std::map<std::string, uint64_t> stored_bytes = {};
};

// Where work goes: matrix products by what they are for, the rest by class.
enum class Part : uint8_t {
  kProjections,
  kAttention,
  kFeedForward,
  kRouter,
  kHead,
  kNorm,
  kSoftmax,
  kRope,
  kActivation,
  kChoice,
  kResidualBias
};
inline constexpr int kParts = 11;
TALLY_API std::string_view PartName(Part part);  // "attention projections"; static

// The three views of a step's FLOPs, each with its name wherever it is printed.
enum class FlopsView : uint8_t {
  kFullSquare,  // matrix products, masks ignored: the convention of the courses, of torch's FlopCounterMode and of nanoGPT
  kCausal,      // matrix products, of attention what the masks let through
  kEverything   // all classes; `special` (exp, divide and their like) is never in it
};
inline constexpr int kFlopsViews = 3;
TALLY_API std::string_view FlopsViewName(FlopsView view);  // "matmul, full square"; static

struct FlopsRow {
  Part part{};
  std::array<Form, kFlopsViews> flops;
  Form special;
};
struct FlopsCount {
  Workload workload;
  std::vector<FlopsRow>
      rows;  // in the order of Part, those with work in them; the head at every row of logits that the workload has
  std::array<uint64_t, kFlopsViews> total{};
  uint64_t special = 0;
  std::array<uint64_t, kWorkClasses> by_class{}, special_by_class{};
  std::vector<WorkForm> sites;  // all there is, layer by layer
};

// Bytes of weights that a step of `rows` rows reads. Which experts a batch shares depends on the text: with uniform routing
// X (1 - (1 - k/X)^rows) of a layer are expected, min(rows k, X) is the most.
TALLY_API double UniformExperts(double experts, double top_k, double rows);
struct WeightTraffic {
  double uniform = 0, uniform_experts = 0;
  uint64_t most = 0, most_experts = 0;
};

struct Count {
  Recipe recipe;
  std::vector<ParameterForm> tensors;
  ParameterCounts parameters;
  uint64_t touched = 0;     // what a decode step of one token reads
  uint64_t prediction = 0;  // in layers for multi-token prediction: in none of the others
  struct Memory {
    DType type{};
    uint64_t bytes = 0;
  };
  std::vector<Memory> memory;           // to load the model as each type that it can be stored as
  uint64_t weight_bytes = 0;            // as `options.type`, or as stored
  uint64_t weight_bytes_per_token = 0;  // of which a decode step of one token reads
  Form kv_elements_per_token;           // that a token leaves in all layers
  uint64_t kv_bytes_per_token = 0;
  uint64_t kv_bytes_at_context = 0;  // of B sequences of S positions, window layers capped
  FlopsCount prefill;                // B sequences of P, the head at all positions
  FlopsCount prefill_last;           // the same, the head at each sequence's last position only
  FlopsCount decode;                 // one token of each of B sequences, the last of S
  WeightTraffic prefill_traffic, decode_traffic;
  // FLOPs (everything) for each byte of weights (uniform routing) and KV: of a decode step read and written, of a prefill written.
  double prefill_intensity = 0, decode_intensity = 0;
  CountOptions options;  // with the defaults filled in
  std::vector<std::string> warnings;
};

// kBadInput: counts that do not fit 64 bits; a batch of 0; a type of experts for a model without; a recipe without its layers.
TALLY_API Result<Count> CountRecipe(const Recipe& recipe, CountOptions options);

}  // namespace tally::books
