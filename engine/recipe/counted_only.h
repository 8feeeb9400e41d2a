// SPDX-License-Identifier: Apache-2.0
// The parts of a model that is counted and not run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "counters/cost/site.h"

namespace tally {

// A tensor that is counted and that nothing runs.
struct CountedTensor {
  std::string name = {};  // "indexer.attn_k"
  int32_t layer = -1;     // -1: outside the layers; n_layers and on: of layers for multi-token prediction
  Component component{};
  uint64_t slices = 1, used = 1;  // experts, and those that a token uses
  uint64_t rows = 1, cols = 0;    // of a slice
  bool vector = false;
  uint64_t looked_up = 0;  // not 0: a table, of which a token reads so many rows
  bool operator==(const CountedTensor&) const = default;
};

// Caches of a sequence in a model that is only counted.
struct CountedCache {
  std::string name = {};              // "index keys"
  uint64_t layers = 0, elements = 0;  // layers that keep it; elements of an entry
  uint64_t every = 1;                 // positions that share an entry
  uint64_t window = 0;                // positions whose entries are kept; 0: all
  uint64_t most = 0;                  // entries that a token reads at most; 0: all that are kept
  bool operator==(const CountedCache&) const = default;
};

// Products besides those with matrices, in a model that is only counted: with a state, of queries with keys. Those of
// Component::kAttention replace the products of the layer's attention.
struct CountedWork {
  int32_t layer = -1;
  Component component{};
  uint64_t flops = 0;  // of a row, or of each entry that it sees
  bool by_entry = false;
  uint64_t every = 1;   // positions that share an entry, which is seen once all of them are there
  uint64_t window = 0;  // positions that are seen; 0: all
  uint64_t most = 0;    // entries that are seen; 0: all
  bool operator==(const CountedWork&) const = default;
};

// The parts of a model that no other field of its recipe describes. Such a model is counted and not run.
struct CountedOnly {
  std::string why = {};         // "sparse attention with an indexer"
  bool output_norm = true;      // false: the last norm is among the tensors
  bool own_prediction = false;  // the layers for multi-token prediction are among the tensors alone
  std::vector<CountedTensor> tensors = {};
  std::vector<CountedCache> caches = {};
  std::vector<CountedWork> work = {};
  std::vector<std::string> lacks_products = {};  // matrix products that no form counts, by name
  std::vector<std::string> lacks_reads = {};     // caches of which it is not known how much a token reads
  uint64_t state_elements = 0;                   // f32, of a sequence, whatever its length
  bool operator==(const CountedOnly&) const = default;
};

}  // namespace tally
