// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/claims_page.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/json.h"
#include "engine/render/words.h"
#include "engine/studies/claims.h"
#include "engine/studies/count.h"
#include "engine/studies/settled_claims.h"

namespace tally {
namespace {

constexpr size_t kLine = 140;  // of the page's paragraphs

std::vector<Cell> CellsOf(const HybridClaim& c) {
  return {c.model, c.claim, CountCell(c.claimed), CountCell(c.counted), c.convention};
}

Table DisputeTable(std::span<const HybridClaim> claims) {
  Table t{"", {"model", "claim", "claimed", "counted", "convention"}, {}, {true, true, false, false, true}};
  for (const HybridClaim& c : claims) t.rows.push_back(CellsOf(c));
  return t;
}

ClaimsSection CourseTexts() {
  const std::vector<CourseClaim> claims = CourseClaims();
  const auto right = std::ranges::count_if(claims, &CourseClaim::right);
  ClaimsSection s{"texts", "Course texts"};
  s.text =
      "Every numeric claim of five course texts, by their number in the project's reference material. " + std::to_string(right) +
      " of " + std::to_string(claims.size()) +
      " hold. One rule: a number is compared with the count of what its text says that it counts, formula and shape; where the "
      "text should have counted something else, the last column gives that count.";
  s.table = {"",
             {"text", "claim", "printed", "counted", "verdict", "convention", "remark"},
             {},
             {true, true, false, false, true, true, true}};
  for (const CourseClaim& c : claims) {
    s.table.rows.push_back({c.text, c.claim, c.printed, c.ours, c.right() ? "right" : "**wrong**", c.convention, c.why});
  }
  return s;
}

ClaimsSection PublishedCode() {
  ClaimsSection s{"code", "Published code"};
  s.text =
      "MoE-CAP (arXiv 2412.07067) brings S-MFU, the share of the arithmetic peak that a mixture of experts uses. Its code "
      "charges a "
      "token with one expert a layer, whatever k is: `n_layers * (attention_size_per_token + expert_config['expert_size'])` in "
      "moe_cap/utils/basic_utils.py, lines 132 and 145, and the same in qwen_utils.py and deepseek_utils.py "
      "(github.com/Auto-CAP/MoE-CAP at e9e0d88, 7 August 2026). So the numerator's parameter term of its S-MFU is too low where "
      "k > 1. "
      "Its S-MBU takes the experts that were used. The S-MFU of `tally report` counts all k.";
  s.table = {"", {"model", "parameters charged to a token", "parameters it uses", "k", "term too low by"}, {}, {true}};
  for (const ChargedParameters& c : MoeCapCharges()) {
    const double ratio = static_cast<double>(c.used) / static_cast<double>(c.charged);
    s.table.rows.push_back(
        {c.model, CountCell(c.charged), CountCell(c.used), CountCell(c.top_k), Cell(Fixed(ratio, 2) + " times", ratio)});
  }
  s.note = "Both without embedding, head, router, norms and biases, as that code counts.";
  return s;
}

ClaimsSection Hybrids() {
  ClaimsSection s{"hybrids", "Models with recurrent layers, shared caches or tables"};
  s.text = "Figures in dispute, recomputed by their rule where they have one, beside the count.";
  std::vector<HybridClaim> claims = HybridClaims();
  std::ranges::move(CountedClaims(), std::back_inserter(claims));
  s.table = DisputeTable(claims);
  return s;
}

ClaimsSection RelativeFlops() {
  ClaimsSection s{"flops", "FLOPs relative to another model"};
  s.text =
      "Matrix products of a decoded token that sees so many positions. A figure that is only part is not compared: what it lacks "
      "is "
      "named.";
  s.table = {"",
             {"model", "of", "positions", "printed", "counted", "FLOPs", "source"},
             {},
             {true, true, false, false, false, true, true}};
  for (const FlopsShareClaim& c : FlopsShareClaims()) {
    const bool whole = c.lacks.empty();
    s.table.rows.push_back({c.model, c.of, CountCell(c.positions), c.printed, whole ? PercentOf(c.flops, c.flops_of, 1) : "",
                            whole ? WithThousands(c.flops) + " of " + WithThousands(c.flops_of) : "not counted: " + c.lacks,
                            c.source});
  }
  return s;
}

ClaimsSection TokenCosts() {
  ClaimsSection s{"cost", "What a token costs"};
  s.text =
      "The same of parameters that are stored or charged to a token, of the FLOPs of training that a share of the peak (MFU) is "
      "made "
      "of, and of the bytes of a decode step.";
  s.table = DisputeTable(WorkClaims());
  return s;
}

std::string Verdict(const books::ClaimCheck& check) {
  std::string holds;
  for (const auto& c : check.conventions) {
    if (c.agreement == books::Agreement::kNo) continue;
    holds += (holds.empty() ? "" : "; ") + c.name + " " + WithThousands(c.count) + " (" +
             std::string(AgreementName(c.agreement)) + ")";
  }
  for (const auto& c : check.conventions) {
    if (c.name != check.stated || check.holds()) continue;
    holds = "**not as its source counts**: " + c.name + " " + WithThousands(c.count) +
            (holds.empty() ? "" : "; it would hold as ") + holds;
  }
  if (!holds.empty()) return holds;
  holds = "**none**:";
  for (const auto& c : check.conventions) holds += " " + c.name + " " + WithThousands(c.count) + ";";
  holds.pop_back();
  return holds;
}

ClaimsSection BuiltInModels() {
  ClaimsSection s{"models", "Published figures of the built-in models"};
  s.text =
      "Under each convention that could be meant, those under which the printed figure holds: to the nearest (rounded), with "
      "digits "
      "dropped (truncated, to two digits or more), or exactly. Zeros that end a whole number are digits that it claims where "
      "some "
      "convention holds so; else they claim nothing, and the verdict says so: 230B is then any number that rounds to 230 in tens "
      "of "
      "billions, 400M one that rounds to 400 in hundreds of millions (rounded to its zeros). Where the source says what it "
      "counts, the "
      "figure has to hold under that. \"As public repositories quote it\": the figure was found in copies and quotations of its "
      "source; \"name of the model\": it claims as much as a name does.";
  s.table = {"", {"model", "figure", "printed", "holds as", "source"}, {}, {true, true, false, true, true}};
  for (const std::string_view name : KnownModels()) {
    const Result<CountedModel> counted = CountModel({.model = std::string(name)});
    if (!counted.ok()) continue;
    for (const books::ClaimCheck& check : books::CheckPublished(counted->count, counted->published)) {
      s.table.rows.push_back({name, check.figure, check.printed, Verdict(check), counted->published.source});
    }
  }
  return s;
}

struct SectionMaker {
  std::string_view name;
  ClaimsSection (*make)();
};
constexpr SectionMaker kSections[] = {{"texts", CourseTexts},   {"code", PublishedCode}, {"hybrids", Hybrids},
                                      {"flops", RelativeFlops}, {"cost", TokenCosts},    {"models", BuiltInModels}};

// Without Markdown's stars.
std::string Plain(std::string text) {
  for (size_t at = 0; (at = text.find("**", at)) != std::string::npos;) text.erase(at, 2);
  return text;
}

// The columns of the CSV, and which of the sections' columns stands in which. Those without a place are in the remark, with their
// names.
const std::vector<std::string> kCsvColumns = {"section", "subject",    "claim",  "printed", "counted",
                                              "verdict", "convention", "remark", "source"};
struct CsvPlace {
  std::string_view column, csv;
  std::string_view before = {};  // the cell
};
constexpr CsvPlace kCsvPlaces[] = {{"text", "subject"},
                                   {"model", "subject"},
                                   {"claim", "claim"},
                                   {"figure", "claim"},
                                   {"of", "claim", "matrix products of a decoded token, of those of "},
                                   {"printed", "printed"},
                                   {"claimed", "printed"},
                                   {"parameters charged to a token", "printed"},
                                   {"counted", "counted"},
                                   {"parameters it uses", "counted"},
                                   {"verdict", "verdict"},
                                   {"holds as", "verdict"},
                                   {"convention", "convention"},
                                   {"remark", "remark"},
                                   {"source", "source"}};

std::string CsvLine(const ClaimsSection& s, const std::vector<Cell>& row) {
  std::vector<std::string> cells(kCsvColumns.size());
  const auto cell = [&](std::string_view column) -> std::string& {
    return cells[static_cast<size_t>(std::ranges::find(kCsvColumns, column) - kCsvColumns.begin())];
  };
  cell("section") = s.name;
  std::string_view printed;  // what it is, if the section has no column for that
  for (size_t i = 0; i < row.size(); ++i) {
    const std::string& column = s.table.columns[i];
    const auto* const place = std::ranges::find(kCsvPlaces, column, &CsvPlace::column);
    const std::string shown = row[i].value.IsNumber() ? JsonText(row[i].value) : Plain(row[i].text);
    if (place == std::end(kCsvPlaces)) {
      cell("remark") += (cell("remark").empty() ? "" : "; ") + column + ": " + shown;
      continue;
    }
    if (place->csv == "printed") printed = column;
    cell(place->csv) = std::string(place->before) + shown;
  }
  if (cell("claim").empty()) cell("claim") = printed;
  for (std::string& one : cells) one = CsvCell(one);
  return Join(cells, ",") + "\n";
}

}  // namespace

std::vector<std::string_view> ClaimsSectionNames() {
  std::vector<std::string_view> names;
  for (const SectionMaker& s : kSections) names.push_back(s.name);
  return names;
}

std::vector<ClaimsSection> ClaimsSections(const std::vector<std::string>& names) {
  std::vector<ClaimsSection> sections;
  for (const SectionMaker& s : kSections) {
    if (names.empty() || std::ranges::find(names, s.name) != names.end()) sections.push_back(s.make());
  }
  return sections;
}

std::string ClaimsPage(const std::vector<ClaimsSection>& sections) {
  std::string page =
      "# Claims, settled\n\n"
      "Which published figures of a model hold, and under which convention? First those of course texts, then those of model "
      "cards and papers.\n\n"
      "Written by `tally claims --format md`; a test compares. docs/accounting.md says what the conventions count.\n";
  for (const ClaimsSection& s : sections) {
    page += "\n## " + s.title + "\n\n" + Paragraph("", s.text, kLine, 0) + "\n" + Render(s.table, TableFormat::kMarkdown);
    if (!s.note.empty()) page += "\n" + Paragraph("", s.note, kLine, 0);
  }
  return page;
}

std::string ClaimsPageText(const std::vector<ClaimsSection>& sections, size_t width) {
  std::string page;
  for (const ClaimsSection& s : sections) {
    Table table = s.table;
    for (std::vector<Cell>& row : table.rows) {
      for (Cell& cell : row) cell.text = Plain(cell.text);
    }
    page +=
        (page.empty() ? "" : "\n") + s.title + "\n" + Paragraph("", s.text, width, 0) + Render(table, TableFormat::kText, width);
    if (!s.note.empty()) page += Paragraph("", s.note, width, 0);
  }
  return page;
}

Value ClaimsPageJson(const std::vector<ClaimsSection>& sections) {
  const Value list = Value::ListOf(sections, [](const ClaimsSection& s) -> Value {
    const Value rows = Value::ListOf(s.table.rows, [&](const std::vector<Cell>& row) -> Value {
      Value of = Value::Object();
      for (size_t i = 0; i < row.size(); ++i) {
        of[s.table.columns[i]] = row[i].value.IsNull() ? Value(Plain(row[i].text)) : row[i].value;
      }
      return of;
    });
    return {{"name", s.name}, {"title", s.title}, {"rows", rows}};
  });
  return {{"sections", list}};
}

std::string ClaimsPageCsv(const std::vector<ClaimsSection>& sections) {
  std::string text = Join(kCsvColumns, ",") + "\n";
  for (const ClaimsSection& s : sections) {
    for (const std::vector<Cell>& row : s.table.rows) text += CsvLine(s, row);
  }
  return text;
}

}  // namespace tally
