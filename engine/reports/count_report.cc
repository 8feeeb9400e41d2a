// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/count_report.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/render/bars.h"
#include "engine/render/words.h"
#include "engine/reports/claims_report.h"
#include "engine/reports/count_layers.h"
#include "engine/reports/part_names.h"
#include "engine/studies/claims.h"
#include "engine/studies/count_figures.h"
#include "engine/studies/quantize.h"
#include "engine/studies/run_info.h"

namespace tally {
namespace {

using books::Count;
using books::FlopsCount;
using books::FlopsRow;
using books::FlopsView;
using books::Form;
using books::ParameterForm;

std::string Title(const CountedModel& m) {
  std::string text = m.name + ": " + m.count.recipe->family;
  for (const ReportSymbol& s : SymbolsOf(m.count.recipe, 0)) text += ", " + s.name + " " + WithThousands(s.value);
  return text;
}

Table TensorTable(const CountedModel& m, bool layers) {
  Table t{Title(m),
          {"tensor", "parameters", "times", "together", "share", "closed form"},
          {},
          {true, false, false, false, false, true}};
  for (const TensorGroup& g : TensorGroups(m.count, layers)) {
    const uint64_t each = g.first->count.value();
    t.rows.push_back({g.name, WithThousands(each), std::to_string(g.n), WithThousands(each * g.n),
                      g.first->apart() ? "" : Share(each * g.n, m.count.parameters.total), g.first->count.text()});
  }
  return t;
}

Table TotalsTable(const CountedModel& m) {
  const Count& c = m.count;
  Table t = ConventionTable(m);
  t.title = "parameters";
  t.columns = {"", "count", "share", ""};
  t.rows.insert(t.rows.begin(), {TotalName(m), WithThousands(c.parameters.total), Share(c.parameters.total, c.parameters.total),
                                 c.recipe->tied_head ? "the head is the embedding, counted once" : ""});
  if (!m.counts_part()) return t;
  for (const PartNotRun& p : m.not_run) {
    t.rows.push_back({"not run: " + p.name, p.parameters ? WithThousands(*p.parameters) : "not counted", "", ""});
  }
  if (const auto all = m.all_parameters()) t.rows.push_back({"total (all)", WithThousands(*all), "", "run or not"});
  return t;
}

// ", 4 sequences"; of one nothing.
std::string OfSequences(const Count& c) {
  return c.options.batch > 1 ? ", " + WithThousands(c.options.batch) + " sequences" : "";
}

// Of an element of the cache, its part of a block's scale included.
double KvElementBytes(const Count& c) {
  const books::KvStorage storage = books::StorageOf(c.options.kv);
  const double scale = storage.block > 0 ? static_cast<double>(storage.scale_bytes) / static_cast<double>(storage.block) : 0;
  return static_cast<double>(storage.element_bytes) + scale;
}

// At the context, of models that are only counted.
std::vector<std::pair<std::string, uint64_t>> CacheBytes(const Count& c) {
  std::vector<std::pair<std::string, uint64_t>> caches;
  if (!c.recipe->counted_only) return caches;
  for (const CountedCache& cache : c.recipe->counted_only->caches) {
    const uint64_t held = books::CachedElements(cache, c.options.context);
    caches.emplace_back(cache.name, books::CachedBytes(cache, held, books::StorageOf(c.options.kv)) * c.options.batch);
  }
  return caches;
}

Table MemoryTable(const CountedModel& m) {
  const Count& c = m.count;
  Table t{"memory", {"", "bytes", "decimal", "binary"}, {}, {true}};
  auto row = [&](std::string name, uint64_t bytes) {  // both units, whose confusion is the usual mistake
    t.rows.push_back({std::move(name), WithThousands(bytes), Scaled(static_cast<double>(bytes), "B"), BytesText(bytes)});
  };
  for (const Count::Memory& x : c.memory) row("all weights as " + std::string(DTypeName(x.type)), x.bytes);
  for (const char* preset : {"Q8_0", "Q6_K", "Q5_K_M", "Q4_K_M", "Q3_K_M"}) {
    if (const Result<uint64_t> bytes = PresetBytes(m, preset); bytes.ok()) row(std::string("preset ") + preset, *bytes);
  }
  row("weights, " + m.stored_as, c.weight_bytes);
  for (const PartNotRun& p : m.not_run) {
    if (p.bytes) row("not run: " + p.name, *p.bytes);
  }
  if (const auto all = m.all_bytes(); all && !m.not_run.empty()) row("weights, run or not", *all);
  row("read by a decode step of one token", c.weight_bytes_per_token);
  row("KV, " + KvNameOf(c) + ", a token: " + c.kv_per_token.text(), c.kv_bytes_per_token);
  const std::string at = " at " + WithThousands(c.options.context) + " positions" + OfSequences(c);
  row("KV held" + at, c.kv_bytes_at_context);
  for (const auto& [name, bytes] : CacheBytes(c)) row("of these " + name, bytes);
  if (const auto read = c.kv_bytes_read.number()) {
    row("KV read by a step" + at, *read);
  } else {
    t.rows.push_back({"KV read by a step" + at, "partial", "", ""});
  }
  if (c.state_bytes > 0) row("state of a sequence: " + (c.state_elements * Form(sizeof(float))).text(), c.state_bytes);
  return t;
}

// A number and its share of all, empty where there is none; "partial" of a part.
template <class T, class ValueOf>
void AddFlopsCells(const books::Figure<T>& flops, const books::Figure<uint64_t>& whole, const ValueOf& value_of,
                   std::vector<Cell>& cells) {
  const auto n = flops.number();
  const auto all = whole.number();
  cells.push_back(!n ? "partial" : value_of(*n) > 0 ? WithThousands(value_of(*n)) : "");
  cells.push_back(n && all && value_of(*n) > 0 ? Share(value_of(*n), *all) : "");
}

Table FlopsTable(const std::string& title, const FlopsCount& f, const FlopsCount* last) {
  Table t{title, {""}, {}, {true}};
  for (int v = 0; v < books::kFlopsViews; ++v) {
    t.columns.emplace_back(FlopsViewName(static_cast<FlopsView>(v)));
    t.columns.emplace_back("share");  // of the column before it
  }
  t.joined = {false, false, true, false, true, false, true};
  t.columns.emplace_back("special");
  const auto add = [&](std::string name, const auto& flops, const auto& special, const auto& value_of) {
    std::vector<Cell> cells = {std::move(name)};
    for (size_t v = 0; v < flops.size(); ++v) AddFlopsCells(flops[v], f.total[v], value_of, cells);
    const auto n = special.number();
    cells.push_back(!n ? "partial" : value_of(*n) > 0 ? WithThousands(value_of(*n)) : "");
    t.rows.push_back(std::move(cells));
  };
  const auto number = [](uint64_t n) { return n; };
  for (const FlopsRow& row : f.rows) {
    add(std::string(PartName(row.part)), row.flops, row.special, [](const Form& form) { return form.value(); });
  }
  add(last != nullptr ? "all, head at every position" : "all", f.total, f.special, number);
  if (last != nullptr) add("all, head at the last position", last->total, last->special, number);
  return t;
}

// Forms of figures that are whole.
Table FormsTable(const std::string& title, const FlopsCount& f) {
  Table t{title, {"", ""}, {}, {true, true}};
  for (const FlopsRow& row : f.rows) {
    const auto text = [](const books::Figure<Form>& figure) { return figure.whole() ? figure.number()->text() : "0"; };
    const std::string name(PartName(row.part)), full = text(row.flops[0]), causal = text(row.flops[1]), all = text(row.flops[2]),
                                                special = text(row.special);
    if (all != "0") t.rows.push_back({name, all});
    if (all == "0" && causal != "0") t.rows.push_back({name + ", products", causal});
    if (full != "0" && full != causal) t.rows.push_back({name + ", full square", full});
    if (special != "0") t.rows.push_back({name + ", special", special});
  }
  return t;
}

Table TrafficTable(const Count& c) {
  Table t{"traffic of a step", {"", "prefill", "decode"}, {}, {true, false, false}};
  const auto &p = c.prefill_traffic, &d = c.decode_traffic;
  if (c.recipe->all.experts.n_experts > 0) {
    t.rows.push_back({"experts a layer reads, uniform routing", Fixed(p.uniform_experts, 2), Fixed(d.uniform_experts, 2)});
    t.rows.push_back({"experts a layer reads, at most", WithThousands(p.most_experts), WithThousands(d.most_experts)});
    t.rows.push_back({"weight bytes read, at most", WithThousands(p.most), WithThousands(d.most)});
  }
  t.rows.push_back({"weight bytes read", WithThousands(p.uniform), WithThousands(d.uniform)});
  const auto ratio = [](double x) { return Fixed(x, 2); };
  t.rows.push_back(
      {"FLOPs a byte of weights and KV", FigureCell(c.prefill_intensity, ratio), FigureCell(c.decode_intensity, ratio)});
  return t;
}

// Latent attention as it is run and as it is published.
Table ReadingsTable(const Count& c) {
  Table t{"latent attention, in two readings",
          {"", "absorbed, as run", "expanded, as published", "closed form, absorbed", "closed form, expanded"},
          {},
          {true, false, false, true, true}};
  const books::StepCount &run = c, &published = *c.expanded;
  const auto row = [&](const std::string& name, const auto& get) { t.rows.push_back({name, get(run), get(published), "", ""}); };
  const auto views = [&](const std::string& step, FlopsCount books::StepCount::*flops, uint64_t tokens) {
    for (size_t v = 0; v < books::kFlopsViews; ++v) {
      row(step + " FLOPs a token, " + std::string(FlopsViewName(static_cast<FlopsView>(v))), [&](const books::StepCount& s) {
        return FigureCell((s.*flops).total[v],
                          [&](uint64_t n) { return WithThousands(static_cast<double>(n) / static_cast<double>(tokens)); });
      });
    }
  };
  views("prefill", &books::StepCount::prefill, c.options.batch * c.options.prompt);
  views("decode", &books::StepCount::decode, c.options.batch);
  const auto latent =
      std::ranges::find_if(c.recipe->layers, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kLatentAttention); });
  const Form a = books::CachedPerPosition(c.recipe, *latent), e = books::CachedPerPosition(c.recipe, *latent, true);
  t.rows.push_back({"KV elements a position and layer", WithThousands(a.value()), WithThousands(e.value()), a.text(), e.text()});
  row("KV bytes a token", [](const books::StepCount& s) { return WithThousands(s.kv_bytes_per_token); });
  row("KV bytes at S" + OfSequences(c), [](const books::StepCount& s) { return WithThousands(s.kv_bytes_at_context); });
  return t;
}

