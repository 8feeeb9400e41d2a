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
#include "engine/serve/api_error.h"
#include "engine/serve/api_messages.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/api_routes.h"
#include "engine/serve/api_status.h"
#include "engine/serve/api_stream.h"
#include "engine/serve/api_tokens.h"
#include "engine/serve/gathering.h"
#include "engine/serve/http_syntax.h"
#include "engine/serve/metrics.h"
#include "engine/serve/model_pool.h"
#include "engine/serve/work_queue.h"

namespace tally {
namespace {

constexpr int kWorkers = 2, kLargeWorkers = 2;
constexpr size_t kMostWork = 256;                              // bodies that wait to be parsed
constexpr size_t kLargeBody = size_t{64} << 10;                // bytes from which on a body has workers of its own
constexpr double kLeastFlushSeconds = 0.1, kFlushSeconds = 2;  // until what has been answered is read, when the server stops

using ExchangePtr = std::shared_ptr<HttpExchange>;

ApiError TooMuch() {
  return {.status = 503, .message = "too many requests at once: try again later", .type = "server_error", .code = "overloaded"};
}

// What the log says of a request beside what all have.
struct Told {
  std::string model = {};
  std::vector<std::string> ignored = {}, notes = {};  // RequestRecord
  std::optional<ApiUsage> usage = {};
  std::string error = {};
};

class ModelServer final : public ApiServer {
 public:
  ModelServer(std::vector<ModelSource> models, const ApiServerOptions& options, const Listener& listener)
      : options_(options),
        access_({.keys = options.keys,
                 .hosts = options.hosts,
                 .origins = options.origins,
                 .prefix = options.prefix,
                 .loopback = listener.loopback()}),
        port_(listener.port()),
        started_(std::time(nullptr)),
        pool_(std::move(models), options.pool),
        work_(kMostWork, kWorkers),
        large_work_(kMostWork, kLargeWorkers - 1) {}
  ~ModelServer() override { Stop(0); }

