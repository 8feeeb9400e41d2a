// SPDX-License-Identifier: Apache-2.0
#include "engine/python/runs.h"

#include <fnmatch.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <span>
#include <utility>

#include "engine/python/options.h"

namespace tally::python {
namespace {

using Interrupted = Job::Interrupted;

// Floats that an array takes over.
struct Buffer {
  std::unique_ptr<float[]> data = {};
  std::vector<py::ssize_t> shape = {};
};

Result<Buffer> NewBuffer(std::vector<py::ssize_t> shape) {
  size_t n = 1;
  for (const py::ssize_t size : shape) {
    if (__builtin_mul_overflow(n, static_cast<size_t>(size), &n)) return NoRoom("not enough memory for the result");
  }
  if (n > SIZE_MAX / sizeof(float)) return NoRoom("not enough memory for the result");
  Buffer buffer{std::unique_ptr<float[]>(new (std::nothrow) float[n]), std::move(shape)};
  if (buffer.data == nullptr) return NoRoom("not enough memory for the result: " + std::to_string(n * sizeof(float)) + " bytes");
  return buffer;
}

// Without a copy: the array owns the floats.
py::array ToArray(Buffer buffer) {
  float* const data = buffer.data.release();
  const py::capsule owner(data, [](void* floats) { delete[] static_cast<float*>(floats); });
  return py::array_t<float>(buffer.shape, data, owner);
}

struct Wanted {
  int64_t logits_from = 0;  // rows from here on want logits
  bool hidden = false;
  bool reuse = false;  // rows before logits_from that another such run had need not run again
};

// Runs the tokens through a new sequence, in pieces. `take` gets the first row of each piece, how many, and what came.
Status RunTokens(Engine& engine, std::span<const int32_t> tokens, const Wanted& wanted, const Interrupted& interrupted,
                 const std::function<Status(int64_t first, int64_t rows, const StepOutput& out)>& take) {
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  constexpr const char* kKey = "tally.score";
  const std::span<const int32_t> before = tokens.first(wanted.reuse ? static_cast<size_t>(wanted.logits_from) : 0);
  TALLY_ASSIGN_OR_RETURN(const int32_t sequence, !before.empty() ? engine.NewSequenceFor(kKey, before) : engine.NewSequence());
  const std::shared_ptr<void> freed(nullptr, [&](void*) { engine.Free(sequence); });
  const int64_t n = static_cast<int64_t>(tokens.size());
  std::vector<BatchRow> rows;
  for (int64_t first = engine.Length(sequence); first < n; first += static_cast<int64_t>(rows.size())) {
    if (interrupted()) return {StatusCode::kInterrupted, "interrupted"};
    rows.clear();
    int64_t with_logits = 0;
    for (int64_t i = first; i < n && static_cast<int64_t>(rows.size()) < engine.max_batch(); ++i) {
      const bool logits = i >= wanted.logits_from;
      if (logits && ++with_logits > engine.max_logit_rows()) break;
      if (wanted.reuse && i == wanted.logits_from && !rows.empty()) break;  // a state is remembered where a step ends
      rows.push_back(
          {.token = tokens[static_cast<size_t>(i)], .sequence = sequence, .want_logits = logits, .want_hidden = wanted.hidden});
    }
    TALLY_ASSIGN_OR_RETURN(const StepOutput out, engine.Step(rows));
    if (const Status* const error = out.ErrorOf(sequence)) return *error;
    if (wanted.reuse) engine.Remember(sequence, kKey, tokens.first(static_cast<size_t>(first) + rows.size()), /*states=*/1);
    TALLY_RETURN_IF_ERROR(take(first, static_cast<int64_t>(rows.size()), out));
  }
  return {};
}

void CopyRows(Mat<const float> from, float* to) {
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(to + r * from.cols, from.Row(r), static_cast<size_t>(from.cols) * sizeof(float));
}

py::array Logits(ModelState& model, const py::object& given, bool last) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  return ToArray(model.OnEngine<Buffer>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) -> Result<Buffer> {
    const py::ssize_t n = static_cast<py::ssize_t>(tokens.size()), vocab = engine.model().sizes().vocab;
    const int64_t from = last ? n - 1 : 0;
    TALLY_ASSIGN_OR_RETURN(Buffer buffer, last ? NewBuffer({vocab}) : NewBuffer({n, vocab}));
    TALLY_RETURN_IF_ERROR(RunTokens(engine, tokens, {.logits_from = from}, interrupted,
                                    [&](int64_t first, int64_t rows, const StepOutput& out) -> Status {
                                      CopyRows(out.logits, buffer.data.get() + std::max<int64_t>(first - from, 0) * vocab);
                                      (void)rows;
                                      return {};
                                    }));
    return buffer;
  }));
}

