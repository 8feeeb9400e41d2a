// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/audit_report.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/base/format.h"
#include "engine/recipe/recipe.h"
#include "engine/render/bars.h"
#include "engine/render/fields.h"
#include "engine/render/words.h"
#include "engine/reports/audit_sums.h"
#include "engine/reports/page_report.h"
#include "engine/reports/part_names.h"
#include "engine/reports/rank_report.h"
#include "engine/reports/values.h"

namespace tally {
namespace {

using books::AuditAccount;
using books::AuditRow;

constexpr size_t kShownDifferences = 40;

bool ByClass(AuditAccount account) {
  return account == AuditAccount::kFlops || account == AuditAccount::kSpecial || account == AuditAccount::kFlopsInVain;
}

using SumKey = std::tuple<books::AuditAccount, Component, WorkClass>;

void AddRows(std::span<const AuditRow> rows, std::map<SumKey, AuditSums>& sums) {
  for (const AuditRow& r : rows) sums[{r.account, r.component, r.work_class}].Add(r);
}

// A tied embedding's parameters are the head's, too.
std::string SiteName(const Recipe& recipe, AuditAccount account, Component component) {
  const bool parameters = account == AuditAccount::kStored || account == AuditAccount::kTouched;
  const bool both = recipe.tied_head && parameters && component == Component::kEmbedding;
  return both ? "embedding and head" : std::string(ComponentName(component));
}

Table SumTable(std::string title, const Recipe& recipe, const std::map<SumKey, AuditSums>& sums) {
  Table t{std::move(title), {"", "site", "class", "rows", "closed form", "files", "run", ""}, {}, {true, true, true}};
  for (const auto& [key, s] : sums) {
    const auto& [account, component, work_class] = key;
    if (s.closed == 0 && s.differing == 0) continue;
    const bool whole = account == AuditAccount::kTouchedSet || account == AuditAccount::kFlopsInVain ||
                       account == AuditAccount::kKvWrittenInVain;
    t.rows.push_back({std::string(AccountName(account)), whole ? "" : SiteName(recipe, account, component),
                      ByClass(account) ? std::string(kWorkClassNames[static_cast<size_t>(work_class)]) : ""});
    s.AddCells(t.rows.back());
  }
  return t;
}

// The same in lines of `width` columns: a table for each account where one is too wide for them.
std::string SumsText(const std::string& title, const Recipe& recipe, const std::map<SumKey, AuditSums>& sums, size_t width) {
  Table all = SumTable(title, recipe, sums);
  if (width == 0 || TableWidth(all) <= width) return Render(all, TableFormat::kText);
  std::string text;
  for (size_t begin = 0, end = 0; begin < all.rows.size(); begin = end) {
    while (end < all.rows.size() && all.rows[end][0].text == all.rows[begin][0].text) ++end;
    Table one{title + ": " + all.rows[begin][0].text, all.columns,
              std::vector(all.rows.begin() + static_cast<ptrdiff_t>(begin), all.rows.begin() + static_cast<ptrdiff_t>(end)),
              all.left};
    for (auto& row : one.rows) row[0] = "";  // the title says it
    text += (text.empty() ? "" : "\n") + Render(WithoutEmptyColumns(one), TableFormat::kText, width);
  }
  return text;
}

uint64_t DecodeSteps(const AuditReport& report) {
  return static_cast<uint64_t>(
      std::count_if(report.steps.begin(), report.steps.end(), [](const AuditReport::Step& s) { return IsDecode(s); }));
}

Table ExpertTable(const AuditReport& report) {
  Table t{"tokens of each expert, layer by layer",
          {"layer", "least", "most", "chosen in the run", "tokens"},
          {},
          {false, false, false, false, true}};
  for (const AuditReport::Experts& e : report.experts) {
    const auto [least, most] = std::ranges::minmax(e.tokens);
    std::string tokens;
    for (const uint64_t n : e.tokens) tokens += (tokens.empty() ? "" : " ") + std::to_string(n);
    t.rows.push_back({std::to_string(e.layer), WithThousands(least), WithThousands(most),
                      std::to_string(e.run_union) + " of " + std::to_string(e.tokens.size()), tokens});
  }
  return t;
}

Fields<ExpertUnion> Unions() {
  const auto bytes = [](double ExpertUnion::*n) { return [=](const ExpertUnion& u) { return Cell(WithThousands(u.*n), u.*n); }; };
  return {{"steps", "step", &ExpertUnion::name},
          {"rows", nullptr, [](const ExpertUnion& u) { return FixedCell(u.rows, 0); }},
          {"measured", "measured", [](const ExpertUnion& u) { return FixedCell(u.measured, 2); }},
          {"uniform", "uniform", [](const ExpertUnion& u) { return FixedCell(u.uniform, 2); }},
          {"at_most", "at most", [](const ExpertUnion& u) { return FixedCell(u.most, 0); }},
          {"bytes", "bytes", bytes(&ExpertUnion::bytes)},
          {"uniform_bytes", "uniform", bytes(&ExpertUnion::uniform_bytes)},
          {"at_most_bytes", "at most", bytes(&ExpertUnion::most_bytes)}};
}

Table UnionTable(const AuditReport& report, const Recipe& recipe) {
  Table t = TableOf("experts read by a step, mean of the sparse layers", Unions(), ExpertUnions(report, recipe));
  t.joined = {false, false, true, true, false, true, true};
  return t;
}

// Where the parameters are that the files hold, and which of them steps touched: the last of each phase.
std::string Plot(const AuditReport& report, const Recipe& recipe, size_t width, bool colour) {
  const std::vector<std::string> names = PartNames(recipe);
  const auto bar = [&](std::string label, std::span<const AuditRow> rows, books::AuditAccount account) {
    Bar b{std::move(label), std::vector<uint64_t>(names.size())};
    for (const AuditRow& r : rows) {
      if (r.account != account) continue;
      const bool sparse = r.layer >= recipe.n_layers ? recipe.all.experts.n_experts > 0
                                                     : r.layer >= 0 && recipe.layers[static_cast<size_t>(r.layer)].sparse();
      b.values[static_cast<size_t>(books::PartOf(r.component, sparse))] +=
          account == books::AuditAccount::kStored ? r.inventory.value_or(0) : r.ledger.value_or(0);
    }
    return b;
  };
  std::vector<Bar> bars = {bar("stored", report.stored, books::AuditAccount::kStored)};
  for (const Phase phase : {Phase::kPrefill, Phase::kDecode}) {
    const AuditReport::Step* last = nullptr;
    for (const AuditReport::Step& step : report.steps) last = step.phase == phase && step.of_text() ? &step : last;
    if (last != nullptr) bars.push_back(bar(StepName(*last), last->audit, books::AuditAccount::kTouched));
  }
  return RenderBars(names, bars, width, colour);
}

Value RowJson(const AuditRow& r) {
  Value row = {{"account", AccountName(r.account)}, {"layer", r.layer}, {"component", ComponentName(r.component)}};
  if (ByClass(r.account)) row["class"] = kWorkClassNames[static_cast<size_t>(r.work_class)];
  if (!r.tensor.empty()) row["tensor"] = r.tensor;
  if (r.rank >= 0) row["rank"] = r.rank;
  row["form"] = r.form;
  row["closed"] = r.closed;
  if (r.inventory) row["files"] = *r.inventory;
  if (r.ledger) row["run"] = *r.ledger;
  row["agrees"] = r.agrees();
  return row;
}

Value RowsJson(std::span<const AuditRow> rows) { return Value::ListOf(rows, RowJson); }

// Parameters where the head is a copy of the embedding.
struct HeadTotals {
  uint64_t as_stored = 0, as_one = 0;
};
HeadTotals HeadTotalsOf(const Model& model) {
  const Recipe& recipe = model.recipe();
  const uint64_t total = model.parameters().total,
                 copy = static_cast<uint64_t>(recipe.vocab) * static_cast<uint64_t>(recipe.d_model);
  return recipe.tied_head ? HeadTotals{total + copy, total} : HeadTotals{total, total - copy};
}

std::string LatentText(const Recipe& recipe) {
  const auto latent =
      std::ranges::find_if(recipe.layers, [](const LayerRecipe& l) { return l.mixers.has(Mixer::kLatentAttention); });
  const books::Form run = books::CachedPerPosition(recipe, *latent), published = books::CachedPerPosition(recipe, *latent, true);
  return "latent attention is run absorbed: " + run.text() + " = " + WithThousands(run.value()) +
         " elements cached a position and layer; expanded, as published: " + published.text() + " = " +
         WithThousands(published.value());
}

}  // namespace

void AuditSums::Add(const AuditRow& r) {
  ++rows;
  differing += r.agrees() ? 0 : 1;
  closed += r.closed;
  if (r.inventory) files = files.value_or(0) + *r.inventory;
  if (r.ledger) run = run.value_or(0) + *r.ledger;
}

void AuditSums::AddCells(std::vector<Cell>& row) const {
  const auto figure = [](const std::optional<uint64_t>& n) { return n ? WithThousands(*n) : ""; };
  row.insert(row.end(), {WithThousands(rows), WithThousands(closed), figure(files), figure(run),
                         differing == 0 ? "" : WithThousands(differing) + " differ"});
}

std::string StepsText(const AuditReport& report) {
  uint64_t passes = 0, drafted = 0, accepted = 0;
  for (const AuditReport::Step& step : report.steps) {
    passes += step.of_text() ? 0 : 1;
    drafted += step.drafted;
    accepted += step.accepted;
  }
  std::string text = std::to_string(report.steps.size() - passes) + " steps, " + std::to_string(DecodeSteps(report)) + " decode";
  if (passes > 0) text += ", " + std::to_string(passes) + " passes for prediction";
  if (drafted > 0) text += ", " + std::to_string(accepted) + " of " + std::to_string(drafted) + " drafts accepted";
  return text;
}

std::string ComparedText(uint64_t compared, uint64_t differing) {
  return WithThousands(compared) + " rows compared, " +
         (differing == 0 ? std::string("all agree") : WithThousands(differing) + " differ");
}

std::string DifferencesText(const AuditReport& report, size_t most, size_t width) {
  std::string text;
  size_t shown = 0;
  const auto add = [&](const std::string& step, std::span<const AuditRow> rows) {
    for (const AuditRow& r : rows) {
      if (r.agrees() || shown >= most) continue;
      ++shown;
      std::string line = (r.layer >= 0 ? "layer " + std::to_string(r.layer) + ", " : "") +
                         (r.tensor.empty() ? std::string(ComponentName(r.component)) : r.tensor) + ", " +
                         std::string(AccountName(r.account));
      if (r.rank >= 0) line += " by rank " + std::to_string(r.rank);
      if (ByClass(r.account)) line += " of " + std::string(kWorkClassNames[static_cast<size_t>(r.work_class)]);
      line += ": closed form " + WithThousands(r.closed) + " = " + r.form;
      if (r.inventory) line += "; files " + WithThousands(*r.inventory);
      if (r.ledger) line += "; run " + WithThousands(*r.ledger);
      text += Paragraph("  " + step + ",", line, width, 4);
    }
  };
  add("stored", report.stored);
  for (const AuditReport::Step& step : report.steps) add(StepName(step), step.audit);
  return text.empty() ? "" : "rows that differ\n" + text;
}

std::string ClaimsVerdict(const std::vector<PublishedClaims>& claims, size_t width) {
  if (claims.empty()) {
    return Paragraph("", "no published figures of this model are known: it is none of the built-in ones (tally count)", width, 0);
  }
  std::string text;
  for (const PublishedClaims& one : claims) text += Paragraph(one.model + ":", ClaimsSentence(one), width, 2);
  return text;
}

std::string AuditNotes(const AuditReport& report, const Model& model, size_t width) {
  const Recipe& recipe = model.recipe();
  std::string notes;
  const auto add = [&](const std::string& note) { notes += Paragraph("", note, width, 0); };
  if (report.head_is_copy) {
    const HeadTotals totals = HeadTotalsOf(model);
    const std::string& head = model.not_run().head;
    add((head.empty() ? "the head" : Printable(head)) + " is a copy of the embedding, byte for byte: " +
        WithThousands(totals.as_stored) + " parameters as stored, " + WithThousands(totals.as_one) + " with both as one");
  }
  if (const std::string not_run = NotRunText(model.not_run()); !not_run.empty()) add(not_run.substr(0, not_run.size() - 1));
  if (recipe.all.latent.kv_rank > 0) add(LatentText(recipe));
  if (report.widened_packed > 0) {
    add("widened to F32, as absorbing needs them transposed by head: " + WithThousands(report.widened_stored) +
        " bytes stored, " + WithThousands(report.widened_packed) + " in memory");
  }
  return notes;
}

std::string AuditTables(const AuditReport& report, const Model& model, const std::vector<PublishedClaims>* claims, size_t width,
                        bool colour) {
  const Recipe& recipe = model.recipe();
  std::string all;
  const auto add = [&](const std::string& part) { all += part.empty() ? "" : part + "\n"; };
  const auto table = [&](const Table& t) { add(Render(t, TableFormat::kText, width)); };
  std::map<SumKey, AuditSums> stored, run;
  AddRows(report.stored, stored);
  for (const AuditReport::Step& step : report.steps) AddRows(step.audit, run);
  add(Paragraph("", Printable(model.Description()), width, 0));
  add(SumsText("stored", recipe, stored, width));
  add(SumsText("run, " + StepsText(report), recipe, run, width));
  if (!report.experts.empty()) {
    table(UnionTable(report, recipe));
    table(ExpertTable(report));
  }
  add(AuditNotes(report, model, width));
  add(AuditRanksText(report, width));
  if (report.page_bytes > 0) {
    table(PageStepTable(report));
    table(PageSiteTable(report));
    if (const Table findings = PageFindingTable(report); !findings.rows.empty()) table(findings);
  }
  add("parameters stored, and touched by a step\n" + Plot(report, recipe, width, colour));
  if (claims != nullptr) {
    add(ClaimsText(*claims, width));
    add(ClaimsVerdict(*claims, width));
  }
  add(DifferencesText(report, kShownDifferences, width));
  return all + ComparedText(report.compared, report.differing) + "\n";
}

Value AuditDocument(const std::string& name, const AuditReport& report, const Model& model,
                    const std::vector<PublishedClaims>* claims) {
  const Recipe& recipe = model.recipe();
  const Value steps = Value::ListOf(report.steps, [&](const AuditReport::Step& s) {
    Value step = {{"phase", s.kind()}, {"rows", s.rows}, {"context", s.context}, {"audit", RowsJson(s.audit)}};
    if (s.drafted > 0) step.Update({{"drafted", s.drafted}, {"accepted", s.accepted}});
    if (report.page_bytes > 0) step["pages"] = PagesJson(s);
    return step;
  });
  const Value experts = Value::ListOf(report.experts, [](const AuditReport::Experts& e) -> Value {
    return {{"layer", e.layer},
            {"tokens", e.tokens},
            {"expert_bytes", e.slice_bytes},
            {"step_union", e.step_union},
            {"run_union", e.run_union}};
  });
  Value document = {{"model", name},
                    {"compared", report.compared},
                    {"differing", report.differing},
                    {"head_is_copy", report.head_is_copy},
                    {"not_run", NotRunJson(model.not_run())},
                    {"widened", {{"stored", report.widened_stored}, {"packed", report.widened_packed}}},
                    {"stored", RowsJson(report.stored)},
                    {"decode_steps", DecodeSteps(report)},
                    {"steps", steps},
                    {"experts", experts}};
  if (report.head_is_copy) {
    const HeadTotals totals = HeadTotalsOf(model);
    document["parameters"] = {{"as_stored", totals.as_stored}, {"head_as_one", totals.as_one}};
  }
  if (!report.experts.empty()) document["unions"] = ObjectsOf(Unions(), ExpertUnions(report, recipe));
  if (claims) {
    document["claims"] = Value::ListOf(*claims, [](const PublishedClaims& of) {
      Value one = ClaimsJson(of);
      one["model"] = of.model;
      return one;
    });
  }
  if (report.page_bytes > 0) document["page_bytes"] = report.page_bytes;
  if (!report.ranks.empty()) document["over_ranks"] = AuditRanksJson(report);
  return document;
}

}  // namespace tally
