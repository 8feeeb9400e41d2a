// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/fit_report.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/render/table.h"
#include "engine/render/words.h"
#include "engine/reports/streaming_report.h"
#include "engine/reports/values.h"

namespace tally {
namespace {

constexpr size_t kLongestName = 40;  // of a verdict
constexpr size_t kLongest = 100;     // columns of prose
constexpr size_t kLargestRows = 12;  // of --all: what a screen of 24 lines leaves

// Prose in lines of `width` columns and no more than are read well.
std::string Labelled(std::string_view label, std::string_view text, size_t width) {
  return Paragraph(label, text, std::min(width, kLongest));
}
std::string Sentence(std::string_view text, size_t width) { return Paragraph("", text, std::min(width, kLongest), 0); }

std::string Needed(uint64_t bytes) { return BytesText(bytes, Rounding::kUp); }

// Whether a list, "read, int8 and f32", has a word.
bool Names(const std::string& list, std::string_view word) {
  const size_t at = list.find(word);  // "f32" is no part of another
  return at != list.npos && (at == 0 || list[at - 1] == ' ');
}

std::string Listed(const std::vector<std::string_view>& names) {  // "read, int8 and f32"
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : " and ") + std::string(names[i]);
  }
  return text;
}

// The figures of the machine that any model's step needs and that are not given, each once.
std::string Missing(const std::vector<FittedModel>& models) {
  std::vector<std::string_view> parts;
  for (const std::string_view part : {"read", "f32", "bf16", "int8"}) {
    const bool missing = std::ranges::any_of(models, [&](const FittedModel& m) {
      const std::optional<Fit>& fit = m.rows[m.chosen].fit;
      return fit && (Names(fit->decode.missing, part) || Names(fit->prefill.missing, part));
    });
    if (missing) parts.push_back(part);
  }
  return Listed(parts);
}

std::string Units(const StepBound& b) {  // "int8 and f32"
  std::vector<std::string_view> names;
  for (size_t u = 0; u < b.flops.size(); ++u) {
    if (b.flops[u] > 0 && std::ranges::find(names, kFitUnitNames[u]) == names.end()) names.push_back(kFitUnitNames[u]);
  }
  return Listed(names);
}

// Whether memory would bound the step if the caches did not hold what it reads.
bool SavedByCaches(const StepBound& b) { return b.cached && b.reading > b.computing; }

std::string FromMemory(const StepBound& b) { return ShortRate(static_cast<double>(b.tokens) / b.reading) + " from memory"; }

std::string BoundText(const StepBound& b, const FitMachine& machine, std::string_view each) {
  if (b.tokens_per_second <= 0)
    return "no bound: the machine's " + b.missing + " " + (b.missing.find(' ') == b.missing.npos ? "is" : "are") + " not given";
  double flops = 0;
  for (const double n : b.flops) flops += n;
  const std::string head = "at most " + ShortRate(b.tokens_per_second) + " tokens/s: ";
  if (b.reads_longer()) {
    const RateRange& range = machine.read_range;
    const auto at = [&](double read) { return ShortRate(static_cast<double>(b.tokens) * read / b.bytes); };
    return head + Scaled(b.bytes, "B") + " of weights and KV a " + std::string(each) + ", read at " +
           Scaled(machine.read, "B/s") +
           (range.low > 0 ? "; " + at(range.low) + " to " + at(range.high) + " in the least and best moments" : "") +
           (b.missing.empty() ? "" : "; by memory alone: the machine's " + b.missing + " not given");
  }
  std::string text = head + Scaled(flops / static_cast<double>(b.tokens), "FLOP") + " a token, " + Units(b) + ", at " +
                     Scaled(flops / b.computing, "FLOP/s");
  if (b.at_peaks < b.computing) {
    const bool scales =
        machine.int8_dots && b.flops[static_cast<size_t>(FitUnit::kInt8)] + b.flops[static_cast<size_t>(FitUnit::kNarrow)] > 0;
    const bool both = scales && b.tripled_attention;
    text += ", " + OfRoof(b.at_peaks / b.computing) +
            (both     ? " of peaks: scales and f16 attention take the rest"
             : scales ? " of the peaks: the scales of blocks take the rest"
                      : " of the peaks: f16 attention takes the rest, three products for one");
  }
  if (SavedByCaches(b)) text += "; " + FromMemory(b) + ", but they fit the caches of " + BytesText(machine.caches);
  return text;
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
    text += (text.empty() ? "" : "; ") + what + " " + ShortRate(step->point.tokens_per_second) + " tokens/s";
    if (step->bound > 0 && m.bench->this_boot) {
      text += ", " + OfRoof(step->point.tokens_per_second / step->bound) + " of its bound";
    } else if (step->point.of_roof > 0) {
      text += ", " + OfRoof(step->point.of_roof) + " of the rate measured then";
    }
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
  return "context " + context + ", KV " + KvName(o.kv) + ", " +
         (o.batch == 1 ? "1 sequence" : WithThousands(o.batch) + " sequences") + ", prefill " + prompt;
}

