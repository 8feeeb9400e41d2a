// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/session/engine_plan.h"
#include "engine/session/split.h"
#include "engine/studies/fit.h"
#include "engine/studies/fit_parts.h"
#include "engine/studies/packed_size.h"

namespace tally {
namespace {

constexpr uint64_t kCommandBytes = 1024, kAnswerBytes = 8;  // the messages by which ranks keep in step (session/group.cc)

double Real(uint64_t n) { return static_cast<double>(n); }
double Real(int64_t n) { return static_cast<double>(n); }

// Rows of a decode step on each rank: the first has the embedding of all, owners have their parts of the experts.
std::vector<books::RankRows> DecodeRows(const Recipe& recipe, uint64_t sequences, int32_t ranks) {
  std::vector<books::RankRows> rows(static_cast<size_t>(ranks));
  rows[0].embedded = sequences;
  const uint64_t routed = sequences * static_cast<uint64_t>(std::max(recipe.all.experts.top_k, 0)),
                 n = static_cast<uint64_t>(ranks);
  for (uint64_t r = 0; r < n; ++r) rows[r].routed.assign(recipe.layers.size(), routed / n + (r < routed % n ? 1 : 0));
  return rows;
}

// Bytes that a decode step reads of weights on a rank.
double WeightBytes(const Recipe& recipe, const PackedViews& packed, const Shard& shard, double sequences) {
  double bytes = 0;
  for (const auto& [key, view] : packed.views) {
    const auto& [role, layer] = key;
    const RoleFacts& facts = FactsOf(role);
    const double all = Real(view.stored_row_bytes) * Real(view.rows) * Real(view.slices);
    const bool gathered = role == Role::kPositionEmbedding || (role == Role::kTokenEmbedding && !recipe.tied_head);
    if (gathered) {
      bytes += sequences * Real(view.stored_row_bytes);
    } else if (!facts.experts) {
      bytes += all;
    } else if (shard.own_experts) {
      const double chosen = sequences == 1
                                ? BusiestOwner(recipe.all.experts.n_experts, recipe.all.experts.top_k, shard.ranks)
                                : books::UniformExperts(recipe.all.experts.n_experts, recipe.all.experts.top_k, sequences) *
                                      Real(view.slices) / static_cast<double>(recipe.all.experts.n_experts);
      bytes += all / Real(view.slices) * chosen;
    } else {
      bytes += all / Real(view.slices) * books::UniformExperts(recipe.all.experts.n_experts, recipe.all.experts.top_k, sequences);
    }
  }
  return bytes;
}

// Bytes of the cache and of states that a decode step reads and writes on a rank.
double CacheBytes(const books::Count& count, const Shard& shard, const FitOptions& options) {
  const Recipe& recipe = count.recipe;
  const double B = Real(options.batch);
  double bytes = 0;
  for (int32_t i = 0; i < recipe.n_layers; ++i) {
    const LayerRecipe& l = recipe.layers[static_cast<size_t>(i)];
    if (!l.attends()) continue;
    const LayerPart part = PartOfLayer(recipe, shard, i);
    const bool latent = l.mixers.has(Mixer::kLatentAttention);
    const double held = latent ? (part.attention.heads.size() > 0 ? 1 : 0)
                               : Real(part.attention.groups.size()) / static_cast<double>(l.attention.n_kv_heads);
    const double position = Real(books::CachedBytesPerPosition(recipe, l, books::StorageOf(options.kv)).value());
    bytes += B * held * position * (Real(books::CachedPositions(l, options.context)) + (l.attention.cache_of < 0 ? 1 : 0));
  }
  return bytes + 2 * B * Real(count.state_bytes) / (shard.whole_mixers ? 1 : shard.ranks);
}

}  // namespace

double ParseBandwidth(std::string_view text) {
  std::string_view bits = text;
  if (bits.ends_with("/s")) bits.remove_suffix(2);
  if (bits.ends_with("bit")) return ParseAmount(bits, {"bit"}) / 8;
  return ParseAmount(text, {"/s", "B"});
}

double ParseLatency(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0)) return -1;
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  return unit == "us" ? value * 1e-6 : unit == "ms" ? value * 1e-3 : unit == "s" ? value : -1;
}

double BusiestOwner(int64_t experts, int64_t top_k, int32_t ranks) {
  // ways[j]: of choosing j experts with at most `most` of any rank so far.
  const auto ways_below = [&](int64_t most) {
    std::vector<double> ways(static_cast<size_t>(top_k) + 1);
    ways[0] = 1;
    for (int32_t r = 0; r < ranks; ++r) {
      const int64_t own = PartOf(experts, 1, {.rank = r, .ranks = ranks}).size();
      std::vector<double> next(ways.size());
      double choose = 1;
      for (int64_t m = 0; m <= std::min({most, own, top_k}); ++m) {
        for (int64_t j = m; j <= top_k; ++j) next[static_cast<size_t>(j)] += ways[static_cast<size_t>(j - m)] * choose;
        choose = choose * Real(own - m) / Real(m + 1);
      }
      ways = std::move(next);
    }
    return ways.back();
  };
  const double all = ways_below(top_k);
  double mean = 0;
  for (int64_t most = 0; most < top_k; ++most) mean += 1 - ways_below(most) / all;
  return mean;
}

