#include "engine/studies/synth.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <utility>
#include <vector>

#include "engine/studies/synth_noise.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"

namespace tally {
namespace {

enum class Fill : uint8_t { kNoise, kOnes, kLlama3Factors };

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<uint64_t> shape;  // outermost first
  Fill fill = Fill::kNoise;
  float deviation = 0;
};

// The built-in models of the families that GGUF files are written of.
bool IsWritten(const Recipe& r) { return r.family == "gpt2" || r.family == "llama" || r.family == "gpt-oss"; }

// The divisors that the published Llama 3 scaling gives each rotated pair, as converters store them (rope_freqs.weight): Llama
// 3.1 reference code, apply_scaling.
float Llama3Factor(const Rope& rope, int32_t pair) {
  const RopeScaling& s = rope.scaling;
  const double wavelength = 2 * std::numbers::pi * std::pow(rope.theta, 2.0 * pair / rope.dim);
  if (wavelength < s.original_context / s.high_freq_factor) return 1;
  if (wavelength > s.original_context / s.low_freq_factor) return static_cast<float>(s.factor);
  const double smooth = (s.original_context / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
  return static_cast<float>(1 / ((1 - smooth) / s.factor + smooth));
}

// Deviation 1 / sqrt(inputs) keeps the scale of what a matrix is applied to, so activations stay finite in any depth.
float Unit(uint64_t inputs) { return 1 / std::sqrt(static_cast<float>(inputs)); }

Tensor MakeTensor(const TensorBinding& b, const CatalogModel& model, DType type) {
  const Recipe& r = model.recipe;
  Tensor t = {b.names[0], b.vector() ? DType::kF32 : type, b.shape, Fill::kNoise, Unit(b.shape.back())};
  const bool norm = b.vector() && t.name.ends_with("norm.weight");
  if (norm) t.fill = Fill::kOnes;
  if (b.vector()) t.deviation = 0.1f;
  if (FactsOf(b.role).experts && !b.vector() && IsOfExperts(model.expert_type)) t.dtype = model.expert_type;
  switch (b.role) {
    case Role::kTokenEmbedding:  // of a tied one the head's scale is the one that matters
      if (!r.tied_head) t.deviation = 1;
      break;
    case Role::kPositionEmbedding: t.dtype = DType::kF32, t.deviation *= 0.5f; break;
    case Role::kRouter: t.dtype = DType::kF32; break;
    case Role::kSinks: t.deviation = 1; break;
    case Role::kRopeFactors: t.fill = Fill::kLlama3Factors; break;
    default: break;
  }
  return t;
}

void SetMetadata(const CatalogModel& model, DType type, GgufWriter& writer) {
  const Recipe& r = model.recipe;
  auto set = [&](const char* key, int64_t value) { writer.Set(r.family + "." + key, value); };
  auto set_float = [&](const char* key, double value) { writer.Set(r.family + "." + key, value); };
  writer.Set("general.architecture", r.family);
  writer.Set("general.name", std::string(model.name) + " (synthetic)");
  writer.Set("general.file_type", static_cast<int64_t>(GgufFileType(r.n_experts > 0 ? model.expert_type : type)));
  if (GetDTypeInfo(type).quantised || r.n_experts > 0) writer.Set("general.quantization_version", int64_t{2});
  set("block_count", r.n_layers);
  set("context_length", r.context);
  set("embedding_length", r.d_model);
  set("feed_forward_length", r.n_experts > 0 ? r.d_expert : r.d_ff);
  set("attention.head_count", r.n_heads);
  set("vocab_size", r.vocab);
  if (r.norm == NormKind::kLayer) {
    set_float("attention.layer_norm_epsilon", static_cast<double>(r.norm_eps));
    return;
  }
  set("attention.head_count_kv", r.n_kv_heads);
  set("attention.key_length", r.head_dim);
  set("attention.value_length", r.head_dim);
  set_float("attention.layer_norm_rms_epsilon", static_cast<double>(r.norm_eps));
  set("rope.dimension_count", r.rope.dim);
  set_float("rope.freq_base", r.rope.theta);
  if (r.layers.front().window > 0) set("attention.sliding_window", r.layers.front().window);
  if (r.n_experts == 0) return;
  set("expert_count", r.n_experts);
  set("expert_used_count", r.top_k);
  set("expert_feed_forward_length", r.d_expert);
  writer.Set(r.family + ".rope.scaling.type", std::string("yarn"));
  set_float("rope.scaling.factor", r.rope.scaling.factor);
  set("rope.scaling.original_context_length", static_cast<int64_t>(r.rope.scaling.original_context));
}

// Copies the tokenizer.* keys of another GGUF; words that the model has beyond them become unused tokens named as llama.cpp's
// converter names them.
Status CopyVocabulary(const std::string& path, int32_t vocab, GgufWriter& writer) {
  constexpr int64_t kUnused = 5;  // tokenizer.ggml.token_type
  TALLY_ASSIGN_OR_RETURN(const Inventory source, ReadGguf(path));
  TALLY_ASSIGN_OR_RETURN(const auto tokens, source.metadata.GetStrings("tokenizer.ggml.tokens"));
  if (!tokens.has_value()) return BadInput(path + ": no tokenizer.ggml.tokens to copy");
  if (tokens->size() > static_cast<size_t>(vocab)) {
    return BadInput(path + ": its vocabulary has " + std::to_string(tokens->size()) + " tokens, and the model has room for " +
                    std::to_string(vocab));
  }
  const size_t n = static_cast<size_t>(vocab);
  const auto one_each = [&](const std::string& key, size_t count) -> Status {
    if (count == tokens->size()) return {};
    return BadInput(path + ": " + key + " has " + std::to_string(count) + " values for " + std::to_string(tokens->size()) +
                    " tokens");
  };
  for (const auto& [key, value] : source.metadata.values()) {
    if (!key.starts_with("tokenizer.")) continue;
    MetaValue copy = value;
    if (key == "tokenizer.ggml.tokens") {
      auto words = *tokens;
      while (words.size() < n) words.push_back("[PAD" + std::to_string(words.size()) + "]");
      copy = std::move(words);
    } else if (auto* types = std::get_if<std::vector<int64_t>>(&copy); types && key == "tokenizer.ggml.token_type") {
      TALLY_RETURN_IF_ERROR(one_each(key, types->size()));
      types->resize(n, kUnused);
    } else if (auto* scores = std::get_if<std::vector<double>>(&copy); scores && key == "tokenizer.ggml.scores") {
      TALLY_RETURN_IF_ERROR(one_each(key, scores->size()));
      scores->resize(n, -1000.0);
    }
    writer.Set(key, std::move(copy));
  }
  return {};
}

struct Plan {
  CatalogModel model;
  std::vector<Tensor> tensors;
  GgufWriter writer;
  SynthReport report;
};

Result<Plan> MakePlan(std::string_view model, const SynthOptions& options) {
  TALLY_RETURN_IF_ERROR(ParseWeightType(DTypeName(options.type)).status());  // GGUF has types that no model is made of
  Result<CatalogModel> found = FindCatalogModel(model);
  if (!found.ok() || !IsWritten(found->recipe)) {
    std::string known;
    for (const std::string_view name : SynthModels()) known += (known.empty() ? "" : ", ") + std::string(name);
    return BadInput("'" + std::string(model) + "' is not a model that can be written: " + known);
  }
  Plan plan{std::move(found).value(), {}, {}, {}};
  Recipe& r = plan.model.recipe;
  if (options.layers < 0 || options.layers > r.n_layers || options.vocab < 0 || options.vocab > r.vocab) {
    return BadInput("a smaller " + std::string(model) + " has 1 to " + std::to_string(r.n_layers) + " layers and 1 to " +
                    std::to_string(r.vocab) + " words");
  }
  if (options.layers > 0) r.n_layers = options.layers;
  if (options.vocab > 0) r.vocab = options.vocab;
  SetMetadata(plan.model, options.type, plan.writer);
  if (options.vocab_from.empty()) {
    plan.writer.Set("tokenizer.ggml.model", std::string("no_vocab"));
  } else {
    TALLY_RETURN_IF_ERROR(CopyVocabulary(options.vocab_from, r.vocab, plan.writer));
  }
  // GGUF has no key for Llama 3's scaling: its converters store what it divides the frequencies by.
  r.rope.freq_factors = r.rope.scaling.kind == RopeScalingKind::kLlama3;
  TALLY_ASSIGN_OR_RETURN(const std::vector<TensorBinding> bindings, GgufBindings(r));
  for (const TensorBinding& b : bindings) {
    const Tensor& t = plan.tensors.emplace_back(MakeTensor(b, plan.model, options.type));
    uint64_t elements = 1;
    for (const uint64_t d : t.shape) elements *= d;
    if (t.fill != Fill::kLlama3Factors) plan.report.parameters += elements;
    ++plan.report.tensors;
    plan.writer.AddTensor(t.name, t.dtype, t.shape);
  }
  plan.report.bytes = plan.writer.TotalBytes();
  if (plan.report.bytes == 0)
    return BadInput("'" + std::string(model) + "' cannot be written as " + std::string(DTypeName(options.type)));
  return plan;
}

}  // namespace

std::vector<std::string_view> SynthModels() {
  std::vector<std::string_view> names = CatalogNames();
  std::erase_if(names, [](std::string_view name) {
    const Result<CatalogModel> model = FindCatalogModel(name);
    return !model.ok() || !IsWritten(model->recipe);
  });
  return names;
}

Result<SynthReport> PlanSynth(std::string_view model, const SynthOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(model, options));
  return plan.report;
}

