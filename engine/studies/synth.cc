// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/synth.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/studies/pack_source.h"
#include "engine/studies/synth_noise.h"
#include "engine/weights/item_loader.h"
#include "loaders/loaders.h"
#include "models/catalog/catalog.h"
#include "models/family.h"
#include "models/made_checkpoint.h"

namespace tally {
namespace {

// What a tensor is filled with. kBlocks, kScales: the codes and the scales of noise in a split format.
enum class Fill : uint8_t { kNoise, kValue, kFactors, kBlocks, kScales };

struct Filling {
  Fill fill = Fill::kNoise;
  float deviation = 0;         // of noise
  DType type = DType::kF32;    // of the noise; of kValue the tensor's
  float value = 0;             // kValue
  std::vector<float> factors;  // kFactors: an F32 tensor
};

// `published`: the configuration's recipe, whose rope says what GGUF stores in tensors.
Filling FillingOf(const TensorBinding& b, const StoredTensor& t, const Recipe& published) {
  // Deviation 1 / sqrt(inputs) keeps the scale of what a matrix is applied to, so activations stay finite in any depth.
  const bool transposed = b.storage == Storage::kTransposed || b.storage == Storage::kTransposedHeads;
  const uint64_t inputs = transposed && t.shape.size() > 1 ? t.shape[t.shape.size() - 2] : b.shape.back();
  Filling f = {.deviation = 1 / std::sqrt(static_cast<float>(inputs)), .type = t.dtype, .factors = {}};
  if (b.vector()) f.deviation = 0.1f;
  if (b.vector() && FactsOf(b.role).name.ends_with("norm")) {
    f.fill = Fill::kValue;
    f.value = b.storage == Storage::kPlusOne ? 0 : b.storage == Storage::kOverRoot ? std::sqrt(static_cast<float>(inputs)) : 1;
  }
  if (b.split) {
    f.type = *b.split;
    f.fill = t.name == b.names[0] ? Fill::kBlocks : Fill::kScales;
  }
  switch (b.role) {
    case Role::kTokenEmbedding:  // of a tied one the head's scale is the one that matters
      if (!published.tied_head) f.deviation = 1;
      break;
    case Role::kPositionEmbedding: f.deviation *= 0.5f; break;
    case Role::kDensePostNorm:
    case Role::kExpertNorm:
    case Role::kExpertPostNorm:
    case Role::kExpertScale:
    case Role::kLayerScale:
      f.fill = Fill::kValue;
      f.value = 1;
      break;
    case Role::kQNorm:  // where nothing else scales the scores
      if (published.all.attention.scale == 1) f.value = 1 / std::sqrt(static_cast<float>(inputs));
      break;
    case Role::kSinks:
    case Role::kXieluN:  // about the published alphas of a new model
    case Role::kXieluP: f.deviation = 1; break;
    case Role::kSsmA:  // -1, so that states decay; 1 with a bound
      f.fill = Fill::kValue;
      f.value = b.storage == Storage::kMinusExp || b.storage == Storage::kExp ? 0 : published.all.delta.decay_bound != 0 ? 1 : -1;
      break;
    case Role::kRopeFactors:
    case Role::kRopeShortFactors:
    case Role::kRopeLongFactors:
      f.fill = Fill::kFactors;
      f.factors = GgufRopeFactors(b.role, published);
      break;
    default: break;
  }
  return f;
}

// The bytes [offset, offset + piece.size()) of values of n bytes each.
void FillValues(std::span<const uint8_t> values, size_t offset, std::span<uint8_t> piece) {
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = values[(offset + i) % values.size()];
}

void FillPiece(const Filling& f, size_t index, uint64_t offset, std::span<uint8_t> piece, NoisePools& noise) {
  const DTypeInfo type = GetDTypeInfo(f.type);
  switch (f.fill) {
    case Fill::kNoise: return noise.Fill(index, f.type, f.deviation, offset, piece);
    case Fill::kValue: {
      std::vector<uint8_t> one(type.block_bytes);
      FormatOf(f.type).encode(&f.value, nullptr, 1, one.data());
      return FillValues(one, offset, piece);
    }
    case Fill::kFactors: {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(f.factors.data());
      return FillValues({bytes, f.factors.size() * sizeof(float)}, offset, piece);
    }
    case Fill::kBlocks:
    case Fill::kScales: {  // a block is its scale, then its codes
      const uint64_t skip = f.fill == Fill::kScales ? 0 : 1, part = skip == 0 ? 1 : type.block_bytes - 1, first = offset / part;
      std::vector<uint8_t> blocks(((offset + piece.size() - 1) / part - first + 1) * type.block_bytes);
      noise.Fill(index, f.type, f.deviation, first * type.block_bytes, blocks);
      for (size_t i = 0; i < piece.size(); ++i) {
        const uint64_t at = offset + i;
        piece[i] = blocks[(at / part - first) * type.block_bytes + skip + at % part];
      }
    }
  }
}

// Copies the tokenizer.* and tally.tokenizer.* keys of another GGUF; words that the model has beyond them become unused tokens named as
// llama.cpp's converter names them.
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
    if (!key.starts_with("tokenizer.") && !key.starts_with("tally.tokenizer.")) continue;
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

// The text of a config.json with fewer layers and words. kBadInput: more than there are.
Result<std::string> Smaller(std::string_view text, const Recipe& r, const SynthOptions& options, const std::string& source) {
  if (options.layers < 0 || options.layers > r.n_layers) {
    return BadInput("a smaller " + source + " has 1 to " + std::to_string(r.n_layers) + " layers");
  }
  if (options.vocab < 0 || options.vocab > r.vocab) {
    return BadInput("a smaller " + source + " has 1 to " + std::to_string(r.vocab) + " words");
  }
  nlohmann::ordered_json whole = nlohmann::ordered_json::parse(text, nullptr, false);
  if (whole.is_discarded()) return InternalError(source + ": no JSON");
  nlohmann::ordered_json& config = whole.contains("text_config") ? whole["text_config"] : whole;
  const size_t layers = static_cast<size_t>(r.n_layers);
  for (auto& [key, value] : config.items()) {
    if (options.layers > 0 && (key == "num_hidden_layers" || key == "n_layer" || key == "n_layers" || key == "num_layers")) {
      value = options.layers;
    }
    if (options.layers > 0 && key == "hybrid_override_pattern" && value.is_string()) {  // a letter a layer
      value = value.get<std::string>().substr(0, static_cast<size_t>(options.layers));
    }
    if (options.layers > 0 && value.is_array() && value.size() == layers) {  // an element a layer
      value.erase(value.begin() + options.layers, value.end());
    }
  }
  if (options.vocab > 0) config["vocab_size"] = options.vocab;
  for (const char* key : {"eos_token_id", "bos_token_id", "pad_token_id"}) whole.erase(key), config.erase(key);
  return whole.dump(1);
}

struct SynthPlan {
  MadeCheckpoint made;
  std::vector<Filling> fillings;  // of its tensors
  GgufWriter writer;              // GGUF
  std::string config;             // Hugging Face
  SynthReport report;
};

bool IsGguf(const std::string& path) { return path.ends_with(".gguf"); }

Result<std::string> ConfigText(std::string_view model) {
  if (std::string known = PublishedConfig(model); !known.empty()) return known;
  if (!model.ends_with(".json")) return FindCatalogModel(model).status();
  constexpr uint64_t kLongest = 1 << 24;
  return ReadTextFile(std::string(model), kLongest);
}

Status PlanGgufFile(std::string_view model, const MadeTypes& types, const SynthOptions& options, SynthPlan& plan) {
  const bool experts = plan.made.spec.recipe.all.experts.n_experts > 0;
  plan.writer.Set("general.architecture", *plan.made.inventory.metadata.Find("general.architecture"));
  plan.writer.Set("general.name", std::string(model) + " (synthetic)");
  plan.writer.Set("general.file_type", static_cast<int64_t>(GgufFileType(experts ? types.expert_type : types.type)));
  if (GetDTypeInfo(types.type).quantised || experts) plan.writer.Set("general.quantization_version", int64_t{2});
  for (const auto& [key, value] : plan.made.inventory.metadata.values()) {
    if (key != "general.architecture") plan.writer.Set(key, value);
  }
  if (options.vocab_from.empty()) {
    plan.writer.Set("tokenizer.ggml.model", std::string("no_vocab"));
  } else {
    TALLY_RETURN_IF_ERROR(CopyVocabulary(options.vocab_from, plan.made.spec.recipe.vocab, plan.writer));
  }
  for (const StoredTensor& t : plan.made.inventory.tensors) plan.writer.AddTensor(t.name, t.dtype, t.shape);
  plan.report.bytes = plan.writer.TotalBytes();
  if (plan.report.bytes == 0)
    return BadInput("'" + std::string(model) + "' cannot be written as " + std::string(DTypeName(options.type)));
  return {};
}

Result<SynthPlan> MakePlan(std::string_view model, const std::string& path, const SynthOptions& options) {
  TALLY_RETURN_IF_ERROR(ParseWeightType(DTypeName(options.type)).status());  // files have types that no model is made of
  SynthPlan plan;
  const std::string source = "the configuration of " + std::string(model);
  TALLY_ASSIGN_OR_RETURN(plan.config, ConfigText(model));
  TALLY_ASSIGN_OR_RETURN(Inventory config, ReadConfigText(plan.config, source));
  TALLY_ASSIGN_OR_RETURN(const ModelSpec whole, ReadFamily(config));
  if (whole.recipe.counted_only) {
    return BadInput(source + ": a model that is only counted cannot be made: it has " + whole.recipe.counted_only->why);
  }
  if (options.layers != 0 || options.vocab != 0) {
    TALLY_ASSIGN_OR_RETURN(plan.config, Smaller(plan.config, whole.recipe, options, std::string(model)));
    TALLY_ASSIGN_OR_RETURN(config, ReadConfigText(plan.config, source));
  }
  TALLY_ASSIGN_OR_RETURN(const ModelSpec published, ReadFamily(config));
  TALLY_ASSIGN_OR_RETURN(const CountTypes counted, ReadCountTypes(config));
  const MadeTypes types = {options.type, IsOfExperts(counted.expert_type) ? counted.expert_type : options.type};
  if (options.prediction) TALLY_RETURN_IF_ERROR(ReadFamily(config, types.expert_type, true).status());
  if (IsGguf(path)) {
    Result<MadeCheckpoint> made = MakeGguf(config, types, options.prediction);
    if (!made.ok()) return BadInput(made.status().message() + "; a directory can hold it (OUT without .gguf)");
    plan.made = std::move(made).value();
    TALLY_RETURN_IF_ERROR(PlanGgufFile(model, types, options, plan));
  } else {
    if (!options.vocab_from.empty()) return BadInput(path + ": a vocabulary is copied into a GGUF file only (OUT.gguf)");
    TALLY_ASSIGN_OR_RETURN(plan.made, MakeHuggingFace(config, types, options.prediction));
    TALLY_ASSIGN_OR_RETURN(plan.report.bytes, SafetensorsBytes(plan.made.inventory.tensors));
  }
  plan.report.tensors = plan.made.inventory.tensors.size();
  for (size_t i = 0; i < plan.made.inventory.tensors.size(); ++i) {
    const TensorBinding& b = plan.made.spec.bindings[plan.made.made_for[i]];
    plan.fillings.push_back(FillingOf(b, plan.made.inventory.tensors[i], published.recipe));
  }
  for (const TensorBinding& b : plan.made.spec.bindings) {
    if (FactsOf(b.role).kind == WeightInfo::Kind::kBuffer) continue;
    uint64_t elements = 1;
    for (const uint64_t d : b.shape) elements *= d;
    plan.report.parameters += elements;
  }
  return plan;
}

// Where it fails, what it wrote is removed, and the directory if it made it.
Status WriteDirectory(const SynthPlan& plan, const std::string& path, const FillTensor& fill, const WriteProgress& progress) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool there = fs::is_directory(path, error);
  if (!there && !fs::create_directory(path, error)) {
    return BadInput(Printable(path) + ": no directory can be made: " + (error ? error.message() : "a file is in its place"));
  }
  const std::string weights = (fs::path(path) / "model.safetensors").string();
  Status status = WriteSafetensors(weights, plan.made.inventory.tensors, fill, progress);
  if (status.ok()) {
    status = WriteTextFile((fs::path(path) / "config.json").string(), plan.config);
    if (!status.ok()) fs::remove(weights, error);
  }
  if (!status.ok() && !there) fs::remove_all(path, error);
  return status;
}

// The tensors that Synthesize would write.
class NoiseTensors final : public TensorReader {
 public:
  NoiseTensors(const SynthPlan& plan, const Inventory& inventory, uint64_t seed)
      : plan_(plan), inventory_(inventory), noise_(seed) {
    std::map<std::string_view, size_t> made;
    for (size_t i = 0; i < plan.made.inventory.tensors.size(); ++i) made[plan.made.inventory.tensors[i].name] = i;
    for (const StoredTensor& t : inventory.tensors) made_.push_back(made.at(t.name));
  }
  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const override {
    const size_t index = made_[static_cast<size_t>(&t - inventory_.tensors.data())];
    FillPiece(plan_.fillings[index], index, offset, {out, size}, noise_);
    return {};
  }
  std::string FileOf(const StoredTensor& t) const override { return Printable(inventory_.files[t.file].path); }

