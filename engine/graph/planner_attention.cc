// SPDX-License-Identifier: Apache-2.0
// The block of attention, and what it shares with latent attention.
#include <algorithm>

#include "engine/graph/planner_heads.h"

namespace tally {
namespace {

KvLayout AttentionLayout(const LayerRecipe& l, const LayerPart& part, KvType type) {
  return {.type = type, .kv_heads = part.attention.groups.size(), .k_dim = l.attention.head_dim};
}

class AttentionPlanner final : public HeadsPlanner {
 public:
  explicit AttentionPlanner(PlanBuilder& builder) : HeadsPlanner(builder, Mixer::kAttention) {}
  void Buffers() override;
  Role Make(Mat<float> in) override;

 private:
  Mat<float> PlanHeads(Mat<const float> in);
  void QkNorms(Mat<float> q, Mat<float> k);
  void WholeQkNorms(Mat<float>& q, Mat<float>& k);
  void QkNorm(Role role, Mat<float> x, int64_t groups);

  Mat<float> q_, k_, v_, attended_, attn_gate_;
  float *whole_q_ = nullptr, *whole_k_ = nullptr;
};

void AttentionPlanner::Buffers() {
  // Of the widest layers; made: by the matrix of queries or of all three; split: of layers with three.
  int64_t q = 0, kv = 0, made = 0, split = 0;
  bool gate = false, whole = false;
  for (const LayerRecipe& l : b_.recipe().layers) {
    if (!l.mixers.has(Mixer::kAttention)) continue;
    const auto& a = l.attention;
    const int64_t of_q = int64_t{a.n_heads} * a.head_dim, of_kv = int64_t{a.n_kv_heads} * a.head_dim;
    q = std::max(q, of_q);
    kv = std::max(kv, of_kv);
    made = std::max(made, of_q + (a.fused_qkv ? 2 * of_kv : 0));
    split = std::max(split, a.fused_qkv ? 0 : of_kv);
    gate |= a.gate;
    whole |= a.qk_norm == QkNormKind::kWhole;
    b_.RoomForPartials(a.n_heads, a.head_dim);
  }
  q_ = b_.Floats(made);
  if (split > 0) {
    k_ = b_.Floats(split);
    v_ = b_.Floats(split);
  }
  attended_ = b_.Floats(q);
  if (gate) attn_gate_ = b_.Floats(q);
  b_.Widest(q);
  b_.Room(q);
  b_.RoomForGaps(made);
  if (whole && !b_.shard().alone()) {
    whole_q_ = b_.Floats(q).data;
    whole_k_ = b_.Floats(kv).data;
  }
}

Role AttentionPlanner::Make(Mat<float> in) {
  const Attention& s = b_.layer().attention;
  Mat<float> own = b_.First(attended_, 0);
  if (b_.part().attention.heads.size() > 0) {
    own = PlanHeads(in);
  } else if (s.qk_norm == QkNormKind::kWhole) {
    Mat<float> q = own, k = own;
    WholeQkNorms(q, k);
  }
  const Columns heads = [D = int64_t{s.head_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.attention.heads.begin * D, p.attention.heads.end * D}};
  };
  b_.ProjectOut(Role::kO, Component::kAttention, own, int64_t{s.n_heads} * s.head_dim, heads, b_.part().mixed);
  return Role::kO;
}

// Returns the output of this process's heads.
Mat<float> AttentionPlanner::PlanHeads(Mat<const float> in) {
  const Attention& s = b_.layer().attention;
  const HeadPart& part = b_.part().attention;
  const int64_t D = s.head_dim, H = part.heads.size(), K = part.groups.size(), q_cols = H * D, kv_cols = K * D;
  const bool own_kv = s.cache_of < 0;
  const Work kv_work = PlanBuilder::WorkOf(part.copy);
  Mat<float> q = b_.First(q_, q_cols), k, v;
  SharedPack shared;
  if (s.fused_qkv) {
    const Mat<float> qkv = b_.First(q_, q_cols + 2 * kv_cols);
    b_.Project(Role::kQkv, in, qkv);
    q = qkv.Cols(0, q_cols);
    k = qkv.Cols(q_cols, kv_cols);
    v = qkv.Cols(q_cols + kv_cols, kv_cols);
  } else {
    b_.Project(Role::kQ, in, q, {.shared = &shared});
    if (own_kv) {
      k = b_.First(k_, kv_cols);
      v = b_.First(v_, kv_cols);
      b_.Project(Role::kK, in, k, {.shared = &shared});
      if (!s.v_is_k) b_.Project(Role::kV, in, v, {.shared = &shared});
    }
  }
  const bool each_head = s.gate_each_head;
  const Mat<float> gate = b_.First(attn_gate_, each_head ? H : q_cols);
  if (s.gate) {
    const bool sigmoid_first = each_head && !s.gate_softplus;
    b_.Project(Role::kAttnGate, in, gate,
               {.activation = sigmoid_first ? ActivationKind::kSigmoid : ActivationKind::kNone, .shared = &shared});
  }
  const As as(b_, Work::kOwn);
  if (s.v_norm && own_kv) {
    const As of_kv_heads(b_, kv_work);
    const bool v_is_k = s.v_is_k;  // before the norm of keys
    b_.Add(v_is_k ? Role::kK : Role::kV,
           NormOp{.x = v_is_k ? k : v, .groups = K, .weight = {}, .bias = {}, .eps = b_.recipe().norm_eps, .out = v});
  }
  const bool after_rope = s.qk_norm == QkNormKind::kUnweighted || s.qk_norm_after_rope;
  if (s.qk_norm == QkNormKind::kWhole) {
    WholeQkNorms(q, k);
  } else if (!after_rope) {
    QkNorms(q, k);
  }
  if (s.qkv_limit != 0) {
    b_.Add(s.fused_qkv ? Role::kQkv : Role::kQ, ElementwiseOp{.x = q, .limit = s.qkv_limit});
    if (own_kv) {
      const As of_kv_heads(b_, kv_work);
      b_.Add(s.fused_qkv ? Role::kQkv : Role::kK, ElementwiseOp{.x = k, .limit = s.qkv_limit});
      b_.Add(s.fused_qkv ? Role::kQkv : Role::kV, ElementwiseOp{.x = v, .limit = s.qkv_limit});
    }
  }
  Rotate({q, D, LayersRope().dim}, H);
  if (own_kv) {
    const As of_kv_heads(b_, kv_work);
    Rotate({k, D, LayersRope().dim}, K);
  }
  if (after_rope && (Rotates() || s.qk_norm != QkNormKind::kUnweighted || s.qk_norm_everywhere)) QkNorms(q, k);
  if (s.temperature.scale != 0 && (s.temperature.everywhere || s.rope == LayerRope::kNone)) {
    b_.Add(Component::kAttention, ScaleRowsOp{.x = q, .weights = b_.temperature(), .out = q});
  }
  const KvLayout layout = AttentionLayout(b_.layer(), b_.part(), b_.options().kv);
  if (own_kv) StoreKv(k, v, layout, kv_work);
  const Mat<float> attended = b_.First(attended_, q_cols);
  Attend(q, attended, part.heads, layout, part.copy);
  b_.Scale(Role::kO, attended, s.out_scale);
  if (!s.gate) return attended;
  if (each_head || s.gate_softplus) {
    b_.Add(Role::kAttnGate,
           ScaleRowsOp{
               .x = attended, .weights = gate, .out = attended, .groups = each_head ? H : q_cols, .softplus = s.gate_softplus});
    return attended;
  }
  b_.Add(Role::kAttnGate, ElementwiseOp{.x = gate, .up = attended, .activation = ActivationKind::kSigmoid});
  return gate;
}

// Normalises each head of the queries, and of the keys if the layer has its own.
void AttentionPlanner::QkNorms(Mat<float> q, Mat<float> k) {
  if (b_.layer().attention.qk_norm == QkNormKind::kNone) return;
  QkNorm(Role::kQNorm, q, b_.part().attention.heads.size());
  if (k.empty()) return;
  const As of_kv_heads(b_, PlanBuilder::WorkOf(b_.part().attention.copy));
  QkNorm(Role::kKNorm, k, b_.part().attention.groups.size());
}

// Norms over all heads as one vector: q and k are gathered, every process with heads normalises all of them and keeps its own. A process
// without heads passes empty q and k, and takes part in the gathers alone.
void AttentionPlanner::WholeQkNorms(Mat<float>& q, Mat<float>& k) {
  const As as(b_, Work::kWhole);
  const int64_t D = b_.layer().attention.head_dim;
  const auto norm = [&](Role role, Mat<float>& own, int64_t heads, const Span& part, float* to, bool groups) {
    const Mat<float> all = b_.Whole(
        FactsOf(role).component, own, heads * D,
        [D, groups](const Shard& s, const LayerPart& p) {
          const Span span = groups ? p.attention.groups : p.attention.heads;
          const bool copy = groups && p.attention.copy && s.rank > 0;  // a process of a lower rank sends it
          return std::vector{Span{span.begin * D, copy ? span.begin * D : span.end * D}};
        },
        to);
    if (own.cols == 0) return;
    QkNorm(role, all, 1);
    if (all.data != own.data) own = all.Cols(part.begin * D, part.size() * D);
  };
  norm(Role::kQNorm, q, b_.layer().attention.n_heads, b_.part().attention.heads, whole_q_, false);
  if (b_.layer().attention.cache_of < 0)
    norm(Role::kKNorm, k, b_.layer().attention.n_kv_heads, b_.part().attention.groups, whole_k_, true);
}

void AttentionPlanner::QkNorm(Role role, Mat<float> x, int64_t groups) {
  b_.Add(role, NormOp{.kind = b_.layer().attention.qk_norm == QkNormKind::kEachHead ? NormKind::kLayer : NormKind::kRms,
                      .x = x,
                      .groups = groups,
                      .weight = b_.layer().attention.qk_norm == QkNormKind::kUnweighted ? WeightView{} : b_.Get(role),
                      .bias = {},
                      .eps = b_.recipe().norm_eps,
                      .out = x});
  if (b_.layer().attention.qk_norm == QkNormKind::kHead) b_.CopiedWeights({b_.Get(role)});
}

}  // namespace

