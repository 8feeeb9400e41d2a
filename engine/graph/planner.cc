// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/planner.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/recipe/alibi.h"

namespace tally {
namespace {

int64_t SizeOf(const std::vector<Span>& spans) {
  int64_t n = 0;
  for (const Span& s : spans) n += s.size();
  return n;
}

}  // namespace

void Planner::Make() {
  plan_.ops.clear();
  plan_.gathers.clear();
  plan_.routed = nullptr;
  const Experts& experts = ExpertsOf(r_);
  plan_.own_experts = !shard_.alone() && shard_.own_experts && AnyLayer(r_, &LayerRecipe::sparse);
  plan_.experts = plan_.own_experts ? tally::PartOf(experts.n_experts, 1, shard_) : Span{0, experts.n_experts};
  plan_.embedded.clear();
  if (r_.alibi_bias > 0) plan_.slopes = AlibiSlopes(AttentionOf(r_).n_heads, r_.alibi_bias);
  if (r_.prediction()) return Predict();
  Buffers();
  Embed();
  for (layer_ = r_.first_layer; layer_ < r_.end_layer(); ++layer_) Layer();
  layer_ = -1;
  plan_.head = plan_.ops.size();
  rows_ = RowsOf::kOutputs;
  if (r_.output_norm) Norm(Role::kOutputNorm, plan_.x, normed_);
  plan_.logits_from = plan_.ops.size();
  rows_ = RowsOf::kLogits;
  Head();
}

Mat<float> Planner::Floats(int64_t cols, int64_t rows_each) {
  const uint64_t rows = SaturatingMul(static_cast<uint64_t>(n_), static_cast<uint64_t>(rows_each));
  return {arena_.Take<float>(SaturatingMul(rows, static_cast<uint64_t>(cols))), n_ * rows_each, cols};
}

void Planner::Buffers() {
  const int64_t E = r_.d_model;
  const bool sparse = AnyLayer(r_, &LayerRecipe::sparse);
  const Experts& experts = ExpertsOf(r_);
  const int64_t k = experts.top_k;
  int64_t hidden = std::max({k * experts.width, int64_t{experts.shared_width}, int64_t{1}});
  for (const LayerRecipe& l : r_.layers) hidden = std::max(hidden, l.dense() ? int64_t{l.ffn.width} : 0);
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
  AttentionBuffers();
  LatentBuffers();
  ConvBuffers();
  DeltaBuffers();
  MambaBuffers();
  if (partial_floats_ > 0) partials_.data = arena_.Take<float>(partial_floats_);
  hidden_ = Floats(hidden);
  Room(hidden);
  if (sparse) {
    const int64_t space = experts.latent > 0 ? experts.latent : E;
    if (experts.latent > 0) {
      latent_in_ = Floats(space);
      latent_out_ = Floats(space);
    }
    expert_out_ = Floats(space, k);
    Room(space, k);
    if (experts.weighted_inputs) expert_in_ = Floats(space, k);
    router_ = Floats(experts.n_experts);
    route_weights_ = Floats(k);
    route_experts_ = {arena_.Take<int32_t>(routed), n_, k};
  }
  if (AnyLayer(r_, &LayerRecipe::both)) beside_ = Floats(E);
  if (experts.router_norm) router_in_ = Floats(E);
  if (r_.layer_embedding > 0) {
    const int64_t all = int64_t{r_.n_layers} * r_.layer_embedding;
    layer_inputs_ = Floats(all);
    layer_given_ = Floats(all);
    layer_gate_ = Floats(r_.layer_embedding);
    Widest(r_.layer_embedding);
    Room(all);
  }
  if (experts.shared_gate) {
    shared_out_ = Floats(E);
    shared_gate_ = Floats(1);
  }
  // f32 packs are the largest: one row of the widest input, or one for each slot of an expert's inputs.
  Widest(std::max({E, hidden, k * std::max<int64_t>(E, experts.latent)}));
  pack_ = arena_.Take<uint8_t>(PackBytes());
  const auto logits = [&](int64_t cols) {
    const uint64_t floats = SaturatingMul(static_cast<uint64_t>(options_.max_logit_rows), static_cast<uint64_t>(cols));
    return Mat<float>(arena_.Take<float>(floats), options_.max_logit_rows, cols);
  };
  if (shard_.rank == 0) plan_.logits = logits(r_.vocab);
  if (!shard_.alone()) ShardBuffers(logits(PartOf(r_.vocab, kShardRows, shard_).size()));
}

uint64_t Planner::PackBytes() const {
  return SaturatingAdd(SaturatingMul(static_cast<uint64_t>(n_), 4 * RoundUp(static_cast<uint64_t>(widest_), 2)), 64);
}

std::vector<LayerCache> LayerCaches(const Recipe& r, KvType type, const Shard& shard) {
  std::vector<LayerCache> caches;
  for (int32_t i = r.first_layer; i < r.end_layer(); ++i) {
    const LayerRecipe& l = r.layer(i);
    const int32_t seen = std::max(l.attention.window, l.attention.chunk);
    const LayerPart part = PartOfLayer(r, shard, i);
    for (const Mixer mixer : kMixers) {
      if (!l.mixers.has(mixer)) continue;
      switch (mixer) {
        case Mixer::kAttention:
          if (l.attention.cache_of < 0) caches.push_back({i, mixer, seen, AttentionLayout(l, part, type), {}});
          break;
        case Mixer::kLatentAttention: caches.push_back({i, mixer, seen, LatentLayout(l, part, type), {}}); break;
        case Mixer::kShortConv:
        case Mixer::kDeltaRule:
        case Mixer::kMamba2:
          caches.push_back(
              {.layer = i, .mixer = mixer, .layout = {}, .state = RecurrentLayout(l, part, mixer), .recurrent = true});
          break;
      }
    }
  }
  return caches;
}

StateLayout RecurrentLayout(const LayerRecipe& l, const LayerPart& part, Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention:
    case Mixer::kLatentAttention: break;
    case Mixer::kShortConv: return {.taps = l.conv.taps, .channels = part.channels.size()};
    case Mixer::kDeltaRule: {
      const DeltaRule& d = l.delta;
      const int64_t keys = part.key_heads.size(), values = SizeOf(part.values);
      return {.recurrence = DeltaRuleOp::StateOf(values, d.key_dim, d.value_dim),
              .replay = DeltaRuleOp::ReplayOf(keys, values, d.key_dim, d.value_dim, d.channel_decay ? d.key_dim : 1),
              .taps = d.taps,
              .channels = 2 * keys * d.key_dim + values * d.value_dim};
    }
    case Mixer::kMamba2: {
      const Mamba2& m = l.mamba;
      const int64_t heads = part.mamba.heads.size(), groups = part.mamba.groups.size();
      return {.recurrence = SsmScanOp::StateOf(heads, m.state_dim, m.head_dim),
              .replay = SsmScanOp::ReplayOf(heads, groups, m.state_dim, m.head_dim),
              .taps = m.taps,
              .channels = heads * m.head_dim + 2 * groups * m.state_dim};
    }
  }
  return {};
}