  Status Begin(Listener listener) {
    TALLY_RETURN_IF_ERROR(pool_.Start());
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
  std::vector<ModelPool::Figures> models() const override { return pool_.All(); }

  size_t Stop(double seconds) override {
    stopping_ = true;
    if (http_ != nullptr) http_->StopAccepting();
    const size_t cut = pool_.Stop(seconds);
    work_.Stop();
    large_work_.Stop();
    if (http_ != nullptr) http_->Stop(std::clamp(seconds, kLeastFlushSeconds, kFlushSeconds));
    return cut;
  }

 private:
  // --- the HTTP thread

  std::optional<HttpAnswer> Admit(const HttpRequest& head) {
    const AccessRules::Decision decision = access_.Check(head);
    const Target target = TargetAt(head.path);
    if (decision.error) return Refused(head, target, *decision.error);
    const HttpHeaders cors = access_.CorsHeaders(head);
    if (head.method == "OPTIONS") return Settled(head, target, {.status = 204, .headers = cors});
    if (!options_.prefix.empty() && head.path == options_.prefix && (head.method == "GET" || head.method == "HEAD")) {
      return Settled(head, target, {.status = 308, .headers = {{"Location", options_.prefix + "/"}}});
    }
    const bool beats = target.route == Route::kRoot && head.method == "HEAD";  // ollama's clients look whether somebody is here
    if (const bool paged = target.route == Route::kRoot || target.route == Route::kLive; paged && !beats && !options_.page) {
      return Refused(head, target, {.status = 404, .message = head.path + " is off: --no-page was given", .code = "not_found"});
    }
    if (target.route == Route::kNone || (target.route == Route::kMetrics && !options_.metrics)) {
      return Refused(head, target, {.status = 404, .message = NotFound(head.path, target), .code = "not_found"});
    }
    if (head.method != target.method && !(head.method == "HEAD" && std::string_view(target.method) == "GET")) {
      return Refused(head, target,
                     {.status = 405, .message = head.path + " wants " + target.method, .code = "method_not_allowed"});
    }
    if (const auto type = FindHeader(head.headers, "content-type"); head.method == "POST" && type && !MayBeJson(*type)) {
      return Refused(head, target,
                     {.status = 415,
                      .message = "Content-Type is " + Quote(std::string(*type)) + ", and bodies are application/json",
                      .code = "unsupported_media_type"});
    }
    return std::nullopt;
  }
  // Also of clients that name no type of their own: curl -d says it sends a form, fetch that it sends plain text.
  static bool MayBeJson(std::string_view type) {
    const std::string name = AsciiLower(type.substr(0, type.find_first_of("; ")));
    return name.empty() || name.ends_with("/json") || name.ends_with("+json") || name == "text/plain" ||
           name == "application/x-www-form-urlencoded";
  }
  // Of a path without the prefix. Nothing is elsewhere.
  std::optional<std::string_view> Inside(std::string_view path) const {
    if (!path.starts_with(options_.prefix)) return std::nullopt;
    path.remove_prefix(options_.prefix.size());
    return path.starts_with('/') ? std::optional(path) : std::nullopt;
  }
  Target TargetAt(std::string_view path) const {
    const std::optional<std::string_view> inside = Inside(path);
    return inside ? TargetOf(*inside) : Target{.endpoint = TargetOf(path).endpoint};
  }
  std::string NotFound(const std::string& path, const Target& target) const {
    if (target.route == Route::kMetrics) return "/metrics is off: tally serve --metrics";
    const std::optional<std::string_view> inside = Inside(path);
    if (!inside) return Quote(path) + " is not served: all paths begin with " + options_.prefix + "/";
    const std::string_view why = WhyNotServed(*inside);
    return Quote(path) + (why.empty() ? " is nothing that is served here" : ": " + std::string(why));
  }
  HttpAnswer Refused(const HttpRequest& head, const Target& target, const ApiError& error) {
    HttpAnswer answer = JsonAnswer(error.status, ErrorJson(error, target.endpoint));
    for (auto& header : access_.CorsHeaders(head)) answer.headers.push_back(std::move(header));
    return Settled(head, target, std::move(answer), {.error = error.message});
  }

  HttpAnswer RefusedByServer(const HttpRequest& head, int status, const std::string& message) {
    const Target target = TargetAt(head.path);
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
    requests_.Count(target.path, answer.status);
    Log(head, target, answer.status, id, told);
    return answer;
  }
  void Log(const HttpRequest& head, const Target& target, int status, const std::string& id, const Told& told) {
    if (!options_.log) return;
    // Asked for every few seconds by programs that watch.
    if (status == 200 && (target.route == Route::kHealth || target.route == Route::kMetrics)) return;
    const RequestRecord record = {.time = std::time(nullptr),
                                  .client = head.address,
                                  .key = access_.Check(head).client,
                                  .method = head.method,
                                  .path = target.route == Route::kNone ? head.path : std::string(target.path),
                                  .status = status,
                                  .seconds = MonotonicSeconds() - head.arrived,
                                  .id = id,
                                  .model = told.model,
                                  .usage = told.usage,
                                  .ignored = told.ignored,
                                  .notes = told.notes,
                                  .error = told.error};
    const std::string line = LogLine(record, options_.log_form);
    const std::lock_guard lock(log_mutex_);
    options_.log(line);
  }

  // --- the HTTP thread

  void Handle(const ExchangePtr& exchange) {
    const Target target = TargetAt(exchange->request().path);
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
      case Route::kModels: return Answer(*exchange, target, 200, ModelsJson(pool_.All(), started_));
      case Route::kModel: {
        const std::vector<ModelPool::Figures> all = pool_.All();
        const auto asked = std::ranges::find(all, target.name, &ModelPool::Figures::name);
        if (asked == all.end()) return Fail(*exchange, target, NoSuchModel(target.name));
        return Answer(*exchange, target, 200, ModelJson(*asked, started_));
      }
      case Route::kOllamaTags:
      case Route::kOllamaPs: return HandleOllamaModels(exchange, target);
      case Route::kOllamaVersion:
      case Route::kVersion: return Answer(*exchange, target, 200, {{"version", options_.version}});
      case Route::kLoad: return Answer(*exchange, target, 200, {{"server_load", pool_.in_use()}});
      case Route::kProps: return HandleProps(exchange, target);
      case Route::kSlots: return HandleSlots(exchange, target);
      case Route::kMetrics: return HandleMetrics(exchange, target);
      case Route::kLive: return HandleLive(exchange, target);
      default: break;
    }
    if (stopping_) return Fail(*exchange, target, ShuttingDown());
    const std::string client = ClientOf(exchange->request());
    WorkQueue& queue = QueueOf(exchange->request().body);
    if (!queue.Add(client, [this, exchange, target] { Work(exchange, target); })) Fail(*exchange, target, TooMuch());
  }

