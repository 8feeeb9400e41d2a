// SPDX-License-Identifier: Apache-2.0
// tally serve: models behind the APIs of OpenAI and Anthropic over HTTP.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/answers.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/numbers.h"
#include "engine/app/options.h"
#include "engine/app/ranks.h"
#include "engine/app/report_files.h"
#include "engine/app/serve_models.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/render/words.h"
#include "engine/serve/api_server.h"

namespace tally::app {
namespace {

constexpr useconds_t kLookEvery = 50'000;  // microseconds between looks for a signal

struct ServeFlags : AnswerFlags {
  std::vector<std::string> models;
  std::string host = "127.0.0.1", name;
  std::optional<std::string> memory;
  std::optional<std::string> key_file, cache_folder, socket;
  std::string prefix;
  std::string cache_bytes = "4GiB";
  std::vector<std::string> hosts, origins;
  std::string log = "plain";
  uint16_t port = 8080;
  int64_t queue = 256, connections = 256;
  double deadline = 0, grace = 10, step = 0.15;
  bool metrics = false, insecure = false, no_page = false, json = false;
};

Status CheckRange(const char* option, double value, double least, double most) {
  if (value >= least && value <= most) return {};
  const auto text = [](double x) { return JsonText(Number(x)); };
  return BadInput(std::string(option) + " must be " + text(least) + " to " + text(most) + ", not " + text(value));
}

Status CheckFlags(const ServeFlags& flags) {
  TALLY_RETURN_IF_ERROR(CheckRange("--queue", static_cast<double>(flags.queue), 1, 65536));
  TALLY_RETURN_IF_ERROR(CheckRange("--connections", static_cast<double>(flags.connections), 1, 4096));
  TALLY_RETURN_IF_ERROR(CheckRange("--deadline", flags.deadline, 0, 1e6));
  TALLY_RETURN_IF_ERROR(CheckRange("--grace", flags.grace, 0, 1e6));
  return CheckRange("--step-seconds", flags.step, 0, 60);
}

// The log goes to standard error. Lines for which that has no room are counted, and the next one says how many there were.
class ErrorLog {
 public:
  explicit ErrorLog(LogForm form) : form_(form) {}
  void Add(const std::string& line) {
    if (dropped_ > 0 &&
        NoteWithoutWaiting(form_ == LogForm::kJson ? "{\"dropped\":" + std::to_string(dropped_) + "}\n"
                                                   : "note: " + Counted(dropped_, "line") + " of the log dropped\n")) {
      dropped_ = 0;
    }
    if (!NoteWithoutWaiting(line + "\n")) ++dropped_;
  }

 private:
  const LogForm form_;
  int64_t dropped_ = 0;
};

Result<ApiServerOptions> OptionsOf(const ServeFlags& flags) {
  ApiServerOptions options = {.hosts = flags.hosts,
                              .origins = flags.origins,
                              .insecure = flags.insecure,
                              .metrics = flags.metrics,
                              .version = kTallyVersion,
                              .page = !flags.no_page,
                              .strict = flags.strict};
  TALLY_ASSIGN_OR_RETURN(options.prefix, ReadPathPrefix("--path-prefix", flags.prefix));
  if (flags.log != "none") {
    options.log_form = flags.log == "json" ? LogForm::kJson : LogForm::kPlain;
    options.log = [log = std::make_shared<ErrorLog>(options.log_form)](const std::string& line) { log->Add(line); };
  }
  if (flags.key_file) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, ReadText(*flags.key_file));
    TALLY_ASSIGN_OR_RETURN(options.keys, ReadKeys(Printable(*flags.key_file), text));
  }
  options.http.connections = static_cast<uint32_t>(flags.connections);
  options.http.connections_per_address = std::max<uint32_t>(1, options.http.connections / 2);
  options.pool.loop.most_waiting = static_cast<size_t>(flags.queue);
  options.pool.loop.most_waiting_of_client = std::max<size_t>(1, options.pool.loop.most_waiting / 2);
  options.pool.loop.deadline_seconds = flags.deadline;
  options.pool.loop.step_seconds = flags.step;
  options.pool.warn = [](const std::string& line) { (void)NoteWithoutWaiting("note: " + line + "\n"); };
  options.pool.ended = KeepRunHits;
  if (flags.cache_folder) {
    options.pool.cache_folder = *flags.cache_folder;
    options.pool.cache_bytes = static_cast<uint64_t>(ParseAmount(flags.cache_bytes, {"B"}));
    options.pool.cache_options = flags.model.activations + " " + flags.model.impl;
    if (options.pool.cache_bytes == 0)
      return BadInput("--cache-bytes: " + Quote(flags.cache_bytes) + " is not a size such as 4GiB or 500M");
  }
  options.pool.bytes = AvailableMemoryBytes();
  if (flags.memory) {
    options.pool.bytes = static_cast<uint64_t>(ParseAmount(*flags.memory, {"B"}));
    if (options.pool.bytes == 0) return BadInput("--memory: " + Quote(*flags.memory) + " is not a size such as 16GiB or 500M");
  }
  return options;
}

