// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/completion.h"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>
#include <string_view>
#include <utility>

#include "engine/base/checksum.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/recipe/recipe.h"
#include "engine/reports/bill_report.h"
#include "engine/serve/api_anthropic.h"
#include "engine/serve/api_ollama.h"
#include "engine/serve/api_responses.h"
#include "engine/session/held_calls.h"
#include "engine/session/output_stream.h"

namespace tally {
namespace {

constexpr int64_t kMostPromptTokens = int64_t{16} << 20;  // of all choices: each keeps its own

// 32 bits, which every reader of JSON keeps exactly.
uint64_t DrawSeed() { return std::random_device{}(); }

RequestOptions OptionsOf(const ServedModel& model, const ApiRequest& request, uint64_t seed) {
  RequestOptions options = {.max_tokens = request.max_tokens.value_or(model.max_tokens),
                            .sampling = model.sampling,
                            .ignore_eos = request.ignore_eos,
                            .logit_bias = request.logit_bias,
                            .top_logprobs = request.top_logprobs,
                            .prefix_key = request.prefix_key,
                            .client = request.client,
                            .draft = model.draft};
  SamplingOptions& s = options.sampling;
  s.temperature = request.temperature.value_or(s.temperature);
  s.top_p = request.top_p.value_or(s.top_p);
  s.min_p = request.min_p.value_or(s.min_p);
  s.top_k = request.top_k.value_or(s.top_k);
  s.repeat_penalty = request.repeat_penalty.value_or(s.repeat_penalty);
  s.repeat_last_n = request.repeat_last_n.value_or(s.repeat_last_n);
  s.seed = seed;
  return options;
}

CallOptions CallsOf(const ChatRequest& chat, const ChatFormat& format, ApiEndpoint endpoint, ApiIds& ids) {
  const char* const prefix = endpoint == ApiEndpoint::kMessages ? "toolu_" : "call_";
  CallOptions calls{.most = chat.most_calls};
  calls.new_id = [&ids, prefix, is_short = format.ShortCallIds()] { return is_short ? ids.NextShort() : ids.Next(prefix); };
  for (const ChatMessage& message : chat.messages) {
    for (const ToolCall& call : message.tool_calls) calls.used_ids.insert(call.id);
  }
  return calls;
}

const char* IdPrefix(ApiEndpoint endpoint) {
  switch (endpoint) {
    case ApiEndpoint::kChat: return "chatcmpl-";
    case ApiEndpoint::kCompletions: return "cmpl-";
    case ApiEndpoint::kResponses: return "resp_";
    default: break;
  }
  return "msg_";
}

const char* PromptField(ApiEndpoint endpoint) {
  switch (endpoint) {
    case ApiEndpoint::kCompletions:
    case ApiEndpoint::kOllamaGenerate: return "prompt";
    case ApiEndpoint::kResponses: return "input";
    default: break;
  }
  return "messages";
}

// A prompt is encoded up to this many contexts, so that the error tells the length of a prompt that is somewhat too long.
constexpr size_t kCountedContexts = 4;
size_t MostTokens(const ServedModel& model) { return kCountedContexts * static_cast<size_t>(model.engine->context()); }

// Of an encoding with at most so many tokens. The field is the caller's to name.
ApiError EncodingError(const ServedModel& model, size_t most_tokens, const Status& status) {
  if (status.code() != StatusCode::kNoRoom) return ApiErrorOf(status);
  return {.message = "the prompt has more than " + std::to_string(most_tokens) + " tokens, and the context room for " +
                     std::to_string(model.engine->context()),
          .code = "context_length_exceeded"};
}

Status CheckTokenizer(const Model& model, const std::string& what) {
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  return model.tokenizer() != nullptr ? Status() : BadInput(what + " needs a tokenizer, and this model has none");
}

}  // namespace

Result<ChatSide> MakeChatSide(const ChatTemplateSource& source, bool native) {
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<ChatFormat> format, MakeChatFormat(source, native));
  Checksum sum;
  sum.Add(source.text);
  return ChatSide{std::move(format), source.stop, sum.value(), source.text};
}