std::string MachineText(const FitMachine& m) {
  std::string text = Counted(m.threads, "thread") + (m.threads_assumed ? " assumed" : "");
  if (!m.target.empty()) text += ", " + m.target;
  if (m.total == 0) {
    text += "; memory not given";
  } else if (m.target.empty()) {
    text += "; " + GibText(m.total, Rounding::kDown) + " of memory";
  } else {
    text += "; " + GibText(m.available, Rounding::kDown) + " of " + GibText(m.total, Rounding::kDown) + " free";
  }
  // "15.46 GB/s (14.96 to 16.01)"
  const auto moments = [](double rate, const RateRange& range, const char* of) {
    std::string shown = Scaled(rate, of);
    if (range.low <= 0) return shown;
    const std::string unit = shown.substr(shown.find(' '));
    std::string low = Scaled(range.low, of), high = Scaled(range.high, of);
    for (std::string* bound : {&low, &high}) {
      if (bound->ends_with(unit)) bound->resize(bound->size() - unit.size());
    }
    return shown + " (" + low + " to " + high + ")";
  };
  if (m.read > 0) text += "; reads " + moments(m.read, m.read_range, "B/s");
  std::vector<std::string> peaks;  // those that are known
  for (const FitUnit unit : {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8}) {
    const std::string name(kFitUnitNames[static_cast<size_t>(unit)]);
    const double peak = m.peaks[static_cast<size_t>(unit)];
    if (unit == FitUnit::kBF16 && !m.bf16_dots) {
      peaks.push_back(name + " runs as f32");
    } else if (peak > 0) {
      peaks.push_back(name + " " + Scaled(peak, "FLOP/s"));
    }
  }
  return text + (peaks.empty() ? "" : "; " + Join(peaks, ", "));
}

std::string ContextText(const Fit& fit) {
  if (!fit.fits) return "-";
  return fit.longest == 0 ? "none" : WithThousands(fit.longest);
}

std::string YesNo(const Fit& fit) {
  if (!fit.fits) return "-";
  return *fit.fits ? "yes" : "no";
}

// "as published (BF16)", "at Q4_K_M"
std::string AtType(const FittedModel& m, const FitRow& row) {
  return row.given ? (m.file ? "as stored" : "as published") + std::string(" (") + row.type + ")" : "at " + row.type;
}

// "at most 38.1 tokens/s decode, 901 prefill"; "": unknown. A guest may see its host's cache sizes and have only a part of them, so the
// rate of memory stands beside the rate of the caches.
std::string RatesText(const Fit& fit) {
  std::string text;
  if (const double decode = fit.decode.tokens_per_second; decode > 0) {
    text = "at most " + ShortRate(decode) + " tokens/s decode" +
           (SavedByCaches(fit.decode) ? " (" + FromMemory(fit.decode) + ")" : "");
  }
  if (const double prefill = fit.prefill.tokens_per_second; prefill > 0) {
    text += text.empty() ? "at most " + ShortRate(prefill) + " tokens/s prefill" : ", " + ShortRate(prefill) + " prefill";
  }
  return text;
}

// "; 1.93 to 7.31 tokens/s are expected from disk"; empty: it fits, or not even that.
std::string FromDisk(const FitRow& row) {
  if (!row.streaming || !row.streaming->at.enough() || row.streaming->rates.disk <= 0) return "";
  return "; from disk " + RangeText(row.streaming->expected()) + " tokens/s";
}

