// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_server.h"

#include <algorithm>
#include <ctime>
#include <exception>
#include <mutex>
#include <string_view>
#include <utility>

#include "engine/base/format.h"
#include "engine/base/utf8_check.h"
#include "engine/machine/machine.h"
#include "engine/page/chat_page.h"
#include "engine/serve/api_messages.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/api_routes.h"
#include "engine/serve/api_stream.h"
#include "engine/serve/metrics.h"
#include "engine/serve/work_queue.h"

namespace tally {
namespace {

constexpr int kWorkers = 2, kLargeWorkers = 2;
constexpr size_t kMostWork = 256;                              // bodies that wait to be parsed
constexpr size_t kLargeBody = size_t{64} << 10;                // bytes from which on a body has workers of its own
constexpr double kLeastFlushSeconds = 0.1, kFlushSeconds = 2;  // until what has been answered is read, when the server stops
constexpr size_t kMostTokenText = size_t{4} << 20;             // bytes of /tokenize and /detokenize
constexpr int kLeft = 499;                                     // the status of a request whose client has left, as nginx has it
constexpr size_t kMostPieces = size_t{128} << 10;              // bytes of /tokenize with the text of each token

using ExchangePtr = std::shared_ptr<HttpExchange>;

// Text, or bytes if they are not whole characters.
OrderedJson PieceJson(const std::string& bytes) { return CheckUtf8(bytes, "").ok() ? OrderedJson(bytes) : BytesJson(bytes); }

ApiError TooMuch() {
  return {.status = 503, .message = "too many requests at once: try again later", .type = "server_error", .code = "overloaded"};
}

// What the log says of a request beside what all have.
struct Told {
  std::vector<std::string> ignored = {}, notes = {};  // RequestRecord
  std::optional<ApiUsage> usage = {};
  std::string error = {};
};

class ModelServer final : public ApiServer {
 public:
  ModelServer(const ServedModel& model, const ApiServerOptions& options, const Listener& listener,
              std::unique_ptr<PrefixFiles> files)
      : model_(WithoutBills(model)),
        options_(options),
        access_({.keys = options.keys, .hosts = options.hosts, .origins = options.origins, .loopback = listener.loopback()}),
        port_(listener.port()),
        started_(std::time(nullptr)),
        work_(kMostWork, kWorkers),
        large_work_(kMostWork, kLargeWorkers - 1),
        loop_(*model.engine, options.loop, metrics_, LiveFeed(*model.engine, model.name, options.roofs), std::move(files)) {}
  ~ModelServer() override { Stop(0); }

  Status Begin(Listener listener) {
    TALLY_RETURN_IF_ERROR(loop_.Start());
    TALLY_RETURN_IF_ERROR(work_.Start(kWorkers));
    TALLY_RETURN_IF_ERROR(large_work_.Start(kLargeWorkers));
    HttpHandlers handlers = {.admit = [this](const HttpRequest& head) { return Admit(head); },
                             .request = [this](const ExchangePtr& exchange) { Handle(exchange); },
                             .refuse = [this](const HttpRequest& head, int status,
                                              const std::string& message) { return RefusedByServer(head, status, message); }};
    TALLY_ASSIGN_OR_RETURN(http_, HttpServer::Start(std::move(listener), options_.http, std::move(handlers)));
    return {};
  }
  uint16_t port() const override { return port_; }

  size_t Stop(double seconds) override {
    stopping_ = true;
    if (http_ != nullptr) http_->StopAccepting();
    loop_.Stop(seconds);
    work_.Stop();
    large_work_.Stop();
    if (http_ != nullptr) http_->Stop(std::clamp(seconds, kLeastFlushSeconds, kFlushSeconds));
    return loop_.cut();
  }

