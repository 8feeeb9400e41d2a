#include <utility>

#include "counters/books/books.h"

namespace tally::books {
namespace {

struct RoleFacts {
  Component component;
  bool vector;   // shape ends in one dimension of elements, not in [rows, cols]
  bool experts;  // the first dimension counts experts
};

RoleFacts Facts(Role role) {
  switch (role) {
    case Role::kTokenEmbedding: return {Component::kEmbedding, false, false};
    case Role::kPositionEmbedding: return {Component::kPositionEmbedding, false, false};
    case Role::kOutputNorm:
    case Role::kOutputNormBias: return {Component::kOutputNorm, true, false};
    case Role::kHead: return {Component::kHead, false, false};
    case Role::kHeadBias: return {Component::kHead, true, false};
    case Role::kRopeFactors: return {Component::kRope, true, false};
    case Role::kAttnNorm:
    case Role::kAttnNormBias: return {Component::kAttnNorm, true, false};
    case Role::kQkv: return {Component::kAttnQkv, false, false};
    case Role::kQkvBias: return {Component::kAttnQkv, true, false};
    case Role::kQ: return {Component::kAttnQ, false, false};
    case Role::kQBias: return {Component::kAttnQ, true, false};
    case Role::kK: return {Component::kAttnK, false, false};
    case Role::kKBias: return {Component::kAttnK, true, false};
    case Role::kV: return {Component::kAttnV, false, false};
    case Role::kVBias: return {Component::kAttnV, true, false};
    case Role::kQNorm: return {Component::kAttnQNorm, true, false};
    case Role::kKNorm: return {Component::kAttnKNorm, true, false};
    case Role::kSinks: return {Component::kAttention, true, false};
    case Role::kO: return {Component::kAttnOutput, false, false};
    case Role::kOBias: return {Component::kAttnOutput, true, false};
    case Role::kFfnNorm:
    case Role::kFfnNormBias: return {Component::kFfnNorm, true, false};
    case Role::kRouter: return {Component::kRouter, false, false};
    case Role::kRouterBias: return {Component::kRouter, true, false};
    case Role::kGate:
    case Role::kUp: return {Component::kFfnGateUp, false, false};
    case Role::kGateBias:
    case Role::kUpBias: return {Component::kFfnGateUp, true, false};
    case Role::kDown: return {Component::kFfnDown, false, false};
    case Role::kDownBias: return {Component::kFfnDown, true, false};
    case Role::kExpertGate:
    case Role::kExpertUp: return {Component::kFfnGateUp, false, true};
    case Role::kExpertGateBias:
    case Role::kExpertUpBias: return {Component::kFfnGateUp, true, true};
    case Role::kExpertDown: return {Component::kFfnDown, false, true};
    case Role::kExpertDownBias: return {Component::kFfnDown, true, true};
  }
  return {Component::kEmbedding, false, false};
}

WeightInfo::Kind KindOf(Role role, bool tied) {
  switch (role) {
    case Role::kTokenEmbedding: return tied ? WeightInfo::Kind::kTiedEmbeddingHead : WeightInfo::Kind::kEmbedding;
    case Role::kPositionEmbedding: return WeightInfo::Kind::kPosition;
    case Role::kHead:
    case Role::kHeadBias: return WeightInfo::Kind::kHead;
    default: return WeightInfo::Kind::kBlock;
  }
}

// Adds `all` parameters of which one token activates `active`.
void Add(ParameterCounts& counts, WeightInfo::Kind kind, uint64_t all, uint64_t active) {
  using Kind = WeightInfo::Kind;
  const bool head = kind == Kind::kHead || kind == Kind::kTiedEmbeddingHead;
  counts.total += all;
  counts.active_all += active;
  if (kind == Kind::kBlock || head) counts.active_head += active;
  if (kind == Kind::kBlock) counts.active_none += active;
}

}  // namespace

std::vector<WeightInfo> WeightTable(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<WeightInfo> table;
  table.reserve(spec.bindings.size());
  for (const TensorBinding& b : spec.bindings) {
    if (b.role == Role::kRopeFactors || b.names.empty()) continue;
    const RoleFacts facts = Facts(b.role);
    const size_t wanted = (facts.experts ? 1 : 0) + (facts.vector ? 1 : 2);
    if (b.shape.size() != wanted) continue;
    WeightInfo w;
    w.name = b.names.front();
    w.layer = b.layer;
    w.component = facts.component;
    w.kind = KindOf(b.role, spec.recipe.tied_head);
    w.slices = facts.experts ? static_cast<uint32_t>(b.shape[0]) : 1;
    w.rows = facts.vector ? 1 : b.shape[wanted - 2];
    w.cols = b.shape[wanted - 1];
    for (const std::string& name : b.names) {
      if (const StoredTensor* t = inventory.Find(name)) w.stored_bytes += t->bytes;
    }
    if (b.storage != Storage::kPlain && b.storage != Storage::kTransposed && b.storage != Storage::kPermutedPairs) {
      w.stored_bytes /= 2;  // gate and up share one stored tensor, row for row
    }
    table.push_back(std::move(w));
  }
  return table;
}

ParameterCounts CountParameters(std::span<const WeightInfo> weights, int32_t top_k) {
  ParameterCounts counts;
  for (const WeightInfo& w : weights) {
    if (w.component == Component::kRope) continue;  // divisors of the frequencies: a buffer
    const uint64_t slice = w.rows * w.cols;
    const uint64_t active = w.slices > 1 ? static_cast<uint64_t>(top_k) : w.slices;
    Add(counts, w.kind, w.slices * slice, active * slice);
  }
  return counts;
}

ParameterCounts ClosedFormCounts(const Recipe& r) {
  using Kind = WeightInfo::Kind;
  auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const uint64_t V = u(r.vocab), E = u(r.d_model), H = u(r.n_heads), K = u(r.n_kv_heads), D = u(r.head_dim);
  const uint64_t F = u(r.d_ff), X = u(r.n_experts), W = u(r.d_expert), P = u(r.context);
  const uint64_t norm = r.norm == NormKind::kLayer ? 2 * E : E;
  const uint64_t matrices = r.gated_ffn ? 3 : 2;

  ParameterCounts counts;
  auto add = [&](Kind kind, uint64_t n) { Add(counts, kind, n, n); };
  add(r.tied_head ? Kind::kTiedEmbeddingHead : Kind::kEmbedding, V * E);
  if (r.learned_positions) add(Kind::kPosition, P * E);
  if (!r.tied_head) add(Kind::kHead, V * E);
  if (r.head_bias) add(Kind::kHead, V);
  add(Kind::kBlock, norm);  // the last one
  for (const LayerRecipe& layer : r.layers) {
    uint64_t attention = (H + 2 * K) * D * E + H * D * E;
    if (r.q_bias) attention += H * D;
    if (r.k_bias) attention += K * D;
    if (r.v_bias) attention += K * D;
    if (r.o_bias) attention += E;
    if (r.qk_norm) attention += 2 * D;
    if (r.sinks) attention += H;
    add(Kind::kBlock, attention + 2 * norm);
    if (layer.sparse) {
      const uint64_t expert = matrices * E * W + (r.expert_bias ? (matrices - 1) * W + E : 0);
      add(Kind::kBlock, E * X + (r.router_bias ? X : 0));
      Add(counts, Kind::kBlock, X * expert, u(r.top_k) * expert);
    } else {
      add(Kind::kBlock, matrices * E * F + (r.ffn_bias ? (matrices - 1) * F + E : 0));
    }
  }
  return counts;
}

}  // namespace tally::books
