// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/fit.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/session/engine_plan.h"
#include "engine/session/memory_plan.h"
#include "engine/studies/fit_parts.h"
#include "engine/studies/packed_size.h"

namespace tally {
namespace {

using books::ParameterForm;

constexpr uint64_t kDefaultContext = 4096, kDefaultPrompt = 512;
constexpr uint64_t kMostContext = std::numeric_limits<int32_t>::max();

// The type that a tensor is multiplied in. Latent attention's key matrix is packed transposed, which quantised types are widened for.
DType TypeOf(const CountedModel& model, const ParameterForm& p) {
  const auto stored = model.stored_types.find(p.full_name());
  const DType type = stored != model.stored_types.end() ? stored->second : books::StoredType(p, model.count.options.type);
  return p.name == FactsOf(Role::kKB).name && GetDTypeInfo(type).quantised ? DType::kF32 : type;
}

// ---- work

FitUnit UnitOf(DType type) {
  if (!IsWeightType(type)) return FitUnit::kF32;
  const WeightFormat& format = FormatOf(type);
  switch (format.act) {
    case ActKind::kF32: return FitUnit::kF32;
    case ActKind::kBF16: return FitUnit::kBF16;
    case ActKind::kInt8: break;
  }
  return format.narrow ? FitUnit::kNarrow : FitUnit::kInt8;
}

using ByUnit = std::array<double, kFitUnits>;

// FLOPs by unit. `slots`: FLOPs divided by the part of the unit's peak that they can reach (PartOfInt8Peak); slots / peak is their
// time in seconds.
struct Work {
  ByUnit flops{}, slots{};
  bool tripled_attention = false;