bool HeadsPlanner::Rotates() const {
  return b_.layer().attention.rope != LayerRope::kNone && LayersRope().style != RopeStyle::kNone;
}

const Rope& HeadsPlanner::LayersRope() const {
  return b_.layer().attention.rope == LayerRope::kLocal ? b_.recipe().local_rope : b_.recipe().rope;
}

int32_t HeadsPlanner::Cache() const {
  return b_.CacheOf(mixer_, mixer_ == Mixer::kAttention ? b_.layer().attention.cache_of : -1);
}

void HeadsPlanner::StoreKv(Mat<const float> k, Mat<const float> v, const KvLayout& layout, Work work) {
  const As as(b_, work);
  b_.Add(Component::kKvStore, KvStoreOp{.k = k, .v = v, .layout = layout, .rows = b_.Rows(), .tables = {}});
  b_.last().cache = Cache();
}

void HeadsPlanner::Attend(Mat<const float> q, Mat<float> out, const Span& heads, const KvLayout& layout, bool shared) {
  const std::span<const float> slopes(b_.plan().slopes);
  b_.Add(Component::kAttention, AttentionOp{.q = q,
                                            .out = out,
                                            .heads = heads.size(),
                                            .layout = layout,
                                            .scale = b_.layer().attention.scale,
                                            .window = b_.layer().attention.window,
                                            .chunk = b_.layer().attention.chunk,
                                            .both_ways = b_.layer().attention.both_ways,
                                            .softcap = b_.layer().attention.softcap,
                                            .sinks = b_.layer().attention.sinks ? b_.Get(Role::kSinks) : WeightView{},
                                            .slopes = slopes.empty() ? slopes
                                                                     : slopes.subspan(static_cast<size_t>(heads.begin),
                                                                                      static_cast<size_t>(heads.size())),
                                            .rows = b_.Rows(),
                                            .tables = {},
                                            .partials = b_.partials(heads.size())});
  PlannedOp& planned = b_.last();
  planned.cache = Cache();
  if (!shared || planned.copied.all) return;
  planned.copied.part = [bytes = layout.PositionBytes()](const CostAmounts& n) {  // others read the same keys and values
    Cost cost;
    cost.AddBytes(ByteKind::kKvRead, n[Amount::kVisible] * bytes);
    return cost;
  };
}

// Into `out`, or in place.
void HeadsPlanner::Rotate(const Heads& x, int64_t heads, const Heads* out) {
  if (!Rotates()) return;
  const PlanBuilder::RopeTurns& turns = b_.turns(b_.layer().attention.rope);
  b_.Add(Component::kRope, RopeOp{.style = LayersRope().style,
                                  .x = x.m,
                                  .heads = heads,
                                  .head_dim = x.stride,
                                  .dim = x.dim,
                                  .cos = turns.cos,
                                  .sin = turns.sin,
                                  .out = out != nullptr ? out->m : Mat<float>(),
                                  .out_head_dim = out != nullptr ? out->stride : 0});
}

const BlockPlan kAttentionPlan = {NewPlanner<AttentionPlanner>, [](const LayerRecipe& l, const LayerPart& part, KvType type) {
                                    return l.attention.cache_of < 0 ? std::optional(KvCache(l, AttentionLayout(l, part, type)))
                                                                    : std::nullopt;
                                  }};

}  // namespace tally
