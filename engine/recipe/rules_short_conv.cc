// SPDX-License-Identifier: Apache-2.0
// The gated short convolution.
#include <string>

#include "engine/recipe/block_rules.h"

namespace tally {
namespace {

Status CheckShortConv(const Recipe& r, size_t layer) { return CheckTaps(r.layers[layer].conv.taps); }

double ShortConvParameters(const Recipe& r, const LayerRecipe& l) { return l.conv.taps > 0 ? 4.0 * r.d_model * r.d_model : 0; }

void DivideShortConv(const LayerRecipe&, const Dividers& by, LayerPart& part) {
  part.conv.channels = PartOf(by.d_model, kShardRows, by.shard);
}

bool HoldShortConv(const DividedWeight& w) {
  if (w.division != Division::kChannels) return false;
  for (int64_t at = 0; at < w.rows; at += w.d_model) w.Add(Plus(w.part.conv.channels, at), w.copied);
  return true;
}

}  // namespace

Status CheckTaps(int32_t taps) {
  if (taps >= 1 && taps <= kMaxTaps) return {};
  return BadInput("convolutions need 1 to " + std::to_string(kMaxTaps) + " taps; conv_taps is " + std::to_string(taps));
}

const BlockRules kShortConvRules = {.check = CheckShortConv,
                                    .alike = [](const LayerRecipe& a, const LayerRecipe& b) { return a.conv == b.conv; },
                                    .parameters = ShortConvParameters,
                                    .divide = DivideShortConv,
                                    .hold = HoldShortConv};

}  // namespace tally
