// SPDX-License-Identifier: Apache-2.0
#include "models/binding.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "models/gate_up_rows.h"

namespace tally {

std::string ExpandName(std::string_view name, int32_t layer, std::string_view prefix, int64_t expert) {
  std::string out;
  if (prefix.starts_with(kBody)) {
    const std::string_view body = prefix.substr(kBody.size());
    const bool optional = name.starts_with("~");
    if (optional) name.remove_prefix(1);
    if (name.starts_with("model.")) {
      name.remove_prefix(6);
      out = body;
    } else if (optional && body.ends_with(".model.")) {
      out = body.substr(0, body.size() - 6);
    }
  }
  for (const char c : name) {
    if (c == '#') {
      out += std::to_string(layer);
    } else if (c == '*') {
      out += std::to_string(expert);
    } else if (c == '~') {
      out += prefix;
    } else {
      out += c;
    }
  }
  return out;
}

std::string FindBody(const Inventory& inventory) {
  std::string_view found;
  size_t most = 0;
  for (const std::string_view body :
       {"model.", "language_model.model.", "model.language_model.", "", "language_model.", "model.language_model.model."}) {
    const std::string layers = std::string(body) + "layers.", embedding = std::string(body) + "embed_tokens.";
    const size_t n = static_cast<size_t>(std::ranges::count_if(
        inventory.tensors, [&](const StoredTensor& t) { return t.name.starts_with(layers) || t.name.starts_with(embedding); }));
    if (n > most) found = body, most = n;
  }
  return most == 0 || found == "model." ? "" : std::string(kBody) + std::string(found);
}

namespace {

// `rows`: rows of the stored tensor if several bindings share it; else 0.
std::vector<NeededTensor> NeededBy(const TensorBinding& b, uint64_t rows) {
  std::vector<uint64_t> shape = b.StoredShape(rows > 0 ? rows : b.mapped_rows());
  if (b.split && b.names.size() == 2) {
    const DTypeInfo type = GetDTypeInfo(*b.split);
    shape.back() /= type.block_size;
    std::vector<uint64_t> blocks = shape;
    blocks.push_back(type.block_bytes - 1);
    return {{b.names[0], blocks, b.split}, {b.names[1], shape, b.split}};
  }
  if (b.names.size() > 1) shape.erase(shape.begin());  // one tensor per expert
  std::vector<NeededTensor> needed;
  for (const std::string& name : b.names) needed.push_back({name, shape, std::nullopt});
  return needed;
}

// For each tensor that bindings share: the rows that they take together.
std::map<std::string_view, uint64_t> SharedRows(const ModelSpec& spec) {
  std::map<std::string_view, uint64_t> rows;
  for (const TensorBinding& b : spec.bindings) {
    if (b.rows.all()) continue;
    for (const std::string& name : b.names) rows[name] += b.mapped_rows();
  }
  return rows;
}

// Vectors are widened to f32, exactly. Matrices may be quantised too, but blocks cannot be transposed.
bool OnlyPlain(const TensorBinding& b) { return b.vector() || b.storage == Storage::kTransposed; }

bool CanRun(const TensorBinding& b, DType t) { return IsWeightType(t) && !(GetDTypeInfo(t).quantised && OnlyPlain(b)); }

std::string OfOtherType(const StoredTensor& t) {
  return t.other_type.empty() ? std::string() : " of type " + Printable(t.other_type);
}

std::string FileOf(const Inventory& inventory, const StoredTensor& t) {
  return t.file < inventory.files.size() ? inventory.files[t.file].path : inventory.path;
}

Status WrongType(const Inventory& inventory, const StoredTensor& t, const std::string& expected) {
  return BadInput(FileOf(inventory, t) + ": tensor " + Quote(t.name) + " has type " + Printable(t.type_name()) +
                  ", which cannot be run; expected " + expected);
}

// Checks that the tensors of all experts of a matrix have one type. All of them must be stored.
Status CheckTypesAgree(const Inventory& inventory, const TensorBinding& b) {
  if (b.names.empty()) return {};
  const StoredTensor& first = *inventory.Find(b.names[0]);
  for (const std::string& name : b.names) {
    const StoredTensor& t = *inventory.Find(name);
    if (b.type(t.dtype) == b.type(first.dtype)) continue;
    return BadInput(FileOf(inventory, first) + ": tensors " + Quote(first.name) + " (" + std::string(DTypeName(first.dtype)) +
                    ") and " + Quote(t.name) + " (" + std::string(DTypeName(t.dtype)) +
                    ") are experts of one matrix and must be of one type");
  }
  return {};
}

}  // namespace

std::vector<NeededTensor> NeededTensors(const ModelSpec& spec) {
  const std::map<std::string_view, uint64_t> rows = SharedRows(spec);
  std::vector<NeededTensor> all;
  std::set<std::string> seen;
  for (size_t i = 0; i < spec.bindings.size(); ++i) {
    const TensorBinding& b = spec.bindings[i];
    for (NeededTensor& t : NeededBy(b, b.rows.all() ? 0 : rows.at(b.names[0]))) {
      if (!seen.insert(t.name).second) continue;
      t.binding = i;
      all.push_back(std::move(t));
    }
  }
  return all;
}

bool IsStored(const Inventory& inventory, std::string_view name) { return inventory.Find(name) != nullptr; }

bool AnyLayerHas(const Inventory& inventory, const Recipe& recipe, std::string_view name, std::string_view prefix) {
  for (int32_t layer = 0; layer < recipe.n_layers; ++layer) {
    if (IsStored(inventory, ExpandName(name, layer, prefix))) return true;
  }
  return false;
}

bool AnyLayerHas(const Inventory& gguf, const Recipe& recipe, Role role) {
  for (int32_t layer = 0; layer < recipe.n_layers; ++layer) {
    if (IsStored(gguf, GgufName(role, layer))) return true;
  }
  return false;
}

namespace {

// Codes in F8_E4M3 have their scales beside them: NAME_scale_inv (DeepSeek-V3 and transformers' fp8; it multiplies, whatever its name
// says) or NAME_scale (compressed-tensors, fbgemm). Scales of activations, which are not quantised here, are no weights.
void FindScales(const Inventory& inventory, TensorBinding& b, ModelSpec& spec) {
  const StoredTensor* const first = inventory.Find(b.names[0]);
  if (inventory.format == FileFormat::kGguf || first == nullptr || first->dtype != DType::kF8_E4M3) return;
  for (const std::string& name : b.names) {
    b.scales.push_back(IsStored(inventory, name + "_scale") ? name + "_scale" : name + "_scale_inv");
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kWeight)) continue;
    const std::string module = name.substr(0, name.size() - kWeight.size());
    for (const char* scale : {".input_scale", ".activation_scale", ".input_scale_ub"}) {
      const std::string other = module + scale;
      if (IsStored(inventory, other) && std::ranges::find(spec.buffers, other) == spec.buffers.end())
        spec.buffers.push_back(other);
    }
  }
}

