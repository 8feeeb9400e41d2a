// SPDX-License-Identifier: Apache-2.0
// Records of ops as lines of a ledger file, rows of CSV and events of a trace.
#include "engine/studies/op_lines.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "engine/studies/report.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

std::string Line(const Json& document) { return document.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json WorkJson(const Cost& cost) {
  Json flops = Json::object(), special = Json::object();
  for (int c = 0; c < kWorkClasses; ++c) {
    Json by_type = Json::object();
    for (int a = 0; a < kAriths; ++a) {
      const uint64_t n = cost.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a));
      if (n > 0) by_type[std::string(kArithNames[a])] = n;
    }
    if (!by_type.empty()) flops[std::string(kWorkClassNames[c])] = std::move(by_type);
    const uint64_t n = cost.Special(static_cast<WorkClass>(c));
    if (n > 0) special[std::string(kWorkClassNames[c])] = n;
  }
  return {{"flops", std::move(flops)}, {"special", std::move(special)}};
}

Json BytesJson(const Cost& cost) {
  Json bytes = Json::object();
  for (int k = 0; k < kByteKinds; ++k) {
    const uint64_t n = cost.Bytes(static_cast<ByteKind>(k));
    if (n > 0) bytes[std::string(kByteKindNames[k])] = n;
  }
  return bytes;
}

Json RunJson(const RunInfo& i) {
  Json tensors = Json::array(), forms = Json::array(), symbols = Json::array();
  for (const WeightInfo& w : i.weights) {
    tensors.push_back({{"name", w.name},
                       {"layer", w.layer},
                       {"component", ComponentName(w.component)},
                       {"kind", kWeightKinds[static_cast<size_t>(w.kind)]},
                       {"experts", w.experts},
                       {"shape", Json::array({w.slices, w.rows, w.cols})},
                       {"stored_bytes", w.stored_bytes},
                       {"packed_bytes", w.packed_bytes}});
  }
  for (const ReportForm& f : i.forms) {
    forms.push_back({{"group", f.group}, {"name", f.name}, {"form", f.formula}, {"value", f.value}, {"times", f.times}});
  }
  for (const ReportSymbol& s : i.symbols) symbols.push_back({{"name", s.name}, {"meaning", s.meaning}, {"value", s.value}});
  Json run = {{"command", i.command},
              {"model", i.model},
              {"description", i.description},
              {"tally", i.version},
              {"date", i.date},
              {"processor", i.machine},
              {"target", i.target},
              {"threads", i.threads},
              {"kv", i.kv},
              {"context", i.context},
              {"attention_width", i.attention_width},
              {"experts", i.n_experts},
              {"top_k", i.top_k},
              {"not_run", {{"parameters", i.not_run}, {"names", i.not_run_names}}},
              {"tensors", std::move(tensors)},
              {"forms", std::move(forms)},
              {"symbols", std::move(symbols)},
              {"absent", i.absent}};
  if (i.roofs.known) {
    Json peaks = Json::object();
    for (const ReportRoofs::Peak& p : i.roofs.peaks) peaks[p.type] = p.per_second;
    run["roofs"] = {{"threads", i.roofs.threads}, {"read", i.roofs.read}, {"peaks", std::move(peaks)}, {"how", i.roofs.how}};
  }
  return run;
}

