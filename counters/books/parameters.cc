#include <iterator>
#include <utility>

#include "counters/books/books.h"
#include "counters/books/closed_form.h"
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

size_t Dimensions(const RoleFacts& facts) { return (facts.experts ? 1 : 0) + (facts.vector ? 1 : 2); }

bool IsLearned(const TensorBinding& b) {
  return b.role != Role::kRopeFactors && !b.names.empty() && b.shape.size() == Dimensions(kFacts[static_cast<size_t>(b.role)]);
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
    if (!IsLearned(b)) continue;
    const RoleFacts& facts = kFacts[static_cast<size_t>(b.role)];
    const size_t wanted = Dimensions(facts);
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

std::vector<DType> WeightTypes(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<DType> types;
  for (const TensorBinding& b : spec.bindings) {
    if (!IsLearned(b)) continue;
    const StoredTensor* t = inventory.Find(b.names.front());
    types.push_back(b.hf_mxfp4 ? DType::kMXFP4 : t != nullptr ? t->dtype : DType::kF32);
  }
  return types;
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
  ParameterCounts counts;
  for (const ParameterForm& p : ParameterForms(r)) {
    if (!p.prediction) Add(counts, p.kind, p.count.value(), p.active.value());
  }
  return counts;
}

}  // namespace tally::books
