// SPDX-License-Identifier: Apache-2.0
// The lines of a ledger file, read.
#include <cerrno>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/json.h"
#include "engine/base/system_error.h"
#include "engine/studies/expert_replay.h"
#include "engine/studies/op_lines.h"
#include "engine/studies/report.h"

namespace tally {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 8;
constexpr size_t kMaxMembers = 4096;  // of an object: each is searched for among the others
constexpr size_t kMaxLine = size_t{64} << 20;
// What a file may claim, so that reading it takes no more memory than it justifies.
constexpr uint64_t kMaxSlices = uint64_t{1} << 20, kMaxRows = uint64_t{1} << 21, kMaxCols = uint64_t{1} << 24;
constexpr uint64_t kMaxSliceRows = uint64_t{1} << 29;  // of all tensors
constexpr size_t kMaxOps = 256;                        // names of ops
constexpr uint64_t kMaxPositions = uint64_t{1} << 40;

// The index of `name` in a list; nothing where it is not in it.
template <class Names>
std::optional<size_t> IndexOf(const Names& names, std::string_view name) {
  const auto at = std::ranges::find(names, name);
  return at == std::end(names) ? std::nullopt : std::optional(static_cast<size_t>(at - std::begin(names)));
}

// Reads fields of an object; the first that is missing or not what is wanted is the error.
class Fields {
 public:
  Fields(const Json& object, Status& status) : object_(object), status_(status) {}

  uint64_t Number(const char* key, uint64_t most = std::numeric_limits<uint64_t>::max()) const {
    const Json* const v = Find(key);
    if (v != nullptr && v->is_number_unsigned() && v->get<uint64_t>() <= most) return v->get<uint64_t>();
    return Wrong(key, "a whole number up to " + std::to_string(most)), 0;
  }
  int32_t Layer() const {
    const Json* const v = Find("layer");
    if (v != nullptr && v->is_number_integer() && *v >= -1 && *v <= (1 << 20)) return v->get<int32_t>();
    return Wrong("layer", "a layer, or -1"), -1;
  }
  double Rate(const char* key) const {
    const Json* const v = Find(key);
    if (v != nullptr && v->is_number() && (v->get<double>() == 0 || v->get<double>() >= 1) && v->get<double>() < 1e18)
      return v->get<double>();
    return Wrong(key, "a rate"), 0;
  }
  std::string Text(const char* key) const {
    const Json* const v = Find(key);
    if (v != nullptr && v->is_string()) return v->get<std::string>();
    return Wrong(key, "a text"), "";
  }
  const Json& Array(const char* key) const { return Nested(key, false); }
  const Json& Object(const char* key) const { return Nested(key, true); }
  // The index of the text in a list of names.
  template <class Names>
  size_t OneOf(const char* key, const Names& names) const {
    const std::optional<size_t> at = IndexOf(names, Text(key));
    if (!at) Wrong(key, "a name that is known");
    return at.value_or(0);
  }
  Component OfComponent() const {
    const std::string text = Text("component");
    for (int c = 0; c < kComponents; ++c) {
      if (ComponentName(static_cast<Component>(c)) == text) return static_cast<Component>(c);
    }
    return Wrong("component", "a component that is known"), Component::kEmbedding;
  }
  bool Flag(const char* key) const {
    const Json* const v = Find(key);
    if (v != nullptr && v->is_boolean()) return v->get<bool>();
    return Wrong(key, "true or false"), false;
  }
  void Wrong(const char* key, const std::string& wanted) const {
    if (status_.ok()) status_ = BadInput(Quote(key) + " is not " + wanted);
  }