std::string PrefillTitle(const Count& c) {
  return "FLOPs of a prefill of P = " + WithThousands(c.options.prompt) +
         (c.options.batch > 1 ? ", B = " + WithThousands(c.options.batch) : "");
}
std::string DecodeTitle(const Count& c) {
  const std::string tokens =
      c.options.batch > 1 ? "step of B = " + WithThousands(c.options.batch) + " tokens, each of which" : "token that";
  return "FLOPs of a decode " + tokens + " sees S = " + WithThousands(c.options.context);
}

std::vector<Table> TablesOf(const CountedModel& m, bool layers) {
  const Count& c = m.count;
  std::vector<Table> tables = {TensorTable(m, layers),
                               TotalsTable(m),
                               MemoryTable(m),
                               FlopsTable(PrefillTitle(c), c.prefill, &c.prefill_last),
                               FormsTable("closed forms, head at every position", c.prefill),
                               FlopsTable(DecodeTitle(c), c.decode, nullptr),
                               FormsTable("closed forms", c.decode),
                               TrafficTable(c)};
  if (c.expanded) tables.push_back(ReadingsTable(c));
  if (const std::string partial = books::PartialWords(c); !partial.empty()) {
    tables.push_back({"figures that are only part", {""}, {{partial}}, {true}});
  }
  return tables;
}

