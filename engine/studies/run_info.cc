// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/run_info.h"

#include <algorithm>
#include <ctime>
#include <map>
#include <utility>

#include "counters/books/model_count.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"

namespace tally {
namespace {

using books::Form;

std::string DateNow() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc)};
}

uint64_t Positive(int64_t n) { return n > 0 ? static_cast<uint64_t>(n) : 0; }

// Tensors that are alike in all their layers are one form.
void AddParameterForms(const books::Count& count, std::vector<ReportForm>& forms) {
  std::map<std::pair<std::string, std::string>, size_t> known;
  for (const books::ParameterForm& p : count.tensors) {
    if (p.apart()) continue;
    std::string name = (p.layer < 0 ? "" : "blk.*.") + p.name;
    const auto [at, fresh] = known.emplace(std::pair{name, p.count.text()}, forms.size());
    if (fresh) forms.push_back({"parameters", std::move(name), p.count.text(), p.count.value(), 0});
    ++forms[at->second].times;
  }
}

void AddStepForms(const books::Count& count, std::vector<ReportForm>& forms) {
  const std::string group = "FLOPs of a decode token that sees S = " + books::WithThousands(count.options.context) + " positions";
  for (const books::FlopsRow& row : count.decode.rows) {
    const std::optional<Form> whole = row.flops[static_cast<size_t>(books::FlopsView::kEverything)].number(),
                              of_special = row.special.number();
    if (!whole || !of_special) continue;
    const Form &all = *whole, &special = *of_special;
    const std::string name(books::PartName(row.part));
    if (all.value() > 0) forms.push_back({group, name, all.text(), all.value(), 1});
    if (special.value() > 0) forms.push_back({group, name + ", special", special.text(), special.value(), 1});
  }
  const Form& kv = count.kv_elements_per_token;
  forms.push_back({"KV cache", "elements a position", kv.text(), kv.value(), 1});
  const Form& state = count.state_elements;
  if (state.value() > 0) forms.push_back({"KV cache", "elements of a sequence's states", state.text(), state.value(), 1});
}

}  // namespace

std::vector<ReportSymbol> SymbolsOf(const Recipe& r, uint64_t context) {
  std::vector<ReportSymbol> symbols;
  const auto add = [&](std::string name, std::string meaning, int64_t value) {
    if (value > 0) symbols.push_back({std::move(name), std::move(meaning), Positive(value)});
  };
  add("V", "vocabulary", r.vocab);
  add("E", "width of the model", r.d_model);
  add("L", "layers", r.n_layers);
  const bool dense = AnyLayer(r, &LayerRecipe::dense);
  static const std::map<char, std::string> kSizes = {
      {'H', "query heads"}, {'K', "key-value heads"}, {'D', "elements of a head"}, {'F', "width of the feed-forward"}};
  for (const books::SizeSymbol& s : books::LayerSizeSymbols(r)) {
    const std::string other = s.name.size() > 1 ? " of other layers" : "";
    if (dense || s.name.front() != 'F') add(s.name, kSizes.at(s.name.front()) + other, static_cast<int64_t>(s.value));
  }
  add(dense ? "F_x" : "F", dense ? "width of an expert" : "width of the feed-forward", r.all.experts.width);
  add("F_s", "width of the shared experts", r.all.experts.shared_width);
  add("X", "experts of a layer", r.all.experts.n_experts);
  add("k", "experts that a token uses", r.all.experts.n_experts > 0 ? r.all.experts.top_k : 0);
  for (const books::SizeSymbol& s : books::RecurrentSymbols(r))
    add(s.name, std::string(s.meaning), static_cast<int64_t>(s.value));
  add("R_q", "rank of the queries", r.all.latent.q_rank);
  add("R_kv", "rank of keys and values", r.all.latent.kv_rank);
  add("D_n", "elements of a head without rope", r.all.latent.nope_dim);
  add("D_r", "elements of a head with rope",
      r.all.latent.kv_rank > 0                ? r.all.latent.rope_dim
      : r.rope.dim < r.all.attention.head_dim ? r.rope.dim
                                              : 0);
  add("D_v", "elements of a head's values", r.all.latent.v_dim);
  add("T", "trained context", r.context);
  int32_t window = 0;
  for (const LayerRecipe& l : r.layers) window = std::max(window, l.attention.window);
  add("W", "positions of a window", window);
  add("S", "positions that a decode token sees", static_cast<int64_t>(context));
  return symbols;
}

RunInfo DescribeRun(Engine& engine, const std::string& command, const std::string& model, const std::string& version) {
  const Recipe& recipe = engine.model().recipe();
  RunInfo info;
  info.known = true;
  info.command = command;
  info.model = model;
  info.description = engine.model().Description();
  info.version = version;
  info.date = DateNow();
  info.machine = ProcessorName();
  info.target = engine.target();
  info.threads = engine.threads();
  info.kv = kKvTypeNames[static_cast<size_t>(engine.kv_type())];
  info.context = Positive(engine.context());
  for (const LayerRecipe& l : recipe.layers) {
    if (l.attends()) info.attention_width += Positive(int64_t{l.attention.n_heads} * l.attention.head_dim);
  }
  info.n_experts = Positive(recipe.all.experts.n_experts);
  info.top_k = recipe.all.experts.n_experts > 0 ? Positive(recipe.all.experts.top_k) : 0;
  info.not_run = engine.model().not_run().parameters;
  info.not_run_names = engine.model().not_run().names;
  info.weights = engine.ledger().weights();
  books::CountOptions options;
  options.context = info.context;
  options.prompt = info.context;
  if (const Result<books::Count> count = books::CountRecipe(recipe, options); count.ok()) {
    AddParameterForms(*count, info.forms);
    AddStepForms(*count, info.forms);
    info.symbols = SymbolsOf(recipe, info.context);
  } else {
    info.absent.push_back("No closed forms: " + count.status().message() + ".");
  }
  return info;
}

ReportRoofs RoofsOf(const FitMachine& machine, const std::string& how) {
  ReportRoofs roofs;
  roofs.known = machine.read > 0;
  roofs.threads = machine.threads;
  roofs.read = machine.read;
  roofs.how = how;
  for (size_t u = 0; u < kFitUnits; ++u) {
    if (machine.peaks[u] > 0) roofs.peaks.push_back({std::string(kReportUnits[u]), machine.peaks[u]});
  }
  return roofs;
}

ReportRoofs RoofsOf(const MeasuredRoofs& roofs) {
  FitMachine machine;
  machine.threads = roofs.threads;
  machine.read = roofs.bandwidth;
  machine.peaks = {roofs.peaks.f32, roofs.peaks.bf16, roofs.peaks.int8, roofs.peaks.int8_narrow};
  return RoofsOf(machine, "medians of what bench measured between its rounds");
}

}  // namespace tally
