// Where in a model an op stands, and what the ledger knows of a weight.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/export.h"

namespace tally {

// A row of a step is a prompt's token or a generated one, and its work is booked so. What a step with rows of both does once for all
// of them (reading weights) is booked as kMixed.
enum class Phase : uint8_t { kPrefill, kDecode, kMixed };
inline constexpr int kPhases = 3;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"prefill", "decode", "mixed"};

// Where in the model an op stands. Layer -1: before the first or after the last layer.
enum class Component : uint8_t {
  kEmbedding,
  kPositionEmbedding,
  kAttnNorm,
  kAttnQkv,
  kAttnQ,
  kAttnK,
  kAttnV,
  kAttnQNorm,
  kAttnKNorm,
  kRope,
  kKvStore,
  kAttention,
  kAttnOutput,
  kAttnPostNorm,
  kFfnNorm,
  kRouter,
  kFfnGateUp,
  kFfnDown,
  kMoeCombine,
  kFfnPostNorm,
  kOutputNorm,
  kHead,
  kLogitSoftcap,
  kAttnKv,  // latent attention's way to keys and values
  kSharedGateUp,
  kSharedDown,
  kSharedSigmoid,
  kPrediction  // of multi-token prediction what no ordinary layer has
};
inline constexpr int kComponents = 28;
// "attn.q"; static.
TALLY_API std::string_view ComponentName(Component c);

struct Site {
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  bool operator==(const Site&) const = default;
};

// One learned tensor as the ledger knows it. Elements are parameters; scales of a quantised format are bytes only.
struct WeightInfo {
  std::string name;  // role name, e.g. "blk.3.ffn_gate_exps"
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  uint32_t slices = 1;  // experts
  uint64_t rows = 0;    // per slice; a vector is one row
  uint64_t cols = 0;
  uint64_t stored_bytes = 0;  // all slices, as in the file, scales included
  uint64_t packed_bytes = 0;  // all slices, as in memory
  enum class Kind : uint8_t { kEmbedding, kPosition, kHead, kTiedEmbeddingHead, kBlock, kBuffer } kind = Kind::kBlock;
  uint64_t parameters() const { return slices * rows * cols; }
};

}  // namespace tally
