// SPDX-License-Identifier: Apache-2.0
// What the ranks of a model gather outside its blocks, and what blocks make their gathers of.
#include <algorithm>
#include <utility>

#include "counters/books/blocks.h"
#include "counters/books/communication.h"

namespace tally::books {
namespace {

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

class Gathers : private GatherBuilder {
 public:
  using GatherBuilder::GatherBuilder;

  std::vector<CommunicationForm> Take() {
    if (ranks_ < 2) return {};
    std::vector<uint64_t> embedded;
    for (const RankRows& of : rows_) embedded.push_back(of.embedded);
    ByRows(Component::kEmbedding, "R_o", embedded, N_, s_.Ev);
    if (r_.layer_embedding > 0) ByRows(Component::kLayerEmbedding, "R_o", embedded, N_, s_.LEl);
    for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer(r_.layer(layer_));
    layer_ = -1;
    if (logits_.value() > 0) Logits();
    return std::move(out_);
  }

 private:
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
    at_ = &l;
    const bool owned = l.sparse() && own_experts(), feeds = !l.feed_forward.empty();
    if (!l.mixers.empty() && !shard_.whole_mixers) {
      Component last{};
      for (const BlockForms* block : kMixerBlocks) {
        if (block->in(l)) last = block->communication(*this);
      }
      // One gather serves both blocks if they are added to the same residual.
      if (l.residual.post_norms || l.residual.kind == Residual::kSequential || !feeds || owned) Pieces(last, N_, s_.E);
    }
    for (const BlockForms* block : kFeedForwardBlocks) {
      if (!block->in(l)) continue;
      const Component last = block->communication(*this);
      if (!owned) Pieces(last, N_, s_.E);
    }
  }
};

}  // namespace

uint64_t Dealt(uint64_t n, uint64_t piece, uint64_t rank, uint64_t ranks) {
  const uint64_t pieces = (n + piece - 1) / piece, each = pieces / ranks, more = pieces % ranks;
  const uint64_t before = rank * each + std::min(rank, more), own = each + (rank < more ? 1 : 0);
  return std::min(n, (before + own) * piece) - std::min(n, before * piece);
}

GatherBuilder::GatherBuilder(const Recipe& r, const Shard& shard, const Workload& w, std::span<const RankRows> rows,
                             const GatheredBytesOf& gathered)
    : FormBuilder(r),
      shard_(shard),
      rows_(rows),
      gathered_(gathered),
      ranks_(Unsigned(shard.ranks)),
      rank_(Unsigned(shard.rank)) {
  const auto symbol = [](const char* name, uint64_t n) { return n == 1 ? Form(1) : Form::Symbol(name, n); };
  N_ = symbol("B", w.sequences) * symbol("P", w.rows);
  logits_ = symbol("B", w.sequences) * (w.logit_rows == w.rows ? symbol("P", w.rows) : Form(w.logit_rows));
}

GatherBuilder::OfRank GatherBuilder::Heads(const Form& heads, const Form& groups, const Form& dim) const {
  return [H = heads.value(), G = groups.value(), D = dim.value(), ranks = ranks_](uint64_t rank) {
    return HeadsOn(H, G, rank, ranks).heads * D;
  };
}

GatherBuilder::OfRank GatherBuilder::Groups(const Form& heads, const Form& groups, const Form& dim) const {
  return [H = heads.value(), G = groups.value(), D = dim.value(), ranks = ranks_](uint64_t rank) {
    return HeadsOn(H, G, rank, ranks).groups * D;
  };
}

void GatherBuilder::Add(Component component, Form sent, Form received, const std::vector<bool>& has) {
  CommunicationForm f{.layer = layer_, .component = component, .sent = std::move(sent), .received = std::move(received)};
  const auto others = static_cast<uint64_t>(std::ranges::count(has, true)) - (has[rank_] ? 1 : 0);
  f.messages_sent = has[rank_] ? ranks_ - 1 : 0;
  f.messages_received = others;
  out_.push_back(std::move(f));
}

Form GatherBuilder::Own(const Form& whole, const OfRank& own) const {
  return Form::Symbol("own(" + whole.text() + ")", own(rank_));
}

void GatherBuilder::ByColumns(Component component, const Form& rows, const Form& whole, const OfRank& own) {
  if (rows.value() == 0) return;
  const Form mine = Own(whole, own);
  std::vector<bool> has;
  for (uint64_t r = 0; r < ranks_; ++r) has.push_back(own(r) > 0);
  Add(component, 4 * rows * mine * (Form::Symbol("Z", ranks_) - 1), 4 * rows * (whole - mine), has);
}

void GatherBuilder::Packed(Role role, Component component, const Form& rows, const Form& whole, const OfRank& own,
                           uint64_t runs) {
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

void GatherBuilder::ByRows(Component component, const char* symbol, const std::vector<uint64_t>& of_ranks, const Form& rows,
                           const Form& width) {
  std::vector<bool> has;
  for (const uint64_t n : of_ranks) has.push_back(n > 0);
  const Form mine = Form::Symbol(symbol, of_ranks[rank_]);
  Add(component, 4 * mine * width * (Form::Symbol("Z", ranks_) - 1), 4 * (rows - mine) * width, has);
}

void GatherBuilder::ByExperts(Component component, const Form& rows, const Form& width) {
  std::vector<uint64_t> routed;
  for (const RankRows& of : rows_) routed.push_back(of.routed[static_cast<size_t>(layer_)]);
  ByRows(component, "M", routed, rows, width);
}

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
