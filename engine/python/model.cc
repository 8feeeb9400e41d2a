// SPDX-License-Identifier: Apache-2.0
#include "engine/python/model.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <mutex>
#include <new>
#include <utility>

#include "engine/python/options.h"
#include "engine/python/runs.h"

namespace tally::python {
namespace {

// All runners that may have a thread.
std::mutex& RunnersMutex() {
  static std::mutex mutex;
  return mutex;
}
std::vector<std::weak_ptr<Runner>>& Runners() {
  static std::vector<std::weak_ptr<Runner>> runners;
  return runners;
}

void Keep(const std::shared_ptr<Runner>& runner) {
  const std::lock_guard lock(RunnersMutex());
  std::erase_if(Runners(), [](const std::weak_ptr<Runner>& r) { return r.expired(); });
  Runners().push_back(runner);
}

std::shared_ptr<ModelState> Load(const std::string& path, const std::string& name, bool guard_slices, const py::object& progress,
                                 const py::dict& given) {
  Options options(given, "load()");
  const EngineOptions engine_options = EngineOptionsOf(options);
  options.End();
  MarkThreads();
  LoadOptions load{.guard_slices = guard_slices};
  load.progress = [&progress](uint64_t done, uint64_t total) {
    const Locked locked;
    if (SignalRaised()) return false;
    try {
      if (!progress.is_none()) progress(done, total);
    } catch (py::error_already_set& error) {
      error.restore();
      return false;
    }
    return true;
  };
  std::shared_ptr<const Model> model;
  std::shared_ptr<Runner> runner;
  const Status status = [&]() -> Status {
    const Unlocked unlocked;
    TALLY_ASSIGN_OR_RETURN(model, LoadModel(path, engine_options, load));
    TALLY_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, NewEngine(model, engine_options));
    TALLY_ASSIGN_OR_RETURN(runner, Runner::Start(std::move(engine), engine_options.sequences));
    return {};
  }();
  Check(status);
  Keep(runner);
  return std::make_shared<ModelState>(name, std::move(model), std::move(runner));
}

// What a call of generate or chat says of its answer.
struct Asked {
  RequestOptions request = {};
  std::vector<std::string> stop = {};
  std::vector<std::string> notes = {};
};

void ReadGrammar(ModelState& model, Options& options, Asked* asked) {
  std::optional<std::string> schema, regex, gbnf;
  std::optional<std::vector<std::string>> choices;
  bool spaced = false;
  options.Read("schema", schema);
  options.Read("regex", regex);
  options.Read("grammar", gbnf);
  options.Read("choices", choices);
  options.Read("spaced", spaced);
  if (schema.has_value() + regex.has_value() + gbnf.has_value() + choices.has_value() > 1) {
    Throw(BadInput("schema, regex, grammar and choices: only one of them can say what an answer may be"));
  }
  if ((regex && regex->empty()) || (gbnf && gbnf->empty()) || (choices && choices->empty())) {
    Throw(BadInput(std::string(regex ? "regex" : gbnf ? "grammar" : "choices") + " is empty"));
  }
  if (spaced && !schema) Throw(BadInput("spaced is of a schema"));
  const auto get = [&](const char* kind, const std::string& text, const auto& make) {
    std::string key = kind;
    AddToKey(text, key);
    AddToKey(spaced ? "spaced" : "", key);
    Result<std::shared_ptr<Grammar>> grammar = std::shared_ptr<Grammar>();
    {
      const Unlocked unlocked;
      grammar = model.grammars().Get(std::move(key), make);
    }
    if (!grammar.ok()) {
      const std::string& why = grammar.status().message();
      Throw(BadInput(why.starts_with(std::string(kind) + ":") ? why : std::string(kind) + ": " + why));
    }
    asked->request.grammar = std::move(*grammar);
  };
  if (schema) {
    const SchemaOptions written{.space = spaced ? JsonSpace::kOne : JsonSpace::kNone};
    get("schema", *schema, [&] { return Grammar::FromSchema(*schema, written); });
    for (const std::string& what : asked->request.grammar->ignored())
      asked->notes.push_back("schema: " + what + " says nothing here");
  } else if (regex) {
    get("regex", *regex, [&] { return Grammar::FromRegex(*regex); });
  } else if (gbnf) {
    get("grammar", *gbnf, [&] { return Grammar::FromGbnf(*gbnf); });
  } else if (choices) {
    std::string all;
    for (const std::string& choice : *choices) AddToKey(choice, all);
    get("choices", all, [&] { return Grammar::FromChoices(*choices); });
  }
}

void ReadRules(Options& options, TokenRules* rules) {
  options.Read("min_tokens", rules->min_tokens);
  if (const py::object ids = options.Take("stop_token_ids"); !ids.is_none()) rules->stop = TokensOf(ids, "stop_token_ids");
  if (const py::object ids = options.Take("allowed_token_ids"); !ids.is_none()) {
    rules->allowed = TokensOf(ids, "allowed_token_ids");
  }
  if (const py::object sequences = options.Take("bad_words_ids"); !sequences.is_none()) {
    for (const py::handle& sequence : py::iter(sequences)) rules->forbidden.push_back(TokensOf(sequence, "bad_words_ids"));
  }
}

// Reads, and leaves others for End.
Asked ReadAsked(ModelState& model, Options& options) {
  Asked asked;
  options.Read("max_tokens", asked.request.max_tokens);
  ReadSampling(options, &asked.request.sampling);
  options.Read("stop", asked.stop);
  options.Read("ignore_eos", asked.request.ignore_eos);
  ReadRules(options, &asked.request.rules);
  options.Read("top_logprobs", asked.request.top_logprobs);
  options.Read("draft", asked.request.draft);
  options.Read("jump", asked.request.jump);
  options.Read("prefix_key", asked.request.prefix_key);
  if (const py::object bias = options.Take("logit_bias"); !bias.is_none()) {
    if (!py::isinstance<py::dict>(bias)) ThrowType("logit_bias must be a dict of token ids and numbers");
    for (const auto& [token, value] : bias.cast<py::dict>()) {
      const double added = PyFloat_AsDouble(value.ptr());
      if (PyErr_Occurred() != nullptr) throw py::error_already_set();
      if (std::isnan(added)) Throw(BadInput("logit_bias: NaN is no number to add"));
      asked.request.logit_bias.emplace_back(TokensOf(py::make_tuple(token), "logit_bias")[0], added);
    }
  }
  CheckDraft(model.runner()->engine(), asked.request.draft);
  ReadGrammar(model, options, &asked);
  return asked;
}

struct PyAnswer {
  std::shared_ptr<ModelState> model;
  std::shared_ptr<Answer> answer;
  std::vector<std::string> notes;
  // What its bill is made with, also after the model was closed.
  ParameterCounts parameters;
  std::shared_ptr<const std::vector<WeightInfo>> weights;
};

PyAnswer Begin(const std::shared_ptr<ModelState>& model, Runner& runner, std::shared_ptr<Request> request,
               std::vector<std::string> notes) {
  auto answer = std::make_shared<Answer>(std::move(request));
  if (!runner.Add(answer)) Throw(ModelState::Closed());
  return {model, std::move(answer), std::move(notes), runner.engine().model().parameters(), runner.weights()};
}

const char* FinishText(FinishReason reason) {
  constexpr const char* kNames[] = {"length", "eos", "stop", "context_full", "interrupted", "error"};
  return kNames[static_cast<size_t>(reason)];
}

std::vector<int32_t> Encode(const ModelState& model, const std::string& text, const EncodeOptions& options) {
  const std::shared_ptr<const Tokenizer> tokenizer = model.tokenizer();
  Result<std::vector<int32_t>> ids = std::vector<int32_t>();
  {
    const Unlocked unlocked;
    ids = tokenizer->Encode(text, options);
  }
  return Unwrap(std::move(ids));
}

std::vector<int32_t> PromptOf(ModelState& model, const py::object& prompt, bool parse_special) {
  if (!py::isinstance<py::str>(prompt)) return TokensOf(prompt, "prompt");
  const std::string text = TextOf(prompt, "prompt");
  return Encode(model, text, {.parse_special = parse_special});
}

PyAnswer Start(const std::shared_ptr<ModelState>& model, const py::object& prompt, const py::dict& given) {
  Options options(given, "generate()");
  Asked asked = ReadAsked(*model, options);
  bool parse_special = false;
  options.Read("parse_special", parse_special);
  options.End();
  const std::vector<int32_t> tokens = PromptOf(*model, prompt, parse_special);
  if (!asked.stop.empty()) (void)model->tokenizer();  // BadInput without
  const std::shared_ptr<Runner> runner = model->runner();
  Result<std::shared_ptr<Request>> request = std::shared_ptr<Request>();
  {
    const Unlocked unlocked;
    request = Request::New(runner->engine(), tokens, asked.request, asked.stop);
  }
  return Begin(model, *runner, Unwrap(std::move(request)), std::move(asked.notes));
}

// ---- chats

ChatMessage MessageOf(const py::dict& given) {
  Options options(given, "a message");
  ChatMessage message;
  options.Read("role", message.role);
  options.Read("content", message.content);
  options.Read("reasoning", message.reasoning);
  options.Read("tool_call_id", message.tool_call_id);
  options.Read("name", message.name);
  if (const py::object calls = options.Take("tool_calls"); !calls.is_none()) {
    for (const py::handle item : calls) {
      Options call(item.cast<py::dict>(), "a call");
      ToolCall& made = message.tool_calls.emplace_back();
      call.Read("id", made.id);
      call.Read("name", made.name);
      call.Read("arguments", made.arguments);
      call.End();
    }
  }
  options.End();
  return message;
}

struct AskedChat {
  ChatRequest chat = {};
  std::string source = {};  // of the template
};

AskedChat ReadChat(const py::list& messages, Options& options) {
  AskedChat asked;
  for (const py::handle message : messages) asked.chat.messages.push_back(MessageOf(message.cast<py::dict>()));
  ChatRequest& chat = asked.chat;
  options.Read("tools", chat.tools);
  options.Read("must_call", chat.must_call);
  options.Read("callable", chat.callable);
  options.Read("strict", chat.strict);
  options.Read("most_calls", chat.most_calls);
  options.Read("reasoning_effort", chat.reasoning_effort);
  options.Read("thinking", chat.thinking);
  options.Read("add_generation_prompt", chat.add_generation_prompt);
  options.Read("continue_final_message", chat.continue_last);
  chat.now = std::time(nullptr);
  options.Read("now", chat.now);
  options.Read("template", asked.source);
  if (const py::object variables = options.Take("variables"); !variables.is_none()) {
    for (const auto& [name, json] : variables.cast<py::dict>())
      chat.variables[TextOf(name, "variables")] = TextOf(json, "variables");
  }
  return asked;
}

// A chat as its prompt.
struct RenderedPrompt {
  std::shared_ptr<const ChatFormat> format;
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<std::string> stop, notes;
};

RenderedPrompt RenderChat(ModelState& model, const AskedChat& asked) {
  if (asked.chat.messages.empty()) Throw(BadInput("messages: there are none"));
  RenderedPrompt prompt;
  const std::shared_ptr<const Tokenizer> tokenizer = model.tokenizer();
  prompt.format = model.Format(asked.source, !asked.chat.tools.empty(), &prompt.stop);
  const Status status = [&]() -> Status {
    const Unlocked unlocked;
    TALLY_ASSIGN_OR_RETURN(const std::vector<PromptSegment> segments, prompt.format->Render(asked.chat, &prompt.notes));
    for (const LeftOut& left_out : prompt.format->FindLeftOut(asked.chat)) {
      if (left_out.what == LeftOut::What::kTool) return BadInput("tools: the chat template leaves them out");
      const std::string what = left_out.what == LeftOut::What::kCalls ? "calls" : "text";
      prompt.notes.push_back("the chat template leaves out the " + what + " of messages[" + std::to_string(left_out.index) + "]");
    }
    std::vector<TextSegment> texts;
    for (const PromptSegment& segment : segments) texts.push_back({segment.text, segment.control});
    prompt.text = JoinSegments(segments);
    TALLY_ASSIGN_OR_RETURN(prompt.tokens, tokenizer->EncodeSegments(texts));
    return {};
  }();
  Check(status);
  return prompt;
}

CallOptions CallsOf(const ChatRequest& chat, const ChatFormat& format, const py::object& new_ids) {
  CallOptions calls{.most = chat.most_calls};
  // Drawn beforehand, since the engine's thread cannot ask Python.
  auto ids = std::make_shared<std::vector<std::string>>(new_ids.cast<std::vector<std::string>>());
  calls.new_id = [ids, next = size_t{0}, is_short = format.ShortCallIds()]() mutable {
    std::string id = (*ids)[next % ids->size()];
    // Beyond them: the same, with a number.
    const std::string number = next < ids->size() ? "" : std::to_string(next / ids->size());
    ++next;
    if (is_short) return id.substr(0, 9 - number.size()) + number;
    return "call_" + id + number;
  };
  for (const ChatMessage& message : chat.messages) {
    for (const ToolCall& call : message.tool_calls) calls.used_ids.insert(call.id);
  }
  return calls;
}

PyAnswer StartChat(const std::shared_ptr<ModelState>& model, const py::list& messages, const py::object& new_ids,
                   const py::dict& given) {
  Options options(given, "chat()");
  Asked asked = ReadAsked(*model, options);
  const AskedChat chat = ReadChat(messages, options);
  options.End();
  RenderedPrompt prompt = RenderChat(*model, chat);
  asked.request.start = prompt.format->StartOf(prompt.text, chat.chat);
  asked.request.may_call = MayCall(chat.chat);
  std::ranges::move(prompt.notes, std::back_inserter(asked.notes));
  prompt.stop.insert(prompt.stop.end(), asked.stop.begin(), asked.stop.end());
  const std::shared_ptr<Runner> runner = model->runner();
  const std::shared_ptr<const Model> loaded = model->model();
  std::optional<CallsError> error;
  {
    const Unlocked unlocked;
    error = HoldCalls(*loaded, model->grammars(), chat.chat, *prompt.format, prompt.text, asked.request.grammar != nullptr,
                      &asked.request.calls);
  }
  if (error) Throw(BadInput(error->message));
  Check(Request::Check(runner->engine(), prompt.tokens, asked.request));
  const CallOptions calls = CallsOf(chat.chat, *prompt.format, new_ids);
  std::shared_ptr<Request> request;
  {
    const Unlocked unlocked;
    request = std::make_shared<Request>(
        runner->engine(), prompt.tokens, asked.request,
        NewAnswerStream(*loaded->tokenizer(), prompt.format->NewParser(prompt.text, chat.chat), prompt.stop, calls));
  }
  return Begin(model, *runner, std::move(request), std::move(asked.notes));
}

py::dict Render(const std::shared_ptr<ModelState>& model, const py::list& messages, const py::dict& given) {
  Options options(given, "apply_chat_template()");
  const AskedChat chat = ReadChat(messages, options);
  options.End();
  const RenderedPrompt prompt = RenderChat(*model, chat);
  py::dict made;
  made["text"] = Text(prompt.text);
  made["tokens"] = prompt.tokens;
  made["notes"] = prompt.notes;
  return made;
}

// ---- answers

py::tuple EventOf(const RequestEvent& event, bool logprobs) {
  py::list parts;
  for (const OutputPart& part : event.parts) {
    constexpr const char* kKinds[] = {"content", "reasoning", "call", "mark"};
    py::object call = py::none();
    if (part.call) call = py::make_tuple(Text(part.call->id), Text(part.call->name), Text(part.call->arguments));
    parts.append(py::make_tuple(kKinds[static_cast<size_t>(part.kind)], Text(part.text), call));
  }
  py::object of_token = py::none();
  if (logprobs && event.token >= 0) {
    py::list top;
    for (const TokenLogprob& t : event.logprobs.top) top.append(py::make_tuple(t.token, t.logprob));
    of_token = py::make_tuple(event.logprobs.logprob, top);
  }
  return py::make_tuple(event.token, parts, of_token);
}

py::list Events(const PyAnswer& self) {
  CheckFork();
  py::list events;
  for (const RequestEvent& event : self.answer->Take()) events.append(EventOf(event, self.answer->request().wants_logprobs()));
  return events;
}

void Cancel(const PyAnswer& self) {
  if (!IsForked() && !self.model->closed() && !self.answer->Ended()) self.model->runner()->Cancel(self.answer);
}

// Waits; None: the answer has ended.
py::object Next(const PyAnswer& self) {
  CheckFork();
  WaitFor([&](std::chrono::milliseconds most) { return self.answer->Wait(most); }, [&] { Cancel(self); },
          /*until_over=*/false);
  py::list events = Events(self);
  if (events.empty()) return py::none();
  return events;
}

void WaitForEnd(const PyAnswer& self) {
  CheckFork();
  WaitFor([&](std::chrono::milliseconds most) { return self.answer->WaitForEnd(most); }, [&] { Cancel(self); },
          /*until_over=*/true);
}

// Of an answer that has ended.
py::dict ResultOf(const PyAnswer& self) {
  const Request& request = self.answer->request();
  const GenerateResult& r = request.result();
  py::dict result;
  result["tokens"] = r.tokens;
  result["end_token"] = r.end_token;
  result["finish"] = FinishText(r.finish);
  result["error"] = r.error.ok() ? py::object(py::none()) : py::object(Text(r.error.message()));
  result["stop"] = request.stop();
  result["prompt_tokens"] = request.prompt_size();
  result["reused_tokens"] = request.prompt_reused();
  result["notes"] = self.notes;
  result["cost"] = ToPython(BillDocument({&self.answer->shared(), 1}, self.parameters, *self.weights));
  return result;
}

void ThrowError(const PyAnswer& self) {
  const GenerateResult& r = self.answer->request().result();
  if (r.finish == FinishReason::kError) Throw(r.error);
}

// ---- what is known of a model

py::dict InfoOf(const ModelState& state) {
  const std::shared_ptr<const Model> loaded = state.model();
  const std::shared_ptr<Runner> runner = state.runner();
  const Model& model = *loaded;
  const ModelSizes s = model.sizes();
  const ParameterCounts& p = model.parameters();
  const Engine& engine = runner->engine();
  const MemoryPlan& memory = engine.memory_plan();
  py::dict info;
  info["family"] = s.family;
  info["description"] = Text(model.Description());
  info["layers"] = s.layers;
  info["d_model"] = s.d_model;
  info["vocab"] = s.vocab;
  info["trained_context"] = s.context;
  info["heads"] = s.heads;
  info["kv_heads"] = s.kv_heads;
  info["head_dim"] = s.head_dim;
  info["d_ff"] = s.d_ff;
  info["experts"] = s.experts;
  info["experts_used"] = s.experts_used;
  info["expert_d_ff"] = s.expert_d_ff;
  info["end_tokens"] = s.end_tokens;
  info["parameters"] = py::dict(py::arg("total") = p.total, py::arg("active_all") = p.active_all,
                                py::arg("active_head") = p.active_head, py::arg("active_none") = p.active_none);
  info["context"] = engine.context();
  info["threads"] = engine.threads();
  info["target"] = Text(engine.target());
  info["memory"] =
      py::dict(py::arg("packed_weights") = memory.packed_weights, py::arg("kv") = memory.kv, py::arg("scratch") = memory.scratch);
  py::list notes;
  for (const std::string& note : model.notes()) notes.append(Text(note));
  info["notes"] = notes;
  return info;
}

// Ids of the tokenizer. BadInput: one is none.
std::vector<int32_t> KnownIds(const ModelState& state, const py::object& ids) {
  std::vector<int32_t> tokens = TokensOf(ids, "ids");
  const int32_t vocab = state.tokenizer()->vocab_size();
  for (const int32_t id : tokens) {
    if (id < 0 || id >= vocab) {
      Throw(BadInput("token " + std::to_string(id) + ": the tokenizer's ids are 0 to " + std::to_string(vocab - 1)));
    }
  }
  return tokens;
}
int32_t OneId(const ModelState& state, const py::object& id) { return KnownIds(state, py::make_tuple(id))[0]; }

py::str Decode(const ModelState& state, const py::object& ids, bool skip_special) {
  const std::vector<int32_t> tokens = KnownIds(state, ids);
  const std::shared_ptr<const Tokenizer> tokenizer = state.tokenizer();
  if (skip_special) return Text(tokenizer->Decode(tokens));
  std::string text;
  std::vector<int32_t> plain;
  for (const int32_t id : tokens) {
    if (!tokenizer->IsControl(id)) {
      plain.push_back(id);
      continue;
    }
    text += tokenizer->Decode(plain) + tokenizer->ControlText(id);
    plain.clear();
  }
  return Text(text + tokenizer->Decode(plain));
}

py::dict TokenizerInfo(const ModelState& state) {
  const std::shared_ptr<const Tokenizer> tokenizer = state.tokenizer();
  const Tokenizer& t = *tokenizer;
  py::dict info;
  info["vocab_size"] = t.vocab_size();
  info["bos"] = t.bos();
  info["eos"] = t.eos();
  info["description"] = Text(t.Description());
  return info;
}

}  // namespace