std::optional<ApiError> Completion::Make(const ServedModel& model, const ApiRequest& request, ApiIds& ids,
                                         std::unique_ptr<Completion>* made) {
  std::unique_ptr<Completion> completion(new Completion);
  const bool text = !request.prompts.empty();
  completion->n_ = request.n;
  completion->model_ = &model;
  completion->tokenizer_ = model.engine->model().tokenizer();
  completion->tally_ = request.tally.value_or(model.tally);
  completion->echo_ = request.echo;
  completion->answer_ = {.endpoint = request.endpoint,
                         .id = ids.Next(IdPrefix(request.endpoint)),
                         .model = IsOllama(request.endpoint) ? OllamaName(request.model, model.name) : model.name,
                         .created = std::time(nullptr),
                         .arrived = request.arrived,
                         .begun = MonotonicSeconds(),
                         .seed = request.seed ? *request.seed : DrawSeed(),
                         .token_ids = model.engine->model().tokenizer() == nullptr,
                         .logprobs = request.top_logprobs >= 0};
  const AnswerFormat& format = request.format.kind != AnswerFormat::Kind::kAny ? request.format : model.format;
  Result<std::shared_ptr<Grammar>> grammar = GrammarOf(format, *model.grammars);
  if (!grammar.ok()) {
    ApiError error = ApiErrorOf(BadInput(std::string(grammar.status().message())));  // kNoRoom too: the same later would not do
    error.message = format.field + ": " + error.message;
    error.param = format.field;
    return error;
  }
  completion->grammar_ = std::move(*grammar);
  if (completion->grammar_ != nullptr) {
    for (const std::string& what : completion->grammar_->ignored())
      completion->notes_.push_back(format.field + ": " + Printable(what) + " says nothing here");
  }
  std::optional<ApiError> error = text ? completion->AddPrompts(model, request) : completion->AddChat(model, request, ids);
  if (!error) *made = std::move(completion);
  return error;
}

template <class NewStream>
std::optional<ApiError> Completion::AddChoices(const ServedModel& model, const ApiRequest& request, std::vector<int32_t> tokens,
                                               const NewStream& new_stream) {
  const int64_t size = static_cast<int64_t>(tokens.size()), context = model.engine->context();
  if (size > context) {
    return ApiError{
        .message = "the prompt has " + std::to_string(size) + " tokens, and the context room for " + std::to_string(context),
        .param = PromptField(request.endpoint),
        .code = "context_length_exceeded"};
  }
  tokens_ += size * request.n;
  if (tokens_ > kMostPromptTokens) {
    return ApiError{
        .message = "the prompts of all choices together have more than " + std::to_string(kMostPromptTokens) + " tokens",
        .param = PromptField(request.endpoint)};
  }
  const int32_t vocab = model.engine->model().recipe().vocab;
  for (const auto& [token, bias] : request.logit_bias) {
    if (token < 0 || token >= vocab) {
      return ApiError{
          .message = "logit_bias has the token " + std::to_string(token) + ", and the vocabulary has " + std::to_string(vocab),
          .param = "logit_bias"};
    }
  }
  // Recurrent layers can only begin from a state that is remembered; other layers do not need to know the place.
  const int64_t shared = AnyLayer(model.engine->model().recipe(), &LayerRecipe::recurrent) ? SharedLength(tokens) : 0;
  for (int64_t i = 0; i < request.n; ++i) {
    RequestOptions options = OptionsOf(model, request, answer_.seed + static_cast<uint64_t>(i));
    options.shared_beginning = shared;
    options.grammar = grammar_;
    options.start = start_;
    options.jump = model.jump;
    options.calls = calls_;
    options.may_call = request.prompts.empty() && MayCall(request.chat);
    if (i == 0) {
      if (const Status fits = Request::Check(*model.engine, tokens, options); !fits.ok()) return ApiErrorOf(fits);
      prompt_tokens_.push_back(size);
    }
    requests_.push_back(std::make_shared<Request>(*model.engine, tokens, options, new_stream()));
    answer_.choices.push_back({.result = &requests_.back()->result()});
  }
  return std::nullopt;
}

