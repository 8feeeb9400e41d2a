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

// -1, outside the layers: a layer without sizes.
const LayerRecipe& LayerAt(const Recipe& r, int32_t layer) {
  static const LayerRecipe none;
  return layer >= 0 ? r.layer(layer) : none;
}

struct Row {
  bool present;
  uint64_t rows, cols;
};

// The row of a role in roles.inc, for this recipe and layer.
Row RowOf(const Recipe& r, Role role, int32_t layer) {
  enum class Place : bool { Model, Layer };
  const Place at = layer >= 0 ? Place::Layer : Place::Model;
  const LayerRecipe& l = LayerAt(r, layer);
  const Attention& s = l.attention;
  const bool sparse = l.sparse(), dense = l.dense(), mixes = !l.mixers.empty(), feeds = !l.feed_forward.empty();
#define TALLY_BLOCK(name, member) [[maybe_unused]] const bool member = l.mixers.has(Mixer::k##name);
  TALLY_MIXERS(TALLY_BLOCK)
#undef TALLY_BLOCK
  const bool heads = attention, attends = l.attends(), split = heads && !l.attention.fused_qkv, own_kv = l.attention.cache_of < 0,
             shared = sparse && l.experts.shared_width > 0, both = l.both(), layer_embedding = r.layer_embedding > 0;
  const bool recurs = delta || mamba, latent_experts = sparse && l.experts.latent > 0, channels = delta && l.delta.channel_decay,
             ranked = delta && l.delta.gate_rank > 0;
  const bool biased_norm = r.norm == NormKind::kLayer && r.norm_bias;
  const bool qk_norm = l.attention.qk_norm != QkNormKind::kNone && l.attention.qk_norm != QkNormKind::kUnweighted;
  const bool whole = l.attention.qk_norm == QkNormKind::kWhole, each = l.attention.qk_norm == QkNormKind::kEachHead;
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const bool narrow = r.embedding_width > 0;
  const uint64_t Ev = u(narrow ? r.embedding_width : r.d_model);
  const uint64_t V = u(r.vocab), T = u(r.context) + u(r.first_position), E = u(r.d_model), H = u(s.n_heads), D = u(s.head_dim);
  const uint64_t Q = H * D, KV = u(s.n_kv_heads) * D, A = H * (latent ? u(l.latent.v_dim) : D);
  const uint64_t F = u(l.ffn.width), X = u(l.experts.n_experts), Fx = u(l.experts.width), Fs = u(l.experts.shared_width);
  const uint64_t Rq = u(l.latent.q_rank), Rkv = u(l.latent.kv_rank), Dn = u(l.latent.nope_dim), Dr = u(l.latent.rope_dim),
                 Dv = u(l.latent.v_dim);
  const uint64_t Rope = u(r.rope.dim / 2), Xe = l.experts.latent > 0 ? u(l.experts.latent) : E;
  const uint64_t Pe = u(r.layer_embedding), LP = u(r.n_layers) * Pe;
  const uint64_t Kd = u(l.delta.key_heads) * u(l.delta.key_dim), Bc = 2 * u(l.mamba.groups) * u(l.mamba.state_dim);
  const uint64_t Rh = delta ? u(l.delta.value_heads) : u(l.mamba.heads);
  const uint64_t Rd = Rh * (delta ? u(l.delta.value_dim) : u(l.mamba.head_dim)), Rc = Rd + (delta ? 2 * Kd : Bc);
  const uint64_t Rs = Rh * (channels ? u(l.delta.key_dim) : 1), Rg = u(l.delta.gate_rank);
  const uint64_t Ri = 2 * Rd + Bc + Rh, Rn = delta ? u(l.delta.value_dim) : Rd;
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
  const LayerRecipe& l = LayerAt(recipe, layer);
  std::vector<uint64_t> shape;
  if (facts.experts) shape.push_back(static_cast<uint64_t>(l.experts.n_experts));
  if (facts.heads) shape.push_back(static_cast<uint64_t>(l.attention.n_heads));
  if (facts.taps) shape.push_back(static_cast<uint64_t>(l.taps()));
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
