// SPDX-License-Identifier: Apache-2.0
#include "engine/session/split.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "engine/graph/plan.h"
#include "engine/machine/communicator.h"
#include "engine/machine/machine.h"
#include "engine/machine/roofs.h"

namespace tally {
namespace {

constexpr size_t kProbe = size_t{64} << 20;  // bytes of memory that are read to measure it
constexpr double kProbeSeconds = 0.04;
constexpr double kPackedByte = 44. / 32;  // bytes of an element that is gathered as int8 blocks

bool IsFeedForward(Component c) {
  return c == Component::kFfnGateUp || c == Component::kFfnDown || c == Component::kSharedGateUp || c == Component::kSharedDown ||
         c == Component::kLatentOut;
}

// Experts that the busiest process has of k that a token chooses at random, about: the mean k/R and 1.4 standard deviations.
double MostExperts(double k, double ranks) { return std::min(k, k / ranks + 1.4 * std::sqrt(k / ranks * (1 - 1 / ranks))); }

}  // namespace

SplitEstimate EstimateSplit(const Recipe& r, std::span<const WeightInfo> weights, int ranks, Split split) {
  const double n = ranks, others = (n - 1) / n, E = r.d_model;
  SplitEstimate e;
  double mixers = 0, dense = 0, shared = 0, experts = 0, head = 0;
  for (const WeightInfo& w : weights) {
    const double bytes = static_cast<double>(w.stored_bytes);
    if (w.kind == WeightInfo::Kind::kHead || w.kind == WeightInfo::Kind::kTiedEmbeddingHead) {
      head += bytes;
    } else if (w.layer < 0) {
      continue;
    } else if (w.experts) {
      experts += bytes / std::max<uint32_t>(w.slices, 1);  // of one expert
    } else if (!IsFeedForward(w.component)) {
      mixers += bytes;
    } else {
      (r.layers[static_cast<size_t>(w.layer)].sparse() ? shared : dense) += bytes;
    }
  }
  const double k = ExpertsOf(r).top_k;
  const bool owned = split == Split::kExperts;
  e.weight_bytes = owned ? mixers + shared + dense / n + experts * MostExperts(k, n) + head / n
                         : (mixers + shared + dense + experts * k + head) / n;
  e.gathers = 2;  // the embedding, logits
  double bytes = 4 * E + 4. * r.vocab;
  for (const LayerRecipe& l : r.layers) {
    const Experts& x = l.experts;
    if (!l.mixers.empty() && !owned) {
      e.gathers += 2;
      bytes += kPackedByte * l.attention.n_heads * l.attention.head_dim + 4 * E;
    }
    if (l.feed_forward.empty()) continue;
    if (l.sparse() && owned) {
      e.gathers += 1;
      bytes += 4 * k * (x.latent > 0 ? x.latent : E);
    } else {
      e.gathers += 2 + (l.sparse() && x.shared_width > 0 ? 1 : 0);
      bytes += kPackedByte * (l.sparse() ? k * x.width + x.shared_width : l.ffn.width) + 4 * E;
    }
  }
  e.received_bytes = bytes * others;
  return e;
}

books::GatheredBytes GatheredAs(DType weight, ActivationMode activations, bool bf16_dots) {
  const ActFormat format = ActFormatFor(weight, ActKindFor(weight, activations, bf16_dots));
  const int64_t block = PackedPiece(format);
  return {static_cast<uint64_t>(block), ActRowBytes(format, block)};
}

Result<ChosenSplit> ChooseSplit(Communicator& group, Team& team, const Recipe& recipe, std::span<const WeightInfo> weights,
                                Split wanted) {
  const bool sparse = AnyLayer(recipe, &LayerRecipe::sparse);
  if (wanted == Split::kExperts && !sparse) return BadInput("--split experts: the model has none");
  if (!sparse) return ChosenSplit{Split::kAll, "every matrix is divided"};
  if (wanted != Split::kAuto)
    return ChosenSplit{wanted, wanted == Split::kAll ? "every matrix is divided" : "experts are divided"};
  TALLY_ASSIGN_OR_RETURN(const LinkSpeed link, MeasureLink(group));
  // All at once: processes of one machine share its memory.
  double memory = 0;
  if (auto probe = AnonymousMemory::Allocate(kProbe, true); probe.ok()) {
    std::memset(probe->data(), 1, probe->size());
    TALLY_RETURN_IF_ERROR(group.AwaitAll());
    memory = ReadBandwidth(team, {probe->data(), probe->size()}, kProbeSeconds);
  } else {
    TALLY_RETURN_IF_ERROR(group.AwaitAll());
  }
  std::vector<double> all(static_cast<size_t>(group.ranks()));
  const std::vector<uint64_t> each(all.size(), sizeof(double));
  TALLY_RETURN_IF_ERROR(group.AllGather(each, reinterpret_cast<const uint8_t*>(&memory), reinterpret_cast<uint8_t*>(all.data())));
  const double slowest = std::max(*std::ranges::min_element(all), 1e9);
  std::array<double, 2> seconds{};
  for (const Split split : {Split::kAll, Split::kExperts}) {
    seconds[split == Split::kAll ? 0 : 1] =
        EstimateSplit(recipe, weights, group.ranks(), split).Seconds(slowest, link.latency_s, link.bytes_per_s);
  }
  const bool whole = seconds[0] <= seconds[1];
  std::array<char, 256> why{};
  std::snprintf(why.data(), why.size(),
                "%s: %.3g ms a token expected, %.3g where %s (%.3g us and %.3g GB/s between processes, memory %.3g GB/s)",
                whole ? "every matrix is divided" : "each expert is in one process", 1e3 * seconds[whole ? 0 : 1],
                1e3 * seconds[whole ? 1 : 0], whole ? "each expert is in one process" : "every matrix is divided",
                1e6 * link.latency_s, link.bytes_per_s / 1e9, slowest / 1e9);
  return ChosenSplit{whole ? Split::kAll : Split::kExperts, why.data()};
}

}  // namespace tally