namespace {

// A template may leave out texts and calls of an assistant's messages, which is noted. It is an error if anything else is left out.
std::optional<ApiError> ErrorOf(const LeftOut& left_out, const ChatRequest& chat, std::vector<std::string>* notes) {
  if (left_out.what == LeftOut::What::kTool) {
    return ApiError{.message = "tools is not supported: the chat template leaves them out",
                    .param = "tools",
                    .code = "unsupported_parameter"};
  }
  const std::string& role = chat.messages[left_out.index].role;
  if (role != "assistant") {
    return ApiError{.message = "the chat template leaves out a message of the role " + Quote(role), .code = "unsupported_value"};
  }
  std::string note = left_out.what == LeftOut::What::kCalls ? "calls of earlier turns are left out by the chat template"
                                                            : "texts of earlier answers are left out by the chat template";
  if (std::ranges::find(*notes, note) == notes->end()) notes->push_back(std::move(note));
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> RenderApiChat(const ServedModel& model, const ChatRequest& chat, RenderedChat* rendered,
                                      size_t most_tokens) {
  const Model& loaded = model.engine->model();
  if (const Status status = CheckTokenizer(loaded, "a chat"); !status.ok()) return ApiErrorOf(status);
  const Result<ChatSide>& side = chat.tools.empty() ? model.chat : model.tool_chat;
  if (!side.ok()) return ApiErrorOf(side.status());
  rendered->side = &*side;
  Result<std::vector<PromptSegment>> segments = side->format->Render(chat, &rendered->notes);
  if (!segments.ok()) return ApiErrorOf(segments.status());
  std::vector<TextSegment> texts;
  for (const PromptSegment& segment : *segments) texts.push_back({segment.text, segment.control});
  Result<std::vector<int32_t>> tokens = loaded.tokenizer()->EncodeSegments(texts, most_tokens);
  if (!tokens.ok()) return EncodingError(model, most_tokens, tokens.status());
  // Only after the prompt is known to fit, since FindLeftOut renders again.
  for (const LeftOut& left_out : side->format->FindLeftOut(chat)) {
    if (std::optional<ApiError> error = ErrorOf(left_out, chat, &rendered->notes)) return error;
  }
  rendered->tokens = std::move(*tokens);
  rendered->segments = std::move(*segments);
  return std::nullopt;
}

std::optional<ApiError> Completion::AddChat(const ServedModel& model, const ApiRequest& request, ApiIds& ids) {
  ChatRequest chat = request.chat;
  chat.now = answer_.created;
  RenderedChat rendered;
  if (std::optional<ApiError> error = RenderApiChat(model, chat, &rendered, MostTokens(model))) {
    if (error->param.empty()) error->param = PromptField(request.endpoint);
    return error;
  }
  std::vector<std::string> stop = rendered.side->stop;
  stop.insert(stop.end(), request.stop.begin(), request.stop.end());
  const std::string prompt = JoinSegments(rendered.segments);
  const ChatFormat& format = *rendered.side->format;
  start_ = format.StartOf(prompt);
  if (std::optional<CallsError> error =
          HoldCalls(model.engine->model(), *model.grammars, chat, format, prompt, grammar_ != nullptr, &calls_)) {
    return ApiError{.message = std::move(error->message),
                    .param = std::move(error->field),
                    .code = error->unsupported ? "unsupported_value" : ""};
  }
  std::ranges::move(rendered.notes, std::back_inserter(notes_));
  chat_ = chat;
  stop_ = request.stop;
  return AddChoices(model, request, std::move(rendered.tokens), [&] {
    return NewAnswerStream(*tokenizer_, format.NewParser(prompt, chat), stop, CallsOf(chat, format, request.endpoint, ids));
  });
}

std::optional<ApiError> Completion::AddPrompts(const ServedModel& model, const ApiRequest& request) {
  const Model& loaded = model.engine->model();
  const Tokenizer* const tokenizer = loaded.tokenizer();
  if (!request.stop.empty()) {
    if (const Status status = CheckTokenizer(loaded, "stop"); !status.ok()) return ApiErrorOf(status);
  }
  for (const ApiPrompt& prompt : request.prompts) {
    std::vector<int32_t> tokens;
    if (prompt.tokens) {
      tokens = *prompt.tokens;
    } else {
      if (const Status status = CheckTokenizer(loaded, "a prompt of text"); !status.ok()) return ApiErrorOf(status);
      const size_t most = MostTokens(model);
      Result<std::vector<int32_t>> encoded = tokenizer->Encode(
          prompt.text, {.add_special = true, .parse_special = model.parse_special || prompt.parse_special, .most_ids = most});
      if (!encoded.ok()) {
        ApiError error = EncodingError(model, most, encoded.status());
        if (!error.code.empty()) error.param = PromptField(request.endpoint);
        return error;
      }
      tokens = std::move(*encoded);
    }
    const bool at_start = BeginsText(tokenizer, tokens);
    std::optional<ApiError> error =
        AddChoices(model, request, std::move(tokens), [&] { return NewTextStream(tokenizer, at_start, request.stop); });
    if (error) return error;
  }
  return std::nullopt;
}

// A control token by its spelling.
ApiLogprob Completion::Named(const RequestEvent& event) const {
  const auto bytes = [&](int32_t token) {
    if (tokenizer_ == nullptr) return std::to_string(token);
    return tokenizer_->IsControl(token) ? tokenizer_->ControlText(token) : tokenizer_->TokenBytes(token);
  };
  ApiLogprob named{.bytes = bytes(event.token), .logprob = event.logprobs.logprob};
  for (const TokenLogprob& top : event.logprobs.top) named.top.emplace_back(bytes(top.token), top.logprob);
  return named;
}

std::vector<ApiDelta> Completion::Collect() {
  told_ended_.resize(requests_.size());
  std::vector<ApiDelta> deltas;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request& request = *requests_[i];
    std::vector<RequestEvent> events = request.TakeEvents();
    const bool ended = request.ended() && !told_ended_[i];
    if (events.empty() && !ended) continue;
    told_ended_[i] = request.ended();
    ApiDelta& delta = deltas.emplace_back(ApiDelta{.choice = i, .ended = ended});
    for (RequestEvent& event : events) {
      if (event.token >= 0) ++delta.tokens;
      if (event.token >= 0 && answer_.logprobs) delta.logprobs.push_back(Named(event));
      if (std::ranges::any_of(event.parts, [](const OutputPart& p) { return p.kind == OutputPart::Kind::kReasoning; })) {
        ++reasoning_tokens_;
      }
      std::ranges::move(event.parts, std::back_inserter(delta.parts));
    }
    ApiChoice& choice = answer_.choices[i];
    choice.answer.Add(delta.parts);
    choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    if (std::ranges::find(stop_, request.stop()) != stop_.end()) choice.stop = request.stop();
    if (answer_.endpoint != ApiEndpoint::kResponses && answer_.endpoint != ApiEndpoint::kMessages) continue;
    for (const OutputPart& part : delta.parts) {
      if (parts_.empty() || parts_.back().kind != part.kind || parts_.back().call || part.call) {
        parts_.push_back(part);
      } else {
        parts_.back().text += part.text;
      }
    }
  }
  return deltas;
}

bool Completion::ended() const {
  return std::all_of(requests_.begin(), requests_.end(), [](const auto& r) { return r->ended(); });
}

Status Completion::status() const {
  for (const std::shared_ptr<Request>& request : requests_) {
    if (!request->result().error.ok()) return request->result().error;
  }
  return {};
}

ApiUsage Completion::usage() const {
  ApiUsage usage{.reasoning_tokens = reasoning_tokens_};
  for (size_t p = 0; p < prompt_tokens_.size(); ++p) {
    const size_t first = p * static_cast<size_t>(n_);
    usage.prompt_tokens += prompt_tokens_[p];
    usage.cached_tokens += requests_[first]->prompt_reused();
  }
  for (const std::shared_ptr<Request>& request : requests_) {
    usage.completion_tokens += static_cast<int64_t>(request->result().tokens.size());
    usage.drafted_tokens += request->result().drafted;
    usage.accepted_tokens += request->result().accepted;
  }
  return usage;
}

std::vector<int32_t> Completion::NextPrompt() const {
  const std::span<const int32_t> ran = requests_.front()->tokens();
  if (!chat_.messages.empty()) {
    ChatRequest next = chat_;
    const ChatAnswer& answer = answer_.choices.front().answer;
    next.messages.push_back({.role = "assistant",
                             .content = answer.content,
                             .reasoning = answer.reasoning,
                             .tool_calls = answer.calls,
                             .tool_call_id = {},
                             .name = {}});
    next.messages.push_back({.role = "user", .content = "?"});
    next.add_generation_prompt = false;
    RenderedChat rendered;
    if (!RenderApiChat(*model_, next, &rendered)) return std::move(rendered.tokens);
  }
  return {ran.begin(), ran.end()};
}

// How many of a chat's first tokens every chat of the same system messages begins with: those that it has in common with a short
// question after them.
int64_t Completion::SharedLength(std::span<const int32_t> prompt) const {
  if (chat_.messages.empty()) return 0;
  ChatRequest other = chat_;
  const auto is_system = [](const ChatMessage& m) { return m.role == "system" || m.role == "developer"; };
  other.messages.erase(std::ranges::find_if_not(other.messages, is_system), other.messages.end());
  other.messages.push_back({.role = "user", .content = "?"});
  RenderedChat rendered;
  if (RenderApiChat(*model_, other, &rendered)) return 0;
  return std::ranges::mismatch(prompt, rendered.tokens).in1 - prompt.begin();
}

std::vector<int32_t> Completion::SharedBeginning() const {
  const Request& first = *requests_.front();
  const std::span<const int32_t> prompt = first.tokens().first(static_cast<size_t>(first.prompt_size()));
  const int64_t shared = first.shared_beginning() > 0 ? first.shared_beginning() : SharedLength(prompt);
  return {prompt.begin(), prompt.begin() + shared};
}

OrderedJson Completion::BillJson() const {
  if (!tally_) return {};
  OrderedJson bill = {{"model", answer_.model}};
  bill.update(ToOrderedJson(BillDocument(requests_, model_->engine->model().parameters(), model_->engine->ledger().weights())));
  return bill;
}

OrderedJson Completion::Answer() const {
  ApiAnswer answer = answer_;
  answer.usage = usage();
  if (answer.endpoint == ApiEndpoint::kMessages) {
    AnthropicOutput output;
    output.Add(parts_, nullptr);
    output.Finish(nullptr);
    return AnthropicMessageJson(answer, output.blocks(), /*ended=*/true, BillJson());
  }
  if (IsOllama(answer.endpoint)) return OllamaAnswerJson(answer, BillJson());
  if (answer.endpoint != ApiEndpoint::kResponses) return AnswerJson(answer, BillJson());
  ResponseOutput output(answer.id);
  const char* const status = ResponseStatus(answer);
  output.Add(parts_, nullptr);
  output.Finish(std::string_view(status) == "completed", answer.choices.front().logprobs, nullptr);
  return ResponseJson(answer, *echo_, output.items(), status, BillJson());
}

}  // namespace tally
