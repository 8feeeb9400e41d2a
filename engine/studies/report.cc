// SPDX-License-Identifier: Apache-2.0
#include "engine/studies/report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "counters/books/books.h"
#include "counters/books/model_count.h"
#include "counters/ledger/touch_set.h"
#include "engine/kernels/formats/weight_format.h"
#include "engine/studies/expert_replay.h"
#include "engine/studies/report_metrics.h"

namespace tally {
namespace {

using Units = std::array<uint64_t, kFitUnits>;

// What an op reads and writes in memory: all but the weights' bytes in the file.
constexpr ByteKind kTraffic[] = {ByteKind::kWeightsPacked,     ByteKind::kKvRead,       ByteKind::kKvWritten,
                                 ByteKind::kStateRead,         ByteKind::kStateWritten, ByteKind::kActivationsRead,
                                 ByteKind::kActivationsWritten};

template <size_t N>
uint64_t BytesOf(const Cost& cost, const ByteKind (&kinds)[N]) {
  uint64_t bytes = 0;
  for (const ByteKind k : kinds) bytes += cost.Bytes(k);
  return bytes;
}

const Operand* FirstWith(const OpDescription& d, OperandRole role) {
  const auto found = std::find_if(d.operands.begin(), d.operands.end(), [&](const Operand& o) { return o.role == role; });
  return found != d.operands.end() ? &*found : nullptr;
}

// Whether int8 products with this op's weights may be summed in 16 bits.
bool IsNarrow(const OpDescription& d) {
  const Operand* const weight = FirstWith(d, OperandRole::kWeight);
  if (weight == nullptr) return false;
  const auto type = std::find_if(kWeightTypes.begin(), kWeightTypes.end(), [&](DType t) { return DTypeName(t) == weight->type; });
  return type != kWeightTypes.end() && FormatOf(*type).narrow;
}

void AddUnits(const Cost& cost, bool narrow, Units& units) {
  constexpr FitUnit kOf[kAriths] = {FitUnit::kF32, FitUnit::kBF16, FitUnit::kInt8};
  for (int a = 0; a < kAriths; ++a) {
    uint64_t n = 0;
    for (int c = 0; c < kWorkClasses; ++c) n += cost.Flops(static_cast<WorkClass>(c), static_cast<Arith>(a));
    const FitUnit unit = narrow && kOf[a] == FitUnit::kInt8 ? FitUnit::kNarrow : kOf[a];
    units[static_cast<size_t>(unit)] += n;
  }
}

// The useful work, products of attention in the type in which they were executed: on matrix tiles bf16.
Cost UsefulAsExecuted(const OpRecord& r) {
  const uint64_t tiles = r.executed.Flops(WorkClass::kAttention, Arith::kBF16);
  if (tiles == 0 || tiles != r.executed.Flops(WorkClass::kAttention)) return r.useful;
  Cost cost;
  r.useful.ForEachEntry([&](size_t entry, uint64_t n) {
    if (entry / kAriths != static_cast<size_t>(WorkClass::kAttention)) cost.AddEntry(entry, n);
  });
  cost.AddFlops(WorkClass::kAttention, r.useful.Flops(WorkClass::kAttention), Arith::kBF16);
  return cost;
}

size_t Index(Component c) { return static_cast<size_t>(c); }
size_t Index(Phase p) { return static_cast<size_t>(p); }

bool IsLearned(const WeightInfo& w) { return w.kind != WeightInfo::Kind::kBuffer; }

std::string TypesOf(const OpDescription& d) {
  const Operand *x = FirstWith(d, OperandRole::kInput), *w = FirstWith(d, OperandRole::kWeight);
  if (x == nullptr) x = FirstWith(d, OperandRole::kInOut);
  if (x == nullptr || w == nullptr) return std::string(x != nullptr ? x->type : w != nullptr ? w->type : "");
  return std::string(x->type) + " x " + std::string(w->type);
}

}  // namespace

struct RunReport::Sums {
  // The charges and times of records.
  struct Sum {
    Cost useful, executed;
    Units useful_units{}, executed_units{};
    uint64_t ns = 0, runs = 0;

    void Add(const OpRecord& r, bool narrow) {
      useful += r.useful;
      executed += r.executed;
      AddUnits(UsefulAsExecuted(r), narrow, useful_units);
      AddUnits(r.executed, narrow, executed_units);
      ns += r.nanoseconds;
      runs += r.part == 0 ? 1 : 0;
    }
    ReportWork Work() const {
      ReportWork w{useful.TotalFlops(), useful.TotalSpecial(), executed.TotalFlops(), executed.TotalSpecial(), {}, ns};
      for (int k = 0; k < kByteKinds; ++k) w.bytes.push_back(useful.Bytes(static_cast<ByteKind>(k)));
      return w;
    }
  };

