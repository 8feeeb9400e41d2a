// SPDX-License-Identifier: Apache-2.0
// Internal to graph/: what the ops of a plan are made with. A builder has the model and the layer at hand, the buffers that blocks share,
// and the ops that are planned alike in all of them.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/graph/plan.h"

namespace tally {

// Divides one block of memory into buffers. An arena without memory only adds up their sizes; its buffers must not be used.
class Arena {
 public:
  explicit Arena(uint8_t* base = nullptr) : base_(base) {}
  template <class T>
  T* Take(uint64_t n) {
    const uint64_t at = used_;
    used_ = SaturatingAdd(used_, SaturatingMul(n / (64 / sizeof(T)) + 1, 64));
    alignas(64) static uint8_t nowhere[64];
    return reinterpret_cast<T*>(base_ != nullptr ? base_ + at : nowhere);
  }
  uint64_t used() const { return used_; }

 private:
  uint8_t* base_;
  uint64_t used_ = 0;
};

// The cache or state of earlier positions that a mixer of a layer keeps.
struct LayerCache {
  int32_t layer = 0;
  Mixer mixer{};
  int32_t window = 0;      // positions that a query sees, its own included; 0: all
  KvLayout layout = {};    // of attention
  StateLayout state = {};  // of a recurrent mixer
  bool recurrent = false;
  // True if the shard keeps nothing of it.
  bool empty() const { return recurrent ? state.channels == 0 : layout.kv_heads == 0; }
};
// In the order of KvLayers.
std::vector<LayerCache> LayerCaches(const Recipe& recipe, KvType type, const Shard& shard);

class PlanBuilder {
 public:
  // The pack of a block's input: matrices of one format share it.
  using SharedPack = std::optional<ActPack>;
  struct Projection {
    bool add_to_out = false;
    bool bias = true;  // if the role has one
    ActivationKind activation = ActivationKind::kNone;
    SharedPack* shared = nullptr;
  };
  // The destination of a block's last op: the residual stream, to which it adds, or the block's output, to which the second and later
  // parts of a block are added.
  struct Destination {
    Mat<float> out;
    bool add = false;
  };
  struct RopeTurns {
    Mat<float> cos, sin;  // [max_batch, dim / 2]
  };
  // The columns of a matrix that a process has; `part`: of the layer at hand.
  using Columns = std::function<std::vector<Span>(const Shard& shard, const LayerPart& part)>;
  // A part of the planned work. kWhole: every process does it, and all but the first make copies; kOwn: each does its part.
  enum class Work : uint8_t { kWhole, kOwn };
  // The work of heads, or of what heads share, of which a process of a lower rank may have the same.
  static Work WorkOf(bool copy) { return copy ? Work::kWhole : Work::kOwn; }
  // Sets the work of what is planned while it lives.
  class As {
   public:
    As(PlanBuilder& builder, Work work) : builder_(builder), before_(std::exchange(builder.work_, work)) {}
    As(const As&) = delete;
    As& operator=(const As&) = delete;
    ~As() { builder_.work_ = before_; }

   private:
    PlanBuilder& builder_;
    Work before_;
  };

  PlanBuilder(const PlanSource& source, const PlanOptions& options, Arena& arena, Plan& plan)
      : r_(source.recipe),
        source_(source),
        options_(options),
        arena_(arena),
        plan_(plan),
        shard_(source.shard),
        n_(options.max_batch),
        caches_(LayerCaches(r_, options.kv, shard_)) {}
  PlanBuilder(const PlanBuilder&) = delete;  // planners of blocks refer to it
  PlanBuilder& operator=(const PlanBuilder&) = delete;

  const Recipe& recipe() const { return r_; }
  const PlanOptions& options() const { return options_; }
  const Shard& shard() const { return shard_; }
  int64_t max_batch() const { return n_; }
  Plan& plan() { return plan_; }
  // Of the layer at hand.
  const LayerRecipe& layer() const {
    assert(layer_ >= 0);
    return r_.layer(layer_);
  }
  const LayerPart& part() const { return part_; }

  // Buffers.
  template <class T>
  T* Take(uint64_t n) {
    return arena_.Take<T>(n);
  }
  Mat<float> Floats(int64_t cols, int64_t rows_each = 1);  // [max_batch rows_each, cols]
  // The first columns of a buffer, packed: layers differ in width, and their rows follow one another.
  Mat<float> First(Mat<float> buffer, int64_t cols) const { return {buffer.data, n_, cols}; }
  // Room in buffers that blocks share, asked for before any op is planned: for the widest input of a matrix, to gather so many columns, to
  // send so many of a matrix with gaps between its rows, for hidden units of a feed-forward, and for attention of so many heads that is
  // split over positions (PlanOptions::split_rows rows of all heads, or more rows if heads are few).
  void Widest(int64_t cols) { widest_ = std::max(widest_, cols); }
  void Room(int64_t cols, int64_t rows_each = 1);
  void RoomForGaps(int64_t cols) { gapped_ = std::max(gapped_, cols); }
  void RoomForHidden(int64_t cols) { hidden_cols_ = std::max(hidden_cols_, cols); }
  void RoomForPartials(int64_t heads, int64_t v_dim);
  // These buffers.
  uint8_t* pack() const { return pack_; }
  Mat<float> hidden(int64_t rows, int64_t cols) const { return {hidden_.data, rows, cols}; }
  Mat<float> up(int64_t rows, int64_t cols);  // taken when it is first used
  AttentionPartials partials(int64_t heads) const;
  // The step's: of a rope that some layer has, of tempered layers.
  const RopeTurns& turns(LayerRope rope) const { return turns_[rope == LayerRope::kLocal ? 1 : 0]; }
  Mat<float> temperature() const { return temperature_; }