Result<Listener> Listen(const ServeFlags& flags) {
  return flags.socket ? Listener::OpenUnix(*flags.socket) : Listener::Open(flags.host, flags.port);
}

// Without a slash at its end. Through a Unix socket the name is not looked up.
std::string UrlOf(const ServeFlags& flags, const std::string& prefix, const Listener& listener) {
  if (listener.is_unix()) return "http://localhost" + prefix;
  const bool v6 = listener.address().find(':') != std::string::npos;
  const std::string host = flags.host == "localhost" ? flags.host : v6 ? "[" + listener.address() + "]" : listener.address();
  return "http://" + host + ":" + std::to_string(listener.port()) + prefix;
}

// Until a signal comes, and what runs has been answered. `health`: not ok, nothing will run again.
Result<int> Wait(ApiServer& server, const ServeFlags& flags, const std::function<Status()>& health) {
  while (!Interrupted() && health().ok()) ::usleep(kLookEvery);
  if (Status status = health(); !status.ok()) {
    (void)server.Stop(0);
    return status;
  }
  Note("finishing what runs; once more ends it at once\n");
  const size_t cut = server.Stop(flags.grace);
  if (cut == 0) return 0;
  Note(Counted(static_cast<int64_t>(cut), "request") + " could not be finished\n");
  return InterruptExitCode();
}

std::string WhereText(const ServeFlags& flags, const std::string& url) {
  const std::string socket = flags.socket ? " on the socket " + Printable(*flags.socket) : "";
  return socket + " at " + url + "/v1" + (flags.no_page ? "" : ", and a chat at " + url + "/") + ": Ctrl-C ends it\n";
}

Result<int> ServeOne(ServeFlags flags, const EngineOptions& engine, ApiServerOptions options) {
  TALLY_ASSIGN_OR_RETURN(NamedModel named, ReadNamedModel(flags.models.empty() ? flags.model.model : flags.models[0]));
  if (!flags.name.empty()) named.name = flags.name;
  flags.model.model = named.model;
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(named.model, flags.model.yes));
  // Before the weights: whether it can be had is known at once.
  TALLY_ASSIGN_OR_RETURN(Listener listener, Listen(flags));
  TALLY_RETURN_IF_ERROR(CheckExposure(listener, !options.keys.empty(), options.insecure));
  const std::string url = UrlOf(flags, options.prefix, listener);
  if (flags.memory) {
    TALLY_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanModel(path, engine));
    if (plan.total() > options.pool.bytes) {
      return NoRoom(Printable(named.model) + " takes " + BytesText(plan.total()) + ", more than --memory " +
                    Printable(*flags.memory));
    }
  }
  TALLY_ASSIGN_OR_RETURN(const Loaded loaded, LoadForAnswers(flags, engine));
  options.pool.roofs = MachineRoofs(loaded.engine->threads());
  flags.model.model = ServedName(named, path);  // clients read errors about its template
  TALLY_ASSIGN_OR_RETURN(const ServedModel served, ServedModelOf(flags, loaded, flags.model.model));
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<ApiServer> server, ApiServer::Start(served, std::move(listener), options));
  if (!served.chat.ok()) Note("note: chats are refused: " + served.chat.status().message() + "\n");
  Note("serving " + Printable(served.name) + WhereText(flags, url));
  if (flags.json) {
    PrintJson({{"url", url},
               {"port", server->port()},
               {"unix_socket", flags.socket ? Json(*flags.socket) : Json()},
               {"model", served.name},
               {"description", loaded.model->Description()},
               {"parallel", flags.parallel},
               {"context", loaded.engine->context()},
               {"threads", loaded.engine->threads()},
               {"target", loaded.engine->target()},
               {"load_seconds", loaded.seconds},
               {"memory_bytes", MemoryJson(*loaded.engine)}});
    TALLY_RETURN_IF_ERROR(FlushOutput());
  }
  return Wait(*server, flags, [&] { return loaded.engine->Health(); });
}

