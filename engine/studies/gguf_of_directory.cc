// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/gguf_of_directory.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "engine/base/format.h"
#include "engine/chat/template_source.h"
#include "engine/kernels/unpack.h"
#include "engine/text/tokenizer.h"
#include "engine/weights/plan.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

// The model's name: the directory's; in a cache of the hub (models--ORG--NAME/snapshots/REVISION) NAME.
std::string NameOf(const std::string& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::filesystem::path above = path.parent_path();
  const std::string model = above.parent_path().filename().string();
  if (above.filename() == "snapshots" && model.starts_with("models--")) return model.substr(model.rfind("--") + 2);
  return path.filename().string();
}

bool StoredAsF32(const TensorBinding& b) {
  return b.vector() || b.role == Role::kRouter || b.role == Role::kPositionEmbedding || b.role == Role::kSharedExpertSigmoid;
}

constexpr std::pair<Role, const char*> kXieluKeys[] = {{Role::kXieluN, "xielu.alpha_n"},
                                                       {Role::kXieluP, "xielu.alpha_p"},
                                                       {Role::kXieluBeta, "xielu.beta"},
                                                       {Role::kXieluEps, "xielu.eps"}};

bool IsOverRootInBoth(const TensorBinding* from, const TensorBinding& made) {
  return from != nullptr && from->storage == Storage::kOverRoot && made.storage == Storage::kOverRoot;
}

}  // namespace

Result<GgufOfDirectory> GgufOfDirectory::Open(const std::string& directory, const std::vector<std::string>& allowed) {
  GgufOfDirectory d;
  TALLY_ASSIGN_OR_RETURN(d.source_, ReadHuggingFace(directory));
  TALLY_RETURN_IF_ERROR(d.ReadModel());
  TALLY_RETURN_IF_ERROR(d.SetTypes());
  if (d.spec_.recipe.all.network.stored_xielu) TALLY_RETURN_IF_ERROR(d.SetXielu());
  d.made_.inventory.path = directory;
  d.made_.inventory.metadata.Set("general.name", NameOf(directory));
  TALLY_RETURN_IF_ERROR(d.SetTokenizer(allowed));
  return d;
}

// With the first layer for multi-token prediction, if there is one that runs and that GGUF can say.
Status GgufOfDirectory::ReadModel() {
  constexpr MadeTypes kTypes{DType::kF32, DType::kF32};
  Result<ModelSpec> predicting = ReadModelSpec(source_, /*prediction=*/true);
  Result<MadeCheckpoint> made = MakeGguf(source_, kTypes, predicting.ok());
  if (predicting.ok() && made.ok()) {
    spec_ = std::move(predicting).value();
  } else {
    TALLY_ASSIGN_OR_RETURN(spec_, ReadModelSpec(source_));
    if (predicting.ok()) made = MakeGguf(source_, kTypes);
  }
  if (!made.ok()) return made.status();
  made_ = std::move(made).value();
  for (const PartNotRun& part : spec_.parts_not_run) {
    if (part.parameters == 0u) continue;
    spec_.notes.push_back("not written: " + Printable(part.name) + (part.bytes ? " (" + BytesText(*part.bytes) + ")" : ""));
  }
  return {};
}

const TensorBinding* GgufOfDirectory::SourceOf(const TensorBinding& made) const {
  const auto found =
      std::ranges::find_if(spec_.bindings, [&](const TensorBinding& b) { return b.role == made.role && b.layer == made.layer; });
  return found == spec_.bindings.end() ? nullptr : &*found;
}

