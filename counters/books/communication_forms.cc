// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <utility>

#include "counters/books/communication.h"
#include "counters/books/symbols.h"
#include "engine/recipe/shard.h"

namespace tally::books {
namespace {

constexpr uint64_t kPiece = 32;  // outputs that stay together

// Units that `rank` gets of n. Pieces are dealt as evenly as possible; the first ranks get more.
uint64_t Dealt(uint64_t n, uint64_t piece, uint64_t rank, uint64_t ranks) {
  const uint64_t pieces = (n + piece - 1) / piece, each = pieces / ranks, more = pieces % ranks;
  const uint64_t before = rank * each + std::min(rank, more), own = each + (rank < more ? 1 : 0);
  return std::min(n, (before + own) * piece) - std::min(n, before * piece);
}

struct OwnHeads {
  uint64_t heads = 0;
  uint64_t groups = 0;  // that no lower rank has
};

// Ranks get whole groups. If ranks outnumber groups, ranks are dealt to groups, and each group's heads to its ranks.
OwnHeads HeadsOn(uint64_t heads, uint64_t groups, uint64_t rank, uint64_t ranks) {
  if (groups == 0) return {};
  const uint64_t each = heads / groups;
  if (groups >= ranks) {
    const uint64_t own = Dealt(groups, 1, rank, ranks);
    return {own * each, own};
  }
  for (uint64_t g = 0, first = 0; g < groups; ++g) {
    const uint64_t sharing = Dealt(ranks, 1, g, groups);
    if (rank < first + sharing) return {Dealt(each, 1, rank - first, sharing), rank == first ? 1u : 0u};
    first += sharing;
  }
  return {};
}

class Gathers {
 public:
  Gathers(const Recipe& r, const Shard& shard, const Workload& w, std::span<const RankRows> rows, const GatheredBytesOf& gathered)
      : r_(r),
        s_(r),
        shard_(shard),
        rows_(rows),
        gathered_(gathered),
        ranks_(Unsigned(shard.ranks)),
        rank_(Unsigned(shard.rank)) {
    const auto symbol = [](const char* name, uint64_t n) { return n == 1 ? Form(1) : Form::Symbol(name, n); };
    N_ = symbol("B", w.sequences) * symbol("P", w.rows);
    logits_ = symbol("B", w.sequences) * (w.logit_rows == w.rows ? symbol("P", w.rows) : Form(w.logit_rows));
  }

  std::vector<CommunicationForm> Take() {
    if (ranks_ < 2) return {};
    std::vector<uint64_t> embedded;
    for (const RankRows& of : rows_) embedded.push_back(of.embedded);
    ByRows(Component::kEmbedding, "R_o", embedded, N_, s_.Ev);
    if (r_.layer_embedding > 0) ByRows(Component::kLayerEmbedding, "R_o", embedded, N_, s_.LEl);
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer(r_.layers[static_cast<size_t>(layer_)]);
    layer_ = -1;
    if (logits_.value() > 0) Logits();
    return std::move(out_);
  }

 private:
  using OfRank = std::function<uint64_t(uint64_t rank)>;  // elements of a row that a rank computes

  void Add(Component component, Form sent, Form received, const std::vector<bool>& has) {
    CommunicationForm f{.layer = layer_, .component = component, .sent = std::move(sent), .received = std::move(received)};
    const auto others = static_cast<uint64_t>(std::ranges::count(has, true)) - (has[rank_] ? 1 : 0);
    f.messages_sent = has[rank_] ? ranks_ - 1 : 0;
    f.messages_received = others;
    out_.push_back(std::move(f));
  }

  Form Own(const Form& whole, const OfRank& own) const { return Form::Symbol("own(" + whole.text() + ")", own(rank_)); }