  WorkQueue& QueueOf(const std::string& body) { return body.size() < kLargeBody ? work_ : large_work_; }
  // Names the queue that its requests wait in: one for each key, or for each address if there are no keys.
  std::string ClientOf(const HttpRequest& head) const {
    std::string client = access_.Check(head).client;
    return client.empty() ? head.address : client;
  }

  ApiError NoSuchModel(std::string_view name) const {
    const std::string names = pool_.Names();
    return {.status = 404,
            .message =
                "there is no model " + Quote(std::string(name)) + "; " + names + (pool_.size() == 1 ? " is" : " are") + " served",
            .param = "model",
            .code = "model_not_found"};
  }

  // Calls `call` with the model of the query, ?model=NAME, or else the one that was used last. An error: there is none in memory.
  std::optional<ApiError> WithAsked(const HttpRequest& head, const std::function<bool(HostedModel& hosted)>& call) {
    const std::optional<std::string> name = QueryValue(head.query, "model");
    const std::optional<size_t> model = name && !name->empty() ? pool_.Find(*name) : pool_.Latest();
    if (name && !name->empty() && !model) return NoSuchModel(*name);
    bool called = false;
    if (model && pool_.With(*model, [&](HostedModel& hosted) { called = call(hosted); }) && called) return std::nullopt;
    if (stopping_) return ShuttingDown();
    return ApiError{.status = 503,
                    .message = model ? "the model " + Quote(pool_.name(*model)) + " is not in memory: an answer of it loads it"
                                     : "no model is in memory: an answer of one loads it",
                    .type = "server_error",
                    .code = "model_not_loaded"};
  }

  void HandleOllamaModels(const ExchangePtr& exchange, const Target& target) {
    const bool running = target.route == Route::kOllamaPs;
    const std::vector<ModelPool::Figures> all = pool_.All();
    OrderedJson list = OrderedJson::array();
    for (size_t i = 0; i < all.size(); ++i) {
      const bool loaded = pool_.With(
          i, [&](const HostedModel& hosted) { list.push_back(OllamaModelJson(all[i], &hosted.served, started_, running)); });
      if (!loaded && !running) list.push_back(OllamaModelJson(all[i], nullptr, started_, running));
    }
    Answer(*exchange, target, 200, {{"models", std::move(list)}});
  }

  void HandleMetrics(const ExchangePtr& exchange, const Target& target) {
    using Texts = std::vector<std::pair<size_t, std::string>>;
    const auto gathering = std::make_shared<Gathering<std::string>>([this, exchange, target](const Texts& texts) {
      if (stopping_ && texts.empty()) return Fail(*exchange, target, ShuttingDown());
      HttpAnswer answer{.headers = {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}};
      answer.body = MetricsText(texts);
      Answer(*exchange, target, std::move(answer));
    });
    pool_.Each([&](size_t model, HostedModel& hosted) {
      gathering->Expect();
      const bool called = hosted.loop->Call([gathering, model](Engine& engine, const LiveFeed&, const LoopState& state) {
        gathering->Add(model, EngineMetrics(engine, state));
      });
      if (!called) gathering->Ended();
    });
    gathering->Ended();
  }
  // `engines`: the figures of the engines in memory, in the models' order.
  std::string MetricsText(const std::vector<std::pair<size_t, std::string>>& engines) const {
    if (pool_.size() == 1) return requests_.Text() + pool_.metrics(0).Text() + (engines.empty() ? "" : engines[0].second);
    std::vector<ModelCounts> counts;
    for (const ModelPool::Figures& model : pool_.All()) {
      counts.push_back({.name = model.name,
                        .loaded = model.state == ModelState::kLoaded,
                        .bytes = model.bytes,
                        .loads = model.loads,
                        .drops = model.drops});
    }
    std::vector<std::pair<std::string, std::string>> texts;
    for (size_t i = 0; i < pool_.size(); ++i) texts.emplace_back(pool_.name(i), pool_.metrics(i).Text());
    for (const auto& [model, text] : engines) texts[model].second += text;
    return requests_.Text() + ModelsMetrics(counts, pool_.bytes(), pool_.budget()) + JoinMetrics(texts);
  }