  explicit Sums(RunInfo i) : info(std::move(i)) {
    for (const WeightInfo& w : info.weights) {
      if (IsLearned(w)) packed += w.packed_bytes;
      if (IsLearned(w)) by_component[Index(w.component)].push_back(w);
    }
    for (size_t c = 0; c < kComponents; ++c) {
      if (!by_component[c].empty()) touched[c] = TouchSet(WeightSlices(info.weights));
    }
    for (size_t id = 0; id < info.weights.size(); ++id) {
      const WeightInfo& w = info.weights[id];
      if (!w.experts || experts.contains(w.layer)) continue;  // a layer's tensors of experts are used alike
      ReportExperts e;
      e.layer = w.layer;
      e.experts = w.slices;
      e.top_k = info.top_k;
      e.tokens.resize(w.slices);
      for (const WeightInfo& other : info.weights) {
        if (other.layer == w.layer && other.experts) e.expert_bytes += other.stored_bytes / other.slices;
      }
      experts.emplace(w.layer, std::pair{static_cast<WeightId>(id), std::move(e)});
    }
  }

  size_t PlaceOf(Component c) {
    const auto at = std::find(order.begin(), order.end(), c);
    if (at == order.end()) order.push_back(c);
    return static_cast<size_t>(std::find(order.begin(), order.end(), c) - order.begin());
  }
  size_t PlaceOfOp(std::string_view op) {
    const auto at = std::find(ops.begin(), ops.end(), op);
    if (at != ops.end()) return static_cast<size_t>(at - ops.begin());
    ops.emplace_back(op);
    return ops.size() - 1;
  }

  void Begin(const OpRecord& r) {
    open = true;
    step = {};
    step.number = r.step;
    step.phase = kPhaseNames[Index(r.phase)];
    phase = r.phase;
    TakeRows(r);
    of_model = false;
    whole = {};
    parts.clear();
    op_ns.clear();
    for (TouchSet& t : touched) t.BeginStep();
    began = r.start_nanoseconds;
  }

  void TakeRows(const OpRecord& r) {
    step.logit_rows = static_cast<uint64_t>(r.logit_rows);
    step.rows = step.context = 0;
    for (const SequenceRows& s : r.sequences) {
      step.rows += static_cast<uint64_t>(s.rows);
      step.context = std::max(step.context, static_cast<uint64_t>(s.position + s.rows));
    }
    ran.assign(r.sequences.begin(), r.sequences.end());
  }

  void Add(const OpRecord& r) {
    if (open && r.step != step.number) End();
    if (!open) Begin(r);
    // A layer for multi-token prediction runs beside steps, on rows of its own. It is never the first.
    if (!of_model && r.site.layer == 0) TakeRows(r), of_model = true;
    const bool narrow = IsNarrow(r.description);
    whole.Add(r, narrow);
    parts[PlaceOf(r.site.component)].Add(r, narrow);
    op_ns[PlaceOfOp(r.op)] += r.nanoseconds;
    span = r.start_nanoseconds + r.nanoseconds - std::min(began, r.start_nanoseconds);
    if (r.op == "fetch") {
      waits = true;
      if (IsExpertStep(r)) TakeExperts(r);
    }
    auto& row = rows[{Index(r.phase), r.site.layer, r.site.component, std::string(r.op), std::string(r.implementation)}];
    row.first.Add(r, narrow);
    if (row.second.empty()) row.second = TypesOf(r.description);
    classes[{Index(r.phase), std::string(r.op)}].Add(r, narrow);
    for (const WeightTouch& t : r.touches) {
      if (t.id < info.weights.size() && IsLearned(info.weights[t.id])) touched[Index(info.weights[t.id].component)].Touch(t);
    }
  }

  void TakeExperts(const OpRecord& r) {
    Result<ExpertStep> read = ReadExpertStep(r);
    const auto layer = experts.find(r.site.layer);
    if (!read.ok()) return;
    if (layer != experts.end()) {
      ReportExperts& e = layer->second.second;
      e.slots = static_cast<uint64_t>(read->slots);
      e.record_bytes = read->record_bytes;
      const ExpertUses uses = read->uses();
      e.reads.push_back({r.step, uses.hits, uses.misses, uses.first_uses});
    }
    expert_steps.push_back(std::move(read).value());
  }