Result<SynthReport> Synthesize(std::string_view model, const std::string& path, const SynthOptions& options) {
  std::error_code none;
  if (!options.vocab_from.empty() && std::filesystem::equivalent(path, options.vocab_from, none)) {
    return BadInput(path + ": the vocabulary is read from this file: it would be overwritten");
  }
  TALLY_ASSIGN_OR_RETURN(const Plan plan, MakePlan(model, options));
  NoisePools noise(options.seed);
  auto fill = [&](size_t index, uint64_t offset, std::span<uint8_t> piece) {
    const Tensor& t = plan.tensors[index];
    if (t.fill == Fill::kNoise) return noise.Fill(index, t.dtype, t.deviation, offset, piece);
    for (size_t i = 0; i < piece.size(); ++i) {  // small vectors: byte by byte, wherever a piece begins
      const uint64_t at = offset + i;
      const float value = t.fill == Fill::kOnes ? 1.0f : Llama3Factor(plan.model.recipe.rope, static_cast<int32_t>(at / 4));
      uint8_t bytes[4];
      std::memcpy(bytes, &value, 4);
      piece[i] = bytes[at % 4];
    }
  };
  TALLY_RETURN_IF_ERROR(plan.writer.Write(path, fill, options.progress));
  return plan.report;
}

}  // namespace tally
