// SPDX-License-Identifier: Apache-2.0
// Internal to books/: what the closed forms know of each block (recipe/layer.h lists them). A block's forms are in a file of its own,
// forms_*.cc.
#pragma once

#include <span>
#include <vector>

#include "counters/books/form_builders.h"
#include "counters/books/symbols.h"

namespace tally::books {

// What a block keeps of a position: so many vectors of so many elements.
struct CachedVectors {
  Form vectors = {}, elements = {};
};

// What a recurrent block keeps of a sequence.
struct BlockState {
  Component conv{};
  Form inputs = {};  // of the convolution, at the positions before
  Form state = {};   // of the recurrence, which is charged to Component::kRecurrence
};

// The builders have the layer at hand, which has the block. The component is that of the block's last matrix.
struct BlockForms {
  bool (*in)(const LayerRecipe&) = nullptr;              // the layer has the block
  void (*parameters)(ParameterBuilder&) = nullptr;       // in the order of the weight table
  Component (*work)(WorkBuilder&) = nullptr;             // a mixer's output is added to x by the caller
  Component (*communication)(GatherBuilder&) = nullptr;  // the block's output is gathered by the caller
  // Null: nothing is kept.
  CachedVectors (*cached)(const Recipe&, const LayerRecipe&, bool expanded) = nullptr;
  BlockState (*state)(const Recipe&, const LayerRecipe&) = nullptr;
  std::span<const LayerSize> sizes = {};                             // those of LayerSizeSymbols
  std::vector<SizeSymbol> (*symbols)(const LayerRecipe&) = nullptr;  // those of RecurrentSymbols; null: none
};

#define TALLY_BLOCK(name, member) extern const BlockForms k##name##Forms;
TALLY_MIXERS(TALLY_BLOCK)
TALLY_FEED_FORWARDS(TALLY_BLOCK)
#undef TALLY_BLOCK
#define TALLY_BLOCK(name, member) &k##name##Forms,
inline constexpr const BlockForms* kMixerBlocks[] = {TALLY_MIXERS(TALLY_BLOCK)};
inline constexpr const BlockForms* kFeedForwardBlocks[] = {TALLY_FEED_FORWARDS(TALLY_BLOCK)};
inline constexpr const BlockForms* kBlocks[] = {TALLY_MIXERS(TALLY_BLOCK) TALLY_FEED_FORWARDS(TALLY_BLOCK)};
#undef TALLY_BLOCK

}  // namespace tally::books
