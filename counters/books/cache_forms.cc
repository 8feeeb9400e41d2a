// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "counters/books/blocks.h"
#include "counters/books/closed_form.h"

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

// Of each block of a layer that has a cache.
std::vector<CachedVectors> CachedOf(const Recipe& r, const LayerRecipe& l, bool expanded) {
  std::vector<CachedVectors> all;
  for (const BlockForms* block : kBlocks) {
    if (block->cached != nullptr && block->in(l)) all.push_back(block->cached(r, l, expanded));
  }
  return all;
}

// A recurrence's state is stored as whole groups of 16 elements.
Form Stored(const Form& state) {
  constexpr uint64_t kGroup = 16;
  const uint64_t n = state.value(), rest = n % kGroup;
  return rest == 0 ? state : Form::Symbol("padded(" + state.text() + ")", n + kGroup - rest);
}

}  // namespace

Form CachedPerPosition(const Recipe& recipe, const LayerRecipe& l, bool expanded) {
  Form elements;
  for (const CachedVectors& c : CachedOf(recipe, l, expanded)) elements += c.vectors * c.elements;
  return elements;
}

KvStorage StorageOf(KvType type) {
  switch (type) {
    case KvType::kF32: return {.element_bytes = 4};
    case KvType::kF16:
    case KvType::kBF16: break;
    case KvType::kQ8_0: return {.element_bytes = 1, .block = 32, .scale_bytes = 2};
  }
  return {.element_bytes = 2};
}

Form CachedBytesPerPosition(const Recipe& recipe, const LayerRecipe& l, const KvStorage& storage, bool expanded) {
  Form bytes = CachedPerPosition(recipe, l, expanded) * Form(storage.element_bytes);
  if (storage.block == 0) return bytes;
  for (const CachedVectors& c : CachedOf(recipe, l, expanded)) {
    const uint64_t blocks = (c.elements.value() + storage.block - 1) / storage.block;
    bytes += c.vectors * Form::Symbol("blocks(" + c.elements.text() + ")", blocks) * Form(storage.scale_bytes);
  }
  return bytes;
}

Form StateElements(const Recipe& recipe) {
  Form all;
  for (const BlockForms* block : kBlocks) {
    const auto layers = static_cast<uint64_t>(std::ranges::count_if(recipe.layers, block->in));
    if (block->state == nullptr || layers == 0) continue;
    const BlockState of = block->state(recipe, FirstLayer(recipe, block->in));
    all += Form(layers) * (of.state + of.inputs);
  }
  return all;
}

std::vector<StateForm> StateForms(const Recipe& recipe, const Workload& work) {
  const Form floats = Form::Symbol("B", work.sequences) * Form(sizeof(float));
  std::vector<StateForm> forms;
  for (int32_t i = 0; i < static_cast<int32_t>(recipe.layers.size()); ++i) {
    const LayerRecipe& l = recipe.layers[static_cast<size_t>(i)];
    for (const BlockForms* block : kBlocks) {
      if (block->state == nullptr || !block->in(l)) continue;
      const BlockState of = block->state(recipe, l);
      forms.push_back({recipe.first_layer + i, of.conv, floats * of.inputs});
      if (of.state.value() > 0) forms.push_back({recipe.first_layer + i, Component::kRecurrence, floats * Stored(of.state)});
    }
  }
  return forms;
}

std::vector<CacheForm> CacheForms(const Recipe& recipe, const Workload& work, const KvStorage& storage) {
  std::vector<CacheForm> forms;
  const int32_t layers = static_cast<int32_t>(recipe.layers.size());
  for (int32_t i = 0; i < layers; ++i) {
    const LayerRecipe& l = recipe.layers[static_cast<size_t>(i)];
    if (!l.attends()) continue;
    CacheForm f;
    f.layer = recipe.first_layer + i;
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