 private:
  static ServedModel WithoutBills(ServedModel model) {
    model.tally = false;
    return model;
  }
  static HttpAnswer JsonAnswer(int status, const OrderedJson& body) {
    HttpAnswer answer{.status = status, .headers = {{"Content-Type", "application/json"}}, .body = JsonLine(body)};
    if (status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
    if (status == 429 || status == 503) answer.headers.emplace_back("Retry-After", "1");
    return answer;
  }

  // --- the HTTP thread

  std::optional<HttpAnswer> Admit(const HttpRequest& head) {
    const AccessRules::Decision decision = access_.Check(head);
    const Target target = TargetOf(head.path);
    if (decision.error) return Refused(head, target, *decision.error);
    const HttpHeaders cors = access_.CorsHeaders(head);
    if (head.method == "OPTIONS") return Settled(head, target, {.status = 204, .headers = cors});
    if (target.route == Route::kNone || (target.route == Route::kMetrics && !options_.metrics)) {
      return Refused(head, target, {.status = 404, .message = NotFound(head.path, target), .code = "not_found"});
    }
    if (head.method != target.method && !(head.method == "HEAD" && std::string_view(target.method) == "GET")) {
      return Refused(head, target,
                     {.status = 405, .message = head.path + " wants " + target.method, .code = "method_not_allowed"});
    }
    return std::nullopt;
  }
  static std::string NotFound(const std::string& path, const Target& target) {
    if (target.route == Route::kMetrics) return "/metrics is off: tally serve --metrics";
    const std::string_view why = WhyNotServed(path);
    return Quote(path) + (why.empty() ? " is nothing that is served here" : ": " + std::string(why));
  }
  HttpAnswer Refused(const HttpRequest& head, const Target& target, const ApiError& error) {
    HttpAnswer answer = JsonAnswer(error.status, ErrorJson(error, target.endpoint));
    for (auto& header : access_.CorsHeaders(head)) answer.headers.push_back(std::move(header));
    return Settled(head, target, std::move(answer), {.error = error.message});
  }

  HttpAnswer RefusedByServer(const HttpRequest& head, int status, const std::string& message) {
    const Target target = TargetOf(head.path);
    const ApiError error{.status = status, .message = message, .type = status >= 500 ? "server_error" : "invalid_request_error"};
    if (status == 500)
      return JsonAnswer(status, ErrorJson(error, target.endpoint));  // asked for in case, whether it is used or not
    return Refused(head, target, error);
  }

  // --- any thread

  static void AddId(const Target& target, const std::string& id, HttpHeaders* headers) {
    headers->emplace_back("X-Request-Id", id);
    if (IsAnthropic(target.endpoint)) headers->emplace_back("Request-Id", id);  // as its clients read it
  }
  static void AddIgnored(const std::vector<std::string>& ignored, HttpHeaders* headers) {
    if (!ignored.empty()) headers->emplace_back("X-Tally-Ignored", JoinNames(ignored));
  }
  // An answer with its id, counted and logged.
  HttpAnswer Settled(const HttpRequest& head, const Target& target, HttpAnswer answer, const Told& told = {}) {
    const std::string id = RequestId(head, ids_);
    AddId(target, id, &answer.headers);
    AddIgnored(told.ignored, &answer.headers);
    metrics_.CountRequest(target.path, answer.status);
    Log(head, target, answer.status, id, told);
    return answer;
  }
  void Log(const HttpRequest& head, const Target& target, int status, const std::string& id, const Told& told) {
    if (!options_.log) return;
    // Asked for every few seconds by programs that watch.
    if (status == 200 && (target.route == Route::kHealth || target.route == Route::kMetrics)) return;
    RequestRecord record = {.time = std::time(nullptr),
                            .client = head.address,
                            .key = access_.Check(head).client,
                            .method = head.method,
                            .path = target.route == Route::kNone ? head.path : std::string(target.path),
                            .status = status,
                            .seconds = MonotonicSeconds() - head.arrived,
                            .id = id,
                            .usage = told.usage,
                            .ignored = told.ignored,
                            .notes = told.notes,
                            .error = told.error};
    if (told.usage) record.model = model_.name;
    const std::string line = LogLine(record, options_.log_form);
    const std::lock_guard lock(log_mutex_);
    options_.log(line);
  }

  // --- the HTTP thread

  void Handle(const ExchangePtr& exchange) {
    const Target target = TargetOf(exchange->request().path);
    switch (target.route) {
      case Route::kHealth:
        return Answer(*exchange, target, stopping_ ? 503 : 200, {{"status", stopping_ ? "shutting down" : "ok"}});
      case Route::kRoot: {
        HttpAnswer answer{.headers = {{"Content-Type", "text/html; charset=utf-8"},
                                      {"Content-Security-Policy", page_.content_security_policy},
                                      {"X-Content-Type-Options", "nosniff"},
                                      {"Referrer-Policy", "no-referrer"}},
                          .body = page_.html};
        return Answer(*exchange, target, std::move(answer));
      }
      case Route::kModels:
        return Answer(*exchange, target, 200,
                      {{"object", "list"},
                       {"data", OrderedJson::array({ModelJson()})},
                       {"has_more", false},
                       {"first_id", model_.name},
                       {"last_id", model_.name}});
      case Route::kModel: {
        if (target.name == model_.name) return Answer(*exchange, target, 200, ModelJson());
        return Fail(*exchange, target,
                    {.status = 404,
                     .message = "there is no such model; " + Quote(model_.name) + " is served",
                     .code = "model_not_found"});
      }
      case Route::kOllamaVersion: return Answer(*exchange, target, 200, {{"version", options_.version}});
      case Route::kOllamaTags:
      case Route::kOllamaPs: {
        OrderedJson model = OllamaModelJson(model_, started_, target.route == Route::kOllamaPs);
        return Answer(*exchange, target, 200, {{"models", OrderedJson::array({std::move(model)})}});
      }
      case Route::kMetrics: return HandleMetrics(exchange, target);
      case Route::kLive: return HandleLive(exchange, target);
      default: break;
    }
    if (stopping_) {
      return Fail(*exchange, target,
                  {.status = 503, .message = "the server is shutting down", .type = "server_error", .code = "shutting_down"});
    }
    const std::string client = ClientOf(exchange->request());
    WorkQueue& work = exchange->request().body.size() < kLargeBody ? work_ : large_work_;
    if (!work.Add(client, [this, exchange, target] { Work(exchange, target); })) Fail(*exchange, target, TooMuch());
  }

  // Names the queue that its requests wait in: one for each key, or for each address if there are no keys.
  std::string ClientOf(const HttpRequest& head) const {
    std::string client = access_.Check(head).client;
    return client.empty() ? head.address : client;
  }

  void HandleMetrics(const ExchangePtr& exchange, const Target& target) {
    const bool called = loop_.Call([this, exchange, target](Engine& engine, const LiveFeed&, const LoopState& state) {
      HttpAnswer answer{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}};
      answer.body = metrics_.Text() + EngineMetrics(engine, state);
      Answer(*exchange, target, std::move(answer));
    });
    if (!called) Fail(*exchange, target, {.status = 503, .message = "the server is shutting down", .type = "server_error"});
  }