 private:
  const Json* Find(const char* key) const {
    const auto at = object_.find(key);
    return at != object_.end() ? &*at : nullptr;
  }
  const Json& Nested(const char* key, bool object) const {
    static const Json none_array = Json::array(), none_object = Json::object();
    const Json* const v = Find(key);
    if (v != nullptr && (object ? v->is_object() : v->is_array())) return *v;
    Wrong(key, object ? "an object" : "an array");
    return object ? none_object : none_array;
  }
  const Json& object_;
  Status& status_;
};

WeightInfo ReadTensor(const Json& j, Status& status) {
  const Fields f(j, status);
  WeightInfo w;
  w.name = f.Text("name");
  w.layer = f.Layer();
  w.component = f.OfComponent();
  w.kind = static_cast<WeightInfo::Kind>(f.OneOf("kind", kWeightKinds));
  w.experts = f.Flag("experts");
  w.stored_bytes = f.Number("stored_bytes", kMaxPositions << 10);
  w.packed_bytes = f.Number("packed_bytes", kMaxPositions << 10);
  const Json& shape = f.Array("shape");
  const uint64_t most[] = {kMaxSlices, kMaxRows, kMaxCols};
  bool good = shape.size() == 3;
  for (size_t i = 0; good && i < 3; ++i) good = shape[i].is_number_unsigned() && shape[i] >= 1 && shape[i] <= most[i];
  if (!good) return f.Wrong("shape", "[slices, rows, columns]"), w;
  w.slices = shape[0].get<uint32_t>();
  w.rows = shape[1].get<uint64_t>();
  w.cols = shape[2].get<uint64_t>();
  return w;
}

ReportRoofs ReadRoofs(const Json& j, Status& status) {
  const Fields f(j, status);
  ReportRoofs roofs;
  roofs.known = true;
  roofs.threads = static_cast<int>(f.Number("threads", 1 << 20));
  roofs.read = f.Rate("read");
  roofs.how = f.Text("how");
  const Json& peaks = f.Object("peaks");
  const Fields rates(peaks, status);
  for (const auto& [type, rate] : peaks.items()) roofs.peaks.push_back({type, rates.Rate(type.c_str())});
  return roofs;
}

RunInfo ReadRun(const Json& j, Status& status) {
  const Fields f(j, status);
  RunInfo i;
  i.known = true;
  i.command = f.Text("command");
  i.model = f.Text("model");
  i.description = f.Text("description");
  i.version = f.Text("tally");
  i.date = f.Text("date");
  i.machine = f.Text("processor");
  i.target = f.Text("target");
  i.threads = static_cast<int32_t>(f.Number("threads", 1 << 20));
  i.kv = f.Text("kv");
  i.context = f.Number("context", kMaxPositions);
  i.attention_width = f.Number("attention_width", uint64_t{1} << 40);
  i.n_experts = f.Number("experts", kMaxSlices);
  i.top_k = f.Number("top_k", i.n_experts);
  const Fields not_run(f.Object("not_run"), status);
  i.not_run = not_run.Number("parameters");
  i.not_run_names = not_run.Text("names");
  uint64_t slices = 0, rows = 0;
  for (const Json& t : f.Array("tensors")) {
    i.weights.push_back(ReadTensor(t, status));
    slices += i.weights.back().slices;
    rows += i.weights.back().slices * i.weights.back().rows;
    if (i.weights.back().experts && i.weights.back().slices != i.n_experts) f.Wrong("tensors", "of as many experts as the model");
  }
  if (slices > kMaxSlices || rows > kMaxSliceRows) f.Wrong("tensors", "of a model: too many slices or rows");
  for (const Json& form : f.Array("forms")) {
    const Fields g(form, status);
    i.forms.push_back({g.Text("group"), g.Text("name"), g.Text("form"), g.Number("value"), g.Number("times")});
  }
  for (const Json& symbol : f.Array("symbols")) {
    const Fields g(symbol, status);
    i.symbols.push_back({g.Text("name"), g.Text("meaning"), g.Number("value")});
  }
  for (const Json& text : f.Array("absent")) {
    if (text.is_string()) i.absent.push_back(text.get<std::string>());
  }
  if (j.contains("roofs")) i.roofs = ReadRoofs(f.Object("roofs"), status);
  return i;
}

class LedgerReader {
 public:
  explicit LedgerReader(std::string path) : path_(std::move(path)) {}