std::string Verdict(const FitPage& page, const FittedModel& m, const FitRow& row) {
  const Fit& fit = *row.fit;
  const uint64_t n = page.options.batch;
  const std::string name = TailOf(m.name, kLongestName), rates = RatesText(fit),
                    context = " with " + (n > 1 ? WithThousands(n) + " sequences of " : "") + WithThousands(fit.context) +
                              " tokens" + (n > 1 ? "" : " of context");
  if (fit.fits.value_or(true)) {
    const auto given = std::ranges::find_if(m.rows, &FitRow::given);
    return name + (fit.fits ? " fits " : " ") + AtType(m, row) +
           (row.given || given == m.rows.end() ? "" : ", not " + AtType(m, *given) + ",") + context +
           (rates.empty() ? "" : ": " + rates) + (fit.fits ? "" : "; memory not given");
  }
  if (fit.longest > 0)
    return name + " does not fit" + context + "; " + AtType(m, row) + " with up to " + WithThousands(fit.longest) + FromDisk(row);
  return name + " does not fit" + (m.rows.size() > 1 ? ", not even " + AtType(m, row) : "") + ": " + Needed(fit.memory.total()) +
         ", and " + GibText(fit.memory.available, Rounding::kDown) + " are available" + FromDisk(row);
}

// "MXFP4+": others beside it.
std::string MainType(const std::string& type) {
  const size_t plus = type.find(" + ");
  return plus == type.npos ? type : type.substr(0, plus) + "+";
}

// What a "MXFP4+" among the types means; empty where there is none.
std::string PlusNote(bool plus) { return plus ? "; +: and other types" : ""; }

// Explains rates of decode that memory does not bound, if the table has any: they are far higher than the others.
std::string CachedNote(const std::vector<const FitRow*>& rows, const FitMachine& machine) {
  const auto cached = [](const FitRow* row) {
    return row->fit && row->fit->decode.cached && row->fit->decode.tokens_per_second > 0;
  };
  if (!std::ranges::any_of(rows, cached)) return "";
  return "; steps that the caches of " + BytesText(machine.caches) + " can hold are not bounded by memory";
}

std::string TypeCell(const std::string& type) { return type.size() <= 15 ? type : MainType(type); }

// What both tables have of a row: fits, in all, longest, decode/s, prefill/s.
void AddFitCells(const FitRow& row, std::vector<Cell>& cells) {
  const std::optional<Fit>& f = row.fit;
  const auto rate = [](const StepBound& b) { return ShortRate(b.tokens_per_second); };
  if (!f) return void(cells.insert(cells.end(), {"no", "-", "-", "-", "-"}));
  const std::optional<StreamingForecast>& s = row.streaming;
  cells.insert(cells.end(), {YesNo(*f), Needed(f->memory.total()), ContextText(*f),
                             s ? RangeCell(s->expected()) : rate(f->decode), s ? ShortRate(s->prompt.rate) : rate(f->prefill)});
}

// Explains the rates of rows that do not fit, if there are any.
std::string StreamedNote(const std::vector<const FitRow*>& rows) {
  const bool streamed =
      std::ranges::any_of(rows, [](const FitRow* row) { return row->streaming && row->streaming->at.enough(); });
  return streamed ? "; no: rates are expected ones, from disk" : "";
}

// The rows of a model's table: all; or, if none fits, those that are smaller than the one before by a sixth or more, and the last.
std::vector<const FitRow*> ShownTypes(const FittedModel& m) {
  const bool fit = std::ranges::any_of(m.rows, [](const FitRow& row) { return !row.streaming; });
  const auto bytes = [](const FitRow* row) { return row->fit ? static_cast<double>(row->fit->memory.packed_weights) : 0; };
  std::vector<const FitRow*> shown;
  for (const FitRow& row : m.rows) {
    if (fit || shown.empty() || &row == &m.rows.back() || bytes(&row) * 6 <= bytes(shown.back()) * 5) shown.push_back(&row);
  }
  return shown;
}