// The names of a layer for prediction that its files have apart: "mtp.layers.0." in place of "~model.layers.#.".
std::string ExpandApart(std::string_view name, std::string_view prefix, int64_t expert = 0) {
  constexpr std::string_view kLayer = "model.layers.#.";
  const size_t at = name.find(kLayer);
  if (at == name.npos) return ExpandName(name, 0, prefix, expert);
  return ExpandName("mtp.layers.0." + std::string(name.substr(at + kLayer.size())), 0, "", expert);
}

// Whether the family's Hugging Face files have the layer for prediction apart.
bool IsApart(const Inventory& inventory, std::span<const RoleName> own, const Recipe& r) {
  if (inventory.format == FileFormat::kGguf || !r.prediction()) return false;
  const auto matrix = std::ranges::find(own, Role::kNextProj, &RoleName::role);
  return matrix != own.end() && matrix->name.starts_with("mtp.");
}

// A layer's names.
struct LayerNames {
  int32_t layer = -1;
  std::string_view prefix;
  bool apart = false, prediction = false;
  std::string Expand(std::string_view name, int64_t expert = 0) const {
    return apart ? ExpandApart(name, prefix, expert) : ExpandName(name, layer, prefix, expert);
  }
};

// An entry of a table of names, or one that follows from it.
struct FoundName {
  std::string name;
  Storage storage = Storage::kPlain;
  RowMap (*rows)(const Recipe&) = nullptr;
  std::optional<DType> split = std::nullopt;
  bool each_expert() const { return name.find('*') != name.npos; }
};
using MaybeName = std::optional<FoundName>;