Json RecordJson(const OpRecord& r, std::span<const WeightInfo> weights) {
  const auto tensor = [&](WeightId id) { return id < weights.size() ? Json(weights[id].name) : Json(); };
  Json sequences = Json::array(), operands = Json::array(), settings = Json::object(), touched = Json::array();
  for (const SequenceRows& s : r.sequences) {
    sequences.push_back({{"sequence", s.sequence}, {"position", s.position}, {"rows", s.rows}});
  }
  for (const Operand& o : r.description.operands) {
    Json operand = {
        {"name", o.name}, {"role", kOperandRoleNames[static_cast<size_t>(o.role)]}, {"type", o.type}, {"shape", o.shape}};
    if (o.role == OperandRole::kWeight) {
      operand["tensor"] = tensor(o.weight);
      if (o.weight < weights.size() && weights[o.weight].rows > 0) {
        const WeightInfo& w = weights[o.weight];
        operand["stored_row_bytes"] = w.stored_row_bytes();
      }
    }
    operands.push_back(std::move(operand));
  }
  for (const auto& [name, value] : r.description.settings) {
    settings[std::string(name)] = std::visit([](const auto& v) { return Json(v); }, value);
  }
  for (const WeightTouch& t : r.touches) {
    touched.push_back(
        {{"tensor", tensor(t.id)}, {"slice", t.slice}, {"rows", Json::array({t.row_begin, t.row_end})}, {"uses", t.uses}});
  }
  Json line = {{"version", kLedgerVersion},
               {"step", r.step},
               {"index", r.index},
               {"phase", kPhaseNames[static_cast<size_t>(r.phase)]},
               {"sequences", std::move(sequences)},
               {"logit_rows", r.logit_rows},
               {"layer", r.site.layer},
               {"component", ComponentName(r.site.component)},
               {"op", r.op},
               {"implementation", r.implementation},
               {"target", r.target},
               {"threads", r.threads},
               {"operands", std::move(operands)},
               {"settings", std::move(settings)},
               {"useful", WorkJson(r.useful)},
               {"executed", WorkJson(r.executed)},
               {"bytes", BytesJson(r.useful)},
               {"touched", std::move(touched)},
               {"start_ns", r.start_nanoseconds},
               {"ns", r.nanoseconds}};
  if (r.part > 0) line["part"] = r.part;
  return line;
}

std::string_view PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

std::string SiteName(Site site) {
  return (site.layer >= 0 ? "layer " + std::to_string(site.layer) + " " : "") + std::string(ComponentName(site.component));
}

int64_t AllRows(const OpRecord& r) {
  int64_t rows = 0;
  for (const SequenceRows& s : r.sequences) rows += s.rows;
  return rows;
}

// "x:int8:8x2880 w:MXFP4:32x2880x2880"
std::string ShapesText(const OpDescription& d) {
  std::string text;
  for (const Operand& o : d.operands) {
    text += (text.empty() ? "" : " ") + std::string(o.name) + ":" + std::string(o.type) + ":";
    for (size_t i = 0; i < o.shape.size(); ++i) text += (i > 0 ? "x" : "") + std::to_string(o.shape[i]);
  }
  return text;
}

// "residual/bias" -> "residual_bias"
std::string Column(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == ' ' || c == '/' ? '_' : c;
  return text;
}

double Microseconds(double nanoseconds) { return nanoseconds / 1000; }  // the clock of a trace counts these

Json SliceEvent(const std::string& name, double begin, uint64_t ns, int track) {
  return {{"name", name}, {"ph", "X"},   {"ts", Microseconds(begin)}, {"dur", Microseconds(static_cast<double>(ns))},
          {"pid", 1},     {"tid", track}};
}

Json OpEvent(Site site, std::string_view op, Phase phase, double begin, uint64_t ns, int track, Json args) {
  Json event = SliceEvent(std::string(ComponentName(site.component)) + " " + std::string(op), begin, ns, track);
  event["cat"] = PhaseName(phase);
  event["args"] = std::move(args);
  return event;
}

// Behind those before it; the first piece of a trace begins with its bracket.
void AddEvent(std::string& text, const Json& event) { text += (text == "[\n" ? "" : ",\n") + Line(event); }

}  // namespace

std::string LedgerLine(const OpRecord& record, std::span<const WeightInfo> weights, const RunInfo* first) {
  Json line = RecordJson(record, weights);
  if (first != nullptr && first->known) line["run"] = RunJson(*first);
  return Line(line);
}

std::string OpCsvHeader() {
  std::string line =
      "step,index,phase,rows,logit_rows,layer,component,op,implementation,target,threads,operands,flops_f32,flops_bf16,flops_"
      "int8,"
      "special,executed_flops,executed_special";
  for (const std::string_view c : kWorkClassNames) line += ",flops_" + Column(c);
  for (const std::string_view k : kByteKindNames) line += ",bytes_" + Column(k);
  return line + ",start_ns,ns\n";
}

