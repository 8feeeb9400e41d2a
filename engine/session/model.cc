// SPDX-License-Identifier: Apache-2.0
// LoadModel: files -> inventory -> recipe -> memory plan -> packed weights.
#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "counters/books/streaming.h"
#include "counters/books/weight_table.h"
#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/base/communicator.h"
#include "engine/base/format.h"
#include "engine/chat/template_source.h"
#include "engine/machine/communicator.h"
#include "engine/machine/machine.h"
#include "engine/recipe/rope_freqs.h"
#include "engine/session/commands.h"
#include "engine/session/guide.h"
#include "engine/session/loaded_model.h"
#include "engine/session/memory_plan.h"
#include "engine/session/split.h"
#include "engine/weights/packed_records.h"
#include "engine/weights/plan.h"
#include "engine/weights/records.h"
#include "engine/weights/source_records.h"
#include "loaders/loaders.h"
#include "models/family.h"

namespace tally {
namespace {

Status Prefixed(const std::string& path, const Status& status) {
  return status.ok() ? status : Status(status.code(), path + ": " + status.message());
}

}  // namespace

std::shared_ptr<const Vocabulary> Model::vocabulary() const {
  std::call_once(vocabulary_once_, [this] {
    if (tokenizer() == nullptr) return;
    std::vector<std::string> bytes(static_cast<size_t>(recipe().vocab));
    for (int32_t id = 0; id < std::min(recipe().vocab, tokenizer()->vocab_size()); ++id) {
      const bool is_control = tokenizer()->IsControl(id);
      std::string text = is_control ? tokenizer()->ControlText(id) : tokenizer()->TokenBytes(id);
      if ((is_control || tokenizer()->IsAdded(id)) && !text.empty()) text = SpelledToken(text);
      bytes[static_cast<size_t>(id)] = std::move(text);
    }
    vocabulary_ = std::make_shared<const Vocabulary>(std::move(bytes), EndTokens(*this));
  });
  return vocabulary_;
}

std::string JoinTypes(std::span<const DType> types) {
  std::string text;
  for (DType t : types) text += (text.empty() ? "" : " + ") + std::string(DTypeName(t));
  return text;
}

LoadedModel::~LoadedModel() { (void)TellNow<Command::kEnd>(log_.get()); }

// The parts of LoadModel. A group agrees after each.
class ModelLoader {
 public:
  ModelLoader(const std::string& path, const EngineOptions& engine, const LoadOptions& options, RecordsThrough through = {})
      : path_(path), engine_(engine), options_(options), through_(std::move(through)) {}

  // Reads the headers.
  Status Read() {
    TALLY_RETURN_IF_ERROR(CheckLibraries(engine_));
    TALLY_ASSIGN_OR_RETURN(inventory_, ReadCheckpoint(path_));
    if (engine_.prediction && Group() != nullptr) {
      return BadInput("layers for multi-token prediction do not run in several processes");
    }
    TALLY_ASSIGN_OR_RETURN(model_->spec_, ReadModelSpec(inventory_, engine_.prediction));
    const ModelSpec& spec = model_->spec_;
    TALLY_RETURN_IF_ERROR(Prefixed(path_, CheckRunnable(spec.recipe)));
    model_->notes_ = spec.notes;
    if (options_.before_weights) {
      MakeTokenizer();
      TALLY_RETURN_IF_ERROR(options_.before_weights(*model_));
    }
    model_->matrix_types_ = MatrixTypes(inventory_, spec);
    TALLY_RETURN_IF_ERROR(Prefixed(path_, CheckOptions(spec.recipe, model_->matrix_types_, engine_)));

    team_.emplace(engine_.threads);
    return team_->status();
  }

  // Chooses how a group divides the model. All processes must have read the same headers.
  Status Divide() {
    Communicator* const group = Group();
    if (group == nullptr) return {};
    TALLY_RETURN_IF_ERROR(Agree(*group));
    const ModelSpec& spec = model_->spec_;
    TALLY_ASSIGN_OR_RETURN(const ChosenSplit chosen,
                           ChooseSplit(*group, *team_, spec.recipe, books::WeightTable(inventory_, spec), options_.split));
    model_->group_ = group;
    if (group->rank() == 0) model_->log_ = std::make_unique<GroupLog>(*group);
    Take(chosen);
    return {};
  }

  // Divides every matrix instead, which takes the least memory, if some process has no room for its part. False: every matrix is divided
  // already, or the user chose the split.
  bool DivideAll() {
    if (options_.split != Split::kAuto || !model_->shard_.own_experts) return false;
    model_->notes_.pop_back();
    Take({Split::kAll, "every matrix is divided: there is no room for whole attention in each"});
    return true;
  }