  Result<RunReport> Read() {
    errno = 0;
    std::ifstream file(path_, std::ios::binary);
    if (!file) return SystemError(path_ + ": cannot be read", errno != 0 ? errno : EIO);
    std::optional<RunReport> report;
    uint64_t number = 0;
    for (std::string line; ReadLine(file, line);) {
      ++number;
      if (line.size() > kMaxLine) return At(number, BadInput("the line is longer than any of a ledger"));
      const Result<Json> parsed = ReadJson<Json>("", line, {.depth = kMaxDepth, .members = kMaxMembers});
      if (!parsed.ok() && file.eof() && report) break;  // the beginning of a line, by a run that was killed
      TALLY_RETURN_IF_ERROR(At(number, parsed.status()));
      const Json& j = *parsed;
      Status status;
      if (Fields(j, status).Number("version") != kLedgerVersion && status.ok()) {
        status = BadInput("a ledger of version " + j["version"].dump() + "; this program reads version " +
                          std::to_string(kLedgerVersion));
      }
      if (!report && status.ok()) report = Begin(j, status);
      TALLY_RETURN_IF_ERROR(At(number, status));
      AddLine(j, *report, status);
      TALLY_RETURN_IF_ERROR(At(number, status));
    }
    if (file.bad()) return BadInput(path_ + ": cannot be read");
    if (!report) return BadInput(path_ + ": an empty file: no ledger");
    return std::move(*report);
  }

 private:
  // One line, or kMaxLine + 1 bytes of a longer one. False: there is none.
  static bool ReadLine(std::istream& file, std::string& line) {
    line.clear();
    for (int c; line.size() <= kMaxLine;) {
      c = file.get();
      if (c == std::istream::traits_type::eof()) return !line.empty();
      if (c == '\n') return true;
      line.push_back(static_cast<char>(c));
    }
    return true;
  }
  Status At(uint64_t line, const Status& status) const {
    if (status.ok()) return {};
    std::string message = status.message();
    if (message.starts_with(": ")) message.erase(0, 2);
    return {status.code(), path_ + ", line " + std::to_string(line) + ": not a line of --ledger: " + message};
  }

  std::optional<RunReport> Begin(const Json& j, Status& status) {
    RunInfo info;
    const Fields f(j, status);
    if (j.contains("run")) {
      info = ReadRun(f.Object("run"), status);
    } else {
      info.target = f.Text("target");
    }
    if (!status.ok()) return std::nullopt;
    for (size_t i = 0; i < info.weights.size(); ++i) ids_.emplace(info.weights[i].name, static_cast<WeightId>(i));
    return RunReport(std::move(info));
  }

  // Strings that descriptions refer to.
  std::string_view Keep(std::string text) { return *kept_.insert(std::move(text)).first; }
  WeightId IdOf(const Json& j, const char* key) const {
    const auto name = j.find(key);
    if (name == j.end() || !name->is_string()) return kNoWeight;
    const auto at = ids_.find(name->get_ref<const std::string&>());
    return at != ids_.end() ? at->second : kNoWeight;
  }

  static void ReadWork(const Json& j, Cost& cost, Status& status) {
    const Fields f(j, status);
    for (const auto& [name, by_type] : f.Object("flops").items()) {
      const size_t c = Of(kWorkClassNames, name, "a class of work", status);
      if (!by_type.is_object()) return f.Wrong(name.c_str(), "an object");
      for (const auto& [type, n] : by_type.items()) {
        const size_t a = Of(kArithNames, type, "a type of arithmetic", status);
        cost.AddFlops(static_cast<WorkClass>(c), Fields(by_type, status).Number(type.c_str()), static_cast<Arith>(a));
      }
    }
    const Json& special = f.Object("special");
    for (const auto& [name, n] : special.items()) {
      const size_t c = Of(kWorkClassNames, name, "a class of work", status);
      cost.AddSpecial(static_cast<WorkClass>(c), Fields(special, status).Number(name.c_str()));
    }
  }
  template <class Names>
  static size_t Of(const Names& names, const std::string& name, const char* wanted, Status& status) {
    const std::optional<size_t> at = IndexOf(names, name);
    if (!at && status.ok()) status = BadInput(Quote(name) + " is not " + wanted);
    return at.value_or(0);
  }

  void ReadOperands(const Json& operands, OpDescription& d, Status& status) {
    for (const Json& o : operands) {
      const Fields f(o, status);
      const size_t role = f.OneOf("role", kOperandRoleNames);
      d.Add(Keep(f.Text("name")), static_cast<OperandRole>(role), Keep(f.Text("type")), {}, IdOf(o, "tensor"));
    }
  }

