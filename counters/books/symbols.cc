// SPDX-License-Identifier: Apache-2.0
#include "counters/books/symbols.h"

#include <algorithm>
#include <string>
#include <vector>

#include "counters/books/closed_form.h"

namespace tally::books {
namespace {

struct SizeOfLayers {
  const char* name;
  int32_t (*of)(const LayerRecipe&);
  bool (LayerRecipe::*has)() const;
};
constexpr SizeOfLayers kSizes[] = {{"H", [](const LayerRecipe& l) { return l.attention.n_heads; }, &LayerRecipe::attends},
                                   {"K", [](const LayerRecipe& l) { return l.attention.n_kv_heads; }, &LayerRecipe::attends},
                                   {"D", [](const LayerRecipe& l) { return l.attention.head_dim; }, &LayerRecipe::attends},
                                   {"F", [](const LayerRecipe& l) { return l.ffn.width; }, &LayerRecipe::dense}};

// The different values of a size among the layers that have it, in their order; the recipe's if no layer has it.
std::vector<int32_t> ValuesOf(const Recipe& r, const SizeOfLayers& s) {
  std::vector<int32_t> values;
  for (const LayerRecipe& l : r.layers) {
    const int32_t value = s.of(l);
    if ((l.*s.has)() && std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  if (values.empty()) values.push_back(s.of(r.all));
  return values;
}

std::string NameOf(const SizeOfLayers& s, size_t index) {
  return index == 0 ? s.name : s.name + ("_" + std::to_string(index + 1));
}

Form SymbolOf(const Recipe& r, const SizeOfLayers& s, int32_t value) {
  const std::vector<int32_t> values = ValuesOf(r, s);
  const auto at = std::ranges::find(values, value);
  return Form::Symbol(NameOf(s, at == values.end() ? 0 : static_cast<size_t>(at - values.begin())), Unsigned(value));
}

}  // namespace

uint64_t Unsigned(int32_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }

Symbols::Symbols(const Recipe& r)
    : V(Form::Symbol("V", Unsigned(r.vocab))),
      E(Form::Symbol("E", Unsigned(r.d_model))),
      X(Form::Symbol("X", Unsigned(r.all.experts.n_experts))),
      k(Form::Symbol("k", Unsigned(r.all.experts.top_k))),
      T(Form::Symbol("T", Unsigned(r.context) + Unsigned(r.first_position))),
      Fx(Form::Symbol(AnyLayer(r, &LayerRecipe::dense) ? "F_x" : "F", Unsigned(r.all.experts.width))),
      Fs(Form::Symbol("F_s", Unsigned(r.all.experts.shared_width))),
      Rq(Form::Symbol("R_q", Unsigned(r.all.latent.q_rank))),
      Rkv(Form::Symbol("R_kv", Unsigned(r.all.latent.kv_rank))),
      Dn(Form::Symbol("D_n", Unsigned(r.all.latent.nope_dim))),
      Dr(Form::Symbol("D_r", Unsigned(r.all.latent.rope_dim))),
      Dv(Form::Symbol("D_v", Unsigned(r.all.latent.v_dim))),
      J(Form::Symbol("J", Unsigned(TapsOf(r)))),
      Hk(Form::Symbol("H_k", Unsigned(r.all.delta.key_heads))),
      Hv(Form::Symbol("H_v", Unsigned(r.all.delta.value_heads))),
      Nk(Form::Symbol("N_k", Unsigned(r.all.delta.key_dim))),
      Nv(Form::Symbol("N_v", Unsigned(r.all.delta.value_dim))),
      Rg(Form::Symbol("R_g", Unsigned(r.all.delta.gate_rank))),
      Hm(Form::Symbol("H_m", Unsigned(r.all.mamba.heads))),
      Dm(Form::Symbol("D_m", Unsigned(r.all.mamba.head_dim))),
      G(Form::Symbol("G", Unsigned(r.all.mamba.groups))),
      N(Form::Symbol("N", Unsigned(r.all.mamba.state_dim))),
      Ex(r.all.experts.latent > 0 ? Form::Symbol("E_x", Unsigned(r.all.experts.latent)) : E),
      Ev(r.embedding_width > 0 ? Form::Symbol("E_v", Unsigned(r.embedding_width)) : E),
      El(Form::Symbol("E_l", Unsigned(r.layer_embedding))),
      LEl(Form::Symbol("L", Unsigned(r.n_layers)) * El),
      r_(r) {}

LayerSymbols Symbols::Of(const LayerRecipe& layer) const {
  const auto symbol = [&](const SizeOfLayers& size) { return SymbolOf(r_, size, size.of(layer)); };
  return {symbol(kSizes[0]), symbol(kSizes[1]), symbol(kSizes[2]), symbol(kSizes[3])};
}

Form Symbols::Channels(Mixer mixer) const {
  switch (mixer) {
    case Mixer::kShortConv: return E;
    case Mixer::kDeltaRule: return 2 * Hk * Nk + Hv * Nv;
    case Mixer::kMamba2: return Hm * Dm + 2 * G * N;
    case Mixer::kAttention:
    case Mixer::kLatentAttention: break;
  }
  return {};
}

Form Symbols::StateOf(Mixer mixer) const {
  if (mixer == Mixer::kDeltaRule) return Hv * Nk * Nv;
  return mixer == Mixer::kMamba2 ? Hm * N * Dm : Form();
}

std::vector<SizeSymbol> RecurrentSymbols(const Recipe& r) {
  const SizeSymbol all[] = {{"J", Unsigned(TapsOf(r)), "taps of a convolution"},
                            {"H_k", Unsigned(r.all.delta.key_heads), "key heads of the delta rule"},
                            {"H_v", Unsigned(r.all.delta.value_heads), "value heads of the delta rule"},
                            {"N_k", Unsigned(r.all.delta.key_dim), "elements of its keys"},
                            {"N_v", Unsigned(r.all.delta.value_dim), "elements of its values"},
                            {"R_g", Unsigned(r.all.delta.gate_rank), "rank of its gates"},
                            {"H_m", Unsigned(r.all.mamba.heads), "heads of Mamba-2"},
                            {"D_m", Unsigned(r.all.mamba.head_dim), "elements of such a head"},
                            {"G", r.all.mamba.heads > 0 ? Unsigned(r.all.mamba.groups) : 0, "groups of heads with one B and C"},
                            {"N", Unsigned(r.all.mamba.state_dim), "elements of B and of C"},
                            {"E_x", Unsigned(r.all.experts.latent), "width of what experts work on"},
                            {"E_l", Unsigned(r.layer_embedding), "elements of a layer's embedding"}};
  std::vector<SizeSymbol> symbols;
  for (const SizeSymbol& s : all) {
    if (s.value > 0) symbols.push_back(s);
  }
  return symbols;
}

std::vector<SizeSymbol> LayerSizeSymbols(const Recipe& r) {
  std::vector<SizeSymbol> symbols;
  for (const SizeOfLayers& s : kSizes) {
    const std::vector<int32_t> values = ValuesOf(r, s);
    for (size_t i = 0; i < values.size(); ++i) symbols.push_back({NameOf(s, i), Unsigned(values[i])});
  }
  return symbols;
}

}  // namespace tally::books
