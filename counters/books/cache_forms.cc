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
    sum += SeenPositions(l, at + 1);
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
  const int32_t seen = std::max(l.attention.window, l.attention.chunk);
  return seen > 0 ? std::min(context, Unsigned(seen)) : context;
}

uint64_t SeenPositions(const LayerRecipe& l, uint64_t context) {
  const uint64_t seen = l.attention.chunk > 0 && context > 0 ? (context - 1) % Unsigned(l.attention.chunk) + 1 : context;
  return l.attention.window > 0 ? std::min(seen, Unsigned(l.attention.window)) : seen;
}

namespace {

// A recurrence's state is stored as whole groups of 16 elements.
Form Stored(const Form& state) {
  constexpr uint64_t kGroup = 16;
  const uint64_t n = state.value(), rest = n % kGroup;
  return rest == 0 ? state : Form::Symbol("padded(" + state.text() + ")", n + kGroup - rest);
}

constexpr Mixer kRecurrent[] = {Mixer::kShortConv, Mixer::kDeltaRule, Mixer::kMamba2};

}  // namespace

Form StateElements(const Recipe& recipe) {
  const Symbols s(recipe);
  Form all;
  for (const Mixer mixer : kRecurrent) {
    uint64_t layers = 0;
    for (const LayerRecipe& l : recipe.layers) layers += l.mixers.has(mixer) ? 1 : 0;
    if (layers > 0) all += Form(layers) * (s.StateOf(mixer) + (s.J - 1) * s.Channels(mixer));
  }
  return all;
}

std::vector<StateForm> StateForms(const Recipe& recipe, const Workload& work) {
  const Symbols s(recipe);
  const Form floats = Form::Symbol("B", work.sequences) * Form(sizeof(float));
  std::vector<StateForm> forms;
  if (work.predicting) return forms;
  for (int32_t i = 0; i < static_cast<int32_t>(recipe.layers.size()); ++i) {
    for (const Mixer mixer : kRecurrent) {
      if (!recipe.layers[static_cast<size_t>(i)].mixers.has(mixer)) continue;
      const Component conv = mixer == Mixer::kShortConv ? Component::kShortConv : Component::kRecurrentConv;
      forms.push_back({i, conv, floats * ((s.J - 1) * s.Channels(mixer))});
      if (mixer != Mixer::kShortConv) forms.push_back({i, Component::kRecurrence, floats * Stored(s.StateOf(mixer))});
    }
  }
  return forms;
}

std::vector<CacheForm> CacheForms(const Recipe& recipe, const Workload& work, const KvStorage& storage) {
  std::vector<CacheForm> forms;
  const int32_t layers = static_cast<int32_t>(recipe.layers.size());
  for (int32_t i = work.predicting ? layers - 1 : 0; i < layers; ++i) {
    const LayerRecipe& l = recipe.layers[static_cast<size_t>(i)];
    if (!l.attends()) continue;
    CacheForm f;
    f.layer = i;
    f.reads = Component::kAttention;
    f.writes = Component::kKvStore;
    f.read = Form::Symbol("visible", VisibleIn(l, work)) * CachedBytesPerPosition(recipe, l, storage);
    if (l.attention.cache_of < 0) {
      f.written = Form::Symbol("B", work.sequences) * Form::Symbol("P", work.rows) * CachedBytesPerPosition(recipe, l, storage);
    }
    forms.push_back(std::move(f));
  }
  return forms;
}

}  // namespace tally::books
