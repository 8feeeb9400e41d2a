// SPDX-License-Identifier: Apache-2.0
#include "counters/books/model_count.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/checked.h"
#include "engine/base/format.h"
#include "engine/recipe/check_recipe.h"

namespace tally::books {
namespace {

Part PartOf(const WorkForm& f) {
  switch (f.work_class) {
    case WorkClass::kAttention: return Part::kAttention;
    case WorkClass::kNorm: return Part::kNorm;
    case WorkClass::kSoftmax: return Part::kSoftmax;
    case WorkClass::kRope: return Part::kRope;
    case WorkClass::kActivation: return Part::kActivation;
    case WorkClass::kRouter: return f.matmul ? Part::kRouter : Part::kChoice;
    case WorkClass::kRecurrence: return f.matmul ? Part::kRecurrence : Part::kStateWork;
    case WorkClass::kLinear: return books::PartOf(f.component, f.expert);
    default: return Part::kResidualBias;
  }
}

const Form& View(const WorkForm& f, FlopsView view) {
  static const Form kNone;
  if (view == FlopsView::kEverything) return f.flops;
  if (!f.matmul) return kNone;
  return view == FlopsView::kFullSquare ? f.full_square : f.flops;
}

// The sum of the layers' forms: equal ones become a product.
Form SumKinds(const std::map<int32_t, Form>& layers, int32_t n_layers) {
  std::vector<std::pair<Form, uint64_t>> kinds;  // a layer's form, and how many layers have it
  for (const auto& entry : layers) {
    const Form& form = entry.second;
    if (form.text() == "0") continue;
    const auto same = [&](const auto& kind) { return kind.first.text() == form.text(); };
    const auto found = std::find_if(kinds.begin(), kinds.end(), same);
    found != kinds.end() ? ++found->second : kinds.emplace_back(form, 1).second;
  }
  Form sum;
  for (const auto& [form, n] : kinds) {
    sum += (n == static_cast<uint64_t>(n_layers) ? Form::Symbol("L", n) : Form(n)) * form;
  }
  return sum;
}

// The sum of one form over the sites of a part.
template <class Get>
Form SumSites(const std::vector<WorkForm>& sites, Part part, int32_t n_layers, const Get& get) {
  Form outside;
  std::map<int32_t, Form> layers;
  for (const WorkForm& f : sites) {
    if (PartOf(f) == part) (f.layer < 0 ? outside : layers[f.layer]) += get(f);
  }
  return SumKinds(layers, n_layers) + outside;
}

// Entries that the first n positions see, added up: position p of each sees the entries that are complete with it.
Form SeenByFirst(const CountedWork& w, uint64_t n) {
  uint64_t most = w.window > 0 ? w.window : UINT64_MAX;  // positions beyond which no more entries are seen
  if (w.most > 0) most = std::min(most, SaturatingMul(w.most, w.every));
  const uint64_t grows = std::min(n, most), whole = grows / w.every;
  // Each of the entries before the last is the newest one for `every` positions.
  Form sum = (Form(whole) * Form(whole + 1) * Form(w.every)).Half() - Form(whole) * Form((whole + 1) * w.every - grows - 1);
  if (n > most) sum += Form(n - most) * Form(most / w.every);
  return sum;
}

// Of a step of so many rows in each of B sequences. `all`: each row sees what is there after the step, windows left out.
Form FlopsOf(const CountedWork& w, const Workload& work, bool all) {
  const bool every_position = w.every == 1 && w.window == 0 && w.most == 0;
  const Form sequences = work.sequences == 1 ? Form(1) : Form::Symbol("B", work.sequences),
             rows = work.rows == 1 ? Form(1) : Form::Symbol("P", work.rows),
             positions = work.context == work.rows ? rows : Form::Symbol("S", work.context);
  if (!w.by_entry) return Form(w.flops) * sequences * rows;
  if (every_position && (all || work.rows == 1)) return Form(w.flops) * sequences * rows * positions;
  if (all) {
    const uint64_t there = work.context / w.every;
    return Form(w.flops) * sequences * rows * Form(w.most > 0 ? std::min(there, w.most) : there);
  }
  const Form first = SeenByFirst(w, work.context), before = SeenByFirst(w, work.context - work.rows);
  return Form(w.flops) * sequences * (first.overflow() ? first : Form(first.value() - before.value()));
}

WorkClass ClassOf(const CountedWork& w) {
  return w.component == Component::kAttention    ? WorkClass::kAttention
         : w.component == Component::kRecurrence ? WorkClass::kRecurrence
                                                 : WorkClass::kLinear;
}

bool ReplacesAttention(const Recipe& recipe, int32_t layer) {
  return std::ranges::any_of(recipe.counted_only->work,
                             [&](const CountedWork& w) { return w.layer == layer && w.component == Component::kAttention; });
}

// The matrix products of a model that Tally counts but cannot run.
std::vector<WorkForm> MatrixWork(const Recipe& recipe, const Workload& work) {
  std::vector<WorkForm> sites = WorkForms(recipe, work);
  std::erase_if(sites, [&](const WorkForm& f) {
    return !f.matmul || (f.work_class == WorkClass::kAttention && ReplacesAttention(recipe, f.layer));
  });
  for (WorkForm& f : sites) f.special = {};
  for (const CountedTensor& t : recipe.counted_only->tensors) {
    if (t.vector || t.looked_up > 0 || t.layer >= recipe.n_layers) continue;
    const Form flops = 2 * Form(work.sequences) * Form(work.rows) * (Form(t.used) * Form(t.rows) * Form(t.cols));
    sites.push_back({.layer = t.layer,
                     .component = t.component,
                     .matmul = true,
                     .expert = t.slices != t.used,
                     .flops = flops,
                     .full_square = flops});
  }
  for (const CountedWork& w : recipe.counted_only->work) {
    sites.push_back({.layer = w.layer,
                     .component = w.component,
                     .work_class = ClassOf(w),
                     .matmul = true,
                     .flops = FlopsOf(w, work, false),
                     .full_square = FlopsOf(w, work, true)});
  }
  return sites;
}

// What the FLOPs of a view lack.
Lacks LacksOf(const Recipe& recipe, FlopsView view) {
  if (!recipe.counted_only) return {};
  const CountedOnly& only = *recipe.counted_only;
  if (view != FlopsView::kEverything) return only.lacks_products;
  const auto has = [](const auto& parts, Component c) {
    return std::ranges::any_of(parts, [&](const auto& p) { return p.component == c; });
  };
  const bool attends = AnyLayer(recipe, &LayerRecipe::attends) || has(only.work, Component::kAttention);
  const bool rope = recipe.rope.style != RopeStyle::kNone || recipe.all.latent.rope_dim > 0;
  Lacks elementwise = {"norms", "activations", "residuals"};
  if (attends) elementwise.emplace_back("softmax");
  if (attends && rope) elementwise.emplace_back("rope");
  if (recipe.all.experts.n_experts > 0) elementwise.emplace_back("routing");
  if (only.state_elements > 0 || AnyLayer(recipe, &LayerRecipe::recurrent))
    elementwise.emplace_back("elementwise work of states");
  if (has(only.tensors, Component::kStreams)) elementwise.emplace_back("mixing of residual streams");
  return Join(only.lacks_products, elementwise);
}

// The work of a step. nullopt: a sum does not fit.
std::optional<FlopsCount> CountFlops(const Recipe& recipe, const Workload& workload) {
  constexpr auto kAll = static_cast<size_t>(FlopsView::kEverything);
  FlopsCount count;
  count.workload = workload;
  count.sites = recipe.counted_only ? MatrixWork(recipe, workload) : WorkForms(recipe, workload);
  std::array<Lacks, kFlopsViews> lacks;
  for (size_t v = 0; v < kFlopsViews; ++v) lacks[v] = LacksOf(recipe, static_cast<FlopsView>(v));
  Form special;
  std::array<Form, kFlopsViews> total;
  for (int p = 0; p < kParts; ++p) {
    const Part part = static_cast<Part>(p);
    FlopsRow row;
    row.part = part;
    std::array<Form, kFlopsViews> flops;
    for (size_t v = 0; v < kFlopsViews; ++v) {
      flops[v] = SumSites(count.sites, part, recipe.n_layers,
                          [&](const WorkForm& f) -> const Form& { return View(f, static_cast<FlopsView>(v)); });
      total[v] += flops[v];
      row.flops[v] = {flops[v], lacks[v]};
    }
    const Form of_row = SumSites(count.sites, part, recipe.n_layers, [](const WorkForm& f) -> const Form& { return f.special; });
    special += of_row;
    row.special = {of_row, lacks[kAll]};
    if (flops[kAll].text() != "0" || of_row.text() != "0") count.rows.push_back(std::move(row));
  }
  bool fits = !special.overflow();
  for (size_t v = 0; v < kFlopsViews; ++v) {
    count.total[v] = {total[v].value(), lacks[v]};
    fits = fits && !total[v].overflow();
  }
  count.special = {special.value(), lacks[kAll]};
  std::array<uint64_t, kWorkClasses> by_class{}, special_by_class{};
  for (const WorkForm& f : count.sites) {
    by_class[static_cast<size_t>(f.work_class)] += f.flops.value();
    special_by_class[static_cast<size_t>(f.work_class)] += f.special.value();
  }
  for (size_t c = 0; c < kWorkClasses; ++c) {
    count.by_class[c] = {by_class[c], lacks[kAll]};
    count.special_by_class[c] = {special_by_class[c], lacks[kAll]};
  }
  return fits ? std::optional(std::move(count)) : std::nullopt;
}

// Bytes of all layers that the last of `context` positions reads from the caches of the recipe's layers, and from others.
Form ReadAt(const Recipe& recipe, uint64_t context, bool expanded, const KvStorage& storage) {
  Form read;
  for (size_t i = 0; i < recipe.layers.size(); ++i) {
    const LayerRecipe& l = recipe.layers[i];
    if (!l.attends()) continue;
    uint64_t seen = SeenPositions(l, context);
    if (recipe.counted_only) {
      for (const CountedWork& w : recipe.counted_only->work) {
        if (w.layer == static_cast<int32_t>(i) && w.component == Component::kAttention && w.most > 0)
          seen = std::min(seen, w.most);
      }
    }
    read += Form(seen) * CachedBytesPerPosition(recipe, l, storage, expanded);
  }
  if (recipe.counted_only) {
    for (const CountedCache& cache : recipe.counted_only->caches) {
      read += Form(CachedBytes(cache, ReadElements(cache, context), storage));
    }
  }
  return read;
}

// False if a figure does not fit.
bool CountSteps(const Recipe& recipe, const CountOptions& options, bool expanded, StepCount& c) {
  const KvStorage storage = StorageOf(options.kv);
  std::map<int32_t, Form> layers, layer_bytes;
  Form cached;  // bytes of a sequence
  for (const LayerRecipe& l : recipe.layers) {
    if (l.attention.cache_of >= 0) continue;
    const Form per_position = CachedBytesPerPosition(recipe, l, storage, expanded);
    layers.emplace(static_cast<int32_t>(layers.size()), CachedPerPosition(recipe, l, expanded));
    layer_bytes.emplace(static_cast<int32_t>(layer_bytes.size()), per_position);
    cached += Form(CachedPositions(l, options.context)) * per_position;
  }
  c.kv_elements_per_token = SumKinds(layers, recipe.n_layers);
  Form scaled = SumKinds(layer_bytes, recipe.n_layers);  // of types with scales
  c.state_elements = StateElements(recipe);
  if (recipe.counted_only) {
    c.state_elements += Form(recipe.counted_only->state_elements);
    for (const CountedCache& cache : recipe.counted_only->caches) {
      c.kv_elements_per_token += Form(cache.layers * cache.elements / cache.every);
      scaled += Form(CachedBytes(cache, cache.layers * cache.elements, storage) / cache.every);
      const uint64_t held = CachedElements(cache, options.context);
      if (held == UINT64_MAX) return false;
      cached += Form(CachedBytes(cache, held, storage));
    }
  }
  c.kv_per_token = storage.block > 0 ? scaled : c.kv_elements_per_token * Form(storage.element_bytes);
  c.kv_bytes_per_token = c.kv_per_token.value();
  cached = cached * options.batch;
  c.kv_bytes_at_context = cached.value();
  const Form read = ReadAt(recipe, options.context, expanded, storage) * options.batch;
  c.kv_bytes_read = {read.value(), recipe.counted_only ? recipe.counted_only->lacks_reads : Lacks{}};
  c.state_bytes = c.state_elements.value() * sizeof(float);

  const uint64_t B = options.batch, P = options.prompt;
  bool fits = !cached.overflow() && !read.overflow();
  const auto step = [&](FlopsCount& of, const Workload& work) {
    std::optional<FlopsCount> count = CountFlops(recipe, work);
    fits = fits && count.has_value();
    if (count) of = *std::move(count);
  };
  step(c.prefill, {B, P, P, P, expanded});
  step(c.prefill_last, {B, P, P, 1, expanded});
  step(c.decode, {B, 1, options.context, 1, expanded});
  return fits;
}

// Bytes of weights that a step of `rows` rows at `positions` different positions reads, if no two rows have the same token.
WeightTraffic Traffic(const Count& count, const std::vector<uint64_t>& bytes, uint64_t rows, uint64_t positions) {
  WeightTraffic t;
  const double X = std::max(count.recipe->all.experts.n_experts, 0), k = count.recipe->all.experts.top_k;
  if (X > 0) {
    t.uniform_experts = UniformExperts(X, k, static_cast<double>(rows));
    t.most_experts = static_cast<uint64_t>(std::min(static_cast<double>(rows) * k, X));
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    const ParameterForm& p = count.tensors[i];
    if (p.apart()) continue;
    const uint64_t slice = bytes[i] / p.slices;
    if (p.expert) {
      t.uniform += t.uniform_experts * static_cast<double>(slice);
      t.most += t.most_experts * slice;
    } else {
      const uint64_t read = BytesRead(p, bytes[i], rows, positions);
      t.uniform += static_cast<double>(read);
      t.most += read;
    }
  }
  return t;
}

std::string Names(const Lacks& lacks) {
  std::string text;
  for (const std::string& name : lacks) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Status DoesNotFit() { return BadInput("these counts do not fit 64 bits: the prompt, the context or the batch is too large"); }

}  // namespace

uint64_t BytesRead(const ParameterForm& p, uint64_t bytes, uint64_t rows, uint64_t positions) {
  if (p.kind == WeightInfo::Kind::kEmbedding || p.kind == WeightInfo::Kind::kTable)
    return std::min(rows * std::max<uint64_t>(p.touched.value() / p.cols, 1), p.rows) * (bytes / p.rows);
  if (p.kind == WeightInfo::Kind::kPosition) return std::min(positions, p.rows) * (bytes / p.rows);
  return bytes;
}

uint64_t CachedElements(const CountedCache& cache, uint64_t context) {
  const uint64_t positions = cache.window > 0 ? std::min(cache.window, context) : context;
  return SaturatingMul(SaturatingMul(cache.layers, cache.elements), positions / cache.every);
}

uint64_t ReadElements(const CountedCache& cache, uint64_t context) {
  const uint64_t positions = cache.window > 0 ? std::min(cache.window, context) : context, entries = positions / cache.every;
  return SaturatingMul(SaturatingMul(cache.layers, cache.elements), cache.most > 0 ? std::min(cache.most, entries) : entries);
}

uint64_t CachedBytes(const CountedCache& cache, uint64_t elements, const KvStorage& storage) {
  uint64_t bytes = SaturatingMul(elements, storage.element_bytes);
  if (storage.block > 0 && cache.elements > 0) {
    const uint64_t blocks = (cache.elements + storage.block - 1) / storage.block;
    bytes = SaturatingAdd(bytes, SaturatingMul(elements / cache.elements, blocks * storage.scale_bytes));
  }
  return bytes;
}

std::string PartialWords(const StepCount& count) {
  const std::pair<std::string_view, const Lacks*> figures[] = {
      {"matrix products lack ", &count.decode.total[static_cast<size_t>(FlopsView::kCausal)].lacks()},
      {"FLOPs that count everything, and special ones, lack ", &count.decode.special.lacks()},
      {"bytes read from the cache lack ", &count.kv_bytes_read.lacks()}};
  std::string text;
  for (const auto& [words, lacks] : figures) {
    if (!lacks->empty()) text += (text.empty() ? "partial: " : "; ") + std::string(words) + Names(*lacks);
  }
  return text;
}

double UniformExperts(double experts, double top_k, double rows) { return experts * (1 - std::pow(1 - top_k / experts, rows)); }

std::string_view FlopsViewName(FlopsView view) {
  static constexpr std::array<std::string_view, kFlopsViews> kNames = {"matmul, full square", "matmul, causal", "everything"};
  return kNames[static_cast<size_t>(view)];
}

DType StoredType(const ParameterForm& p, DType type) {
  if (!GetDTypeInfo(type).quantised) return type;
  const bool whole = p.cols % static_cast<uint64_t>(GetDTypeInfo(type).block_size) == 0;
  if (IsOfExperts(type)) return p.expert && !p.vector && whole ? type : DType::kBF16;
  if (p.vector || p.component == Component::kRouter || p.component == Component::kPositionEmbedding) return DType::kF32;
  return whole ? type : DType::kF16;
}

uint64_t StoredBytesAs(const ParameterForm& p, DType type) {
  if (StoredType(p, type) == DType::kFP8) {  // codes, and an f32 scale for each 128 x 128
    const auto blocks = [](uint64_t n) { return (n + 127) / 128; };
    return (p.rows * p.cols + sizeof(float) * blocks(p.rows) * blocks(p.cols)) * p.slices;
  }
  const std::optional<uint64_t> row = StoredBytes(StoredType(p, type), p.cols);
  return row.value_or(0) * p.rows * p.slices;
}

Result<Count> CountRecipe(const Recipe& recipe, CountOptions options) {
  const uint64_t trained = recipe.context > 0 ? static_cast<uint64_t>(recipe.context) : 0;
  if (options.prompt == 0) options.prompt = trained > 0 ? std::min<uint64_t>(trained, 1024) : 1024;
  const bool own_context = options.context > 0;
  if (!own_context) options.context = options.prompt;
  if (options.batch == 0) return BadInput("a batch must have at least 1 sequence");
  TALLY_RETURN_IF_ERROR(CheckRecipe(recipe));
  if (IsOfExperts(options.type) && recipe.all.experts.n_experts == 0) {
    return BadInput(std::string(DTypeName(options.type)) + " is a type of experts, and this model has none");
  }
  Count c;
  c.recipe = recipe;
  c.tensors = ParameterForms(recipe);
  c.parameters = ClosedFormCounts(recipe);
  c.options = options;

  std::vector<uint64_t> bytes;
  for (const ParameterForm& p : c.tensors) {
    if (p.count.overflow()) return DoesNotFit();
    const auto stored = options.stored_bytes.find(p.full_name());
    bytes.push_back(stored != options.stored_bytes.end() ? stored->second : StoredBytesAs(p, options.type));
    (p.apart() ? c.prediction : c.touched) += p.apart() ? p.count.value() : p.touched.value();
    if (!p.apart()) c.weight_bytes += bytes.back();
  }
  for (const DType type : kWeightTypes) {
    if (IsOfExperts(type) && recipe.all.experts.n_experts == 0) continue;
    Count::Memory m{type, 0};
    for (const ParameterForm& p : c.tensors) m.bytes += p.apart() ? 0 : StoredBytesAs(p, type);
    c.memory.push_back(m);
  }

  if (!CountSteps(recipe, options, false, c)) return DoesNotFit();
  if (recipe.all.latent.kv_rank > 0 && !recipe.counted_only && !CountSteps(recipe, options, true, c.expanded.emplace()))
    return DoesNotFit();

  const WeightTraffic one = Traffic(c, bytes, 1, 1);
  c.weight_bytes_per_token = one.most;
  c.prefill_traffic = Traffic(c, bytes, options.batch * options.prompt, options.prompt);
  c.decode_traffic = Traffic(c, bytes, options.batch, 1);
  const double kv_written = static_cast<double>(c.kv_bytes_per_token) * static_cast<double>(options.batch);
  const double states = 2 * static_cast<double>(c.state_bytes) * static_cast<double>(options.batch);
  const auto flops = [](const FlopsCount& of) { return of.total[static_cast<size_t>(FlopsView::kEverything)]; };
  c.decode_intensity = flops(c.decode).With(c.kv_bytes_read, [&](uint64_t n, uint64_t read) {
    return static_cast<double>(n) / (c.decode_traffic.uniform + static_cast<double>(read) + states + kv_written);
  });
  c.prefill_intensity = flops(c.prefill_last).Map([&](uint64_t n) {
    return static_cast<double>(n) / (c.prefill_traffic.uniform + states + kv_written * static_cast<double>(options.prompt));
  });

  if (recipe.counted_only) {
    c.warnings.push_back("it is counted and not run (" + recipe.counted_only->why + "): " + PartialWords(c));
  }
  for (const auto& [n, what] : {std::pair{options.prompt, "a prompt of "}, std::pair{options.context, "a context of "}}) {
    if (trained > 0 && n > trained && (own_context || c.warnings.empty())) {
      c.warnings.push_back(what + WithThousands(n) + " is longer than the " + WithThousands(trained) +
                           " positions that the model was trained on; counted all the same");
    }
  }
  return c;
}

}  // namespace tally::books