MaybeName ToFound(const RoleName* name) {
  if (name == nullptr) return std::nullopt;
  return FoundName{std::string(name->name), name->storage, name->rows, name->split};
}

// What may follow "experts." in any family's Hugging Face files: a tensor for each expert, by either of the usual names, or those of all as
// one (transformers 5: gate_up_proj [experts, 2 width, in], gate's rows first, and down_proj [experts, out, width]).
constexpr RoleName kExpertForms[] = {
    {Role::kExpertGate, "*.gate_proj.weight"},
    {Role::kExpertUp, "*.up_proj.weight"},
    {Role::kExpertDown, "*.down_proj.weight"},
    {Role::kExpertGate, "*.w1.weight"},
    {Role::kExpertUp, "*.w3.weight"},
    {Role::kExpertDown, "*.w2.weight"},
    {Role::kExpertGate, "gate_up_proj", Storage::kPlain, GateRows<ExpertWidth>},
    {Role::kExpertUp, "gate_up_proj", Storage::kPlain, UpRows<ExpertWidth>},
    {Role::kExpertUp, "up_proj"},
    {Role::kExpertDown, "down_proj"},
};

// Gate and up of a feed-forward, or of the shared experts, as one tensor: "gate_up_proj" in place of either name.
constexpr RoleName kGateUpForms[] = {
    {Role::kGate, "gate_proj.", Storage::kPlain, GateRows<DenseWidth>},
    {Role::kUp, "up_proj.", Storage::kPlain, UpRows<DenseWidth>},
    {Role::kSharedExpertGate, "gate_proj.", Storage::kPlain, GateRows<SharedWidth>},
    {Role::kSharedExpertUp, "up_proj.", Storage::kPlain, UpRows<SharedWidth>},
};

// The entry of a role in `own`, or else in HfDecoderNames: the first that is stored, or else the first. From GgufOtherNames only one that
// is stored. Null: none. In a layer for prediction, entries of such layers come before others. `made_with`: as in BindRoles.
const RoleName* FindEntry(const Inventory& inventory, std::span<const RoleName> own, const LayerNames& names, Role role,
                          std::optional<DType> made_with) {
  const bool gguf = inventory.format == FileFormat::kGguf;
  const std::span<const RoleName> usual = gguf ? GgufOtherNames() : HfDecoderNames();
  const auto find = [&](std::span<const RoleName> table, bool prediction, bool only_stored) {
    const RoleName* found = nullptr;
    for (const RoleName& name : table) {
      if (name.role != role || name.prediction != prediction || (made_with && name.split && name.split != made_with)) continue;
      if (found == nullptr && !only_stored) found = &name;
      if (IsStored(inventory, names.Expand(name.name) + (name.split ? "_blocks" : ""))) return &name;
    }
    return found;
  };
  if (names.prediction) {
    if (const RoleName* const found = find(own, true, false)) return found;
  }
  if (const RoleName* const found = find(own, false, false)) return found;
  return find(usual, false, gguf);
}

