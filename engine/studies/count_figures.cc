// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/count_figures.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/kinds.h"
#include "engine/recipe/recipe.h"

namespace tally {
namespace {

using books::Count;

// Bytes of states that a step reads and writes.
double StateTraffic(const Count& c) { return 2 * static_cast<double>(c.options.batch) * static_cast<double>(c.state_bytes); }

books::Figure<double> PerToken(const books::Figure<uint64_t>& all, double tokens) {
  return all.Map([&](uint64_t n) { return static_cast<double>(n) / tokens; });
}

std::string MixerText(const LayerRecipe& l) {
  static constexpr std::pair<Mixer, std::string_view> kNames[] = {{Mixer::kAttention, "attention"},
                                                                  {Mixer::kLatentAttention, "latent attention"},
                                                                  {Mixer::kShortConv, "short convolution"},
                                                                  {Mixer::kDeltaRule, "delta rule"},
                                                                  {Mixer::kMamba2, "Mamba-2"}};
  std::string text;
  for (const auto& [mixer, name] : kNames) {
    if (l.mixers.has(mixer)) text.append(text.empty() ? "" : " and ").append(name);
  }
  if (!l.attends()) return text;
  if (l.attention.window > 0) text += ", window " + std::to_string(l.attention.window);
  if (l.attention.chunk > 0) text += ", chunk " + std::to_string(l.attention.chunk);
  if (l.attention.cache_of >= 0) text += ", cache of layer " + std::to_string(l.attention.cache_of);
  return text;
}

std::string NetworkText(const LayerRecipe& l) {
  std::string text = l.dense() ? "dense" : "";
  if (l.sparse()) {
    text += (text.empty() ? "" : " and ") + std::to_string(l.experts.top_k) + " of " + std::to_string(l.experts.n_experts) +
            " experts";
  }
  return text;
}

// The layers that keep a cache of a model that is only counted: those whose work sees its entries, else those with an indexer, else
// all, whichever are as many as the cache says. Empty: none of these.
std::vector<size_t> LayersOf(const Count& c, const CountedCache& cache) {
  const Recipe& r = c.recipe;
  const CountedOnly& only = *r.counted_only;
  const size_t n = r.layers.size();
  std::vector<bool> all(n, true), seen(n), indexed(n);
  const auto mark = [&](std::vector<bool>& layers, int32_t layer) {
    if (layer >= 0 && static_cast<size_t>(layer) < n) layers[static_cast<size_t>(layer)] = true;
  };
  const Component wanted = cache.name.starts_with("index keys") ? Component::kIndexer : Component::kAttention;
  for (const CountedWork& w : only.work) {
    if (w.by_entry && w.component == wanted && w.every == cache.every) mark(seen, w.layer);
  }
  for (const CountedTensor& t : only.tensors) {
    if (t.component == Component::kIndexer) mark(indexed, t.layer);
  }
  for (const std::vector<bool>* layers : {&seen, &indexed, &all}) {
    if (static_cast<uint64_t>(std::ranges::count(*layers, true)) != cache.layers) continue;
    std::vector<size_t> kept;
    for (size_t i = 0; i < n; ++i) {
      if ((*layers)[i]) kept.push_back(i);
    }
    return kept;
  }
  return {};
}

// Bytes of a position that add up to the model's: where they do not divide, some layers have one more than others.
void AddCaches(const Count& c, std::vector<LayerCost>& costs) {
  if (!c.recipe->counted_only) return;
  const books::KvStorage storage = books::StorageOf(c.options.kv);
  for (const CountedCache& cache : c.recipe->counted_only->caches) {
    const uint64_t elements = cache.layers * cache.elements;
    const uint64_t bytes = storage.block > 0 ? books::CachedBytes(cache, elements, storage) / cache.every
                                             : elements / cache.every * storage.element_bytes;
    const std::vector<size_t> layers = LayersOf(c, cache);
    for (size_t i = 0; i < layers.size(); ++i) {
      costs[layers[i] + 1].kv_bytes += bytes * (i + 1) / layers.size() - bytes * i / layers.size();
    }
    if (layers.empty()) costs.front().kv_bytes += bytes;
  }
}

}  // namespace

std::vector<uint64_t> CountParts(const books::Count& count, books::Form books::ParameterForm::*which) {
  std::vector<uint64_t> parts(books::kParts);
  for (const books::ParameterForm& p : count.tensors) {
    if (!p.apart()) parts[static_cast<size_t>(books::PartOf(p.component, p.expert))] += (p.*which).value();
  }
  return parts;
}

std::vector<TensorGroup> TensorGroups(const books::Count& c, bool layers) {
  std::vector<TensorGroup> groups;
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const books::ParameterForm& p : c.tensors) {
    std::string name = layers || p.layer < 0 ? p.full_name() : "blk.*." + p.name;
    if (p.apart()) name = "mtp: " + name;
    const auto [at, fresh] = known.emplace(std::pair{name, p.count.text()}, groups.size());
    if (fresh) groups.push_back({std::move(name), &p, 0});
    ++groups[at->second].n;
  }
  return groups;
}