  void HandleLive(const ExchangePtr& exchange, const Target& target) {
    if (exchange->request().method == "HEAD") {
      return Answer(*exchange, target, {.headers = {{"Content-Type", "text/event-stream"}}});
    }
    const bool called = loop_.Call([this, exchange, target](Engine&, LiveFeed& feed, const LoopState& state) {
      const HttpRequest& head = exchange->request();
      HttpHeaders headers = access_.CorsHeaders(head);
      const std::string id = RequestId(head, ids_);
      AddId(target, id, &headers);
      if (!feed.Watch(exchange, std::move(headers), state)) return Fail(*exchange, target, TooMuch());
      metrics_.CountRequest(target.path, 200);
      Log(head, target, 200, id, {});
    });
    if (!called) Fail(*exchange, target, {.status = 503, .message = "the server is shutting down", .type = "server_error"});
  }

  OrderedJson ModelJson() const {
    const Model& model = model_.engine->model();
    return {{"id", model_.name},
            {"object", "model"},
            {"created", started_},
            {"owned_by", "tally"},
            {"type", "model"},  // this and the next two: of Anthropic's
            {"display_name", model_.name},
            {"created_at", UtcText(started_)},
            {"max_model_len", model_.engine->context()},
            {"description", model.Description()}};
  }

