// SPDX-License-Identifier: Apache-2.0
#include "engine/app/count_screen.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/app/claims.h"
#include "engine/app/count_report.h"
#include "engine/app/parts.h"
#include "engine/app/table.h"
#include "engine/app/words.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

using books::Count;
using books::ParameterForm;
using books::WithThousands;

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
    if (p.layer < 0 || p.prediction) continue;
    PartCounts& parts = layers[p.layer];
    parts.resize(ParameterParts().size());
    parts[PartOf(p.component, p.expert)] += p.count.value();
  }
  std::vector<LayerKind> kinds;
  for (const auto& entry : layers) {
    const auto same = std::ranges::find(kinds, entry.second, &LayerKind::parts);
    same != kinds.end() ? ++same->layers : kinds.emplace_back(LayerKind{entry.second, 1}).layers;
  }
  return kinds;
}

std::string CountCell(uint64_t n) { return n > 0 ? WithThousands(n) : ""; }

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
  if (r.n_experts > 0) text += ", " + std::to_string(r.n_experts) + " experts, " + std::to_string(r.top_k) + " a token";
  return text;
}

Table FiguresOf(const CountedModel& m) {
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
  const std::vector<std::string> names = ParameterPartNames(c.recipe);
  const std::vector<LayerKind> kinds = LayerKinds(c);
  const PartCounts all = CountParts(c, &ParameterForm::count), active = CountParts(c, &ParameterForm::active);
  Table t{"", {"", "parameters", "share"}, {}, {true}};
  for (const LayerKind& k : kinds) {
    t.columns.push_back(kinds.size() == 1 ? "a layer" : k.layers == 1 ? "1 layer" : "each of " + std::to_string(k.layers));
  }
  const bool experts = c.recipe.n_experts > 0 && kinds.size() == 1;  // with more kinds of layers lines would be too long
  if (experts) t.columns.emplace_back("active(all)");
  const auto row = [&](const std::string& name, const auto& get) {
    t.rows.push_back({name, WithThousands(get(all)), Share(get(all), c.parameters.total)});
    for (const LayerKind& k : kinds) t.rows.back().push_back(CountCell(get(k.parts)));
    if (experts) t.rows.back().push_back(CountCell(get(active)));
  };
  for (size_t part = 0; part < names.size(); ++part) {
    if (all[part] > 0) row(names[part], [&](const PartCounts& parts) { return parts[part]; });
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
  if (m.stored_as.starts_with("MXFP4")) weights += "; presets leave experts MXFP4";
  std::string kv = WithThousands(c.kv_bytes_per_token) + " bytes a token, " + BothUnits(c.kv_bytes_at_context) + " at " +
                   WithThousands(c.options.context) + " positions";
  if (c.options.batch > 1) kv += " of " + WithThousands(c.options.batch) + " sequences";
  if (c.state_bytes > 0) kv += "; states " + WithThousands(c.state_bytes) + " a sequence";
  if (c.expanded) kv += "; expanded, as published, " + WithThousands(c.expanded->kv_bytes_per_token) + " a token";
  return Paragraph("  weights", weights, width, kWordsFrom) + Paragraph("  KV, f16", kv, width, kWordsFrom);
}

// Of one token, as a mean.
struct TokenCost {
  std::array<double, books::kFlopsViews> flops = {};
  double bytes = 0;  // of weights, experts chosen uniformly, and of KV and states read and written
};
// Bytes of states that a step reads and writes.
double StateTraffic(const Count& c) { return 2 * static_cast<double>(c.options.batch) * static_cast<double>(c.state_bytes); }
TokenCost PrefillCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch) * static_cast<double>(c.options.prompt);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = static_cast<double>(c.prefill.total[v]) / tokens;
  cost.bytes = (c.prefill_traffic.uniform + StateTraffic(c)) / tokens + static_cast<double>(c.kv_bytes_per_token);
  return cost;
}
TokenCost DecodeCost(const Count& c) {
  const double tokens = static_cast<double>(c.options.batch);
  TokenCost cost;
  for (size_t v = 0; v < cost.flops.size(); ++v) cost.flops[v] = static_cast<double>(c.decode.total[v]) / tokens;
  cost.bytes = (c.decode_traffic.uniform + StateTraffic(c) + static_cast<double>(c.kv_bytes_at_context)) / tokens +
               static_cast<double>(c.kv_bytes_per_token);
  return cost;
}

Table CostTable(const Count& c) {
  Table t{"", {"FLOPs a token", "everything", "matmul, causal", "full square", "bytes"}, {}, {true}};
  const auto row = [&](const std::string& name, const TokenCost& cost) {
    t.rows.push_back({name, WithThousands(cost.flops[2]), WithThousands(cost.flops[1]), WithThousands(cost.flops[0]),
                      Scaled(cost.bytes, "B")});
  };
  row("prefill of " + WithThousands(c.options.prompt), PrefillCost(c));
  row("decode at " + WithThousands(c.options.context), DecodeCost(c));
  return t;
}

std::string CostNote(const Count& c) {
  std::string text = "the prefill in all: " + WithThousands(c.prefill.total[0]) + " full square; bytes: weights and KV";
  if (c.options.batch > 1) text += "; " + WithThousands(c.options.batch) + " sequences";
  return text;
}

}  // namespace