Status GgufOfDirectory::SetTypes() {
  for (size_t i = 0; i < made_.inventory.tensors.size(); ++i) {
    StoredTensor& t = made_.inventory.tensors[i];
    const TensorBinding& made = made_.spec.bindings[made_.made_for[i]];
    const bool computed = FactsOf(made.role).kind == WeightInfo::Kind::kBuffer;
    const TensorBinding* const b = computed ? nullptr : SourceOf(made);
    if (b == nullptr && !computed) return InternalError("the directory has nothing for " + WeightName(made.role, made.layer));
    const bool as_stored = made.storage == Storage::kPlain || made.storage == Storage::kTaps ||
                           made.storage == Storage::kConv1d || IsOverRootInBoth(b, made);
    if (b != nullptr && (b->shape != made.shape || !as_stored)) {
      return InternalError("GGUF stores " + WeightName(made.role, made.layer) + " otherwise");
    }
    t.dtype = StoredAsF32(made) ? DType::kF32 : b->type(source_.Find(b->names[0])->dtype);
  }
  return {};
}

// The numbers of xIELU, which GGUF has as keys, as they are stored; those that are not keep the values of a new model.
Status GgufOfDirectory::SetXielu() {
  ModelSpec sub;
  sub.recipe = spec_.recipe;
  for (const TensorBinding& b : spec_.bindings) {
    if (std::ranges::find(kXieluKeys, b.role, &std::pair<Role, const char*>::first) == std::end(kXieluKeys)) continue;
    sub.bindings.push_back(b);
    sub.bindings.back().storage = Storage::kPlain;
  }
  Team team(1);
  TALLY_ASSIGN_OR_RETURN(const WeightPlan plan, PlanWeights(source_, sub, 0));
  TALLY_ASSIGN_OR_RETURN(const PackedWeights weights, LoadWeights(source_, plan, team, nullptr));
  for (const auto& [role, key] : kXieluKeys) {
    std::vector<double> of;
    for (int32_t i = 0; i < spec_.recipe.n_layers && HasRole(spec_.recipe, role, i); ++i) {
      const bool buffer = FactsOf(role).kind == WeightInfo::Kind::kBuffer;
      of.push_back(static_cast<double>(buffer ? weights.HostVector(role, i)[0] : weights.Get(role, i).Vector()[0]));
    }
    if (!of.empty()) made_.inventory.metadata.Set(key, std::move(of));
  }
  return {};
}

Status GgufOfDirectory::SetTokenizer(const std::vector<std::string>& allowed) {
  Metadata& metadata = made_.inventory.metadata;
  const std::string option = "--allow-tokenizer-loss ";
  const auto may = [&](std::string_view name) {
    return std::ranges::any_of(allowed, [&](const std::string& a) { return a == name || a == "all"; });
  };
  Status missing;
  if (!source_.tokenizer_json.empty()) {
    TALLY_ASSIGN_OR_RETURN(const auto name, metadata.GetString("general.name"));
    Result<GgufTokenizer> made = GgufTokenizerKeys(source_, spec_.recipe.vocab, name.value_or(""));
    if (made.ok()) {
      std::string names, whats;
      for (const GgufTokenizer::Loss& loss : made->losses) {
        tokenizer_losses_.push_back(loss.what);
        names += (names.empty() ? "" : ",") + loss.name;
        if (!may(loss.name)) whats += (whats.empty() ? "" : ", and ") + loss.what;
      }
      if (!whats.empty()) {
        return BadInput(Printable(source_.tokenizer_json) + ": GGUF cannot say " + whats +
                        ": other engines would give text other tokens; " + option + names + " writes the file all the same");
      }
      for (auto& [key, value] : made->keys) metadata.Set(key, std::move(value));
      SetTemplates();
      return {};
    }
    missing = made.status();
  } else if (const Result<std::unique_ptr<Tokenizer>> other = TokenizerFor(source_); !other.ok()) {
    missing = other.status();
  }
  if (!missing.ok() && !may("all")) {
    return {missing.code(), missing.message() + "; " + option + "all writes the file without a vocabulary, for token ids alone"};
  }
  no_tokenizer_ = missing.message();
  metadata.Set("tokenizer.ggml.model", std::string("no_vocab"));
  return {};
}