// Another form that is stored in place of `entry`, which is not. transformers 5 calls every family's mixture "mlp": its router, the
// router's bias and its experts are looked for there, too.
MaybeName FindOtherForm(const Inventory& inventory, const LayerNames& names, Role role, const RoleName& entry) {
  const auto stored = [&](const std::string& name) { return IsStored(inventory, names.Expand(name)); };
  constexpr std::string_view kExperts = "experts.", kMixture = "~model.layers.#.mlp.";
  std::string own(entry.name);
  if (std::ranges::find(kExpertForms, role, &RoleName::role) != std::end(kExpertForms)) {
    size_t end = own.find(kExperts);  // of the module that has the experts
    if (end == own.npos) end = own.rfind('.', own.rfind('.') - 1) + 1;
    own.resize(end);
    for (const std::string& module : {own, std::string(kMixture)}) {
      for (const RoleName& form : kExpertForms) {
        const std::string name = module + std::string(kExperts) + std::string(form.name);
        if (form.role == role && stored(name)) return FoundName{name, form.storage, form.rows};
      }
    }
  }
  for (const RoleName& form : kGateUpForms) {
    const size_t at = own.rfind(form.name);
    if (form.role != role || at == own.npos) continue;
    const std::string name = own.substr(0, at) + "gate_up_proj." + own.substr(at + form.name.size());
    if (stored(name)) return FoundName{name, form.storage, form.rows};
  }
  if (role == Role::kRouter || role == Role::kRouterBias) {
    const std::string last = role == Role::kRouter ? "gate.weight" : own.substr(own.rfind('.') + 1);
    for (const std::string& name : {std::string(kMixture) + last, std::string(kMixture) + "gate." + last,
                                    std::string(kMixture) + "gate.moe_statics." + last}) {
      if (stored(name)) return FoundName{name, entry.storage, entry.rows};
    }
  }
  return std::nullopt;
}

// How the experts' matrices lie in a tensor that has those of all: as [out, in], or transposed (Llama 4, gpt-oss, the published files of
// Qwen3-VL). The shape says it, or else that of the tensor beside it: a width cannot be both the input's and twice an expert's, and also
// the expert's. nullopt: neither shape says it.
std::optional<Storage> ExpertStorage(const Inventory& inventory, const Recipe& r, const std::string& name, Role role) {
  const uint64_t width = static_cast<uint64_t>(r.all.experts.width),
                 outer = static_cast<uint64_t>(r.all.experts.latent > 0 ? r.all.experts.latent : r.d_model);
  constexpr std::string_view kDown = "down_proj", kGateUp = "gate_up_proj";
  const auto of = [&](const std::string& tensor, uint64_t out, uint64_t in) -> std::optional<Storage> {
    const StoredTensor* const t = inventory.Find(tensor);
    if (t == nullptr || t->shape.size() != 3 || out == in) return std::nullopt;
    if (t->shape[1] == out && t->shape[2] == in) return Storage::kPlain;
    if (t->shape[1] == in && t->shape[2] == out) return Storage::kTransposed;
    return std::nullopt;
  };
  const bool down = role == Role::kExpertDown, both = name.ends_with(kGateUp);
  const auto own = down ? of(name, outer, width) : of(name, both ? 2 * width : width, outer);
  if (own || !(down ? name.ends_with(kDown) : both)) return own;
  const std::string module = name.substr(0, name.size() - (down ? kDown : kGateUp).size());
  return down ? of(module + std::string(kGateUp), 2 * width, outer) : of(module + std::string(kDown), outer, width);
}

// The name of a role, and how its tensor is stored.
MaybeName FindName(const Inventory& inventory, std::span<const RoleName> own, const LayerNames& names, Role role,
                   const Recipe* recipe = nullptr, std::optional<DType> made_with = std::nullopt) {
  const RoleName* const entry = FindEntry(inventory, own, names, role, made_with);
  MaybeName found = ToFound(entry);
  if (!found || inventory.format == FileFormat::kGguf || made_with || found->split) return found;
  if (!IsStored(inventory, names.Expand(entry->name))) {
    if (MaybeName other = FindOtherForm(inventory, names, role, *entry)) found = std::move(other);
  }
  const bool matrix = role == Role::kExpertGate || role == Role::kExpertUp || role == Role::kExpertDown;
  if (matrix && recipe != nullptr && !found->each_expert()) {
    found->storage = ExpertStorage(inventory, *recipe, names.Expand(found->name), role).value_or(found->storage);
  }
  return found;
}

