// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/fit_models.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <utility>

#include "engine/recipe/recipe.h"

namespace tally {
namespace {

// The point nearest to what is asked for, of the same threads, KV type and batch.
std::optional<KeptPoint> Nearest(const KeptBench& bench, const FitPage& page, SpeedWork work, uint64_t wanted) {
  std::optional<KeptPoint> best;
  const auto distance = [&](const KeptPoint& p) {
    const int64_t at = work == SpeedWork::kPrefill ? p.tokens : p.depth + p.tokens / 2;
    return std::abs(at - static_cast<int64_t>(wanted));
  };
  for (const KeptPoint& p : bench.points) {
    if (p.work != work || p.threads != page.machine.threads) continue;
    if (p.kv != kKvTypeNames[static_cast<size_t>(page.options.kv)]) continue;
    if (work == SpeedWork::kPrefill ? p.depth != 0 : p.batch != static_cast<int64_t>(page.options.batch)) continue;
    if (!best || distance(p) < distance(*best)) best = p;
  }
  return best;
}

void AddMeasured(const CountedModel& given, const FitPage& page, const Fit& fit, FittedModel& m) {
  if (!m.bench) return;
  const auto bound = [&](FitOptions options, StepBound Fit::*step) {
    const Result<Fit> bounds = BoundModel(given, options, page.machine);
    return bounds.ok() ? ((*bounds).*step).tokens_per_second : 0;
  };
  FitOptions options = page.options;
  if (const auto p = Nearest(*m.bench, page, SpeedWork::kDecode, fit.context)) {
    options.context = static_cast<uint64_t>(p->depth + (p->tokens + 1) / 2);  // the mean of the steps
    options.prompt = 1;
    m.decode = MeasuredStep{*p, bound(options, &Fit::decode)};
  }
  if (const auto p = Nearest(*m.bench, page, SpeedWork::kPrefill, fit.prompt)) {
    options.context = options.prompt = static_cast<uint64_t>(p->tokens);
    options.batch = 1;
    m.prefill = MeasuredStep{*p, bound(options, &Fit::prefill)};
  }
}

FitRow RowOf(const CountedModel& counted, bool given, const FitPage& page, const std::vector<KeptHits>& hits) {
  FitRow row{counted.stored_as, given, {}};
  Result<Fit> fit = FitModel(counted, page.options, page.machine);
  if (fit.ok()) {
    row.fit = std::move(fit).value();
    if (page.streaming) row.streaming = ForecastFit(counted, *row.fit, page.machine, hits);
  } else {
    row.why = fit.status().message();
  }
  return row;
}

}  // namespace

FittedModel FitTypes(const CountedModel& counted, const std::string& path, bool given, const FitPage& page) {
  FittedModel m;
  m.name = counted.name;
  m.parameters = counted.count.parameters.total;
  m.experts = counted.count.recipe->all.experts.n_experts > 0;
  m.file = !counted.stored_types.empty();
  const std::vector<KeptHits> hits = m.experts ? FindHitRates(RoutingId(counted.count.recipe)) : std::vector<KeptHits>();
  m.rows.push_back(RowOf(counted, given, page, hits));
  const auto add_more_memory = [&] {
    if (const auto& streaming = m.rows[m.chosen].streaming; streaming) m.more_memory = ForecastMoreMemory(*streaming, hits);
  };
  add_more_memory();
  if (!m.rows[0].fit || !given) return m;
  if (!page.machine.target.empty() && !path.empty()) {
    m.bench = FindBench(path);
    if (m.bench && m.bench->target != page.machine.target) m.bench.reset();
    AddMeasured(counted, page, *m.rows[0].fit, m);
  }
  for (const std::string_view preset : FitPresets(counted)) {
    const Result<CountedModel> as = CountedAs(counted, preset);
    if (!as.ok()) continue;
    FitRow row = RowOf(*as, false, page, hits);
    if (row.fit) m.rows.push_back(std::move(row));
  }
  const uint64_t most = m.rows[0].fit->memory.packed_weights;
  const auto weights = [](const FitRow& row) { return row.fit->memory.packed_weights; };
  std::ranges::stable_sort(m.rows, std::greater<>(), weights);
  m.chosen = m.rows.size() - 1;
  for (size_t i = m.rows.size(); i-- > 0;) {
    const FitRow& row = m.rows[i];
    if (weights(row) <= most && row.fit->fits.value_or(row.given)) m.chosen = i;
  }
  m.more_memory.clear();
  add_more_memory();
  return m;
}

}  // namespace tally
