// SPDX-License-Identifier: Apache-2.0
// Figures of a count that reports show: sums over its tensors, and what a token costs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "counters/books/model_count.h"
#include "engine/base/export.h"

namespace tally {

// By part: the sum of one form over its tensors, without multi-token prediction.
TALLY_API std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which);

// Tensors of one name and shape. Those of all layers are one group, "blk.*.attn_q", unless `layers`.
struct TensorGroup {
  std::string name;
  const books::ParameterForm* first = nullptr;
  uint64_t n = 0;
};
TALLY_API std::vector<TensorGroup> TensorGroups(const books::Count& count, bool layers);

// Tables that are looked up beside the embedding: their elements, and those that one token reads.
struct LookedUpTables {
  uint64_t stored = 0, read = 0;
  bool ngrams = false;  // of the last tokens together, not of a layer
};
TALLY_API LookedUpTables LookedUp(const books::Count& count);

// The type of the cache: "f16".
TALLY_API std::string KvNameOf(const books::Count& count);

// What a layer has, and what it costs.
struct LayerCost {
  int32_t layer = -1;        // -1: what is outside of layers (embedding, last norm, head)
  std::string mixer = {};    // "attention, window 128"; empty: none
  std::string network = {};  // "4 of 32 experts"; empty: none
  uint64_t parameters = 0;   // without multi-token prediction
  uint64_t active = 0;       // active(all)
  uint64_t kv_bytes = 0;     // of a position, of its own caches; a cache whose layers are not known stands outside
  // FLOPs of the steps, the head at every position: matrix products, causal, and everything.
  books::Figure<uint64_t> prefill_matmul = {}, prefill = {}, decode_matmul = {}, decode = {};
};
// First what is outside of layers. Added up they are the model's.
TALLY_API std::vector<LayerCost> LayerCosts(const books::Count& count);

// Of one token, as a mean.
struct TokenCost {
  std::array<books::Figure<double>, books::kFlopsViews> flops = {};
  books::Figure<double> bytes = {};  // of weights, experts chosen uniformly, and of KV and states read and written
};
TALLY_API TokenCost PrefillCost(const books::Count& count);
TALLY_API TokenCost DecodeCost(const books::Count& count);

}  // namespace tally