// The recipe of a model all of whose layers have this layer's sizes.
Recipe OfLayer(Recipe r, int32_t layer) {
  r.all = r.layer(layer);
  return r;
}

// TensorBinding::stored_heads. For Mamba-2 and Kimi Delta Attention, GGUF stores vectors with a number for each head as [heads, 1], and
// Mamba-2's norm as [groups, n].
uint64_t StoredHeads(const Recipe& r, Role role, int32_t layer, bool gguf) {
  if (layer < 0) return 0;
  const LayerRecipe& l = r.layer(layer);
  int32_t heads = 0;
  if (r.all.attention.qk_norm == QkNormKind::kEachHead) {
    if (role == Role::kQNorm) heads = l.attention.n_heads;
    if (role == Role::kKNorm) heads = l.attention.n_kv_heads;
  }
  if (!gguf && role == Role::kRouterBias && SoftmaxOfAll(r.all.experts.routing)) heads = 1;  // ERNIE
  if (gguf && l.mixers.has(Mixer::kMamba2)) {
    if (role == Role::kSsmA || role == Role::kSsmD) heads = r.all.mamba.heads;
    if (role == Role::kSsmNorm) heads = r.all.mamba.norm_groups;
  }
  if (gguf && role == Role::kSsmA && l.mixers.has(Mixer::kDeltaRule) && r.all.delta.channel_decay)
    heads = r.all.delta.value_heads;
  return static_cast<uint64_t>(heads);
}

std::string NameOf(const MaybeName& name, const LayerNames& names, Role role) {
  return name ? names.Expand(name->name) : GgufName(role, names.layer);
}

}  // namespace

std::string TensorName(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, Role role) {
  const LayerNames names{.prefix = prefix};
  return NameOf(FindName(inventory, own, names, role), names, role);
}

namespace {

// Binds the roles of a stack's layer, or of layer -1.
Status BindLayer(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, const Recipe& r,
                 int32_t layer, std::optional<DType> made_with, ModelSpec& spec) {
  const bool gguf = inventory.format == FileFormat::kGguf;
  const std::string head = TensorName(inventory, own, prefix, Role::kHead);
  const LayerNames names{layer, prefix, IsApart(inventory, own, r), r.prediction()};
  for (int i = 0; i < kRoles; ++i) {
    TensorBinding b;
    b.role = static_cast<Role>(i);
    b.layer = layer;
    if (!HasRole(r, b.role, layer)) continue;
    b.shape = RoleShape(r, b.role, layer);
    b.stored_heads = StoredHeads(r, b.role, layer, gguf);
    const MaybeName n = FindName(inventory, own, names, b.role, &r, made_with);
    if (!n && !gguf) return InternalError("family " + r.family + " has no name for " + WeightName(b.role, layer));
    std::string name = NameOf(n, names, b.role);
    if (b.role == Role::kTokenEmbedding && r.tied_head && IsStored(inventory, head)) {
      if (IsStored(inventory, name)) {
        spec.stored_head = head;
        spec.not_run.push_back(head);
        spec.parts_not_run.push_back({head, 0, inventory.Find(head)->bytes});
      } else {
        name = head;
      }
    }
    if (n) {
      b.storage = n->storage;
      b.split = n->split;
      if (n->rows != nullptr) b.rows = n->rows(layer >= 0 ? OfLayer(r, layer) : r);
    }
    b.names = b.split ? std::vector<std::string>{name + "_blocks", name + "_scales"} : std::vector<std::string>{name};
    if (n && n->each_expert()) {
      while ((made_with || IsStored(inventory, b.names.back())) &&
             static_cast<int64_t>(b.names.size()) < r.all.experts.n_experts) {
        b.names.push_back(names.Expand(n->name, static_cast<int64_t>(b.names.size())));
      }
    }
    if (!b.vector() && !b.split) FindScales(inventory, b, spec);
    spec.bindings.push_back(std::move(b));
  }
  return {};
}

}  // namespace

