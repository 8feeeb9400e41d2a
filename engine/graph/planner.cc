// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/planner.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/recipe/alibi.h"

namespace tally {

void Planner::Make() {
  plan_.ops.clear();
  plan_.gathers.clear();
  plan_.fetched.clear();
  plan_.streamed.clear();
  plan_.routed = nullptr;
  const Experts& experts = ExpertsOf(r_);
  plan_.own_experts = !shard_.alone() && shard_.own_experts && AnyLayer(r_, &LayerRecipe::sparse);
  plan_.experts = plan_.own_experts ? tally::PartOf(experts.n_experts, 1, shard_) : Span{0, experts.n_experts};
  plan_.embedded.clear();
  if (r_.alibi_bias > 0) plan_.slopes = AlibiSlopes(AttentionOf(r_).n_heads, r_.alibi_bias);
  if (r_.prediction()) return Predict();
  Buffers();
  Embed();
  plan_.layer_ends = {plan_.ops.size()};
  for (layer_ = r_.first_layer; layer_ < r_.end_layer(); ++layer_) {
    const bool streamed = FetchLayer();
    Layer();
    if (streamed) plan_.streamed.back().end = plan_.ops.size();
    plan_.layer_ends.push_back(plan_.ops.size());
  }
  layer_ = -1;
  plan_.head = plan_.ops.size();
  rows_ = RowsOf::kOutputs;
  if (r_.output_norm) Norm(Role::kOutputNorm, plan_.x, normed_);
  plan_.logits_from = plan_.ops.size();
  rows_ = RowsOf::kLogits;
  Head();
}

void Planner::Buffers() {
  const int64_t E = r_.d_model;
  const Experts& experts = ExpertsOf(r_);
  const int64_t k = experts.top_k;
  const uint64_t n = static_cast<uint64_t>(n_), routed = SaturatingMul(n, static_cast<uint64_t>(k));
  plan_.tokens = arena_.Take<int32_t>(n);
  plan_.positions = arena_.Take<int32_t>(n);
  if (!source_.rope.axes.empty() || !source_.local_rope.axes.empty()) {
    plan_.heights = arena_.Take<int32_t>(n);
    plan_.widths = arena_.Take<int32_t>(n);
  }
  plan_.given_rows = arena_.Take<GivenRow>(n);
  plan_.looked_up_ids = arena_.Take<int32_t>(n);
  plan_.looked_up_rows = arena_.Take<int32_t>(n);
  plan_.kv_rows = arena_.Take<KvRow>(n);
  plan_.recurrent = AnyLayer(r_, &LayerRecipe::recurrent);
  plan_.state_runs = arena_.Take<StateRun>(n);
  plan_.state_order = arena_.Take<int32_t>(n);
  plan_.groups = arena_.Take<RowGroup>(static_cast<uint64_t>(std::max(experts.n_experts, 0)));
  plan_.group_tokens = arena_.Take<int32_t>(routed);
  plan_.group_slots = arena_.Take<int32_t>(routed);
  plan_.group_places = arena_.Take<int32_t>(routed);
  plan_.top_k = k;
  plan_.x = Floats(E);
  normed_ = Floats(E);
  plan_.head_in = r_.output_norm ? normed_ : plan_.x;
  if (r_.embedding_width > 0) {
    narrow_ = Floats(r_.embedding_width);
    Widest(r_.embedding_width);
    Room(r_.embedding_width);
  }
  if (AnyLayer(r_, [](const LayerRecipe& l) { return l.residual.kind == Residual::kParallel; })) ffn_normed_ = Floats(E);
  if (AnyLayer(r_, [](const LayerRecipe& l) { return l.residual.own_output(); }) || r_.layer_embedding > 0)
    block_out_ = Floats(E);
  Room(E);
  for (size_t i = 0; i < std::size(kMixerPlans); ++i) {
    const auto has = [=](const LayerRecipe& l) { return l.mixers.has(static_cast<Mixer>(i)); };
    if (AnyLayer(r_, has)) mixers_[i] = kMixerPlans[i]->planner(*this);
    if (mixers_[i] != nullptr) mixers_[i]->Buffers();
  }
  for (size_t i = 0; i < std::size(kFeedForwardPlans); ++i) {
    const auto has = [=](const LayerRecipe& l) { return l.feed_forward.has(static_cast<FeedForward>(i)); };
    if (AnyLayer(r_, has)) feed_forwards_[i] = kFeedForwardPlans[i]->planner(*this);
    if (feed_forwards_[i] != nullptr) feed_forwards_[i]->Buffers();
  }
  if (partial_floats_ > 0) partials_.data = arena_.Take<float>(partial_floats_);
  hidden_ = Floats(hidden_cols_);
  Room(hidden_cols_);
  if (AnyLayer(r_, &LayerRecipe::both)) beside_ = Floats(E);
  if (r_.layer_embedding > 0) {
    const int64_t all = int64_t{r_.n_layers} * r_.layer_embedding;
    layer_inputs_ = Floats(all);
    layer_given_ = Floats(all);
    layer_gate_ = Floats(r_.layer_embedding);
    Widest(r_.layer_embedding);
    Room(all);
  }
  Widest(std::max(E, hidden_cols_));
  pack_ = arena_.Take<uint8_t>(PackBytes());
  const auto logits = [&](int64_t cols) {
    const uint64_t floats = SaturatingMul(static_cast<uint64_t>(options_.max_logit_rows), static_cast<uint64_t>(cols));
    return Mat<float>(arena_.Take<float>(floats), options_.max_logit_rows, cols);
  };
  if (shard_.rank == 0) plan_.logits = logits(r_.vocab);
  if (!shard_.alone()) ShardBuffers(logits(PartOf(r_.vocab, kShardRows, shard_).size()));
}

// `norm`: the norm after the block, if the recipe has such norms. `last`: the block's last matrix; without a norm, its site is charged.
// `part`: the columns of the output that this process has.
void Planner::AddOutput(Role norm, Role last, const Span& part) {
  if (!OwnOutput()) return;
  if (!layer().residual.post_norms) {
    if (part.size() == 0) return;
    const As as(*this, part.size() < r_.d_model ? Work::kOwn : Work::kWhole);
    const Component component = FactsOf(last).component;
    Add({component, component}, GatedAddOp{.y = block_out_.Cols(part.begin, part.size()),
                                           .gate = {},
                                           .scale = layer().residual.scale,
                                           .out = plan_.x.Cols(part.begin, part.size())});
    return;
  }
  AddNormed(norm, layer().residual.post_norm_eps > 0 ? layer().residual.post_norm_eps : r_.norm_eps, block_out_, plan_.x);
}

// out += the RMS norm of x with the role's weights.
void Planner::AddNormed(Role role, float eps, Mat<const float> x, Mat<float> out) {
  Add(role, NormOp{.kind = NormKind::kRms, .x = x, .weight = Get(role), .bias = {}, .eps = eps, .add_to_out = true, .out = out});
}

void Planner::Embed() {
  const size_t n = static_cast<size_t>(n_);
  const bool narrow = r_.embedding_width > 0;
  const Mat<float> embedded = narrow ? narrow_ : plan_.x;
  EmbedTokens(Role::kTokenEmbedding, r_.embedding_scale, embedded);
  if (!r_.prediction()) {
    plan_.place = plan_.ops.size();
    Add(Role::kTokenEmbedding, PlaceRowsOp{.given = {plan_.given_rows, n}, .to_rows = {}, .x = embedded});
  }
  if (narrow) Project(Role::kEmbeddingProj, narrow_, plan_.x);
  if (r_.learned_positions) {
    Add(Role::kPositionEmbedding, EmbedOp{.ids = {plan_.positions, n},
                                          .table = Get(Role::kPositionEmbedding),
                                          .add_to_out = true,
                                          .out = plan_.x,
                                          .first_row = r_.first_position});
  }
  if (r_.embedding_norm) Norm(Role::kEmbeddingNorm, plan_.x, plan_.x);
  if (r_.embedding_rms) {
    Add(Role::kTokenEmbedding, NormOp{.x = plan_.x, .weight = {}, .bias = {}, .eps = r_.norm_eps, .out = plan_.x});
  }
  if (r_.layer_embedding > 0) EmbedLayers();
  const auto used = [&](LayerRope which) {
    return AnyLayer(r_, [&](const LayerRecipe& l) { return l.attends() && l.attention.rope == which; });
  };
  if (used(LayerRope::kGlobal)) Turns(r_.rope, source_.rope, turns_[0]);
  if (used(LayerRope::kLocal)) Turns(r_.local_rope, source_.local_rope, turns_[1]);
  if (const LayerRecipe& l = FirstLayer(r_, &LayerRecipe::tempered); l.tempered()) {
    const Temperature& t = l.attention.temperature;
    temperature_ = Floats(1);
    Add(Component::kAttention,
        TemperatureOp{
            .positions = {plan_.positions, n}, .scale = t.scale, .offset = t.offset, .floor = t.floor, .out = temperature_});
  }
}

void Planner::EmbedTokens(Role table, float scale, Mat<float> out) {
  if (!shard_.alone()) return EmbedOwned(table, scale, out);
  const RowsOf rows = std::exchange(rows_, table == Role::kTokenEmbedding ? RowsOf::kLookedUp : rows_);
  Add(table, EmbedOp{.ids = {plan_.tokens, static_cast<size_t>(n_)}, .table = Get(table), .out = out, .scale = scale});
  rows_ = rows;
}

// Makes each layer's embedding of the token from a row of the table, and the embedding x through a matrix W of [layers P, E] and a norm:
// (sqrt(P) row + norm(W x / sqrt(E))) / sqrt(2). The norm takes W x with an eps that is E times as large: the same.
void Planner::EmbedLayers() {
  const float root = std::sqrt(static_cast<float>(r_.layer_embedding));
  plan_.layer_lookup = plan_.ops.size();
  EmbedTokens(Role::kLayerEmbedding, root, layer_inputs_);
  Project(Role::kLayerEmbeddingProj, plan_.x, layer_given_);
  Add(Role::kLayerEmbeddingNorm, NormOp{.kind = NormKind::kRms,
                                        .x = layer_given_,
                                        .groups = r_.n_layers,
                                        .weight = Get(Role::kLayerEmbeddingNorm),
                                        .bias = {},
                                        .eps = r_.norm_eps * static_cast<float>(r_.d_model),
                                        .add_to_out = true,
                                        .out = layer_inputs_});
  Scale(Role::kLayerEmbeddingNorm, layer_inputs_, std::numbers::sqrt2_v<float> / 2);
}

// Adds norm(out (act(gate x) * the layer's input)) at the end of a layer.
void Planner::LayerEmbedding() {
  const int64_t P = r_.layer_embedding;
  Project(Role::kLayerGate, plan_.x, layer_gate_);
  Add(Role::kLayerGate,
      ElementwiseOp{.x = layer_gate_, .up = layer_inputs_.Cols(layer_ * P, P), .activation = layer().network.activation});
  Project(Role::kLayerOut, layer_gate_, block_out_);
  AddNormed(Role::kLayerPostNorm, r_.norm_eps, block_out_, plan_.x);
}

void Planner::Turns(const Rope& rope, const RopeFrequencies& frequencies, RopeTurns& turns) {
  if (rope.style == RopeStyle::kNone) return;
  turns = {Floats(rope.dim / 2), Floats(rope.dim / 2)};
  const size_t n = static_cast<size_t>(n_), n_axes = frequencies.axes.empty() ? 0 : n;
  Add(Component::kRope, RopeTableOp{.positions = {plan_.positions, n},
                                    .inv_freq = frequencies.inv_freq,
                                    .magnitude = frequencies.magnitude,
                                    .cos = turns.cos,
                                    .sin = turns.sin,
                                    .heights = {plan_.heights, n_axes},
                                    .widths = {plan_.widths, n_axes},
                                    .axes = frequencies.axes});
}

void Planner::Layer() {
  const LayerRecipe& l = layer();
  part_ = PartOfLayer(r_, shard_, layer_);
  const Columns fed = [](const Shard&, const LayerPart& p) { return std::vector{p.fed}; };
  const bool normed = layer().residual.pre_norms && !layer().residual.stream_norms;  // a block's input
  const Mat<float> ffn_in = !normed ? plan_.x : layer().residual.kind == Residual::kParallel ? ffn_normed_ : normed_;
  if (!l.mixers.empty()) {
    if (normed) Norm(Role::kAttnNorm, plan_.x, normed_);
    if (layer().residual.kind == Residual::kParallel) Norm(Role::kFfnNorm, plan_.x, ffn_in);
    block_has_output_ = false;
    Role last{};
    mixing_ = true;
    for (size_t i = 0; i < std::size(kMixerPlans); ++i) {
      if (l.mixers.has(static_cast<Mixer>(i))) last = mixers_[i]->Make(normed ? normed_ : plan_.x);
    }
    mixing_ = false;
    const bool ends = layer().residual.kind == Residual::kSequential || l.feed_forward.empty() || !IsDivided(fed, r_.d_model);
    EndBlock(Role::kAttnPostNorm, last, part_.mixed, ends, [](const Shard&, const LayerPart& p) { return std::vector{p.mixed}; });
    if (layer().residual.stream_norms) Norm(Role::kAttnNorm, plan_.x, plan_.x);
  }
  if (!l.feed_forward.empty()) FeedForwards(ffn_in);
  if (r_.layer_embedding > 0) LayerEmbedding();
  if (layer().residual.layer_scale) Add(Role::kLayerScale, ElementwiseOp{.x = plan_.x, .factor = Get(Role::kLayerScale)});
}

void Planner::FeedForwards(Mat<float> in) {
  const LayerRecipe& l = layer();
  const Columns fed = [](const Shard&, const LayerPart& p) { return std::vector{p.fed}; };
  if (layer().residual.pre_norms && !layer().residual.stream_norms && layer().residual.kind == Residual::kSequential)
    Norm(Role::kFfnNorm, plan_.x, in);
  const auto feed = [&](FeedForward block) {
    block_has_output_ = false;
    return feed_forwards_[static_cast<size_t>(block)]->Make(in);
  };
  if (l.both()) {
    // Dense feed-forward and experts side by side: each output has a norm, and the block's output is their sum.
    feed(FeedForward::kDense);
    GatherInPlace(FactsOf(Role::kDown).component, block_out_, fed);
    Norm(Role::kDensePostNorm, block_out_, block_out_);
    Norm(Role::kExpertNorm, plan_.x, in);
    std::swap(block_out_, beside_);
    feed(FeedForward::kSparse);
    GatherInPlace(FactsOf(Role::kExpertDown).component, block_out_, fed);
    std::swap(block_out_, beside_);
    AddNormed(Role::kExpertPostNorm, r_.norm_eps, beside_, block_out_);
    return AddOutput(Role::kFfnPostNorm, Role::kExpertDown, part_.fed);
  }
  EndBlock(Role::kFfnPostNorm, feed(l.sparse() ? FeedForward::kSparse : FeedForward::kDense), part_.fed, true, fed);
  if (layer().residual.stream_norms) Norm(Role::kFfnNorm, plan_.x, plan_.x);
}

// The block's output joins the residual stream, of which each process then has all columns. `ends`: nothing else is added to the same
// columns.
void Planner::EndBlock(Role norm, Role last, const Span& part, bool ends, const Columns& columns) {
  const Component component = FactsOf(last).component;
  if (layer().residual.post_norms) GatherInPlace(component, block_out_, columns);
  AddOutput(norm, last, part);
  if (!layer().residual.post_norms && ends) GatherInPlace(component, plan_.x, columns);
}

}  // namespace tally
