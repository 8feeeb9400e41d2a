// SPDX-License-Identifier: Apache-2.0
#include "engine/python/runs.h"

#include <fnmatch.h>
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
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

// pybind11 finds numpy's functions when it first makes an array, in a static variable of a function; importing gives the interpreter's lock
// away, so that two threads would wait for one another there. To be called before a run, so that ImportError comes first, too.
void UseNumpy() {
  static std::atomic<bool> ready = false;
  if (ready) return;
  static std::mutex mutex;
  py::module_::import("numpy");
  std::unique_lock lock(mutex, std::defer_lock);
  {
    const Unlocked unlocked;
    lock.lock();
  }
  py::detail::npy_api::get();
  ready = true;
}

void CopyRows(Mat<const float> from, float* to) {
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(to + r * from.cols, from.Row(r), static_cast<size_t>(from.cols) * sizeof(float));
}

Result<Buffer> LogitsOf(Engine& engine, std::span<const int32_t> tokens, bool last, const Interrupted& interrupted) {
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  const py::ssize_t n = static_cast<py::ssize_t>(tokens.size()), vocab = engine.model().sizes().vocab;
  const int64_t from = last ? n - 1 : 0;
  TALLY_ASSIGN_OR_RETURN(Buffer buffer, last ? NewBuffer({vocab}) : NewBuffer({n, vocab}));
  const auto take = [&](int64_t first, int64_t, const StepOutput& out) -> Status {
    CopyRows(out.logits, buffer.data.get() + std::max<int64_t>(first - from, 0) * vocab);
    return {};
  };
  TALLY_RETURN_IF_ERROR(RunTokens(engine, tokens, {.logits_from = from, .take = take, .interrupted = interrupted}));
  return buffer;
}

py::array Logits(ModelState& model, const py::object& given, bool last) {
  UseNumpy();
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  return ToArray(model.OnEngine<Buffer>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) {
    return LogitsOf(engine, tokens, last, interrupted);
  }));
}

// Of each token from `from` on.
struct Scores {
  std::vector<double> logprobs = {};
  std::vector<bool> most_probable = {};
};

// The last token is not run: nothing is asked of it. So there may be one more than the context has positions.
Result<Scores> ScoresOf(Engine& engine, std::span<const int32_t> tokens, int64_t from, const Interrupted& interrupted) {
  Scores scores;
  const int32_t vocab = engine.model().sizes().vocab;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocab) continue;
    return BadInput("token " + std::to_string(token) + ": ids of this model are 0 to " + std::to_string(vocab - 1));
  }
  if (from == static_cast<int64_t>(tokens.size())) return scores;
  const auto take = [&](int64_t first, int64_t rows, const StepOutput& out) -> Status {
    for (int64_t r = std::max<int64_t>(0, from - 1 - first), row = 0; r < rows; ++r, ++row) {
      const std::span<const float> logits(out.logits.Row(row), static_cast<size_t>(out.logits.cols));
      const int32_t next = tokens[static_cast<size_t>(first + r + 1)];
      scores.logprobs.push_back(LogprobsOf(logits, next, 0).logprob);
      scores.most_probable.push_back(Argmax(logits) == next);
    }
    return {};
  };
  TALLY_RETURN_IF_ERROR(
      RunTokens(engine, tokens.first(tokens.size() - 1),
                {.logits_from = from - 1, .prefix_key = "tally.score", .take = take, .interrupted = interrupted}));
  return scores;
}

py::tuple Score(ModelState& model, const py::object& given, int64_t from) {
  UseNumpy();
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  if (from < 1 || from > static_cast<int64_t>(tokens.size())) {
    Throw(BadInput("the first token has no probability, as none precedes it: score from 1 to the number of tokens"));
  }
  const Scores scores = model.OnEngine<Scores>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) {
    return ScoresOf(engine, tokens, from, interrupted);
  });
  return py::make_tuple(py::array_t<double>(static_cast<py::ssize_t>(scores.logprobs.size()), scores.logprobs.data()),
                        py::cast(scores.most_probable));
}