Status BindRoles(const Inventory& inventory, std::span<const RoleName> own, std::string_view prefix, ModelSpec& spec,
                 std::optional<DType> made_with) {
  TALLY_RETURN_IF_ERROR(BindLayer(inventory, own, prefix, spec.recipe, -1, made_with, spec));
  for (const Recipe* const stack : spec.stacks()) {
    for (int32_t layer = stack->first_layer; layer < stack->end_layer(); ++layer) {
      TALLY_RETURN_IF_ERROR(BindLayer(inventory, own, prefix, *stack, layer, made_with, spec));
    }
  }
  return {};
}

namespace {

// Scales that belong to a quantised KV cache or to quantised activations of attention (compressed-tensors, ModelOpt, Quark, vLLM). The
// cache here has scales of its own, or none.
bool IsCacheScale(std::string_view name) {
  static constexpr std::string_view kNames[] = {"k_scale",        "v_scale",      "q_scale",     "kv_scale",
                                                "kv_cache_scale", "p_scale",      "prob_scale",  "softmax_scale",
                                                "output_scale",   "k_zero_point", "v_zero_point"};
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return (name.find("attn") != name.npos || name.find("attention") != name.npos) &&
         std::ranges::find(kNames, last) != std::end(kNames);
}

// transformers computes these anew: they are not among a model's parameters, or listed as _keys_to_ignore_on_load_unexpected. llama.cpp
// skips attn_rot_embd.
bool IsComputed(const StoredTensor& t, bool gguf) {
  if (t.elements() == 0) return true;
  if (gguf) return t.name.ends_with(".attn_rot_embd") || t.name.ends_with(".attn_rot_embd.weight");
  static constexpr std::string_view kNames[] = {"inv_freq",  "original_inv_freq", "cos_cached",   "sin_cached", "cos_cache",
                                                "sin_cache", "masked_bias",       "position_ids", "causal_mask"};
  const std::string_view last = std::string_view(t.name).substr(t.name.rfind('.') + 1);
  if (std::ranges::find(kNames, last) != std::end(kNames)) return true;
  const std::vector<uint64_t>& s = t.shape;  // the causal mask of GPT-2 and its like is called a bias
  return (last == "bias" || last == "mask") && s.size() == 4 && s[0] == 1 && s[1] == 1 && s[2] == s[3];
}

}  // namespace

void AddBuffers(const Inventory& inventory, ModelSpec& spec) {
  std::set<std::string_view> claimed(spec.not_run.begin(), spec.not_run.end());
  claimed.insert(spec.buffers.begin(), spec.buffers.end());
  for (const TensorBinding& b : spec.bindings) {
    claimed.insert(b.names.begin(), b.names.end());
    claimed.insert(b.scales.begin(), b.scales.end());
  }
  std::vector<std::string> buffers;
  std::vector<std::string> scales;
  for (const StoredTensor& t : inventory.tensors) {
    const bool scale = inventory.format == FileFormat::kHuggingFace && IsCacheScale(t.name) && !claimed.contains(t.name);
    if (scale) scales.push_back(t.name);
    if (!scale && IsComputed(t, inventory.format == FileFormat::kGguf) && !claimed.contains(t.name)) buffers.push_back(t.name);
  }
  spec.buffers.insert(spec.buffers.end(), buffers.begin(), buffers.end());
  if (scales.empty()) return;
  spec.notes.push_back("its scales of a quantised KV cache (" + Quote(scales[0]) +
                       (scales.size() > 1 ? " and " + std::to_string(scales.size() - 1) + " more" : "") + ") are not used");
  spec.buffers.insert(spec.buffers.end(), scales.begin(), scales.end());
}