  // Weights of the layer at hand.
  WeightView Get(Role role) const { return source_.weight(role, layer_); }
  WeightView GetBias(Role role) const { return FactsOf(role).biased ? Get(BiasOf(role)) : WeightView(); }

  // Ops. A role is charged at the site of its weight.
  template <class Op>
  void Add(std::initializer_list<Component> parts, Op op) {
    PlannedOp& planned = plan_.ops.emplace_back();
    for (const Component part : parts) planned.sites.push_back({layer_, part});
    planned.rows = planned.input_rows = rows_;
    planned.op = std::move(op);
    planned.copied.all = IsCopy();
  }
  template <class Op>
  void Add(Component component, Op op) {
    Add({component}, std::move(op));
  }
  template <class Op>
  void Add(Role role, Op op) {
    Add({FactsOf(role).component}, std::move(op));
  }
  PlannedOp& last() { return plan_.ops.back(); }
  // The rows of what is planned from now on.
  RowsOf rows() const { return rows_; }
  void SetRows(RowsOf rows) { rows_ = rows; }

  void Norm(Role role, Mat<const float> in, Mat<float> out);
  ActFormat FormatFor(Role role) const;
  ActPack Pack(Role role, Mat<const float> in, SharedPack* shared = nullptr);
  ActPack PackRouted(Role role, Mat<const float> in, const int32_t* index, RowsOf of);
  void Project(Role role, Mat<const float> in, Mat<float> out) { Project(role, in, out, {}); }
  void Project(Role role, Mat<const float> in, Mat<float> out, const Projection& p);
  void Multiply(Role role, const ActPack& pack, Mat<float> out, const Projection& p);
  void AddMatMul(Role role, MatMulOp op);
  void Scale(Role role, Mat<float> x, float factor);

  // The last matrix of a block. `part`: the columns of the output that this process has.
  void ProjectOut(Role role, Mat<const float> in, const Span& part);
  // The same, if each process has some columns of the input. `from`: the component that made them.
  void ProjectOut(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns, const Span& part);
  Destination Out(const Span& part);
  // Where all parts of a block are added up.
  Mat<float> BlockOut() const { return OwnOutput() ? block_out_ : plan_.x; }

  // If the role's experts are read from disk: adds the op that books it, and begins the ops that run for some experts at a time. False:
  // they are in memory.
  bool Fetch(Role role);
  // If the matrices of the layer at hand are read from disk: adds the op that books it, at the site of the first of them. False: they
  // are in memory.
  bool FetchLayer();

  // What the mixer keeps of earlier positions, an index of KvLayers. `of`: another layer's; -1: of the layer at hand.
  int32_t CacheOf(Mixer mixer, int32_t of = -1) const;
  std::span<const KvRow> Rows() const { return {plan_.kv_rows, static_cast<size_t>(n_)}; }
  StateRuns Runs() const { return {{plan_.state_runs, static_cast<size_t>(n_)}, {plan_.state_order, static_cast<size_t>(n_)}}; }

  // Several processes that run one model (plan_builder_shard.cc).
  //
  // True if a process of a lower rank does what is planned too.
  bool IsCopy() const { return shard_.rank > 0 && (work_ == Work::kWhole || (mixing_ && shard_.whole_mixers)); }
  Work work() const { return work_; }
  // True if a process of a lower rank has rows of the role's weight too.
  bool SharesRows(Role role) const { return HeldOf(r_, shard_, role, layer_).copied() > 0; }
  Mat<float> Whole(Component component, Mat<float> own, int64_t cols, const Columns& columns, float* to = nullptr);
  ActPack PackWhole(Role role, Component from, Mat<float> own, int64_t cols, const Columns& columns);
  void GatherInPlace(Component component, Mat<float> m, const Columns& columns);
  Mat<float> GatherSlots(Mat<float> own);
  void CopiedWeights(std::initializer_list<WeightView> weights);

 protected:
  // True if a block has an output of its own, which is brought into the residual stream afterwards.
  bool OwnOutput() const { return layer().residual.own_output(); }
  // Of packs.
  uint64_t PackBytes() const;
  LayerPart PartOn(const Shard& shard) const;
  bool IsDivided(const Columns& columns, int64_t cols) const;
  GatherRoom& NewGather(const Columns& columns);

  const Recipe& r_;
  const PlanSource& source_;
  const PlanOptions& options_;
  Arena& arena_;
  Plan& plan_;
  const Shard shard_;
  LayerPart part_;  // of the layer at hand
  Work work_ = Work::kWhole;
  bool mixing_ = false;  // true while a mixer is planned
  const int64_t n_;      // max_batch
  const std::vector<LayerCache> caches_;
  int32_t layer_ = -1;
  RowsOf rows_ = RowsOf::kBatch;
  bool block_has_output_ = false;

  int64_t widest_ = 0, gapped_ = 0, hidden_cols_ = 1;
  uint64_t gathered_floats_ = 0, partial_floats_ = 0;
  std::span<float> sent_, received_;
  float* gathered_ = nullptr;
  uint8_t *pack_ = nullptr, *own_pack_ = nullptr;
  Mat<float> block_out_, hidden_, up_, temperature_;
  RopeTurns turns_[2];          // of Recipe::rope and local_rope
  AttentionPartials partials_;  // without data until all layers have asked for room
};

}  // namespace tally
