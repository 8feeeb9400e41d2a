// SPDX-License-Identifier: Apache-2.0
// The gated short convolution.
#include "counters/books/blocks.h"

namespace tally::books {
namespace {

std::vector<SizeSymbol> ShortConvSymbols(const LayerRecipe& l) { return {{"J", Unsigned(l.conv.taps), "taps of a convolution"}}; }

// Per element: B x; J multiply-adds, which include positions before the first; the product with C.
Component ShortConvWork(WorkBuilder& w) {
  const Form &rows = w.rows(), &E = w.E();
  const auto [J] = FormsOf<1>(ShortConvSymbols(w.layer()));
  w.Linear(Component::kConvIn, rows, E, 3 * E, false);
  w.Add(Component::kShortConv, WorkClass::kActivation, 2 * (rows * E));
  w.Linear(Component::kShortConv, rows, J, E, false);
  w.Linear(Component::kConvOut, rows, E, E, false);
  return Component::kConvOut;
}

void ShortConvParameters(ParameterBuilder& p) {
  const auto [J] = FormsOf<1>(ShortConvSymbols(p.layer()));
  p.Matrix("shortconv.in_proj", Component::kConvIn, 3 * p.E(), p.E());
  p.Taps("shortconv.conv", Component::kShortConv, J, p.E());
  p.Matrix("shortconv.out_proj", Component::kConvOut, p.E(), p.E());
}

Component ShortConvGathers(GatherBuilder& g) {
  g.PackedPieces(Role::kConvOut, Component::kShortConv, g.rows(), g.E());
  return Component::kConvOut;
}

BlockState ShortConvState(const Recipe& r, const LayerRecipe& l) {
  const auto [J] = FormsOf<1>(ShortConvSymbols(l));
  return {Component::kShortConv, (J - 1) * Symbols(r).E};
}

}  // namespace

const BlockForms kShortConvForms = {.in = [](const LayerRecipe& l) { return l.mixers.has(Mixer::kShortConv); },
                                    .parameters = ShortConvParameters,
                                    .work = ShortConvWork,
                                    .communication = ShortConvGathers,
                                    .state = ShortConvState,
                                    .symbols = ShortConvSymbols};

}  // namespace tally::books