// The log probability of each token from `from` on, and whether each is the most probable one.
py::tuple Score(ModelState& model, const py::object& given, int64_t from) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  const int64_t n = static_cast<int64_t>(tokens.size());
  if (from < 1 || from > n)
    Throw(BadInput("the first token has no probability, as none precedes it: score from 1 to the number of tokens"));
  using Scores = std::pair<std::vector<double>, std::vector<bool>>;
  const Scores scores =
      model.OnEngine<Scores>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) -> Result<Scores> {
        Scores made;
        if (from == n) return made;
        // The last token is not run: nothing is asked of it.
        const std::span<const int32_t> run = std::span(tokens).first(tokens.size() - 1);
        TALLY_RETURN_IF_ERROR(RunTokens(engine, run, {.logits_from = from - 1, .reuse = true}, interrupted,
                                        [&](int64_t first, int64_t rows, const StepOutput& out) -> Status {
                                          for (int64_t r = 0, row = 0; r < rows; ++r) {
                                            if (first + r < from - 1) continue;
                                            const std::span<const float> logits(out.logits.Row(row++),
                                                                                static_cast<size_t>(out.logits.cols));
                                            const int32_t next = tokens[static_cast<size_t>(first + r + 1)];
                                            made.first.push_back(LogprobsOf(logits, next, 0).logprob);
                                            made.second.push_back(Argmax(logits) == next);
                                          }
                                          return {};
                                        }));
        return made;
      });
  return py::make_tuple(py::array_t<double>(static_cast<py::ssize_t>(scores.first.size()), scores.first.data()),
                        py::cast(scores.second));
}

// The residual stream [layers, tokens, d_model] after as many layers as each of `layers` says; after the last norm: -1.
py::array Hidden(ModelState& model, const py::object& given, const std::vector<int32_t>& layers) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  return ToArray(model.OnEngine<Buffer>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) -> Result<Buffer> {
    const ModelSizes sizes = engine.model().sizes();
    for (const int32_t layer : layers) {
      if (layer < -1 || layer > sizes.layers) {
        return BadInput("layers: " + std::to_string(layer) + " is not 0 (the embedding) to " + std::to_string(sizes.layers) +
                        ", or -1 (after the last norm)");
      }
    }
    const py::ssize_t n = static_cast<py::ssize_t>(tokens.size()), width = sizes.d_model;
    TALLY_ASSIGN_OR_RETURN(Buffer buffer, NewBuffer({static_cast<py::ssize_t>(layers.size()), n, width}));
    int64_t first = 0;  // row of the piece
    const auto place = [&](size_t i) { return buffer.data.get() + (static_cast<int64_t>(i) * n + first) * width; };
    engine.probe().SetStreamTap([&](int32_t layer, Mat<const float> x) {
      for (size_t i = 0; i < layers.size(); ++i) {
        if (layers[i] == layer) CopyRows(x, place(i));
      }
    });
    const std::shared_ptr<void> no_tap(nullptr, [&](void*) { engine.probe().SetStreamTap({}); });
    const bool normed = std::ranges::find(layers, -1) != layers.end();
    TALLY_RETURN_IF_ERROR(RunTokens(engine, tokens, {.logits_from = n, .hidden = normed}, interrupted,
                                    [&](int64_t, int64_t rows, const StepOutput& out) -> Status {
                                      for (size_t i = 0; i < layers.size(); ++i) {
                                        if (layers[i] == -1) CopyRows(out.hidden, place(i));
                                      }
                                      first += rows;
                                      return {};
                                    }));
    return buffer;
  }));
}

// Outputs of ops by TapName; `names` are patterns of fnmatch. Empty patterns: names alone, of one step.
py::dict Taps(ModelState& model, const py::object& given, const std::vector<std::string>& patterns) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  struct Tapped {
    std::vector<float> values = {};
    int64_t cols = 0;
  };
  using Outputs = std::vector<std::pair<std::string, Tapped>>;
  Outputs outputs =
      model.OnEngine<Outputs>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) -> Result<Outputs> {
        Outputs made;
        std::map<std::string, size_t> index;
        std::map<std::string, int> seen;  // in this step
        engine.probe().SetTap([&](Site site, std::string_view op, Mat<const float> out) {
          if (out.empty()) return;
          std::string name = TapName(site, op);
          if (const int again = seen[name]++; again > 0) name += "." + std::to_string(again);
          const auto matches = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
          if (!std::ranges::any_of(patterns, matches)) return;
          const auto [at, is_new] = index.emplace(name, made.size());
          if (is_new) made.push_back({name, {{}, out.cols}});
          std::vector<float>& values = made[at->second].second.values;
          for (int64_t r = 0; r < out.rows; ++r) values.insert(values.end(), out.Row(r), out.Row(r) + out.cols);
        });
        const std::shared_ptr<void> no_tap(nullptr, [&](void*) { engine.probe().SetTap({}); });
        TALLY_RETURN_IF_ERROR(
            RunTokens(engine, tokens, {.logits_from = 0}, interrupted, [&](int64_t, int64_t, const StepOutput&) -> Status {
              seen.clear();
              return {};
            }));
        return made;
      });
  py::dict arrays;
  for (auto& [name, tapped] : outputs) {
    auto* const values = new std::vector<float>(std::move(tapped.values));
    const py::capsule owner(values, [](void* floats) { delete static_cast<std::vector<float>*>(floats); });
    const py::ssize_t cols = tapped.cols, rows = static_cast<py::ssize_t>(values->size()) / std::max<py::ssize_t>(cols, 1);
    arrays[Text(name)] = py::array_t<float>({rows, cols}, values->data(), owner);
  }
  return arrays;
}