  // --- any thread

  void Answer(HttpExchange& exchange, const Target& target, HttpAnswer answer, const Told& told = {}) {
    for (auto& header : access_.CorsHeaders(exchange.request())) answer.headers.push_back(std::move(header));
    exchange.Answer(Settled(exchange.request(), target, std::move(answer), told));
  }
  void Answer(HttpExchange& exchange, const Target& target, int status, const OrderedJson& body, const Told& told = {}) {
    Answer(exchange, target, JsonAnswer(status, body), told);
  }
  void Fail(HttpExchange& exchange, const Target& target, const ApiError& error) {
    Answer(exchange, target, error.status, ErrorJson(error, target.endpoint), {.error = error.message});
  }

  // --- the workers

  void Work(const ExchangePtr& exchange, const Target& target) {
    std::optional<ApiError> error;
    try {
      if (stopping_) {
        error =
            ApiError{.status = 503, .message = "the server is shutting down", .type = "server_error", .code = "shutting_down"};
      } else if (exchange->left()) {
        Log(exchange->request(), target, kLeft, RequestId(exchange->request(), ids_), {});
      } else {
        error = TryWork(exchange, target);
      }
    } catch (const std::exception&) {
      error = ApiError{.status = 503, .message = "not enough memory for this request", .type = "server_error", .code = "no_room"};
    }
    if (error) Fail(*exchange, target, *error);
  }

  std::optional<ApiError> TryWork(const ExchangePtr& exchange, const Target& target) {
    HttpRequest& request = exchange->request();
    const std::string body = std::move(request.body);
    Result<OrderedJson> json = ReadJson<OrderedJson>("the body", body, BodyLimits());
    if (!json.ok()) return ApiError{.message = json.status().message(), .code = "invalid_json"};
    switch (target.route) {
      case Route::kComplete: return Complete(exchange, target, *json);
      case Route::kTokenize: return Tokenize(exchange, target, *json);
      case Route::kDetokenize: return Detokenize(exchange, target, *json);
      case Route::kCancel: return Cancel(exchange, target, *json);
      case Route::kCountTokens: return CountTokens(exchange, target, *json);
      case Route::kOllamaShow: return Show(exchange, target, *json);
      default: return ApplyTemplate(exchange, target, *json);
    }
  }
  static JsonLimits BodyLimits() {
    JsonLimits limits = kOrderedJsonLimits;
    limits.object = true;
    return limits;
  }

  std::optional<ApiError> Complete(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiRequest request;
    if (std::optional<ApiError> error = ParseApiRequest(target.endpoint, json, &request, options_.strict)) return error;
    const HttpRequest& head = exchange->request();
    if (const auto asked = FindHeader(head.headers, "x-tally"); asked && !request.tally) {
      if (*asked != "0" && *asked != "1")
        return ApiError{.message = "X-Tally must be 0 or 1", .param = "X-Tally", .code = "invalid_value"};
      request.tally = *asked == "1";
    }
    if (IsOllama(target.endpoint)) {
      if (std::optional<ApiError> error = CheckOllama(model_, &request, options_.strict)) return error;
      if (request.load) {
        Answer(*exchange, target, 200, OllamaLoadedJson(target.endpoint, OllamaName(request.model, model_.name)),
               {.ignored = std::move(request.ignored)});
        return std::nullopt;
      }
    }
    request.prefix_key = access_.Check(head).key;
    request.client = ClientOf(head);
    auto served = std::make_unique<ServedRequest>();
    if (std::optional<ApiError> error = Completion::Make(model_, request, ids_, &served->completion)) return error;
    served->exchange = exchange;
    if (request.stream) served->stream = NewApiStream(request);
    served->client = request.client;
    const std::string id = RequestId(head, ids_);
    served->headers = access_.CorsHeaders(head);
    AddId(target, id, &served->headers);
    AddIgnored(request.ignored, &served->headers);
    served->arrived = head.arrived;
    // Both are the request's, which outlives the call.
    HttpExchange* const asked_by = exchange.get();
    const Completion* const completion = served->completion.get();
    served->answered = [this, target, id, asked_by, completion, ignored = std::move(request.ignored)](int status) {
      metrics_.CountRequest(target.path, status);
      Log(asked_by->request(), target, status, id,
          {.ignored = ignored, .notes = completion->notes(), .usage = completion->usage()});
    };
    return loop_.Add(served);
  }

