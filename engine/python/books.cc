// SPDX-License-Identifier: Apache-2.0
// Counting, fitting, and writing random checkpoints: what needs no engine.
#include <pybind11/stl.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/python/options.h"

namespace tally::python {
namespace {

py::dict TableOf(const Table& table) {
  py::list rows, values;
  for (const std::vector<Cell>& row : table.rows) {
    py::list shown, stands_for;
    for (const Cell& cell : row) {
      shown.append(Text(cell.text));
      stands_for.append(cell.value.IsNull() ? py::object(Text(cell.text)) : ToPython(cell.value));
    }
    rows.append(shown);
    values.append(stands_for);
  }
  py::dict made;
  made["title"] = Text(table.title);
  made["columns"] = table.columns;
  made["rows"] = rows;
  made["values"] = values;
  made["text"] = Text(Render(table, TableFormat::kText));
  return made;
}

py::list TablesOf(const std::vector<Table>& tables) {
  py::list list;
  for (const Table& table : tables) list.append(TableOf(table));
  return list;
}

CountedModel CountOf(const std::string& model, const py::dict& given) {
  Options options(given, "count()");
  CountRequest request{.model = model};
  options.Read("settings", request.settings);
  options.Read("context", request.options.context);
  options.Read("prompt", request.options.prompt);
  options.Read("batch", request.options.batch);
  std::string type;
  options.Read("type", type);
  std::string name;
  options.Read("name", name);
  options.End();
  request.type_given = !type.empty();
  Result<CountedModel> counted = BadInput("");
  {
    const Unlocked unlocked;
    counted = CountModel(request);
    if (counted.ok() && !type.empty()) counted = CountedAs(*counted, type);
  }
  CountedModel made = Unwrap(std::move(counted));
  if (!name.empty()) made.name = name;
  return made;
}

py::list FiguresOf(const CountedModel& model) {
  Result<ReportData> data = ReportOf(model);
  Check(data.status());
  py::list figures;
  for (const ReportFigure& figure : RenderFigures(*data)) figures.append(py::make_tuple(Text(figure.name), Text(figure.svg)));
  return figures;
}

FitMachine MachineOf(const std::string& machine, int threads, bool measure) {
  if (!machine.empty()) return Unwrap(ParseMachine(machine));
  MarkThreads();
  Result<FitMachine> measured = FitMachine();
  {
    const Unlocked unlocked;
    measured = MeasureMachine(CacheDirectory(), threads, measure);
  }
  return Unwrap(std::move(measured));
}

py::dict Fit(const std::vector<std::pair<std::string, std::string>>& models, const py::dict& given) {
  Options options(given, "fit()");
  FitPage page;
  std::string machine, type;
  int32_t threads = 0;
  bool measure = false;
  options.Read("context", page.options.context);
  options.Read("prompt", page.options.prompt);
  options.Read("batch", page.options.batch);
  options.ReadName("kv", page.options.kv, kKvTypeNames);
  options.Read("machine", machine);
  options.Read("threads", threads);
  options.Read("measure", measure);
  options.Read("type", type);
  options.End();
  std::vector<CountedModel> counted;
  for (const auto& [path, name] : models) {
    CountedModel& model = counted.emplace_back(CountOf(path, py::dict(py::arg("type") = type, py::arg("name") = name)));
    if (const std::string_view preset = PresetOf(model); type.empty() && !preset.empty()) model.stored_as = preset;
  }
  page.machine = MachineOf(machine, threads, measure);
  std::vector<FittedModel> fitted;
  for (size_t i = 0; i < counted.size(); ++i) {
    fitted.push_back(FitTypes(counted[i], models[i].first, type.empty(), page));
    if (!fitted.back().rows[0].fit) Throw(BadInput(fitted.back().name + ": " + fitted.back().rows[0].why));
  }
  py::dict made;
  made["document"] = ToPython(FitDocument(page, fitted));
  made["text"] = Text(fitted.size() == 1 ? FitText(page, fitted[0], 80) : FitTableText(page, fitted, 100, /*largest=*/false));
  return made;
}

py::dict WriteSynth(const std::string& model, const std::string& path, const py::dict& given) {
  Options options(given, "synth()");
  SynthOptions synth;
  std::string type;
  options.Read("type", type);
  options.Read("seed", synth.seed);
  options.Read("vocab_from", synth.vocab_from);
  options.Read("layers", synth.layers);
  options.Read("vocab", synth.vocab);
  options.Read("prediction", synth.prediction);
  options.End();
  if (!type.empty()) synth.type = Unwrap(ParseWeightType(type));
  synth.progress = [](uint64_t, uint64_t) {
    const Locked locked;
    return !SignalRaised();
  };
  Result<SynthReport> report = SynthReport();
  {
    const Unlocked unlocked;
    report = Synthesize(model, path, synth);
  }
  const SynthReport made = Unwrap(std::move(report));
  return py::dict(py::arg("tensors") = made.tensors, py::arg("parameters") = made.parameters, py::arg("bytes") = made.bytes);
}

// The path of a model that is in the cache of the Hugging Face hub; with `fetch` it is fetched first.
std::string FindModel(const std::string& name, bool configuration, bool fetch) {
  const auto value_of = [](const char* variable) -> const char* {
    return std::getenv(variable);  // NOLINT(concurrency-mt-unsafe): Python changes the environment under its lock, which is held
  };
  const hub::Settings settings = Unwrap(hub::ReadSettings(value_of));
  const hub::Name parsed = Unwrap(hub::ParseName(name));
  const hub::Want want = configuration ? hub::Want::kConfiguration : hub::Want::kWeights;
  if (fetch) {
    const hub::ProgressCallback progress = [](const hub::Progress&) {
      const Locked locked;
      return !SignalRaised();
    };
    const Status status = [&]() -> Status {
      const Unlocked unlocked;
      TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<hub::Hub> opened, hub::OpenHub(settings));
      TALLY_ASSIGN_OR_RETURN(const hub::Plan plan, opened->MakePlan(parsed, want, progress));
      return opened->Fetch(plan, progress).status();
    }();
    Check(status);
  }
  return Unwrap(hub::FindCached(settings, parsed, want));
}

}  // namespace

void AddBooks(py::module_& module) {
  py::class_<CountedModel>(module, "Counted")
      .def_readonly("name", &CountedModel::name)
      .def("document",
           [](const CountedModel& m) {
             return ToPython(CountDocument({&m, 1})["models"][size_t{0}]);
           })
      .def("tables",
           [](const CountedModel& m, bool layers) {
             return TablesOf(CountTables({&m, 1}, layers));
           })
      .def("csv",
           [](const CountedModel& m, bool layers) {
             return Text(Unwrap(CountCsv({&m, 1}, {.layers = layers, .claims = true})));
           })
      .def("text", [](const CountedModel& m, size_t width) { return Text(CountScreen(m, width)); })
      .def("figures", &FiguresOf);
  module.def("count", &CountOf);
  module.def("fit", &Fit);
  module.def("synth", &WriteSynth);
  module.def("find_model", &FindModel);
  module.def("known_models", [] {
    py::list names;
    for (const std::string_view name : KnownModels()) names.append(Text(name));
    return names;
  });
  module.def("known_model_runs", [](const std::string& name) { return KnownModelRuns(name); });
}

}  // namespace tally::python
