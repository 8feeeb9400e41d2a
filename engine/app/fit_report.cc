// SPDX-License-Identifier: Apache-2.0
#include "engine/app/fit_report.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include "engine/app/table.h"
#include "engine/app/words.h"
#include "engine/base/format.h"

namespace tally::app {
namespace {

using books::WithThousands;

std::string Needed(uint64_t bytes) { return BytesText(bytes, Rounding::kUp); }

// 12.34, 123.4, 1,234
std::string Rate(double x) {
  if (x <= 0) return "-";
  return x >= 1000 ? WithThousands(static_cast<uint64_t>(x + 0.5)) : Fixed(x, x < 100 ? 2 : 1);
}

std::string Units(const StepBound& b) {  // "int8 and f32"
  std::vector<std::string_view> names;
  for (size_t u = 0; u < b.flops.size(); ++u) {
    if (b.flops[u] > 0 && std::ranges::find(names, kFitUnitNames[u]) == names.end()) names.push_back(kFitUnitNames[u]);
  }
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + std::string(names[i]);
  }
  return text;
}

std::string BoundText(const StepBound& b, const FitMachine& machine, std::string_view each) {
  if (b.tokens_per_second <= 0)
    return "no bound: the machine's " + b.missing + " " + (b.missing.find(' ') == b.missing.npos ? "is" : "are") + " not given";
  double flops = 0;
  for (const double n : b.flops) flops += n;
  const std::string head = "at most " + Rate(b.tokens_per_second) + " tokens/s: ";
  if (b.reads_longer()) {
    return head + Scaled(b.bytes, "B") + " of weights and KV a " + std::string(each) + ", read at " + Scaled(machine.read, "B/s");
  }
  return head + Scaled(flops / static_cast<double>(b.tokens), "FLOP") + " a token, " + Units(b) + ", at " +
         Scaled(flops / b.computing, "FLOP/s");
}

std::string Ago(int64_t when) {
  const int64_t now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  const int64_t minutes = std::max<int64_t>(0, now - when) / 60;
  const auto counted = [](int64_t n, const std::string& unit) {
    return std::to_string(n) + " " + unit + (n == 1 ? "" : "s") + " ago";
  };
  if (minutes < 60) return minutes == 0 ? "just now" : counted(minutes, "minute");
  return minutes < 48 * 60 ? counted(minutes / 60, "hour") : counted(minutes / (24 * 60), "day");
}

std::string MeasuredText(const FittedModel& m) {
  std::string text;
  const auto add = [&](const std::optional<MeasuredStep>& step, const std::string& what) {
    if (!step) return;
    text += (text.empty() ? "" : "; ") + what + " " + Rate(step->point.tokens_per_second) + " tokens/s";
    if (step->bound > 0) text += ", " + Fixed(step->point.tokens_per_second / step->bound, 2) + " of its bound";
    if (step->point.of_roof > 0) text += " (" + Fixed(step->point.of_roof, 2) + " of the rate there was then)";
  };
  if (m.decode) {
    const KeptPoint& p = m.decode->point;
    add(m.decode, "decode of " + WithThousands(static_cast<uint64_t>(p.tokens)) + " at depth " +
                      WithThousands(static_cast<uint64_t>(p.depth)));
  }
  if (m.prefill) add(m.prefill, "prefill of " + WithThousands(static_cast<uint64_t>(m.prefill->point.tokens)));
  return text.empty() ? "measured with other threads, KV type or batch than these" : text + "; " + Ago(m.bench->when);
}

std::string KvName(KvType kv) { return std::string(kKvTypeNames[static_cast<size_t>(kv)]); }

std::string Assumed(const FitOptions& o, std::optional<Fit> fit) {
  const std::string context = fit             ? WithThousands(fit->context)
                              : o.context > 0 ? WithThousands(o.context)
                                              : "4,096, or as trained";
  const std::string prompt = fit ? WithThousands(fit->prompt) : o.prompt > 0 ? WithThousands(o.prompt) : "512";
  return "context " + context + ", KV cache " + KvName(o.kv) + ", " +
         (o.batch == 1 ? "1 sequence" : WithThousands(o.batch) + " sequences") + ", prefill of " + prompt;
}

std::string MachineText(const FitMachine& m) {
  std::string text = std::to_string(m.threads) + (m.threads == 1 ? " thread" : " threads");
  if (!m.target.empty()) text += ", " + m.target;
  if (m.total == 0) {
    text += "; memory not given";
  } else if (m.target.empty()) {
    text += "; " + GibText(m.total, Rounding::kDown) + " of memory";
  } else {
    text += "; " + GibText(m.available, Rounding::kDown) + " of " + GibText(m.total, Rounding::kDown) + " of memory available";
  }
  text += "; reads " + (m.read > 0 ? Scaled(m.read, "B/s") : "-") + ";";
  for (const FitUnit unit : {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8}) {
    const double peak = m.peaks[static_cast<size_t>(unit)];
    text += (unit == FitUnit::kF32 ? " " : ", ") + std::string(kFitUnitNames[static_cast<size_t>(unit)]) + " " +
            (unit == FitUnit::kBF16 && !m.bf16_dots ? "runs as f32"
             : peak > 0                             ? Scaled(peak, "FLOP/s")
                                                    : "-");
  }
  return text;
}

std::string ContextText(const Fit& fit) {
  if (!fit.fits) return "-";
  return fit.longest == 0 ? "none" : WithThousands(fit.longest);
}

std::string YesNo(const Fit& fit) {
  if (!fit.fits) return "-";
  return *fit.fits ? "yes" : "no";
}

std::string Verdict(const Fit& fit) {
  if (!fit.fits) return "memory not given";
  return *fit.fits ? "fits" : fit.longest > 0 ? "does not fit with this context" : "does not fit";
}

std::string TypeText(const FittedModel& m, const FitRow& row) {
  return row.type + (row.given ? m.file ? ", as stored" : ", as published" : "");
}

std::string Short(const std::string& text, size_t most) {
  return text.size() <= most ? text : "..." + text.substr(text.size() - (most - 3));
}

// "MXFP4+": others beside it.
std::string MainType(const std::string& type) {
  const size_t plus = type.find(" + ");
  return plus == type.npos ? type : type.substr(0, plus) + "+";
}

std::string TypeCell(const std::string& type) { return type.size() <= 15 ? type : MainType(type); }

Table TypesTable(const FittedModel& m) {
  Table t{"", {"type", "weights", "in all", "fits", "longest", "decode/s", "prefill/s"}, {}, {true}};
  for (const FitRow& row : m.rows) {
    if (!row.fit) {
      t.rows.push_back({TypeCell(row.type), "-", "-", "no", "-", "-", "-"});
      continue;
    }
    const Fit& f = *row.fit;
    t.rows.push_back({TypeCell(row.type) + (row.given ? "*" : ""), Needed(f.memory.packed_weights), Needed(f.memory.total()),
                      YesNo(f), ContextText(f), Rate(f.decode.tokens_per_second), Rate(f.prefill.tokens_per_second)});
  }
  return t;
}

Json BoundJson(const StepBound& b) {
  Json flops = Json::object();
  for (const FitUnit unit : {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8}) {
    double n = b.flops[static_cast<size_t>(unit)];
    if (unit == FitUnit::kInt8) n += b.flops[static_cast<size_t>(FitUnit::kNarrow)];
    flops[std::string(kFitUnitNames[static_cast<size_t>(unit)])] = Number(n);
  }
  Json j = {{"tokens", b.tokens}, {"bytes", Number(b.bytes)}, {"flops", std::move(flops)}};
  j["tokens_per_second"] = b.tokens_per_second > 0 ? Json(b.tokens_per_second) : Json(nullptr);
  if (b.missing.empty()) {
    j["bound_by"] = b.reads_longer() ? "bandwidth" : "arithmetic";
  } else {
    j["missing"] = b.missing;
  }
  return j;
}

Json RowJson(const FittedModel& m, const FitRow& row) {
  Json j = {{"type", row.type}, {"as_given", row.given}};
  if (!row.fit) {
    j["cannot_be_run"] = row.why;
    return j;
  }
  const Fit& f = *row.fit;
  j["context"] = f.context;
  j["prompt"] = f.prompt;
  j["memory_bytes"] = {{"packed_weights", f.memory.packed_weights},
                       {"kv", f.memory.kv},
                       {"scratch", f.memory.scratch},
                       {"total", f.memory.total()}};
  j["fits"] = f.fits ? Json(*f.fits) : Json(nullptr);
  j["longest_context"] = f.fits ? Json(f.longest) : Json(nullptr);
  j["trained_context"] = f.trained;
  j["decode"] = BoundJson(f.decode);
  j["prefill"] = BoundJson(f.prefill);
  const auto measured = [&](const char* name, const std::optional<MeasuredStep>& step) {
    if (!step || !row.given) return;
    const KeptPoint& p = step->point;
    Json b = {{"depth", p.depth}, {"batch", p.batch}, {"tokens", p.tokens}, {"tokens_per_second", p.tokens_per_second}};
    b["bound_tokens_per_second"] = step->bound;
    b["of_roof_then"] = p.of_roof;
    if (step->bound > 0) b["of_bound"] = p.tokens_per_second / step->bound;
    j["measured"][name] = std::move(b);
  };
  measured("decode", m.decode);
  measured("prefill", m.prefill);
  return j;
}

}  // namespace

