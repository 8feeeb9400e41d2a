#include <iterator>
#include <utility>

#include "counters/books/books.h"
#include "counters/books/weight_table.h"

namespace tally::books {
namespace {

struct RoleFacts {
  std::string_view name;  // as GGUF calls it, without "blk.N." and ".weight"
  Component component;
  bool vector = false;   // the shape ends in one dimension of elements, not in [rows, cols]
  bool experts = false;  // the first dimension counts experts
};

// In the order of enum Role.
constexpr RoleFacts kFacts[] = {
    {"token_embd", Component::kEmbedding},
    {"position_embd", Component::kPositionEmbedding},
    {"output_norm", Component::kOutputNorm, true},
    {"output_norm.bias", Component::kOutputNorm, true},
    {"output", Component::kHead},
    {"output.bias", Component::kHead, true},
    {"rope_freqs", Component::kRope, true},
    {"attn_norm", Component::kAttnNorm, true},
    {"attn_norm.bias", Component::kAttnNorm, true},
    {"attn_qkv", Component::kAttnQkv},
    {"attn_qkv.bias", Component::kAttnQkv, true},
    {"attn_q", Component::kAttnQ},
    {"attn_q.bias", Component::kAttnQ, true},
    {"attn_k", Component::kAttnK},
    {"attn_k.bias", Component::kAttnK, true},
    {"attn_v", Component::kAttnV},
    {"attn_v.bias", Component::kAttnV, true},
    {"attn_q_norm", Component::kAttnQNorm, true},
    {"attn_k_norm", Component::kAttnKNorm, true},
    {"attn_sinks", Component::kAttention, true},
    {"attn_output", Component::kAttnOutput},
    {"attn_output.bias", Component::kAttnOutput, true},
    {"ffn_norm", Component::kFfnNorm, true},
    {"ffn_norm.bias", Component::kFfnNorm, true},
    {"ffn_gate_inp", Component::kRouter},
    {"ffn_gate_inp.bias", Component::kRouter, true},
    {"ffn_gate", Component::kFfnGateUp},
    {"ffn_gate.bias", Component::kFfnGateUp, true},
    {"ffn_up", Component::kFfnGateUp},
    {"ffn_up.bias", Component::kFfnGateUp, true},
    {"ffn_down", Component::kFfnDown},
    {"ffn_down.bias", Component::kFfnDown, true},
    {"ffn_gate_exps", Component::kFfnGateUp, false, true},
    {"ffn_gate_exps.bias", Component::kFfnGateUp, true, true},
    {"ffn_up_exps", Component::kFfnGateUp, false, true},
    {"ffn_up_exps.bias", Component::kFfnGateUp, true, true},
    {"ffn_down_exps", Component::kFfnDown, false, true},
    {"ffn_down_exps.bias", Component::kFfnDown, true, true},
};
static_assert(std::size(kFacts) == static_cast<size_t>(Role::kExpertDownBias) + 1);

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
    const RoleFacts& facts = kFacts[static_cast<size_t>(b.role)];
    const size_t wanted = (facts.experts ? 1 : 0) + (facts.vector ? 1 : 2);
    if (b.shape.size() != wanted) continue;
    WeightInfo w;
    w.name = (b.layer < 0 ? "" : "blk." + std::to_string(b.layer) + ".") + std::string(facts.name);
    w.layer = b.layer;
    w.component = facts.component;
    w.kind = KindOf(b.role, spec.recipe.tied_head);
    w.slices = facts.experts ? static_cast<uint32_t>(b.shape[0]) : 1;
    w.rows = facts.vector ? 1 : b.shape[wanted - 2];
    w.cols = b.shape[wanted - 1];
    for (const std::string& name : b.names) {
      if (const StoredTensor* t = inventory.Find(name)) w.stored_bytes += t->bytes;
    }
    if (b.storage == Storage::kInterleavedEven || b.storage == Storage::kInterleavedOdd) {
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
    if (r.qk_norm == QkNormKind::kHead) attention += 2 * D;
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