namespace {

// True if `stored` is `name` with more parts between its own or before them, as wrappers make it: "net.model._orig_mod.norm.weight" of
// "model.norm.weight". Numbers are no such parts: they are layers and experts.
bool IsWithinWrapper(std::string_view name, std::string_view stored) {
  const auto next = [](std::string_view& rest) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    return part;
  };
  std::string_view wanted = next(name);
  while (!stored.empty()) {
    const std::string_view part = next(stored);
    if (part == wanted) {
      if (name.empty()) return stored.empty();
      wanted = next(name);
    } else if (part.find_first_not_of("0123456789") == part.npos) {
      return false;
    }
  }
  return false;
}

// The claimed rows of a stored tensor.
struct Claim {
  uint64_t rows = 0;        // if bindings share it: the rows that they take together
  bool whole = false;       // claimed as a whole
  std::vector<bool> taken;  // if bindings share it: the claimed rows
};

class Claims {
 public:
  Claims(const Inventory& inventory, const ModelSpec& spec) : inventory_(inventory), spec_(spec) {
    for (const auto& [name, rows] : SharedRows(spec)) claims_[name].rows = rows;
  }

  Status Check() {
    TALLY_RETURN_IF_ERROR(CheckNoAdapter());
    for (const TensorBinding& b : spec_.bindings) TALLY_RETURN_IF_ERROR(CheckBinding(b));
    for (const auto* names : {&spec_.buffers, &spec_.not_run}) {
      for (const std::string& name : *names) TALLY_RETURN_IF_ERROR(Take(name, nullptr));
    }
    for (const StoredTensor& t : inventory_.tensors) {
      const auto found = claims_.find(t.name);
      if (found == claims_.end()) {
        return BadInput(FileOf(inventory_, t) + ": tensor " + Quote(t.name) + " " + ShapeText(t.shape) + OfOtherType(t) +
                        " has no place in a " + spec_.recipe.family + " model of " + std::to_string(spec_.recipe.n_layers) +
                        " layers as its metadata describes it" + Scaled(t));
      }
      const std::vector<bool>& taken = found->second.taken;
      const auto hole = std::find(taken.begin(), taken.end(), false);
      if (hole != taken.end()) return Defect(t.name, "leaves row " + std::to_string(hole - taken.begin()) + " unclaimed");
    }
    return {};
  }

 private:
  Status Defect(std::string_view name, const std::string& what) const {
    return InternalError("family " + spec_.recipe.family + ": tensor " + std::string(name) + ": " + what);
  }

  // PEFT's names of an adapter that was saved with its model: its own matrices, and modules of which it has a copy that was trained.
  Status CheckNoAdapter() const {
    for (const StoredTensor& t : inventory_.tensors) {
      const auto has = [&](std::string_view part) { return t.name.find(part) != t.name.npos; };
      const bool lora = has("lora_A") || has("lora_B");
      if (!lora && !has(".modules_to_save.")) continue;
      return BadInput(FileOf(inventory_, t) + ": tensor " + Quote(t.name) + " is part of a " + (lora ? "LoRA" : "PEFT") +
                      " adapter, which cannot be run: merge it into its model (PEFT: merge_and_unload)");
    }
    return {};
  }

  // For a message: what is stored in place of a tensor. GPTQ and AWQ store NAME.qweight instead of NAME.weight; else a name that may be the
  // tensor within a wrapper.
  std::string InItsPlace(const std::string& name) const {
    constexpr std::string_view kWeight = ".weight";
    if (name.ends_with(kWeight)) {
      const std::string packed = name.substr(0, name.size() - kWeight.size()) + ".qweight";
      if (IsStored(inventory_, packed)) return "; there is " + Quote(packed) + ", of GPTQ or AWQ, which cannot be read";
    }
    const auto within = [&](const StoredTensor& t) { return IsWithinWrapper(name, t.name); };
    const auto wrapped = std::ranges::find_if(inventory_.tensors, within);
    return wrapped == inventory_.tensors.end() ? "" : "; there is " + Quote(wrapped->name);
  }
  // For a message: the codes that a tensor of scales belongs to, if their type cannot be run with scales.
  std::string Scaled(const StoredTensor& scales) const {
    for (const std::string_view end : {"_scale_inv", "_scale"}) {
      if (!scales.name.ends_with(end)) continue;
      const StoredTensor* codes = inventory_.Find(std::string_view(scales.name).substr(0, scales.name.size() - end.size()));
      if (codes == nullptr || codes->dtype == DType::kF8_E4M3) continue;
      return "; it scales " + Quote(codes->name) + ", which is " + Printable(codes->type_name()) + ": only F8_E4M3 is run so";
    }
    return "";
  }

