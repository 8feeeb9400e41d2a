// SPDX-License-Identifier: Apache-2.0
// Parameters of a recipe and the work of a step as closed forms: each row is a formula and its value.
//
// Model
//   V     vocabulary                       T     trained context
//   E     d_model                          L     layers
//   E_v   width of embedding and head, if not E
//   E_l   elements of a token's embedding for each layer
// Blocks
//   H     query heads                      F     d_ff; the width of an expert if no layer is dense
//   K     key-value heads                  F_x   the width of an expert if some layer is dense
//   D     head_dim                         F_s   the width of the shared experts together
//   D_r   rotated dimensions, if not D     X     experts
//   D_l   the same of local rope           k     experts per token
// H, K, D and F are a layer's own; where layers differ, the second value is H_2, the third H_3.
// Latent attention
//   R_q   rank of the queries              D_n   dimensions of a query head without rope
//   R_kv  rank of keys and values          D_r   dimensions of a query head with rope
//                                          D_v   dimensions of a value
// RecurrentSymbols explains those of recurrent blocks.
// Step
//   B     sequences                        S     positions that a sequence's last row sees without a window
//   P     rows of each sequence            W     the window
//   C     the chunk                        S_c   positions of its chunk that a row sees
//
// The formulas are derived from the definitions (counters/cost/cost.h), not from the ops' code, so that a
// mistake in one shows as a difference. docs/accounting.md says what is counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "counters/books/form.h"
#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "engine/base/export.h"
#include "engine/base/kinds.h"
#include "engine/base/stack.h"
#include "engine/recipe/sizes.h"

namespace tally::books {

// One learned tensor.
struct ParameterForm {
  std::string name = {};  // as in the ledger's table, without the layer: "attn_q", "attn_q.bias"
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  WeightInfo::Kind kind = WeightInfo::Kind::kBlock;
  StackKind stack = StackKind::kText;       // whose tensor it is
  bool vector = false;                      // norms, biases, sinks
  bool expert = false;                      // routed experts: a slice for each
  uint64_t slices = 1, rows = 1, cols = 0;  // experts (else 1), rows of a slice, row length
  Form slice = {};                          // elements of a slice
  Form count = {};                          // elements
  Form active = {};                         // parameters one token uses (k of X experts)
  Form touched = {};                        // parameters one token reads (one row of an untied embedding)
  // Of another stack than the text: totals exclude it unless stated.
  bool apart() const { return stack != StackKind::kText; }
  // The name in the ledger's table: "blk.3.attn_q".
  std::string full_name() const { return (layer < 0 ? "" : "blk." + std::to_string(layer) + ".") + name; }
};

// In the order of a forward pass, with the tensors that a stack shares with the text; and of a text those of its PredictionStack.
TALLY_API std::vector<ParameterForm> ParameterForms(const Recipe& recipe);

// One step: `rows` new positions in each of `sequences`. Each sequence has `context` positions afterwards.
struct Workload {
  uint64_t sequences = 1;
  uint64_t rows = 1;
  uint64_t context = 1;     // >= rows
  uint64_t logit_rows = 1;  // of each sequence
  // True: latent attention as published, which makes each head's keys and values from the compressed ones. False: absorbed, as Tally runs
  // it.
  bool expanded = false;
  // Of a stack for prediction: its hidden states are what its head got before; else the text's output before the last norm.
  bool own_states = false;
};

// The useful work of one class at one site.
struct WorkForm {
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  WorkClass work_class = WorkClass::kLinear;
  // Matrix products: a weight times activations, QK^T, PV. In a recurrence: products of the state with a vector, and the outer products
  // that are added to it.
  bool matmul = false;
  bool expert = false;  // of experts that tokens choose among
  Form flops = {};
  Form special = {};
  Form full_square = {};  // FLOPs of a product without causal mask and window: each row sees all `context` positions
};

// In the order of a forward pass of the recipe's stack.
TALLY_API std::vector<WorkForm> WorkForms(const Recipe& recipe, const Workload& work);

// Cached elements that a layer's attention reads for one position, from its own cache or another layer's: 2 K D; latent attention: R_kv +
// D_r, expanded H (D_n + D_r + D_v); 0 without attention.
TALLY_API Form CachedPerPosition(const Recipe& recipe, const LayerRecipe& layer, bool expanded = false);
// How a cache stores an element of a head's key or value, and each block of them.
struct KvStorage {
  uint64_t element_bytes = 2;  // f16
  uint64_t block = 0;          // elements that share a scale; 0: there are none
  uint64_t scale_bytes = 0;
};
// Bytes of the same elements as Tally stores them: the elements, and one scale for each block of a head's key (value). A partial block has
// a scale too.
TALLY_API Form CachedBytesPerPosition(const Recipe& recipe, const LayerRecipe& layer, const KvStorage& storage,
                                      bool expanded = false);
TALLY_API KvStorage StorageOf(KvType type);
// Positions of a sequence of `context` positions that a layer's window still needs.
TALLY_API uint64_t CachedPositions(const LayerRecipe& layer, uint64_t context);
// Positions that the last of them sees.
TALLY_API uint64_t SeenPositions(const LayerRecipe& layer, uint64_t context);

// f32 elements that recurrent mixers keep for a sequence: the state of the recurrence, and the last J - 1 inputs of each channel of the
// convolution.
TALLY_API Form StateElements(const Recipe& recipe);
// Bytes of state that a step reads and writes. Each sequence counts once, however many rows it has.
struct StateForm {
  int32_t layer = -1;
  Component component{};
  Form bytes = {};
};
// In the order of a forward pass.
TALLY_API std::vector<StateForm> StateForms(const Recipe& recipe, const Workload& work);
// Bytes that a step reads from a cache and writes to it, and the sites that they are charged to.
struct CacheForm {
  int32_t layer = -1;
  Component reads{}, writes{};
  Form read = {};
  Form written = {};  // 0 if the cache is another layer's
};
// In the order of a forward pass.
TALLY_API std::vector<CacheForm> CacheForms(const Recipe& recipe, const Workload& work, const KvStorage& storage);

// The sizes of layers and their symbols: H, K, D and F. Where layers differ, the second value in the order of layers is H_2, the third
// H_3 and so on.
struct SizeSymbol {
  std::string name = {};
  uint64_t value = 0;
  std::string_view meaning = {};  // set by RecurrentSymbols only
};
TALLY_API std::vector<SizeSymbol> LayerSizeSymbols(const Recipe& recipe);
// The symbols of recurrent layers, of experts in a space of their own and of layers' embeddings that the recipe has.
TALLY_API std::vector<SizeSymbol> RecurrentSymbols(const Recipe& recipe);

}  // namespace tally::books