  // Every rank gets all columns of `rows` rows.
  void ByColumns(Component component, const Form& rows, const Form& whole, const OfRank& own) {
    if (rows.value() == 0) return;
    const Form mine = Own(whole, own);
    std::vector<bool> has;
    for (uint64_t r = 0; r < ranks_; ++r) has.push_back(own(r) > 0);
    Add(component, 4 * rows * mine * (Form::Symbol("Z", ranks_) - 1), 4 * rows * (whole - mine), has);
  }
  void Pieces(Component component, const Form& rows, const Form& whole) {
    ByColumns(component, rows, whole, [&](uint64_t rank) { return Dealt(whole.value(), kPiece, rank, ranks_); });
  }
  // Gathers the input of the role's matrix. `runs`: the contiguous pieces that a rank's columns consist of.
  void Packed(Role role, Component component, const Form& rows, const Form& whole, const OfRank& own, uint64_t runs = 1) {
    const GatheredBytes of = gathered_ ? gathered_(role, layer_) : GatheredBytes();
    bool in_blocks = whole.value() % of.block == 0;
    for (uint64_t r = 0; r < ranks_; ++r) in_blocks &= own(r) % (runs * of.block) == 0;
    if (!in_blocks || of.block == 1) return ByColumns(component, rows, whole, own);
    if (rows.value() == 0) return;
    const Form mine = Own(whole, own), each(of.bytes);
    std::vector<bool> has;
    for (uint64_t r = 0; r < ranks_; ++r) has.push_back(own(r) > 0);
    const auto bytes = [&](const Form& elements) {
      return Form::Symbol(std::to_string(of.bytes) + "/" + std::to_string(of.block) + " (" + elements.text() + ")",
                          elements.value() / of.block * of.bytes);
    };
    Add(component, rows * bytes(mine) * (Form::Symbol("Z", ranks_) - 1), rows * bytes(whole - mine), has);
  }
  void PackedPieces(Role role, Component component, const Form& rows, const Form& whole) {
    Packed(role, component, rows, whole, [&](uint64_t rank) { return Dealt(whole.value(), kPiece, rank, ranks_); });
  }
  // Every rank gets all rows, each of which one rank has.
  void ByRows(Component component, const char* symbol, const std::vector<uint64_t>& of_ranks, const Form& rows,
              const Form& width) {
    std::vector<bool> has;
    for (const uint64_t n : of_ranks) has.push_back(n > 0);
    const Form mine = Form::Symbol(symbol, of_ranks[rank_]);
    Add(component, 4 * mine * width * (Form::Symbol("Z", ranks_) - 1), 4 * (rows - mine) * width, has);
  }

  void Logits() {
    const Form mine = Own(s_.V, [&](uint64_t rank) { return Dealt(s_.V.value(), kPiece, rank, ranks_); });
    std::vector<bool> has;
    for (uint64_t r = 0; r < ranks_; ++r) has.push_back(Dealt(s_.V.value(), kPiece, r, ranks_) > 0);
    const Form bytes = 4 * logits_;
    Add(Component::kHead, rank_ > 0 ? bytes * mine : Form(), rank_ == 0 ? bytes * (s_.V - mine) : Form(), has);
    CommunicationForm& f = out_.back();
    f.to_first = true;
    f.messages_sent = rank_ > 0 && has[rank_] ? 1 : 0;
    if (rank_ > 0) f.messages_received = 0;
  }

  void Layer(const LayerRecipe& l) {
    const bool owned = l.sparse() && shard_.own_experts, feeds = !l.feed_forward.empty();
    if (!l.mixers.empty() && !shard_.whole_mixers) {
      Component last{};
      for (const Mixer mixer : kMixers) {
        if (l.mixers.has(mixer)) last = Mix(mixer, l);
      }
      // One gather serves both blocks if they are added to the same residual.
      if (l.residual.post_norms || l.residual.kind == Residual::kSequential || !feeds || owned) Pieces(last, N_, s_.E);
    }
    if (!feeds) return;
    if (l.dense()) PackedPieces(Role::kDown, Component::kFfnGateUp, N_, s_.Of(l).F);
    if (l.dense() && l.sparse() && !owned) Pieces(Component::kFfnDown, N_, s_.E);  // each block has a norm of its output
    if (owned) {
      std::vector<uint64_t> routed;
      for (const RankRows& of : rows_) routed.push_back(of.routed[static_cast<size_t>(layer_)]);
      return ByRows(Component::kFfnDown, "M", routed, N_ * s_.k, s_.Ex);
    }
    if (l.sparse()) {
      PackedPieces(Role::kExpertDown, Component::kFfnGateUp, N_ * s_.k, s_.Fx);
      if (l.experts.latent > 0) Pieces(Component::kMoeCombine, N_, s_.Ex);
      if (l.experts.shared_width > 0) PackedPieces(Role::kSharedExpertDown, Component::kSharedGateUp, N_, s_.Fs);
    }
    Pieces(Component::kFfnDown, N_, s_.E);
  }

