// SPDX-License-Identifier: Apache-2.0
#include "engine/recipe/roles.h"

#include <iterator>

namespace tally {
namespace {

using Kind = WeightInfo::Kind;

enum class Form : uint8_t { Matrix, Vector, Experts, Heads, Taps };

constexpr RoleFacts Facts(std::string_view name, Component component, Kind kind, Form form, Division division, bool bias,
                          bool biased) {
  return {name,
          component,
          kind,
          bias || form == Form::Vector || form == Form::Taps,
          form == Form::Experts,
          form == Form::Heads,
          form == Form::Taps && !bias,
          biased,
          division};
}

// In the order of enum Role.
constexpr RoleFacts kFacts[] = {
#define TALLY_ROLE(role, name, component, kind, form, division, ...) \
  Facts(name, Component::component, Kind::kind, Form::form, Division::k##division, false, false),
#define TALLY_BIASED_ROLE(role, name, component, kind, form, division, ...)                      \
  Facts(name, Component::component, Kind::kind, Form::form, Division::k##division, false, true), \
      Facts(name ".bias", Component::component, Kind::kind, Form::form, Division::k##division, true, false),
#include "engine/recipe/roles.inc"
};
static_assert(std::size(kFacts) == kRoles);

struct Row {
  bool present;
  uint64_t rows, cols;
};

// The row of a role in roles.inc, for this recipe and layer.
Row RowOf(const Recipe& r, Role role, int32_t layer) {
  enum class Place : bool { Model, Layer };
  const Place at = layer >= 0 ? Place::Layer : Place::Model;
  const LayerRecipe l = layer >= 0 ? r.layers[static_cast<size_t>(layer)] : LayerRecipe();
  const LayerSizes s = SizesOf(r, l);
  const bool sparse = l.sparse(), dense = l.dense(), mixes = !l.mixers.empty(), feeds = !l.feed_forward.empty();
  const bool latent = l.mixers.has(Mixer::kLatentAttention), heads = l.mixers.has(Mixer::kAttention), attends = latent || heads;
  const bool conv = l.mixers.has(Mixer::kShortConv), split = heads && !r.fused_qkv, own_kv = l.cache_of < 0,
             shared = sparse && r.d_shared > 0, both = l.both(), layer_embedding = r.layer_embedding > 0;
  const bool delta = l.mixers.has(Mixer::kDeltaRule), mamba = l.mixers.has(Mixer::kMamba2), recurs = delta || mamba,
             latent_experts = sparse && r.expert_latent > 0, channels = delta && r.delta.channel_decay,
             ranked = delta && r.delta.gate_rank > 0;
  const bool biased_norm = r.norm == NormKind::kLayer && r.norm_bias;
  const bool qk_norm = r.qk_norm != QkNormKind::kNone && r.qk_norm != QkNormKind::kUnweighted;
  const bool whole = r.qk_norm == QkNormKind::kWhole, each = r.qk_norm == QkNormKind::kEachHead;
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const bool narrow = r.embedding_width > 0;
  const uint64_t Ev = u(narrow ? r.embedding_width : r.d_model);
  const uint64_t V = u(r.vocab), T = u(r.context) + u(r.first_position), E = u(r.d_model), H = u(s.n_heads), D = u(s.head_dim);
  const uint64_t Q = H * D, KV = u(s.n_kv_heads) * D, A = H * (latent ? u(r.latent.v_dim) : D);
  const uint64_t F = u(s.d_ff), X = u(r.n_experts), Fx = u(r.d_expert), Fs = u(r.d_shared);
  const uint64_t Rq = u(r.latent.q_rank), Rkv = u(r.latent.kv_rank), Dn = u(r.latent.nope_dim), Dr = u(r.latent.rope_dim),
                 Dv = u(r.latent.v_dim);
  const uint64_t Rope = u(r.rope.dim / 2), Xe = r.expert_latent > 0 ? u(r.expert_latent) : E;
  const uint64_t Pe = u(r.layer_embedding), LP = u(r.n_layers) * Pe;
  const uint64_t Kd = u(r.delta.key_heads) * u(r.delta.key_dim), Bc = 2 * u(r.mamba.groups) * u(r.mamba.state_dim);
  const uint64_t Rh = delta ? u(r.delta.value_heads) : u(r.mamba.heads);
  const uint64_t Rd = Rh * (delta ? u(r.delta.value_dim) : u(r.mamba.head_dim)), Rc = Rd + (delta ? 2 * Kd : Bc);
  const uint64_t Rs = Rh * (channels ? u(r.delta.key_dim) : 1), Rg = u(r.delta.gate_rank);
  const uint64_t Ri = 2 * Rd + Bc + Rh, Rn = delta ? u(r.delta.value_dim) : Rd;
  switch (role) {
    // clang-format off
#define TALLY_ROLE(role, name, component, kind, form, division, place, present, rows, cols) \
  case Role::role: return {at == Place::place && (present), rows, cols};
#define TALLY_BIASED_ROLE(role, name, component, kind, form, division, place, present, rows, cols, bias) \
  case Role::role: return {at == Place::place && (present), rows, cols}; \
  case Role::role##Bias: return {at == Place::place && (present) && (bias), 1, Form::form == Form::Vector || Form::form == Form::Taps ? (cols) : (rows)};
#include "engine/recipe/roles.inc"
    // clang-format on
  }
  return {};
}

}  // namespace

const RoleFacts& FactsOf(Role role) { return kFacts[static_cast<size_t>(role)]; }

bool HasRole(const Recipe& recipe, Role role, int32_t layer) { return RowOf(recipe, role, layer).present; }

std::vector<uint64_t> RoleShape(const Recipe& recipe, Role role, int32_t layer) {
  const RoleFacts& facts = FactsOf(role);
  const Row row = RowOf(recipe, role, layer);
  std::vector<uint64_t> shape;
  if (facts.experts) shape.push_back(static_cast<uint64_t>(recipe.n_experts));
  if (facts.heads) shape.push_back(static_cast<uint64_t>(recipe.n_heads));
  if (facts.taps) shape.push_back(static_cast<uint64_t>(recipe.conv_taps));
  if (!facts.vector) shape.push_back(row.rows);
  shape.push_back(row.cols);
  return shape;
}

std::string WeightName(Role role, int32_t layer) {
  const std::string name(FactsOf(role).name);
  return layer < 0 ? name : "blk." + std::to_string(layer) + "." + name;
}

std::string GgufName(Role role, int32_t layer) {
  const std::string name = WeightName(role, layer);
  return name.ends_with(".bias") ? name : name + ".weight";
}

}  // namespace tally
