// LoadModel: files -> inventory -> recipe -> memory plan -> packed weights.
#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include "engine/api/loaded_model.h"
#include "engine/machine/machine.h"
#include "engine/weights/memory_plan.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

constexpr int64_t kDefaultContext = 4096;

ActivationMode ModeOf(ActivationsChoice choice) {
  switch (choice) {
    case ActivationsChoice::kAuto: return ActivationMode::kAuto;
    case ActivationsChoice::kF32: return ActivationMode::kF32;
    case ActivationsChoice::kBF16: return ActivationMode::kBF16;
    case ActivationsChoice::kInt8: return ActivationMode::kInt8;
  }
  return ActivationMode::kAuto;
}

// The types of the matrices by the bytes they take, largest first.
std::vector<DType> MatrixTypes(const Inventory& inventory, const ModelSpec& spec) {
  std::vector<std::pair<uint64_t, DType>> bytes;
  for (const TensorBinding& b : spec.bindings) {
    if (b.shape.size() < 2 || b.names.empty()) continue;
    const StoredTensor* t = inventory.Find(b.names[0]);
    if (t == nullptr) continue;
    const DType type = b.hf_mxfp4 ? DType::kMXFP4 : t->dtype;
    auto at = std::find_if(bytes.begin(), bytes.end(), [&](const auto& e) { return e.second == type; });
    if (at == bytes.end()) at = bytes.insert(at, {0, type});
    at->first += t->bytes * b.names.size();
  }
  std::stable_sort(bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<DType> types;
  for (const auto& e : bytes) types.push_back(e.second);
  return types;
}

// An explicit choice of activations that no matrix of the model can take is a mistake worth saying.
Status CheckActivations(ActivationsChoice choice, const std::vector<DType>& types, const std::string& path) {
  if (choice == ActivationsChoice::kBF16 && std::find(types.begin(), types.end(), DType::kBF16) == types.end()) {
    return BadInput(path + ": bf16 activations need BF16 weights, and this model has none");
  }
  const auto quantised = [](DType t) { return GetDTypeInfo(t).quantised; };
  if (choice == ActivationsChoice::kInt8 && std::none_of(types.begin(), types.end(), quantised)) {
    return BadInput(path + ": int8 activations need quantised weights, and this model has none");
  }
  return {};
}

std::string Join(const std::vector<DType>& types) {
  std::string text;
  for (DType t : types) text += (text.empty() ? "" : " + ") + std::string(DTypeName(t));
  return text;
}

std::string Gib(uint64_t bytes) {
  char text[32];
  const double gib = static_cast<double>(bytes) / (1024.0 * 1024 * 1024);
  if (gib >= 0.1) {
    std::snprintf(text, sizeof(text), "%.2f GiB", gib);
  } else {
    std::snprintf(text, sizeof(text), "%.2f MiB", gib * 1024);
  }
  return text;
}

}  // namespace

StepperOptions MakeStepperOptions(const Recipe& recipe, const LoadOptions& options) {
  StepperOptions s;
  s.decoder.activations = ModeOf(options.activations);
  const bool f32 =
      options.kv == KvChoice::kF32 || (options.kv == KvChoice::kAuto && options.activations == ActivationsChoice::kF32);
  s.decoder.kv = f32 ? KvType::kF32 : KvType::kF16;
  s.impl = options.impl == ImplName::kRef    ? ImplChoice::kRef
           : options.impl == ImplName::kBlas ? ImplChoice::kBlas
                                             : ImplChoice::kAuto;
  s.context = options.context > 0 ? options.context : std::min<int64_t>(recipe.context, kDefaultContext);
  if (recipe.learned_positions) s.context = std::min<int64_t>(s.context, recipe.context);
  s.decoder.max_batch = std::clamp<int64_t>(options.max_batch, 1, std::max<int64_t>(1, s.context * options.sequences));
  s.sequences = std::max(1, options.sequences);
  return s;
}

Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, const LoadOptions& options) {
  TALLY_ASSIGN_OR_RETURN(const Inventory inventory, ReadCheckpoint(path));
  TALLY_ASSIGN_OR_RETURN(ModelSpec spec, ReadModelSpec(inventory));
  auto model = std::make_shared<LoadedModel>();
  TALLY_ASSIGN_OR_RETURN(model->tokenizer_, TokenizerFor(inventory));
  const std::vector<DType> types = MatrixTypes(inventory, spec);
  TALLY_RETURN_IF_ERROR(CheckActivations(options.activations, types, path));

  if (spec.recipe.learned_positions && options.context > spec.recipe.context) {
    return BadInput(path + ": a context of " + std::to_string(options.context) +
                    " positions was asked for, and the model has learned " + std::to_string(spec.recipe.context));
  }
  Team team(options.threads);
  const StepperOptions stepper = MakeStepperOptions(spec.recipe, options);
  TALLY_ASSIGN_OR_RETURN(model->plan_.packed_weights, PlanPackedBytes(inventory, spec));
  auto kv_bytes = [&](int64_t positions) {
    return KvCache::PlanBytes(spec.recipe, stepper.decoder.kv, positions, stepper.sequences, stepper.decoder.max_batch);
  };
  model->plan_.kv = kv_bytes(stepper.context);
  model->plan_.scratch = Decoder::PlanBytes(spec.recipe, stepper.decoder, team.threads());
  model->plan_.available = AvailableMemoryBytes();
  model->plan_.context = stepper.context;
  Status fits =
      CheckMemoryPlan(model->plan_.packed_weights, kv_bytes, model->plan_.scratch, model->plan_.available, stepper.context);
  if (!fits.ok()) return Status(fits.code(), path + ": " + fits.message());

  TALLY_ASSIGN_OR_RETURN(model->weights_, LoadWeights(inventory, spec, team, options.progress));
  model->recipe_ = std::move(spec.recipe);
  model->parameters_ = books::CountParameters(model->weights_.infos(), model->recipe_.top_k);
  model->weight_types_ = Join(types);
  model->description_ = model->recipe_.family + ", " + std::to_string(model->recipe_.n_layers) + " layers, " +
                        model->weight_types_ + ", " + Gib(model->plan_.packed_weights);
  return std::shared_ptr<const Model>(std::move(model));
}

}  // namespace tally