int32_t Planner::CacheOf(Mixer mixer) const {
  const int32_t of = mixer == Mixer::kAttention && layer().attention.cache_of >= 0 ? layer().attention.cache_of : layer_;
  const auto at = std::ranges::find_if(caches_, [&](const LayerCache& c) { return c.layer == of && c.mixer == mixer; });
  return source_.first_cache + static_cast<int32_t>(at - caches_.begin());
}

void Planner::Norm(Role role, Mat<const float> in, Mat<float> out) {
  Add(role, NormOp{.kind = r_.norm,
                   .x = in,
                   .weight = Get(role),
                   .bias = r_.norm == NormKind::kLayer ? GetBias(role) : WeightView{},
                   .eps = r_.norm_eps,
                   .out = out});
}

// `norm`: the norm after the block, if the recipe has such norms. `last`: the block's last matrix; without a norm, its site is charged.
// `part`: the columns of the output that this process has.
void Planner::AddOutput(Role norm, Role last, const Span& part) {
  if (!OwnOutput()) return;
  if (!layer().residual.post_norms) {
    if (part.size() == 0) return;
    const As as(*this, part.size() < r_.d_model ? Work::kOwn : Work::kWhole);
    const Site site{layer_, FactsOf(last).component};
    plan_.ops.push_back({.sites = {site, site},
                         .rows = rows_,
                         .op = GatedAddOp{.y = block_out_.Cols(part.begin, part.size()),
                                          .gate = {},
                                          .scale = layer().residual.scale,
                                          .out = plan_.x.Cols(part.begin, part.size())},
                         .copied = {.all = IsCopy(), .part = {}}});
    return;
  }
  AddNormed(norm, layer().residual.post_norm_eps > 0 ? layer().residual.post_norm_eps : r_.norm_eps, block_out_, plan_.x);
}

// out += the RMS norm of x with the role's weights.
void Planner::AddNormed(Role role, float eps, Mat<const float> x, Mat<float> out) {
  Add(role, NormOp{.kind = NormKind::kRms, .x = x, .weight = Get(role), .bias = {}, .eps = eps, .add_to_out = true, .out = out});
}

