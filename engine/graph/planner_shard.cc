// SPDX-License-Identifier: Apache-2.0
// What is divided outside the layers among several processes that run one model (engine/recipe/shard.h): tables and the head.
#include <algorithm>

#include "engine/graph/planner.h"

namespace tally {

// Each process has some columns of the logits; the first one gets them all.
void Planner::Head() {
  const Span own = PartOf(r_.vocab, kShardRows, shard_);
  const Mat<float> logits = shard_.alone() ? plan_.logits : Mat<float>(own_logits_.data, own_logits_.rows, own.size());
  Mat<float> rows = r_.prediction() || r_.output_norm ? normed_ : plan_.x;
  if (r_.embedding_width > 0) {
    Project(Role::kHeadProj, rows, narrow_);
    rows = narrow_;
  }
  Project(Role::kHead, rows, logits);
  const As as(*this, Work::kOwn);
  if ((r_.logit_scale != 1 || r_.logit_softcap != 0) && own.size() > 0) {
    Add(Component::kLogits, ElementwiseOp{.x = logits, .scale = r_.logit_scale, .softcap = r_.logit_softcap});
  }
  if (shard_.alone()) return;
  GatherRoom& room = NewGather([&](const Shard& s, const LayerPart&) { return std::vector{PartOf(r_.vocab, kShardRows, s)}; });
  Add(Component::kHead, GatherOp{.group = source_.group,
                                 .parts = room.parts,
                                 .own = logits,
                                 .to_rows = {},
                                 .all = plan_.logits,
                                 .to_first = true,
                                 .sent = sent_,
                                 .received = received_,
                                 .part_bytes = room.bytes});
}

void Planner::ShardBuffers(Mat<float> logits) {
  const uint64_t n = static_cast<uint64_t>(n_);
  const uint64_t sent = SaturatingMul(n, static_cast<uint64_t>(std::max({int64_t{r_.d_model}, gapped_, layer_inputs_.cols})));
  own_logits_ = logits;
  if (shard_.rank > 0) plan_.logits = {nullptr, options_.max_logit_rows, r_.vocab};
  plan_.owned_ids = arena_.Take<int32_t>(n);
  plan_.owned_rows = arena_.Take<int32_t>(n);
  plan_.embedded_rows = arena_.Take<int32_t>(n);
  plan_.routed_slots = arena_.Take<int32_t>(SaturatingMul(n, static_cast<uint64_t>(plan_.top_k)));
  gathered_ = arena_.Take<float>(gathered_floats_);
  const uint64_t received = std::max(gathered_floats_, SaturatingMul(static_cast<uint64_t>(options_.max_logit_rows),
                                                                     static_cast<uint64_t>(shard_.rank == 0 ? r_.vocab : 0)));
  received_ = {arena_.Take<float>(received), received};
  own_pack_ = arena_.Take<uint8_t>(PackBytes());
  sent_ = {arena_.Take<float>(sent), sent};
}

// Rows of a table come from the process that has them.
void Planner::EmbedOwned(Role role, float scale, Mat<float> out) {
  const size_t n = static_cast<size_t>(n_);
  const Mat<float> own(gathered_, n_, out.cols);
  const As as(*this, Work::kOwn);
  rows_ = RowsOf::kOwned;
  if (const WeightView table = Get(role); table.rows > 0) {
    Add(role,
        EmbedOp{.ids = {plan_.owned_ids, n}, .table = table, .out = own, .scale = scale, .step_rows = {plan_.owned_rows, n}});
  }
  GatherRoom& room = NewGather([&](const Shard&, const LayerPart&) { return std::vector{Span{0, out.cols}}; });
  plan_.embedded.push_back(&room);
  Add(role, GatherOp{.group = source_.group,
                     .parts = room.parts,
                     .own = own,
                     .to_rows = {plan_.embedded_rows, n},
                     .all = out,
                     .sent = sent_,
                     .received = received_,
                     .part_bytes = room.bytes});
  rows_ = RowsOf::kBatch;
}

}  // namespace tally