std::string CountScreen(const CountedModel& m, size_t width) {
  if (width == 0) width = kPlainWidth;
  const size_t words = std::min(width, kMostWords);
  const Claims claims = ClaimsOf(m);
  std::string out = Paragraph("", ScreenTitle(m), words, 2).substr(2);
  if (!claims.checks.empty()) out += Paragraph("  published", ClaimsSentence(claims), words, kWordsFrom);
  if (const std::string parts = NotRunNames(m); !parts.empty()) out += Paragraph("  not run", parts, words, kWordsFrom);
  out += Render(FiguresOf(m), TableFormat::kText, width) + "\n";
  out += Render(PartTable(m), TableFormat::kText, width) + "\n" + MemoryLines(m, words);
  out += Render(CostTable(m.count), TableFormat::kText, width) + Paragraph("", CostNote(m.count), words, 2);
  return out + "  --full: every tensor, closed forms, all types; --claims, --plot, --training\n";
}

std::string CountScreen(std::span<const CountedModel> models, size_t width) {
  Table t{"", {""}, {}, {true}};
  for (const CountedModel& m : models) t.columns.push_back(TailOf(m.name, kLongestColumn));
  const auto row = [&](std::string name, const auto& cell) {
    std::vector<std::string> cells = {std::move(name)};
    for (const CountedModel& m : models) cells.push_back(cell(m));
    if (std::any_of(cells.begin() + 1, cells.end(), [](const std::string& s) { return !s.empty(); })) {
      t.rows.push_back(std::move(cells));
    }
  };
  const auto count = [&](const std::string& name, const auto& get) {
    row(name, [&](const CountedModel& m) { return CountCell(get(m)); });
  };
  const auto bytes = [&](const std::string& name, const auto& get) {
    row(name, [&](const CountedModel& m) {
      const auto n = static_cast<double>(get(m));
      return n > 0 ? Scaled(n, "B") : std::string();
    });
  };
  // "S = 1,024" where it is the same for all; else a row of its own.
  const auto setting = [&](const std::string& name, uint64_t books::CountOptions::*which) {
    const uint64_t first = models.front().count.options.*which;
    const bool same = std::ranges::all_of(models, [&](const CountedModel& m) { return m.count.options.*which == first; });
    if (same) return WithThousands(first);
    count(name, [&](const CountedModel& m) { return m.count.options.*which; });
    return name;
  };
  const bool parts = std::ranges::any_of(models, &CountedModel::counts_part);
  count(parts ? "total (run)" : "total", [](const CountedModel& m) { return m.count.parameters.total; });
  if (parts) count("total (all)", [](const CountedModel& m) { return m.all_parameters().value_or(0); });
  count("active(all)", [](const CountedModel& m) { return m.count.parameters.active_all; });
  count("active(head)", [](const CountedModel& m) { return m.count.parameters.active_head; });
  count("active(none)", [](const CountedModel& m) { return m.count.parameters.active_none; });
  count("touched", [](const CountedModel& m) { return m.count.touched; });
  for (const char* figure : {"total", "active", "non-embedding"}) {
    row(std::string("published ") + figure, [&](const CountedModel& m) { return ClaimCell(ClaimsOf(m), figure); });
  }
  for (size_t part = 0; part < ParameterParts().size(); ++part) {
    count(std::string(ParameterParts()[part]),
          [&](const CountedModel& m) { return CountParts(m.count, &ParameterForm::count)[part]; });
  }
  count("a layer, at most", [](const CountedModel& m) {
    uint64_t most = 0;
    for (const LayerKind& k : LayerKinds(m.count)) most = std::max(most, SumOf(k.parts));
    return most;
  });
  row("weights as", [](const CountedModel& m) { return m.stored_as; });
  bytes("weights", [](const CountedModel& m) { return m.count.weight_bytes; });
  for (const auto& type : WeightsAs(models.front())) {
    bytes("weights, " + type.first, [&](const CountedModel& m) {
      const auto as = WeightsAs(m);
      return std::ranges::find(as, type.first, [](const auto& x) { return x.first; })->second;
    });
  }
  bytes("KV a token", [](const CountedModel& m) { return m.count.kv_bytes_per_token; });
  count("B, sequences", [](const CountedModel& m) { return m.count.options.batch > 1 ? m.count.options.batch : 0; });
  const std::string S = setting("S", &books::CountOptions::context), P = setting("P", &books::CountOptions::prompt);
  bytes("KV at " + S, [](const CountedModel& m) { return m.count.kv_bytes_at_context; });
  row("prefill of " + P, [](const CountedModel& m) { return WithThousands(PrefillCost(m.count).flops[2]); });
  row("decode at " + S, [](const CountedModel& m) { return WithThousands(DecodeCost(m.count).flops[2]); });
  bytes("decode, bytes", [](const CountedModel& m) { return DecodeCost(m.count).bytes; });
  return Render(t, TableFormat::kText, width) + "  prefill, decode: FLOPs a token; --full: shares, all types, FLOPs by part\n";
}

}  // namespace tally::app