Json FitDocument(const FitPage& page, const std::vector<FittedModel>& models) {
  const FitMachine& m = page.machine;
  const auto known = [](double x) { return x > 0 ? Number(x) : Json(nullptr); };
  Json machine = {{"measured", !m.target.empty()},
                  {"threads", m.threads},
                  {"memory_bytes", known(static_cast<double>(m.total))},
                  {"available_bytes", known(static_cast<double>(m.available))},
                  {"read_bytes_per_second", known(m.read)},
                  {"f32_flops_per_second", known(m.peaks[0])},
                  {"bf16_flops_per_second", known(m.peaks[1])},
                  {"int8_ops_per_second", known(m.peaks[2])},
                  {"int8_narrow_ops_per_second", known(m.peaks[3])}};
  if (!m.target.empty()) machine["target"] = m.target;
  Json list = Json::array();
  for (const FittedModel& model : models) {
    Json rows = Json::array();
    for (const FitRow& row : model.rows) rows.push_back(RowJson(model, row));
    list.push_back({{"name", model.name}, {"chosen_type", model.rows[model.chosen].type}, {"types", std::move(rows)}});
  }
  return {{"machine", std::move(machine)},
          {"kv", KvName(page.options.kv)},
          {"batch", page.options.batch},
          {"models", std::move(list)}};
}