std::string OpCsvLine(const OpRecord& r) {
  std::string line;
  const auto word = [&](std::string_view text) { line.append(line.empty() ? "" : ",").append(text); };
  const auto number = [&](auto n) { word(std::to_string(n)); };
  number(r.step);
  number(r.index);
  word(PhaseName(r.phase));
  number(AllRows(r));
  number(r.logit_rows);
  number(r.site.layer);
  word(ComponentName(r.site.component));
  word(r.op);
  word(r.implementation);
  word(r.target);
  number(r.threads);
  word(ShapesText(r.description));
  for (int a = 0; a < kAriths; ++a) {
    uint64_t n = 0;
    for (int c = 0; c < kWorkClasses; ++c) n += r.useful.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a));
    number(n);
  }
  number(r.useful.TotalSpecial());
  number(r.executed.TotalFlops());
  number(r.executed.TotalSpecial());
  for (int c = 0; c < kWorkClasses; ++c) number(r.useful.Flops(static_cast<WorkClass>(c)));
  for (int k = 0; k < kByteKinds; ++k) number(r.useful.Bytes(static_cast<ByteKind>(k)));
  number(r.start_nanoseconds);
  number(r.nanoseconds);
  return line + "\n";
}

std::string OpTrace::Add(const OpRecord& r) {
  if (step_ && r.step != step_number_) EndSlices(true);
  if (layer_ && r.site.layer != layer_number_) EndSlices(false);
  const uint64_t begin = r.start_nanoseconds, end = begin + r.nanoseconds;
  if (!step_) {
    step_number_ = r.step;
    step_ = {std::string(PhaseName(r.phase)) + " " + std::to_string(AllRows(r)) + (AllRows(r) == 1 ? " row" : " rows"), begin,
             end};
  }
  if (!layer_ && r.site.layer >= 0) {
    layer_number_ = r.site.layer;
    layer_ = {"layer " + std::to_string(r.site.layer), begin, end};
  }
  step_->end = end;
  if (layer_) layer_->end = end;
  AddEvent(text_, OpEvent(r.site, r.op, r.phase, static_cast<double>(begin), r.nanoseconds, 1,
                          {{"site", SiteName(r.site)},
                           {"operands", ShapesText(r.description)},
                           {"implementation", r.implementation},
                           {"threads", r.threads},
                           {"useful FLOPs", r.useful.TotalFlops()},
                           {"executed FLOPs", r.executed.TotalFlops()},
                           {"bytes", BytesJson(r.useful)}}));
  const auto counter = [&](const char* name, uint64_t n) {
    const double rate = static_cast<double>(n) / static_cast<double>(r.nanoseconds);
    AddEvent(
        text_,
        {{"name", name}, {"ph", "C"}, {"ts", Microseconds(static_cast<double>(begin))}, {"pid", 1}, {"args", {{name, rate}}}});
  };
  if (r.nanoseconds > 0) {
    counter("GFLOP/s", r.useful.TotalFlops());
    counter("weights and KV read, GB/s", r.useful.Bytes(ByteKind::kWeightsPacked) + r.useful.Bytes(ByteKind::kKvRead));
  }
  return std::exchange(text_, {});
}

void OpTrace::EndSlices(bool step_too) {
  for (std::optional<Slice>* slice : {&layer_, step_too ? &step_ : nullptr}) {
    if (slice == nullptr || !slice->has_value()) continue;
    AddEvent(text_, SliceEvent((*slice)->name, static_cast<double>((*slice)->begin), (*slice)->end - (*slice)->begin, 1));
    slice->reset();
  }
}

std::string OpTrace::End(std::span<const RankOps> others) {
  EndSlices(true);
  for (size_t i = 0; i < others.size(); ++i) {
    const RankOps& rank = others[i];
    const int track = static_cast<int>(i) + 2;
    const std::string cut = rank.left_out > 0 ? ", without its last " + std::to_string(rank.left_out) + " ops" : "";
    AddEvent(text_, {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track}, {"args", {{"name", rank.process + cut}}}});
    for (const RankOp& op : rank.ops) {
      AddEvent(text_, OpEvent(op.site, op.op, op.phase, static_cast<double>(op.start_nanoseconds), op.nanoseconds, track,
                              {{"site", SiteName(op.site)},
                               {"useful FLOPs", op.flops},
                               {"bytes read", op.bytes},
                               {"bytes sent", op.sent},
                               {"bytes received", op.received}}));
    }
  }
  return std::exchange(text_, {}) + "\n]\n";
}

}  // namespace tally