LookedUpTables LookedUp(const books::Count& count) {
  LookedUpTables tables;
  for (const books::ParameterForm& p : count.tensors) {
    if (p.kind != WeightInfo::Kind::kTable) continue;
    tables.stored += p.count.value();
    tables.read += p.touched.value();
    tables.ngrams = p.component == Component::kNgramTable;
  }
  return tables;
}

std::string KvNameOf(const Count& count) { return std::string(kKvTypeNames[static_cast<size_t>(count.options.kv)]); }

std::vector<LayerCost> LayerCosts(const Count& c) {
  const Recipe& r = c.recipe;
  std::vector<LayerCost> costs(r.layers.size() + 1);
  for (size_t i = 0; i < r.layers.size(); ++i) {
    const LayerRecipe& l = r.layers[i];
    LayerCost& cost = costs[i + 1];
    cost.layer = static_cast<int32_t>(i);
    cost.mixer = MixerText(l);
    cost.network = NetworkText(l);
    if (l.attention.cache_of < 0) {
      cost.kv_bytes = books::CachedBytesPerPosition(r, l, books::StorageOf(c.options.kv)).value();
    }
  }
  AddCaches(c, costs);
  const auto at = [&](int32_t layer) -> LayerCost& {
    return costs[layer < 0 || layer >= r.n_layers ? 0 : static_cast<size_t>(layer) + 1];
  };
  for (const books::ParameterForm& p : c.tensors) {
    if (p.apart()) continue;
    at(p.layer).parameters += p.count.value();
    at(p.layer).active += p.active.value();
  }
  using Cell = books::Figure<uint64_t> LayerCost::*;
  const auto add = [&](const books::FlopsCount& step, books::FlopsView view, Cell cell) {
    std::vector<uint64_t> sums(costs.size());
    for (const books::WorkForm& f : step.sites) {
      if (!f.matmul && view == books::FlopsView::kCausal) continue;
      sums[static_cast<size_t>(&at(f.layer) - costs.data())] += f.flops.value();
    }
    for (size_t i = 0; i < costs.size(); ++i) costs[i].*cell = {sums[i], step.total[static_cast<size_t>(view)].lacks()};
  };
  add(c.prefill, books::FlopsView::kCausal, &LayerCost::prefill_matmul);
  add(c.prefill, books::FlopsView::kEverything, &LayerCost::prefill);
  add(c.decode, books::FlopsView::kCausal, &LayerCost::decode_matmul);
  add(c.decode, books::FlopsView::kEverything, &LayerCost::decode);
  return costs;
}

TokenCost PrefillCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch) * static_cast<double>(c.options.prompt);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = PerToken(c.prefill.total[v], tokens);
  cost.bytes = (c.prefill_traffic.uniform + StateTraffic(c)) / tokens + static_cast<double>(c.kv_bytes_per_token);
  return cost;
}
TokenCost DecodeCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = PerToken(c.decode.total[v], tokens);
  cost.bytes = c.kv_bytes_read.Map([&](uint64_t read) {
    return (c.decode_traffic.uniform + StateTraffic(c) + static_cast<double>(read)) / tokens +
           static_cast<double>(c.kv_bytes_per_token);
  });
  return cost;
}

}  // namespace tally
