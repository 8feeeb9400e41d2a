// SPDX-License-Identifier: Apache-2.0
// A model that is bigger than its memory: what stays in memory, what a step reads from disk, and the time of both. Arithmetic alone; the
// bytes of a layer come from a configuration (engine/studies/streaming_forecast.h) or from a plan. docs/bigger.md has the measurements
// behind the curves.
//
// Experts lie on disk as records (gate, up and down of one expert, as packed) and are read into n slots of each layer; all other weights
// are resident. A model without experts keeps as many whole layers as it can and reads the matrices of the others in their order, into two
// buffers; vectors of layers (norms, biases) stay, and belong to what is outside of layers.
//
//   M    bytes of memory for weights             n    slots of a layer (some have one more)
//   N    bytes of weights outside of records     r    resident share of the records, n / X
//   L_x  layers with experts                     h    hit rate: the part of the chosen experts that is resident
//   X    experts of a layer                      m    misses of a step, L_x c (1 - h)
//   k    experts of a token                      R    bytes of a record
//   c    experts of a layer that a step chooses: k of one row; of B rows X (1 - (1 - k / X)^B), uniform routing
//   b    bytes/s of memory                       d    bytes/s of the disk
//   f    seconds that the products of a row of a prompt take
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally::books {

// What a step reads of a layer, in bytes.
struct StreamedLayer {
  int64_t experts = 0, top_k = 0;  // X, k; 0: the layer has none
  uint64_t record = 0;             // R; 0: the layer has none
  uint64_t held = 0;               // of its other weights, as packed; without experts of the matrices alone
  double dense_read = 0;           // read from memory by a decode step: other weights, keys and values, states
  double expert_read = 0;          // read from memory for each expert that is chosen
  bool sparse() const { return experts > 0; }
};

struct StreamedModel {
  std::vector<StreamedLayer> layers = {};
  uint64_t outside = 0;                // bytes of weights outside of layers, as packed
  double outside_read = 0;             // what a decode step reads of them
  uint64_t rows = 1;                   // B: sequences of a decode step
  TALLY_API bool sparse() const;       // some layer has experts: only records are streamed
  TALLY_API uint64_t held() const;     // N: all bytes but records
  TALLY_API uint64_t records() const;  // all records: L_x X R
  uint64_t all() const { return held() + records(); }
};

// Where the weights are, for one budget.
struct Residency {
  uint64_t budget = 0;  // M
  uint64_t least =
      0;  // of M: N and min(k + 2, X) slots of each layer; without experts: what is outside of layers, and two layers
  uint64_t resident = 0;  // bytes of M that are used, buffers included; 0 if M < least
  int64_t slots = 0;      // n: of the layer that has fewest, min(X, floor((M - N) / (L_x R))); 0: no experts, or M < least
  // Of each layer, 0 of those without experts: n, or n + 1 of the first layers as far as the rest of M goes.
  std::vector<int64_t> slots_of = {};
  int64_t resident_layers = 0;  // without experts: whole layers that stay; the others are streamed
  // Without experts: of each layer, whether it is streamed. They lie evenly among the others and the head, so that the disk always has a
  // buffer to fill; empty: M < least.
  std::vector<bool> streamed_of = {};
  uint64_t streamed = 0;  // without experts: bytes of the layers that are read from disk each step
  double share = 0;       // r, by bytes; of a model without experts that of its layers
  bool enough() const { return budget >= least; }
  bool all_resident = false;
};
TALLY_API Residency ResidencyOf(const StreamedModel& model, uint64_t budget);

// How tokens choose among experts. kUniform: each token anew and evenly. kFlat and kLocal: two synthetic routings, simulated with LRU by
// layer, 128 experts and k = 4. kFlat: 35 % of the choices come again at the next token; kLocal: 47 %, and 83 % within eight tokens. Most
// published hit rates of models lie between them. kMeasured: rates that runs of the model have left.
enum class Routing : uint8_t { kUniform, kFlat, kLocal, kMeasured };
inline constexpr std::array<std::string_view, 4> kRoutingNames = {"uniform", "flat", "local", "measured"};

// 1 - h at the resident share r, from 0 to 1. Fits of the simulation's rates for r from .1 to .5:
//   kUniform   1 - r
//   kFlat      .307 (1 - r) r^-.18
//   kLocal     .042 + .13 (.1 / r)^1.6
// and each at most the one above it, as the fits cross outside of that range. kMeasured: as kUniform.
TALLY_API double MissRate(Routing routing, double r);

// 0: unknown. Then times that need the rate are 0, and others are bounds without it.
struct StreamRates {
  double memory = 0;  // b
  double disk = 0;    // d
  double row = 0;     // f
};

// A decode step of B rows, as a mean. Seconds.
struct StreamedDecode {
  double chosen = 0;            // L_x c: experts
  double misses = 0;            // m
  double disk_bytes = 0;        // m R; without experts Residency::streamed
  double memory_bytes = 0;      // that kernels read from memory, misses included
  double memory = 0, disk = 0;  // memory_bytes / b, disk_bytes / d
  // The sum over layers of dense + max(experts, misses / d): a layer's experts are known when its router has run, and what is resident is
  // multiplied while the rest comes. Without experts max(memory, disk), since the order is known.
  double bound = 0;
  // The same with misses that vary from token to token: the mean of the maximum, for a binomial number of misses of a layer, each with
  // 1 - h; and the last miss's products, which nothing hides. Of more than 64 experts of a layer the mean alone.
  double expected = 0;
};
// `misses`: 1 - h of each layer; those of layers without experts do not matter.
TALLY_API StreamedDecode DecodeStreamed(const StreamedModel& model, const Residency& at, std::span<const double> misses,
                                        const StreamRates& rates);
// MissRate of each layer.
TALLY_API std::vector<double> MissRates(const StreamedModel& model, const Residency& at, Routing routing);

// ---- prompts: each record that a chunk needs and that is not resident is read once a chunk

// C* = (1 - r) L_x X R / (d f): rows of a chunk at which the disk and the products take the same time. 0: a rate is unknown.
TALLY_API double BalancedChunk(const StreamedModel& model, const Residency& at, const StreamRates& rates);
// The rows of a chunk: the prompt, at most 2,048, as the chunk's memory grows with it (EngineOptions::max_batch).
TALLY_API uint64_t PromptChunk(uint64_t prompt);
// Seconds of a chunk: the sum over layers of max(disk, products), where the experts that `rows` rows choose of a layer are
// X (1 - (1 - k / X)^rows), and the part 1 - r of them is read. `cold`: all of them, as after a start. 0: the disk's rate is unknown.
TALLY_API double ChunkSeconds(const StreamedModel& model, const Residency& at, const StreamRates& rates, uint64_t rows,
                              bool cold);
// Seconds of a prompt in chunks, until its last row's logits.
TALLY_API double PromptSeconds(const StreamedModel& model, const Residency& at, const StreamRates& rates, uint64_t prompt,
                               uint64_t chunk, bool cold);

}  // namespace tally::books
