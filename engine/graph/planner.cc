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
  plan_.own_experts = !shard_.alone() && shard_.own_experts && AnyLayer(r_, &LayerRecipe::sparse);
  plan_.experts = plan_.own_experts ? tally::PartOf(r_.n_experts, 1, shard_) : Span{0, r_.n_experts};
  plan_.embedded.clear();
  if (r_.alibi_bias > 0) plan_.slopes = AlibiSlopes(r_.n_heads, r_.alibi_bias);
  if (source_.prediction) return Predict();
  Buffers();
  Embed();
  for (layer_ = 0; layer_ < r_.n_layers; ++layer_) Layer();
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
  const int64_t k = sparse ? r_.top_k : 0;
  int64_t hidden = std::max({sparse ? int64_t{r_.top_k} * r_.d_expert : 0, int64_t{r_.d_shared}, int64_t{1}});
  for (const LayerRecipe& l : r_.layers) hidden = std::max(hidden, l.dense() ? int64_t{SizesOf(r_, l).d_ff} : 0);
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
  plan_.groups = arena_.Take<RowGroup>(static_cast<uint64_t>(std::max(r_.n_experts, 0)));
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
  if (r_.residual == Residual::kParallel) ffn_normed_ = Floats(E);
  if (OwnOutput() || r_.layer_embedding > 0) block_out_ = Floats(E);
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
    const int64_t space = r_.expert_latent > 0 ? r_.expert_latent : E;
    if (r_.expert_latent > 0) {
      latent_in_ = Floats(space);
      latent_out_ = Floats(space);
    }
    expert_out_ = Floats(space, k);
    Room(space, k);
    if (r_.weighted_expert_inputs) expert_in_ = Floats(space, k);
    router_ = Floats(r_.n_experts);
    route_weights_ = Floats(k);
    route_experts_ = {arena_.Take<int32_t>(routed), n_, k};
  }
  if (AnyLayer(r_, &LayerRecipe::both)) beside_ = Floats(E);
  if (r_.router_norm) router_in_ = Floats(E);
  if (r_.layer_embedding > 0) {
    const int64_t all = int64_t{r_.n_layers} * r_.layer_embedding;
    layer_inputs_ = Floats(all);
    layer_given_ = Floats(all);
    layer_gate_ = Floats(r_.layer_embedding);
    Widest(r_.layer_embedding);
    Room(all);
  }
  if (r_.shared_gate) {
    shared_out_ = Floats(E);
    shared_gate_ = Floats(1);
  }
  // f32 packs are the largest: one row of the widest input, or one for each slot of an expert's inputs.
  Widest(std::max({E, hidden, k * std::max<int64_t>(E, r_.expert_latent)}));
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
  for (int32_t i = 0; i < static_cast<int32_t>(r.layers.size()); ++i) {
    const LayerRecipe& l = r.layers[static_cast<size_t>(i)];
    const int32_t seen = std::max(l.window, l.chunk);
    const LayerPart part = PartOfLayer(r, shard, i);
    for (const Mixer mixer : kMixers) {
      if (!l.mixers.has(mixer)) continue;
      switch (mixer) {
        case Mixer::kAttention:
          if (l.cache_of < 0) caches.push_back({i, mixer, seen, AttentionLayout(r, l, part, type), {}});
          break;
        case Mixer::kLatentAttention: caches.push_back({i, mixer, seen, LatentLayout(r, part, type), {}}); break;
        case Mixer::kShortConv:
        case Mixer::kDeltaRule:
        case Mixer::kMamba2:
          caches.push_back(
              {.layer = i, .mixer = mixer, .layout = {}, .state = RecurrentLayout(r, part, mixer), .recurrent = true});
          break;
      }
    }
  }
  return caches;
}

