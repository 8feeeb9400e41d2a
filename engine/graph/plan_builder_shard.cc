// SPDX-License-Identifier: Apache-2.0
// Plans for several processes that run one model (engine/recipe/shard.h): gathers, and work that more than one process does.
#include <algorithm>
#include <utility>

#include "engine/graph/plan_builder.h"

namespace tally {

LayerPart PlanBuilder::PartOn(const Shard& shard) const { return layer_ < 0 ? LayerPart() : PartOfLayer(r_, shard, layer_); }

// True if not every process has all columns. Either all have them, or the second one does not.
bool PlanBuilder::IsDivided(const Columns& columns, int64_t cols) const {
  const auto has_all = [&](const Shard& s) { return columns(s, PartOn(s)) == std::vector{Span{0, cols}}; };
  return !shard_.alone() && !(has_all(shard_.Of(0)) && has_all(shard_.Of(1)));
}

// The columns that each process has.
GatherRoom& PlanBuilder::NewGather(const Columns& columns) {
  GatherRoom& room = plan_.gathers.emplace_back();
  room.columns.resize(static_cast<size_t>(shard_.ranks));
  room.bytes.resize(room.columns.size());
  for (int32_t rank = 0; rank < shard_.ranks; ++rank) {
    const Shard other = shard_.Of(rank);
    std::vector<ColumnRun>& runs = room.columns[static_cast<size_t>(rank)];
    int64_t width = 0;
    for (const Span& s : columns(other, PartOn(other))) {
      if (s.size() == 0) continue;
      runs.push_back({s.begin, s.size()});
      width += s.size();
    }
    room.parts.push_back({.rows = 0, .columns = runs, .width = width});
  }
  return room;
}

// Gathers a matrix of which this process has the columns `own`. `to`: a place for it; null: a buffer that the next gather uses too.
Mat<float> PlanBuilder::Whole(Component component, Mat<float> own, int64_t cols, const Columns& columns, float* to) {
  if (!IsDivided(columns, cols)) return own;
  const As as(*this, Work::kOwn);
  const Mat<float> all(to != nullptr ? to : gathered_, own.rows, cols);
  GatherRoom& room = NewGather(columns);
  Add(component, GatherOp{.group = source_.group,
                          .parts = room.parts,
                          .own = own,
                          .to_rows = {},
                          .all = all,
                          .sent = sent_,
                          .received = received_,
                          .part_bytes = room.bytes});
  return all;
}

// The packed input of the role's matrix, of which this process has the columns `own`. Each process packs its own columns, and the packs are
// gathered, if all columns are cut at whole blocks; else the columns are gathered as f32 and packed then.
ActPack PlanBuilder::PackWhole(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns) {
  const bool routed = rows_ == RowsOf::kRouted;
  const auto pack = [&](Mat<float> in) { return routed ? PackRouted(role, in, nullptr, RowsOf::kRouted) : Pack(role, in); };
  if (!IsDivided(columns, cols)) return pack(own);
  const ActFormat format = FormatFor(role);
  const int64_t piece = PackedPiece(format);
  GatherRoom& room = NewGather(columns);
  const bool in_pieces =
      own.stride == own.cols && std::ranges::all_of(room.columns, [&](const std::vector<ColumnRun>& runs) {
        return std::ranges::all_of(runs, [&](const ColumnRun& run) { return run.begin % piece == 0 && run.count % piece == 0; });
      });
  if (!in_pieces) {
    plan_.gathers.pop_back();
    const Mat<float> whole = Whole(from, own, cols, columns);
    return Get(role).rows > 0 ? pack(whole) : ActPack();
  }
  const As as(*this, Work::kOwn);
  const std::span<const RowGroup> groups = routed ? std::span<const RowGroup>(plan_.groups, 0) : std::span(&plan_.whole, 1);
  const ActPack part{.format = format, .rows = own.rows, .cols = own.cols, .data = own_pack_, .groups = groups},
      all{.format = format, .rows = own.rows, .cols = cols, .data = pack_, .groups = groups};
  if (own.cols > 0) {
    Add(role, PackActOp{.x = own, .row_index = {}, .pack = part});
    if (routed) plan_.ops.back().input_rows = RowsOf::kRouted;
  }
  Add(from,
      GatherPackOp{
          .group = source_.group, .parts = room.parts, .own = part, .all = all, .received = received_, .part_bytes = room.bytes});
  return all;
}

// Gathers the columns of `m`, of which each process has its own, into all of it.
void PlanBuilder::GatherInPlace(Component component, Mat<float> m, const Columns& columns) {
  if (!IsDivided(columns, m.cols)) return;
  const As as(*this, Work::kOwn);
  GatherRoom& room = NewGather(columns);
  const std::vector<ColumnRun>& own = room.columns[static_cast<size_t>(shard_.rank)];
  const int64_t begin = own.empty() ? 0 : own[0].begin, count = own.empty() ? 0 : own[0].count;
  Add(component, GatherOp{.group = source_.group,
                          .parts = room.parts,
                          .own = m.Cols(begin, count),
                          .to_rows = {},
                          .all = m,
                          .sent = sent_,
                          .received = received_,
                          .part_bytes = room.bytes});
}

// Gathers the outputs of all experts, a row for each slot. `own`: the rows of this process's experts.
Mat<float> PlanBuilder::GatherSlots(Mat<float> own) {
  const Mat<float> all(gathered_, own.rows, own.cols);
  if (plan_.routed == nullptr) {
    plan_.routed = &NewGather([cols = own.cols](const Shard&, const LayerPart&) { return std::vector{Span{0, cols}}; });
  }
  rows_ = RowsOf::kSlots;
  Add(FactsOf(Role::kExpertDown).component, GatherOp{.group = source_.group,
                                                     .parts = plan_.routed->parts,
                                                     .own = own,
                                                     .to_rows = {plan_.routed_slots, static_cast<size_t>(own.rows)},
                                                     .all = all,
                                                     .sent = sent_,
                                                     .received = received_,
                                                     .part_bytes = plan_.routed->bytes});
  return all;
}

void PlanBuilder::Room(int64_t cols, int64_t rows_each) {
  if (shard_.alone()) return;
  const uint64_t rows = SaturatingMul(static_cast<uint64_t>(n_), static_cast<uint64_t>(rows_each));
  gathered_floats_ = std::max(gathered_floats_, SaturatingMul(rows, static_cast<uint64_t>(cols)));
}

// Marks weight bytes of the last planned op as copies on all ranks but the first. The op is divided, but every process reads all of these
// weights.
void PlanBuilder::CopiedWeights(std::initializer_list<WeightView> weights) {
  CopiedWork& copied = plan_.ops.back().copied;
  uint64_t stored = 0, packed = 0;
  for (const WeightView& w : weights) {
    stored += w.stored_row_bytes;
    packed += static_cast<uint64_t>(w.cols) * sizeof(float);
  }
  if (shard_.rank == 0 || copied.all || packed == 0) return;
  copied.part = [stored, packed](const CostAmounts& n) {
    Cost cost;
    cost.AddBytes(ByteKind::kWeightsStored, n[Amount::kCalls] * stored);
    cost.AddBytes(ByteKind::kWeightsPacked, n[Amount::kCalls] * packed);
    return cost;
  };
}

// Marks as copies the products of rows that a process of a lower rank has too.
void PlanBuilder::AddMatMul(Role role, MatMulOp op) {
  const Held held = HeldOf(r_, shard_, role, layer_);
  const int64_t copied = held.copied();
  const As as(*this, Work::kOwn);
  Add(role, op);
  if (copied == 0) return;
  if (copied == held.size()) {
    plan_.ops.back().copied.all = true;
    return;
  }
  op.w.rows = op.out.cols = copied;
  if (op.bias.cols > 0) {
    op.bias.stored_row_bytes = op.bias.stored_row_bytes / static_cast<uint64_t>(op.bias.cols) * static_cast<uint64_t>(copied);
    op.bias.cols = copied;
  }
  plan_.ops.back().copied.part = [op](const CostAmounts& n) { return op.Useful(n); };
}

}  // namespace tally
