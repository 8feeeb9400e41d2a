// SPDX-License-Identifier: Apache-2.0
// Models behind the APIs of OpenAI and Anthropic over HTTP.
//
// Kinds of threads: one reads and writes the connections; a few parse bodies, render templates and tokenize; one for each model in memory
// steps its engine; one loads models (model_pool.h).
//
// The paths that begin with /v1 are served without it too. Of several models, `model` of a body, or of a query (?model=NAME), says which
// is meant: without it the first, or of GET the one that was used last.
//
//   POST /v1/chat/completions, /v1/completions, /v1/responses      api_request.h
//   POST /v1/messages                                              the same, of Anthropic
//   POST /v1/messages/count_tokens  a body of /v1/messages -> {"input_tokens": N}
//   POST /v1/responses/input_tokens  a body of /v1/responses -> {"object", "input_tokens": N}
//   GET  /v1/models, /v1/models/NAME                               as both have them; "status" says whether a model is in memory
//   POST /tokenize        {"content": TEXT, "add_special": false, "parse_special": true, "with_pieces": false}
//                         -> {"tokens": [ID]}, or with pieces [{"id", "piece": TEXT, or BYTES that are no whole characters}]
//   POST /detokenize      {"tokens": [ID]} -> {"content": TEXT}
//   POST /apply-template  a body of /v1/chat/completions -> {"prompt": TEXT}
//   POST /cancel          {"id": ID of an answer of the same client} -> {"cancelled": BOOL}: the answer ends here, with its usage
//   POST /api/chat, /api/generate                                  ollama's (api_ollama.h)
//   POST /api/show                  {"model": NAME} -> what is known of it
//   GET  /api/tags, /api/ps, /api/version                          the models, as ollama lists them; the version
//   GET  /health          {"status": "ok"}; 503 while the server shuts down
//   GET  /version         {"version": TEXT}
//   GET  /load            {"server_load": N}: requests that are worked on or wait
//   GET  /props, /slots   the settings, and what runs: as llama.cpp has them, without texts and paths (api_status.h)
//   GET  /metrics         metrics.h, if ApiServerOptions ask for it
//   GET  /                a chat (engine/page/chat_page.h), unless ApiServerOptions say no
//   GET  /live            what the engine does (engine/page/live_figures.h), a stream of events; with the chat
//
// With a prefix (ApiServerOptions) all of this is below it, nothing is elsewhere, and GET of the prefix itself leads to its root.
//
// Answers have a bill in their usage if the body says "tally": true, or a header X-Tally: 1. A header X-Request-Id has the request's id,
// its own or a new one; X-Tally-Ignored names the fields of the body that were ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/serve/access_rules.h"
#include "engine/serve/completion.h"
#include "engine/serve/engine_loop.h"
#include "engine/serve/http_server.h"
#include "engine/serve/model_pool.h"
#include "engine/serve/request_log.h"

namespace tally {

struct ApiServerOptions {
  std::vector<std::string> keys = {}, hosts = {}, origins = {};  // AccessOptions
  bool insecure = false;                                         // the server may listen beyond this machine without a key
  std::string prefix = {};                                       // of all paths, as ReadPathPrefix gives it
  bool metrics = false;                                          // GET /metrics is answered
  std::string version = {};                                      // of the program
  bool page = true;                                              // GET / and /live are answered
  PoolOptions pool = {};
  bool strict = false;  // fields of bodies that would be ignored are refused
  LogForm log_form = LogForm::kPlain;
  // Called with a line, without its newline, for each request that has been answered; from any thread, one at a time. None: no log.
  std::function<void(const std::string& line)> log = {};
  HttpLimits http = {};
};

class ApiServer {
 public:
  // Begins to answer. `model` (whose `tally` is ignored) must outlive the server, and its engine is the server's until it has stopped.
  // kBadInput: `listener` is reachable for others, and there is no key. kNoRoom: the system refuses what the server takes.
  static Result<std::unique_ptr<ApiServer>> Start(const ServedModel& model, Listener listener, const ApiServerOptions& options);
  // The same with models that are loaded: at once, in their order, those that fit into the budget (PoolOptions::bytes); others when they
  // are asked for. kBadInput: two have one name, or none is there. kNoRoom: also a model that is larger than the budget. Errors of loads.
  static Result<std::unique_ptr<ApiServer>> Start(std::vector<ModelSource> models, Listener listener,
                                                  const ApiServerOptions& options);
  virtual ~ApiServer() = default;     // as Stop(0)
  virtual uint16_t port() const = 0;  // 0: it listens on a Unix socket
  virtual std::vector<ModelPool::Figures> models() const = 0;
  // Accepts nothing more, finishes the requests that it has for at most so many seconds, and ends the others with an error. Returns the
  // number of the others.
  virtual size_t Stop(double seconds) = 0;
};

// An error if a server must not listen there without a key.
Status CheckExposure(const Listener& listener, bool has_keys, bool insecure);

}  // namespace tally
