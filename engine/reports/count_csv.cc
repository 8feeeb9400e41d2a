// SPDX-License-Identifier: Apache-2.0
#include "engine/reports/count_report.h"

#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/render/json.h"
#include "engine/render/words.h"
#include "engine/reports/part_names.h"
#include "engine/studies/count_figures.h"

namespace tally {
namespace {

using books::Count;
using books::FlopsCount;
using books::FlopsView;
using books::ParameterForm;

class CsvLines {
 public:
  explicit CsvLines(const CountedModel& m) : model_(CsvCell(m.name)) {
    const books::CountOptions& o = m.count.options;
    for (const uint64_t n : {o.context, o.prompt, o.batch}) model_ += "," + std::to_string(n);
    model_ += "," + KvNameOf(m.count);
  }
  template <class Number>
  void Add(std::string_view table, std::string_view row, std::string_view figure, Number value) {
    char digits[32];
    const auto end = std::to_chars(digits, digits + sizeof digits, value).ptr;  // as many as tell it from its neighbours
    text_ += model_ + "," + CsvCell(table) + "," + CsvCell(row) + "," + CsvCell(figure) + "," + std::string(digits, end) + "\n";
  }
  // Of a part no number, and in the figure's name what it lacks.
  template <class T>
  void AddFigure(std::string_view table, std::string_view row, std::string_view name, const books::Figure<T>& figure) {
    if (const std::optional<T> number = figure.number()) return Add(table, row, name, *number);
    text_ += model_ + "," + CsvCell(table) + "," + CsvCell(row) + "," +
             CsvCell(std::string(name) + ", partial: lacks " + Join(figure.lacks(), ", ")) + ",\n";
  }
  const std::string& text() const { return text_; }