// The chat templates under their names, and the strings that end an answer.
void GgufOfDirectory::SetTemplates() {
  Metadata& metadata = made_.inventory.metadata;
  const auto templates = ReadChatTemplates(source_, nullptr);
  if (!templates.ok()) {
    spec_.notes.push_back("no chat template was written: " + templates.status().message());
    return;
  }
  std::vector<std::string> names;
  std::set<std::string> unsaid;
  for (const ChatTemplateSource& each : *templates) {
    metadata.Set("tokenizer.chat_template" + (each.name.empty() ? "" : "." + each.name), each.text);
    if (!each.name.empty()) names.push_back(each.name);
    if (!each.stop.empty()) metadata.Set("tally.chat.stop_strings", each.stop);
    const auto reads = [&](const std::string& variable) { return each.text.find(variable) != each.text.npos; };
    for (const auto& [variable, text] : each.special_tokens) {
      if (variable != "bos_token" && variable != "eos_token" && reads(variable)) unsaid.insert(variable);
    }
    constexpr const char* kMore = "additional_special_tokens";
    if (!each.additional_special_tokens.empty() && reads(kMore)) unsaid.insert(kMore);
  }
  if (!names.empty()) metadata.Set("tokenizer.chat_templates", names);
  for (const std::string& variable : unsaid) {
    spec_.notes.push_back("its chat template reads " + Printable(variable) + ", which GGUF cannot say");
  }
}

// The row of the directory's weight for row `row` of the file's: rope turns neighbours in the one and halves of a head in the other.
uint64_t GgufOfDirectory::RotatedRow(const TensorBinding& b, uint64_t row) const {
  const Recipe& r = spec_.stack_of(b.layer);
  const RopeStyle from = r.rope.style, to = made_.spec.recipe.rope.style;
  if (from == to || from == RopeStyle::kNone || to == RopeStyle::kNone) return row;
  const LayerRecipe layer = b.layer >= 0 ? r.layer(b.layer) : LayerRecipe();
  const Attention& sizes = layer.attention;
  const bool latent = layer.mixers.has(Mixer::kLatentAttention);
  const auto u = [](int32_t n) { return static_cast<uint64_t>(n); };
  const uint64_t dim = u(r.rope.dim), half = dim / 2;
  uint64_t head = latent ? u(layer.latent.nope_dim + layer.latent.rope_dim) : u(sizes.head_dim),
           first = latent ? u(layer.latent.nope_dim) : 0;
  switch (b.role) {
    case Role::kQ:
    case Role::kK:
    case Role::kQBias:
    case Role::kKBias:
    case Role::kQNorm:
    case Role::kKNorm:
    case Role::kQB: break;
    case Role::kKvA: head = u(layer.latent.kv_rank + layer.latent.rope_dim), first = u(layer.latent.kv_rank); break;
    case Role::kQkv:
    case Role::kQkvBias:
      if (row >= u(sizes.n_heads + sizes.n_kv_heads) * head) return row;  // values
      break;
    default: return row;
  }
  const uint64_t base = row - row % head + first, at = row - base;
  if (row < base || at >= dim) return row;
  if (to == RopeStyle::kAdjacentPair) return base + at % 2 * half + at / 2;
  return base + (at < half ? 2 * at : 2 * (at - half) + 1);
}

// An element of value heads of this width in the directory's order; `element`: in the file's, whose heads with one key head are apart.
uint64_t GgufOfDirectory::OfTiled(uint64_t element, int32_t width) const {
  const DeltaRule& d = spec_.recipe.all.delta;
  if (d.tiled == made_.spec.recipe.all.delta.tiled) return element;
  const uint64_t w = static_cast<uint64_t>(width), keys = static_cast<uint64_t>(d.key_heads), head = element / w;
  return (head % keys * (static_cast<uint64_t>(d.value_heads) / keys) + head / keys) * w + element % w;
}