  void HandleLive(const ExchangePtr& exchange, const Target& target) {
    if (exchange->request().method == "HEAD") {
      return Answer(*exchange, target, {.headers = {{"Content-Type", "text/event-stream"}}});
    }
    const auto watch = [this, exchange, target](Engine&, LiveFeed& feed, const LoopState& state) {
      const HttpRequest& head = exchange->request();
      HttpHeaders headers = access_.CorsHeaders(head);
      const std::string id = RequestId(head, ids_);
      AddId(target, id, &headers);
      if (!feed.Watch(exchange, std::move(headers), state)) return Fail(*exchange, target, TooMuch());
      requests_.Count(target.path, 200);
      Log(head, target, 200, id, {});
    };
    const std::optional<ApiError> error =
        WithAsked(exchange->request(), [&](HostedModel& hosted) { return hosted.loop->Call(watch); });
    if (error) Fail(*exchange, target, *error);
  }

  void HandleProps(const ExchangePtr& exchange, const Target& target) {
    OrderedJson props;
    const std::optional<ApiError> error = WithAsked(exchange->request(), [&](HostedModel& hosted) {
      props = PropsJson(hosted.served, options_.version);
      return true;
    });
    if (error) return Fail(*exchange, target, *error);
    Answer(*exchange, target, 200, props);
  }

  void HandleSlots(const ExchangePtr& exchange, const Target& target) {
    const bool wants_free = QueryValue(exchange->request().query, "fail_on_no_slot").value_or("") == "1";
    const auto told = [this, exchange, target, wants_free](const Engine& engine, const std::vector<SlotFigures>& slots) {
      if (wants_free && std::cmp_greater_equal(slots.size(), engine.max_requests())) {
        return Fail(*exchange, target, {.status = 503, .message = "no slot is free", .type = "server_error", .code = "no_slot"});
      }
      Answer(*exchange, target, 200, SlotsJson(engine, slots));
    };
    const std::optional<ApiError> error =
        WithAsked(exchange->request(), [&](HostedModel& hosted) { return hosted.loop->CallWithSlots(told); });
    if (error) Fail(*exchange, target, *error);
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
    Work(exchange, target, [&] { return TryWork(exchange, target); });
  }
  void Work(const ExchangePtr& exchange, const Target& target, const std::function<std::optional<ApiError>()>& work) {
    std::optional<ApiError> error;
    try {
      if (stopping_) {
        error = ShuttingDown();
      } else if (exchange->left()) {
        LogLeft(*exchange, target);
      } else {
        error = work();
      }
    } catch (const std::exception&) {
      error = ApiError{.status = 503, .message = "not enough memory for this request", .type = "server_error", .code = "no_room"};
    }
    if (error) Fail(*exchange, target, *error);
  }

  void LogLeft(HttpExchange& exchange, const Target& target) {
    Log(exchange.request(), target, kClientLeft, RequestId(exchange.request(), ids_), {});
  }

  // Calls `then` with the model of that name: now, or on a worker of `queue` once it has been loaded.
  using Then = std::function<std::optional<ApiError>(const ModelLease& model)>;
  std::optional<ApiError> WithModel(const ExchangePtr& exchange, const Target& target, WorkQueue& queue, const std::string& name,
                                    Then then) {
    const std::optional<size_t> model = pool_.Find(name);
    if (!model) return NoSuchModel(name);
    if (const ModelLease lease = pool_.Take(*model)) return then(lease);
    const std::string client = ClientOf(exchange->request());
    const auto go = [this, exchange, target, &queue, client, then = std::move(then)](const ModelLease& lease) {
      const auto work = [this, exchange, target, lease, then] { Work(exchange, target, [&] { return then(lease); }); };
      if (!queue.AddAgain(client, work)) Fail(*exchange, target, ShuttingDown());
    };
    const auto fail = [this, exchange, target](const ApiError& error) {
      if (error.status == kClientLeft) return LogLeft(*exchange, target);
      Fail(*exchange, target, error);
    };
    return pool_.Wait(*model, {.client = client,
                               .arrived = exchange->request().arrived,
                               .left = [exchange] { return exchange->left(); },
                               .go = go,
                               .fail = fail});
  }

