#include "models/binding.h"

#include <map>
#include <utility>

#include "engine/base/format.h"
#include "models/config.h"

namespace tally {
namespace {

// Every role, those outside of the layers first.
constexpr Role kGlobalRoles[] = {Role::kTokenEmbedding, Role::kPositionEmbedding, Role::kOutputNorm, Role::kOutputNormBias,
                                 Role::kHead,           Role::kHeadBias,          Role::kRopeFactors};
constexpr Role kLayerRoles[] = {Role::kAttnNorm,
                                Role::kAttnNormBias,
                                Role::kQkv,
                                Role::kQkvBias,
                                Role::kQ,
                                Role::kQBias,
                                Role::kK,
                                Role::kKBias,
                                Role::kV,
                                Role::kVBias,
                                Role::kQNorm,
                                Role::kKNorm,
                                Role::kSinks,
                                Role::kO,
                                Role::kOBias,
                                Role::kFfnNorm,
                                Role::kFfnNormBias,
                                Role::kRouter,
                                Role::kRouterBias,
                                Role::kGate,
                                Role::kGateBias,
                                Role::kUp,
                                Role::kUpBias,
                                Role::kDown,
                                Role::kDownBias,
                                Role::kExpertGate,
                                Role::kExpertGateBias,
                                Role::kExpertUp,
                                Role::kExpertUpBias,
                                Role::kExpertDown,
                                Role::kExpertDownBias};

bool IsExpertBias(Role role) {
  return role == Role::kExpertGateBias || role == Role::kExpertUpBias || role == Role::kExpertDownBias;
}

bool IsHalf(Storage s) { return s == Storage::kInterleavedEven || s == Storage::kInterleavedOdd; }

std::string Expand(std::string_view name, int32_t layer, std::string_view prefix) {
  std::string out;
  for (const char c : name) {
    if (c == '#') {
      out += std::to_string(layer);
    } else if (c == '~') {
      out += prefix;
    } else {
      out += c;
    }
  }
  return out;
}

// The shape a binding's tensor has in the file: that of the role, transposed, or with twice the rows.
std::vector<uint64_t> StoredShape(const TensorBinding& b) {
  std::vector<uint64_t> shape = b.shape;
  if (b.storage == Storage::kTransposed) std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
  if (IsHalf(b.storage)) {
    const bool vector = shape.size() == 1 || IsExpertBias(b.role);
    shape[vector ? shape.size() - 1 : shape.size() - 2] *= 2;
  }
  return shape;
}

// The stored tensors of a binding and the shapes they must have.
struct Wanted {
  std::string_view name;
  std::vector<uint64_t> shape;
  bool bytes;  // U8: the parts of an MXFP4 tensor in Hugging Face's layout
};

std::vector<Wanted> WantedTensors(const TensorBinding& b) {
  std::vector<uint64_t> shape = StoredShape(b);
  if (b.hf_mxfp4 && b.names.size() == 2) {
    shape.back() /= 32;
    std::vector<uint64_t> blocks = shape;
    blocks.push_back(16);
    return {{b.names[0], blocks, true}, {b.names[1], shape, true}};
  }
  if (b.names.size() > 1) shape.erase(shape.begin());  // one tensor per expert
  std::vector<Wanted> wanted;
  for (const std::string& name : b.names) wanted.push_back({name, shape, false});
  return wanted;
}

// Vectors are widened to f32, exactly. Matrices may be quantised too, but blocks cannot be transposed.
bool OnlyPlain(const TensorBinding& b) {
  return b.shape.size() == 1 || IsExpertBias(b.role) || b.storage == Storage::kTransposed;
}

bool CanRun(const TensorBinding& b, DType t) { return IsWeightType(t) && !(GetDTypeInfo(t).quantised && OnlyPlain(b)); }

// Matrices that one op takes together: the activations are packed for one type.
constexpr std::pair<Role, Role> kTogether[] = {{Role::kGate, Role::kUp}, {Role::kExpertGate, Role::kExpertUp}};

std::string FileOf(const Inventory& inventory, const StoredTensor& t) {
  return t.file < inventory.files.size() ? inventory.files[t.file].path : inventory.path;
}

// The tensors of all experts, and those of matrices that one op takes together, are of one type. All of them are stored.
Status CheckTypesAgree(const Inventory& inventory, const ModelSpec& spec) {
  struct Typed {
    const StoredTensor* tensor;
    DType type;
  };
  const auto agree = [&](const Typed& a, const Typed& b) -> Status {
    if (a.type == b.type) return {};
    return BadInput(FileOf(inventory, *a.tensor) + ": tensors " + Quote(a.tensor->name) + " (" + std::string(DTypeName(a.type)) +
                    ") and " + Quote(b.tensor->name) + " (" + std::string(DTypeName(b.type)) +
                    ") work together and must be of one type");
  };
  std::map<std::pair<int32_t, Role>, Typed> firsts;
  for (const TensorBinding& b : spec.bindings) {
    if (b.names.empty()) continue;
    const auto typed = [&](const std::string& name) {
      const StoredTensor* t = inventory.Find(name);
      return Typed{t, b.hf_mxfp4 ? DType::kMXFP4 : t->dtype};
    };
    const Typed first = typed(b.names[0]);
    for (const std::string& name : b.names) TALLY_RETURN_IF_ERROR(agree(first, typed(name)));
    firsts.emplace(std::pair(b.layer, b.role), first);
  }
  for (const auto& [place, typed] : firsts) {
    for (const auto& [role, partner] : kTogether) {
      if (place.second != role) continue;
      if (const auto other = firsts.find({place.first, partner}); other != firsts.end()) {
        TALLY_RETURN_IF_ERROR(agree(typed, other->second));
      }
    }
  }
  return {};
}

}  // namespace

bool IsStored(const Inventory& inventory, std::string_view name) { return inventory.Find(name) != nullptr; }

bool AnyLayerHas(const Inventory& inventory, const Recipe& recipe, std::string_view name) {
  for (int32_t layer = 0; layer < recipe.n_layers; ++layer) {
    if (IsStored(inventory, Expand(name, layer, ""))) return true;
  }
  return false;
}

bool HasRole(const Recipe& r, Role role, int32_t layer) {
  const bool sparse = layer >= 0 && r.layers[layer].sparse, dense = layer >= 0 && !sparse;
  const bool layer_norm = r.norm == NormKind::kLayer;
  const bool inside = layer >= 0;
  switch (role) {
    case Role::kTokenEmbedding:
    case Role::kOutputNorm: return !inside;
    case Role::kPositionEmbedding: return !inside && r.learned_positions;
    case Role::kOutputNormBias: return !inside && layer_norm;
    case Role::kHead: return !inside && !r.tied_head;
    case Role::kHeadBias: return !inside && r.head_bias;
    case Role::kRopeFactors: return !inside && r.rope.freq_factors;
    case Role::kAttnNorm:
    case Role::kFfnNorm:
    case Role::kO: return inside;
    case Role::kAttnNormBias:
    case Role::kFfnNormBias: return inside && layer_norm;
    case Role::kQkv: return inside && r.fused_qkv;
    case Role::kQkvBias: return inside && r.fused_qkv && r.q_bias;
    case Role::kQ:
    case Role::kK:
    case Role::kV: return inside && !r.fused_qkv;
    case Role::kQBias: return inside && !r.fused_qkv && r.q_bias;
    case Role::kKBias: return inside && !r.fused_qkv && r.k_bias;
    case Role::kVBias: return inside && !r.fused_qkv && r.v_bias;
    case Role::kQNorm:
    case Role::kKNorm: return inside && r.qk_norm != QkNormKind::kNone;
    case Role::kSinks: return inside && r.sinks;
    case Role::kOBias: return inside && r.o_bias;
    case Role::kGate: return dense && r.gated_ffn;
    case Role::kGateBias: return dense && r.gated_ffn && r.ffn_bias;
    case Role::kUp:
    case Role::kDown: return dense;
    case Role::kUpBias:
    case Role::kDownBias: return dense && r.ffn_bias;
    case Role::kRouter:
    case Role::kExpertUp:
    case Role::kExpertDown: return sparse;
    case Role::kExpertGate: return sparse && r.gated_ffn;
    case Role::kRouterBias: return sparse && r.router_bias;
    case Role::kExpertGateBias: return sparse && r.gated_ffn && r.expert_bias;
    case Role::kExpertUpBias:
    case Role::kExpertDownBias: return sparse && r.expert_bias;
  }
  return false;
}

std::vector<uint64_t> RoleShape(const Recipe& r, Role role) {
  auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const uint64_t E = u(r.d_model), Q = u(r.n_heads) * u(r.head_dim), KV = u(r.n_kv_heads) * u(r.head_dim);
  const uint64_t F = u(r.d_ff), X = u(r.n_experts), W = u(r.d_expert), V = u(r.vocab);
  switch (role) {
    case Role::kTokenEmbedding:
    case Role::kHead: return {V, E};
    case Role::kPositionEmbedding: return {u(r.context), E};
    case Role::kHeadBias: return {V};
    case Role::kRopeFactors: return {u(r.rope.dim / 2)};
    case Role::kOutputNorm:
    case Role::kOutputNormBias:
    case Role::kAttnNorm:
    case Role::kAttnNormBias:
    case Role::kFfnNorm:
    case Role::kFfnNormBias:
    case Role::kOBias:
    case Role::kDownBias: return {E};
    case Role::kQkv: return {Q + 2 * KV, E};
    case Role::kQkvBias: return {Q + 2 * KV};
    case Role::kQ: return {Q, E};
    case Role::kQBias: return {Q};
    case Role::kK:
    case Role::kV: return {KV, E};
    case Role::kKBias:
    case Role::kVBias: return {KV};
    case Role::kQNorm:
    case Role::kKNorm: return {u(r.head_dim)};
    case Role::kSinks: return {u(r.n_heads)};
    case Role::kO: return {E, Q};
    case Role::kRouter: return {X, E};
    case Role::kRouterBias: return {X};
    case Role::kGate:
    case Role::kUp: return {F, E};
    case Role::kGateBias:
    case Role::kUpBias: return {F};
    case Role::kDown: return {E, F};
    case Role::kExpertGate:
    case Role::kExpertUp: return {X, W, E};
    case Role::kExpertGateBias:
    case Role::kExpertUpBias: return {X, W};
    case Role::kExpertDown: return {X, E, W};
    case Role::kExpertDownBias: return {X, E};
  }
  return {};
}

Status BindRoles(std::initializer_list<std::span<const RoleName>> tables, ModelSpec& spec, std::string_view prefix) {
  const Recipe& r = spec.recipe;
  auto find = [&](Role role) -> const RoleName* {
    for (const std::span<const RoleName> table : tables) {
      for (const RoleName& n : table) {
        if (n.role == role) return &n;
      }
    }
    return nullptr;
  };
  auto bind = [&](Role role, int32_t layer) -> Status {
    if (!HasRole(r, role, layer)) return {};
    const RoleName* n = find(role);
    if (n == nullptr) {
      return InternalError("family " + r.family + " has no name for role " + std::to_string(static_cast<int>(role)));
    }
    TensorBinding b;
    b.role = role;
    b.layer = layer;
    b.shape = RoleShape(r, role);
    b.storage = n->storage;
    b.hf_mxfp4 = n->hf_mxfp4;
    const std::string name = Expand(n->name, layer, prefix);
    b.names = n->hf_mxfp4 ? std::vector<std::string>{name + "_blocks", name + "_scales"} : std::vector<std::string>{name};
    spec.bindings.push_back(std::move(b));
    return {};
  };
  for (const Role role : kGlobalRoles) TALLY_RETURN_IF_ERROR(bind(role, -1));
  for (int32_t layer = 0; layer < r.n_layers; ++layer) {
    for (const Role role : kLayerRoles) TALLY_RETURN_IF_ERROR(bind(role, layer));
  }
  return {};
}

Status CheckClaims(const Inventory& inventory, const ModelSpec& spec) {
  // What claims a stored tensor: a whole one counts 2, each half 1, and both halves must be there.
  struct Claim {
    int shares = 0;
    Storage first_half = Storage::kPlain;
  };
  std::map<std::string_view, Claim> claims;
  auto claim = [&](std::string_view name, Storage storage) -> Status {
    Claim& c = claims[name];
    const bool same_half = c.shares == 1 && IsHalf(storage) && storage == c.first_half;
    c.shares += IsHalf(storage) ? 1 : 2;
    c.first_half = storage;
    if (c.shares > 2 || same_half)
      return InternalError("family " + spec.recipe.family + " claims tensor " + std::string(name) + " twice");
    return {};
  };
  for (const TensorBinding& b : spec.bindings) {
    for (const Wanted& w : WantedTensors(b)) {
      const StoredTensor* t = inventory.Find(w.name);
      if (t == nullptr) {
        return BadInput(inventory.path + ": tensor " + Quote(w.name) + " " + ShapeText(w.shape) + " is missing (" +
                        spec.recipe.family + " needs it)");
      }
      if (t->shape != w.shape) {
        return BadInput(FileOf(inventory, *t) + ": tensor " + Quote(t->name) + " has shape " + ShapeText(t->shape) +
                        "; expected " + ShapeText(w.shape));
      }
      if (w.bytes ? t->dtype != DType::kU8 : !CanRun(b, t->dtype)) {
        return BadInput(FileOf(inventory, *t) + ": tensor " + Quote(t->name) + " has type " + std::string(DTypeName(t->dtype)) +
                        ", which cannot be run; expected " +
                        (w.bytes        ? "U8 (part of an MXFP4 tensor)"
                         : OnlyPlain(b) ? "F32, F16 or BF16"
                                        : WeightTypeNames()));
      }
      TALLY_RETURN_IF_ERROR(claim(t->name, b.storage));
    }
  }
  TALLY_RETURN_IF_ERROR(CheckTypesAgree(inventory, spec));
  for (const auto* names : {&spec.buffers, &spec.not_run}) {
    for (const std::string& name : *names) TALLY_RETURN_IF_ERROR(claim(name, Storage::kPlain));
  }
  for (const StoredTensor& t : inventory.tensors) {
    const auto found = claims.find(t.name);
    if (found == claims.end()) {
      return BadInput(FileOf(inventory, t) + ": tensor " + Quote(t.name) + " " + ShapeText(t.shape) + " has no place in a " +
                      spec.recipe.family + " model of " + std::to_string(spec.recipe.n_layers) +
                      " layers as its metadata describes it");
    }
    if (found->second.shares != 2) return InternalError("family " + spec.recipe.family + " claims only half of tensor " + t.name);
  }
  return {};
}

}  // namespace tally