  // Checks that there is memory for this process's part.
  Status Plan() {
    const ModelSpec& spec = model_->spec_;
    stepper_ = MakeStepperOptions(spec.recipe, engine_);
    const uint64_t guard = options_.guard_slices ? SystemPageBytes() : 0;
    const bool stream = engine_.weights_budget != EngineOptions::kAllWeights;
    TALLY_ASSIGN_OR_RETURN(weight_plan_, PlanWeights(inventory_, spec, guard, model_->shard_, {.experts = stream}));
    const auto planned = [&](Role role, int32_t layer) { return weight_plan_.View(role, layer); };
    const RopePair no_rope;  // not needed to measure
    const std::vector<PlanSource> stacks = SourcesOf(spec.stacks(), planned, no_rope, model_->shard_);
    const uint64_t available = AvailableMemoryBytes() / RanksHere(model_->group_);
    TALLY_RETURN_IF_ERROR(Prefixed(path_, PlanMemory(stacks, available)));
    if (model_->plan_.streams() && Group() == nullptr && engine_.max_batch == 0) {
      TALLY_RETURN_IF_ERROR(Prefixed(path_, TakeMoreRows(stacks, available)));
    }
    return Prefixed(path_, CheckPlan(model_->plan_, model_->plan_.packed_weights, stacks, stepper_));
  }

  // The plan of an engine of stepper_ and of the weights.
  Status PlanMemory(std::span<const PlanSource> stacks, uint64_t available) {
    MemoryPlan& plan = model_->plan_;
    plan = PlanEngine(stacks, stepper_, team_->threads());
    plan.packed_weights = weight_plan_.packed_bytes();
    plan.available = available;
    return engine_.weights_budget == EngineOptions::kAllWeights ? Status() : DivideBudget();
  }

  // Of a model whose weights are not all in memory: the most rows of a step that EngineOptions::max_batch allows.
  Status TakeMoreRows(std::span<const PlanSource> stacks, uint64_t available) {
    constexpr int64_t kStep = 256;
    const MemoryPlan least = model_->plan_;
    const uint64_t room = (least.packed_weights - least.dense_weights) / 32;
    for (int64_t rows = EngineOptions::kMostBatchRows; rows > EngineOptions::kBatchRows; rows -= kStep) {
      const StepperOptions wanted = MakeStepperOptions(model_->spec_.recipe, engine_, rows);
      const MemoryPlan plan = PlanEngine(stacks, wanted, team_->threads());
      const uint64_t more = SaturatingAdd(plan.kv, plan.scratch) - (least.kv + least.scratch);
      if (more > room || SaturatingAdd(least.total(), more) > available) continue;
      stepper_ = wanted;
      const Status planned = PlanMemory(stacks, available);
      model_->plan_.batch_rows = rows;
      return planned;
    }
    return {};
  }

  // Divides the budget.
  Status DivideBudget() {
    MemoryPlan& plan = model_->plan_;
    uint64_t budget = engine_.weights_budget;
    if (budget == EngineOptions::kAutoBudget) {
      const uint64_t used = SaturatingAdd(plan.kv, plan.scratch);
      budget = plan.available - std::min(plan.available, SaturatingAdd(KeptFree(plan.available), used));
    }
    records_ = ExpertRecordsOf(weight_plan_);
    return AnyLayer(model_->spec_.recipe, &LayerRecipe::sparse) ? PlanExperts(budget) : PlanLayers(budget);
  }

  // What the layers' matrices do not take is always in memory, and so are as many layers as fit beside the slots of the others.
  Status PlanLayers(uint64_t budget) {
    const Recipe& recipe = model_->spec_.recipe;
    const books::StreamedModel model = StreamedModelOf(weight_plan_, recipe);
    MemoryPlan& plan = model_->plan_;
    plan.all_weights = model.all();
    const books::Residency at = books::ResidencyOf(model, budget);
    if (!at.enough()) {
      return NoRoom(BytesText(budget) + " for weights: of " + BytesText(plan.all_weights) + " of them, " +
                    BytesText(model.outside) +
                    " are not matrices of layers and are always in memory; layers that do not fit are " +
                    "read from disk in turn, to the memory of two (" + BytesText(at.least - model.outside) +
                    "), and the least is " + GibText(at.least, Rounding::kUp));
    }
    if (at.all_resident) {
      plan.dense_weights = plan.packed_weights;
      return {};
    }
    StreamedWeights streamed;
    for (size_t i = 0; i < at.streamed_of.size(); ++i) {
      if (at.streamed_of[i]) streamed.layers.insert(static_cast<int32_t>(i) + recipe.first_layer);
    }
    const uint64_t guard = weight_plan_.guarded ? SystemPageBytes() : 0;
    TALLY_ASSIGN_OR_RETURN(weight_plan_, PlanWeights(inventory_, model_->spec_, guard, model_->shard_, streamed));
    layers_ = LayerRecordsOf(weight_plan_);
    plan.dense_weights = weight_plan_.packed_bytes();
    plan.packed_weights = SaturatingAdd(plan.dense_weights, LayerStore::SlotsBytes(layers_));
    plan.streamed_layers = static_cast<int64_t>(layers_.size());
    plan.layers = static_cast<int64_t>(at.streamed_of.size());
    plan.streamed_bytes = plan.all_weights - plan.dense_weights;
    return {};
  }