// The row of the directory's weight (of a vector: the element) for row `row` of the file's.
uint64_t GgufOfDirectory::SourceRow(const TensorBinding& b, uint64_t row) const {
  const DeltaRule& d = spec_.recipe.all.delta;
  const bool delta = b.layer >= 0 && spec_.stack_of(b.layer).layer(b.layer).mixers.has(Mixer::kDeltaRule);
  if (!delta) return RotatedRow(b, row);
  const uint64_t keys = 2 * static_cast<uint64_t>(d.key_heads) * static_cast<uint64_t>(d.key_dim);
  switch (b.role) {
    case Role::kDeltaV:
    case Role::kDeltaGate: return OfTiled(row, d.value_dim);
    case Role::kDeltaBeta:
    case Role::kDeltaAlpha:
    case Role::kSsmDtBias:
    case Role::kSsmA: return OfTiled(row, 1);
    case Role::kSsmConv: return row < keys ? row : keys + OfTiled(row - keys, d.value_dim);
    default: return row;
  }
}

// All slices' elements, where the stored vector has them.
void GgufOfDirectory::PutVector(const Part& part) {
  const TensorBinding& b = *part.binding;
  const uint64_t slices = static_cast<uint64_t>(part.view.slices), n = static_cast<uint64_t>(part.view.cols),
                 stored = values_.size() / slices;
  for (uint64_t s = 0; s < slices; ++s) {
    const float* const from = part.view.Vector(static_cast<int64_t>(s));
    if (b.storage == Storage::kTaps || b.storage == Storage::kConv1d) {
      for (uint64_t i = 0; i < n; ++i) values_[i * slices + s] = from[SourceRow(b, i)];
      continue;
    }
    for (uint64_t i = 0; i < n; ++i) values_[s * stored + b.rows.Stored(i)] = from[SourceRow(b, i)];
  }
}

Status GgufOfDirectory::Load(size_t tensor, Team& team) {
  const StoredTensor& t = made_.inventory.tensors[tensor];
  cols_ = t.shape.back();
  parts_.clear();
  rows_.clear();
  values_.clear();
  weights_ = {};  // before the next ones take memory
  ModelSpec sub;
  sub.recipe = spec_.recipe;
  for (const TensorBinding& b : made_.spec.bindings) {
    if (std::ranges::find(b.names, t.name) == b.names.end()) continue;
    if (FactsOf(b.role).kind == WeightInfo::Kind::kBuffer) {
      values_ = GgufRopeFactors(b.role, spec_.recipe);
      return values_.size() == t.elements() ? Status() : InternalError(t.name + " has another number of factors");
    }
    parts_.push_back({&b, {}});
    const TensorBinding* const from = SourceOf(b);
    sub.bindings.push_back(*from);
    if (IsOverRootInBoth(from, b)) sub.bindings.back().storage = Storage::kPlain;  // the values as they are stored
    if (b.role == Role::kTokenEmbedding) sub.stored_head = spec_.stored_head;
  }
  TALLY_ASSIGN_OR_RETURN(const WeightPlan plan, PlanWeights(source_, sub, 0));
  TALLY_ASSIGN_OR_RETURN(weights_, LoadWeights(source_, plan, team, nullptr));
  const bool vector = parts_[0].binding->vector();
  if (vector) values_.resize(t.elements());
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    const TensorBinding& b = *part.binding;
    part.view = weights_.Get(b.role, b.layer);
    if (vector) {
      PutVector(part);
      continue;
    }
    rows_.resize(b.StoredRows(t.shape));
    for (uint64_t r = 0; r < static_cast<uint64_t>(part.view.rows); ++r) rows_[b.rows.Stored(r)] = {i, SourceRow(b, r)};
  }
  return {};
}

void GgufOfDirectory::Row(uint64_t row, float* out) const {
  if (rows_.empty()) {
    std::memcpy(out, values_.data() + row * cols_, cols_ * sizeof(float));
    return;
  }
  const auto& [part, from] = rows_[row % rows_.size()];
  UnpackRow(parts_[part].view, static_cast<int64_t>(row / rows_.size()), static_cast<int64_t>(from), out);
  const DeltaRule& d = spec_.recipe.all.delta;
  if (parts_[part].binding->role != Role::kSsmOut || d.tiled == made_.spec.recipe.all.delta.tiled) return;
  const std::vector<float> columns(out, out + cols_);
  for (uint64_t i = 0; i < cols_; ++i) out[i] = columns[OfTiled(i, d.value_dim)];
}

}  // namespace tally
