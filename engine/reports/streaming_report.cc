// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/streaming_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "counters/books/form.h"
#include "engine/base/format.h"
#include "engine/render/words.h"
#include "engine/reports/values.h"

namespace tally {
namespace {

using books::Form;
using books::Routing;
using books::StreamedLayer;

constexpr size_t kLongestLine = 100;  // columns of prose

std::string NameOf(Routing routing) { return std::string(books::kRoutingNames[static_cast<size_t>(routing)]); }
std::string SizeText(uint64_t bytes) { return BytesText(bytes, Rounding::kUp); }
std::string DecimalBytes(double bytes) { return Scaled(bytes, "B"); }

std::string RatesOf(const RateRange& range, const char* between) {
  if (range.high <= 0) return "-";
  const std::string low = ShortRate(range.low), high = ShortRate(range.high);
  return low == high ? low : low + between + high;
}

// The first layer with experts; null: there is none.
const StreamedLayer* FirstSparse(const StreamingForecast& f) {
  const auto found = std::ranges::find_if(f.model.layers, &StreamedLayer::sparse);
  return found == f.model.layers.end() ? nullptr : &*found;
}
uint64_t SparseLayers(const StreamingForecast& f) {
  return static_cast<uint64_t>(std::ranges::count_if(f.model.layers, &StreamedLayer::sparse));
}

// Whether all layers with experts have as many, of one size.
bool Alike(const StreamingForecast& f) {
  const StreamedLayer* const first = FirstSparse(f);
  return first != nullptr && std::ranges::all_of(f.model.layers, [&](const StreamedLayer& l) {
           return !l.sparse() || (l.experts == first->experts && l.record == first->record);
         });
}

std::string WhereText(const StreamingForecast& f) {
  if (const StreamedLayer* const l = FirstSparse(f); l != nullptr) {
    return std::to_string(SparseLayers(f)) + " layers of " + std::to_string(l->experts) + " experts of " +
           DecimalBytes(static_cast<double>(l->record)) + ", " + std::to_string(l->top_k) +
           " a token; resident: " + SizeText(f.model.held()) + " of other weights, " + std::to_string(f.at.slots) +
           " slots a layer (" + OfRoof(f.at.share) + ")";
  }
  return std::to_string(f.at.resident_layers) + " of " + std::to_string(f.model.layers.size()) +
         " layers stay in memory, the others, " + DecimalBytes(static_cast<double>(f.at.streamed)) + ", are read for every token";
}

std::string DecodeText(const StreamingForecast& f, const FitDisk& disk) {
  const StreamingCurve* const measured = f.Curve(Routing::kMeasured);
  const std::string at = " at " + DiskText(disk);
  if (f.rates.disk <= 0) return "no rate: the disk's is not known";
  if (!f.model.sparse()) return "at most " + RangeText(f.bound()) + " tokens/s: the disk" + at;
  const auto hits = [](const StreamingCurve& c) { return OfRoof(c.hit_rate) + " hit, " + DecimalBytes(c.decode.disk_bytes); };
  if (measured != nullptr) {
    return RangeText(f.expected()) + " tokens/s expected: " + hits(*measured) + " a token, as measured in " +
           WithThousands(f.measured->tokens) + " tokens with " + std::to_string(f.measured->slots) + " slots," + at;
  }
  const StreamingCurve &flat = *f.Curve(Routing::kFlat), &local = *f.Curve(Routing::kLocal);
  return ShortRate(flat.expected_rate) + " (flat routing: " + hits(flat) + " a token) to " + ShortRate(local.expected_rate) +
         " tokens/s (local: " + hits(local) + ")" + at + "; uniform " + ShortRate(f.Curve(Routing::kUniform)->expected_rate);
}

std::string PromptText(const StreamingForecast& f) {
  const StreamingPrompt& p = f.prompt;
  std::string text = "first token of " + WithThousands(p.rows) + " after " + ShortSeconds(p.seconds) + ", after a start " +
                     ShortSeconds(p.cold_seconds);
  if (p.balanced <= 0) return text;
  return ShortRate(p.rate) + " tokens/s, the disk hidden from chunks of " + WithThousands(std::ceil(p.balanced)) + " on; " + text;
}

// "+8 GiB", "+42.61 GiB"
std::string MoreBytes(uint64_t bytes) {
  constexpr uint64_t kGiB = uint64_t{1} << 30;
  return "+" + (bytes % kGiB == 0 ? std::to_string(bytes / kGiB) + " GiB" : GibText(bytes, Rounding::kUp));
}

// Of 8, 16, 32, ... GiB more, as far as there are, and of all.
std::string MoreText(const std::vector<MoreMemory>& more) {
  std::vector<std::string> parts;
  for (size_t i = more.size() > 2 ? 1 : 0; i < more.size(); ++i) {
    const MoreMemory& m = more[i];
    if (i > 3 && i + 1 < more.size()) continue;
    parts.push_back((m.forecast.at.all_resident ? "all resident, " : "") + MoreBytes(m.more) + ": " +
                    RangeText(m.forecast.expected()));
  }
  return Join(parts, "; ");
}

Value SecondsJson(double seconds) { return seconds > 0 ? Value(seconds) : Value(nullptr); }

Value CurveJson(const StreamingCurve& c, const StreamingForecast& f) {
  return {{"routing", NameOf(c.routing)},
          {"hit_rate", c.hit_rate},
          {"experts", Number(c.decode.chosen)},
          {"misses", c.decode.misses},
          {"disk_bytes", Number(c.decode.disk_bytes)},
          {"memory_bytes", Number(c.decode.memory_bytes)},
          {"memory_seconds", SecondsJson(c.decode.memory)},
          {"disk_seconds", f.rates.disk > 0 ? Value(c.decode.disk) : Value(nullptr)},
          {"bound_tokens_per_second", SecondsJson(c.bound_rate)},
          {"expected_tokens_per_second", SecondsJson(c.expected_rate)}};
}

Value PlaceJson(const StreamingForecast& f) {
  Value j = {{"budget_bytes", f.at.budget},
             {"least_bytes", f.at.least},
             {"enough", f.at.enough()},
             {"resident_bytes", f.at.resident},
             {"all_bytes", f.model.all()},
             {"slots", f.model.sparse() ? Value(f.at.slots) : Value(nullptr)},
             {"resident_layers", f.model.sparse() ? Value(nullptr) : Value(f.at.resident_layers)},
             {"resident_share", f.at.share}};
  j["decode"] = Value::ListOf(f.curves, [&](const StreamingCurve& c) { return CurveJson(c, f); });
  j["prompt"] = {{"rows", f.prompt.rows},
                 {"balanced_chunk", SecondsJson(f.prompt.balanced)},
                 {"chunk", f.prompt.chunk},
                 {"seconds", SecondsJson(f.prompt.seconds)},
                 {"cold_seconds", SecondsJson(f.prompt.cold_seconds)},
                 {"tokens_per_second", SecondsJson(f.prompt.rate)}};
  return j;
}

}  // namespace

std::string RangeText(const RateRange& range) { return RatesOf(range, " to "); }
std::string RangeCell(const RateRange& range) { return RatesOf(range, "-"); }

std::string DiskText(const FitDisk& disk) {
  std::string text = Scaled(disk.read, "B/s");
  if (disk.source == DiskSource::kAssumed) return text + " (assumed: --disk)";
  if (disk.source == DiskSource::kMeasured && disk.refused_direct) return text + " (measured, O_DIRECT refused)";
  return disk.source == DiskSource::kMeasured ? text + " (measured)" : text;
}

std::string StreamingLines(const StreamingForecast& f, const std::vector<MoreMemory>& more, const FitDisk& disk, size_t width) {
  const auto line = [&](const char* label, const std::string& text) {
    return Paragraph(label, text, std::min(width, kLongestLine));
  };
  if (!f.at.enough()) return line("on disk", CheckBudget(f).message());
  return line("on disk", WhereText(f)) + line("decode", DecodeText(f, disk)) + line("prefill", PromptText(f)) +
         (more.empty() ? "" : line("more RAM", MoreText(more)));
}

Value StreamingJson(const StreamingForecast& f, const std::vector<MoreMemory>& more) {
  Value j = {{"disk_bytes_per_second", SecondsJson(f.rates.disk)}, {"rows", f.model.rows}};
  j["held_bytes"] = f.model.held();
  j["record_bytes"] = f.model.records();
  if (const StreamedLayer* const l = FirstSparse(f); l != nullptr) {
    j["layers"] = SparseLayers(f);
    j["experts"] = l->experts;
    j["top_k"] = l->top_k;
    j["bytes_of_a_record"] = Alike(f) ? Value(l->record) : Value(nullptr);
  }
  j.Update(PlaceJson(f));
  if (!f.at.enough()) j["refused"] = CheckBudget(f).message();
  if (f.measured) j["measured"] = {{"slots", f.measured->slots}, {"tokens", f.measured->tokens}};
  j["more_memory"] = Value::ListOf(more, [](const MoreMemory& m) {
    Value row = {{"more_bytes", m.more}};
    row.Update(PlaceJson(m.forecast));
    return row;
  });
  return j;
}

// ---- of count

namespace {

// Shares and rates in percent and tokens/s, one column a routing.
Table RoutingTable(const StreamingForecast& f) {
  Table t{"a decode step", {""}, {}, {true}};
  for (const StreamingCurve& c : f.curves) t.columns.push_back(NameOf(c.routing));
  t.columns.emplace_back("closed form");
  t.left.resize(t.columns.size());
  t.left.back() = true;
  const auto row = [&](const char* name, const char* form, const auto& cell) {
    t.rows.push_back({name});
    for (const StreamingCurve& c : f.curves) t.rows.back().push_back(std::string(cell(c)));
    t.rows.back().push_back(form);
  };
  const bool several = f.model.rows > 1, sparse = f.model.sparse();
  if (sparse) {
    row("hit rate h", "r; 1 - .307 (1 - r) r^-.18; 1 - .042 - .13 (.1 / r)^1.6",
        [](const StreamingCurve& c) { return OfRoof(c.hit_rate); });
    row("experts chosen", several ? "L_x c, c = X (1 - (1 - k / X)^B)" : "L_x k",
        [](const StreamingCurve& c) { return Fixed(c.decode.chosen, 1); });
    row("misses m", several ? "L_x c (1 - h)" : "L_x k (1 - h)",
        [](const StreamingCurve& c) { return Fixed(c.decode.misses, 1); });
  }
  row("bytes from disk", sparse ? "m R" : "layers that do not stay",
      [](const StreamingCurve& c) { return WithThousands(c.decode.disk_bytes); });
  if (f.rates.disk <= 0) return t;
  row("seconds of the disk", sparse ? "m R / d" : "bytes / d",
      [](const StreamingCurve& c) { return ShortSeconds(c.decode.disk); });
  row("tokens/s, at most",
      several  ? "B d / (m R)"
      : sparse ? "d / (m R)"
               : "d / bytes",
      [](const StreamingCurve& c) { return ShortRate(c.bound_rate); });
  return t;
}

Table BudgetTable(const StreamingForecast& f, const std::vector<MoreMemory>& more) {
  Table t{"budgets", {"resident", f.model.sparse() ? "slots" : "layers", "share"}, {}, {}};
  const bool rates = f.rates.disk > 0;
  for (const StreamingCurve& c : f.curves) t.columns.push_back(NameOf(c.routing) + (rates ? ", tokens/s" : ", bytes"));
  const auto add = [&](const StreamingForecast& one) {
    t.rows.push_back({BytesText(one.at.budget), std::to_string(f.model.sparse() ? one.at.slots : one.at.resident_layers),
                      OfRoof(one.at.share)});
    for (const StreamingCurve& c : one.curves) {
      t.rows.back().push_back(!rates             ? DecimalBytes(c.decode.disk_bytes)
                              : c.bound_rate > 0 ? ShortRate(c.bound_rate)
                                                 : std::string("memory's"));
    }
  };
  add(f);
  for (const MoreMemory& m : more) add(m.forecast);
  return t;
}

}  // namespace

std::vector<Table> ResidentTables(const CountedModel& m, const StreamingForecast& f, const std::vector<MoreMemory>& more) {
  Table t{m.name + ": resident in " + BytesText(f.at.budget) + ", the rest on disk",
          {"", "", "closed form"},
          {},
          {true, false, true}};
  const auto row = [&](const std::string& name, const std::string& value, const std::string& form) {
    t.rows.push_back({name, value, form});
  };
  const auto exact = [&](const std::string& name, const Form& form) { row(name, WithThousands(form.value()), form.text()); };
  const StreamedLayer* const l = FirstSparse(f);
  exact("budget M, bytes", Form::Symbol("M", f.at.budget));
  if (l != nullptr && Alike(f)) {
    const Form L = Form::Symbol("L_x", SparseLayers(f)), X = Form::Symbol("X", static_cast<uint64_t>(l->experts)),
               R = Form::Symbol("R", l->record), N = Form::Symbol("N", f.model.held()),
               n = Form::Symbol("n", static_cast<uint64_t>(f.at.slots));
    exact("layers with experts", L);
    exact("experts of a layer", X);
    exact("experts of a token", Form::Symbol("k", static_cast<uint64_t>(l->top_k)));
    exact("record of an expert, bytes", R);
    exact("other weights, bytes", N);
    exact("all experts, bytes", L * X * R);
    exact("least budget, bytes", N + L * (Form::Symbol("k", static_cast<uint64_t>(l->top_k)) + Form(2)) * R);
    const auto one_more = static_cast<uint64_t>(std::ranges::count(f.at.slots_of, f.at.slots + 1));
    row("slots of a layer n", std::to_string(f.at.slots), "floor((M - N) / (L_x R)), at most X");
    row("layers with one more e", std::to_string(one_more), "floor((M - N) / R - L_x n), if n < X");
    exact("resident, bytes", N + (L * n + Form::Symbol("e", one_more)) * R);
    row("resident share r", OfRoof(f.at.share), "(L_x n + e) / (L_x X)");
  } else if (l != nullptr) {
    row("other weights N, bytes", WithThousands(f.model.held()), "");
    row("all experts, bytes", WithThousands(f.model.records()), "");
    row("slots of a layer n", std::to_string(f.at.slots), "");
    row("resident, bytes", WithThousands(f.at.resident), "");
    row("resident share r", OfRoof(f.at.share), "by bytes");
  } else {
    row("outside of layers, bytes", WithThousands(f.model.outside), "");
    row("layers that stay", std::to_string(f.at.resident_layers) + " of " + std::to_string(f.model.layers.size()), "");
    row("resident, bytes", WithThousands(f.at.resident), "with two buffers");
  }
  if (f.rates.disk > 0) row("disk d", Scaled(f.rates.disk, "B/s"), "d");
  std::vector<Table> tables = {std::move(t), RoutingTable(f)};
  if (!more.empty()) tables.push_back(BudgetTable(f, more));
  return tables;
}

Value ResidentJson(const StreamingForecast& f, const std::vector<MoreMemory>& more) { return StreamingJson(f, more); }

}  // namespace tally
