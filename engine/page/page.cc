// SPDX-License-Identifier: Apache-2.0
#include "engine/page/page.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "engine/page/axis.h"
#include "engine/page/document.h"
#include "engine/page/run_figures.h"
#include "engine/page/svg.h"

namespace tally {
namespace page {
namespace {

using Runs = std::span<const ReportData>;

// What is said of the audit in one line.
std::string VerdictText(const ReportAudit& audit) {
  if (audit.differing == 0) return Thousands(audit.compared) + " rows compared, all agree";
  return Thousands(audit.differing) + " of " + Thousands(audit.compared) + " rows compared differ";
}

// The last part of a path; other names, those of the hub among them, stay as they are.
std::string Shortened(const std::string& name) {
  const bool path = name.starts_with('/') || name.starts_with('.') || name.ends_with(".gguf") || name.ends_with(".jsonl");
  const size_t slash =
      name.find_last_not_of('/') == std::string::npos ? std::string::npos : name.rfind('/', name.find_last_not_of('/'));
  return path && slash != std::string::npos ? name.substr(slash + 1) : name;
}

// A name for each run, no two the same: titles, then where they are from.
std::vector<std::string> NamesOf(Runs runs) {
  std::vector<std::string> names;
  for (const ReportData& run : runs) names.push_back(Shortened(run.title));
  const auto several = [&](const std::string& name) { return std::count(names.begin(), names.end(), name) > 1; };
  std::vector<bool> same;
  for (const std::string& name : names) same.push_back(several(name));
  for (size_t i = 0; i < runs.size(); ++i) {
    if (same[i]) names[i] += " (" + Shortened(runs[i].source) + ")";
  }
  for (size_t i = 0; i < runs.size(); ++i) same[i] = several(names[i]);
  for (size_t i = 0; i < runs.size(); ++i) {
    if (same[i]) names[i] += " " + std::to_string(i + 1);
  }
  return names;
}

std::string ActiveText(const ReportData& run) {
  const uint64_t total = run.parameters[0], active = run.parameters[static_cast<size_t>(ReportConvention::kActiveHead)];
  return Thousands(active) + " of " + Thousands(total) + ", active(head)";
}

// Of one run: the first thing that is read.
std::string Verdict(const ReportData& run) {
  if (run.audit)
    return VerdictText(*run.audit) +
           (run.audit->pages && run.audit->differing == 0 ? "; so do the pages of memory that were touched" : "");
  if (!run.has_parameters || run.parameters[0] == 0) return "";
  const double share = Real(run.parameters[static_cast<size_t>(ReportConvention::kActiveHead)]) / Real(run.parameters[0]);
  return "A token uses " + Percent(share) + " of the parameters: " + ActiveText(run);
}

std::vector<Headline> HeadlinesOf(const ReportData& run) {
  std::vector<Headline> all;
  if (run.has_parameters && run.parameters[0] > 0) {
    all.push_back({"parameters", ShortCount(run.parameters[0]), Thousands(run.parameters[0])});
    const uint64_t active = run.parameters[static_cast<size_t>(ReportConvention::kActiveHead)];
    all.push_back({"active, head counted", Percent(Real(active) / Real(run.parameters[0])), Thousands(active)});
  }
  for (const char* phase : {"prefill", "decode"}) {
    const PhaseMeans means = MeansOf(run, phase);
    if (means.seconds <= 0) continue;
    all.push_back({phase, Decimal(1 / means.seconds) + " tokens/s",
                   Thousands(means.tokens) + " tokens, " + Si(means.seconds * Real(means.tokens), "s") + " in the ops"});
  }
  if (const PhaseMeans means = MeansOf(run, "decode"); means.tokens > 0) {
    const std::string over = ", mean of depths " + Thousands(means.shallowest) + " to " + Thousands(means.deepest);
    if (means.flops > 0)
      all.push_back({"FLOPs of a decode token", Si(means.flops, "FLOP"), Thousands(Whole(means.flops)) + over});
    if (means.bytes > 0) all.push_back({"bytes of a decode token", Si(means.bytes, "B"), "weights once a step, KV cache" + over});
  }
  if (const ExpertReads reads = ReadsOf(run, "decode"); reads.hits + reads.misses > 0) {
    const double tokens = Real(std::max<uint64_t>(1, MeansOf(run, "decode").tokens));
    all.push_back({"experts in memory", Percent(Share(Real(reads.hits), Real(reads.hits + reads.misses))),
                   "of " + Thousands(reads.hits + reads.misses) + " that decode steps chose; " + Si(reads.bytes / tokens, "B") +
                       " a token from disk"});
  }
  for (const ReportMetric& m : run.metrics) {
    if (m.value && m.phase == "decode" && m.bytes) {
      all.push_back({m.name + " of decode", Percent(*m.value), "of " + m.denominator_name + ", " + Si(m.denominator, "B/s")});
      break;
    }
  }
  return all;
}

std::vector<std::string> FactsOf(const ReportData& run) {
  const auto add = [](std::string& line, const std::string& text, const char* between) {
    if (!text.empty()) line += (line.empty() ? "" : between) + text;
  };
  std::string model = run.description, made = run.source, facts;
  if (Shortened(run.title) != run.title) add(model, run.title, "; ");
  add(made, run.threads > 0 ? std::to_string(run.threads) + (run.threads == 1 ? " thread" : " threads") : "", ", ");
  add(made, run.target.empty() ? "" : run.target + " kernels", ", ");
  add(made, run.machine, ", ");
  add(made, run.date, "; ");
  add(made, run.version.empty() ? "" : "Tally " + run.version, "; ");
  for (const ReportFact& fact : run.facts) add(facts, fact.name + ": " + fact.value, "; ");
  if (run.not_run > 0) add(facts, "stored, not run: " + Thousands(run.not_run) + " parameters (" + run.not_run_names + ")", "; ");
  std::vector<std::string> lines = {std::move(model), std::move(made), std::move(facts)};
  std::erase(lines, "");
  return lines;
}

std::string MetricsHtml(const ReportData& run) {
  if (run.metrics.empty()) return "";
  Table table{"Utilisation", {"figure", "phase", "value", "what it is", "formula", "with numbers", "denominator", "source"}, {}};
  for (const ReportMetric& m : run.metrics) {
    table.rows.push_back(
        {m.name, m.phase, m.value ? PercentCell(*m.value) : Cell("unknown"), m.meaning, m.formula, m.with_numbers,
         m.denominator_name + (m.denominator > 0 ? ", " + Si(m.denominator, m.bytes ? "B/s" : "FLOP/s") : ""), m.source});
  }
  return TableHtml(table, "prose all");
}

std::string FormsHtml(const ReportData& run) {
  if (run.forms.empty()) return "";
  Table table{"Closed forms", {"of", "name", "formula", "value", "times"}, {}};
  for (const ReportForm& form : run.forms) {
    table.rows.push_back({form.group, form.name, form.formula, CountCell(form.value), CountCell(form.times)});
  }
  std::string symbols;
  for (const ReportSymbol& s : run.symbols) {
    symbols += (symbols.empty() ? "" : ", ") + s.name + " = " + Thousands(s.value) + " " + s.meaning;
  }
  return (symbols.empty() ? "" : "<p class=\"muted\">" + Escape(symbols) + "</p>\n") + TableHtml(table, "sortable filterable");
}

std::string AuditHtml(const ReportData& run) {
  if (!run.audit) return "";
  std::string out = "<p>" + Escape(VerdictText(*run.audit)) +
                    ": closed form, checkpoint and what the kernels were charged with, for every step, layer and component.";
  if (run.audit->pages) out += " The memory-management unit was a witness of the pages that were read.";
  out += "</p>\n";
  if (run.audit->rows.empty()) return out;
  Table table{"Rows that differ", {"step", "account", "where", "formula", "closed form", "checkpoint", "ledger"}, {}};
  for (const ReportAudit::Row& row : run.audit->rows) {
    table.rows.push_back({row.step, row.account, row.where, row.formula, row.closed, row.checkpoint, row.ledger});
  }
  return out + TableHtml(table);
}

std::string RowsHtml(const ReportData& run) {
  if (run.rows.empty()) return "";
  Table table{"Ops by layer",
              {"component", "layer", "phase", "op", "kernel", "types", "runs", "useful FLOPs", "executed FLOPs", "bytes", "time",
               "FLOP/s", "bytes a second"},
              {}};
  for (const ReportRow& row : run.rows) {
    const double seconds = Seconds(row.work.ns);
    const uint64_t bytes = MovedBytes(run, row.work);
    const auto rate = [&](uint64_t amount, const char* unit) {
      return seconds > 0 && amount > 0 ? SiCell(Real(amount) / seconds, unit) : Cell("", 0);
    };
    table.rows.push_back({row.component, row.layer < 0 ? Cell("", -1) : Cell(std::to_string(row.layer), row.layer), row.phase,
                          row.op, row.implementation, row.types, CountCell(row.runs), CountCell(row.work.flops),
                          CountCell(row.work.executed_flops), CountCell(bytes), SiCell(seconds, "s"),
                          rate(row.work.flops, "FLOP/s"), rate(bytes, "B/s")});
  }
  return TableHtml(table, "sortable filterable lines");
}

std::string AbsentHtml(const ReportData& run) {
  std::string out;
  for (const std::string& sentence : run.absent) out += "<li>" + Escape(sentence) + "</li>\n";
  return out.empty() ? "" : "<ul>\n" + out + "</ul>\n";
}

// A figure of two runs that can be subtracted.
struct Difference {
  std::string name, unit;  // "%": a share
  double first = 0, second = 0;
};

std::vector<Difference> Differences(const ReportData& a, const ReportData& b) {
  std::vector<Difference> all;
  for (size_t i = 0; a.has_parameters && b.has_parameters && i < kReportConventions; ++i) {
    if (i == static_cast<size_t>(ReportConvention::kTouchedDecode)) continue;
    const std::string name(kReportConventionNames[i]);
    all.push_back({i == 0 ? "parameters" : "parameters, " + name, "", Real(a.parameters[i]), Real(b.parameters[i])});
  }
  for (const std::string phase : {"prefill", "decode"}) {
    const PhaseMeans first = MeansOf(a, phase), second = MeansOf(b, phase);
    const auto rate = [](const PhaseMeans& m) { return m.seconds > 0 ? 1 / m.seconds : 0; };
    all.push_back({phase + ", tokens a second", "", rate(first), rate(second)});
    all.push_back({phase + ", FLOPs of a token", "FLOP", first.flops, second.flops});
    all.push_back({phase + ", bytes of a token", "B", first.bytes, second.bytes});
  }
  for (const ReportMetric& m : a.metrics) {
    for (const ReportMetric& other : b.metrics) {
      if (m.name == other.name && m.phase == other.phase && m.value && other.value)
        all.push_back({m.name + " of " + m.phase, "%", *m.value, *other.value});
    }
  }
  const std::vector<OpTime> times = TimesByOp(b);
  for (const OpTime& time : TimesByOp(a)) {
    const auto same = std::find_if(times.begin(), times.end(), [&](const OpTime& t) { return t.name == time.name; });
    if (same != times.end()) all.push_back({"time of " + time.name, "s", time.seconds, same->seconds});
  }
  std::erase_if(all, [](const Difference& d) { return d.first == 0 && d.second == 0; });
  return all;
}

Cell Shown(double value, const std::string& unit) {
  if (unit == "%") return PercentCell(value);
  if (unit.empty() && value == std::floor(value)) return CountCell(static_cast<uint64_t>(value));
  return SiCell(value, unit);
}

Table DifferencesTable(Runs runs, const std::vector<std::string>& names, size_t with) {
  Table table{
      "Differences of " + names[with] + " from " + names[0], {"figure", names[0], names[with], "difference", "ratio"}, {}};
  for (const Difference& d : Differences(runs[0], runs[with])) {
    const double change = d.second - d.first;
    Cell difference = d.unit == "%" ? Cell(Decimal(100 * std::abs(change)) + " points") : Shown(std::abs(change), d.unit);
    difference.text = (change < 0 ? "\xe2\x88\x92" : change > 0 ? "+" : "") + difference.text;
    if (difference.value.IsNumber()) difference.value = change;
    const double ratio = d.first != 0 ? d.second / d.first : 0;
    table.rows.push_back({d.name, Shown(d.first, d.unit), Shown(d.second, d.unit), difference,
                          d.first != 0 ? Cell(Decimal(ratio), ratio) : Cell("", 0)});
  }
  return table;
}

// A part of the page: a figure, or HTML, of each run.
struct SectionKind {
  const char* id;
  const char* title;
  std::optional<Figure> (*figure)(const ReportData&) = nullptr;
  std::string (*html)(const ReportData&) = nullptr;
  bool full = false;
  const char* paragraph = nullptr;
};

constexpr SectionKind kSections[] = {
    {"where", "Where the parameters live", ParametersFigure},
    {"roofs", "Roofline", RooflineFigure},
    {"work", "FLOPs of a token", FlopsFigure},
    {"traffic", "Bytes of a token", BytesFigure},
    {"depths", "Bytes against depth", DepthFigure},
    {"rates", "Bandwidth", BandwidthFigure},
    {"routing", "Experts by layer", ExpertsFigure},
    {"unions", "Experts in use", ExpertUnionFigure},
    {"reads", "Experts from disk", ExpertReadsFigure},
    {"times", "Time by op", TimeFigure},
    {"speeds", "Speed", SpeedFigure},
    {"audit", "Audit", nullptr, AuditHtml},
    {"utilisation", "Utilisation", nullptr, MetricsHtml, true,
     "Shares of what the machine can do. Papers use these names for different things; each line says what was divided by what."},
    {"forms", "Closed forms", nullptr, FormsHtml, true},
    {"ops", "All ops", nullptr, RowsHtml, true},
    {"absent", "What is not here", nullptr, AbsentHtml},
};

// What each run shows in a section. Figures of several runs share a scale where the greatest is not four times the least: beyond, one
// of them would vanish.
std::vector<std::string> Contents(const SectionKind& kind, Runs runs) {
  std::vector<std::string> all;
  std::vector<std::optional<Figure>> figures;
  double least = 0, greatest = 0;
  for (const ReportData& run : runs) {
    if (kind.figure == nullptr) {
      all.push_back(kind.html(run));
      continue;
    }
    figures.push_back(kind.figure(run));
    if (!figures.back()) continue;
    const double extent = figures.back()->extent;
    least = least == 0 ? extent : std::min(least, extent);
    greatest = std::max(greatest, extent);
  }
  for (size_t i = 0; i < figures.size(); ++i) {
    if (figures[i] && i > 0) figures[i]->name += "-" + std::to_string(i + 1);
    all.push_back(figures[i] ? FigureHtml(*figures[i], greatest < 4 * least ? greatest : 0) : "");
  }
  return all;
}

void AddSections(Runs runs, const std::vector<std::string>& names, Document& document) {
  for (const SectionKind& kind : kSections) {
    Section section{kind.id, kind.title, {}, {}, kind.full};
    if (kind.paragraph != nullptr) section.paragraphs.emplace_back(kind.paragraph);
    std::vector<std::string> contents = Contents(kind, runs);
    if (std::all_of(contents.begin(), contents.end(), [](const std::string& html) { return html.empty(); })) continue;
    for (size_t i = 0; i < runs.size(); ++i) {
      if (contents[i].empty()) contents[i] = "<p class=\"muted\">Not in this run.</p>\n";
      section.blocks.push_back({runs.size() > 1 ? names[i] : "", std::move(contents[i])});
    }
    document.sections.push_back(std::move(section));
  }
}

void AddDifferences(Runs runs, const std::vector<std::string>& names, Document& document) {
  Section section{"differences", "Differences", {}, {}, true};
  for (size_t i = 1; i < runs.size(); ++i)
    section.blocks.push_back({"", TableHtml(DifferencesTable(runs, names, i), "sortable")});
  document.sections.push_back(std::move(section));
}

Document DocumentOf(Runs runs) {
  Document document;
  document.generator = kReportMark;
  document.compare = runs.size() > 1;
  const std::vector<std::string> names = NamesOf(runs);
  for (size_t i = 0; i < runs.size(); ++i) {
    const ReportData& run = runs[i];
    const std::string whose = document.compare ? names[i] + ": " : "";
    document.title += (i > 0 ? " and " : "") + names[i];
    for (const std::string& fact : FactsOf(run)) document.facts.push_back(whose + fact);
    if (const std::string verdict = Verdict(run); !verdict.empty()) document.verdicts.push_back(whose + verdict);
    document.bad = document.bad || (run.audit && run.audit->differing > 0);
  }
  if (document.title.empty()) document.title = "Report";
  if (runs.size() == 1) document.headlines = HeadlinesOf(runs[0]);
  if (document.compare) AddDifferences(runs, names, document);
  AddSections(runs, names, document);
  const bool ran = std::any_of(runs.begin(), runs.end(), [](const ReportData& run) { return !run.rows.empty(); });
  document.footer = std::string(ran ? "Counted by the kernels that ran." : "Counted from the configuration: nothing ran.") +
                    " docs/accounting.md says what each figure counts.";
  return document;
}

}  // namespace
}  // namespace page

std::string RenderPage(std::span<const ReportData> runs) { return page::DocumentHtml(page::DocumentOf(runs)); }

std::vector<ReportFigure> RenderFigures(const ReportData& run) {
  std::vector<ReportFigure> all;
  for (const page::SectionKind& kind : page::kSections) {
    const std::optional<page::Figure> figure = kind.figure != nullptr ? kind.figure(run) : std::nullopt;
    if (figure) all.push_back({figure->name, page::FigureSvg(*figure, page::Shortened(run.title))});
  }
  return all;
}

}  // namespace tally
