// SPDX-License-Identifier: Apache-2.0
// The place of an op in a model, and what the ledger knows about a weight.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/export.h"

namespace tally {

// Work of one row is prefill (a prompt token) or decode (a generated token). Work done once for rows of both phases, such as
// reading weights, is kMixed.
enum class Phase : uint8_t { kPrefill, kDecode, kMixed };
inline constexpr int kPhases = 3;
inline constexpr std::array<std::string_view, kPhases> kPhaseNames = {"prefill", "decode", "mixed"};

// The part of a layer or of the model that an op belongs to.
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
  kLogits,  // their scale and soft cap
  kAttnKv,  // latent attention: the matrices that make keys and values
  kSharedGateUp,
  kSharedDown,
  kSharedSigmoid,
  kPrediction,  // multi-token prediction: tensors that ordinary layers do not have
  kEmbeddingNorm,
  kConvIn,     // short convolution: the matrix that makes its gates and input
  kShortConv,  // the convolution, its gates and its state
  kConvOut,
  // Recurrent mixers (gated delta rule, Mamba-2).
  kRecurrentIn,     // the matrices that make what the convolution and the recurrence read
  kRecurrentGate,   // the matrix of the output's gate, if it is separate
  kRecurrentRates,  // decay and step size: their matrices, biases and functions
  kRecurrentConv,
  kRecurrence,  // the state's update and products
  kRecurrentNorm,
  kRecurrentOut,
  kAttnGate,   // a gate of attention's output: its matrix and the product
  kLatentIn,   // experts that work in a smaller space: the matrix into it
  kLatentOut,  // and out of it
  // A second embedding of the token that gives each layer a vector (Gemma 4).
  kLayerEmbedding,      // its table
  kLayerEmbeddingProj,  // what the token's first embedding adds to it: the matrix
  kLayerEmbeddingNorm,  // and its norm
  kLayerGate,           // in a layer: the matrix of the gate, and the product
  kLayerOut,
  kLayerPostNorm,
  kLayerScale,  // the number that multiplies what a layer leaves in the residual stream
  kRouterNorm,
  // Norms of a dense feed-forward and experts that stand side by side.
  kDensePostNorm,
  kExpertNorm,
  kExpertPostNorm,
  // Models that Tally counts but cannot run.
  kNgramTable,  // embeddings of the last tokens together
  kIndexer,     // what chooses the positions that attention sees
  kCompressor,  // what makes one key and value of several positions
  kStreams,     // what mixes several residual streams, or those of earlier layers
  // Matrices from the width of the embedding to d_model, and back before the head (OPT-350M).
  kEmbeddingProj,
  kHeadProj,
};
inline constexpr int kComponents = 59;
// "attn.q"; static.
TALLY_API std::string_view ComponentName(Component c);

struct Site {
  int32_t layer = -1;  // -1: before the first or after the last layer
  Component component = Component::kEmbedding;
  bool operator==(const Site&) const = default;
};

// One learned tensor. Parameters are its elements; scales of a quantised format count as bytes only.
struct WeightInfo {
  std::string name = {};  // role name, e.g. "blk.3.ffn_gate_exps"
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  uint32_t slices = 1;   // experts, or heads
  bool experts = false;  // a slice is an expert; a token uses only some of them
  uint64_t rows = 0;     // per slice; a vector is one row
  uint64_t cols = 0;
  uint64_t stored_bytes = 0;  // all slices, as in the file, scales included
  // Of these, the scales that rows share; and the shared scales that one row needs.
  uint64_t scale_bytes = 0, row_scale_bytes = 0;
  uint64_t packed_bytes = 0;  // bytes of all slices, as in memory
  // Elements that a process of a lower rank holds too.
  uint64_t copied = 0;
  // kTable: looked up beside the embedding, a row for each token.
  enum class Kind : uint8_t { kEmbedding, kPosition, kTable, kHead, kTiedEmbeddingHead, kBlock, kBuffer } kind = Kind::kBlock;
  uint64_t parameters() const { return slices * rows * cols; }
  uint64_t stored_row_bytes() const { return (stored_bytes - scale_bytes) / (slices * rows) + row_scale_bytes; }
};

}  // namespace tally