  std::optional<ApiError> TryWork(const ExchangePtr& exchange, const Target& target) {
    HttpRequest& request = exchange->request();
    const std::string body = std::move(request.body);
    WorkQueue& queue = QueueOf(body);
    Result<OrderedJson> json = ReadJson<OrderedJson>("the body", body, BodyLimits());
    if (!json.ok()) return ApiError{.message = json.status().message(), .code = "invalid_json"};
    switch (target.route) {
      case Route::kComplete: return Complete(exchange, target, queue, *json);
      case Route::kTokenize:
      case Route::kDetokenize: {
        const auto shared = std::make_shared<const OrderedJson>(std::move(*json));
        return WithModel(exchange, target, queue, ModelOf(*shared), [this, exchange, target, shared](const ModelLease& lease) {
          const Model& model = lease->served.engine->model();
          OrderedJson answer;
          std::optional<ApiError> error =
              target.route == Route::kTokenize ? TokenizeBody(model, *shared, &answer) : DetokenizeBody(model, *shared, &answer);
          if (!error) Answer(*exchange, target, 200, answer);
          return error;
        });
      }
      case Route::kCancel: return Cancel(exchange, target, *json);
      case Route::kOllamaShow: return OllamaShow(exchange, target, *json);
      default: return Render(exchange, target, queue, *json);
    }
  }
  static JsonLimits BodyLimits() {
    JsonLimits limits = kOrderedJsonLimits;
    limits.object = true;
    return limits;
  }

  std::optional<ApiError> Complete(const ExchangePtr& exchange, const Target& target, WorkQueue& queue, const OrderedJson& json) {
    ApiRequest request;
    if (std::optional<ApiError> error = ParseApiRequest(target.endpoint, json, &request, options_.strict)) return error;
    const HttpRequest& head = exchange->request();
    if (const auto asked = FindHeader(head.headers, "x-tally"); asked && !request.tally) {
      if (*asked != "0" && *asked != "1")
        return ApiError{.message = "X-Tally must be 0 or 1", .param = "X-Tally", .code = "invalid_value"};
      request.tally = *asked == "1";
    }
    request.arrived = head.arrived;
    request.prefix_key = access_.Check(head).key;
    request.client = ClientOf(head);
    std::string model = request.model;
    if (IsOllama(target.endpoint) && !pool_.Find(model)) model = WithoutLatest(request.model);
    const auto shared = std::make_shared<ApiRequest>(std::move(request));
    return WithModel(exchange, target, queue, model, [this, exchange, target, shared](const ModelLease& lease) {
      return Begin(exchange, target, *shared, lease);
    });
  }

  std::optional<ApiError> Begin(const ExchangePtr& exchange, const Target& target, ApiRequest& request, const ModelLease& lease) {
    const HttpRequest& head = exchange->request();
    if (IsOllama(target.endpoint)) {
      if (std::optional<ApiError> error = CheckOllama(lease->served, &request, options_.strict)) return error;
      if (request.load) {
        Answer(*exchange, target, 200, OllamaLoadedJson(target.endpoint, OllamaName(request.model, lease->served.name)),
               {.ignored = request.ignored});
        return std::nullopt;
      }
    }
    auto served = std::make_unique<ServedRequest>();
    served->lease = lease;
    if (std::optional<ApiError> error = Completion::Make(lease->served, request, ids_, &served->completion)) return error;
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
    served->answered = [this, target, id, asked_by, completion, ignored = request.ignored](int status) {
      requests_.Count(target.path, status);
      Log(asked_by->request(), target, status, id,
          {.model = completion->answer().model, .ignored = ignored, .notes = completion->notes(), .usage = completion->usage()});
    };
    return lease->loop->Add(served);
  }

  std::optional<ApiError> Cancel(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    ApiReading reading;
    ApiObject body(json, "", &reading);
    const std::optional<std::string> id = body.Text("id");
    if (!id) body.Fail("id", "is missing", "missing_required_parameter");
    body.End();
    if (reading.error) return reading.error;
    const std::string client = ClientOf(exchange->request());
    using Found = std::vector<std::pair<size_t, bool>>;
    const auto gathering = std::make_shared<Gathering<bool>>([this, exchange, target](const Found& found) {
      if (stopping_ && found.empty()) return Fail(*exchange, target, ShuttingDown());
      const bool any = std::ranges::any_of(found, [](const std::pair<size_t, bool>& model) { return model.second; });
      Answer(*exchange, target, 200, {{"cancelled", any}});
    });
    pool_.Each([&](size_t model, HostedModel& hosted) {
      gathering->Expect();
      if (!hosted.loop->CutShort(client, *id, [gathering, model](bool found) { gathering->Add(model, found); }))
        gathering->Ended();
    });
    gathering->Ended();
    return std::nullopt;
  }