Json ModelsDocument(const std::vector<ModelPool::Figures>& models) {
  return Json::ListOf(models, [](const ModelPool::Figures& model) {
    return Json{{"model", model.name},
                {"loaded", model.state == ModelState::kLoaded},
                {"context", model.context},
                {"memory_bytes", model.bytes}};
  });
}

Result<int> ServeSeveral(const ServeFlags& flags, const EngineOptions& engine, ApiServerOptions options) {
  if (Ranks() != nullptr) return BadInput("several models are served by one process: under mpirun or srun, give one model");
  if (!flags.name.empty()) return BadInput("--alias names one model; of several, NAME=MODEL does");
  if (flags.chat_template) return BadInput("--chat-template is of one model, and several are given");
  TALLY_ASSIGN_OR_RETURN(Listener listener, Listen(flags));
  TALLY_RETURN_IF_ERROR(CheckExposure(listener, !options.keys.empty(), options.insecure));
  const std::string url = UrlOf(flags, options.prefix, listener);
  const auto serving = std::make_shared<std::atomic<bool>>(false);
  TALLY_ASSIGN_OR_RETURN(std::vector<ModelSource> sources, ModelSources(flags.models, flags, engine, serving));
  NoteThreads(engine.threads);
  const int threads = Team(engine.threads).threads();
  options.pool.roofs = MachineRoofs(threads);
  InstallInterruptHandlers();
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<ApiServer> server,
                         ApiServer::Start(std::move(sources), std::move(listener), options));
  *serving = true;
  const std::vector<ModelPool::Figures> models = server->models();
  std::string names;
  uint64_t bytes = 0;
  for (const ModelPool::Figures& model : models) {
    const bool loaded = model.state == ModelState::kLoaded;
    names += (names.empty() ? "" : ", ") + Printable(model.name) + (loaded ? "" : " (when asked for)");
    if (loaded) bytes += model.bytes;
  }
  Note("serving " + names + WhereText(flags, url));
  Note("models in memory take " + BytesText(bytes) + " of " + BytesText(options.pool.bytes) + "\n");
  if (flags.json) {
    PrintJson({{"url", url},
               {"port", server->port()},
               {"unix_socket", flags.socket ? Json(*flags.socket) : Json()},
               {"models", ModelsDocument(models)},
               {"parallel", flags.parallel},
               {"threads", threads},
               {"memory_budget_bytes", options.pool.bytes}});
    TALLY_RETURN_IF_ERROR(FlushOutput());
  }
  return Wait(*server, flags, [] { return Status(); });
}

Result<int> Serve(const ServeFlags& flags) {
  TALLY_RETURN_IF_ERROR(CheckFlags(flags));
  TALLY_ASSIGN_OR_RETURN(ApiServerOptions options, OptionsOf(flags));
  TALLY_ASSIGN_OR_RETURN(const EngineOptions engine, EngineOptionsOf(flags));
  return flags.models.size() > 1 ? ServeSeveral(flags, engine, std::move(options)) : ServeOne(flags, engine, std::move(options));
}

}  // namespace