ModelState::ModelState(std::string name, std::shared_ptr<const Model> model, std::shared_ptr<Runner> runner)
    : name_(std::move(name)), model_(std::move(model)), runner_(std::move(runner)) {}

ModelState::~ModelState() {
  if (IsForked()) {  // its threads cannot be joined here: all of it stays
    new std::pair(std::move(runner_), std::move(model_));
    return;
  }
  Close();
}

void ModelState::Close() {
  if (runner_ == nullptr || IsForked()) return;
  std::shared_ptr<Runner> runner = std::exchange(runner_, nullptr);
  std::shared_ptr<const Model> model = std::exchange(model_, nullptr);
  const Unlocked unlocked;
  runner->Stop();
  runner.reset();
  model.reset();
}

std::shared_ptr<Runner> ModelState::runner() const {
  CheckFork();
  if (runner_ == nullptr) Throw(Closed());
  return runner_;
}

std::shared_ptr<const Model> ModelState::model() const {
  if (model_ == nullptr) Throw(Closed());
  return model_;
}

std::shared_ptr<const Tokenizer> ModelState::tokenizer() const {
  const std::shared_ptr<const Model> model = this->model();
  Check(model->tokenizer_status());
  if (model->tokenizer() == nullptr) Throw(BadInput("the model has no tokenizer: it takes and gives token ids"));
  return {model, model->tokenizer()};
}

