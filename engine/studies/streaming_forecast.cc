// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/streaming_forecast.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/session/memory_plan.h"
#include "engine/studies/fit_parts.h"
#include "engine/weights/records.h"

namespace tally {
namespace {

using books::ParameterForm;
using books::Residency;
using books::Routing;
using books::StreamedLayer;
using books::StreamedModel;
using books::StreamRates;

constexpr uint64_t kGiB = uint64_t{1} << 30;

uint64_t StoredBytesOf(const CountedModel& model, const ParameterForm& p) {
  const auto& stored = model.count.options.stored_bytes;
  const auto found = stored.find(p.full_name());
  return found != stored.end() ? found->second : books::StoredBytesAs(p, model.count.options.type);
}

bool InRecord(const ParameterForm& p) { return p.expert && !p.vector && p.layer >= 0; }

// Weights, as packed where they can be. Vectors of layers always stay.
void AddWeights(const CountedModel& model, StreamedModel& streamed) {
  const Recipe& recipe = model.count.recipe;
  const Result<PackedViews> packed = PackedOf(model, {});
  if (packed.ok()) {
    for (const auto& [key, view] : packed->views) {
      const uint64_t bytes = SaturatingMul(static_cast<uint64_t>(view.slices), view.slice_stride);
      if (key.second < 0 || view.layout == WeightLayout::kVector) {
        streamed.outside += bytes;
      } else if (InRecords(key.first)) {
        streamed.layers[static_cast<size_t>(key.second)].record += view.slice_stride;
      } else {
        streamed.layers[static_cast<size_t>(key.second)].held += bytes;
      }
    }
  }
  for (const ParameterForm& p : model.count.tensors) {
    if (p.apart()) continue;
    const uint64_t bytes = StoredBytesOf(model, p), slice = bytes / p.slices;
    const bool outside = p.layer < 0 || p.layer >= recipe.n_layers;
    StreamedLayer* const l = outside ? nullptr : &streamed.layers[static_cast<size_t>(p.layer)];
    if (l != nullptr && InRecord(p)) {
      l->experts = static_cast<int64_t>(p.slices);
      l->top_k = recipe.layers[static_cast<size_t>(p.layer)].experts.top_k;
      if (l->top_k <= 0) l->top_k = recipe.all.experts.top_k;
      l->expert_read += static_cast<double>(slice);
      if (!packed.ok()) l->record += RoundUp(slice, kWeightPage);
      continue;
    }
    if (!packed.ok()) (l != nullptr && !p.vector ? l->held : streamed.outside) += bytes;
    const double k = recipe.all.experts.top_k, X = static_cast<double>(p.slices);
    const double read = p.expert ? books::UniformExperts(X, k, static_cast<double>(streamed.rows)) * static_cast<double>(slice)
                                 : static_cast<double>(books::BytesRead(p, bytes, streamed.rows, 1));
    (l != nullptr ? l->dense_read : streamed.outside_read) += read;
  }
}

// Keys and values that a decode step reads and writes, and states.
void AddCaches(const books::Count& count, StreamedModel& streamed) {
  const Recipe& recipe = count.recipe;
  const double B = static_cast<double>(streamed.rows);
  if (recipe.counted_only) {
    streamed.outside_read += static_cast<double>(count.kv_bytes_read.number().value_or(0));
  } else {
    for (size_t i = 0; i < recipe.layers.size(); ++i) {
      const LayerRecipe& l = recipe.layers[i];
      const auto position =
          static_cast<double>(books::CachedBytesPerPosition(recipe, l, books::StorageOf(count.options.kv)).value());
      const double written = l.attention.cache_of < 0 ? position : 0;
      const auto seen = static_cast<double>(books::SeenPositions(l, count.options.context));
      streamed.layers[i].dense_read += B * (seen * position + written);
    }
  }
  double states = 2 * B * static_cast<double>(count.state_bytes);
  const auto recurrent = static_cast<double>(std::ranges::count_if(recipe.layers, &LayerRecipe::recurrent));
  for (size_t i = 0; i < recipe.layers.size() && recurrent > 0; ++i) {
    if (recipe.layers[i].recurrent()) streamed.layers[i].dense_read += states / recurrent;  // layers are alike
  }
  if (recurrent == 0) streamed.outside_read += states;
}

// h of each layer with experts at n slots.
std::vector<double> MeasuredMisses(const StreamedModel& model, const Residency& at, const std::vector<KeptHits>& kept) {
  std::vector<double> misses(model.layers.size());
  for (size_t i = 0, sparse = 0; i < misses.size(); ++i) {
    const StreamedLayer& l = model.layers[i];
    if (!l.sparse()) continue;
    const double X = static_cast<double>(l.experts), r = static_cast<double>(at.slots_of[i]) / X;
    double below = 0, hits_below = 0, above = 1, hits_above = 1;
    for (const KeptHits& k : kept) {
      const double share = std::min(static_cast<double>(k.slots) / X, 1.0);
      if (share <= r && share >= below) below = share, hits_below = k.hit_rates[sparse];
      if (share >= r && share < above) above = share, hits_above = k.hit_rates[sparse];
    }
    const double part = above > below ? (r - below) / (above - below) : 0;
    misses[i] = 1 - (hits_below + part * (hits_above - hits_below));
    ++sparse;
  }
  return misses;
}

StreamingCurve CurveOf(const StreamingForecast& f, Routing routing, const std::vector<double>& misses) {
  StreamingCurve curve{.routing = routing};
  curve.decode = books::DecodeStreamed(f.model, f.at, misses, f.rates);
  curve.hit_rate = curve.decode.chosen > 0 ? 1 - curve.decode.misses / curve.decode.chosen : f.at.share;
  if (f.rates.disk <= 0) return curve;
  const double rows = static_cast<double>(f.model.rows);
  if (curve.decode.bound > 0) curve.bound_rate = rows / curve.decode.bound;
  if (curve.decode.expected > 0) curve.expected_rate = rows / curve.decode.expected;
  return curve;
}

RateRange RangeOf(const StreamingForecast& f, double StreamingCurve::*rate) {
  const StreamingCurve* const measured = f.Curve(Routing::kMeasured);
  if (measured != nullptr) return {measured->*rate, measured->*rate};
  const StreamingCurve *flat = f.Curve(Routing::kFlat), *local = f.Curve(Routing::kLocal);
  if (flat == nullptr || local == nullptr) flat = local = f.Curve(Routing::kUniform);
  if (flat == nullptr) return {};
  return {std::min(flat->*rate, local->*rate), std::max(flat->*rate, local->*rate)};
}

StreamingPrompt PromptOf(const StreamingForecast& f, uint64_t rows) {
  StreamingPrompt p{.rows = rows};
  p.balanced = books::BalancedChunk(f.model, f.at, f.rates);
  p.chunk = books::PromptChunk(rows);
  p.seconds = books::PromptSeconds(f.model, f.at, f.rates, rows, p.chunk, /*cold=*/false);
  p.cold_seconds = books::PromptSeconds(f.model, f.at, f.rates, rows, p.chunk, /*cold=*/true);
  const uint64_t whole = books::PromptChunk(UINT64_MAX);
  const double seconds = books::ChunkSeconds(f.model, f.at, f.rates, whole, /*cold=*/false);
  if (seconds > 0) p.rate = static_cast<double>(whole) / seconds;
  return p;
}

std::string Needs(uint64_t bytes) { return BytesText(bytes, Rounding::kUp); }

}  // namespace

StreamedModel StreamedModelOf(const CountedModel& model) {
  StreamedModel streamed;
  streamed.layers.resize(model.count.recipe->layers.size());
  streamed.rows = model.count.options.batch;
  AddWeights(model, streamed);
  AddCaches(model.count, streamed);
  return streamed;
}

const StreamingCurve* StreamingForecast::Curve(Routing routing) const {
  const auto found = std::ranges::find(curves, routing, &StreamingCurve::routing);
  return found == curves.end() ? nullptr : &*found;
}
RateRange StreamingForecast::expected() const { return RangeOf(*this, &StreamingCurve::expected_rate); }
RateRange StreamingForecast::bound() const { return RangeOf(*this, &StreamingCurve::bound_rate); }

Status CheckBudget(const StreamingForecast& f) {
  if (f.at.enough()) return {};
  std::string why;
  if (f.model.sparse()) {
    const auto sparse = std::ranges::find_if(f.model.layers, &StreamedLayer::sparse);
    const int64_t slots = std::min(sparse->top_k + 2, sparse->experts);
    why = Needs(f.model.held()) + " that are always resident and " + std::to_string(slots) + " slots of " +
          Needs(sparse->record) + " in each of " + std::to_string(std::ranges::count_if(f.model.layers, &StreamedLayer::sparse)) +
          " layers, for " + std::to_string(sparse->top_k) + " experts a token and two that are read";
  } else {
    why = Needs(f.model.outside) + " outside of layers and two of its layers, " + Needs(f.at.least - f.model.outside);
  }
  return BadInput("needs at least " + Needs(f.at.least) + " for weights: " + why + "; there are " +
                  BytesText(f.at.budget, Rounding::kDown));
}

StreamingForecast ForecastStreaming(const StreamedModel& model, uint64_t budget, const StreamRates& rates, uint64_t prompt,
                                    const std::vector<KeptHits>& kept) {
  StreamingForecast f{.model = model, .at = books::ResidencyOf(model, budget), .rates = rates};
  if (!f.at.enough()) return f;
  const auto add = [&](Routing routing) { f.curves.push_back(CurveOf(f, routing, MissRates(f.model, f.at, routing))); };
  add(Routing::kUniform);
  if (model.sparse()) {
    add(Routing::kFlat);
    add(Routing::kLocal);
    const auto layers = static_cast<size_t>(std::ranges::count_if(model.layers, &StreamedLayer::sparse));
    std::vector<KeptHits> fitting = kept;
    const int64_t rows = RowsOfHits(static_cast<double>(model.rows));
    std::erase_if(fitting, [&](const KeptHits& k) { return k.hit_rates.size() != layers || k.rows != rows; });
    if (!fitting.empty()) {
      f.curves.push_back(CurveOf(f, Routing::kMeasured, MeasuredMisses(f.model, f.at, fitting)));
      f.measured = *std::ranges::min_element(fitting, {}, [&](const KeptHits& k) { return std::abs(k.slots - f.at.slots); });
    }
  }
  f.prompt = PromptOf(f, prompt);
  return f;
}

std::vector<MoreMemory> ForecastMoreMemory(const StreamingForecast& f, const std::vector<KeptHits>& kept) {
  std::vector<MoreMemory> rows;
  const auto add = [&](uint64_t more) {
    rows.push_back({more, ForecastStreaming(f.model, SaturatingAdd(f.at.budget, more), f.rates, f.prompt.rows, kept)});
    return !rows.back().forecast.at.all_resident;
  };
  if (f.at.all_resident) return rows;
  for (uint64_t more = 4 * kGiB; f.at.budget + more < f.model.all(); more *= 2) add(more);
  add(f.model.all() - f.at.budget);
  return rows;
}

std::optional<StreamingForecast> ForecastFit(const CountedModel& model, const Fit& fit, const FitMachine& machine,
                                             const std::vector<KeptHits>& kept) {
  if (fit.fits.value_or(true)) return std::nullopt;
  CountedModel at_context = model;
  at_context.count.options.context = fit.context;
  at_context.count.options.batch = fit.decode.tokens;
  StreamRates rates{.memory = machine.read, .disk = machine.disk.read};
  if (fit.prefill.tokens > 0) rates.row = fit.prefill.computing / static_cast<double>(fit.prefill.tokens);
  uint64_t taken = SaturatingAdd(fit.memory.kv, fit.memory.scratch);
  if (!machine.target.empty()) taken = SaturatingAdd(taken, KeptFree(machine.available));
  const uint64_t budget = machine.available - std::min(machine.available, taken);
  return ForecastStreaming(StreamedModelOf(at_context), budget, rates, fit.prompt, kept);
}

}  // namespace tally