// ---- the ledger

py::object LedgerOf(ModelState& model, bool reset) {
  return ToPython(model.OnEngine<Value>(/*alone=*/true, [&](Engine& engine, const Interrupted&) -> Result<Value> {
    Value document = LedgerDocument(engine.ledger(), engine.model().parameters());
    if (reset) engine.ledger().Reset();
    return document;
  }));
}

// A generation alone, whose ledger is its own, with the records of its ops.
struct Measured {
  GenerateResult result = {};
  books::RunFigures figures = {};
  Value ledger = {};
  ReportData report = {};
};

py::dict Measure(ModelState& model, const py::object& given, const py::dict& given_options) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  Options options(given_options, "measure()");
  GenerateOptions generate;
  options.Read("max_tokens", generate.max_tokens);
  ReadSampling(options, &generate.sampling);
  options.Read("stop", generate.stop);
  options.Read("ignore_eos", generate.ignore_eos);
  options.Read("draft", generate.draft);
  std::string version;
  options.Read("version", version);
  options.End();
  const Measured run =
      model.OnEngine<Measured>(/*alone=*/true, [&](Engine& engine, const Interrupted& interrupted) -> Result<Measured> {
        Measured made;
        engine.ledger().Reset();
        RunReport report(DescribeRun(engine, "run", model.name(), version));
        engine.probe().SetRecorder([&](const OpRecord& record) { report.Add(record); });
        const std::shared_ptr<void> no_recorder(nullptr, [&](void*) { engine.probe().SetRecorder({}); });
        generate.interrupted = interrupted;
        TALLY_ASSIGN_OR_RETURN(made.result, Generate(engine, tokens, generate));
        if (made.result.finish == FinishReason::kError) return made.result.error;
        if (made.result.finish == FinishReason::kInterrupted) return Status(StatusCode::kInterrupted, "interrupted");
        made.figures = MeasureRun(engine, made.result);
        made.ledger = LedgerDocument(engine.ledger(), engine.model().parameters());
        made.report = report.Finish("tally.Model.measure");
        return made;
      });
  py::dict made;
  made["text"] = Text(run.result.text);
  made["tokens"] = run.result.tokens;
  made["summary"] = Text(RunSummary(run.figures));
  made["figures"] = ToPython(RunFiguresDocument(run.figures));
  made["ledger"] = ToPython(run.ledger);
  py::list svgs;
  for (const ReportFigure& figure : RenderFigures(run.report)) svgs.append(py::make_tuple(Text(figure.name), Text(figure.svg)));
  made["figures_svg"] = svgs;
  made["page"] = Text(RenderPage({&run.report, 1}));
  return made;
}

py::dict RunAudit(ModelState& model, const py::object& given, int64_t decode_tokens, bool mmu) {
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  if (decode_tokens < 0) Throw(BadInput("decode_tokens must be 0 or more"));
  const std::shared_ptr<const Model> loaded = model.model();
  const AuditReport report = model.OnEngine<AuditReport>(/*alone=*/true, [&](Engine& engine, const Interrupted& interrupted) {
    return Audit(engine, {.prompt = tokens, .decode_tokens = decode_tokens, .mmu = mmu, .interrupted = interrupted});
  });
  const Recipe& recipe = loaded->recipe();
  const std::vector<PublishedClaims> claims = AuditClaims(report, recipe);
  py::dict made;
  made["agrees"] = report.differing == 0;
  made["compared"] = report.compared;
  made["differing"] = report.differing;
  made["document"] = ToPython(AuditDocument(model.name(), report, *loaded, &claims));
  made["text"] = Text(AuditScreen(report, recipe, loaded->Description(), AuditNotes(report, *loaded, 80), &claims, 80));
  return made;
}

}  // namespace

void AddRuns(py::class_<ModelState, std::shared_ptr<ModelState>>& model) {
  model.def("logits", &Logits)
      .def("score", &Score)
      .def("hidden", &Hidden)
      .def("taps", &Taps)
      .def("ledger", &LedgerOf)
      .def("measure", &Measure)
      .def("audit", &RunAudit);
}

}  // namespace tally::python