  std::optional<ApiError> Cancel(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiReading reading;
    ApiObject body(json, "", &reading);
    const std::optional<std::string> id = body.Text("id");
    if (!id) body.Fail("id", "is missing", "missing_required_parameter");
    body.End();
    if (reading.error) return reading.error;
    const auto done = [this, exchange, target](bool found) { Answer(*exchange, target, 200, {{"cancelled", found}}); };
    if (loop_.CutShort(ClientOf(exchange->request()), *id, done)) return std::nullopt;
    return ApiError{.status = 503, .message = "the server is shutting down", .type = "server_error", .code = "shutting_down"};
  }

  std::optional<ApiError> Show(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiReading reading;
    ApiObject body(json, "", &reading);
    std::string name = body.Text("model").value_or("");
    const std::string other = body.Text("name").value_or("");  // of older clients
    if (name.empty()) name = other;
    if (name.empty()) body.Fail("model", "is missing", "missing_required_parameter");
    body.Skip({"verbose", "system", "template", "options"});
    body.End();
    if (reading.error) return reading.error;
    if (name != model_.name && WithoutLatest(name) != model_.name) {
      return ApiError{.status = 404,
                      .message = "there is no model " + Quote(name) + "; " + Quote(model_.name) + " is served",
                      .code = "model_not_found"};
    }
    Answer(*exchange, target, 200, OllamaShowJson(model_, started_));
    return std::nullopt;
  }

  std::optional<ApiError> CheckTokenizer() const {
    const Model& model = model_.engine->model();
    if (!model.tokenizer_status().ok()) return ApiErrorOf(model.tokenizer_status());
    if (model.tokenizer() == nullptr) return ApiError{.message = "this model has no tokenizer"};
    return std::nullopt;
  }

  std::optional<ApiError> Tokenize(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    if (std::optional<ApiError> error = CheckTokenizer()) return error;
    ApiReading reading;
    ApiObject body(json, "", &reading);
    const std::optional<std::string> content = body.Text("content");
    if (!content) body.Fail("content", "is missing", "missing_required_parameter");
    const bool add = body.Flag("add_special").value_or(false), parse = body.Flag("parse_special").value_or(true);
    const bool pieces = body.Flag("with_pieces").value_or(false);
    if (const size_t most = pieces ? kMostPieces : kMostTokenText; content && content->size() > most) {
      body.Fail("content", "is longer than " + BytesText(most));
    }
    body.Skip({"model"});
    body.End();
    if (reading.error) return reading.error;
    const Tokenizer& tokenizer = *model_.engine->model().tokenizer();
    const Result<std::vector<int32_t>> tokens = tokenizer.Encode(*content, {.add_special = add, .parse_special = parse});
    if (!tokens.ok()) return ApiErrorOf(tokens.status());
    OrderedJson list = OrderedJson::array();
    for (const int32_t id : *tokens) {
      if (!pieces) {
        list.push_back(id);
      } else {
        list.push_back(
            {{"id", id}, {"piece", PieceJson(tokenizer.IsControl(id) ? tokenizer.ControlText(id) : tokenizer.TokenBytes(id))}});
      }
    }
    Answer(*exchange, target, 200, {{"tokens", std::move(list)}});
    return std::nullopt;
  }