std::string FitText(const FitPage& page, const FittedModel& m, size_t width) {
  const FitRow& row = m.rows[m.chosen];
  if (!row.fit) return Paragraph(m.name, row.why, width);
  const Fit& f = *row.fit;
  const std::string title = TypeText(m, row) + ": " + Verdict(f);
  const auto given = std::ranges::find_if(m.rows, [](const FitRow& r) { return r.given; });
  const bool smaller = given != m.rows.end() && !row.given && f.fits && *f.fits;
  std::string out = Short(m.name, width > title.size() + 12 ? width - title.size() - 2 : 10) + ", " + title + "\n";
  if (smaller) out += Paragraph("", TypeText(m, *given) + ", does not", width);
  out += Paragraph("memory",
                   Needed(f.memory.total()) + " = " + Needed(f.memory.packed_weights) + " of weights + " + Needed(f.memory.kv) +
                       " of KV cache + " + Needed(f.memory.scratch) + " of scratch" +
                       (f.fits ? ", of " + GibText(f.memory.available, Rounding::kDown) + " available" : ""),
                   width);
  if (f.fits) {
    out +=
        Paragraph("context",
                  f.longest == 0           ? "none fits"
                  : f.longest == f.trained ? "up to " + WithThousands(f.longest) + " fits, all that it was trained on"
                  : f.trained == 0         ? "up to " + WithThousands(f.longest) + " fits"
                                   : "up to " + WithThousands(f.longest) + " fits; it was trained on " + WithThousands(f.trained),
                  width);
  }
  out += Paragraph("decode", BoundText(f.decode, page.machine, page.options.batch == 1 ? "token" : "step"), width);
  out += Paragraph("prefill", BoundText(f.prefill, page.machine, "prefill"), width);
  if (m.bench) out += Paragraph("measured", MeasuredText(m), width);
  out += "\n" + Paragraph("with", Assumed(page.options, f) + (m.experts ? ", experts chosen evenly" : ""), width) +
         Paragraph("machine", MachineText(page.machine), width);
  if (m.rows.size() > 1) {
    out += "\n" + Render(TypesTable(m), TableFormat::kText);
    out += given != m.rows.end() ? std::string("*: as ") + (m.file ? "stored" : "published") + "; " : "";
    out += "longest: context that fits; others: every matrix of that type\n";
  }
  return out;
}