std::shared_ptr<const ChatFormat> ModelState::Format(const std::string& source, bool tools, std::vector<std::string>* stop) {
  ChatTemplateSource chosen{.text = source, .origin = "template"};
  const std::shared_ptr<const Model> model = this->model();
  const std::vector<ChatTemplateSource>* found = nullptr;
  if (model->chat_templates().ok()) found = &*model->chat_templates();
  if (source.empty()) {
    Check(model->chat_templates().status());
    if (found->empty()) Throw(BadInput("the model has no chat template: give one, template=..."));
    const auto for_tools = std::ranges::find(*found, "tool_use", &ChatTemplateSource::name);  // as transformers names it
    chosen = tools && for_tools != found->end() ? *for_tools : found->front();
  } else if (found != nullptr && !found->empty()) {
    chosen.special_tokens = found->front().special_tokens;
  }
  *stop = chosen.stop;
  if (format_ == nullptr || format_of_ != chosen.text) {
    Result<std::unique_ptr<ChatFormat>> made = std::unique_ptr<ChatFormat>();
    {
      const Unlocked unlocked;
      made = MakeChatFormat(chosen);
    }
    std::shared_ptr<const ChatFormat> format = Unwrap(std::move(made));
    format_of_ = chosen.text;
    format_ = format;
    return format;
  }
  return format_;
}