  void Add(FitUnit unit, double n, double part_of_peak = 1) {
    flops[static_cast<size_t>(unit)] += n;
    slots[static_cast<size_t>(unit)] += n / part_of_peak;
  }
  void Add(const Work& other, double times) {
    for (size_t u = 0; u < flops.size(); ++u) flops[u] += other.flops[u] * times, slots[u] += other.slots[u] * times;
  }
  double all_flops() const { return std::accumulate(flops.begin(), flops.end(), 0.0); }
};

// The work of a step's matrix products and attention. The FLOPs of a component are divided among its tensors in proportion to the
// parameters that one token uses of each. On matrix tiles attention is in bf16, three products for one of an f16 cache's
// (kernels/attention); latent attention is not on tiles.
Work WorkOf(const CountedModel& model, const books::FlopsCount& step, KvType kv, bool has_tiles) {
  using Place = std::pair<int32_t, Component>;
  std::map<Place, Work> used;
  for (const ParameterForm& p : model.count.tensors) {
    if (p.apart() || p.vector) continue;
    const double n = static_cast<double>(p.active.value());
    const DType type = TypeOf(model, p);
    used[{p.layer, p.component}].Add(UnitOf(type), n, PartOfInt8Peak(type, has_tiles));
    if (p.kind == WeightInfo::Kind::kTiedEmbeddingHead) {
      used[{-1, Component::kHead}].Add(UnitOf(type), n, PartOfInt8Peak(type, has_tiles));
    }
  }
  Work work;
  for (const books::WorkForm& f : step.sites) {
    const double n = static_cast<double>(f.flops.value());
    const bool tiles = has_tiles && kv != KvType::kF32 && f.layer >= 0 &&
                       !model.count.recipe->layers[static_cast<size_t>(f.layer)].mixers.has(Mixer::kLatentAttention);
    if (f.work_class == WorkClass::kAttention && tiles) {
      work.Add(FitUnit::kBF16, n, kv == KvType::kF16 ? 1.0 / 3 : 1);
      work.tripled_attention |= kv == KvType::kF16 && n > 0;
    } else if (f.work_class == WorkClass::kAttention) {  // one half with keys, one with values (KvLayout)
      const bool bf16 = kv == KvType::kBF16 || kv == KvType::kQ8_0;
      work.Add(kv == KvType::kQ8_0 ? FitUnit::kInt8 : bf16 ? FitUnit::kBF16 : FitUnit::kF32, n / 2);
      work.Add(bf16 ? FitUnit::kBF16 : FitUnit::kF32, n / 2);
    }
    if (f.work_class != WorkClass::kLinear || !f.matmul) continue;
    const auto tensors = used.find({f.layer, f.component});
    const double all = tensors == used.end() ? 0 : tensors->second.all_flops();
    if (all == 0) {
      work.Add(FitUnit::kF32, n);
    } else {
      work.Add(tensors->second, n / all);
    }
  }
  return work;
}

// `memory_alone`: the rate of memory bounds the step if the peaks of its products are unknown.
StepBound BoundOf(uint64_t tokens, double bytes, const Work& work, const FitMachine& machine, bool memory_alone) {
  StepBound b{.tokens = tokens, .bytes = bytes, .flops = work.flops, .tripled_attention = work.tripled_attention};
  const ByUnit& slots = machine.int8_dots ? work.slots : work.flops;
  std::vector<std::string_view> missing;
  if (machine.read > 0) {
    b.reading = bytes / machine.read;
  } else {
    missing.push_back("read");
  }
  for (size_t u = 0; u < work.flops.size(); ++u) {
    if (work.flops[u] == 0) continue;
    const size_t runs_on = u == static_cast<size_t>(FitUnit::kBF16) && !machine.bf16_dots ? 0 : u;
    if (machine.peaks[runs_on] > 0) {
      b.computing += slots[u] / machine.peaks[runs_on];
      b.at_peaks += work.flops[u] / machine.peaks[runs_on];
    } else if (std::ranges::find(missing, kFitUnitNames[runs_on]) == missing.end()) {
      missing.push_back(kFitUnitNames[runs_on]);
    }
  }
  for (size_t i = 0; i < missing.size(); ++i) {
    b.missing += (i == 0 ? "" : i + 1 < missing.size() ? ", " : " and ") + std::string(missing[i]);
  }
  if (!missing.empty()) {
    if (missing.size() > 1 || missing[0] != "read") b.computing = b.at_peaks = 0;
    if (memory_alone && b.reading > 0) b.tokens_per_second = static_cast<double>(tokens) / b.reading;
    return b;
  }
  b.cached = bytes <= static_cast<double>(machine.caches);
  const double seconds = b.cached ? b.computing : std::max(b.reading, b.computing);
  if (seconds > 0) b.tokens_per_second = static_cast<double>(tokens) / seconds;
  return b;
}

}  // namespace

Result<PackedViews> PackedOf(const CountedModel& model, const Shard& shard) {
  const Recipe& recipe = model.count.recipe;
  TALLY_RETURN_IF_ERROR(CheckRunnable(recipe));
  std::map<std::string, DType> types;
  for (const ParameterForm& p : model.count.tensors) {
    if (p.apart()) continue;
    const DType type = TypeOf(model, p);
    if (!p.vector && !IsWeightType(type)) {
      const bool other = type == DType::kU8;  // StoredTensor::other_type
      return BadInput(p.full_name() + " has " +
                      (other ? "a type of " + model.stored_as + " that" : "type " + std::string(DTypeName(type)) + ", which") +
                      " cannot be run");
    }
    types[p.full_name()] = type;
  }
  PackedViews packed;
  for (int role = 0; role < kRoles; ++role) {
    const Role r = static_cast<Role>(role);
    if (FactsOf(r).kind == WeightInfo::Kind::kBuffer) continue;
    for (int32_t layer = -1; layer < recipe.n_layers; ++layer) {
      if (!HasRole(recipe, r, layer)) continue;
      const auto type = types.find(WeightName(r, layer));
      if (type == types.end()) return InternalError(WeightName(r, layer) + " is no tensor of the closed forms");
      const WeightView view = PackedView(recipe, shard, r, layer, type->second);
      if (view.slices == 0 || (view.rows == 0 && view.cols == 0)) continue;  // of other ranks
      packed.bytes = SaturatingAdd(packed.bytes, SaturatingMul(static_cast<uint64_t>(view.slices), view.slice_stride));
      packed.views[{r, layer}] = view;
    }
  }
  return packed;
}

Result<books::Count> CountSteps(const CountedModel& model, const FitOptions& options) {
  books::CountOptions count = model.count.options;
  count.prompt = options.prompt;
  count.context = options.context;
  count.batch = options.batch;
  return books::CountRecipe(model.count.recipe, std::move(count));
}

Result<FitOptions> FitDefaults(const Recipe& recipe, FitOptions options) {
  if (recipe.counted_only) return BadInput("a model that is counted and not run: it has " + recipe.counted_only->why);
  const uint64_t trained = recipe.context > 0 ? static_cast<uint64_t>(recipe.context) : 0;
  if (options.batch == 0 || options.batch > 65536) return BadInput("a batch must be of 1 to 65536 sequences");
  if (options.context > kMostContext || options.prompt > kMostContext) {
    return BadInput("a context must be at most " + std::to_string(kMostContext) + " positions");
  }
  if (recipe.learned_positions && std::max(options.context, options.prompt) > trained) {
    return BadInput("a context of " + std::to_string(std::max(options.context, options.prompt)) +
                    " positions was asked for, and the model has learned " + std::to_string(trained));
  }
  if (options.context == 0) options.context = trained > 0 ? std::min(trained, kDefaultContext) : kDefaultContext;
  if (options.prompt == 0) options.prompt = std::min(options.context, kDefaultPrompt);
  return options;
}

double PartOfInt8Peak(DType type, bool tiles) {
  if (!IsWeightType(type) || FormatOf(type).act != ActKind::kInt8) return 1;
  constexpr int kDots = kInt8Block / 4;  // of 4 products each
  const int scaling = FormatOf(type).scaling_multiplies();
  if (!tiles) return double{kDots} / (kDots + scaling);
  return FormatOf(type).int8.sums > 1 ? 1.0 / (kDots + scaling) : 8.0 / (16 + 16 * scaling);
}

Result<Fit> BoundModel(const CountedModel& model, const FitOptions& given, const FitMachine& machine) {
  TALLY_ASSIGN_OR_RETURN(const FitOptions options, FitDefaults(model.count.recipe, given));
  TALLY_ASSIGN_OR_RETURN(const books::Count count, CountSteps(model, options));
  const double B = static_cast<double>(options.batch), P = static_cast<double>(options.prompt);
  double written = 0, seen = 0;  // bytes of a position, and of those that the next one sees, in all layers
  for (const LayerRecipe& l : count.recipe->layers) {
    const double position =
        static_cast<double>(books::CachedBytesPerPosition(count.recipe, l, books::StorageOf(options.kv)).value());
    written += l.attention.cache_of < 0 ? position : 0;
    seen += static_cast<double>(books::SeenPositions(l, options.context)) * position;
  }
  const double states = 2 * B * static_cast<double>(count.state_bytes);  // read and written once a step
  Fit fit;
  fit.context = options.context;
  fit.prompt = options.prompt;
  fit.prefill = BoundOf(options.batch * options.prompt, count.prefill_traffic.uniform + states + B * P * written,
                        WorkOf(model, count.prefill_last, options.kv, machine.target == "AMX"), machine, false);
  fit.decode = BoundOf(options.batch, count.decode_traffic.uniform + states + B * (seen + written),
                       WorkOf(model, count.decode, options.kv, machine.target == "AMX"), machine, true);
  return fit;
}

Result<Fit> FitModel(const CountedModel& model, const FitOptions& given, const FitMachine& machine) {
  const Recipe& recipe = model.count.recipe;
  TALLY_ASSIGN_OR_RETURN(const FitOptions options, FitDefaults(recipe, given));
  TALLY_ASSIGN_OR_RETURN(const PackedViews packed, PackedOf(model, {}));
  TALLY_ASSIGN_OR_RETURN(Fit fit, BoundModel(model, options, machine));
  const auto view = [&](Role role, int32_t layer) { return packed.View(recipe, role, layer); };
  const RopePair rope;  // not needed to measure
  const auto plan = [&](uint64_t context) {
    EngineOptions load;
    load.context = static_cast<int64_t>(context);
    load.sequences = static_cast<int32_t>(options.batch);
    load.kv = options.kv;
    StepperOptions stepper = MakeStepperOptions(recipe, load);
    stepper.plan.bf16_dots = machine.bf16_dots;
    const PlanSource text{recipe, view, rope.global, rope.local};
    return PlanEngine({&text, 1}, stepper, std::max(machine.threads, 1));
  };
  fit.memory = plan(options.context);
  fit.memory.packed_weights = packed.bytes;
  fit.memory.available = machine.available;
  fit.trained = recipe.context > 0 ? static_cast<uint64_t>(recipe.context) : 0;
  if (machine.available == 0) return fit;
  const uint64_t needed = SaturatingAdd(SaturatingAdd(packed.bytes, fit.memory.kv), fit.memory.scratch);
  fit.fits = needed <= machine.available;
  const uint64_t limit = std::max({fit.trained, options.context});
  const KvBytesFn kv = [&](int64_t positions) {
    StoreSize size{positions, static_cast<int32_t>(options.batch), 512, 0};
    return SequenceStore::PlanBytes(KvLayers(recipe, options.kv), size);
  };
  const uint64_t scratch = plan(limit).scratch;  // an upper bound for shorter ones
  fit.longest = static_cast<uint64_t>(LongestContext(packed.bytes, kv, scratch, machine.available, static_cast<int64_t>(limit)));
  if (*fit.fits) fit.longest = std::max(fit.longest, options.context);
  return fit;
}

}  // namespace tally