StateLayout RecurrentLayout(const Recipe& r, const LayerPart& part, Mixer mixer) {
  switch (mixer) {
    case Mixer::kAttention:
    case Mixer::kLatentAttention: break;
    case Mixer::kShortConv: return {.taps = r.conv_taps, .channels = part.channels.size()};
    case Mixer::kDeltaRule: {
      const DeltaRule& d = r.delta;
      const int64_t keys = part.key_heads.size(), values = SizeOf(part.values);
      return {.recurrence = DeltaRuleOp::StateOf(values, d.key_dim, d.value_dim),
              .replay = DeltaRuleOp::ReplayOf(keys, values, d.key_dim, d.value_dim, d.channel_decay ? d.key_dim : 1),
              .taps = r.conv_taps,
              .channels = 2 * keys * d.key_dim + values * d.value_dim};
    }
    case Mixer::kMamba2: {
      const Mamba2& m = r.mamba;
      const int64_t heads = part.mamba.heads.size(), groups = part.mamba.groups.size();
      return {.recurrence = SsmScanOp::StateOf(heads, m.state_dim, m.head_dim),
              .replay = SsmScanOp::ReplayOf(heads, groups, m.state_dim, m.head_dim),
              .taps = r.conv_taps,
              .channels = heads * m.head_dim + 2 * groups * m.state_dim};
    }
  }
  return {};
}

