// What a recipe implies before anything runs: its parameters and the work of a step, each row as a formula and as a number.
//
// Symbols: V vocabulary, E d_model, H query heads, K key-value heads, D head_dim, F d_ff (the width of an expert, where no layer is
// dense), X experts, k experts chosen, T trained context; of models that have both, F_x expert width; F_s width of the shared experts
// together; D_r the part of a head that turns, where it is not all of it (D_l in layers with a rope of their own). Latent attention: R_q, R_kv its ranks, D_n, D_r, D_v the parts of a head. Of a step: B sequences, P rows of each, S positions
// that the last row of each sees without a window, W the window.
//
// The definitions are DESIGN's ledger chapter (counters/cost/cost.h, and the header of each op): these formulas are written from them and
// not from the ops' code, so that either can convict the other. docs/conventions.md says in words what is counted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "counters/books/form.h"
#include "counters/cost/cost.h"
#include "counters/cost/site.h"
#include "engine/base/export.h"
#include "engine/recipe/recipe.h"

namespace tally::books {

// One learned tensor.
struct ParameterForm {
  std::string name;    // as in the ledger's table, without the layer: "attn_q", "attn_q.bias"
  int32_t layer = -1;  // multi-token prediction: from n_layers on
  Component component = Component::kEmbedding;
  WeightInfo::Kind kind = WeightInfo::Kind::kBlock;
  bool prediction = false;                  // of a layer for multi-token prediction: in no total unless it says so
  bool vector = false;                      // norms, biases, sinks
  bool expert = false;                      // of the experts that are chosen among: slices of them
  uint64_t slices = 1, rows = 1, cols = 0;  // experts, rows of each, row length
  Form slice;                               // one expert's, or all of it
  Form count;                               // all of it
  Form active;                              // one token's share: of the experts the k chosen
  Form touched;                             // what one token reads: of an embedding that is no head, one row
  // With the layer, as in the ledger's table: "blk.3.attn_q".
  std::string full_name() const { return (layer < 0 ? "" : "blk." + std::to_string(layer) + ".") + name; }
};

// In the order of a forward pass.
TALLY_API std::vector<ParameterForm> ParameterForms(const Recipe& recipe);

// One step: `rows` new positions of each of `sequences`, after which each sequence has `context` positions.
struct Workload {
  uint64_t sequences = 1;
  uint64_t rows = 1;
  uint64_t context = 1;     // >= rows
  uint64_t logit_rows = 1;  // of each sequence
};

// The useful work of one class at one site (see ledger.h).
struct WorkForm {
  int32_t layer = -1;
  Component component = Component::kEmbedding;
  WorkClass work_class = WorkClass::kLinear;
  bool matmul = false;  // a matrix product: a weight times activations, QK^T or PV
  Form flops;
  Form special;
  Form full_square;  // a product's FLOPs with every mask ignored, causal and window: each row against all `context` positions
};

// In the order of a forward pass; layers for multi-token prediction are not run.
TALLY_API std::vector<WorkForm> WorkForms(const Recipe& recipe, const Workload& work);

// Elements of keys and values that a position leaves in the cache of a layer: 2 K D; of latent attention R_kv + D_r.
TALLY_API Form CachedPerPosition(const Recipe& recipe);
// Positions of a sequence of `context` that a layer's window keeps in reach.
TALLY_API uint64_t CachedPositions(const LayerRecipe& layer, uint64_t context);

}  // namespace tally::books