  // The layers of the text. A step reads a layer's matrices whole, and of what is outside of layers the head.
  static books::StreamedModel StreamedModelOf(const WeightPlan& plan, const Recipe& recipe) {
    books::StreamedModel model;
    model.layers.resize(static_cast<size_t>(recipe.end_layer() - recipe.first_layer));
    for (const PlannedWeight& w : plan.weights) {
      const uint64_t slice = plan.guarded ? w.lead + w.slice_bytes : w.view.slice_stride;
      const uint64_t bytes = static_cast<uint64_t>(w.view.slices) * slice;
      if (w.vector() || w.layer < recipe.first_layer || w.layer >= recipe.end_layer()) {
        model.outside += bytes;
        if (w.layer < 0 && w.view.layout == WeightLayout::kPanel16) model.outside_read += static_cast<double>(bytes);
        continue;
      }
      books::StreamedLayer& layer = model.layers[static_cast<size_t>(w.layer - recipe.first_layer)];
      layer.held += bytes;
      layer.dense_read += static_cast<double>(bytes);
    }
    return model;
  }

  // What experts do not take is always in memory.
  Status PlanExperts(uint64_t budget) {
    MemoryPlan& plan = model_->plan_;
    const auto full = [](const ExpertRecords& r) { return r.experts; };
    std::vector<int64_t> all;
    std::ranges::transform(records_, std::back_inserter(all), full);
    plan.dense_weights = plan.packed_weights;
    plan.all_weights = SaturatingAdd(plan.dense_weights, SlotBytes(records_, all));
    if (plan.all_weights <= budget) {
      slots_ = all;
      return TakeSlots();
    }
    const std::string sizes = BytesText(budget) + " for weights: of " + BytesText(plan.all_weights) + " of them, " +
                              BytesText(plan.dense_weights) + " are not experts and are always in memory";
    if (records_.empty()) return NoRoom(sizes + "; this process has no part of the experts");
    slots_ = SlotsIn(records_, budget - std::min(budget, plan.dense_weights));
    const int64_t k = ExpertsOf(model_->spec_.recipe).top_k;
    for (size_t i = 0; i < records_.size(); ++i) {
      const int64_t least = std::min(records_[i].experts, k + 2);
      if (slots_[i] >= least) continue;
      const uint64_t needed =
          SaturatingAdd(plan.dense_weights, SlotBytes(records_, std::vector<int64_t>(records_.size(), least)));
      return NoRoom(sizes + ", which leaves room for " + std::to_string(slots_[i]) + " of " +
                    std::to_string(records_[i].experts) + " experts of layer " + std::to_string(records_[i].layer) +
                    "; a token uses " + std::to_string(k) + ", and " + std::to_string(least) +
                    " are the least: " + GibText(needed, Rounding::kUp));
    }
    return TakeSlots();
  }

  // Sets what the slots make of the memory plan. If all experts have one, all weights are in the arena.
  Status TakeSlots() {
    MemoryPlan& plan = model_->plan_;
    plan.packed_weights = plan.dense_weights + SlotBytes(records_, slots_);
    const bool all = plan.packed_weights == plan.all_weights;
    plan.expert_slots = all ? 0 : *std::ranges::min_element(slots_);
    plan.experts = all ? 0 : records_[0].experts;
    return {};
  }