Table TypesTable(const std::vector<const FitRow*>& rows) {
  Table t{"", {"type", "weights", "fits", "in all", "longest", "decode/s", "prefill/s"}, {}, {true}};
  for (const FitRow* row : rows) {
    t.rows.push_back({TypeCell(row->type) + (row->given ? "*" : ""), row->fit ? Needed(row->fit->memory.packed_weights) : "-"});
    AddFitCells(*row, t.rows.back());
  }
  return t;
}

Table ModelsTable(const std::vector<const FittedModel*>& models, size_t name_width) {
  Table t{"", {"", "type", "fits", "in all", "longest", "decode/s", "prefill/s"}, {}, {true, true}};
  for (const FittedModel* m : models) {
    const FitRow& row = m->rows[m->chosen];
    t.rows.push_back({TailOf(m->name, name_width), MainType(row.type)});
    AddFitCells(row, t.rows.back());
  }
  return t;
}

bool Fits(const FittedModel& m) {
  const FitRow& row = m.rows[m.chosen];
  return row.fit && row.fit->fits.value_or(true);
}

// The models of a table, and how many have no row: smaller ones that fit, and others that do not.
struct Shown {
  std::vector<const FittedModel*> rows;
  size_t smaller = 0, others = 0;
};

// All; or the largest that fit, the largest first.
Shown Choose(const std::vector<FittedModel>& models, bool largest) {
  Shown shown;
  for (const FittedModel& m : models) {
    if (!largest || Fits(m)) {
      shown.rows.push_back(&m);
    } else {
      ++shown.others;
    }
  }
  if (!largest) return shown;
  std::ranges::stable_sort(shown.rows, std::greater<>(), &FittedModel::parameters);
  if (shown.rows.size() > kLargestRows) {
    shown.smaller = shown.rows.size() - kLargestRows;
    shown.rows.resize(kLargestRows);
  }
  return shown;
}

// "52 smaller ones fit too; 3 do not; --full shows all"
std::string LeftOutText(const Shown& shown) {
  std::string text;
  if (shown.smaller > 0) text = std::to_string(shown.smaller) + " smaller ones fit too; ";
  if (shown.others > 0) text += std::to_string(shown.others) + " do not; ";
  return text + "--full shows all";
}

Value BoundJson(const StepBound& b) {
  Value flops = Value::Object();
  for (const FitUnit unit : {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8}) {
    double n = b.flops[static_cast<size_t>(unit)];
    if (unit == FitUnit::kInt8) n += b.flops[static_cast<size_t>(FitUnit::kNarrow)];
    flops[std::string(kFitUnitNames[static_cast<size_t>(unit)])] = Number(n);
  }
  Value j = {{"tokens", b.tokens}, {"bytes", Number(b.bytes)}, {"flops", std::move(flops)}};
  j["tokens_per_second"] = b.tokens_per_second > 0 ? Value(b.tokens_per_second) : Value(nullptr);
  if (b.tokens_per_second > 0) j["bound_by"] = b.reads_longer() ? "bandwidth" : "arithmetic";
  if (b.missing.empty() && b.computing > 0) j["part_of_peaks"] = b.at_peaks / b.computing;
  if (!b.missing.empty()) j["missing"] = b.missing;
  return j;
}

Value RowJson(const FittedModel& m, const FitRow& row) {
  Value j = {{"type", row.type}, {"as_given", row.given}};
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
  j["fits"] = f.fits;
  j["longest_context"] = f.fits ? Value(f.longest) : Value(nullptr);
  j["trained_context"] = f.trained;
  j["decode"] = BoundJson(f.decode);
  j["prefill"] = BoundJson(f.prefill);
  const auto measured = [&](const char* name, const std::optional<MeasuredStep>& step) {
    if (!step || !row.given) return;
    const KeptPoint& p = step->point;
    Value b = {{"depth", p.depth}, {"batch", p.batch}, {"tokens", p.tokens}, {"tokens_per_second", p.tokens_per_second}};
    b["bound_tokens_per_second"] = step->bound;
    b["of_roof_then"] = p.of_roof;
    if (step->bound > 0 && m.bench->this_boot) b["of_bound"] = p.tokens_per_second / step->bound;
    j["measured"][name] = std::move(b);
  };
  measured("decode", m.decode);
  measured("prefill", m.prefill);
  if (row.streaming) {
    const bool chosen = &row == &m.rows[m.chosen];
    j["streaming"] = StreamingJson(*row.streaming, chosen ? m.more_memory : std::vector<MoreMemory>());
  }
  return j;
}

