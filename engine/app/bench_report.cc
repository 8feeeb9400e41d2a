// SPDX-License-Identifier: Apache-2.0
#include "engine/app/bench_report.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/app/console.h"
#include "engine/base/format.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

std::string KvName(KvType kv) { return std::string(kKvTypeNames[static_cast<size_t>(kv)]); }

Json PeaksJson(const MeasuredRoofs& r) {
  return {{"threads", r.threads},
          {"read_bytes_per_second", r.bandwidth},
          {"f32_flops_per_second", r.peaks.f32},
          {"bf16_flops_per_second", r.peaks.bf16},
          {"int8_ops_per_second", r.peaks.int8},
          {"int8_narrow_ops_per_second", r.peaks.int8_narrow},
          {"f32_instruction", r.peaks.f32_instruction},
          {"bf16_instruction", r.peaks.bf16_instruction},
          {"int8_instruction", r.peaks.int8_instruction},
          {"int8_narrow_instruction", r.peaks.int8_narrow_instruction}};
}

// (most - least) / median. None of one round.
std::optional<double> Spread(const SpeedPoint& p) {
  if (RoundsOf(p) < 2) return std::nullopt;
  return p.rate.median > 0 ? (p.rate.most - p.rate.least) / p.rate.median : 0;
}

// "71.0 %" of the chosen experts were in memory, "-" of whole layers; "812.45" megabytes a token came from disk.
void AddDisk(const SpeedPoint& p, std::vector<Cell>& row) {
  const uint64_t all = p.experts.hits + p.experts.misses;
  row.push_back(all > 0 ? Fixed(100 * static_cast<double>(p.experts.hits) / static_cast<double>(all), 1) + " %" : "-");
  row.push_back(Fixed(p.disk_bytes_per_token / 1e6, 2));
}

// Experts that a router chose under a budget, even if all were in memory, or layers from disk.
bool Streams(const SpeedPoint& p) { return p.experts != ExpertUses() || p.disk_bytes_per_token > 0; }

template <class Point>
bool AnyStreams(const std::vector<Point>& points) {
  return std::ranges::any_of(points, [](const Point& p) { return Streams(p); });
}

Json PointJson(const SpeedPoint& p, std::optional<int64_t> batch) {
  Json j = {{"threads", p.threads}, {"kv", KvName(p.kv)}, {"depth", p.depth}};
  if (batch) j["batch"] = *batch;
  j.Update({{"tokens", p.tokens},
            {"rounds", p.rounds},
            {"kept", p.kept},
            {"tokens_per_second", p.rate.median},
            {"least_tokens_per_second", p.rate.least},
            {"most_tokens_per_second", p.rate.most},
            {"spread", Spread(p)}});
  if (p.experts != ExpertUses()) {
    j["experts"] = {{"hits", p.experts.hits}, {"misses", p.experts.misses}, {"bytes_from_disk", p.experts.disk_bytes}};
  }
  if (Streams(p)) j["disk_bytes_per_token"] = Number(p.disk_bytes_per_token);
  return j;
}

Json PrefillJson(const PrefillSpeed& p) {
  Json j = PointJson(p, {});
  j["flops"] = Number(p.flops);
  for (int a = 0; a < kAriths; ++a) j["flops_by_type"][std::string(kArithNames[a])] = Number(p.flops_by_type[a]);
  j["flops_per_second"] = p.flops / static_cast<double>(p.tokens) * p.rate.median;
  j["ratio_of_peak"] = p.ratio_of_peak;
  return j;
}

Json DecodeJson(const DecodeSpeed& p) {
  Json j = PointJson(p, p.batch);
  j["bytes_per_token"] = Number(p.bytes_per_token);
  j["bytes_per_second"] = p.bytes_per_token * p.rate.median;
  j["read_bytes_per_second"] = p.bandwidth;
  j["ratio_of_bandwidth"] = p.ratio_of_bandwidth;
  j["sampling_microseconds"] = p.sampled_seconds * 1e6;
  j["greedy_microseconds"] = p.greedy_seconds * 1e6;
  return j;
}

// The median over the points of what a choice takes, in microseconds: by the sampler, and by Argmax.
std::pair<double, double> Sampling(const SpeedReport& r) {
  std::vector<double> sampled, greedy;
  for (const DecodeSpeed& p : r.decode) {
    sampled.push_back(p.sampled_seconds * 1e6);
    greedy.push_back(p.greedy_seconds * 1e6);
  }
  if (sampled.empty()) return {0, 0};
  const auto median = [](std::vector<double>& v) {
    std::nth_element(v.begin(), v.begin() + static_cast<ptrdiff_t>(v.size() / 2), v.end());
    return v[v.size() / 2];
  };
  return {median(sampled), median(greedy)};
}