Value FormJson(const Form& f) { return {{"value", f.value()}, {"form", f.text()}}; }

const char* ViewKey(size_t view) {
  static constexpr const char* kKeys[] = {"matmul_full_square", "matmul_causal", "everything"};
  return kKeys[view];
}

// null if it is only part.
template <class T>
Value FigureJson(const books::Figure<T>& figure) {
  return figure.number();
}

Value TotalsJson(const FlopsCount& f) {
  Value out;
  Value lacks = Value::Object();  // by figure, of those that are only part
  const auto set = [&](const char* key, const books::Figure<uint64_t>& figure) {
    out[key] = FigureJson(figure);
    if (!figure.whole()) lacks[key] = figure.lacks();
  };
  for (size_t v = 0; v < books::kFlopsViews; ++v) set(ViewKey(v), f.total[v]);
  set("special", f.special);
  set("macs", f.total[1].Map([](uint64_t n) { return n / 2; }));  // of the products, as they are masked
  if (!lacks.members().empty()) out["lacks"] = std::move(lacks);
  return out;
}

Value FlopsJson(const FlopsCount& f, const FlopsCount* last) {
  Value out = {{"sequences", f.workload.sequences}, {"rows", f.workload.rows}, {"context", f.workload.context}};
  out["total"] = TotalsJson(f);
  if (last != nullptr) out["total_head_last"] = TotalsJson(*last);
  Value parts = Value::Array(), classes = Value::Object();
  for (const FlopsRow& row : f.rows) {
    Value part = {{"part", PartName(row.part)}};
    for (size_t v = 0; v < books::kFlopsViews; ++v) {
      const auto form = row.flops[v].number();
      const auto all = f.total[v].number();
      part[ViewKey(v)] = form ? FormJson(*form) : Value(nullptr);
      if (form && all) {
        part[ViewKey(v)]["share"] = *all > 0 ? static_cast<double>(form->value()) / static_cast<double>(*all) : 0.0;
      }
    }
    const auto special = row.special.number();
    part["special"] = special ? FormJson(*special) : Value(nullptr);
    if (!special) part["lacks"] = {{ViewKey(2), row.special.lacks()}, {"special", row.special.lacks()}};
    parts.Add(std::move(part));
  }
  for (size_t w = 0; w < kWorkClasses; ++w) {
    if (f.by_class[w] == 0u && f.special_by_class[w] == 0u) continue;
    if (!f.by_class[w].whole()) continue;
    classes[std::string(kWorkClassNames[w])] = {{"flops", FigureJson(f.by_class[w])},
                                                {"special", FigureJson(f.special_by_class[w])}};
  }
  const Value sites = Value::ListOf(f.sites, [](const books::WorkForm& s) {
    Value site = {{"layer", s.layer},
                  {"component", ComponentName(s.component)},
                  {"class", kWorkClassNames[static_cast<size_t>(s.work_class)]},
                  {"matmul", s.matmul},
                  {"flops", FormJson(s.flops)},
                  {"special", FormJson(s.special)}};
    if (s.matmul) site["full_square"] = FormJson(s.full_square);
    return site;
  });
  out["parts"] = std::move(parts);
  const bool whole = f.total[static_cast<size_t>(FlopsView::kEverything)].whole();
  out["classes"] = whole ? std::move(classes) : Value(nullptr);
  out["sites"] = whole ? sites : Value(nullptr);  // they would add up to a part
  return out;
}

