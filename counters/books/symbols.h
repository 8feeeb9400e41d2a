// SPDX-License-Identifier: Apache-2.0
// Internal to books/: the symbols of the closed forms (closed_form.h), with a recipe's values.
#pragma once

#include "counters/books/form.h"
#include "engine/recipe/recipe.h"

namespace tally::books {

struct LayerSymbols {
  Form H, K, D, F;
};

struct Symbols {
  Form V, E, X, k, T, Fx, Fs, Rq, Rkv, Dn, Dr, Dv, J;
  Form Hk, Hv, Nk, Nv;  // gated delta rule
  Form Rg;              // rank of its gates
  Form Hm, Dm, G, N;    // Mamba-2
  Form Ex;              // what experts work on: E_x, or E
  Form Ev;              // width of embedding and head: E_v, or E
  Form El, LEl;         // a layer's embedding, and those of all layers

  explicit Symbols(const Recipe& r);
  LayerSymbols Of(const LayerRecipe& layer) const;
  // Channels of a recurrent mixer's convolution, and elements of its state; 0 for other mixers.
  Form Channels(Mixer mixer) const;
  Form StateOf(Mixer mixer) const;

 private:
  const Recipe& r_;
};

uint64_t Unsigned(int32_t n);  // 0 of a negative number

}  // namespace tally::books