double PerSecond(uint64_t bytes, double seconds) { return seconds > 0 ? static_cast<double>(bytes) / seconds : 0; }

std::string Giga(double x) { return Fixed(x / 1e9, 2); }
std::string Percent(double x) { return Fixed(100 * x, 1) + " %"; }
std::string Rate(double x) { return Fixed(x, x < 1000 ? 2 : 1); }
struct Tables {
  TableFormat format;
  std::string text = {};

  void Line(const std::string& line) { text += line + "\n"; }
  void Add(const Table& table) {
    if (!table.rows.empty())
      text += (text.ends_with("\n\n") ? "" : "\n") + Render(table, format, format == TableFormat::kText ? OutputWidth(0) : 0);
  }
};

std::string Kept(const SpeedPoint& p) {
  return std::to_string(p.kept) + "/" + std::to_string(p.rounds) + (p.kept == 0 ? "*" : "");
}

Table RoofTable(const SpeedReport& r) {
  const bool peaks = !r.prefill.empty(), bandwidth = !r.decode.empty();
  Table t{"roofs", {"threads"}, {}, {}};
  if (bandwidth) t.columns.push_back("read GB/s");
  if (peaks) t.columns.insert(t.columns.end(), {"f32 GFLOP/s", "bf16 GFLOP/s", "int8 GOP/s", "int8 x 4-bit GOP/s"});
  for (const MeasuredRoofs& m : r.roofs) {
    std::vector<Cell> row = {std::to_string(m.threads)};
    if (bandwidth) row.push_back(Giga(m.bandwidth));
    if (peaks) {
      row.insert(row.end(),
                 {Giga(m.peaks.f32), m.peaks.bf16 > 0 ? Giga(m.peaks.bf16) : "-", Giga(m.peaks.int8), Giga(m.peaks.int8_narrow)});
    }
    t.rows.push_back(std::move(row));
  }
  return t;
}

Table PrefillTable(const SpeedReport& r) {
  Table t{"prefill", {"tokens", "depth", "threads", "kv", "tokens/s", "spread", "GFLOP/s", "of peak", "rounds"}, {}, {}};
  const bool streams = AnyStreams(r.prefill);
  if (streams) t.columns.insert(t.columns.end(), {"experts hit", "disk MB/token"});
  for (const PrefillSpeed& p : r.prefill) {
    t.rows.push_back({std::to_string(p.tokens), std::to_string(p.depth), std::to_string(p.threads), KvName(p.kv),
                      Rate(p.rate.median), PlusMinus(p), Giga(p.flops / static_cast<double>(p.tokens) * p.rate.median),
                      Percent(p.ratio_of_peak), Kept(p)});
    if (streams) AddDisk(p, t.rows.back());
  }
  return t;
}

Table DecodeTable(const SpeedReport& r) {
  Table t{"decode",
          {"tokens", "depth", "batch", "threads", "kv", "tokens/s", "spread", "MB/token", "GB/s", "of bandwidth", "rounds"},
          {},
          {}};
  const bool streams = AnyStreams(r.decode);
  if (streams) t.columns.insert(t.columns.end(), {"experts hit", "disk MB/token"});
  for (const DecodeSpeed& p : r.decode) {
    t.rows.push_back({std::to_string(p.tokens), std::to_string(p.depth), std::to_string(p.batch), std::to_string(p.threads),
                      KvName(p.kv), Rate(p.rate.median), PlusMinus(p), Fixed(p.bytes_per_token / 1e6, 2),
                      Giga(p.bytes_per_token * p.rate.median), Percent(p.ratio_of_bandwidth), Kept(p)});
    if (streams) AddDisk(p, t.rows.back());
  }
  return t;
}

std::string Instructions(const ArithmeticPeaks& p) {
  std::string text;
  std::set<std::string> seen;
  for (const char* name : {p.f32_instruction, p.bf16_instruction, p.int8_instruction, p.int8_narrow_instruction}) {
    if (*name != '\0' && seen.insert(name).second) text += (text.empty() ? "" : ", ") + std::string(name);
  }
  return text;
}

// The points of a document as flat records; `record` says of which kind.
std::vector<Json> Records(const Json& document) {
  std::vector<Json> records;
  for (const char* kind : {"prefill", "decode"}) {
    for (const Json& point : document.Find(kind)->items()) {
      Json record = {{"record", kind}};
      record.Update(point);
      records.push_back(std::move(record));
    }
  }
  return records;
}

}  // namespace

