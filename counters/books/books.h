// SPDX-License-Identifier: Apache-2.0
// Parameter counts and the figures of a run, computed from the ledger and the weight table. No call fails.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "counters/ledger/ledger.h"
#include "engine/base/export.h"
#include "engine/recipe/sizes.h"

namespace tally::books {

// Parameters are elements of learned tensors. A tied matrix counts once; a head stored as a copy is a tensor of its own. Scales of
// quantised formats and buffers (masks, rope divisors) are not parameters. Active parameters are those one token uses: of the
// experts, the top k.
struct ParameterCounts {
  uint64_t total = 0;
  uint64_t active_all = 0;   // includes embedding, tables that are looked up beside it, learned positions and head
  uint64_t active_head = 0;  // includes the head, excludes embedding and learned positions (convention of the gpt-oss model card)
  uint64_t active_none = 0;  // excludes embedding, learned positions and head, and a tied matrix
  bool operator==(const ParameterCounts&) const = default;
};

// Stored tensors that are learned and not run: a vision tower, layers for multi-token prediction, a tied head that is stored too. No
// other figure includes them.
struct NotRun {
  uint64_t tensors = 0, parameters = 0, bytes = 0;
  std::string names = {};  // "vision_tower, lm_head.weight"
  // The one of `names` that is a tied head, stored beside the embedding; empty: none.
  std::string head = {};
  uint64_t head_parameters = 0, head_bytes = 0;
};

// Counts a weight table (Ledger::weights()). If a weight has slices, `top_k` of them are active.
TALLY_API ParameterCounts CountParameters(std::span<const WeightInfo> weights, int32_t top_k);

// The same from the recipe alone: sums of its closed forms (closed_form.h). Excludes layers for multi-token prediction.
TALLY_API ParameterCounts ClosedFormCounts(const Recipe& recipe);

// Measurements by the caller.
struct RunInput {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0;  // generate_seconds excludes the prompt
  uint64_t forced_tokens = 0;                       // of the answer, that were not drawn: a grammar left no other
  int threads = 0;                                  // 0: unknown
  std::string_view target = {};                     // "AVX3_ZEN4"; empty: unknown
  bool used_blas = false;                           // OpenBLAS ran: results may depend on the number of threads
  uint64_t head_copy = 0;                           // NotRun::head_parameters
};

// Figures of a run. Means over decode tokens are 0 if nothing was decoded. The last row of a prompt yields the first generated
// token, so n generated tokens take n - 1 decode steps.
struct RunFigures {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0;
  double prompt_tokens_per_second = 0;
  double decode_tokens_per_second = 0;  // decode tokens / generate_seconds
  int threads = 0;
  std::string target = {};
  bool used_blas = false;

  uint64_t forced_tokens = 0;                         // RunInput's
  uint64_t decode_steps = 0, decode_tokens = 0;       // tokens: rows, but for drafts that were not accepted
  uint64_t drafted = 0, accepted = 0;                 // rows that were drafted; of these, accepted
  double rejected_flops = 0, rejected_bytes = 0;      // useful, of the others, all together; bytes moved
  double predicting_flops = 0, predicting_bytes = 0;  // the same of DraftWork::predicting
  struct Work {
    double useful = 0, executed = 0;  // FLOPs per decode token
    std::array<double, kAriths> useful_by_type{};
    double special = 0;  // exp, divide, sqrt, ... per decode token (useful)
  };
  std::array<Work, kWorkClasses> work{};             // by WorkClass
  Work all = {};                                     // their sum
  std::array<double, kByteKinds> bytes_per_token{};  // by ByteKind, useful
  // Of a model that reads experts from disk: sums over all layers of the steps of the prompt and of those of decode; all 0: all weights are
  // in memory.
  ExpertUses prompt_experts = {}, decode_experts = {};
  // Of a model without experts that reads layers from disk: how many, and the bytes of the same steps.
  uint64_t streamed_layers = 0, prompt_layer_bytes = 0, decode_layer_bytes = 0;
  bool streams_experts() const { return prompt_experts != ExpertUses() || decode_experts != ExpertUses(); }
  bool streams() const { return streams_experts() || streamed_layers > 0; }
  // Packed weights, KV and states read and written, divided by generate_seconds. 1 GB = 10^9 bytes.
  double decode_gigabytes_per_second = 0;

  ParameterCounts parameters = {};
  double touched_per_decode_step = 0;  // parameters: the union over a step's tokens, mean over the steps
  uint64_t touched_in_run = 0;         // parameters touched by any step, prompt included
  bool tied = false;                   // embedding and head are one matrix
  uint64_t head_copy = 0;              // parameters of a tied head that is stored too; no other figure includes them
  uint64_t bad_touches = 0;            // TouchSet::bad(); not 0: a defect of the engine, the touched figures are wrong
};

// Bytes of whole layers that steps of a phase read from disk, by layer; empty: none are.
TALLY_API std::map<int32_t, uint64_t> LayerBytesFromDisk(const Ledger& ledger, Phase phase);

TALLY_API RunFigures MeasureRun(const Ledger& ledger, const ParameterCounts& parameters, const RunInput& input);

// 1234567 -> "1,234,567". A fraction is rounded to the nearest integer; it must be below 2^63.
TALLY_API std::string WithThousands(uint64_t n);
TALLY_API std::string WithThousands(double x);

}  // namespace tally::books
