// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/plan_builder.h"

#include <algorithm>

#include "engine/graph/block_planner.h"

namespace tally {
namespace {

constexpr int64_t kFewQueries = 32;  // rows times heads that may be split over positions, at least

int64_t QueriesToSplit(int64_t heads, int64_t rows) { return std::max(heads * rows, kFewQueries); }

}  // namespace

std::vector<LayerCache> LayerCaches(const Recipe& r, KvType type, const Shard& shard) {
  std::vector<LayerCache> caches;
  for (int32_t i = r.first_layer; i < r.end_layer(); ++i) {
    const LayerRecipe& l = r.layer(i);
    const LayerPart part = PartOfLayer(r, shard, i);
    for (size_t m = 0; m < std::size(kMixerPlans); ++m) {
      const Mixer mixer = static_cast<Mixer>(m);
      if (!l.mixers.has(mixer) || kMixerPlans[m]->cache == nullptr) continue;
      if (std::optional<LayerCache> cache = kMixerPlans[m]->cache(l, part, type)) {
        cache->layer = i;
        cache->mixer = mixer;
        caches.push_back(*cache);
      }
    }
  }
  return caches;
}

bool PlanBuilder::Fetch(Role role) {
  const WeightView weight = Get(role);
  if (weight.slots == nullptr) return false;
  const int64_t layer = source_.experts->IndexOf(layer_);
  plan_.fetched.push_back({.op = plan_.ops.size()});
  Add(role, FetchOp{.layer = layer,
                    .weight = weight,
                    .record_bytes = source_.experts->DiskBytes(static_cast<size_t>(layer)),
                    .missed = {}});
  return true;
}

bool PlanBuilder::FetchLayer() {
  const int64_t layer = source_.layers != nullptr ? source_.layers->IndexOf(layer_) : -1;
  if (layer < 0) return false;
  const WeightId first = source_.layers->layers()[static_cast<size_t>(layer)].parts[0].weight;
  int role = 0;
  while (role + 1 < kRoles && Get(static_cast<Role>(role)).id != first) ++role;
  const As as(*this, Work::kOwn);
  plan_.streamed.push_back({.op = plan_.ops.size()});
  Add(static_cast<Role>(role),
      FetchOp{
          .layer = layer, .weight = {}, .record_bytes = source_.layers->DiskBytes(static_cast<size_t>(layer)), .whole = true});
  return true;
}

int32_t PlanBuilder::CacheOf(Mixer mixer, int32_t of) const {
  const int32_t layer = of >= 0 ? of : layer_;
  const auto at = std::ranges::find_if(caches_, [&](const LayerCache& c) { return c.layer == layer && c.mixer == mixer; });
  return source_.first_cache + static_cast<int32_t>(at - caches_.begin());
}

Mat<float> PlanBuilder::Floats(int64_t cols, int64_t rows_each) {
  const uint64_t rows = SaturatingMul(static_cast<uint64_t>(n_), static_cast<uint64_t>(rows_each));
  return {arena_.Take<float>(SaturatingMul(rows, static_cast<uint64_t>(cols))), n_ * rows_each, cols};
}

Mat<float> PlanBuilder::up(int64_t rows, int64_t cols) {
  if (up_.cols == 0) up_ = Floats(hidden_.cols);
  return {up_.data, rows, cols};
}

uint64_t PlanBuilder::PackBytes() const {
  return SaturatingAdd(SaturatingMul(static_cast<uint64_t>(n_), 4 * RoundUp(static_cast<uint64_t>(widest_), 2)), 64);
}

void PlanBuilder::RoomForPartials(int64_t heads, int64_t v_dim) {
  const int64_t ranges = options_.context / (kRangeBlocks * kKvBlock) + 1;
  if (options_.context == 0 || ranges < 2) return;
  const uint64_t floats =
      SaturatingMul(static_cast<uint64_t>(QueriesToSplit(heads, options_.split_rows) * AttentionPartials::PartialFloats(v_dim)),
                    static_cast<uint64_t>(ranges));
  partials_.ranges = ranges;
  partial_floats_ = std::max(partial_floats_, floats);
}

AttentionPartials PlanBuilder::partials(int64_t heads) const {
  AttentionPartials partials = partials_;
  partials.queries = QueriesToSplit(heads, options_.split_rows);
  return partials;
}

void PlanBuilder::Norm(Role role, Mat<const float> in, Mat<float> out) {
  Add(role, NormOp{.kind = r_.norm,
                   .x = in,
                   .weight = Get(role),
                   .bias = r_.norm == NormKind::kLayer ? GetBias(role) : WeightView{},
                   .eps = r_.norm_eps,
                   .out = out});
}

// How the input of the role's matrix is packed. What chooses and weighs experts is computed in f32.
ActFormat PlanBuilder::FormatFor(Role role) const {
  const bool f32 = role == Role::kRouter || role == Role::kSharedExpertSigmoid;
  const DType type = Get(role).dtype;
  return ActFormatFor(type, ActKindFor(type, f32 ? ActivationMode::kF32 : options_.activations, options_.bf16_dots));
}

ActPack PlanBuilder::Pack(Role role, Mat<const float> in, SharedPack* shared) {
  const ActFormat format = FormatFor(role);
  if (shared != nullptr && shared->has_value() && (*shared)->format == format) return **shared;
  const ActPack pack{.format = format, .rows = in.rows, .cols = in.cols, .data = pack_, .groups = {&plan_.whole, 1}};
  Add(role, PackActOp{.x = in, .row_index = {}, .pack = pack});
  if (shared != nullptr) *shared = pack;
  return pack;
}

// Packs rows for the experts' matrix of a role: row i of the pack is row index[i] of `in`, or row i without an index. `of`: the rows that
// `in` has.
ActPack PlanBuilder::PackRouted(Role role, Mat<const float> in, const int32_t* index, RowsOf of) {
  const int64_t routed = n_ * layer().experts.top_k;
  const ActPack pack{.format = FormatFor(role), .rows = routed, .cols = in.cols, .data = pack_, .groups = {plan_.groups, 0}};
  Add(role, PackActOp{.x = in, .row_index = {index, index != nullptr ? static_cast<size_t>(routed) : 0}, .pack = pack});
  plan_.ops.back().input_rows = of;
  return pack;
}

// The rows of the role's matrix that this process has, and what they give.
void PlanBuilder::Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p) {
  if (Get(role).rows > 0) Multiply(role, Pack(role, in, p.shared), out, p);
}

void PlanBuilder::Multiply(Role role, const ActPack& pack, Mat<float> out, const Projection& p) {
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
PlanBuilder::Destination PlanBuilder::Out(const Span& part) {
  if (!OwnOutput()) return {plan_.x.Cols(part.begin, part.size()), true};
  return {block_out_.Cols(part.begin, part.size()), std::exchange(block_has_output_, true)};
}

void PlanBuilder::ProjectOut(Role role, Mat<const float> in, const Span& part) {
  const Destination to = Out(part);
  Project(role, in, to.out, {.add_to_out = to.add});
}

void PlanBuilder::ProjectOut(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns, const Span& part) {
  const ActPack pack = PackWhole(role, from, own, cols, columns);
  const Destination to = Out(part);
  Multiply(role, pack, to.out, {.add_to_out = to.add});
}

// Scales the input of the role's matrix.
void PlanBuilder::Scale(Role role, Mat<float> x, float factor) {
  if (factor != 1) Add(role, ElementwiseOp{.x = x, .scale = factor});
}

}  // namespace tally
