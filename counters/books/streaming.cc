// SPDX-License-Identifier: Apache-2.0
#include "counters/books/streaming.h"

#include <algorithm>
#include <cmath>

#include "counters/books/model_count.h"
#include "engine/base/checked.h"

namespace tally::books {
namespace {

constexpr uint64_t kMostChunk = 2048;
constexpr double kBuffers = 2;   // of streamed layers
constexpr int64_t kSpread = 64;  // experts of a layer from which on the spread of misses does not matter

double Real(uint64_t n) { return static_cast<double>(n); }
double Real(int64_t n) { return static_cast<double>(n); }
// x / rate; 0: the rate is unknown.
double Seconds(double x, double rate) { return rate > 0 ? x / rate : 0; }

double Chosen(const StreamedLayer& l, uint64_t rows) {
  if (!l.sparse()) return 0;
  return rows == 1 ? Real(l.top_k) : UniformExperts(Real(l.experts), Real(l.top_k), Real(rows));
}

// r of a layer with experts.
double ShareOf(const StreamedModel& model, const Residency& at, size_t layer) {
  return at.slots_of.empty() ? 0 : Real(at.slots_of[layer]) / Real(model.layers[layer].experts);
}

// Of `slots` slots of each layer, as far as it has as many experts.
uint64_t BytesOfSlots(const StreamedModel& model, int64_t slots) {
  uint64_t bytes = 0;
  for (const StreamedLayer& l : model.layers) {
    if (l.sparse()) bytes = SaturatingAdd(bytes, SaturatingMul(l.record, static_cast<uint64_t>(std::min(slots, l.experts))));
  }
  return bytes;
}

void KeepRecords(const StreamedModel& model, Residency& at) {
  int64_t most = 0, needed = 0;
  for (const StreamedLayer& l : model.layers) {
    most = std::max(most, l.experts);
    if (l.sparse()) needed = std::max(needed, std::min(l.top_k + 2, l.experts));
  }
  at.least = SaturatingAdd(model.held(), BytesOfSlots(model, needed));
  if (!at.enough()) return;
  int64_t fit = needed, too_many = most + 1;
  while (too_many - fit > 1) {
    const int64_t middle = fit + (too_many - fit) / 2;
    (BytesOfSlots(model, middle) <= at.budget - model.held() ? fit : too_many) = middle;
  }
  at.slots = fit;
  uint64_t records = BytesOfSlots(model, fit);
  for (const StreamedLayer& l : model.layers) {
    at.slots_of.push_back(std::min(fit, l.experts));
    if (!l.sparse() || at.slots_of.back() == l.experts || l.record > at.budget - model.held() - records) continue;
    ++at.slots_of.back();
    records += l.record;
  }
  at.resident = model.held() + records;
  at.share = Real(records) / Real(std::max<uint64_t>(model.records(), 1));
  at.all_resident = records == model.records();
}

// Which of the layers are streamed if `n` are: evenly among all, where what is outside of layers takes the time of some. While that is read
// from memory both buffers are filled, and no more: up to two of the layers are the first ones then.
std::vector<bool> Spread(const StreamedModel& model, size_t n) {
  const double layers = Real(model.layers.size());
  double read = 0;
  for (const StreamedLayer& l : model.layers) read += l.dense_read;
  const double outside = read > 0 ? model.outside_read / read * layers : 0;
  double due = std::min(kBuffers, Real(n) * outside / (outside + layers));
  const double each = (Real(n) - due) / layers;
  std::vector<bool> streamed;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    due += each;
    const bool next = due >= 1 - 1e-6;
    streamed.push_back(next);
    if (next) due -= 1;
  }
  return streamed;
}

void KeepLayers(const StreamedModel& model, Residency& at) {
  uint64_t largest = 0, layers = 0;
  for (const StreamedLayer& l : model.layers) {
    largest = std::max(largest, l.held);
    layers = SaturatingAdd(layers, l.held);
  }
  const uint64_t buffers = std::min(SaturatingMul(largest, 2), layers);
  at.least = SaturatingAdd(model.outside, buffers);
  if (!at.enough()) return;
  at.streamed_of.assign(model.layers.size(), false);
  at.all_resident = at.budget >= SaturatingAdd(model.outside, layers);
  if (!at.all_resident) {
    const uint64_t room = at.budget - at.least;
    const auto stay = [&] {
      uint64_t bytes = 0;
      for (size_t i = 0; i < model.layers.size(); ++i) bytes += at.streamed_of[i] ? 0 : model.layers[i].held;
      return bytes;
    };
    size_t n = 0;
    do {
      at.streamed_of = Spread(model, ++n);
    } while (stay() > room);
    for (size_t i = 0; i < model.layers.size(); ++i) {  // layers that are smaller than others may fit besides
      if (at.streamed_of[i] && model.layers[i].held <= room - stay()) at.streamed_of[i] = false;
    }
  }
  uint64_t kept = 0;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    (at.streamed_of[i] ? at.streamed : kept) += model.layers[i].held;
    at.resident_layers += at.streamed_of[i] ? 0 : 1;
  }
  at.resident = (at.all_resident ? model.outside : at.least) + kept;
  at.share = Real(kept) / Real(std::max<uint64_t>(layers, 1));
}

// The mean of max(resident, misses * one) for a binomial number of misses of `chosen` experts, each with `rate`, and `last` where there
// is a miss.
double MeanOfMaximum(double chosen, double rate, double resident, double one, double last) {
  const int64_t n = std::max<int64_t>(std::llround(chosen), 1);
  if (n > kSpread) return std::max(resident, chosen * rate * one) + last;
  const double miss = std::clamp(rate, 0.0, 1.0), each = chosen / Real(n) * one;
  double mean = 0, ways = 1;  // of choosing i out of n
  for (int64_t i = 0; i <= n; ++i) {
    const double part = ways * std::pow(miss, Real(i)) * std::pow(1 - miss, Real(n - i));
    mean += part * (std::max(resident, Real(i) * each) + (i > 0 ? last : 0));
    ways *= Real(n - i) / Real(i + 1);
  }
  return mean;
}

}  // namespace