 private:
  std::string model_, text_;  // the first columns; the lines
};

constexpr const char* kHeader = "model,context,prompt,batch,kv,table,row,figure,value\n";

void AddTensors(const Count& c, bool layers, CsvLines& out) {
  for (const TensorGroup& g : TensorGroups(c, layers)) {
    const uint64_t each = g.first->count.value();
    out.Add("tensors", g.name, "parameters of one", each);
    out.Add("tensors", g.name, "times", g.n);
    out.Add("tensors", g.name, "parameters", each * g.n);
  }
}

void AddParameters(const CountedModel& m, CsvLines& out) {
  const Count& c = m.count;
  const auto row = [&](const std::string& name, uint64_t n) { out.Add("parameters", name, "parameters", n); };
  if (const auto all = m.all_parameters()) row("total", *all);
  row("total (run)", c.parameters.total);
  row("active(all)", c.parameters.active_all);
  row("active(head)", c.parameters.active_head);
  row("active(none)", c.parameters.active_none);
  row("touched", c.touched);
  row("multi-token prediction", c.prediction);
  for (const PartNotRun& p : m.not_run) {
    if (p.parameters) row("not run: " + p.name, *p.parameters);
  }
  const auto stored = CountParts(c, &ParameterForm::count), active = CountParts(c, &ParameterForm::active);
  for (size_t part = 0; part < books::kParts; ++part) {
    if (stored[part] == 0) continue;
    out.Add("parts", PartName(static_cast<books::Part>(part)), "parameters", stored[part]);
    out.Add("parts", PartName(static_cast<books::Part>(part)), "active(all)", active[part]);
  }
}

void AddBytes(const CountedModel& m, CsvLines& out) {
  const Count& c = m.count;
  const auto row = [&](const std::string& name, uint64_t n) { out.Add("memory", name, "bytes", n); };
  for (const Count::Memory& x : c.memory) row("weights as " + std::string(DTypeName(x.type)), x.bytes);
  row("weights", c.weight_bytes);
  if (const auto all = m.all_bytes()) row("weights, run or not", *all);
  row("weights read by a decode step of one token", c.weight_bytes_per_token);
  row("KV a token", c.kv_bytes_per_token);
  row("KV at the context", c.kv_bytes_at_context);
  out.AddFigure("memory", "KV read at the context", "bytes", c.kv_bytes_read);
  if (c.state_bytes > 0) row("state of a sequence", c.state_bytes);
}

void AddFlops(std::string_view table, const FlopsCount& f, const FlopsCount* last, CsvLines& out) {
  const auto row = [&](std::string_view name, const auto& flops, const books::Figure<uint64_t>& special) {
    for (size_t v = 0; v < books::kFlopsViews; ++v) {
      out.AddFigure(table, name, FlopsViewName(static_cast<FlopsView>(v)), flops(v));
    }
    out.AddFigure(table, name, "special", special);
  };
  const auto value = [](const books::Form& form) { return form.value(); };
  for (const books::FlopsRow& r : f.rows) {
    row(
        PartName(r.part), [&](size_t v) { return r.flops[v].Map(value); }, r.special.Map(value));
  }
  row(
      "all", [&](size_t v) { return f.total[v]; }, f.special);
  if (last != nullptr)
    row(
        "all, head at the last position", [&](size_t v) { return last->total[v]; }, last->special);
}

void AddTraffic(const Count& c, CsvLines& out) {
  const std::pair<const char*, const books::WeightTraffic*> steps[] = {{"prefill", &c.prefill_traffic},
                                                                       {"decode", &c.decode_traffic}};
  for (const auto& [step, t] : steps) {
    out.Add("traffic", step, "weight bytes read, uniform routing", t->uniform);
    out.Add("traffic", step, "weight bytes read, at most", t->most);
    out.Add("traffic", step, "experts a layer reads, uniform routing", t->uniform_experts);
    out.Add("traffic", step, "experts a layer reads, at most", t->most_experts);
  }
  out.AddFigure("traffic", "prefill", "bytes a token", PrefillCost(c).bytes);
  out.AddFigure("traffic", "decode", "bytes a token", DecodeCost(c).bytes);
  out.AddFigure("traffic", "prefill", "FLOPs a byte of weights and KV", c.prefill_intensity);
  out.AddFigure("traffic", "decode", "FLOPs a byte of weights and KV", c.decode_intensity);
}

Status AddTraining(const Count& c, CsvLines& out) {
  TALLY_ASSIGN_OR_RETURN(const books::TrainingCount t, books::CountTraining(c));
  for (const auto& [name, m] : {std::pair{"bytes, F32", t.f32}, std::pair{"bytes, mixed", t.mixed}}) {
    out.Add("training", "weights", name, m.weights);
    out.Add("training", "gradients", name, m.gradients);
    out.Add("training", "F32 copy of the weights", name, m.copy);
    out.Add("training", "AdamW's moments", name, m.moments);
    out.Add("training", "together", name, m.total());
  }
  for (size_t v = 0; v < t.forward.size(); ++v) {
    const std::string_view view = FlopsViewName(static_cast<FlopsView>(v));
    out.Add("training", "forward", view, t.forward[v]);
    out.Add("training", "backward", view, t.backward[v]);
  }
  out.Add("training", "update", "FLOPs", t.update);
  out.Add("training", "update", "special", t.update_special);
  out.Add("training", "6 n a token", "FLOPs", t.kaplan);
  out.Add("training", "6 n + 12 L H D P a token", "FLOPs", t.palm);
  return {};
}

void AddLayers(const Count& c, CsvLines& out) {
  for (const LayerCost& l : LayerCosts(c)) {
    const std::string row = l.layer < 0 ? "outside" : "layer " + std::to_string(l.layer);
    out.Add("layers", row, "parameters", l.parameters);
    out.Add("layers", row, "active(all)", l.active);
    out.Add("layers", row, "KV bytes a position", l.kv_bytes);
    out.AddFigure("layers", row, "prefill FLOPs, matmul, causal", l.prefill_matmul);
    out.AddFigure("layers", row, "prefill FLOPs, everything", l.prefill);
    out.AddFigure("layers", row, "decode FLOPs, matmul, causal", l.decode_matmul);
    out.AddFigure("layers", row, "decode FLOPs, everything", l.decode);
  }
}

void AddResident(const StreamingForecast& f, CsvLines& out) {
  out.Add("resident", "weights", "bytes", f.at.resident);
  out.Add("resident", "budget", "bytes", f.at.budget);
  out.Add("resident", "least budget", "bytes", f.at.least);
  out.Add("resident", "weights outside of records", "bytes", f.model.held());
  out.Add("resident", "records", "bytes", f.model.records());
  out.Add("resident", "slots of a layer", "slots", f.at.slots);
  out.Add("resident", "share", "part", f.at.share);
  for (const StreamingCurve& c : f.curves) {
    const std::string row = "decode, " + std::string(books::kRoutingNames[static_cast<size_t>(c.routing)]);
    out.Add("resident", row, "hit rate", c.hit_rate);
    out.Add("resident", row, "experts", c.decode.chosen);
    out.Add("resident", row, "misses", c.decode.misses);
    out.Add("resident", row, "bytes from disk", c.decode.disk_bytes);
    if (c.bound_rate > 0) out.Add("resident", row, "tokens/s, at most", c.bound_rate);
  }
}

void AddClaims(const CountedModel& m, CsvLines& out) {
  for (const books::ClaimCheck& check : books::CheckPublished(m.count, m.published)) {
    for (const auto& c : check.conventions) {
      const std::string row = check.figure + " " + check.printed;
      out.Add("published figures", row, c.name, c.count);
      out.Add("published figures", row, c.name + " holds", c.agreement != books::Agreement::kNo ? 1 : 0);
    }
  }
}

void AddCounts(const CountedModel& m, bool layers, CsvLines& out) {
  const Count& c = m.count;
  AddTensors(c, layers, out);
  AddParameters(m, out);
  AddBytes(m, out);
  AddFlops("prefill FLOPs", c.prefill, &c.prefill_last, out);
  AddFlops("decode FLOPs", c.decode, nullptr, out);
  AddTraffic(c, out);
  if (!c.expanded) return;
  AddFlops("prefill FLOPs, expanded", c.expanded->prefill, &c.expanded->prefill_last, out);
  AddFlops("decode FLOPs, expanded", c.expanded->decode, nullptr, out);
  out.Add("memory", "KV a token, expanded", "bytes", c.expanded->kv_bytes_per_token);
  out.Add("memory", "KV at the context, expanded", "bytes", c.expanded->kv_bytes_at_context);
}

}  // namespace

Result<std::string> CountCsv(std::span<const CountedModel> models, const CsvTables& tables) {
  std::string text = kHeader;
  for (size_t i = 0; i < models.size(); ++i) {
    const CountedModel& m = models[i];
    CsvLines out(m);
    if (i < tables.resident.size()) AddResident(tables.resident[i], out);
    if (tables.claims) AddClaims(m, out);
    if (tables.counts) AddCounts(m, tables.layers, out);
    if (tables.by_layer) AddLayers(m.count, out);
    if (tables.training) TALLY_RETURN_IF_ERROR(AddTraining(m.count, out));
    text += out.text();
  }
  return text;
}

}  // namespace tally