  // Where every process has a part of each expert, all read the same experts at the same time: they have as many slots as the one that has
  // the fewest.
  Status AgreeOnSlots() {
    Communicator* const group = Group();
    if (group == nullptr || model_->shard_.own_experts || engine_.weights_budget == EngineOptions::kAllWeights) return {};
    if (!AnyLayer(model_->spec_.recipe, &LayerRecipe::sparse)) return {};  // each process streams its own layers
    const std::pair<std::string_view, std::string> facts[] = {{"layers with a part of experts", std::to_string(records_.size())}};
    TALLY_RETURN_IF_ERROR(AgreeOn(*group, facts));
    const size_t layers = records_.size(), ranks = static_cast<size_t>(group->ranks());
    std::vector<int64_t> all(layers * ranks);
    const std::vector<uint64_t> bytes(ranks, layers * sizeof(int64_t));
    TALLY_RETURN_IF_ERROR(
        group->AllGather(bytes, reinterpret_cast<const uint8_t*>(slots_.data()), reinterpret_cast<uint8_t*>(all.data())));
    for (size_t i = 0; i < all.size(); ++i) slots_[i % layers] = std::min(slots_[i % layers], all[i]);
    return TakeSlots();
  }

  // Checks what must be the same in all processes of a group, since the bits depend on it.
  Status Agree(Communicator& group) const {
    const std::pair<std::string_view, std::string> facts[] = {{"instructions", std::string(HwyTargetName())},
                                                              {"a model with the checksum", std::to_string(HeaderChecksum())}};
    return AgreeOn(group, facts);
  }

  Status Load() {
    const auto beside = [this] {
      if (!has_tokenizer_) MakeTokenizer();
    };
    WeightStores stores;
    const bool packed = inventory_.packed != nullptr;
    if (!layers_.empty()) {
      TALLY_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader, packed ? OpenPackedLayers(inventory_, weight_plan_, layers_)
                                                                          : OpenSourceLayers(read_, planned_, layers_));
      TALLY_ASSIGN_OR_RETURN(stores.layers, LayerStore::Create(layers_, options_.guard_slices, std::move(reader)));
    } else if (!records_.empty() && !model_->plan_.streams()) {
      TALLY_ASSIGN_OR_RETURN(
          weight_plan_, PlanWeights(inventory_, model_->spec_, weight_plan_.guarded ? SystemPageBytes() : 0, model_->shard_));
    } else if (!records_.empty()) {
      TALLY_ASSIGN_OR_RETURN(std::unique_ptr<RecordReader> reader, packed ? OpenPackedRecords(inventory_, weight_plan_, records_)
                                                                          : OpenSourceRecords(read_, planned_, records_));
      if (through_) reader = through_(std::move(reader));
      TALLY_ASSIGN_OR_RETURN(stores.experts, ExpertStore::Create(records_, slots_, options_.guard_slices, std::move(reader)));
    }
    TALLY_ASSIGN_OR_RETURN(model_->weights_,
                           LoadWeights(inventory_, weight_plan_, *team_, options_.progress, beside, std::move(stores)));
    TALLY_RETURN_IF_ERROR(SetXielus());
    TALLY_RETURN_IF_ERROR(Prefixed(path_, model_->MakeRope(stepper_.context).status()));
    const ModelSpec& spec = model_->spec_;
    model_->table_ = books::WeightTable(inventory_, spec);
    model_->types_ = books::WeightTypes(inventory_, spec);
    model_->parameters_ = books::CountParameters(model_->table_, ExpertsOf(spec.recipe).top_k);
    model_->not_run_ = books::CountNotRun(inventory_, spec);
    model_->description_ = spec.recipe.family + ", " + std::to_string(spec.recipe.n_layers) + " layers, " +
                           JoinTypes(model_->matrix_types_) + ", " + BytesText(model_->plan_.packed_weights) + " packed";
    return {};
  }

  // The numbers of xIELU that the checkpoint stores as buffers.
  Status SetXielus() {
    ModelSpec& spec = model_->spec_;
    for (const TensorBinding& b : spec.bindings) {
      if (b.role != Role::kXieluBeta && b.role != Role::kXieluEps) continue;
      Xielu& xielu = model_->spec_.recipe.layers[static_cast<size_t>(b.layer)].network.xielu;
      const bool beta = b.role == Role::kXieluBeta;
      (beta ? xielu.beta : xielu.eps) = model_->weights_.HostVector(b.role, b.layer)[0];
      if (!(xielu.eps <= 0)) return BadInput(path_ + ": tensor " + Quote(b.names[0]) + " is above 0, and xIELU's eps cannot be");
    }
    return {};
  }

  // Null: this process alone.
  Communicator* Group() const { return options_.group != nullptr && options_.group->ranks() > 1 ? options_.group : nullptr; }
  std::shared_ptr<LoadedModel> model() { return model_; }
  void DropLog() { model_->log_ = nullptr; }  // no process follows