  std::optional<ApiError> Detokenize(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    if (std::optional<ApiError> error = CheckTokenizer()) return error;
    ApiReading reading;
    ApiObject body(json, "", &reading);
    const OrderedJson* const list = body.Array("tokens");
    if (list == nullptr) body.Fail("tokens", "is missing", "missing_required_parameter");
    body.Skip({"model"});
    body.End();
    if (reading.error) return reading.error;
    const Tokenizer& tokenizer = *model_.engine->model().tokenizer();
    std::vector<int32_t> tokens;
    size_t bytes = 0;
    for (const OrderedJson& id : *list) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(tokenizer.vocab_size())) {
        body.Fail("tokens", "must be token ids from 0 to " + std::to_string(tokenizer.vocab_size() - 1));
        return reading.error;
      }
      tokens.push_back(id.get<int32_t>());
      bytes += tokenizer.TokenBytes(tokens.back()).size();
    }
    if (bytes > kMostTokenText) return ApiError{.message = "the text would be longer than " + BytesText(kMostTokenText)};
    std::string content = tokenizer.Decode(tokens);
    Answer(*exchange, target, 200, {{"content", std::move(content)}});
    return std::nullopt;
  }

  std::optional<ApiError> ApplyTemplate(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiRequest request;
    if (std::optional<ApiError> error = ParseApiRequest(ApiEndpoint::kChat, json, &request, options_.strict)) return error;
    request.chat.now = std::time(nullptr);
    RenderedChat rendered;
    if (std::optional<ApiError> error = RenderApiChat(model_, request.chat, &rendered)) return error;
    Answer(*exchange, target, 200, {{"prompt", JoinSegments(rendered.segments)}, {"prompt_tokens", rendered.tokens.size()}},
           {.ignored = std::move(request.ignored), .notes = std::move(rendered.notes)});
    return std::nullopt;
  }

  std::optional<ApiError> CountTokens(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiRequest request;
    if (std::optional<ApiError> error = ParseApiRequest(target.endpoint, json, &request, options_.strict)) return error;
    request.chat.now = std::time(nullptr);
    RenderedChat rendered;
    if (std::optional<ApiError> error = RenderApiChat(model_, request.chat, &rendered)) return error;
    Answer(*exchange, target, 200, {{"input_tokens", rendered.tokens.size()}},
           {.ignored = std::move(request.ignored), .notes = std::move(rendered.notes)});
    return std::nullopt;
  }

  const ServedModel model_;
  const ApiServerOptions options_;
  const AccessRules access_;
  const uint16_t port_;
  const int64_t started_;  // seconds since 1970
  ApiIds ids_;
  const ChatPage page_ = MakeChatPage();
  Metrics metrics_;
  std::mutex log_mutex_;
  std::atomic<bool> stopping_{false};
  WorkQueue work_, large_work_;  // those of large bodies, so that others do not wait for them; one client never has all of them
  EngineLoop loop_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace

Status CheckExposure(const Listener& listener, bool has_keys, bool insecure) {
  if (listener.loopback() || has_keys || insecure) return {};
  return BadInput("at " + listener.address() +
                  " others than this machine reach the server: give it keys (--api-key-file), or say " + "--insecure");
}

Result<std::unique_ptr<ApiServer>> ApiServer::Start(const ServedModel& model, Listener listener,
                                                    const ApiServerOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckExposure(listener, !options.keys.empty(), options.insecure));
  std::unique_ptr<PrefixFiles> files;
  if (!options.cache_folder.empty()) {
    TALLY_ASSIGN_OR_RETURN(
        files, PrefixFiles::Open(*model.engine, options.cache_folder, options.cache_bytes, options.cache_options, options.warn));
  }
  auto server = std::make_unique<ModelServer>(model, options, listener, std::move(files));
  TALLY_RETURN_IF_ERROR(server->Begin(std::move(listener)));
  return std::unique_ptr<ApiServer>(std::move(server));
}

}  // namespace tally