  void End() {
    open = false;
    const size_t p = Index(phase);
    if (waits) step.span_ns = span;
    step.all = whole.Work();
    for (const auto& [place, sum] : parts) {
      step.by_component.resize(std::max(step.by_component.size(), place + 1));
      step.by_component[place] = sum.Work();
    }
    for (const auto& [place, ns] : op_ns) {
      step.ns_by_op.resize(std::max(step.ns_by_op.size(), place + 1));
      step.ns_by_op[place] = ns;
    }
    for (int c = 0; c < kWorkClasses; ++c) {
      step.flops_by_class.push_back(whole.useful.Flops(static_cast<WorkClass>(c)));
      step.executed_flops_by_class.push_back(whole.executed.Flops(static_cast<WorkClass>(c)));
    }
    for (size_t c = 0; c < kComponents; ++c) {
      step.parameters_touched += touched[c].parameters();
      if (phase == Phase::kDecode) touched_decode[c] += touched[c].parameters();
    }
    for (auto& [layer, of] : experts) EndExperts(of.first, of.second);

    PhaseSums& sums = phases[p];
    ++sums.steps;
    sums.rows += step.rows;
    sums.all.useful += whole.useful;
    sums.all.executed += whole.executed;
    sums.all.ns += whole.ns;
    for (size_t u = 0; u < kFitUnits; ++u) {
      sums.all.useful_units[u] += whole.useful_units[u];
      sums.all.executed_units[u] += whole.executed_units[u];
    }
    const double attention = 4.0 * static_cast<double>(info.attention_width) * static_cast<double>(step.context);
    sums.attention_flops += static_cast<double>(step.rows) * attention;
    FindTakenBack();
    steps.push_back(std::move(step));
  }

  // Drafts were taken back if a sequence goes on within the rows that it ran last. The first of these is no draft.
  void FindTakenBack() {
    for (const SequenceRows& s : ran) {
      Last& last = last_of[s.sequence];
      const int64_t end = last.rows.position + last.rows.rows;
      const bool within = s.position > last.rows.position && s.position < end;
      if (within && last.decodes && phase != Phase::kPrefill && last.step < steps.size()) {
        steps[last.step].taken_back += static_cast<uint64_t>(end - s.position);
      }
      last = {s, steps.size(), phase == Phase::kDecode};
    }
  }

  void EndExperts(WeightId id, ReportExperts& e) {
    const TouchSet& set = touched[Index(info.weights[id].component)];
    ReportExperts::Union u{step.number, step.rows, 0, 0};
    for (size_t x = 0; x < e.tokens.size(); ++x) {
      const uint64_t uses = set.uses(id, static_cast<uint32_t>(x));
      e.tokens[x] += uses;
      u.used += uses > 0 ? 1 : 0;
    }
    u.expected = Expected(e, step.rows);
    if (u.used > 0) e.unions.push_back(u);  // the step's rows came by this layer
  }
  static double Expected(const ReportExperts& e, uint64_t rows) {
    return books::UniformExperts(static_cast<double>(e.experts), static_cast<double>(e.top_k), static_cast<double>(rows));
  }

  RunInfo info;
  uint64_t packed = 0;  // bytes of all learned weights
  std::array<std::vector<WeightInfo>, kComponents> by_component;
  std::array<TouchSet, kComponents> touched;  // of the component's weights
  std::array<uint64_t, kComponents> touched_decode{};
  std::map<int32_t, std::pair<WeightId, ReportExperts>> experts;  // by layer; the tensor that is looked at

  // The open step.
  bool open = false, of_model = false;  // of_model: `step` has the rows of the model
  ReportStep step;
  std::vector<SequenceRows> ran;  // its rows
  Phase phase = Phase::kPrefill;
  uint64_t began = 0, span = 0;  // of its first op; until the end of its last one
  Sum whole;
  std::map<size_t, Sum> parts;       // by place in `order`
  std::map<size_t, uint64_t> op_ns;  // by place in `ops`

  std::vector<Component> order;  // as they came
  std::vector<std::string> ops;
  std::vector<ReportStep> steps;
  std::vector<ExpertStep> expert_steps;
  bool waits = false;  // for the disk
  struct Last {
    SequenceRows rows = {};
    size_t step = 0;
    bool decodes = false;
  };
  std::map<int32_t, Last> last_of;  // by sequence: its last step
  struct PhaseSums {
    uint64_t steps = 0, rows = 0;
    double attention_flops = 0;  // sum over rows of 4 L H Q T
    Sum all;
  };
  std::array<PhaseSums, kPhases> phases;
  using RowKey = std::tuple<size_t, int32_t, Component, std::string, std::string>;
  std::map<RowKey, std::pair<Sum, std::string>> rows;  // and types
  std::map<std::pair<size_t, std::string>, Sum> classes;
};

// What the sums of a run say in a report.
class RunReport::Writer {
 public:
  explicit Writer(Sums& sums) : s_(sums), info_(sums.info) {}