bool StreamedModel::sparse() const { return std::ranges::any_of(layers, &StreamedLayer::sparse); }

uint64_t StreamedModel::held() const {
  uint64_t bytes = outside;
  for (const StreamedLayer& l : layers) bytes = SaturatingAdd(bytes, l.held);
  return bytes;
}

uint64_t StreamedModel::records() const {
  uint64_t bytes = 0;
  for (const StreamedLayer& l : layers) bytes = SaturatingAdd(bytes, SaturatingMul(l.record, static_cast<uint64_t>(l.experts)));
  return bytes;
}

Residency ResidencyOf(const StreamedModel& model, uint64_t budget) {
  Residency at{.budget = budget};
  model.sparse() ? KeepRecords(model, at) : KeepLayers(model, at);
  return at;
}

double MissRate(Routing routing, double r) {
  const double uniform = std::clamp(1 - r, 0.0, 1.0);
  if (r <= 0 || r >= 1) return uniform;
  if (routing == Routing::kUniform || routing == Routing::kMeasured) return uniform;
  const double flat = std::min(.307 * (1 - r) * std::pow(r, -.18), uniform);
  return routing == Routing::kFlat ? flat : std::min(.042 + .13 * std::pow(.1 / r, 1.6), flat);
}

std::vector<double> MissRates(const StreamedModel& model, const Residency& at, Routing routing) {
  std::vector<double> rates(model.layers.size());
  for (size_t i = 0; i < rates.size(); ++i) {
    const StreamedLayer& l = model.layers[i];
    rates[i] = l.sparse() ? MissRate(routing, ShareOf(model, at, i)) : 0;
  }
  return rates;
}

StreamedDecode DecodeStreamed(const StreamedModel& model, const Residency& at, std::span<const double> misses,
                              const StreamRates& rates) {
  StreamedDecode step;
  const double outside = Seconds(model.outside_read, rates.memory);
  step.memory_bytes = model.outside_read;
  step.bound = step.expected = outside;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StreamedLayer& l = model.layers[i];
    const double chosen = Chosen(l, model.rows), missed = l.sparse() ? chosen * misses[i] : 0;
    step.chosen += chosen;
    step.misses += missed;
    step.disk_bytes += missed * Real(l.record);
    step.memory_bytes += l.dense_read + chosen * l.expert_read;
    const double dense = Seconds(l.dense_read, rates.memory), experts = Seconds(chosen * l.expert_read, rates.memory),
                 one = Seconds(Real(l.record), rates.disk);
    step.bound += dense + std::max(experts, missed * one);
    step.expected += dense;
    if (l.sparse()) step.expected += MeanOfMaximum(chosen, misses[i], experts, one, Seconds(l.expert_read, rates.memory));
  }
  if (!model.sparse()) step.disk_bytes = Real(at.streamed);
  step.memory = Seconds(step.memory_bytes, rates.memory);
  step.disk = Seconds(step.disk_bytes, rates.disk);
  if (!model.sparse()) step.bound = step.expected = std::max(step.memory, step.disk);
  return step;
}

double BalancedChunk(const StreamedModel& model, const Residency& at, const StreamRates& rates) {
  if (rates.disk <= 0 || rates.row <= 0) return 0;
  double bytes = Real(at.streamed);
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StreamedLayer& l = model.layers[i];
    if (l.sparse()) bytes += (1 - ShareOf(model, at, i)) * Real(l.experts) * Real(l.record);
  }
  return bytes / (rates.disk * rates.row);
}

uint64_t PromptChunk(uint64_t prompt) { return std::min(prompt, kMostChunk); }

double ChunkSeconds(const StreamedModel& model, const Residency& at, const StreamRates& rates, uint64_t rows, bool cold) {
  if (rates.disk <= 0 || model.layers.empty()) return 0;
  const double products = Real(rows) * rates.row / Real(model.layers.size());
  double seconds = Seconds(model.outside_read, rates.memory), reading = 0;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    const StreamedLayer& l = model.layers[i];
    const double chosen = Chosen(l, rows);
    const double computing = std::max(products, Seconds(l.dense_read + chosen * l.expert_read, rates.memory));
    const double missed = l.sparse() ? chosen * (cold ? 1 : 1 - ShareOf(model, at, i)) : 0;
    reading += computing;
    seconds += std::max(computing, missed * Real(l.record) / rates.disk);
  }
  if (model.sparse()) return seconds;
  const uint64_t layers = model.held() - model.outside;
  return std::max(reading + Seconds(model.outside_read, rates.memory), Real(cold ? layers : at.streamed) / rates.disk);
}

double PromptSeconds(const StreamedModel& model, const Residency& at, const StreamRates& rates, uint64_t prompt, uint64_t chunk,
                     bool cold) {
  if (chunk == 0) return 0;
  double seconds = 0;
  for (uint64_t done = 0; done < prompt; done += chunk) {
    seconds += ChunkSeconds(model, at, rates, std::min(chunk, prompt - done), cold && done == 0);
    if (done > 0 && prompt - done > 4 * chunk) {  // whole chunks are alike
      const uint64_t alike = (prompt - done) / chunk - 1;
      seconds += Real(alike) * ChunkSeconds(model, at, rates, chunk, false);
      done += alike * chunk;
    }
  }
  return seconds;
}

}  // namespace tally::books