// Of a published model, the types that people run most, where they fit: "Q8_0 8.76 GiB, 5.78 tokens/s; Q4_K_M 5.33 GiB, 9.48 tokens/s".
// Empty: the verdict has said it.
std::string UsualTypes(const FittedModel& m) {
  std::vector<std::string> types;
  for (size_t i = 0; i < m.rows.size() && !m.file; ++i) {
    const FitRow& row = m.rows[i];
    if (i == m.chosen || row.given || !row.fit || !row.fit->fits.value_or(true)) continue;
    if (row.type != "Q8_0" && row.type != "Q4_K_M") continue;
    const double decode = row.fit->decode.tokens_per_second;
    types.push_back(row.type + " " + Needed(row.fit->memory.total()) +
                    (decode > 0 ? ", " + ShortRate(decode) + " tokens/s" : ""));
  }
  return Join(types, "; ");
}

}  // namespace

Value FitDocument(const FitPage& page, const std::vector<FittedModel>& models) {
  const FitMachine& m = page.machine;
  const auto known = [](double x) { return x > 0 ? Number(x) : Value(nullptr); };
  Value machine = {{"measured", !m.target.empty()},
                   {"threads", m.threads},
                   {"memory_bytes", known(static_cast<double>(m.total))},
                   {"available_bytes", known(static_cast<double>(m.available))},
                   {"cache_bytes", known(static_cast<double>(m.caches))},
                   {"read_bytes_per_second", known(m.read)},
                   {"read_bytes_per_second_low", known(m.read_range.low)},
                   {"read_bytes_per_second_high", known(m.read_range.high)},
                   {"f32_flops_per_second", known(m.peaks[0])},
                   {"bf16_flops_per_second", known(m.peaks[1])},
                   {"int8_ops_per_second", known(m.peaks[2])},
                   {"int8_narrow_ops_per_second", known(m.peaks[3])}};
  if (!m.target.empty()) machine["target"] = m.target;
  static constexpr std::array<const char*, 3> kSources = {"assumed", "given", "measured"};
  machine["disk"] = {{"bytes_per_second", Number(m.disk.read)}, {"source", kSources[static_cast<size_t>(m.disk.source)]}};
  if (m.disk.source == DiskSource::kMeasured) {
    machine["disk"].Update({{"direct", !m.disk.refused_direct}, {"written", m.disk.written}, {"where", m.disk.where}});
  }
  const Value list = Value::ListOf(models, [](const FittedModel& model) -> Value {
    const Value rows = Value::ListOf(model.rows, [&](const FitRow& row) { return RowJson(model, row); });
    return {{"name", model.name}, {"chosen_type", model.rows[model.chosen].type}, {"types", rows}};
  });
  return {{"machine", std::move(machine)}, {"kv", KvName(page.options.kv)}, {"batch", page.options.batch}, {"models", list}};
}

