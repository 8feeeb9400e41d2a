// SPDX-License-Identifier: Apache-2.0
// Mamba-2.
#include <algorithm>
#include <cmath>

#include "counters/books/blocks.h"

namespace tally::books {
namespace {

std::vector<SizeSymbol> Mamba2Symbols(const LayerRecipe& l) {
  const Mamba2& m = l.mamba;
  return {{"J", Unsigned(m.taps), "taps of a convolution"},
          {"H_m", Unsigned(m.heads), "heads of Mamba-2"},
          {"D_m", Unsigned(m.head_dim), "elements of such a head"},
          {"G", Unsigned(m.groups), "groups of heads with one B and C"},
          {"N", Unsigned(m.state_dim), "elements of B and of C"}};
}

// Per head, with S [N, D_m]: S^T C, and B (step x)^T added to S; the decay of S; step x, and D x added to the output.
Component Mamba2Work(WorkBuilder& w) {
  const Mamba2& m = w.layer().mamba;
  const auto [J, Hm, Dm, G, N] = FormsOf<5>(Mamba2Symbols(w.layer()));
  const Form &rows = w.rows(), inner = Hm * Dm, groups = G * N;
  w.Linear(Component::kRecurrentIn, rows, w.E(), 2 * Hm * Dm + 2 * groups + Hm, false);
  const Form parts[] = {inner, inner, groups, groups, Hm};
  for (size_t i = 0; i < m.multipliers.size(); ++i) w.Scaled(Component::kRecurrentIn, m.multipliers[i], rows * parts[i]);
  w.Convolve(J, inner + 2 * G * N, m.conv_bias);
  w.Rates(Hm, (m.dt_min > 0 ? 1 : 0) + (std::isfinite(m.dt_max) ? 1 : 0), false);
  w.Add(Component::kRecurrence, WorkClass::kRecurrence, 4 * rows * Hm * N * Dm, {}, true);
  w.Add(Component::kRecurrence, WorkClass::kRecurrence, rows * Hm * (N * Dm + 3 * Dm));
  if (m.norm) {
    const Form vectors = Form(Unsigned(m.norm_groups));
    w.Add(Component::kRecurrentNorm, WorkClass::kNorm, rows * (4 * Hm * Dm + vectors), 2 * rows * vectors);
  }
  w.Activate(Component::kRecurrentNorm, ActivationKind::kSilu, rows * Hm * Dm);
  w.Scaled(Component::kRecurrentOut, m.out_scale, rows * Hm * Dm);
  w.Linear(Component::kRecurrentOut, rows, inner, w.E(), false);
  return Component::kRecurrentOut;
}

void Mamba2Parameters(ParameterBuilder& p) {
  const Mamba2& m = p.layer().mamba;
  const auto [J, Hm, Dm, G, N] = FormsOf<5>(Mamba2Symbols(p.layer()));
  const Form inner = Hm * Dm, channels = inner + 2 * G * N;
  p.Matrix("ssm_in", Component::kRecurrentIn, 2 * inner + 2 * G * N + Hm, p.E());
  p.Taps("ssm_conv1d", Component::kRecurrentConv, J, channels);
  if (m.conv_bias) p.Vector("ssm_conv1d.bias", Component::kRecurrentConv, channels);
  p.Vector("ssm_dt.bias", Component::kRecurrentRates, Hm);
  p.Vector("ssm_a", Component::kRecurrentRates, Hm);
  p.Vector("ssm_d", Component::kRecurrence, Hm);
  if (m.norm) p.RmsNorm("ssm_norm", Component::kRecurrentNorm, inner);
  p.Matrix("ssm_out", Component::kRecurrentOut, p.E(), inner);
}

// Whether a vector that the norm works on is cut between ranks.
bool VectorsAreCut(const Mamba2& m, const GatherBuilder::OfRank& own, uint64_t ranks, uint64_t inner) {
  if (!m.norm) return false;
  const uint64_t vector = inner / std::max<uint64_t>(1, Unsigned(m.norm_groups));
  uint64_t at = 0;
  for (uint64_t rank = 0; rank < ranks; ++rank) {
    at += own(rank);
    if (at % vector != 0) return true;
  }
  return false;
}

Component Mamba2Gathers(GatherBuilder& g) {
  const Mamba2& m = g.layer().mamba;
  const auto [J, Hm, Dm, G, N] = FormsOf<5>(Mamba2Symbols(g.layer()));
  const GatherBuilder::OfRank own = g.Heads(Hm, G, Dm);
  const Form inner = Hm * Dm;
  if (VectorsAreCut(m, own, g.ranks(), inner.value())) {
    g.ByColumns(Component::kRecurrence, g.rows(), inner, own);
    g.ByColumns(Component::kRecurrentIn, g.rows(), inner, own);
  } else if (m.norm) {
    g.Packed(Role::kSsmOut, Component::kRecurrentNorm, g.rows(), inner, own);
  } else {
    g.ByColumns(Component::kRecurrentNorm, g.rows(), inner, own);
  }
  return Component::kRecurrentOut;
}

BlockState Mamba2State(const Recipe&, const LayerRecipe& l) {
  const auto [J, Hm, Dm, G, N] = FormsOf<5>(Mamba2Symbols(l));
  return {Component::kRecurrentConv, (J - 1) * (Hm * Dm + 2 * G * N), Hm * N * Dm};
}

}  // namespace

const BlockForms kMamba2Forms = {.in = [](const LayerRecipe& l) { return l.mixers.has(Mixer::kMamba2); },
                                 .parameters = Mamba2Parameters,
                                 .work = Mamba2Work,
                                 .communication = Mamba2Gathers,
                                 .state = Mamba2State,
                                 .symbols = Mamba2Symbols};

}  // namespace tally::books
