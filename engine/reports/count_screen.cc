// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/count_report.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/render/table.h"
#include "engine/render/words.h"
#include "engine/reports/claims_report.h"
#include "engine/reports/part_names.h"
#include "engine/studies/claims.h"
#include "engine/studies/count_figures.h"

namespace tally {
namespace {

using books::Count;
using books::ParameterForm;

constexpr size_t kWordsFrom = 12;      // columns before the words of a paragraph
constexpr size_t kLongestColumn = 24;  // a name above it
constexpr size_t kMostWords = 100;     // columns of a paragraph: longer lines are hard to read
constexpr std::array<std::string_view, 3> kPresets = {"Q8_0", "Q6_K", "Q4_K_M"};

// Parameters of each part.
using PartCounts = std::vector<uint64_t>;
uint64_t SumOf(const PartCounts& parts) { return std::accumulate(parts.begin(), parts.end(), uint64_t{0}); }

// Layers that have the same parameters.
struct LayerKind {
  PartCounts parts;
  size_t layers = 0;
};
std::vector<LayerKind> LayerKinds(const Count& c) {
  std::map<int32_t, PartCounts> layers;
  for (const ParameterForm& p : c.tensors) {
    if (p.layer < 0 || p.apart()) continue;
    PartCounts& parts = layers[p.layer];
    parts.resize(books::kParts);
    parts[static_cast<size_t>(books::PartOf(p.component, p.expert))] += p.count.value();
  }
  std::vector<LayerKind> kinds;
  for (const auto& entry : layers) {
    const auto same = std::ranges::find(kinds, entry.second, &LayerKind::parts);
    same != kinds.end() ? ++same->layers : kinds.emplace_back(LayerKind{entry.second, 1}).layers;
  }
  return kinds;
}

std::string CountOrNothing(uint64_t n) { return n > 0 ? WithThousands(n) : ""; }

// "13.76 GB (12.82 GiB)"
std::string BothUnits(uint64_t bytes) { return Scaled(static_cast<double>(bytes), "B") + " (" + BytesText(bytes) + ")"; }

std::string ScreenTitle(const CountedModel& m) {
  const Recipe& r = m.count.recipe;
  const auto all = m.all_parameters();
  std::string text = m.name + ": ";
  if (!m.counts_part()) {
    text += WithThousands(m.count.parameters.total) + " parameters";
  } else if (all) {
    text += WithThousands(*all) + " parameters, " + WithThousands(m.count.parameters.total) + " of them run";
  } else {
    text += WithThousands(m.count.parameters.total) + " parameters that run";
  }
  text += ", " + std::to_string(r.n_layers) + (r.n_layers == 1 ? " layer" : " layers");
  if (r.all.experts.n_experts > 0)
    text += ", " + std::to_string(r.all.experts.n_experts) + " experts, " + std::to_string(r.all.experts.top_k) + " a token";
  return text;
}

std::string NotRunNames(const CountedModel& m) {
  std::string text;
  for (const PartNotRun& p : m.not_run) {
    if (p.parameters == 0u) continue;
    text += (text.empty() ? "" : ", ") + p.name + " " + (p.parameters ? WithThousands(*p.parameters) : "not counted");
  }
  return text;
}

Table PartTable(const CountedModel& m) {
  const Count& c = m.count;
  const std::vector<std::string> names = PartNames(c.recipe);
  const std::vector<LayerKind> kinds = LayerKinds(c);
  const PartCounts all = CountParts(c, &ParameterForm::count), active = CountParts(c, &ParameterForm::active);
  Table t{"", {"", "parameters", "share"}, {}, {true}};
  for (const LayerKind& k : kinds) {
    t.columns.push_back(kinds.size() == 1 ? "a layer" : k.layers == 1 ? "1 layer" : "each of " + std::to_string(k.layers));
  }
  const bool experts =
      c.recipe->all.experts.n_experts > 0 && kinds.size() == 1;  // with more kinds of layers lines would be too long
  if (experts) t.columns.emplace_back("active(all)");
  const auto row = [&](const std::string& name, const auto& get) {
    t.rows.push_back({name, WithThousands(get(all)), Share(get(all), c.parameters.total)});
    for (const LayerKind& k : kinds) t.rows.back().push_back(CountOrNothing(get(k.parts)));
    if (experts) t.rows.back().push_back(CountOrNothing(get(active)));
  };
  for (size_t part = 0; part < names.size(); ++part) {
    if (all[part] > 0) row(ShortPartName(names[part]), [&](const PartCounts& parts) { return parts[part]; });
  }
  row(TotalName(m), SumOf);
  return t;
}

// Bytes of the weights as types that people use, from large to small.
std::vector<std::pair<std::string, uint64_t>> WeightsAs(const CountedModel& m) {
  std::vector<std::pair<std::string, uint64_t>> as;
  for (const Count::Memory& x : m.count.memory) {
    if (x.type == DType::kBF16) as.emplace_back("BF16", x.bytes);
  }
  for (const std::string_view preset : kPresets) {
    if (const Result<uint64_t> bytes = PresetBytes(m, preset); bytes.ok()) as.emplace_back(preset, *bytes);
  }
  return as;
}

std::string MemoryLines(const CountedModel& m, size_t width) {
  const Count& c = m.count;
  std::string weights = m.stored_as + " " + BothUnits(c.weight_bytes);
  if (const auto all = m.all_bytes(); all && *all != c.weight_bytes) weights += ", with what is not run " + BothUnits(*all);
  for (const auto& [name, bytes] : WeightsAs(m)) {
    if (name != m.stored_as) weights += ", " + name + " " + Scaled(static_cast<double>(bytes), "B");
  }
  if (IsOfExperts(m.start_type.value_or(c.options.type))) weights += "; presets leave experts MXFP4";
  std::string kv = WithThousands(c.kv_bytes_per_token) + " bytes a token, " + BothUnits(c.kv_bytes_at_context) + " at " +
                   WithThousands(c.options.context) + " positions";
  if (c.kv_bytes_read != c.kv_bytes_at_context)
    kv += ", read of it " + FigureCell(c.kv_bytes_read, [](uint64_t n) { return BothUnits(n); });
  if (c.options.batch > 1) kv += " of " + WithThousands(c.options.batch) + " sequences";
  if (c.state_bytes > 0) kv += "; states " + WithThousands(c.state_bytes) + " a sequence";
  if (c.expanded) kv += "; expanded, as published, " + WithThousands(c.expanded->kv_bytes_per_token) + " a token";
  return Paragraph("  weights", weights, width, kWordsFrom) + Paragraph("  KV, " + KvNameOf(c), kv, width, kWordsFrom);
}

std::string Exact(double n) { return WithThousands(n); }
std::string Bytes(double n) { return Scaled(n, "B"); }
}  // namespace

Table ConventionTable(const CountedModel& m) {
  const Count& c = m.count;
  Table t{"", {"", "", "", ""}, {}, {true, false, false, true}};
  const auto row = [&](std::string name, uint64_t n, std::string what) {
    t.rows.push_back({std::move(name), WithThousands(n), Share(n, c.parameters.total), std::move(what)});
  };
  row("active(all)", c.parameters.active_all, "embedding, positions and head counted");
  row("active(head)", c.parameters.active_head, "only the head of these");
  row("active(none)", c.parameters.active_none, "none of these");
  row("touched", c.touched, "read by a decode step");
  if (const LookedUpTables tables = LookedUp(c); tables.stored > 0) row("looked up", tables.stored, LookedUpText(tables));
  if (c.prediction > 0) t.rows.push_back({"MTP layers", WithThousands(c.prediction), "", "multi-token prediction, not in total"});
  return t;
}

namespace {

Table CostTable(const Count& c) {
  Table t{"", {"FLOPs a token", "everything", "matmul, causal", "full square", "bytes"}, {}, {true}};
  const auto row = [&](const std::string& name, const TokenCost& cost) {
    t.rows.push_back({name, FigureCell(cost.flops[2], Exact), FigureCell(cost.flops[1], Exact), FigureCell(cost.flops[0], Exact),
                      FigureCell(cost.bytes, Bytes)});
  };
  row("prefill of " + WithThousands(c.options.prompt), PrefillCost(c));
  row("decode at " + WithThousands(c.options.context), DecodeCost(c));
  return t;
}

std::string CostNote(const Count& c) {
  std::string text = "the prefill in all: " + FigureCell(c.prefill.total[0], [](uint64_t n) { return WithThousands(n); }) +
                     " full square; bytes: weights and KV";
  if (c.recipe->all.experts.n_experts > 0) text += ", expected under uniform routing";
  if (c.options.batch > 1) text += "; " + WithThousands(c.options.batch) + " sequences";
  if (const std::string partial = books::PartialWords(c); !partial.empty()) text += "; " + partial;
  return text;
}

}  // namespace

std::string CountScreen(const CountedModel& m, size_t width) {
  if (width == 0) width = kPlainWidth;
  const size_t words = std::min(width, kMostWords);
  const PublishedClaims claims = ClaimsOf(m);
  std::string out = Paragraph("", ScreenTitle(m), words, 2).substr(2);
  if (!claims.checks.empty()) out += Paragraph("  published", ClaimsSentence(claims), words, kWordsFrom);
  if (const std::string parts = NotRunNames(m); !parts.empty()) out += Paragraph("  not run", parts, words, kWordsFrom);
  out += Render(ConventionTable(m), TableFormat::kText, width) + "\n";
  out += Render(PartTable(m), TableFormat::kText, width) + "\n" + MemoryLines(m, words);
  out += Render(CostTable(m.count), TableFormat::kText, width) + Paragraph("", CostNote(m.count), words, 2);
  return out;
}

namespace {

// The name that all have, else "".
std::string OneName(std::span<const CountedModel> models) {
  const bool one = std::ranges::all_of(models, [&](const CountedModel& m) { return m.name == models[0].name; });
  return one ? TailOf(models[0].name, kLongestColumn) : "";
}

using StepSetting = uint64_t books::CountOptions::*;

bool Same(std::span<const CountedModel> models, StepSetting which) {
  return std::ranges::all_of(models,
                             [&](const CountedModel& m) { return m.count.options.*which == models[0].count.options.*which; });
}

// Whether one model is counted at several values.
bool Swept(std::span<const CountedModel> models, StepSetting which) {
  return std::ranges::any_of(models, [&](const CountedModel& m) {
    return m.name == models[0].name && m.count.options.*which != models[0].count.options.*which;
  });
}

// A model that is counted at several lengths or batches has them in its name: "gpt2 S 1,024"; "S 1,024" if it is the only one.
std::vector<std::string> ColumnNames(std::span<const CountedModel> models) {
  std::vector<std::string> names;
  const bool context = Swept(models, &books::CountOptions::context), prompt = Swept(models, &books::CountOptions::prompt),
             batch = Swept(models, &books::CountOptions::batch);
  for (const CountedModel& m : models) {
    std::vector<std::string> words;
    if (OneName(models).empty() || !(context || prompt || batch)) words.push_back(m.name);
    if (context) words.push_back("S " + WithThousands(m.count.options.context));
    if (prompt) words.push_back("P " + WithThousands(m.count.options.prompt));
    if (batch) words.push_back("B " + WithThousands(m.count.options.batch));
    names.push_back(Join(words, " "));
  }
  return names;
}

}  // namespace

Table ModelColumns(std::span<const CountedModel> models, bool exact) {
  Table t{"", {OneName(models)}, {}, {true}};
  for (const std::string& name : ColumnNames(models)) t.columns.push_back(TailOf(name, kLongestColumn));
  const auto row = [&](std::string name, const auto& cell) {
    std::vector<Cell> cells = {std::move(name)};
    for (const CountedModel& m : models) cells.push_back(cell(m));
    if (std::any_of(cells.begin() + 1, cells.end(), [](const Cell& c) { return !c.text.empty(); })) {
      t.rows.push_back(std::move(cells));
    }
  };
  const auto count = [&](const std::string& name, const auto& get) {
    row(name, [&](const CountedModel& m) { return CountOrNothing(get(m)); });
  };
  const auto bytes = [&](const std::string& name, const auto& get) {
    row(name, [&](const CountedModel& m) {
      const auto n = static_cast<double>(get(m));
      return n <= 0 ? std::string() : exact ? WithThousands(n) : Scaled(n, "B");
    });
  };
  // "1,024" where it is the same for all; else a row of its own, if the columns' names do not say it.
  const auto setting = [&](const std::string& name, StepSetting which) {
    if (Same(models, which)) return WithThousands(models.front().count.options.*which);
    if (!Swept(models, which)) count(name, [&](const CountedModel& m) { return m.count.options.*which; });
    return name;
  };
  const bool parts = std::ranges::any_of(models, &CountedModel::counts_part);
  count(parts ? "total (run)" : "total", [](const CountedModel& m) { return m.count.parameters.total; });
  if (parts) count("total (all)", [](const CountedModel& m) { return m.all_parameters().value_or(0); });
  count("active(all)", [](const CountedModel& m) { return m.count.parameters.active_all; });
  count("active(head)", [](const CountedModel& m) { return m.count.parameters.active_head; });
  count("active(none)", [](const CountedModel& m) { return m.count.parameters.active_none; });
  count("touched", [](const CountedModel& m) { return m.count.touched; });
  for (size_t part = 0; part < books::kParts; ++part) {
    const std::string name = ShortPartName(PartName(static_cast<books::Part>(part)));
    const auto parameters = [&](const CountedModel& m) { return CountParts(m.count, &ParameterForm::count)[part]; };
    count(name, parameters);
    if (!exact) continue;
    row("  " + name + ", share", [&](const CountedModel& m) {
      return parameters(m) > 0 ? Share(parameters(m), m.count.parameters.total) : std::string();
    });
  }
  row("weights as", [](const CountedModel& m) { return m.stored_as; });
  bytes("weights", [](const CountedModel& m) { return m.count.weight_bytes; });
  for (const auto& type : WeightsAs(models.front())) {
    bytes("weights, " + type.first, [&](const CountedModel& m) {
      const auto as = WeightsAs(m);
      return std::ranges::find(as, type.first, [](const auto& x) { return x.first; })->second;
    });
  }
  const std::string kv = models.front().count.options.kv == KvType::kF16 ? "" : ", " + KvNameOf(models.front().count);
  bytes("KV a token" + kv, [](const CountedModel& m) { return m.count.kv_bytes_per_token; });
  if (!Swept(models, &books::CountOptions::batch)) {
    count("B, sequences", [](const CountedModel& m) { return m.count.options.batch > 1 ? m.count.options.batch : 0; });
  }
  const std::string S = setting("S", &books::CountOptions::context), P = setting("P", &books::CountOptions::prompt);
  const auto bytes_of = [&](double n) { return n <= 0 ? std::string() : exact ? WithThousands(n) : Scaled(n, "B"); };
  bytes("KV held at " + S, [](const CountedModel& m) { return m.count.kv_bytes_at_context; });
  row("KV read at " + S, [&](const CountedModel& m) {
    return FigureCell(m.count.kv_bytes_read, [&](uint64_t n) { return bytes_of(static_cast<double>(n)); });
  });
  row("prefill of " + P, [](const CountedModel& m) { return FigureCell(PrefillCost(m.count).flops[2], Exact); });
  const bool part = std::ranges::any_of(models, [](const CountedModel& m) { return !books::PartialWords(m.count).empty(); });
  if (part) row("  causal", [](const CountedModel& m) { return FigureCell(PrefillCost(m.count).flops[1], Exact); });
  row("decode at " + S, [](const CountedModel& m) { return FigureCell(DecodeCost(m.count).flops[2], Exact); });
  if (part) row("  causal", [](const CountedModel& m) { return FigureCell(DecodeCost(m.count).flops[1], Exact); });
  row("decode, bytes", [&](const CountedModel& m) { return FigureCell(DecodeCost(m.count).bytes, bytes_of); });
  row("full square", [&](const CountedModel& m) {
    return FigureCell(m.count.prefill.total[0],
                      [&](uint64_t n) { return exact ? WithThousands(n) : Scaled(static_cast<double>(n), "FLOP"); });
  });
  for (const books::FlopsRow& first : models.front().count.prefill.rows) {
    row("  " + ShortPartName(PartName(first.part)), [&](const CountedModel& m) {
      const auto same = std::ranges::find(m.count.prefill.rows, first.part, &books::FlopsRow::part);
      const auto of = same == m.count.prefill.rows.end() ? std::optional<books::Form>() : same->flops[0].number();
      const auto all = m.count.prefill.total[0].number();
      return of && all && of->value() > 0 ? Share(of->value(), *all) : std::string();
    });
  }
  return t;
}

namespace {

// A row a model, figures with three digits.
Table BelowOneAnother(std::span<const CountedModel> models) {
  Table t{"", {OneName(models), "total", "active", "weights", "KV a token", "FLOPs", "bytes"}, {}, {true}};
  const std::vector<std::string> names = ColumnNames(models);
  for (size_t i = 0; i < models.size(); ++i) {
    const Count& c = models[i].count;
    const auto number = [](uint64_t n) { return ShortCount(static_cast<double>(n)); };
    const auto bytes = [](double n) { return Scaled(n, "B"); };
    t.rows.push_back({TailOf(names[i], 18), number(c.parameters.total), number(c.parameters.active_head),
                      bytes(static_cast<double>(c.weight_bytes)), bytes(static_cast<double>(c.kv_bytes_per_token)),
                      FigureCell(PrefillCost(c).flops[2], [](double n) { return Scaled(n, ""); }),
                      FigureCell(DecodeCost(c).bytes, bytes)});
  }
  return t;
}

}  // namespace

std::string CountScreen(std::span<const CountedModel> models, size_t width) {
  const size_t words = std::min(width == 0 ? kPlainWidth : width, kMostWords);
  const Table wide = ModelColumns(models, /*exact=*/false);
  const bool below = width > 0 && TableWidth(wide) > width;
  std::string out = Render(below ? BelowOneAnother(models) : wide, TableFormat::kText, width);
  for (size_t i = 0; i < models.size(); ++i) {
    const PublishedClaims claims = ClaimsOf(models[i]);
    const bool again = i > 0 && models[i - 1].name == models[i].name;
    if (!claims.checks.empty() && !again) out += Paragraph("  " + claims.model + ":", ClaimsSentence(claims), words, 4);
  }
  for (size_t i = 0; i < models.size(); ++i) {
    const std::string partial = books::PartialWords(models[i].count);
    const bool again = i > 0 && models[i - 1].name == models[i].name;
    if (!partial.empty() && !again) out += Paragraph("  " + models[i].name + ":", partial, words, 4);
  }
  std::string note;
  if (below) {
    note =
        "active: active(head); FLOPs: a token of the prefill; bytes: a token of decode, weights and KV; --width 200: all figures";
  } else {
    if (!Same(models, &books::CountOptions::context)) note += "S: positions that the decode token sees; ";
    if (!Same(models, &books::CountOptions::prompt)) note += "P: positions of the prefill; ";
    if (!Same(models, &books::CountOptions::batch)) note += "B: sequences; ";
    note +=
        "prefill, decode: FLOPs a token; full square: FLOPs of the prefill's matrix products, and shares; --full: each model's "
        "tables";
  }
  return out + Paragraph("", note, words, 2);
}

}  // namespace tally