std::string FitText(const FitPage& page, const FittedModel& m, size_t width) {
  const FitRow& row = m.rows[m.chosen];
  if (!row.fit) return Sentence(m.name + ": " + row.why, width);
  const Fit& f = *row.fit;
  std::string out = Sentence(Verdict(page, m, row), width) + "\n";
  if (const std::string usual = UsualTypes(m); !usual.empty()) out += Labelled("usual", usual, width);
  out += Labelled("memory",
                  Needed(f.memory.total()) + " (" + Scaled(static_cast<double>(f.memory.total()), "B") + ") = " +
                      Needed(f.memory.packed_weights) + " weights + " + Needed(f.memory.kv) + " allocated for the KV cache (" +
                      Scaled(static_cast<double>(f.memory.kv), "B") + ") + " + Needed(f.memory.scratch) + " scratch" +
                      (f.fits ? ", of " + GibText(f.memory.available, Rounding::kDown) + " available" : ""),
                  width);
  if (f.fits && (!row.streaming || f.longest > 0)) {
    out +=
        Labelled("context",
                 f.longest == 0           ? "none fits"
                 : f.longest == f.trained ? "up to " + WithThousands(f.longest) + " fits, all that it was trained on"
                 : f.trained == 0         ? "up to " + WithThousands(f.longest) + " fits"
                                  : "up to " + WithThousands(f.longest) + " fits; it was trained on " + WithThousands(f.trained),
                 width);
  }
  if (row.streaming) {
    out += StreamingLines(*row.streaming, m.more_memory, page.machine.disk, width);
  } else {
    out += Labelled("decode", BoundText(f.decode, page.machine, page.options.batch == 1 ? "token" : "step"), width);
    out += Labelled("prefill", BoundText(f.prefill, page.machine, "prefill"), width);
  }
  if (m.bench && row.given) out += Labelled("measured", MeasuredText(m), width);
  out += Labelled("with", Assumed(page.options, f) + (m.experts ? ", even routing expected" : ""), width) +
         Labelled("machine", MachineText(page.machine), width);
  if (m.rows.size() > 1) {
    const std::vector<const FitRow*> rows = ShownTypes(m);
    out += "\n" + Render(TypesTable(rows), TableFormat::kText);
    const bool given = std::ranges::any_of(m.rows, &FitRow::given);
    const bool plus = std::ranges::any_of(rows, [](const FitRow* r) { return TypeCell(r->type).ends_with('+'); });
    const bool some = std::ranges::any_of(rows, [](const FitRow* r) { return r->fit && r->fit->longest > 0; });
    out += Sentence(std::string(given ? m.file ? "*: as stored" : "*: as published" : "") + (some && given ? "; " : "") +
                        (some ? "longest: context that fits" : "") + PlusNote(plus) +
                        (m.rows[0].type.starts_with("MXFP4") ? "; experts stay MXFP4" : "") + StreamedNote(rows) +
                        (f.decode.cached ? "" : CachedNote(rows, page.machine)),
                    width);
  }
  return out;
}

std::string FitTableText(const FitPage& page, const std::vector<FittedModel>& models, size_t width, bool largest) {
  const bool known = page.machine.available > 0;
  const Shown shown = Choose(models, largest && known);
  std::string out;
  if (known) {
    const auto fitting = static_cast<size_t>(std::ranges::count_if(models, Fits));
    out = std::to_string(fitting) + " of " + std::to_string(models.size()) + " models fit" +
          (shown.smaller > 0 ? "; the largest of them:" : "") + "\n\n";
  }
  constexpr size_t kNarrow = 80, kName = 18;  // columns
  out += Render(ModelsTable(shown.rows, std::max(width, kNarrow) - kNarrow + kName), TableFormat::kText) + "\n";
  if (shown.smaller + shown.others > 0) out += Sentence(LeftOutText(shown), width);
  std::vector<const FitRow*> rows;
  for (const FittedModel* m : shown.rows) rows.push_back(&m->rows[m->chosen]);
  const bool plus = std::ranges::any_of(rows, [](const FitRow* r) { return MainType(r->type).ends_with('+'); });
  out += Sentence("type: the largest that fits, up to what is published or stored" + PlusNote(plus) +
                      "; longest: context that fits; decode/s, prefill/s: tokens/s, at most" + StreamedNote(rows) +
                      CachedNote(rows, page.machine),
                  width);
  const bool experts = std::ranges::any_of(models, &FittedModel::experts);
  std::optional<Fit> steps = models[0].rows[models[0].chosen].fit;  // none: not the same for all
  for (const FittedModel& m : models) {
    const FitRow& row = m.rows[m.chosen];
    if (!row.fit) {
      if (!largest) out += Sentence(m.name + ": " + row.why, width);
      steps.reset();
      continue;
    }
    if (steps && (row.fit->context != steps->context || row.fit->prompt != steps->prompt)) steps.reset();
  }
  if (const std::string what = Missing(models); !what.empty())
    out += Labelled("-", "the machine's " + what + " not given", width);
  out += Labelled("with", Assumed(page.options, steps) + (experts ? ", even routing expected" : ""), width);
  return out + Labelled("machine", MachineText(page.machine), width);
}

}  // namespace tally