void StopAll() {
  std::vector<std::weak_ptr<Runner>> runners;
  {
    const std::lock_guard lock(RunnersMutex());
    runners.swap(Runners());
  }
  if (IsForked()) return;
  const Unlocked unlocked;
  for (const std::weak_ptr<Runner>& weak : runners) {
    if (const std::shared_ptr<Runner> runner = weak.lock()) runner->Stop();
  }
}

void AddModel(py::module_& module) {
  module.def("load", &Load, py::arg("path"), py::arg("name"), py::arg("guard_slices"), py::arg("progress"), py::arg("options"));
  module.def("stop_all", &StopAll);
  module.def("demo_path", [] { return Unwrap(DemoModelPath()); });

  py::class_<PyAnswer>(module, "Answer")
      .def("next", &Next)
      .def("events", &Events)
      .def("cancel", &Cancel)
      .def("set_wake",
           [](const PyAnswer& self, int file, bool at_end) {
             if (!IsForked()) self.answer->SetWake(file, at_end);  // in a child another thread's lock may be held for ever
           })
      .def("wait", &WaitForEnd)
      .def("has_news", [](const PyAnswer& self) { return CheckFork(), self.answer->HasNews(); })
      .def("over", [](const PyAnswer& self) { return CheckFork(), self.answer->Over(); })
      .def("ended", [](const PyAnswer& self) { return CheckFork(), self.answer->Ended(); })
      .def("result", &ResultOf)
      .def("raise_error", &ThrowError);

  py::class_<ModelState, std::shared_ptr<ModelState>> model(module, "Model");
  model.def("close", &ModelState::Close)
      .def_property_readonly("name", &ModelState::name)
      .def_property_readonly("closed", &ModelState::closed)
      .def("info", &InfoOf)
      .def("tokenizer_info", &TokenizerInfo)
      .def("has_tokenizer", [](const ModelState& s) { return s.model()->tokenizer() != nullptr; })
      .def("start", &Start)
      .def("start_chat", &StartChat)
      .def("render", &Render)
      .def("encode",
           [](const ModelState& s, const py::object& text, bool add_special, bool parse_special) {
             return Encode(s, TextOf(text, "text"), {.add_special = add_special, .parse_special = parse_special});
           })
      .def("decode", &Decode)
      .def("token_bytes",
           [](const ModelState& s, const py::object& id) { return py::bytes(s.tokenizer()->TokenBytes(OneId(s, id))); })
      .def("token_text", [](const ModelState& s, const py::object& id) {
        const int32_t token = OneId(s, id);
        const std::shared_ptr<const Tokenizer> t = s.tokenizer();
        return Text(t->IsControl(token) ? t->ControlText(token) : t->TokenBytes(token));
      });
  AddRuns(model);
}

}  // namespace tally::python