 private:
  const SynthPlan& plan_;
  const Inventory& inventory_;
  std::vector<size_t> made_;  // of each tensor of the inventory: its index in the plan
  mutable NoisePools noise_;
};

// A directory beside a file, for the checkpoint without tensors' bytes that a packed file says that it was packed from.
class SourceFolder {
 public:
  explicit SourceFolder(const std::string& out) {
    for (int n = 0; n < 100 && !made_; ++n) {  // others may pack a file of this name, or may have been killed
      std::error_code error;
      path_ = out + ".source-" + std::to_string(n);
      made_ = std::filesystem::create_directory(path_, error);
    }
  }
  ~SourceFolder() {
    std::error_code error;
    if (made_) std::filesystem::remove_all(path_, error);
  }
  SourceFolder(const SourceFolder&) = delete;
  SourceFolder& operator=(const SourceFolder&) = delete;
  bool made() const { return made_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  bool made_ = false;
};

Result<SynthReport> SynthesizePacked(std::string_view model, const std::string& out, const SynthOptions& options) {
  const std::filesystem::path stem = std::filesystem::path(out).stem();
  std::string name = stem.string() + ".gguf";
  Result<SynthPlan> plan = MakePlan(model, name, options);
  if (!plan.ok()) {
    const Status in_gguf = plan.status();
    plan = MakePlan(model, name = stem.string(), options);
    if (!plan.ok()) return in_gguf;
  }
  Inventory source;
  {
    const SourceFolder folder(out);
    if (!folder.made()) return BadInput(Printable(folder.path().string()) + ": no directory can be made");
    const std::string path = (folder.path() / name).string();
    TALLY_RETURN_IF_ERROR(IsGguf(name) ? plan->writer.Write(path, nullptr) : WriteDirectory(*plan, path, nullptr, nullptr));
    TALLY_ASSIGN_OR_RETURN(source, ReadCheckpoint(path));
  }
  for (InventoryFile& file : source.files) file.stamp.reset();
  source.path = out;
  source.side_texts = std::make_shared<const SideTexts>();
  TALLY_ASSIGN_OR_RETURN(const PackPlan pack, PlanPack(source, {}));
  const NoiseTensors reader(*plan, source, options.seed);
  TALLY_ASSIGN_OR_RETURN(const PackReport report, WritePackedFile(source, pack, reader, out, {.progress = options.progress}));
  plan->report.bytes = report.bytes;
  return plan->report;
}

}  // namespace

std::vector<std::string_view> SynthModels() {
  std::vector<std::string_view> names = CountedNames();
  std::erase_if(names, [](std::string_view name) { return !RunsFromCatalog(name); });
  return names;
}

Result<SynthReport> PlanSynth(std::string_view model, const std::string& path, const SynthOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const SynthPlan plan, MakePlan(model, path, options));
  return plan.report;
}

Result<SynthReport> Synthesize(std::string_view model, const std::string& path, const SynthOptions& options) {
  std::error_code none;
  if (!options.vocab_from.empty() && std::filesystem::equivalent(path, options.vocab_from, none)) {
    return BadInput(path + ": the vocabulary is read from this file: it would be overwritten");
  }
  if (options.packed) return SynthesizePacked(model, path, options);
  TALLY_ASSIGN_OR_RETURN(const SynthPlan plan, MakePlan(model, path, options));
  NoisePools noise(options.seed);
  const auto fill = [&](size_t index, uint64_t offset, std::span<uint8_t> piece) {
    FillPiece(plan.fillings[index], index, offset, piece, noise);
  };
  TALLY_RETURN_IF_ERROR(IsGguf(path) ? plan.writer.Write(path, fill, options.progress)
                                     : WriteDirectory(plan, path, fill, options.progress));
  return plan.report;
}

}  // namespace tally