Action AddServe(Command& app) {
  auto flags = std::make_shared<ServeFlags>();
  flags->parallel = 4;
  Command c = app.Add("serve", "Answer OpenAI's, Anthropic's and ollama's APIs, with what it cost");
  c.Option("MODEL,-m,--model", flags->models,
           "GGUF file, Hugging Face directory, ORG/NAME of its hub, or demo: the bundled model; several are loaded as they are "
           "asked for. NAME=MODEL gives it a name")
      .Type(kModelType)
      .Preset(flags->model.model);
  AddModelSettings(c, flags->model);
  c.Option(
       "--memory", flags->memory,
       "most memory of all models together, as in 16GiB: those that do not fit give way to each other (default: what is free)")
      .Type("SIZE");
  c.Option("--host", flags->host, "address to listen on; others than this machine's own want --api-key-file")
      .Type("ADDRESS")
      .Preset();
  AddNumber(c, "--port", flags->port, "port to listen on (0: any that is free)");
  c.Option("--unix-socket", flags->socket, "Unix socket to listen on, in place of an address and a port").Type("PATH");
  c.Option("--path-prefix", flags->prefix, "where all paths begin, as in /llm: the chat is then at /llm/").Type("PATH");
  c.Option("--alias", flags->name, "the model's name in answers (default: its file's name)");
  FileOption(c.Option("--api-key-file", flags->key_file, "file of keys, one a line, of which every request must have one"));
  c.Option("--allow-host", flags->hosts, "a name by which clients reach the server (several times: several)");
  c.Option("--allow-origin", flags->origins,
           "an origin whose pages may ask, as in https://chat.example.com; local: all pages on localhost");
  Choices(c.Option("--log", flags->log, "the form of the log, a line a request on standard error").Preset(),
          {"plain", "json", "none"});
  c.Flag("--insecure", flags->insecure, "listen for other machines without a key");
  c.Option("--cache-dir", flags->cache_folder,
           "folder for what conversations have run, which go on there after a restart (default: none)")
      .Type("DIR");
  c.Option("--cache-bytes", flags->cache_bytes, "most bytes of that folder").Type("SIZE").Preset();
  c.Flag("--metrics", flags->metrics, "answer /metrics, for Prometheus");
  c.Flag("--no-page", flags->no_page, "serve no chat at /");
  AddNumber(c, "--queue", flags->queue, "most answers that wait for their turn; a client has at most half of it");
  AddNumber(c, "--connections", flags->connections, "most connections; an address has at most half of them");
  AddNumber(c, "--deadline", flags->deadline, "seconds within which an answer must be done (0: any)");
  AddNumber(c, "--grace", flags->grace, "seconds for answers in progress when the server is told to end");
  AddNumber(c, "--step-seconds", flags->step,
            "about how long a prompt may keep the tokens of others waiting (0: prompts run in the largest pieces)");
  AddAnswerFlags(c, *flags);
  c.Flag("--json", flags->json, "one JSON document on standard output, when the server answers");
  c.Footer(
      "At / is a chat, with what it costs beside it. Endpoints: /v1/chat/completions, /v1/completions, /v1/responses, "
      "/v1/messages, /v1/messages/count_tokens, /v1/responses/input_tokens, /v1/models, /tokenize, /detokenize, /apply-template, "
      "/cancel, /health, /api/chat, /api/generate, /api/tags, /api/show, /api/ps, /api/version, "
      "/props, /slots, /version, /load, /metrics. What a request leaves out is taken from the options. A header X-Tally: 1, or "
      "\"tally\": true in the body, adds "
      "to an "
      "answer's usage what it cost.");
  AddExamples(c,
              {"tally serve demo --port 8080", "tally serve demo --host 0.0.0.0 --api-key-file keys.txt --parallel 8 --metrics"});
  return [flags] { return Report(Serve(*flags)); };
}

}  // namespace tally::app
