// SPDX-License-Identifier: Apache-2.0
#include "engine/python/options.h"

#include <algorithm>
#include <array>
#include <limits>

namespace tally::python {
namespace {

constexpr std::array<std::string_view, 4> kActivationNames = {"auto", "f32", "bf16", "int8"};
constexpr std::array<std::string_view, 3> kImplNames = {"auto", "ref", "blas"};
constexpr int32_t kSequences = 4;
constexpr int64_t kLogitRows = 32;  // logits of a prompt's rows are made so many at a time

std::string Shown(const py::handle& value) {
  std::string text = py::repr(value);
  constexpr size_t kMost = 60;
  return text.size() <= kMost ? text : text.substr(0, kMost) + "...";
}

[[noreturn]] void FailType(const std::string& name, const char* expected, const py::handle& given) {
  ThrowType(name + " must be " + expected + ", not " + Shown(given));
}

template <class T>
T Whole(const std::string& name, const py::handle& given) {
  PyObject* const index = PyNumber_Index(given.ptr());
  if (index == nullptr) {
    PyErr_Clear();
    FailType(name, "a whole number", given);
  }
  const py::int_ number = py::reinterpret_steal<py::int_>(index);
  py::detail::make_caster<T> caster;
  if (!caster.load(number, true)) {
    PyErr_Clear();
    Throw(BadInput(name + ": " + Shown(given) + " is out of range"));
  }
  return py::detail::cast_op<T>(caster);
}

}  // namespace

std::string TextOf(const py::handle& text, const char* name) {
  if (!py::isinstance<py::str>(text)) FailType(name, "a str", text);
  Py_ssize_t size = 0;
  const char* const utf8 = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (utf8 == nullptr) {  // a lone surrogate
    PyErr_Clear();
    Throw(BadInput(std::string(name) + " cannot be written as UTF-8: " + Shown(text)));
  }
  return {utf8, static_cast<size_t>(size)};
}

std::vector<int32_t> TokensOf(const py::handle& tokens, const char* name) {
  if (py::isinstance<py::str>(tokens) || py::isinstance<py::bytes>(tokens) || py::isinstance<py::dict>(tokens) ||
      py::isinstance<py::set>(tokens) || !py::isinstance<py::iterable>(tokens))
    FailType(name, "a list of token ids", tokens);
  std::vector<int32_t> ids;
  for (const py::handle id : tokens) ids.push_back(Whole<int32_t>(name, id));
  return ids;
}

py::object Options::Take(const char* name) {
  known_.emplace_back(name);
  if (!dict_.contains(name)) return py::none();
  return dict_[name];
}

void Options::End() {
  for (const auto& [key, member] : dict_) {
    const std::string name = py::str(key);
    if (std::ranges::find(known_, name) == known_.end()) ThrowType(of_ + " got an unexpected keyword argument '" + name + "'");
  }
}

void Options::FailName(const char* name, const std::string& given, const std::vector<std::string_view>& names) {
  std::string list;
  for (const std::string_view n : names) list += (list.empty() ? "" : ", ") + std::string(n);
  Throw(BadInput(std::string(name) + " must be one of " + list + ", not '" + given + "'"));
}

void Options::Set(const char* name, const py::object& member, bool& value) {
  if (!py::isinstance<py::bool_>(member)) FailType(name, "True or False", member);
  value = member.cast<bool>();
}
void Options::Set(const char* name, const py::object& member, int32_t& value) { value = Whole<int32_t>(name, member); }
void Options::Set(const char* name, const py::object& member, int64_t& value) { value = Whole<int64_t>(name, member); }
void Options::Set(const char* name, const py::object& member, uint64_t& value) { value = Whole<uint64_t>(name, member); }
void Options::Set(const char* name, const py::object& member, double& value) {
  const double given = PyFloat_AsDouble(member.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    FailType(name, "a number", member);
  }
  value = given;
}
void Options::Set(const char* name, const py::object& member, std::string& value) { value = TextOf(member, name); }
void Options::Set(const char* name, const py::object& member, std::vector<std::string>& value) {
  value.clear();
  if (py::isinstance<py::str>(member)) {
    value.push_back(TextOf(member, name));
    return;
  }
  if (!py::isinstance<py::list>(member) && !py::isinstance<py::tuple>(member)) FailType(name, "a str or a list of them", member);
  for (const py::handle item : member) value.push_back(TextOf(item, name));
}

EngineOptions EngineOptionsOf(Options& options) {
  EngineOptions engine{.sequences = kSequences};
  options.Read("threads", engine.threads);
  options.Read("context", engine.context);
  options.Read("max_batch", engine.max_batch);
  options.Read("max_logit_rows", engine.max_logit_rows);
  options.Read("draft_rows", engine.draft_rows);
  options.Read("prediction", engine.prediction);
  options.Read("sequences", engine.sequences);
  options.Read("kv_bytes", engine.kv_bytes);
  options.Read("weights_budget", engine.weights_budget);
  options.ReadName("activations", engine.activations, kActivationNames);
  if (std::string kv; options.Read("kv", kv), !kv.empty() && kv != "auto") {
    KvType type{};
    options.ReadName("kv", type, kKvTypeNames);
    engine.kv = type;
  }
  options.ReadName("impl", engine.impl, kImplNames);
  options.Read("share_gain_ns", engine.share_gain_ns);
  const auto least = [](const char* name, int64_t value, int64_t smallest) {
    if (value < smallest) Throw(BadInput(std::string(name) + " must be " + std::to_string(smallest) + " or more"));
  };
  least("threads", engine.threads, 0);
  least("context", engine.context, 0);
  least("max_batch", engine.max_batch, 0);
  least("max_logit_rows", engine.max_logit_rows, 0);
  least("draft_rows", engine.draft_rows, 0);
  least("sequences", engine.sequences, 1);
  if (engine.max_logit_rows == 0) engine.max_logit_rows = std::max(kLogitRows, engine.sequences + engine.draft_rows);
  return engine;
}

void CheckDraft(const Engine& engine, int64_t draft) {
  if (draft > 0 && engine.draft_rows() == 0) Throw(BadInput("draft: the model was loaded without draft_rows"));
}

void ReadSampling(Options& options, SamplingOptions* sampling) {
  options.Read("repeat_penalty", sampling->repeat_penalty);
  options.Read("repeat_last_n", sampling->repeat_last_n);
  options.Read("presence_penalty", sampling->presence_penalty);
  options.Read("frequency_penalty", sampling->frequency_penalty);
  options.Read("top_k", sampling->top_k);
  options.Read("temperature", sampling->temperature);
  options.Read("top_p", sampling->top_p);
  options.Read("min_p", sampling->min_p);
  options.Read("seed", sampling->seed);
}

}  // namespace tally::python
