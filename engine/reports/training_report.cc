// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/training_report.h"

#include <cstdio>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally {
namespace {

using books::TrainingCount;
using books::TrainingMemory;

Table TrainingMemoryTable(const CountedModel& m, const TrainingCount& t) {
  Table table{m.name + ", training with AdamW: bytes, without activations", {"", "F32", "", "mixed: BF16, F32", ""}, {}, {true}};
  table.joined = {false, false, true, false, true};
  const auto row = [&](const char* name, const auto& get) {
    const auto cells = [&](uint64_t bytes) {
      table.rows.back().push_back(bytes > 0 ? WithThousands(bytes) : "");
      table.rows.back().push_back(bytes > 0 ? Scaled(static_cast<double>(bytes), "B") : "");
    };
    table.rows.push_back({name});
    cells(get(t.f32));
    cells(get(t.mixed));
  };
  row("weights", [](const TrainingMemory& x) { return x.weights; });
  row("gradients", [](const TrainingMemory& x) { return x.gradients; });
  row("F32 copy of weights", [](const TrainingMemory& x) { return x.copy; });
  row("AdamW's two moments", [](const TrainingMemory& x) { return x.moments; });
  row("together, 16 N", [](const TrainingMemory& x) { return x.total(); });
  return table;
}

Table TrainingFlopsTable(const TrainingCount& t) {
  Table table{
      "FLOPs of a step of " + WithThousands(t.sequences) + (t.sequences == 1 ? " sequence" : " sequences") + " of " +
          WithThousands(t.positions) + " tokens",
      {"", std::string(FlopsViewName(books::FlopsView::kFullSquare)), std::string(FlopsViewName(books::FlopsView::kCausal))},
      {},
      {true}};
  const double tokens = static_cast<double>(t.sequences) * static_cast<double>(t.positions);
  const auto row = [&](const char* name, const auto& get) { table.rows.push_back({name, get(0), get(1)}); };
  row("forward, the head at every position", [&](size_t v) { return WithThousands(t.forward[v]); });
  row("backward, twice that", [&](size_t v) { return WithThousands(t.backward[v]); });
  row("both", [&](size_t v) { return WithThousands(t.forward[v] + t.backward[v]); });
  row("a token of both", [&](size_t v) { return WithThousands(static_cast<double>(t.forward[v] + t.backward[v]) / tokens); });
  table.rows.push_back({"  6 n (Kaplan), n active(none)", WithThousands(t.kaplan), ""});
  table.rows.push_back({"  6 n + 12 L H D P (PaLM)", WithThousands(t.palm), ""});
  table.rows.push_back({"AdamW's update, 12 N", WithThousands(t.update), ""});
  return table;
}

// What FLOPs of a token are multiplied out with: each way of counting them.
std::vector<std::pair<const char*, double>> TokenFlops(const TrainingCount& t) {
  const double tokens = static_cast<double>(t.sequences) * static_cast<double>(t.positions);
  return {{"matmul, full square", static_cast<double>(t.forward[0] + t.backward[0]) / tokens},
          {"matmul, causal", static_cast<double>(t.forward[1] + t.backward[1]) / tokens},
          {"6 n", static_cast<double>(t.kaplan)},
          {"6 n + 12 L H D P", static_cast<double>(t.palm)}};
}

double Days(double flops, const TrainingBudget& b) { return b.tokens * flops / (b.peak * b.utilisation) / 86400; }

Table BudgetTable(const TrainingCount& t, const TrainingBudget& b) {
  Table table{
      "training on " + ShortCount(b.tokens) + " tokens at " + Fixed(100 * b.utilisation, 0) + " % of " + Scaled(b.peak, "FLOP/s"),
      {"FLOPs of a token by", "FLOPs", "days"},
      {},
      {true}};
  for (const auto& [name, flops] : TokenFlops(t)) {
    char total[32];
    std::snprintf(total, sizeof total, "%.3e", b.tokens * flops);
    table.rows.push_back({name, total, Fixed(Days(flops, b), Days(flops, b) < 100 ? 2 : 0)});
  }
  return table;
}

Value TrainingMemoryJson(const TrainingMemory& x) {
  return {{"weights", x.weights}, {"gradients", x.gradients}, {"f32_copy", x.copy}, {"moments", x.moments}, {"total", x.total()}};
}

}  // namespace

Result<std::vector<Table>> TrainingTables(const CountedModel& m, const std::optional<TrainingBudget>& budget) {
  TALLY_ASSIGN_OR_RETURN(const TrainingCount t, books::CountTraining(m.count));
  std::vector<Table> tables = {TrainingMemoryTable(m, t), TrainingFlopsTable(t)};
  if (budget) tables.push_back(BudgetTable(t, *budget));
  return tables;
}

Result<Value> TrainingJson(const CountedModel& m, const std::optional<TrainingBudget>& budget) {
  TALLY_ASSIGN_OR_RETURN(const TrainingCount t, books::CountTraining(m.count));
  const auto views = [](const std::array<uint64_t, 2>& flops) {
    return Value{{"matmul_full_square", flops[0]}, {"matmul_causal", flops[1]}};
  };
  Value json = {{"sequences", t.sequences}, {"positions", t.positions}};
  json["bytes"] = {{"f32", TrainingMemoryJson(t.f32)}, {"mixed", TrainingMemoryJson(t.mixed)}};
  json["flops"] = {{"forward", views(t.forward)},        {"backward", views(t.backward)}, {"update", t.update},
                   {"update_special", t.update_special}, {"kaplan_per_token", t.kaplan},  {"palm_per_token", t.palm}};
  if (budget) {
    json["budget"] = {{"tokens", budget->tokens}, {"peak", budget->peak}, {"utilisation", budget->utilisation}};
    for (const auto& [name, flops] : TokenFlops(t)) json["budget"]["days"][name] = Days(flops, *budget);
  }
  return json;
}

}  // namespace tally