  ReportData Write(const std::string& source) {
    Header(source);
    Names();
    Steps();
    for (const auto& [layer, of] : s_.experts) d_.experts.push_back(Whole(of.second));
    d_.roofs = info_.roofs;
    Classes();
    Communication();
    Rows();
    d_.forms = info_.forms;
    d_.symbols = info_.symbols;
    Absent();
    return std::move(d_);
  }

 private:
  void Header(const std::string& source) {
    d_.title = info_.model;
    d_.description = info_.description;
    d_.source = source;
    d_.version = info_.version;
    d_.date = info_.date;
    d_.machine = info_.machine;
    d_.target = info_.target;
    d_.threads = info_.threads;
    if (!info_.command.empty() && !source.starts_with("tally ")) d_.facts.push_back({"command", "tally " + info_.command});
    if (!info_.kv.empty()) d_.facts.push_back({"KV cache", info_.kv});
    if (info_.context > 0) d_.facts.push_back({"context", books::WithThousands(info_.context)});
    d_.not_run = info_.not_run;
    d_.not_run_names = info_.not_run_names;
    for (const std::string_view kind : kByteKindNames) d_.byte_kinds.emplace_back(kind);
  }

  // Of a process among several.
  void Communication() {
    uint64_t all = 0, ns = 0, sent = 0, received = 0;
    for (const auto& [key, sum] : s_.classes) {
      const uint64_t out = sum.useful.Bytes(ByteKind::kSent), in = sum.useful.Bytes(ByteKind::kReceived);
      all += sum.ns;
      ns += out + in > 0 ? sum.ns : 0;
      sent += out;
      received += in;
    }
    if (sent + received == 0) return;
    std::array<char, 64> share{};
    std::snprintf(share.data(), share.size(), "%.1f ms, %.1f %% of the time in the ops; ", static_cast<double>(ns) / 1e6,
                  100 * static_cast<double>(ns) / static_cast<double>(std::max<uint64_t>(all, 1)));
    d_.facts.push_back({"communication of the first process", share.data() + books::WithThousands(sent) + " bytes sent, " +
                                                                  books::WithThousands(received) + " received"});
  }

  void Names() {
    for (size_t c = 0; c < kComponents; ++c) {  // tensors that nothing ran come last
      if (!s_.by_component[c].empty()) (void)s_.PlaceOf(static_cast<Component>(c));
    }
    d_.has_parameters = !info_.weights.empty();
    for (const Component c : s_.order) {
      d_.components.push_back(OfComponent(c));
      for (size_t k = 0; k < kReportConventions; ++k) d_.parameters[k] += d_.components.back().parameters[k];
    }
    for (const WeightInfo& w : info_.weights) d_.tied = d_.tied || w.kind == WeightInfo::Kind::kTiedEmbeddingHead;
    d_.ops = s_.ops;
  }

  ReportComponent OfComponent(Component component) const {
    const std::vector<WeightInfo>& weights = s_.by_component[Index(component)];
    ReportComponent c;
    c.name = ComponentName(component);
    c.tensors = weights.size();
    bool experts = false;
    for (const WeightInfo& w : weights) {
      experts = experts || w.experts;
      c.stored_bytes += w.stored_bytes;
      c.packed_bytes += w.packed_bytes;
    }
    c.part = books::PartName(books::PartOf(component, experts));
    const books::ParameterCounts n = books::CountParameters(weights, static_cast<int32_t>(info_.top_k));
    c.parameters = {n.total,
                    n.active_all,
                    n.active_head,
                    n.active_none,
                    s_.touched_decode[Index(component)],
                    s_.touched[Index(component)].parameters_ever()};
    return c;
  }

  void Steps() {
    const ReportWork none{0, 0, 0, 0, std::vector<uint64_t>(kByteKinds), 0};
    std::array<bool, kWorkClasses> used{};
    for (const ReportStep& step : s_.steps) {
      for (size_t c = 0; c < kWorkClasses; ++c) {
        used[c] = used[c] || step.flops_by_class[c] > 0 || step.executed_flops_by_class[c] > 0;
      }
    }
    const auto keep = [&](std::vector<uint64_t>& by_class) {
      size_t n = 0;
      for (size_t c = 0; c < kWorkClasses; ++c) {
        if (used[c]) by_class[n++] = by_class[c];
      }
      by_class.resize(n);
    };
    for (size_t c = 0; c < kWorkClasses; ++c) {
      if (used[c]) d_.classes.emplace_back(kWorkClassNames[c]);
    }
    d_.steps = std::move(s_.steps);
    for (ReportStep& step : d_.steps) {
      keep(step.flops_by_class);
      keep(step.executed_flops_by_class);
      step.by_component.resize(d_.components.size(), none);
      for (ReportWork& work : step.by_component) work.bytes.resize(kByteKinds);
      step.ns_by_op.resize(d_.ops.size());
    }
    for (size_t p = 0; p < kPhases; ++p) OfPhase(p);
    d_.decode_steps = s_.phases[Index(Phase::kDecode)].steps;
  }

