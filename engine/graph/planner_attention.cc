// SPDX-License-Identifier: Apache-2.0
// The block of attention, and what it shares with latent attention.
#include <algorithm>

#include "engine/graph/planner.h"

namespace tally {
namespace {

constexpr int64_t kFewQueries = 32;  // rows times heads that may be split over positions, at least

int64_t QueriesToSplit(int64_t heads, int64_t rows) { return std::max(heads * rows, kFewQueries); }

}  // namespace

KvLayout AttentionLayout(const LayerRecipe& l, const LayerPart& part, KvType type) {
  return {.type = type, .kv_heads = part.attention.groups.size(), .k_dim = l.attention.head_dim};
}

void Planner::AttentionBuffers() {
  // Of the widest layers; made: by the matrix of queries or of all three; split: of layers with three.
  int64_t q = 0, kv = 0, made = 0, split = 0;
  bool gate = false, whole = false;
  for (const LayerRecipe& l : r_.layers) {
    if (!l.mixers.has(Mixer::kAttention)) continue;
    const auto& a = l.attention;
    const int64_t of_q = int64_t{a.n_heads} * a.head_dim, of_kv = int64_t{a.n_kv_heads} * a.head_dim;
    q = std::max(q, of_q);
    kv = std::max(kv, of_kv);
    made = std::max(made, of_q + (a.fused_qkv ? 2 * of_kv : 0));
    split = std::max(split, a.fused_qkv ? 0 : of_kv);
    gate |= a.gate;
    whole |= a.qk_norm == QkNormKind::kWhole;
    Partials(a.n_heads, a.head_dim);
  }
  if (q == 0) return;
  q_ = Floats(made);
  if (split > 0) {
    k_ = Floats(split);
    v_ = Floats(split);
  }
  attended_ = Floats(q);
  if (gate) attn_gate_ = Floats(q);
  Widest(q);
  Room(q);
  if (whole && !shard_.alone()) {
    whole_q_ = Floats(q).data;
    whole_k_ = Floats(kv).data;
  }
}

void Planner::Attention(Mat<const float> in) {
  const auto& s = layer().attention;
  Mat<float> own = First(attended_, 0);
  if (part_.attention.heads.size() > 0) {
    own = AttentionOfHeads(in);
  } else if (layer().attention.qk_norm == QkNormKind::kWhole) {
    Mat<float> q = own, k = own;
    WholeQkNorms(q, k);
  }
  const Columns heads = [D = int64_t{s.head_dim}](const Shard&, const LayerPart& p) {
    return std::vector{Span{p.attention.heads.begin * D, p.attention.heads.end * D}};
  };
  ProjectOut(Role::kO, Component::kAttention, own, int64_t{s.n_heads} * s.head_dim, heads, part_.mixed);
}

// Returns the output of this process's heads.
Mat<float> Planner::AttentionOfHeads(Mat<const float> in) {
  const HeadPart& part = part_.attention;
  const int64_t D = layer().attention.head_dim, H = part.heads.size(), K = part.groups.size(), q_cols = H * D, kv_cols = K * D;
  const bool own_kv = layer().attention.cache_of < 0;
  Mat<float> q = First(q_, q_cols), k, v;
  SharedPack shared;
  if (layer().attention.fused_qkv) {
    const Mat<float> qkv = First(q_, q_cols + 2 * kv_cols);
    Project(Role::kQkv, in, qkv);
    q = qkv.Cols(0, q_cols);
    k = qkv.Cols(q_cols, kv_cols);
    v = qkv.Cols(q_cols + kv_cols, kv_cols);
  } else {
    Project(Role::kQ, in, q, {.shared = &shared});
    if (own_kv) {
      k = First(k_, kv_cols);
      v = First(v_, kv_cols);
      Project(Role::kK, in, k, {.shared = &shared});
      if (!layer().attention.v_is_k) Project(Role::kV, in, v, {.shared = &shared});
    }
  }
  const bool each_head = layer().attention.gate_each_head;
  const Mat<float> gate = First(attn_gate_, each_head ? H : q_cols);
  if (layer().attention.gate) {
    const bool sigmoid_first = each_head && !layer().attention.gate_softplus;
    Project(Role::kAttnGate, in, gate,
            {.activation = sigmoid_first ? ActivationKind::kSigmoid : ActivationKind::kNone, .shared = &shared});
  }
  const As as(*this, Work::kOwn);
  if (layer().attention.v_norm && own_kv) {
    const As of_kv_heads(*this, Work::kOfKvHeads);
    const bool v_is_k = layer().attention.v_is_k;  // before the norm of keys
    Add(v_is_k ? Role::kK : Role::kV,
        NormOp{.x = v_is_k ? k : v, .groups = K, .weight = {}, .bias = {}, .eps = r_.norm_eps, .out = v});
  }
  const bool after_rope = layer().attention.qk_norm == QkNormKind::kUnweighted || layer().attention.qk_norm_after_rope;
  if (layer().attention.qk_norm == QkNormKind::kWhole) {
    WholeQkNorms(q, k);
  } else if (!after_rope) {
    QkNorms(q, k);
  }
  if (layer().attention.qkv_limit != 0) {
    Add(layer().attention.fused_qkv ? Role::kQkv : Role::kQ, ElementwiseOp{.x = q, .limit = layer().attention.qkv_limit});
    if (own_kv) {
      const As of_kv_heads(*this, Work::kOfKvHeads);
      Add(layer().attention.fused_qkv ? Role::kQkv : Role::kK, ElementwiseOp{.x = k, .limit = layer().attention.qkv_limit});
      Add(layer().attention.fused_qkv ? Role::kQkv : Role::kV, ElementwiseOp{.x = v, .limit = layer().attention.qkv_limit});
    }
  }
  Rotate({q, D, LayersRope().dim}, H);
  if (own_kv) {
    const As of_kv_heads(*this, Work::kOfKvHeads);
    Rotate({k, D, LayersRope().dim}, K);
  }
  if (after_rope && (Rotates() || layer().attention.qk_norm != QkNormKind::kUnweighted || layer().attention.qk_norm_everywhere))
    QkNorms(q, k);
  if (layer().attention.temperature.scale != 0 &&
      (layer().attention.temperature.everywhere || layer().attention.rope == LayerRope::kNone)) {
    Add(Component::kAttention, ScaleRowsOp{.x = q, .weights = temperature_, .out = q});
  }
  const KvLayout layout = AttentionLayout(layer(), part_, options_.kv);
  if (own_kv) StoreKv(Mixer::kAttention, k, v, layout);
  const Mat<float> attended = First(attended_, q_cols);
  Attend(Mixer::kAttention, q, attended, part.heads, layout);
  Scale(Role::kO, attended, layer().attention.out_scale);
  if (!layer().attention.gate) return attended;
  if (each_head || layer().attention.gate_softplus) {
    Add(Role::kAttnGate, ScaleRowsOp{.x = attended,
                                     .weights = gate,
                                     .out = attended,
                                     .groups = each_head ? H : q_cols,
                                     .softplus = layer().attention.gate_softplus});
    return attended;
  }
  Add(Role::kAttnGate, ElementwiseOp{.x = gate, .up = attended, .activation = ActivationKind::kSigmoid});
  return gate;
}

void Planner::StoreKv(Mixer mixer, Mat<const float> k, Mat<const float> v, const KvLayout& layout) {
  const As as(*this, mixer == Mixer::kAttention ? Work::kOfKvHeads : Work::kWhole);
  Add(Component::kKvStore, KvStoreOp{.k = k, .v = v, .layout = layout, .rows = Rows(), .tables = {}});
  plan_.ops.back().cache = CacheOf(mixer);
}

void Planner::Attend(Mixer mixer, Mat<const float> q, Mat<float> out, const Span& heads, const KvLayout& layout) {
  AttentionPartials partials = partials_;
  partials.queries = QueriesToSplit(heads.size(), options_.split_rows);
  const std::span<const float> slopes(plan_.slopes);
  Add(Component::kAttention,
      AttentionOp{
          .q = q,
          .out = out,
          .heads = heads.size(),
          .layout = layout,
          .scale = layer().attention.scale,
          .window = layer().attention.window,
          .chunk = layer().attention.chunk,
          .both_ways = layer().attention.both_ways,
          .softcap = layer().attention.softcap,
          .sinks = layer().attention.sinks ? Get(Role::kSinks) : WeightView{},
          .slopes = slopes.empty() ? slopes : slopes.subspan(static_cast<size_t>(heads.begin), static_cast<size_t>(heads.size())),
          .rows = Rows(),
          .tables = {},
          .partials = partials});
  PlannedOp& planned = plan_.ops.back();
  planned.cache = CacheOf(mixer);
  const bool shares = mixer == Mixer::kLatentAttention ? shard_.rank > 0 : part_.attention.copy;
  if (!shares || planned.copied.all) return;
  planned.copied.part = [bytes = layout.PositionBytes()](const CostAmounts& n) {  // others read the same keys and values
    Cost cost;
    cost.AddBytes(ByteKind::kKvRead, n[Amount::kVisible] * bytes);
    return cost;
  };
}

// Reserves partials for layers with `heads` heads: for PlanOptions::split_rows rows of all heads, or for more rows if heads are few.
void Planner::Partials(int64_t heads, int64_t v_dim) {
  const int64_t ranges = options_.context / (kRangeBlocks * kKvBlock) + 1;
  if (options_.context == 0 || ranges < 2) return;
  const uint64_t floats =
      SaturatingMul(static_cast<uint64_t>(QueriesToSplit(heads, options_.split_rows) * AttentionPartials::PartialFloats(v_dim)),
                    static_cast<uint64_t>(ranges));
  partials_.ranges = ranges;
  partial_floats_ = std::max(partial_floats_, floats);
}

// Normalises each head of the queries, and of the keys if the layer has its own.
void Planner::QkNorms(Mat<float> q, Mat<float> k) {
  if (layer().attention.qk_norm == QkNormKind::kNone) return;
  QkNorm(Role::kQNorm, q, part_.attention.heads.size());
  if (k.empty()) return;
  const As of_kv_heads(*this, Work::kOfKvHeads);
  QkNorm(Role::kKNorm, k, part_.attention.groups.size());
}

// Norms over all heads as one vector: q and k are gathered, every process with heads normalises all of them and keeps its own. A process
// without heads passes empty q and k, and takes part in the gathers alone.
void Planner::WholeQkNorms(Mat<float>& q, Mat<float>& k) {
  const As as(*this, Work::kWhole);
  const int64_t D = layer().attention.head_dim;
  const auto norm = [&](Role role, Mat<float>& own, int64_t heads, const Span& part, float* to, bool groups) {
    const Mat<float> all = Whole(
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
  norm(Role::kQNorm, q, layer().attention.n_heads, part_.attention.heads, whole_q_, false);
  if (layer().attention.cache_of < 0) norm(Role::kKNorm, k, layer().attention.n_kv_heads, part_.attention.groups, whole_k_, true);
}

void Planner::QkNorm(Role role, Mat<float> x, int64_t groups) {
  const bool latent = role == Role::kQANorm || role == Role::kKvANorm;
  Add(role, NormOp{.kind = layer().attention.qk_norm == QkNormKind::kEachHead ? NormKind::kLayer : NormKind::kRms,
                   .x = x,
                   .groups = groups,
                   .weight = layer().attention.qk_norm == QkNormKind::kUnweighted ? WeightView{} : Get(role),
                   .bias = {},
                   .eps = latent ? layer().latent.norm_eps : r_.norm_eps,
                   .out = x});
  if (layer().attention.qk_norm == QkNormKind::kHead) CopiedWeights({Get(role)});
}

// Into `out`, or in place.
void Planner::Rotate(const Heads& x, int64_t heads, const Heads* out) {
  if (!Rotates()) return;
  const RopeTurns& turns = turns_[layer().attention.rope == LayerRope::kLocal ? 1 : 0];
  Add(Component::kRope, RopeOp{.style = LayersRope().style,
                               .x = x.m,
                               .heads = heads,
                               .head_dim = x.stride,
                               .dim = x.dim,
                               .cos = turns.cos,
                               .sin = turns.sin,
                               .out = out != nullptr ? out->m : Mat<float>(),
                               .out_head_dim = out != nullptr ? out->stride : 0});
}

}  // namespace tally