 private:
  // A vocabulary takes a tenth of a second to read: if nobody needs it before the weights, one thread does it beside them.
  void MakeTokenizer() {
    has_tokenizer_ = true;
    Result<std::unique_ptr<Tokenizer>> tokenizer = TokenizerFor(inventory_);  // token ids need none
    if (tokenizer.ok()) {
      model_->tokenizer_ = std::move(tokenizer).value();
    } else {
      model_->tokenizer_status_ = tokenizer.status();
    }
    const auto after = model_->notes_.begin() + static_cast<std::ptrdiff_t>(model_->spec_.notes.size());
    if (model_->tokenizer_ != nullptr) {
      std::vector<std::string> notes = model_->tokenizer_->Notes();
      model_->notes_.insert(after, std::make_move_iterator(notes.begin()), std::make_move_iterator(notes.end()));
    }
    model_->chat_templates_ = ReadChatTemplates(inventory_, model_->tokenizer_.get());
  }

  void Take(const ChosenSplit& chosen) {
    const Communicator& group = *model_->group_;
    const bool experts = chosen.split == Split::kExperts;
    model_->shard_ = {.rank = group.rank(), .ranks = group.ranks(), .whole_mixers = experts, .own_experts = experts};
    model_->notes_.push_back("over " + std::to_string(group.ranks()) + " processes " + chosen.why);
  }

  // A checksum of the tensors' names, types, shapes and places.
  uint64_t HeaderChecksum() const {
    Checksum sum;
    const auto number = [&](uint64_t n) { sum.Add({reinterpret_cast<const char*>(&n), sizeof n}); };
    for (const InventoryFile& file : inventory_.files) number(file.size);
    for (const StoredTensor& t : inventory_.tensors) {
      sum.Add(t.name);
      for (const uint64_t n : {static_cast<uint64_t>(t.dtype), t.offset, t.bytes}) number(n);
      for (const uint64_t n : t.shape) number(n);
    }
    return sum.value();
  }

  const std::string& path_;
  const EngineOptions& engine_;
  const LoadOptions& options_;
  const RecordsThrough through_;
  std::shared_ptr<LoadedModel> model_ = std::make_shared<LoadedModel>();
  // A reader of experts keeps both.
  const std::shared_ptr<Inventory> read_ = std::make_shared<Inventory>();
  const std::shared_ptr<WeightPlan> planned_ = std::make_shared<WeightPlan>();
  Inventory& inventory_ = *read_;
  WeightPlan& weight_plan_ = *planned_;
  std::vector<ExpertRecords> records_;  // of experts that are read from disk; empty: none are
  std::vector<int64_t> slots_;          // of each
  std::vector<ExpertRecords> layers_;   // of layers that are read from disk; empty: none are
  bool has_tokenizer_ = false;
  std::optional<Team> team_;
  StepperOptions stepper_;
};

namespace {

Result<std::shared_ptr<const Model>> LoadWith(ModelLoader&& loader) {
  Status loaded = AgreeOnStatus(loader.Group(), loader.Read());
  if (loaded.ok()) loaded = loader.Divide();
  if (loaded.ok()) {
    loaded = AgreeOnStatus(loader.Group(), loader.Plan());
    if (!loaded.ok() && loader.DivideAll()) loaded = AgreeOnStatus(loader.Group(), loader.Plan());
  }
  if (loaded.ok()) loaded = loader.AgreeOnSlots();
  if (loaded.ok()) loaded = AgreeOnStatus(loader.Group(), loader.Load());
  if (!loaded.ok()) {
    loader.DropLog();
    return loaded;
  }
  return std::shared_ptr<const Model>(loader.model());
}

}  // namespace

Result<std::shared_ptr<const Model>> LoadModel(const std::string& path, const EngineOptions& engine, const LoadOptions& options) {
  return LoadWith(ModelLoader(path, engine, options));
}

Result<std::shared_ptr<const Model>> LoadModelThrough(const std::string& path, const EngineOptions& engine,
                                                      const RecordsThrough& through) {
  const LoadOptions options;
  return LoadWith(ModelLoader(path, engine, options, through));
}

Result<MemoryPlan> PlanModel(const std::string& path, const EngineOptions& engine) {
  const LoadOptions options;
  ModelLoader loader(path, engine, options);
  TALLY_RETURN_IF_ERROR(loader.Read());
  if (const Status fits = loader.Plan(); !fits.ok() && fits.code() != StatusCode::kNoRoom) return fits;
  return loader.model()->memory_plan();
}

}  // namespace tally
