// The books: what is made of the ledger and of the weight table. The conventions are stated at each figure. No call fails.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "counters/cost/site.h"
#include "counters/ledger/ledger.h"
#include "engine/base/export.h"
#include "engine/recipe/recipe.h"

namespace tally::books {

// Parameters: elements of learned tensors. A tied matrix is counted once; a head stored as a copy is a tensor
// of its own; scales of quantised formats and buffers (masks, rope divisors) are none. Active: for one token,
// of the experts the top k.
struct ParameterCounts {
  uint64_t total = 0;
  uint64_t active_all = 0;   // embedding, learned positions and head counted
  uint64_t active_head = 0;  // head counted, embedding and learned positions not (the gpt-oss card's convention)
  uint64_t active_none = 0;  // neither; of a tied matrix nothing
  bool operator==(const ParameterCounts&) const = default;
};

// From a weight table (Ledger::weights()). `top_k` of the slices of a sliced weight are
// active.
TALLY_API ParameterCounts CountParameters(std::span<const WeightInfo> weights, int32_t top_k);

// The same from the recipe alone: the sums of its closed forms (closed_form.h), layers for multi-token prediction left out.
TALLY_API ParameterCounts ClosedFormCounts(const Recipe& recipe);

// What the caller measured.
struct RunInput {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0;  // the latter without the prompt
  int threads = 0;                                  // 0: not told
  std::string_view target = {};                     // "AVX3_ZEN4"; empty: not told
  bool used_blas = false;                           // OpenBLAS ran: results may depend on the number of threads
};

// The run in figures. Means over decode tokens are 0 where nothing was decoded (a prompt's last row already
// yields the first generated token, so n generated tokens take n - 1 decode steps).
struct RunFigures {
  int64_t prompt_tokens = 0, generated_tokens = 0;
  double prompt_seconds = 0, generate_seconds = 0;
  double prompt_tokens_per_second = 0;
  double decode_tokens_per_second = 0;  // decode tokens over the seconds of generation
  int threads = 0;
  std::string target;
  bool used_blas = false;

  uint64_t decode_steps = 0, decode_tokens = 0;
  struct Work {
    double useful = 0, executed = 0;  // FLOPs per decode token
    std::array<double, kAriths> useful_by_type{};
    double special = 0;  // exp, divide, sqrt and their like, per decode token (useful)
  };
  std::array<Work, kWorkClasses> work{};             // by WorkClass
  Work all;                                          // their sum
  std::array<double, kByteKinds> bytes_per_token{};  // by ByteKind, useful
  // Packed weights and KV read and written, over the time of the decode steps. 1 GB = 10^9 bytes.
  double decode_gigabytes_per_second = 0;

  ParameterCounts parameters;
  double touched_per_decode_step = 0;  // the union over a step's tokens, mean over the steps
  uint64_t touched_in_run = 0;         // by any step, the prompt's included
  bool tied = false;                   // embedding and head are one matrix
  uint64_t bad_touches = 0;            // not 0: the touched figures cannot be trusted (a defect of ours)
};

TALLY_API RunFigures MeasureRun(const Ledger& ledger, const ParameterCounts& parameters, const RunInput& input);

// The same as text, for people: at most 80 columns, lines end in '\n'.
TALLY_API std::string RunSummary(const RunFigures& figures);

// 1234567 -> "1,234,567"; a fraction is rounded to the nearest integer (values of 2^63 and above are not
// expected).
TALLY_API std::string WithThousands(uint64_t n);
TALLY_API std::string WithThousands(double x);

}  // namespace tally::books