int32_t Planner::CacheOf(Mixer mixer) const {
  const int32_t of = mixer == Mixer::kAttention && layer().cache_of >= 0 ? layer().cache_of : layer_;
  const auto at = std::ranges::find_if(caches_, [&](const LayerCache& c) { return c.layer == of && c.mixer == mixer; });
  return static_cast<int32_t>(at - caches_.begin());
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
  if (!r_.post_norms) {
    if (part.size() == 0) return;
    const As as(*this, part.size() < r_.d_model ? Work::kOwn : Work::kWhole);
    const Site site{layer_, FactsOf(last).component};
    plan_.ops.push_back({.sites = {site, site},
                         .rows = rows_,
                         .op = GatedAddOp{.y = block_out_.Cols(part.begin, part.size()),
                                          .gate = {},
                                          .scale = r_.residual_scale,
                                          .out = plan_.x.Cols(part.begin, part.size())},
                         .copied = {.all = IsCopy(), .part = {}}});
    return;
  }
  AddNormed(norm, r_.post_norm_eps > 0 ? r_.post_norm_eps : r_.norm_eps, block_out_, plan_.x);
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
  if (!source_.prediction) {
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
    return AnyLayer(r_, [&](const LayerRecipe& l) { return l.attends() && l.rope == which; });
  };
  if (used(LayerRope::kGlobal)) Turns(r_.rope, source_.rope, turns_[0]);
  if (used(LayerRope::kLocal)) Turns(r_.local_rope, source_.local_rope, turns_[1]);
  if (r_.temperature_scale != 0 && (r_.temperature_everywhere || used(LayerRope::kNone))) {
    temperature_ = Floats(1);
    Add(Component::kAttention, TemperatureOp{.positions = {plan_.positions, n},
                                             .scale = r_.temperature_scale,
                                             .offset = r_.temperature_offset,
                                             .floor = r_.temperature_floor,
                                             .out = temperature_});
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
  Add(Role::kLayerGate, ElementwiseOp{.x = layer_gate_, .up = layer_inputs_.Cols(layer_ * P, P), .activation = r_.activation});
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
  const bool normed = r_.pre_norms && !r_.stream_norms;  // a block's input
  const Mat<float> ffn_in = !normed ? plan_.x : r_.residual == Residual::kParallel ? ffn_normed_ : normed_;
  if (!l.mixers.empty()) {
    if (normed) Norm(Role::kAttnNorm, plan_.x, normed_);
    if (r_.residual == Residual::kParallel) Norm(Role::kFfnNorm, plan_.x, ffn_in);
    block_has_output_ = false;
    Role last{};
    mixing_ = true;
    for (const Mixer mixer : kMixers) {
      if (l.mixers.has(mixer)) last = Mix(mixer, normed ? normed_ : plan_.x);
    }
    mixing_ = false;
    const bool ends = r_.residual == Residual::kSequential || l.feed_forward.empty() || !IsDivided(fed, r_.d_model);
    EndBlock(Role::kAttnPostNorm, last, part_.mixed, ends, [](const Shard&, const LayerPart& p) { return std::vector{p.mixed}; });
    if (r_.stream_norms) Norm(Role::kAttnNorm, plan_.x, plan_.x);
  }
  if (!l.feed_forward.empty()) FeedForwards(ffn_in);
  if (r_.layer_embedding > 0) LayerEmbedding();
  if (r_.layer_scale) Add(Role::kLayerScale, ElementwiseOp{.x = plan_.x, .factor = Get(Role::kLayerScale)});
}

void Planner::FeedForwards(Mat<float> in) {
  const LayerRecipe& l = layer();
  const Columns fed = [](const Shard&, const LayerPart& p) { return std::vector{p.fed}; };
  if (r_.pre_norms && !r_.stream_norms && r_.residual == Residual::kSequential) Norm(Role::kFfnNorm, plan_.x, in);
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
  if (r_.stream_norms) Norm(Role::kFfnNorm, plan_.x, plan_.x);
}

// The block's output joins the residual stream, of which each process then has all columns. `ends`: nothing else is added to the same
// columns.
void Planner::EndBlock(Role norm, Role last, const Span& part, bool ends, const Columns& columns) {
  const Component component = FactsOf(last).component;
  if (r_.post_norms) GatherInPlace(component, block_out_, columns);
  AddOutput(norm, last, part);
  if (!r_.post_norms && ends) GatherInPlace(component, plan_.x, columns);
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

void Planner::DenseFeedForward(Mat<const float> in) {
  const Mat<float> hidden = First(hidden_, part_.hidden.size());
  FirstMatrices(Role::kGate, Role::kUp, in, hidden);
  ScaleHidden(Role::kDown, hidden, sizes().d_ff);
  ProjectOut(
      Role::kDown, FactsOf(Role::kUp).component, hidden, sizes().d_ff,
      [](const Shard&, const LayerPart& p) { return std::vector{p.hidden}; }, part_.fed);
}

// Scales this process's columns of the input of the role's matrix.
void Planner::ScaleHidden(Role role, Mat<float> own, int64_t cols) {
  if (own.cols == 0) return;
  const As as(*this, own.cols < cols ? Work::kOwn : Work::kWhole);
  Scale(role, own, r_.scales.down);
}

// Makes the input of a feed-forward's last matrix: act(gate) * up, or act(up) without gates. Two matrices of one type share one op.
// Otherwise each has its own, and a third op does the product. `index`, `of`: for experts, as in PackRouted.
void Planner::FirstMatrices(Role gate, Role up, Mat<const float> in, Mat<float> hidden, const int32_t* index, RowsOf of) {
  if (hidden.cols == 0 || Get(up).rows == 0) return;
  const Work packing = work_;
  const auto pack = [&](Role role) { return rows_ == RowsOf::kRouted ? PackRouted(role, in, index, of) : Pack(role, in); };
  const bool experts = up == Role::kExpertUp;
  if (!r_.gated_ffn || (experts && r_.ungated_experts)) {
    const bool xielu = r_.activation == ActivationKind::kXielu;
    const ActPack of_up = pack(up);
    AddMatMul(up, MatMulOp{.x = of_up,
                           .w = Get(up),
                           .bias = GetBias(up),
                           .activation = xielu ? ActivationKind::kNone : r_.activation,
                           .out = hidden,
                           .out_row = {}});
    return xielu ? ApplyXielu(up, hidden) : void();
  }
  const float limit = experts ? layer().expert_limit : up == Role::kSharedExpertUp ? layer().shared_limit : 0;
  const ActivationKind activation = limit > 0 ? ActivationKind::kSwigluLimited : r_.activation;
  const float swiglu_limit = limit > 0 ? limit : r_.swiglu_limit;
  ActPack x = pack(gate);
  const As as(*this, HeldOf(r_, shard_, up, layer_).copied() > 0 ? Work::kWhole : Work::kOwn);
  if (Get(gate).dtype == Get(up).dtype && r_.scales.gate == 1) {
    return Add(gate, GatedMatMulOp{.x = x,
                                   .gate = Get(gate),
                                   .up = Get(up),
                                   .gate_bias = GetBias(gate),
                                   .up_bias = GetBias(up),
                                   .activation = activation,
                                   .swiglu_alpha = r_.swiglu_alpha,
                                   .swiglu_limit = swiglu_limit,
                                   .out = hidden});
  }
  if (up_.cols == 0) up_ = Floats(hidden_.cols);
  const Mat<float> of_up(up_.data, hidden.rows, hidden.cols);
  Add(gate, MatMulOp{.x = x, .w = Get(gate), .bias = GetBias(gate), .out = hidden, .out_row = {}});
  if (!(x.format == FormatFor(up))) {
    const As as_before(*this, packing);
    x = pack(up);
  }
  Add(up, MatMulOp{.x = x, .w = Get(up), .bias = GetBias(up), .out = of_up, .out_row = {}});
  Add(gate, ElementwiseOp{.x = hidden,
                          .scale = r_.scales.gate,
                          .up = of_up,
                          .activation = activation,
                          .swiglu_alpha = r_.swiglu_alpha,
                          .swiglu_limit = swiglu_limit});
}

// Applies xIELU to the output of the role's matrix.
void Planner::ApplyXielu(Role role, Mat<float> hidden) {
  const bool stored = r_.stored_xielu;
  const WeightView n = stored ? Get(Role::kXieluN) : WeightView(), p = stored ? Get(Role::kXieluP) : WeightView();
  const As as(*this, HeldOf(r_, shard_, role, layer_).copied() > 0 ? Work::kWhole : Work::kOwn);
  Add(role, ElementwiseOp{.x = hidden, .activation = ActivationKind::kXielu, .xielu = layer().xielu, .alpha_n = n, .alpha_p = p});
  if (stored) CopiedWeights({n, p});
}

// Packs rows for the experts' matrix of a role: row i of the pack is row index[i] of `in`, or row i without an index. `of`: the rows that
// `in` has.
ActPack Planner::PackRouted(Role role, Mat<const float> in, const int32_t* index, RowsOf of) {
  const int64_t routed = n_ * r_.top_k;
  const ActPack pack{.format = FormatFor(role), .rows = routed, .cols = in.cols, .data = pack_, .groups = {plan_.groups, 0}};
  Add(role, PackActOp{.x = in, .row_index = {index, index != nullptr ? static_cast<size_t>(routed) : 0}, .pack = pack});
  plan_.ops.back().input_rows = of;
  return pack;
}

void Planner::SparseFeedForward(Mat<float> in) {
  const int64_t routed = n_ * r_.top_k;
  const bool choice_bias = SoftmaxOfAll(r_.routing) || SigmoidOfAll(r_.routing);
  if (r_.router_norm) Norm(Role::kRouterNorm, plan_.x, router_in_);
  Project(Role::kRouter, r_.router_norm ? router_in_ : in, router_, {.bias = !choice_bias});
  Add(Role::kRouter, RouteOp{.logits = router_,
                             .top_k = r_.top_k,
                             .rule = r_.routing,
                             .bias = choice_bias ? GetBias(Role::kRouter) : WeightView{},
                             .groups = r_.expert_groups,
                             .kept_groups = r_.kept_groups,
                             .group_best = r_.group_best,
                             .scale = r_.route_scale,
                             .expert_scale = r_.expert_scale ? Get(Role::kExpertScale) : WeightView{},
                             .sum_eps = r_.route_sum_eps,
                             .experts = route_experts_,
                             .weights = route_weights_});
  const Mat<float> hidden(hidden_.data, routed, part_.expert_hidden.size());
  const bool latent = r_.expert_latent > 0;
  if (latent) Project(Role::kLatentIn, in, latent_in_);
  const Mat<const float> x = latent ? Mat<const float>(latent_in_) : in;
  if (r_.weighted_expert_inputs) {
    Add(Component::kMoeCombine, ScaleRowsOp{.x = x, .weights = route_weights_, .out = expert_in_});
  }
  rows_ = RowsOf::kRouted;
  const bool owned = plan_.own_experts;
  const As experts(*this, owned ? Work::kOwn : Work::kWhole);
  const bool weighted = r_.weighted_expert_inputs;
  FirstMatrices(Role::kExpertGate, Role::kExpertUp, weighted ? expert_in_ : x, hidden,
                weighted ? plan_.group_slots : plan_.group_tokens, weighted ? RowsOf::kSlots : RowsOf::kBatch);
  ScaleHidden(Role::kExpertDown, hidden, r_.d_expert);
  const ActPack pack = PackWhole(Role::kExpertDown, FactsOf(Role::kExpertUp).component, hidden, r_.d_expert,
                                 [](const Shard&, const LayerPart& p) { return std::vector{p.expert_hidden}; });
  const Span& part = latent ? part_.latent : part_.fed;
  Mat<float> given(expert_out_.data, routed, part.size());
  const std::span<const int32_t> slots(plan_.group_slots, static_cast<size_t>(routed));
  if (Get(Role::kExpertDown).rows > 0) {
    AddMatMul(Role::kExpertDown, MatMulOp{.x = pack,
                                          .w = Get(Role::kExpertDown),
                                          .bias = GetBias(Role::kExpertDown),
                                          .out = given,
                                          .out_row = owned ? std::span<const int32_t>() : slots});
  }
  if (owned) given = GatherSlots(given);
  rows_ = RowsOf::kBatch;
  const Destination to = latent ? Destination{latent_out_.Cols(part.begin, part.size()), false} : Out(part);
  if (part.size() > 0) {
    const As as(*this, owned ? Work::kWhole : Work::kOwn);
    Add(Component::kMoeCombine,
        MoeCombineOp{
            .y = given, .weights = route_weights_, .weighted = !r_.weighted_expert_inputs, .add_to_out = to.add, .out = to.out});
  }
  const As after(*this, Work::kWhole);
  if (latent) {
    GatherInPlace(Component::kMoeCombine, latent_out_, [](const Shard&, const LayerPart& p) { return std::vector{p.latent}; });
    ProjectOut(Role::kLatentOut, latent_out_, part_.fed);
  }
  if (r_.d_shared > 0) SharedExperts(in, (OwnOutput() ? block_out_ : plan_.x).Cols(part_.fed.begin, part_.fed.size()));
  if (r_.shared_activation && part_.fed.size() > 0) SharedActivation(in.Cols(part_.fed.begin, part_.fed.size()));
}

// Takes the place of shared experts: adds act(in), and overwrites `in`.
void Planner::SharedActivation(Mat<float> in) {
  const As as(*this, in.cols < r_.d_model ? Work::kOwn : Work::kWhole);
  Add(Role::kSharedExpertUp, ElementwiseOp{.x = in, .activation = r_.activation});
  const Site site{layer_, FactsOf(Role::kSharedExpertDown).component};
  plan_.ops.push_back({.sites = {site, site},
                       .rows = rows_,
                       .op = GatedAddOp{.y = in, .out = (OwnOutput() ? block_out_ : plan_.x).Cols(part_.fed.begin, in.cols)},
                       .copied = {.all = IsCopy(), .part = {}}});
}

// Adds the shared experts' output to `out`, through their gate if they have one.
void Planner::SharedExperts(Mat<const float> in, Mat<float> out) {
  const Mat<float> hidden = First(hidden_, part_.shared.size());
  FirstMatrices(Role::kSharedExpertGate, Role::kSharedExpertUp, in, hidden);
  ScaleHidden(Role::kSharedExpertDown, hidden, r_.d_shared);
  const ActPack pack = PackWhole(Role::kSharedExpertDown, FactsOf(Role::kSharedExpertUp).component, hidden, r_.d_shared,
                                 [](const Shard&, const LayerPart& p) { return std::vector{p.shared}; });
  if (out.cols == 0) return;
  if (!r_.shared_gate) return Multiply(Role::kSharedExpertDown, pack, out, {.add_to_out = true});
  const Mat<float> given = First(shared_out_, out.cols);
  Multiply(Role::kSharedExpertDown, pack, given, {});
  Project(Role::kSharedExpertSigmoid, in, shared_gate_);
  const GatedAddOp op{.y = given, .gate = shared_gate_, .out = out};
  // Every process needs the gate.
  const As as(*this, out.cols < r_.d_model ? Work::kOwn : Work::kWhole);
  CopiedWork copied{.all = IsCopy(), .part = {}};
  if (shard_.rank > 0 && !copied.all) {
    GatedAddOp no_columns = op;
    no_columns.y.cols = no_columns.out.cols = 0;
    copied.part = [no_columns](const CostAmounts& n) { return no_columns.Useful(n, 0); };
  }
  plan_.ops.push_back({.sites = {{layer_, Component::kSharedSigmoid}, {layer_, Component::kSharedDown}},
                       .rows = rows_,
                       .op = op,
                       .copied = std::move(copied)});
}

}  // namespace tally