  Status CheckBinding(const TensorBinding& b) {
    const uint64_t rows = b.rows.all() || b.names.empty() ? 0 : claims_[b.names[0]].rows;
    for (const NeededTensor& w : NeededBy(b, rows)) {
      const StoredTensor* t = inventory_.Find(w.name);
      if (t == nullptr) {
        return BadInput(inventory_.path + ": tensor " + Quote(w.name) + " " + ShapeText(w.shape) + " is missing (" +
                        spec_.recipe.family + " needs it)" + InItsPlace(w.name));
      }
      if (!ShapesAgree(t->shape, w.shape)) {
        return BadInput(FileOf(inventory_, *t) + ": tensor " + Quote(t->name) + " has shape " + ShapeText(t->shape) +
                        "; expected " + ShapeText(w.shape));
      }
      if (w.part_of && (t->dtype != DType::kU8 || !t->other_type.empty())) {
        return WrongType(inventory_, *t, "U8 (part of a tensor in " + std::string(DTypeName(*w.part_of)) + ")");
      }
      TALLY_RETURN_IF_ERROR(Take(t->name, &b));
    }
    for (const std::string& name : b.scales) {
      if (inventory_.Find(name) == nullptr) {
        return BadInput(inventory_.path + ": tensor " + Quote(name) + " is missing, the scales of F8_E4M3 weights");
      }
      claims_[name].whole = true;  // weights that share the codes share the scales
    }
    return {};
  }

  // The rows of a tensor that a binding takes; null: the whole tensor.
  Status Take(std::string_view name, const TensorBinding* b) {
    Claim& c = claims_[name];
    const bool all = b == nullptr || b->rows.all();
    if (c.whole || (all && c.rows > 0)) return Defect(name, "is claimed twice");
    c.whole = all;
    if (all) return {};
    c.taken.resize(c.rows);
    for (uint64_t r = 0; r < b->mapped_rows(); ++r) {
      const uint64_t row = b->rows.Stored(r);
      if (row >= c.rows) return Defect(name, "has no row " + std::to_string(row));
      if (c.taken[row]) return Defect(name, "row " + std::to_string(row) + " is claimed twice");
      c.taken[row] = true;
    }
    return {};
  }

  const Inventory& inventory_;
  const ModelSpec& spec_;
  std::map<std::string_view, Claim> claims_;
};

}  // namespace

Status CheckClaims(const Inventory& inventory, const ModelSpec& spec) { return Claims(inventory, spec).Check(); }

Status CheckTypes(const Inventory& inventory, const ModelSpec& spec) {
  for (const TensorBinding& b : spec.bindings) {
    if (b.split) continue;  // stored in parts, whose type CheckClaims checks
    for (const std::string& name : b.names) {
      const StoredTensor& t = *inventory.Find(name);
      const bool coded = !b.scales.empty() && t.dtype == DType::kF8_E4M3 && b.storage != Storage::kTransposed;
      if (!coded && !CanRun(b, t.dtype)) return WrongType(inventory, t, OnlyPlain(b) ? "F32, F16 or BF16" : WeightTypeNames());
    }
    TALLY_RETURN_IF_ERROR(CheckTypesAgree(inventory, b));
  }
  return {};
}

}  // namespace tally
