// SPDX-License-Identifier: Apache-2.0
#include "engine/report/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>

#include "engine/report/axis.h"
#include "engine/report/document.h"
#include "engine/report/report_figures.h"
#include "engine/report/svg.h"

namespace tally::report {
namespace {

// What a section shows of one run, as HTML; empty: the run has nothing for it. `suffix` keeps ids apart.
using Content = std::function<std::string(const ReportData& run, const std::string& suffix)>;

Content Of(std::optional<Figure> (*make)(const ReportData&)) {
  return [make](const ReportData& run, const std::string& suffix) -> std::string {
    std::optional<Figure> figure = make(run);
    if (!figure) return "";
    figure->name += suffix;
    return FigureHtml(*figure);
  };
}

std::string MetricsHtml(const ReportData& run, const std::string&) {
  if (run.metrics.empty()) return "";
  DataTable table{"Utilisation, each figure as what it is", {"figure", "value", "what it is", "formula", "denominator"}, {}};
  for (const Metric& m : run.metrics) {
    table.rows.push_back({m.name, Cell(Percent(m.value), m.value), m.meaning, m.formula, m.denominator});
  }
  return TableHtml(table, "prose all");
}

std::string ClosedFormsHtml(const ReportData& run, const std::string&) {
  if (run.closed_forms.empty()) return "";
  DataTable table{"Closed forms", {"figure", "value", "expression"}, {}};
  for (const ClosedForm& form : run.closed_forms) table.rows.push_back({form.name, CountCell(form.value), form.expression});
  std::string symbols;
  for (const std::string& symbol : run.symbols) symbols += (symbols.empty() ? "" : ", ") + symbol;
  return (symbols.empty() ? "" : "<p class=\"muted\">" + Escape(symbols) + "</p>\n") + TableHtml(table);
}

std::string VerdictText(const AuditVerdict& audit) {
  if (audit.differing == 0) return Thousands(audit.compared) + " rows compared, all agree";
  return Thousands(audit.differing) + " of " + Thousands(audit.compared) + " rows differ";
}

std::string AuditHtml(const ReportData& run, const std::string&) {
  if (!run.audit) return "";
  std::string out = "<p>" + Escape(VerdictText(*run.audit)) +
                    ": closed form, checkpoint and what the kernels were charged with, for every step, layer and component.</p>\n";
  if (run.audit->rows.empty()) return out;
  DataTable table{"Rows that differ", {"what", "where", "closed form", "files", "run"}, {}};
  for (const AuditVerdict::Row& row : run.audit->rows) table.rows.push_back({row.what, row.site, row.closed_form, row.files, row.run});
  return out + TableHtml(table);
}

std::string OpsHtml(const ReportData& run, const std::string&) {
  if (run.ops.empty()) return "";
  DataTable table{"Ops",
                  {"component", "op", "layers", "phase", "kernel", "calls", "useful FLOPs", "executed FLOPs", "bytes", "time", "FLOP/s", "bytes a second"},
                  {}};
  for (const OpRow& op : run.ops) {
    const auto rate = [&](uint64_t amount) { return op.seconds > 0 ? static_cast<double>(amount) / op.seconds : 0; };
    table.rows.push_back({op.component, op.op, op.layers, op.phase, op.implementation, CountCell(op.calls), CountCell(op.useful),
                          CountCell(op.executed), CountCell(op.bytes), SiCell(op.seconds, "s"), SiCell(rate(op.useful), "FLOP/s"),
                          SiCell(rate(op.bytes), "B/s")});
  }
  return TableHtml(table, "sortable filterable");
}

// Figures of two runs that can be subtracted.
struct Difference {
  std::string name, unit;
  double first = 0, second = 0;
};

void AddTimes(const ReportData& a, const ReportData& b, std::vector<Difference>& all) {
  const std::vector<OpTime> first = TimesByOp(a), second = TimesByOp(b);
  for (const OpTime& time : first) {
    const auto same = std::find_if(second.begin(), second.end(), [&](const OpTime& t) { return t.name == time.name; });
    if (same != second.end()) all.push_back({"time of " + time.name, "s", time.seconds, same->seconds});
  }
}

std::vector<Difference> Differences(const ReportData& a, const ReportData& b) {
  const auto parameters = [](const ReportData& run) {
    double sum = 0;
    for (const ModelPart& part : run.parts) sum += static_cast<double>(part.parameters);
    return sum;
  };
  const DecodeMeans first = MeansOfDecode(a), second = MeansOfDecode(b);
  std::vector<Difference> all = {{"parameters", "", parameters(a), parameters(b)},
                                 {"FLOPs of a decode token", "FLOP", first.flops, second.flops},
                                 {"bytes of a decode token", "B", first.bytes, second.bytes},
                                 {"time of a decode token", "s", first.seconds, second.seconds}};
  for (const Metric& m : a.metrics) {
    const auto same = std::find_if(b.metrics.begin(), b.metrics.end(), [&](const Metric& other) { return other.name == m.name; });
    if (same != b.metrics.end()) all.push_back({m.name, "%", m.value, same->value});
  }
  AddTimes(a, b, all);
  std::erase_if(all, [](const Difference& d) { return d.first == 0 && d.second == 0; });
  return all;
}

Cell Shown(double value, const std::string& unit) { return unit == "%" ? PercentCell(value) : SiCell(value, unit); }

std::string DifferencesHtml(std::span<const ReportData> runs) {
  std::string out;
  for (size_t i = 1; i < runs.size(); ++i) {
    DataTable table{"Differences of " + runs[i].run + " from " + runs[0].run, {"figure", runs[0].run, runs[i].run, "difference", "ratio"}, {}};
    for (const Difference& d : Differences(runs[0], runs[i])) {
      const double change = d.second - d.first;
      Cell difference = Shown(std::abs(change), d.unit);
      difference.text = (change < 0 ? "\xe2\x88\x92" : change > 0 ? "+" : "") + difference.text;
      difference.value = change;
      table.rows.push_back({d.name, Shown(d.first, d.unit), Shown(d.second, d.unit), difference,
                            d.first != 0 ? Cell(Decimal(d.second / d.first), d.second / d.first) : Cell("")});
    }
    out += TableHtml(table, "sortable");
  }
  return out;
}

struct SectionKind {
  const char* id;
  const char* title;
  Content content;
  bool full = false;
  const char* paragraph = nullptr;
};

std::vector<SectionKind> SectionKinds() {
  return {{"parameters-section", "Where the parameters live", Of(ParametersFigure)},
          {"roofline-section", "Roofline", Of(RooflineFigure)},
          {"metrics-section", "Utilisation", MetricsHtml, true,
           "Shares of what the machine can do. Papers use these names for different things; each line says what was divided by what."},
          {"flops-section", "FLOPs of a token", Of(FlopsFigure)},
          {"bytes-section", "Bytes of a token", Of(BytesFigure)},
          {"depth-section", "Bytes against depth", Of(DepthFigure)},
          {"bandwidth-section", "Bandwidth of decode", Of(BandwidthFigure)},
          {"experts-section", "Experts by layer", Of(ExpertsFigure)},
          {"union-section", "Experts of a step", Of(ExpertUnionFigure)},
          {"time-section", "Time by op", Of(TimeFigure)},
          {"audit-section", "Audit", AuditHtml},
          {"forms-section", "Closed forms", ClosedFormsHtml, true},
          {"ops-section", "All ops", OpsHtml, true}};
}

void AddSections(std::span<const ReportData> runs, Document& document) {
  for (const SectionKind& kind : SectionKinds()) {
    Section section{kind.id, kind.title, {}, {}, kind.full};
    if (kind.paragraph != nullptr) section.paragraphs.emplace_back(kind.paragraph);
    bool any = false;
    for (size_t i = 0; i < runs.size(); ++i) {
      Block block{runs.size() > 1 ? runs[i].run : "", kind.content(runs[i], i == 0 ? "" : "-" + std::to_string(i + 1))};
      any = any || !block.html.empty();
      if (block.html.empty()) block.html = "<p class=\"muted\">Not in this run.</p>\n";
      section.blocks.push_back(std::move(block));
    }
    if (any) document.sections.push_back(std::move(section));
  }
}

}  // namespace

std::string RenderPage(std::span<const ReportData> runs) {
  Document document;
  document.compare = runs.size() > 1;
  for (const ReportData& run : runs) {
    document.title += (document.title.empty() ? "" : " and ") + (document.compare ? run.run : run.model);
    const std::string whose = document.compare ? run.run + ": " : "";
    for (const std::string& fact : run.facts) document.facts.push_back(whose + fact);
    if (run.audit) {
      document.verdicts.push_back(whose + VerdictText(*run.audit));
      document.bad = document.bad || run.audit->differing > 0;
    }
    for (Headline headline : run.headlines) {
      if (document.compare) headline.name = run.run + ": " + headline.name;
      document.headlines.push_back(std::move(headline));
    }
  }
  if (document.compare) {
    document.sections.push_back({"differences-section", "Differences", {}, {{"", DifferencesHtml(runs)}}, true});
  }
  AddSections(runs, document);
  document.footer = "Written by tally. The figures are counts of the run's own kernels; docs/accounting.md says what each one counts.";
  return DocumentHtml(document);
}

std::vector<NamedSvg> RenderFigures(const ReportData& run) {
  std::vector<NamedSvg> all;
  for (const Figure& figure : AllFigures(run)) all.push_back({figure.name, FigureSvg(figure)});
  return all;
}

}  // namespace tally::report