  // Those that are whole numbers, or lists of them.
  void ReadSettings(const Json& settings, OpDescription& d, Status& status) {
    const auto number = [&](const Json& j) {
      if (!j.is_number_integer() && status.ok()) status = BadInput("\"settings\" has a list of other things than whole numbers");
      return status.ok() ? j.get<int64_t>() : 0;
    };
    for (const auto& [name, value] : settings.items()) {
      if (value.is_number_integer()) d.Set(Keep(name), number(value));
      if (!value.is_array()) continue;
      std::vector<int64_t> list;
      for (const Json& j : value) list.push_back(number(j));
      d.Set(Keep(name), std::move(list));
    }
  }

  static void ReadSequences(const Json& sequences, std::vector<SequenceRows>& out, Status& status) {
    for (const Json& s : sequences) {
      const Fields f(s, status);
      out.push_back({static_cast<int32_t>(f.Number("sequence", 1 << 30)),
                     static_cast<int64_t>(f.Number("position", kMaxPositions)),
                     static_cast<int64_t>(f.Number("rows", kMaxPositions))});
    }
  }

  void ReadTouches(const Json& touched, WeightTouches& out, Status& status) const {
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
    for (const Json& t : touched) {
      const Fields f(t, status);
      const Json& rows = f.Array("rows");
      if (rows.size() != 2 || !rows[0].is_number_unsigned() || !rows[1].is_number_unsigned() || rows[0] > rows[1] ||
          rows[1] > kMost) {
        return f.Wrong("rows", "[first, end]");
      }
      out.push_back({IdOf(t, "tensor"), static_cast<uint32_t>(f.Number("slice", kMost)), rows[0].get<uint32_t>(),
                     rows[1].get<uint32_t>(), static_cast<uint32_t>(f.Number("uses", kMost))});
    }
  }

  void AddLine(const Json& j, RunReport& report, Status& status) {
    const Fields f(j, status);
    OpDescription description;
    Cost useful, executed;
    std::vector<SequenceRows> sequences;
    WeightTouches touches;
    ReadOperands(f.Array("operands"), description, status);
    ReadWork(f.Object("useful"), useful, status);
    ReadWork(f.Object("executed"), executed, status);
    const Json& bytes = f.Object("bytes");
    for (const auto& [kind, n] : bytes.items()) {
      const size_t k = Of(kByteKindNames, kind, "a kind of bytes", status);
      useful.AddBytes(static_cast<ByteKind>(k), Fields(bytes, status).Number(kind.c_str()));
    }
    ReadSequences(f.Array("sequences"), sequences, status);
    ReadTouches(f.Array("touched"), touches, status);
    const uint64_t step = f.Number("step");
    if (any_ && step < step_) f.Wrong("step", "the number of the step before, or a later one");
    any_ = true;
    step_ = step;
    if (ops_.insert(f.Text("op")).second && ops_.size() > kMaxOps) f.Wrong("op", "one of so few that a program has");
    const std::string op = f.Text("op"), implementation = f.Text("implementation"), target = f.Text("target");
    const OpRecord record = {.step = step,
                             .index = f.Number("index"),
                             .phase = static_cast<Phase>(f.OneOf("phase", kPhaseNames)),
                             .sequences = sequences,
                             .logit_rows = static_cast<int64_t>(f.Number("logit_rows", kMaxPositions)),
                             .site = {f.Layer(), f.OfComponent()},
                             .part = j.contains("part") ? f.Number("part", kComponents) : 0,
                             .op = op,
                             .implementation = implementation,
                             .target = target,
                             .threads = static_cast<int>(f.Number("threads", 1 << 20)),
                             .description = description,
                             .useful = useful,
                             .executed = executed,
                             .touches = touches,
                             .start_nanoseconds = f.Number("start_ns", uint64_t{1} << 62),
                             .nanoseconds = f.Number("ns", uint64_t{1} << 62)};
    if (op == "fetch" && status.ok()) {
      ReadSettings(f.Object("settings"), description, status);
      if (status.ok() && IsExpertStep(record)) status = ReadExpertStep(record).status();
    }
    if (status.ok()) report.Add(record);
  }

  const std::string path_;
  std::map<std::string, WeightId> ids_;
  std::set<std::string> kept_, ops_;
  bool any_ = false;
  uint64_t step_ = 0;
};

}  // namespace

Result<RunReport> ReadLedger(const std::string& path) { return LedgerReader(path).Read(); }

}  // namespace tally