  // Returns the site of its last matrix.
  Component Mix(Mixer mixer, const LayerRecipe& l) {
    const LayerSymbols at = s_.Of(l);
    const auto heads = [&](const Form& of, const Form& groups, const Form& dim) -> OfRank {
      return [this, H = of.value(), K = groups.value(), D = dim.value()](uint64_t rank) {
        return HeadsOn(H, K, rank, ranks_).heads * D;
      };
    };
    switch (mixer) {
      case Mixer::kAttention: {
        if (l.attention.qk_norm == QkNormKind::kWhole) {
          ByColumns(Component::kAttnQNorm, N_, at.H * at.D, heads(at.H, at.K, at.D));
          if (l.attention.cache_of < 0) {
            ByColumns(Component::kAttnKNorm, N_, at.K * at.D,
                      [&](uint64_t rank) { return HeadsOn(at.H.value(), at.K.value(), rank, ranks_).groups * at.D.value(); });
          }
        }
        Packed(Role::kO, Component::kAttention, N_, at.H * at.D, heads(at.H, at.K, at.D));
        return Component::kAttnOutput;
      }
      case Mixer::kLatentAttention:
        Packed(Role::kO, Component::kAttnKv, N_, at.H * s_.Dv, heads(at.H, at.H, s_.Dv));
        return Component::kAttnOutput;
      case Mixer::kShortConv: PackedPieces(Role::kConvOut, Component::kShortConv, N_, s_.E); return Component::kConvOut;
      case Mixer::kDeltaRule:  // by key head; ranks without one are idle
        Packed(
            Role::kSsmOut, Component::kRecurrentNorm, N_, s_.Hv * s_.Nv,
            [&](uint64_t rank) {
              return Dealt(s_.Hk.value(), 1, rank, ranks_) * (s_.Hv.value() / s_.Hk.value()) * s_.Nv.value();
            },
            l.delta.tiled ? s_.Hv.value() / s_.Hk.value() : 1);
        return Component::kRecurrentOut;
      case Mixer::kMamba2: {
        const OfRank own = heads(s_.Hm, s_.G, s_.Dm);
        const Form inner = s_.Hm * s_.Dm;
        if (VectorsAreCut(l.mamba, own, inner.value())) {
          ByColumns(Component::kRecurrence, N_, inner, own);
          ByColumns(Component::kRecurrentIn, N_, inner, own);
        } else if (l.mamba.norm) {
          Packed(Role::kSsmOut, Component::kRecurrentNorm, N_, inner, own);
        } else {
          ByColumns(Component::kRecurrentNorm, N_, inner, own);
        }
        return Component::kRecurrentOut;
      }
    }
    return {};
  }

  // Whether a vector that Mamba-2's norm works on is cut between ranks.
  bool VectorsAreCut(const Mamba2& m, const OfRank& own, uint64_t inner) const {
    if (!m.norm) return false;
    const uint64_t vector = inner / std::max<uint64_t>(1, Unsigned(m.norm_groups));
    uint64_t at = 0;
    for (uint64_t rank = 0; rank < ranks_; ++rank) {
      at += own(rank);
      if (at % vector != 0) return true;
    }
    return false;
  }

  const Recipe& r_;
  const Symbols s_;
  const Shard shard_;
  const std::span<const RankRows> rows_;
  const GatheredBytesOf& gathered_;
  const uint64_t ranks_, rank_;
  Form N_, logits_;
  int32_t layer_ = -1;
  std::vector<CommunicationForm> out_;
};

}  // namespace

std::vector<CommunicationForm> CommunicationForms(const Recipe& recipe, const Shard& shard, const Workload& work,
                                                  std::span<const RankRows> rows, const GatheredBytesOf& gathered) {
  return Gathers(recipe, shard, work, rows, gathered).Take();
}

std::vector<RankRows> EmbeddedRows(const Recipe& recipe, int32_t ranks, std::span<const int32_t> tokens) {
  std::vector<RankRows> rows(Unsigned(ranks));
  for (const int32_t token : tokens) {
    uint64_t end = 0;
    for (size_t r = 0; r < rows.size(); ++r) {
      end += Dealt(Unsigned(recipe.vocab), kPiece, r, rows.size());
      if (Unsigned(token) >= end) continue;
      ++rows[r].embedded;
      break;
    }
  }
  return rows;
}

Communication SumOf(std::span<const CommunicationForm> forms) {
  Communication sum;
  for (const CommunicationForm& f : forms) {
    sum.sent += f.sent.value();
    sum.received += f.received.value();
    sum.messages_sent += f.messages_sent;
    sum.messages_received += f.messages_received;
    sum.gathers += f.messages_received > 0 ? 1 : 0;
  }
  return sum;
}

}  // namespace tally::books
