// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/count_list.h"

#include <cstdint>
#include <string>
#include <vector>

#include "engine/render/json.h"
#include "engine/render/words.h"

namespace tally {

Table KnownModelTable(std::span<const KnownModelLine> models) {
  Table t{
      "", {"name", "family", "total (run)", "active(head)", "published", "aliases"}, {}, {true, true, false, false, true, true}};
  for (const KnownModelLine& m : models) {
    const auto number = [](uint64_t n) { return Cell(ShortCount(static_cast<double>(n)), n); };
    std::string published = m.published.total;
    if (!m.published.active.empty()) published += (published.empty() ? "A" : "-A") + m.published.active;
    t.rows.push_back({m.name, m.family + (m.runs ? "" : " (counted)"), number(m.parameters.total),
                      number(m.parameters.active_head), published, Join(m.aliases, " ")});
  }
  return t;
}

Value KnownModelDocument(std::span<const KnownModelLine> models) {
  const Value list = Value::ListOf(models, [](const KnownModelLine& m) -> Value {
    const auto text = [](const std::string& figure) { return figure.empty() ? Value() : Value(figure); };
    const Value not_run = Value::ListOf(m.not_run, [](const PartNotRun& p) -> Value {
      return {{"part", p.name}, {"parameters", p.parameters}};
    });
    Value parameters = {
        {"total_run", m.parameters.total},
        {"active", {{"all", m.parameters.active_all}, {"head", m.parameters.active_head}, {"none", m.parameters.active_none}}},
        {"not_run", not_run}};
    Value published = {{"total", text(m.published.total)},
                       {"active", text(m.published.active)},
                       {"non_embedding", text(m.published.non_embedding)},
                       {"source", text(m.published.source)}};
    return {
        {"name", m.name},           {"aliases", Value::ListOf(m.aliases, [](std::string_view alias) { return Value(alias); })},
        {"family", m.family},       {"runs", m.runs},
        {"parameters", parameters}, {"published", published}};
  });
  return {{"models", list}};
}

std::string KnownModelCsv(std::span<const KnownModelLine> models) {
  std::string text =
      "name,family,runs,total_run,active_all,active_head,active_none,published_total,published_active,source,aliases\n";
  for (const KnownModelLine& m : models) {
    const books::ParameterCounts& p = m.parameters;
    std::vector<std::string> cells = {CsvCell(m.name), CsvCell(m.family), m.runs ? "1" : "0"};
    for (const uint64_t n : {p.total, p.active_all, p.active_head, p.active_none}) cells.push_back(std::to_string(n));
    for (const std::string& word : {m.published.total, m.published.active, m.published.source}) cells.push_back(CsvCell(word));
    cells.push_back(CsvCell(Join(m.aliases, " ")));
    text += Join(cells, ",") + "\n";
  }
  return text;
}

}  // namespace tally