  // Loads nothing: clients ask for each model of a list.
  std::optional<ApiError> OllamaShow(const ExchangePtr& exchange, const Target& target, const OrderedJson& json) {
    std::string name;
    if (std::optional<ApiError> error = ReadOllamaName(json, &name)) return error;
    const std::vector<ModelPool::Figures> all = pool_.All();
    auto asked = std::ranges::find(all, name, &ModelPool::Figures::name);
    if (asked == all.end()) asked = std::ranges::find(all, WithoutLatest(name), &ModelPool::Figures::name);
    if (asked == all.end()) return NoSuchModel(name);
    // Renders templates, so the pool's lock is not to be held.
    const ModelLease lease = pool_.Look(static_cast<size_t>(asked - all.begin()));
    Answer(*exchange, target, 200, OllamaShowJson(*asked, lease == nullptr ? nullptr : &lease->served, started_));
    return std::nullopt;
  }

  // `model` of a body that has little else; what is wrong with it is found when the body is read.
  static std::string ModelOf(const OrderedJson& json) {
    const auto model = json.find("model");
    return model != json.end() && model->is_string() ? model->get<std::string>() : "";
  }

  // /apply-template, and the counts of tokens.
  std::optional<ApiError> Render(const ExchangePtr& exchange, const Target& target, WorkQueue& queue, const OrderedJson& json) {
    const ApiEndpoint endpoint = target.route == Route::kTemplate ? ApiEndpoint::kChat : target.endpoint;
    const auto request = std::make_shared<ApiRequest>();
    if (std::optional<ApiError> error = ParseApiRequest(endpoint, json, request.get(), options_.strict)) return error;
    request->chat.now = std::time(nullptr);
    return WithModel(exchange, target, queue, request->model,
                     [this, exchange, target, request](const ModelLease& lease) -> std::optional<ApiError> {
                       RenderedChat rendered;
                       if (std::optional<ApiError> error = RenderApiChat(lease->served, request->chat, &rendered)) return error;
                       OrderedJson answer = {{"input_tokens", rendered.tokens.size()}};
                       if (target.endpoint == ApiEndpoint::kResponses) answer["object"] = "response.input_tokens";
                       if (target.route == Route::kTemplate)
                         answer = {{"prompt", JoinSegments(rendered.segments)}, {"prompt_tokens", rendered.tokens.size()}};
                       Answer(*exchange, target, 200, answer, {.ignored = request->ignored, .notes = std::move(rendered.notes)});
                       return std::nullopt;
                     });
  }

  const ApiServerOptions options_;
  const AccessRules access_;
  const uint16_t port_;
  const int64_t started_;  // seconds since 1970
  ApiIds ids_;
  const ChatPage page_ = MakeChatPage();
  RequestCounts requests_;
  std::mutex log_mutex_;
  std::atomic<bool> stopping_{false};
  ModelPool pool_;               // outlives what holds a model
  WorkQueue work_, large_work_;  // those of large bodies, so that others do not wait for them; one client never has all of them
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
  ModelSource source{.name = model.name, .bytes = 0, .context = model.engine->context()};
  source.load = [model](bool, const std::function<bool()>&) -> Result<ReadyModel> { return ReadyModel{.served = model}; };
  return Start(std::vector<ModelSource>{std::move(source)}, std::move(listener), options);
}

Result<std::unique_ptr<ApiServer>> ApiServer::Start(std::vector<ModelSource> models, Listener listener,
                                                    const ApiServerOptions& options) {
  TALLY_RETURN_IF_ERROR(CheckExposure(listener, !options.keys.empty(), options.insecure));
  if (models.empty()) return BadInput("there is no model to serve");
  for (size_t i = 0; i < models.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (models[i].name == models[j].name) {
        return BadInput("two models have the name " + Quote(models[i].name) + ": give one another, as in NAME=MODEL");
      }
    }
  }
  auto server = std::make_unique<ModelServer>(std::move(models), options, listener);
  TALLY_RETURN_IF_ERROR(server->Begin(std::move(listener)));
  return std::unique_ptr<ApiServer>(std::move(server));
}

}  // namespace tally