CommunicationLoad LoadOf(const Recipe& recipe, const Shard& shard, const books::Workload& work,
                         std::span<const books::RankRows> rows, const books::GatheredBytesOf& gathered) {
  if (shard.alone()) return {};
  std::vector<std::vector<books::CommunicationForm>> forms;
  for (int32_t r = 0; r < shard.ranks; ++r) forms.push_back(books::CommunicationForms(recipe, shard.Of(r), work, rows, gathered));
  CommunicationLoad load{2, (kCommandBytes + kAnswerBytes) * static_cast<uint64_t>(shard.ranks - 1)};
  for (size_t g = 0; g < forms[0].size(); ++g) {
    uint64_t most = 0;
    for (const auto& of_rank : forms) most = std::max({most, of_rank[g].sent.value(), of_rank[g].received.value()});
    if (most > 0) load.waits += 1, load.bytes += most;
  }
  return load;
}

Result<RanksFit> FitRanks(const CountedModel& model, const FitOptions& given, const FitMachine& machine,
                          const FitNetwork& network, int32_t ranks, FitSplit split) {
  const Recipe& recipe = model.count.recipe;
  if (ranks < 1 || ranks > 1024) return BadInput("--ranks must be from 1 to 1024, not " + std::to_string(ranks));
  const bool owned = split == FitSplit::kExperts;
  if (owned && recipe.all.experts.n_experts == 0) return BadInput(model.name + " has no experts to be divided by owner");
  TALLY_ASSIGN_OR_RETURN(const FitOptions options, FitDefaults(recipe, given));
  TALLY_ASSIGN_OR_RETURN(const Fit alone, BoundModel(model, options, machine));
  TALLY_ASSIGN_OR_RETURN(const books::Count count, CountSteps(model, options));
  RanksFit fit{.split = split};
  const std::vector<books::RankRows> rows = DecodeRows(recipe, options.batch, ranks);
  const books::Workload work{.sequences = options.batch, .rows = 1, .context = options.context, .logit_rows = 1};
  EngineOptions load;
  load.context = static_cast<int64_t>(options.context);
  load.sequences = static_cast<int32_t>(options.batch);
  load.kv = options.kv;
  StepperOptions stepper = MakeStepperOptions(recipe, load);
  stepper.plan.bf16_dots = machine.bf16_dots;
  const RopePair rope;
  PackedViews first;
  books::GatheredBytesOf gathered;
  double bytes = 0;
  for (int32_t r = 0; r < ranks; ++r) {
    const Shard shard{.rank = r, .ranks = ranks, .whole_mixers = owned, .own_experts = owned};
    TALLY_ASSIGN_OR_RETURN(const PackedViews packed, PackedOf(model, shard));
    if (r == 0) {  // which has a part of every matrix
      first = packed;
      gathered = [&](Role role, int32_t layer) {
        return GatheredAs(first.View(recipe, role, layer).dtype, ActivationMode::kAuto, machine.bf16_dots);
      };
    }
    FitRank rank;
    if (r < 2) {  // scratch: those after rank 0, which has the logits, are alike
      const auto view = [&](Role role, int32_t layer) { return packed.View(recipe, role, layer); };
      const PlanSource text{recipe, view, rope.global, rope.local, shard};
      rank.memory = PlanEngine({&text, 1}, stepper, std::max(machine.threads, 1));
    } else {
      rank.memory = fit.ranks[1].memory;
      rank.memory.kv = SequenceStore::PlanBytes(KvLayers(recipe, options.kv, shard), stepper.kv_size());
    }
    rank.memory.packed_weights = packed.bytes;
    rank.memory.available = machine.available;
    rank.bytes = WeightBytes(recipe, packed, shard, Real(options.batch)) + CacheBytes(count, shard, options);
    rank.communication = books::SumOf(books::CommunicationForms(recipe, shard, work, rows, gathered));
    bytes = std::max(bytes, rank.bytes);
    fit.ranks.push_back(rank);
    if (rank.memory.total() > fit.ranks[fit.largest].memory.total()) fit.largest = fit.ranks.size() - 1;
  }
  fit.gathers = fit.ranks[0].communication.gathers;
  if (machine.available > 0) fit.fits = fit.ranks[fit.largest].memory.total() <= machine.available;
  fit.load = LoadOf(recipe, {.rank = 0, .ranks = ranks, .whole_mixers = owned, .own_experts = owned}, work, rows, gathered);
  fit.communicating = fit.load.Seconds(network);
  if (!alone.decode.missing.empty() && machine.read == 0) return fit;
  // Products are divided as their weights are.
  const double computing = alone.decode.computing * bytes / alone.decode.bytes;
  fit.working = std::max(bytes / machine.read, computing);
  fit.tokens_per_second = Real(options.batch) / (fit.working + fit.communicating);
  return fit;
}

Result<RanksFit> FitRanks(const CountedModel& model, const FitOptions& options, const FitMachine& machine,
                          const FitNetwork& network, int32_t ranks) {
  TALLY_ASSIGN_OR_RETURN(RanksFit rows, FitRanks(model, options, machine, network, ranks, FitSplit::kRows));
  if (model.count.recipe->all.experts.n_experts == 0 || ranks == 1) return rows;
  TALLY_ASSIGN_OR_RETURN(RanksFit experts, FitRanks(model, options, machine, network, ranks, FitSplit::kExperts));
  if (experts.fits != rows.fits) return experts.fits ? experts : rows;
  return rows.fits && experts.tokens_per_second > rows.tokens_per_second ? experts : rows;
}

}  // namespace tally