Value TrafficJson(const books::WeightTraffic& t) {
  return {{"uniform", t.uniform}, {"most", t.most}, {"experts_uniform", t.uniform_experts}, {"experts_most", t.most_experts}};
}

// Under the names of --set, where they are numbers.
Value ConfigurationJson(const Recipe& r) {
  int32_t window = 0;
  for (const LayerRecipe& l : r.layers) window = std::max(window, l.attention.window);
  return {{"n_layers", r.n_layers},
          {"d_model", r.d_model},
          {"n_heads", r.all.attention.n_heads},
          {"n_kv_heads", r.all.attention.n_kv_heads},
          {"head_dim", r.all.attention.head_dim},
          {"d_ff", r.all.ffn.width},
          {"vocab", r.vocab},
          {"context", r.context},
          {"window", window},
          {"n_experts", r.all.experts.n_experts},
          {"top_k", r.all.experts.top_k},
          {"d_expert", r.all.experts.width},
          {"d_shared", r.all.experts.shared_width},
          {"tied", r.tied_head}};
}

Value OneDocument(const CountedModel& m) {
  const Count& c = m.count;
  Value parts = Value::Object(), presets = Value::Object(), tensors = Value::Array(), layers = Value::Array();
  const auto stored = CountParts(c, &ParameterForm::count), active = CountParts(c, &ParameterForm::active);
  for (size_t part = 0; part < books::kParts; ++part) {
    if (stored[part] == 0) continue;
    parts[std::string(PartName(static_cast<books::Part>(part)))] = {{"parameters", stored[part]}, {"active", active[part]}};
  }
  for (const std::string_view preset : QuantizePresets()) {
    if (const Result<uint64_t> bytes = PresetBytes(m, preset); bytes.ok()) presets[std::string(preset)] = *bytes;
  }
  std::map<int32_t, uint64_t> by_layer;
  for (const ParameterForm& p : c.tensors) {
    if (!p.apart() && p.layer >= 0) by_layer[p.layer] += p.count.value();
    Value tensor = {{"name", p.full_name()},         {"layer", p.layer},           {"component", ComponentName(p.component)},
                    {"parameters", p.count.value()}, {"active", p.active.value()}, {"touched", p.touched.value()},
                    {"form", p.count.text()}};
    if (p.apart()) tensor["multi_token_prediction"] = true;
    tensors.Add(std::move(tensor));
  }
  for (const auto& [layer, n] : by_layer) layers.Add(n);
  Value memory = Value::Object();
  for (const Count::Memory& x : c.memory) memory[std::string(DTypeName(x.type))] = x.bytes;
  const Value not_run = Value::ListOf(m.not_run, [](const PartNotRun& p) -> Value {
    return {{"part", p.name}, {"parameters", p.parameters}, {"bytes", p.bytes}};
  });
  Value parameters = {
      {"total", m.known_parameters()},
      {"total_run", c.parameters.total},
      {"not_run", not_run},
      {"touched", c.touched},
      {"active", {{"all", c.parameters.active_all}, {"head", c.parameters.active_head}, {"none", c.parameters.active_none}}},
      {"multi_token_prediction", c.prediction}};
  for (const PartNotRun& p : m.not_run) {
    if (!p.parameters) parameters["total_lacks"].Add(p.name);
  }
  if (const LookedUpTables tables = LookedUp(c); tables.stored > 0) {
    parameters["looked_up"] = {{"parameters", tables.stored}, {"touched", tables.read}};
  }
  parameters["parts"] = std::move(parts);
  parameters["layers"] = std::move(layers);
  parameters["tensors"] = std::move(tensors);
  Value document = {{"model", m.name}, {"family", c.recipe->family}, {"configuration", ConfigurationJson(c.recipe)}};
  document["options"] = {
      {"context", c.options.context}, {"prompt", c.options.prompt}, {"batch", c.options.batch}, {"kv", KvNameOf(c)}};
  document["parameters"] = std::move(parameters);
  document["flops"] = {{"prefill", FlopsJson(c.prefill, &c.prefill_last)}, {"decode", FlopsJson(c.decode, nullptr)}};
  document["bytes"] = {{"stored_as", m.stored_as},
                       {"weights", c.weight_bytes},
                       {"weights_run_or_not", m.all_bytes()},
                       {"weights_per_token", c.weight_bytes_per_token},
                       {"weights_as", std::move(memory)},
                       {"presets", std::move(presets)},
                       {"weights_read", {{"prefill", TrafficJson(c.prefill_traffic)}, {"decode", TrafficJson(c.decode_traffic)}}},
                       {"kv_per_token", c.kv_bytes_per_token},
                       {"kv_at_context", c.kv_bytes_at_context},
                       {"kv_read_at_context", FigureJson(c.kv_bytes_read)},
                       {"state_per_sequence", c.state_bytes},
                       {"kv_element", KvElementBytes(c)}};
  if (!c.kv_bytes_read.whole()) document["bytes"]["lacks"]["kv_read_at_context"] = c.kv_bytes_read.lacks();
  document["flops_per_byte"] = {{"prefill", FigureJson(c.prefill_intensity)}, {"decode", FigureJson(c.decode_intensity)}};
  for (const auto& [step, figure] : {std::pair{"prefill", &c.prefill_intensity}, std::pair{"decode", &c.decode_intensity}}) {
    if (!figure->whole()) document["flops_per_byte"]["lacks"][step] = figure->lacks();
  }
  for (const auto& [name, bytes] : CacheBytes(c)) document["bytes"]["caches"][name] = bytes;
  if (c.expanded) {
    const books::StepCount& e = *c.expanded;
    document["expanded"] = {
        {"prefill", TotalsJson(e.prefill)},
        {"prefill_head_last", TotalsJson(e.prefill_last)},
        {"decode", TotalsJson(e.decode)},
        {"kv_elements", {{"as_run", FormJson(c.kv_elements_per_token)}, {"expanded", FormJson(e.kv_elements_per_token)}}},
        {"kv_per_token", e.kv_bytes_per_token},
        {"kv_at_context", e.kv_bytes_at_context},
        {"kv_read_at_context", FigureJson(e.kv_bytes_read)}};
  }
  document["layers"] = LayersJson(c);
  if (const PublishedClaims claims = ClaimsOf(m); !claims.checks.empty()) document["published"] = ClaimsJson(claims);
  document["warnings"] = c.warnings;
  return document;
}

}  // namespace

const char* TotalName(const CountedModel& m) { return m.counts_part() ? "total (run)" : "total"; }

std::vector<Table> CountTables(std::span<const CountedModel> models, bool layers) {
  std::vector<Table> tables;
  if (models.size() > 1) tables.push_back(ModelColumns(models, /*exact=*/true));
  for (const CountedModel& m : models) {
    for (Table& table : TablesOf(m, layers)) tables.push_back(std::move(table));
  }
  return tables;
}

std::string CountPlot(const CountedModel& m, size_t width, bool colour) {
  const std::vector<std::string> names = PartNames(m.count.recipe);
  const Bar all{TotalName(m), CountParts(m.count, &ParameterForm::count)},
      active{"active(all)", CountParts(m.count, &ParameterForm::active)};
  return m.name + "\n" + RenderBars(names, {all, active}, width, colour);
}

Value CountDocument(std::span<const CountedModel> models) { return {{"models", Value::ListOf(models, OneDocument)}}; }

}  // namespace tally