// How the input of the role's matrix is packed. What chooses and weighs experts is computed in f32.
ActFormat Planner::FormatFor(Role role) const {
  const bool f32 = role == Role::kRouter || role == Role::kSharedExpertSigmoid;
  const DType type = Get(role).dtype;
  return ActFormatFor(type, ActKindFor(type, f32 ? ActivationMode::kF32 : options_.activations, options_.bf16_dots));
}

ActPack Planner::Pack(Role role, Mat<const float> in, SharedPack* shared) {
  const ActFormat format = FormatFor(role);
  if (shared != nullptr && shared->has_value() && (*shared)->format == format) return **shared;
  const ActPack pack{.format = format, .rows = in.rows, .cols = in.cols, .data = pack_, .groups = {&plan_.whole, 1}};
  Add(role, PackActOp{.x = in, .row_index = {}, .pack = pack});
  if (shared != nullptr) *shared = pack;
  return pack;
}

// The rows of the role's matrix that this process has, and what they give.
void Planner::Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p) {
  if (Get(role).rows > 0) Multiply(role, Pack(role, in, p.shared), out, p);
}

void Planner::Multiply(Role role, const ActPack& pack, Mat<float> out, const Projection& p) {
  if (Get(role).rows == 0) return;
  AddMatMul(role, MatMulOp{.x = pack,
                           .w = Get(role),
                           .bias = p.bias ? GetBias(role) : WeightView{},
                           .activation = p.activation,
                           .add_to_out = p.add_to_out,
                           .out = out,
                           .out_row = {},
                           .work_class = role == Role::kRouter ? WorkClass::kRouter : WorkClass::kLinear});
}

// `part`: the columns of the output that this process has.
Planner::Destination Planner::Out(const Span& part) {
  if (!OwnOutput()) return {plan_.x.Cols(part.begin, part.size()), true};
  return {block_out_.Cols(part.begin, part.size()), std::exchange(block_has_output_, true)};
}

// The last matrix of a mixer or a feed-forward.
void Planner::ProjectOut(Role role, Mat<const float> in, const Span& part) {
  const Destination to = Out(part);
  Project(role, in, to.out, {.add_to_out = to.add});
}

// The same, if each process has some columns of the input. `from`: the component that made them.
void Planner::ProjectOut(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns, const Span& part) {
  const ActPack pack = PackWhole(role, from, own, cols, columns);
  const Destination to = Out(part);
  Multiply(role, pack, to.out, {.add_to_out = to.add});
}

// Scales the input of the role's matrix.
void Planner::Scale(Role role, Mat<float> x, float factor) {
  if (factor != 1) Add(role, ElementwiseOp{.x = x, .scale = factor});
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
    for (const Mixer mixer : kMixers) {
      if (l.mixers.has(mixer)) last = Mix(mixer, normed ? normed_ : plan_.x);
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
  block_has_output_ = false;
  if (l.dense()) DenseFeedForward(in);
  if (l.both()) {
    // Dense feed-forward and experts side by side: each output has a norm, and the block's output is their sum.
    GatherInPlace(FactsOf(Role::kDown).component, block_out_, fed);
    Norm(Role::kDensePostNorm, block_out_, block_out_);
    Norm(Role::kExpertNorm, plan_.x, in);
    std::swap(block_out_, beside_);
    block_has_output_ = false;
  }
  if (l.sparse()) SparseFeedForward(in);
  if (l.both()) {
    GatherInPlace(FactsOf(Role::kExpertDown).component, block_out_, fed);
    std::swap(block_out_, beside_);
    AddNormed(Role::kExpertPostNorm, r_.norm_eps, beside_, block_out_);
    return AddOutput(Role::kFfnPostNorm, Role::kExpertDown, part_.fed);
  }
  EndBlock(Role::kFfnPostNorm, l.sparse() ? Role::kExpertDown : Role::kDown, part_.fed, true, fed);
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

// Returns its last matrix.
Role Planner::Mix(Mixer mixer, Mat<const float> in) {
  switch (mixer) {
    case Mixer::kAttention: Attention(in); break;
    case Mixer::kLatentAttention: LatentAttention(in); break;
    case Mixer::kShortConv: ShortConv(in); return Role::kConvOut;
    case Mixer::kDeltaRule: DeltaNet(in); return Role::kSsmOut;
    case Mixer::kMamba2: Mamba(in); return Role::kSsmOut;
  }
  return Role::kO;
}

}  // namespace tally
