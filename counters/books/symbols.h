// SPDX-License-Identifier: Apache-2.0
// Internal to books/: the symbols of the closed forms (closed_form.h), with a recipe's values. A block's own symbols are in its file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "counters/books/closed_form.h"
#include "counters/books/form.h"
#include "engine/recipe/recipe.h"

namespace tally::books {

// The model's own.
struct Symbols {
  Form V, E, T;
  Form Ev;       // width of embedding and head: E_v, or E
  Form El, LEl;  // a layer's embedding, and those of all layers

  explicit Symbols(const Recipe& r);
};

// A size of a block that layers may differ in.
struct LayerSize {
  const char* name;
  int32_t (*of)(const LayerRecipe& layer);
  bool (LayerRecipe::*has)() const;
};
// The symbol of a layer's value: H, H_2 and so on.
Form SymbolOf(const Recipe& r, const LayerRecipe& layer, const LayerSize& size);

// Symbols as forms, in their order.
template <size_t n>
std::array<Form, n> FormsOf(const std::vector<SizeSymbol>& symbols) {
  std::array<Form, n> forms;
  for (size_t i = 0; i < n; ++i) forms[i] = Form::Symbol(symbols[i].name, symbols[i].value);
  return forms;
}

uint64_t Unsigned(int32_t n);  // 0 of a negative number

}  // namespace tally::books
