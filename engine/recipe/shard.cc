// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/shard.h"

#include <algorithm>
#include <initializer_list>

namespace tally {
namespace {

Span Times(const Span& s, int64_t n) { return {s.begin * n, s.end * n}; }
Span Plus(const Span& s, int64_t n) { return {s.begin + n, s.end + n}; }

// Appends rows unless there are none. Adjacent runs become one.
void Append(Held& held, const Span& rows, bool copy) {
  if (rows.size() <= 0) return;
  if (!held.rows.empty() && held.rows.back().rows.end == rows.begin && held.rows.back().copy == copy) {
    held.rows.back().rows.end = rows.end;
  } else {
    held.rows.push_back({rows, copy});
  }
}

}  // namespace

int64_t Held::size() const {
  int64_t n = 0;
  for (const HeldRows& r : rows) n += r.rows.size();
  return n;
}

int64_t Held::copied() const {
  int64_t n = 0;
  for (const HeldRows& r : rows) n += r.copy ? r.rows.size() : 0;
  return n;
}

Span PartOf(int64_t n, int64_t piece, const Shard& s) {
  const int64_t pieces = (n + piece - 1) / piece, each = pieces / s.ranks, more = pieces % s.ranks;
  const int64_t begin = s.rank * each + std::min<int64_t>(s.rank, more), end = begin + each + (s.rank < more ? 1 : 0);
  return {std::min(n, begin * piece), std::min(n, end * piece)};
}

HeadPart PartOfHeads(int64_t heads, int64_t groups, const Shard& shard) {
  if (groups == 0) return {};
  const int64_t each = heads / groups;
  if (groups >= shard.ranks) {
    const Span own = PartOf(groups, 1, shard);
    return {Times(own, each), own};
  }
  for (int64_t g = 0; g < groups; ++g) {
    const Span ranks = PartOf(shard.ranks, 1, {.rank = static_cast<int32_t>(g), .ranks = static_cast<int32_t>(groups)});
    if (shard.rank < ranks.begin || shard.rank >= ranks.end) continue;
    const int32_t at = shard.rank - static_cast<int32_t>(ranks.begin);
    const Span own = PartOf(each, 1, {.rank = at, .ranks = static_cast<int32_t>(ranks.size())});
    if (own.size() == 0) return {};
    return {Plus(own, g * each), {g, g + 1}, at > 0};
  }
  return {};
}

LayerPart PartOfLayer(const Recipe& r, const Shard& shard, int32_t layer) {
  const Shard alone, &mixing = shard.whole_mixers ? alone : shard;
  const LayerRecipe& l = r.layer(layer);
  const Attention& s = l.attention;
  LayerPart part;
  part.attention = l.mixers.has(Mixer::kLatentAttention) ? PartOfHeads(s.n_heads, s.n_heads, mixing)
                                                         : PartOfHeads(s.n_heads, s.n_kv_heads, mixing);
  if (l.mixers.has(Mixer::kDeltaRule)) {
    const DeltaRule& d = l.delta;
    const int64_t each = d.value_heads / d.key_heads;
    part.key_heads = PartOf(d.key_heads, 1, mixing);
    if (!d.tiled || part.key_heads.size() == d.key_heads) {
      part.values = {Times(part.key_heads, each)};
    } else {
      for (int64_t t = 0; t < each; ++t) part.values.push_back(Plus(part.key_heads, t * d.key_heads));
    }
  }
  if (l.mixers.has(Mixer::kMamba2)) {
    const Mamba2& m = l.mamba;
    part.mamba = PartOfHeads(m.heads, m.groups, mixing);
    for (int32_t rank = 0; rank < mixing.ranks; ++rank) {  // some process has a part of a vector
      const Span own = Times(PartOfHeads(m.heads, m.groups, mixing.Of(rank)).heads, m.head_dim);
      const int64_t vector = int64_t{m.heads} * m.head_dim / std::max(m.norm_groups, 1);
      part.whole_norm |= m.norm && (own.begin % vector != 0 || own.end % vector != 0);
    }
  }
  part.channels = PartOf(r.d_model, kShardRows, mixing);
  part.mixed = PartOf(r.d_model, kShardRows, mixing);
  part.hidden = PartOf(l.ffn.width, kShardRows, shard);
  const bool owned = l.sparse() && shard.own_experts;
  const Shard& feeding = owned ? alone : shard;
  part.shared = PartOf(l.experts.shared_width, kShardRows, feeding);
  part.experts = PartOf(l.experts.n_experts, 1, owned ? shard : alone);
  part.expert_hidden = PartOf(l.experts.width, kShardRows, feeding);
  part.latent = PartOf(l.experts.latent, kShardRows, feeding);
  part.fed = PartOf(r.d_model, kShardRows, feeding);
  return part;
}

Held HeldOf(const Recipe& r, const Shard& shard, Role role, int32_t layer) {
  const RoleFacts& facts = FactsOf(role);
  const std::vector<uint64_t> shape = RoleShape(r, role, layer);
  const int64_t rows = static_cast<int64_t>(facts.vector ? shape.back() : shape[shape.size() - 2]);
  const bool sliced = facts.experts || facts.heads || facts.taps;
  const bool copy = shard.rank > 0;
  Held held;
  held.slices = {0, sliced ? static_cast<int64_t>(shape[0]) : 1};
  const auto append = [&](std::initializer_list<Span> spans) {
    for (const Span& s : spans) Append(held, s, false);
  };
  if (facts.division == Division::kVocab) {
    append({PartOf(rows, kShardRows, shard)});
    return held;
  }
  if (layer < 0) {
    Append(held, {0, rows}, copy);
    return held;
  }
  const LayerPart part = PartOfLayer(r, shard, layer);
  const LayerRecipe& l = r.layer(layer);
  const Attention& s = l.attention;
  const int64_t D = s.head_dim;
  // A whole mixer's parts are those of one process, which all ranks have.
  const bool mixer_copy = copy && shard.whole_mixers, fed_copy = copy && l.sparse() && shard.own_experts;
  const auto own = [&](const Span& span, bool copied) { Append(held, span, copied); };
  const auto heads = [&](const HeadPart& p) { own(Times(p.heads, rows / s.n_heads), mixer_copy); };
  const auto kv_heads = [&](const HeadPart& p) { own(Times(p.groups, rows / s.n_kv_heads), mixer_copy || p.copy); };
  switch (facts.division) {
    case Division::kVocab:
    case Division::kWhole: own({0, rows}, copy); break;
    case Division::kHeads: heads(part.attention); break;
    case Division::kKvHeads: kv_heads(part.attention); break;
    case Division::kQkv: {
      const int64_t q = s.n_heads * D, kv = s.n_kv_heads * D;
      const bool kv_copy = mixer_copy || part.attention.copy;
      own(Times(part.attention.heads, D), mixer_copy);
      own(Plus(Times(part.attention.groups, D), q), kv_copy);
      own(Plus(Times(part.attention.groups, D), q + kv), kv_copy);
      break;
    }
    case Division::kHeadSlices:
      held.slices = part.attention.heads;
      own({0, rows}, mixer_copy);
      break;
    case Division::kQNorm: l.attention.qk_norm == QkNormKind::kEachHead ? heads(part.attention) : own({0, rows}, copy); break;
    case Division::kKNorm: l.attention.qk_norm == QkNormKind::kEachHead ? kv_heads(part.attention) : own({0, rows}, copy); break;
    case Division::kChannels:
      for (int64_t at = 0; at < rows; at += r.d_model) own(Plus(part.channels, at), mixer_copy);
      break;
    case Division::kKeyHeads: own(Times(part.key_heads, rows / l.delta.key_heads), mixer_copy); break;
    case Division::kStateHeads:
      if (l.mixers.has(Mixer::kMamba2)) {
        own(Times(part.mamba.heads, rows / l.mamba.heads), mixer_copy);
      } else {
        for (const Span& v : part.values) own(Times(v, rows / l.delta.value_heads), mixer_copy);
      }
      break;
    case Division::kMambaIn:
    case Division::kConvolved:
      if (l.mixers.has(Mixer::kMamba2)) {
        const Mamba2& m = l.mamba;
        const int64_t inner = int64_t{m.heads} * m.head_dim, of_b = int64_t{m.groups} * m.state_dim;
        const Span x = Times(part.mamba.heads, m.head_dim), b = Times(part.mamba.groups, m.state_dim);
        const bool b_copy = mixer_copy || part.mamba.copy;
        int64_t at = 0;
        if (facts.division == Division::kMambaIn) {
          own(x, mixer_copy);  // the gate
          at = inner;
        }
        own(Plus(x, at), mixer_copy);
        own(Plus(b, at + inner), b_copy);
        own(Plus(b, at + inner + of_b), b_copy);
        if (facts.division == Division::kMambaIn) own(Plus(part.mamba.heads, at + inner + 2 * of_b), mixer_copy);
      } else {
        const DeltaRule& d = l.delta;
        const int64_t keys = int64_t{d.key_heads} * d.key_dim;
        own(Times(part.key_heads, d.key_dim), mixer_copy);
        own(Plus(Times(part.key_heads, d.key_dim), keys), mixer_copy);
        for (const Span& v : part.values) own(Plus(Times(v, d.value_dim), 2 * keys), mixer_copy);
      }
      break;
    case Division::kStateNorm:
      if (l.mixers.has(Mixer::kMamba2) && !part.whole_norm) {
        own(Times(part.mamba.heads, l.mamba.head_dim), mixer_copy);
      } else {
        own({0, rows}, copy);
      }
      break;
    case Division::kMixed: own(part.mixed, mixer_copy); break;
    case Division::kHidden: own(part.hidden, false); break;
    case Division::kFed: own(part.fed, fed_copy); break;
    case Division::kExpertHidden:
    case Division::kExpertOut: {
      held.slices = part.experts;
      const bool out = facts.division == Division::kExpertOut;
      own(!out ? part.expert_hidden : l.experts.latent > 0 ? part.latent : part.fed, false);
      break;
    }
    case Division::kSharedHidden: own(part.shared, fed_copy); break;
    case Division::kSharedOut: own(part.fed, fed_copy); break;
  }
  return held;
}

}  // namespace tally