std::string FitTableText(const FitPage& page, const std::vector<FittedModel>& models, size_t width) {
  const bool known = page.machine.available > 0;
  Table t{"", {"", "type", known ? "fits" : "", "in all", "longest", "decode/s", "prefill/s"}, {}, {true, true}};
  if (!known) t.columns.erase(t.columns.begin() + 2);
  for (const FittedModel& m : models) {
    const FitRow& row = m.rows[m.chosen];
    std::vector<std::string> cells = {Short(m.name, 18), MainType(row.type)};
    if (row.fit) {
      const Fit& f = *row.fit;
      cells.insert(cells.end(), {YesNo(f), Needed(f.memory.total()), ContextText(f), Rate(f.decode.tokens_per_second),
                                 Rate(f.prefill.tokens_per_second)});
    } else {
      cells.insert(cells.end(), {"no", "-", "-", "-", "-"});
    }
    if (!known) cells.erase(cells.begin() + 2);
    t.rows.push_back(std::move(cells));
  }
  std::string out = Render(t, TableFormat::kText) + "\n";
  out += Paragraph("type", "the largest that fits, up to what is published or stored; else the smallest", width);
  out += Paragraph("longest", "context that fits; decode/s, prefill/s: tokens/s, at most", width);
  const bool experts = std::ranges::any_of(models, &FittedModel::experts);
  std::vector<std::string> missing;
  std::optional<Fit> steps = models[0].rows[models[0].chosen].fit;  // none: not the same for all
  for (const FittedModel& m : models) {
    const FitRow& row = m.rows[m.chosen];
    if (!row.fit) {
      out += Paragraph("", m.name + ": " + row.why, width);
      continue;
    }
    if (steps && (row.fit->context != steps->context || row.fit->prompt != steps->prompt)) steps.reset();
    for (const std::string& what : {row.fit->decode.missing, row.fit->prefill.missing}) {
      if (!what.empty() && std::ranges::find(missing, what) == missing.end()) missing.push_back(what);
    }
  }
  for (const std::string& what : missing) out += Paragraph("-", "the machine's " + what + " not given", width);
  out += Paragraph("with", Assumed(page.options, steps) + (experts ? ", experts chosen evenly" : ""), width);
  return out + Paragraph("machine", MachineText(page.machine), width);
}

}  // namespace tally::app