Json BenchJson(const BenchRun& run, const SpeedReport& r) {
  const auto [sampled, greedy] = Sampling(r);
  const SamplingOptions defaults;
  return {{"model", run.model},
          {"description", run.loaded->Description()},
          {"weight_types", JoinTypes(run.loaded->matrix_types())},
          {"threads", r.roofs.back().threads},
          {"target", r.target},
          {"used_blas", r.used_blas},
          {"repetitions", run.rounds},
          {"verified", r.verified},
          {"roofs", PeaksJson(r.roofs.back())},
          {"roofs_by_threads", Json::ListOf(r.roofs, PeaksJson)},
          {"prefill", Json::ListOf(r.prefill, PrefillJson)},
          {"decode", Json::ListOf(r.decode, DecodeJson)},
          {"sampling",
           {{"microseconds_per_token", sampled},
            {"greedy_microseconds_per_token", greedy},
            {"top_k", defaults.top_k},
            {"top_p", defaults.top_p},
            {"min_p", defaults.min_p},
            {"temperature", defaults.temperature}}},
          {"load",
           {{"seconds", run.load.seconds},
            {"stored_bytes", run.load.stored_bytes},
            {"packed_bytes", r.memory.packed_weights},
            {"stored_bytes_per_second", PerSecond(run.load.stored_bytes, run.load.seconds)},
            {"packed_bytes_per_second", PerSecond(r.memory.packed_weights, run.load.seconds)}}},
          {"memory_bytes",
           {{"packed_weights", r.memory.packed_weights},
            {"kv", r.memory.kv},
            {"scratch", r.memory.scratch},
            {"planned", r.memory.total()},
            {"peak_resident", r.peak_resident}}}};
}

std::string BenchJsonLines(const BenchRun& run, const SpeedReport& report) {
  Json document = BenchJson(run, report);
  document["tally"] = Maker();
  Json head = {{"record", "run"}};
  for (const auto& [key, value] : document.members()) {
    if (key != "prefill" && key != "decode") head[key] = value;
  }
  std::string text = JsonLine(head);
  for (const Json& record : Records(document)) text += JsonLine(record);
  return text;
}

std::string BenchCsv(const BenchRun& run, const SpeedReport& report) {
  return MarkedCsv(CsvText(Records(BenchJson(run, report))));
}

std::string BenchTables(const BenchRun& run, const SpeedReport& r, TableFormat format) {
  Tables out{format};
  const bool markdown = format == TableFormat::kMarkdown;
  const auto paragraph = [&](const std::string& text) { out.Line(text + (markdown ? "\n" : "")); };
  paragraph(Printable(run.loaded->Description()));
  paragraph(r.target + " kernels" + (r.used_blas ? " and OpenBLAS" : "") + ", medians of " + std::to_string(run.rounds) +
            (run.rounds == 1 ? " round" : " rounds"));
  paragraph("checked: " + r.verified);
  paragraph("loaded in " + Fixed(run.load.seconds, 2) + " s: " + Giga(PerSecond(run.load.stored_bytes, run.load.seconds)) +
            " GB/s of the files, " + Giga(PerSecond(r.memory.packed_weights, run.load.seconds)) + " GB/s of packed weights");
  out.Add(RoofTable(r));
  if (!r.prefill.empty()) out.Line((markdown ? "\n" : "  ") + Instructions(r.roofs.back().peaks));
  out.Add(PrefillTable(r));
  out.Add(DecodeTable(r));
  out.Line("");
  if (AnyMoved(r)) paragraph("*: the roofs moved by more than 10 % in every round: figures of all rounds");
  paragraph("spread: half of the range of the rounds kept; their roofs moved by at most 10 %" + SpreadNote(r));
  if (!r.prefill.empty()) paragraph("prefill: linear and attention, one head row");
  if (!r.decode.empty()) {
    const auto [sampled, greedy] = Sampling(r);
    const SamplingOptions defaults;
    paragraph("decode: packed weights and KV, read and written");
    paragraph("the greatest logit of each row is found in " + Fixed(greedy, 1) + " us");
    paragraph("sampling instead: " + Fixed(sampled, 1) + " us a token (top-k " + std::to_string(defaults.top_k) + ", temp " +
              Fixed(defaults.temperature, 1) + ", top-p " + Fixed(defaults.top_p, 2) + ", min-p " + Fixed(defaults.min_p, 2) +
              ")");
  }
  const double planned = static_cast<double>(std::max<uint64_t>(1, r.memory.total()));
  paragraph("memory: peak " + BytesText(r.peak_resident) + ", planned " + BytesText(r.memory.total()) + " (" +
            Fixed(static_cast<double>(r.peak_resident) / planned, 3) + " times that)");
  return out.text;
}

}  // namespace tally::app
