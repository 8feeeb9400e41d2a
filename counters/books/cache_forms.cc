// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "counters/books/closed_form.h"
#include "counters/books/symbols.h"

namespace tally::books {
namespace {

// Positions that the rows of a step see, added up.
uint64_t VisibleIn(const LayerRecipe& l, const Workload& w) {
  uint64_t sum = 0;
  for (uint64_t at = w.context - w.rows; at < w.context; ++at) {
    const uint64_t seen = l.chunk > 0 ? at % Unsigned(l.chunk) + 1 : at + 1;
    sum += l.window > 0 ? std::min(seen, Unsigned(l.window)) : seen;
  }
  return w.sequences * sum;
}

}  // namespace

Form CachedPerPosition(const Recipe& recipe, const LayerRecipe& l, bool expanded) {
  const Symbols s(recipe);
  const LayerSymbols at = s.Of(l);
  Form elements;
  if (l.mixers.has(Mixer::kAttention)) elements += 2 * at.K * at.D;
  if (l.mixers.has(Mixer::kLatentAttention)) elements += expanded ? at.H * (s.Dn + s.Dr + s.Dv) : s.Rkv + s.Dr;
  return elements;
}

Form CachedBytesPerPosition(const Recipe& recipe, const LayerRecipe& l, const KvStorage& storage) {
  Form bytes = CachedPerPosition(recipe, l) * Form(storage.element_bytes);
  if (storage.block == 0) return bytes;
  const Symbols s(recipe);
  const LayerSymbols at = s.Of(l);
  const auto blocks = [&](const Form& elements) {
    return Form::Symbol("blocks(" + elements.text() + ")", (elements.value() + storage.block - 1) / storage.block);
  };
  if (l.mixers.has(Mixer::kAttention)) bytes += 2 * at.K * blocks(at.D) * Form(storage.scale_bytes);
  if (l.mixers.has(Mixer::kLatentAttention)) bytes += blocks(s.Rkv + s.Dr) * Form(storage.scale_bytes);
  return bytes;
}

uint64_t CachedPositions(const LayerRecipe& l, uint64_t context) {
  const int32_t seen = std::max(l.window, l.chunk);
  return seen > 0 ? std::min(context, Unsigned(seen)) : context;
}

Form StateElements(const Recipe& recipe) {
  const Symbols s(recipe);
  uint64_t layers = 0;
  for (const LayerRecipe& l : recipe.layers) layers += l.mixers.has(Mixer::kShortConv) ? 1 : 0;
  return layers > 0 ? Form(layers) * ((s.J - 1) * s.E) : Form();
}

std::vector<CacheForm> CacheForms(const Recipe& recipe, const Workload& work, const KvStorage& storage) {
  std::vector<CacheForm> forms;
  for (int32_t i = 0; i < static_cast<int32_t>(recipe.layers.size()); ++i) {
    const LayerRecipe& l = recipe.layers[static_cast<size_t>(i)];
    if (l.mixers.has(Mixer::kShortConv)) {
      const Form row = Form::Symbol("E", Unsigned(recipe.d_model)) * Form(sizeof(float));
      CacheForm f;
      f.layer = i;
      f.reads = f.writes = Component::kShortConv;
      f.read = Form::Symbol("visible", VisibleIn({.window = recipe.conv_taps}, work)) * row;
      f.written = Form::Symbol("B", work.sequences) * Form::Symbol("P", work.rows) * row;
      forms.push_back(std::move(f));
    }
    if (!l.attends()) continue;
    CacheForm f;
    f.layer = i;
    f.reads = Component::kAttention;
    f.writes = Component::kKvStore;
    f.read = Form::Symbol("visible", VisibleIn(l, work)) * CachedBytesPerPosition(recipe, l, storage);
    if (l.cache_of < 0) {
      f.written = Form::Symbol("B", work.sequences) * Form::Symbol("P", work.rows) * CachedBytesPerPosition(recipe, l, storage);
    }
    forms.push_back(std::move(f));
  }
  return forms;
}

}  // namespace tally::books