// The residual stream [layers, tokens, d_model] after as many layers as each of `layers` says; after the last norm: -1.
Result<Buffer> HiddenOf(Engine& engine, std::span<const int32_t> tokens, std::span<const int32_t> layers,
                        const Interrupted& interrupted) {
  TALLY_RETURN_IF_ERROR(CheckTokens(engine, tokens));
  const ModelSizes sizes = engine.model().sizes();
  for (const int32_t layer : layers) {
    if (layer < -1 || layer > sizes.layers) return BadInput("layers: there is none of number " + std::to_string(layer));
  }
  const py::ssize_t n = static_cast<py::ssize_t>(tokens.size()), width = sizes.d_model;
  TALLY_ASSIGN_OR_RETURN(Buffer buffer, NewBuffer({static_cast<py::ssize_t>(layers.size()), n, width}));
  int64_t first = 0;  // row of the piece
  const auto copy = [&](int32_t layer, Mat<const float> x) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (layers[i] == layer) CopyRows(x, buffer.data.get() + (static_cast<int64_t>(i) * n + first) * width);
    }
  };
  engine.probe().SetStreamTap(copy);
  const std::shared_ptr<void> no_tap(nullptr, [&](void*) { engine.probe().SetStreamTap({}); });
  const auto take = [&](int64_t, int64_t rows, const StepOutput& out) -> Status {
    copy(-1, out.hidden);
    first += rows;
    return {};
  };
  const bool normed = std::ranges::find(layers, -1) != layers.end();
  TALLY_RETURN_IF_ERROR(
      RunTokens(engine, tokens, {.logits_from = n, .hidden = normed, .take = take, .interrupted = interrupted}));
  return buffer;
}

py::array Hidden(ModelState& model, const py::object& given, const std::vector<int32_t>& layers) {
  UseNumpy();
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  return ToArray(model.OnEngine<Buffer>(/*alone=*/false, [&](Engine& engine, const Interrupted& interrupted) {
    return HiddenOf(engine, tokens, layers, interrupted);
  }));
}

// The output of an op in all steps, [rows, cols].
struct Tapped {
  std::string name = {};
  std::vector<float> values = {};
  int64_t cols = 0;
};

// Outputs of ops by TapName, in the order in which they run; patterns are those of fnmatch. BadInput: no op has such a name.
Result<std::vector<Tapped>> TapsOf(Engine& engine, std::span<const int32_t> tokens, std::span<const std::string> patterns,
                                   const Interrupted& interrupted) {
  std::vector<Tapped> taps;
  std::map<std::string, size_t> index;
  std::map<std::string, int> seen;  // in this step
  bool room = true;
  const auto add = [&](Site site, std::string_view op, Mat<const float> out) {
    std::string name = TapName(site, op);
    if (const int again = seen[name]++; again > 0) name += "." + std::to_string(again);
    const auto matches = [&](const std::string& pattern) { return fnmatch(pattern.c_str(), name.c_str(), 0) == 0; };
    if (!std::ranges::any_of(patterns, matches)) return;
    const auto [at, is_new] = index.emplace(name, taps.size());
    if (is_new) taps.push_back({.name = name, .cols = out.cols});
    std::vector<float>& values = taps[at->second].values;
    for (int64_t r = 0; r < out.rows; ++r) values.insert(values.end(), out.Row(r), out.Row(r) + out.cols);
  };
  engine.probe().SetTap([&](Site site, std::string_view op, Mat<const float> out) {
    if (out.empty() || !room) return;
    try {  // no exception may leave a tap
      add(site, op, out);
    } catch (const std::bad_alloc&) {
      room = false;
    }
  });
  const std::shared_ptr<void> no_tap(nullptr, [&](void*) { engine.probe().SetTap({}); });
  const auto take = [&](int64_t, int64_t, const StepOutput&) {
    seen.clear();
    return room ? Status() : NoRoom("not enough memory for the outputs");
  };
  TALLY_RETURN_IF_ERROR(RunTokens(engine, tokens, {.take = take, .interrupted = interrupted}));
  if (taps.empty()) return BadInput("names: no op has such a name");
  return taps;
}

py::dict Taps(ModelState& model, const py::object& given, const std::vector<std::string>& patterns) {
  UseNumpy();
  const std::vector<int32_t> tokens = TokensOf(given, "tokens");
  std::vector<Tapped> taps = model.OnEngine<std::vector<Tapped>>(
      /*alone=*/false,
      [&](Engine& engine, const Interrupted& interrupted) { return TapsOf(engine, tokens, patterns, interrupted); });
  py::dict arrays;
  for (Tapped& tapped : taps) {
    auto* const values = new std::vector<float>(std::move(tapped.values));
    const py::capsule owner(values, [](void* floats) { delete static_cast<std::vector<float>*>(floats); });
    const py::ssize_t cols = tapped.cols, rows = static_cast<py::ssize_t>(values->size()) / std::max<py::ssize_t>(cols, 1);
    arrays[Text(tapped.name)] = py::array_t<float>({rows, cols}, values->data(), owner);
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
  CheckDraft(model.runner()->engine(), generate.draft);
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
