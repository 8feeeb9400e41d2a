// SPDX-License-Identifier: Apache-2.0
#include "counters/books/symbols.h"

#include <algorithm>
#include <string>
#include <vector>

#include "counters/books/blocks.h"

namespace tally::books {
namespace {

// The different values of a size among the layers that have it, in their order; the recipe's if no layer has it.
std::vector<int32_t> ValuesOf(const Recipe& r, const LayerSize& s) {
  std::vector<int32_t> values;
  for (const LayerRecipe& l : r.layers) {
    const int32_t value = s.of(l);
    if ((l.*s.has)() && std::ranges::find(values, value) == values.end()) values.push_back(value);
  }
  if (values.empty()) values.push_back(s.of(r.all));
  return values;
}

std::string NameOf(const LayerSize& s, size_t index) { return index == 0 ? s.name : s.name + ("_" + std::to_string(index + 1)); }

}  // namespace

uint64_t Unsigned(int32_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }

Symbols::Symbols(const Recipe& r)
    : V(Form::Symbol("V", Unsigned(r.vocab))),
      E(Form::Symbol("E", Unsigned(r.d_model))),
      T(Form::Symbol("T", Unsigned(r.context) + Unsigned(r.first_position))),
      Ev(r.embedding_width > 0 ? Form::Symbol("E_v", Unsigned(r.embedding_width)) : E),
      El(Form::Symbol("E_l", Unsigned(r.layer_embedding))),
      LEl(Form::Symbol("L", Unsigned(r.n_layers)) * El) {}

Form SymbolOf(const Recipe& r, const LayerRecipe& layer, const LayerSize& size) {
  const std::vector<int32_t> values = ValuesOf(r, size);
  const auto at = std::ranges::find(values, size.of(layer));
  return Form::Symbol(NameOf(size, at == values.end() ? 0 : static_cast<size_t>(at - values.begin())), Unsigned(size.of(layer)));
}

std::vector<SizeSymbol> RecurrentSymbols(const Recipe& r) {
  std::vector<SizeSymbol> symbols;
  const auto add = [&](const SizeSymbol& s) {
    if (s.value > 0 && std::ranges::find(symbols, s.name, &SizeSymbol::name) == symbols.end()) symbols.push_back(s);
  };
  for (const BlockForms* block : kBlocks) {
    if (block->symbols == nullptr || !AnyLayer(r, block->in)) continue;
    for (const SizeSymbol& s : block->symbols(FirstLayer(r, block->in))) add(s);
  }
  add({"E_l", Unsigned(r.layer_embedding), "elements of a layer's embedding"});
  return symbols;
}

std::vector<SizeSymbol> LayerSizeSymbols(const Recipe& r) {
  std::vector<SizeSymbol> symbols;
  for (const BlockForms* block : kBlocks) {
    for (const LayerSize& s : block->sizes) {
      const std::vector<int32_t> values = ValuesOf(r, s);
      for (size_t i = 0; i < values.size(); ++i) symbols.push_back({NameOf(s, i), Unsigned(values[i])});
    }
  }
  return symbols;
}

}  // namespace tally::books