  void OfPhase(size_t p) {
    const Sums::PhaseSums& sums = s_.phases[p];
    if (sums.steps == 0) return;
    d_.phases.push_back({std::string(kPhaseNames[p]), sums.steps, sums.rows, sums.all.Work()});
    MetricInput in;
    in.phase = kPhaseNames[p];
    in.seconds = static_cast<double>(sums.all.ns) / 1e9;
    in.moved = sums.all.useful.MovedBytes();
    if (d_.has_parameters) {
      const uint64_t kv = in.moved - sums.all.useful.Bytes(ByteKind::kWeightsPacked);
      in.dense = s_.packed * sums.steps + kv;
      const auto total = static_cast<double>(d_.parameters[static_cast<size_t>(ReportConvention::kTotal)]);
      in.palm_flops = 2 * total * static_cast<double>(sums.rows) + sums.attention_flops;
    }
    in.useful = sums.all.useful_units;
    in.executed = sums.all.executed_units;
    for (ReportMetric& m : Metrics(in, info_.roofs)) d_.metrics.push_back(std::move(m));
  }

  ReportExperts Whole(ReportExperts e) const {
    e.run_union = static_cast<uint64_t>(std::count_if(e.tokens.begin(), e.tokens.end(), [](uint64_t n) { return n > 0; }));
    uint64_t rows = 0;
    for (const ReportExperts::Union& u : e.unions) rows += u.rows;
    e.run_expected = Sums::Expected(e, rows);
    return e;
  }

  void Classes() {
    for (const auto& [key, sum] : s_.classes) {
      ReportOpClass c{
          std::string(kPhaseNames[key.first]), key.second, sum.runs, sum.Work(), BytesOf(sum.useful, kTraffic), 0, 0, 0, {}};
      const auto flops = static_cast<double>(c.work.flops);
      if (c.bytes > 0) c.intensity = flops / static_cast<double>(c.bytes);
      if (sum.ns > 0) c.per_second = flops * 1e9 / static_cast<double>(sum.ns);
      c.peak = info_.roofs.known ? PeakOfMix(sum.useful_units, info_.roofs) : 0;
      c.peak_name = MixName(sum.useful_units);
      d_.op_classes.push_back(std::move(c));
    }
  }

  void Rows() {
    for (const auto& [key, value] : s_.rows) {
      const auto& [phase, layer, component, op, implementation] = key;
      d_.rows.push_back({std::string(kPhaseNames[phase]), layer, std::string(ComponentName(component)), op, implementation,
                         value.second, value.first.runs, value.first.Work()});
    }
  }

  void Absent() {
    d_.absent = info_.absent;
    if (!info_.known) {
      d_.absent.emplace_back(
          "The ledger does not say of which model it is: parameters, touched parameters, experts, closed forms and the metrics "
          "that "
          "need them are missing.");
    }
    if (!info_.roofs.known) {
      const std::string why = info_.roofs.how.empty() ? "" : " (" + info_.roofs.how + ")";
      d_.absent.push_back("The roofs of the machine are unknown" + why + ": metrics and roofline have no denominator.");
    }
  }

  Sums& s_;
  const RunInfo& info_;
  ReportData d_;
};

RunReport::RunReport(RunInfo info) : sums_(std::make_unique<Sums>(std::move(info))) {}
RunReport::RunReport(RunReport&&) noexcept = default;
RunReport& RunReport::operator=(RunReport&&) noexcept = default;
RunReport::~RunReport() = default;

void RunReport::Add(const OpRecord& record) { sums_->Add(record); }
const RunInfo& RunReport::info() const { return sums_->info; }
std::span<const ExpertStep> RunReport::expert_steps() const { return sums_->expert_steps; }
void RunReport::SetRoofs(ReportRoofs roofs) { sums_->info.roofs = std::move(roofs); }

ReportData RunReport::Finish(const std::string& source) {
  if (sums_->open) sums_->End();
  return Writer(*sums_).Write(source);
}

}  // namespace tally
