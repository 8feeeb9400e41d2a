// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/completion.h"

#include <algorithm>
#include <cmath>
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

constexpr int64_t kMostPromptTokens = int64_t{16} << 20;   // of all choices: each keeps its own
constexpr int64_t kMostPromptLogprobs = int64_t{1} << 18;  // of prompts, in an answer

// 32 bits, which every reader of JSON keeps exactly.
uint64_t DrawSeed() { return std::random_device{}(); }

RequestOptions OptionsOf(const ServedModel& model, const ApiRequest& request, uint64_t seed) {
  RequestOptions options = {.max_tokens = request.max_tokens.value_or(model.max_tokens),
                            .sampling = model.sampling,
                            .ignore_eos = request.ignore_eos,
                            .show_stop = request.include_stop,
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
  s.presence_penalty = request.presence_penalty.value_or(s.presence_penalty);
  s.frequency_penalty = request.frequency_penalty.value_or(s.frequency_penalty);
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

StopOptions StopsOf(const ApiRequest& request) {
  return {.shown = request.include_stop ? request.stop : std::vector<std::string>(), .after = request.rules.min_tokens};
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
                         .fingerprint = model.fingerprint,
                         .created = std::time(nullptr),
                         .arrived = request.arrived,
                         .begun = MonotonicSeconds(),
                         .seed = request.seed ? *request.seed : DrawSeed(),
                         .token_ids = request.return_token_ids || model.engine->model().tokenizer() == nullptr,
                         .prompt_ids = request.return_token_ids,
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
  completion->stop_ = request.stop;
  completion->top_logprobs_ = request.top_logprobs;
  completion->prompt_logprobs_ = request.prompt_logprobs;
  completion->shows_prompt_ = request.echo_prompt;
  if (completion->grammar_ != nullptr && (request.ignore_eos || request.rules.min_tokens > 0)) {
    const char* const field = request.ignore_eos ? "ignore_eos" : "min_tokens";
    return ApiError{.message = std::string(field) + ": an answer that follows a grammar ends where the grammar does",
                    .param = field};
  }
  std::optional<ApiError> error = ResolveRules(request, model.engine->model(), &completion->rules_);
  if (!error) error = text ? completion->AddPrompts(model, request) : completion->AddChat(model, request, ids);
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
  if (rules_.tokens() * static_cast<int64_t>(answer_.choices.size() + static_cast<size_t>(request.n)) > kMostPromptTokens) {
    return ApiError{.message = "ids, words and biases of all choices together have more than " +
                               std::to_string(kMostPromptTokens) + " tokens",
                    .param = "n"};
  }
  // The first choice of a prompt has them; all choices show them.
  const int64_t logprobs = std::max(prompt_logprobs_, shows_prompt_ ? top_logprobs_ : -1);
  prompt_entries_ += size * (1 + logprobs) * (request.prompts.empty() ? 1 : request.n);
  if (prompt_entries_ > kMostPromptLogprobs) {
    return ApiError{.message = "an answer has at most " + std::to_string(kMostPromptLogprobs) +
                               " log probabilities of prompts: ask for fewer, or of shorter prompts",
                    .param = prompt_logprobs_ >= 0 ? "prompt_logprobs" : "logprobs"};
  }
  // Recurrent layers can only begin from a state that is remembered; other layers do not need to know the place.
  const int64_t shared = AnyLayer(model.engine->model().recipe(), &LayerRecipe::recurrent) ? SharedLength(tokens) : 0;
  for (int64_t i = 0; i < request.n; ++i) {
    RequestOptions options = OptionsOf(model, request, answer_.seed + static_cast<uint64_t>(i));
    options.rules = rules_.rules;
    options.logit_bias = rules_.bias;
    if (i == 0) options.prompt_logprobs = static_cast<int32_t>(logprobs);
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
    if (answer_.prompt_ids) answer_.choices.back().prompt_ids = tokens;
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

std::optional<ApiError> RenderApiChat(const ServedModel& model, const ChatRequest& asked, RenderedChat* rendered,
                                      size_t most_tokens) {
  rendered->chat = asked;
  rendered->chat.variables.insert(model.template_variables.begin(), model.template_variables.end());
  const ChatRequest& chat = rendered->chat;
  const Model& loaded = model.engine->model();
  if (std::optional<ApiError> error = CheckTokenizer("messages", loaded)) return error;
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
  chat = std::move(rendered.chat);
  const std::string prompt = JoinSegments(rendered.segments);
  const ChatFormat& format = *rendered.side->format;
  start_ = format.StartOf(prompt, chat);
  if (chat.continue_last && grammar_ != nullptr && MayCall(chat) && start_.call_marks.empty()) {
    return ApiError{
        .message = "messages end with one that is to be continued: it cannot be held to a format while tools may be called",
        .param = "messages",
        .code = "unsupported_value"};
  }
  if (std::optional<CallsError> error =
          HoldCalls(model.engine->model(), *model.grammars, chat, format, prompt, grammar_ != nullptr, &calls_)) {
    return ApiError{.message = std::move(error->message),
                    .param = std::move(error->field),
                    .code = error->unsupported ? "unsupported_value" : ""};
  }
  std::ranges::move(rendered.notes, std::back_inserter(notes_));
  chat_ = chat;
  return AddChoices(model, request, std::move(rendered.tokens), [&] {
    return NewAnswerStream(*tokenizer_, format.NewParser(prompt, chat), stop, CallsOf(chat, format, request.endpoint, ids),
                           StopsOf(request));
  });
}

std::optional<ApiError> Completion::AddPrompts(const ServedModel& model, const ApiRequest& request) {
  const Model& loaded = model.engine->model();
  const Tokenizer* const tokenizer = loaded.tokenizer();
  if (!request.stop.empty()) {
    if (std::optional<ApiError> error = CheckTokenizer("stop", loaded)) return error;
  }
  if (shows_prompt_) {
    if (std::optional<ApiError> error = CheckTokenizer("echo", loaded)) return error;
  }
  for (const ApiPrompt& prompt : request.prompts) {
    std::vector<int32_t> tokens;
    std::string shown;
    for (const ApiPromptPart& part : prompt) {
      if (part.tokens) {
        if (std::optional<ApiError> error = CheckIds("prompt", *part.tokens, loaded)) return error;
        tokens.insert(tokens.end(), part.tokens->begin(), part.tokens->end());
        if (shows_prompt_) shown += tokenizer->Decode(*part.tokens);
        continue;
      }
      if (std::optional<ApiError> error = CheckTokenizer("prompt", loaded)) return error;
      const size_t most = MostTokens(model);
      const bool add_special = tokens.empty() && request.add_special;
      Result<std::vector<int32_t>> encoded = tokenizer->Encode(
          part.text, {.add_special = add_special, .parse_special = model.parse_special || part.parse_special, .most_ids = most});
      if (!encoded.ok()) {
        ApiError error = EncodingError(model, most, encoded.status());
        if (!error.code.empty()) error.param = PromptField(request.endpoint);
        return error;
      }
      tokens.insert(tokens.end(), encoded->begin(), encoded->end());
      if (shows_prompt_) shown += part.text;
    }
    if (shows_prompt_) prompts_.push_back(std::move(shown));
    const bool at_start = BeginsText(tokenizer, tokens);
    std::optional<ApiError> error = AddChoices(
        model, request, std::move(tokens), [&] { return NewTextStream(tokenizer, at_start, request.stop, StopsOf(request)); });
    if (error) return error;
  }
  return std::nullopt;
}

// A control token by its spelling.
ApiLogprob Completion::Named(int32_t token, const TokenLogprobs& logprobs, int32_t most) const {
  const auto bytes = [&](int32_t id) {
    if (tokenizer_ == nullptr) return std::to_string(id);
    return tokenizer_->IsControl(id) ? tokenizer_->ControlText(id) : tokenizer_->TokenBytes(id);
  };
  ApiLogprob named{.bytes = bytes(token), .logprob = logprobs.logprob};
  named.is_text = tokenizer_ == nullptr || !tokenizer_->IsControl(token);
  for (size_t i = 0; i < logprobs.top.size() && static_cast<int32_t>(i) < most; ++i) {
    named.top.emplace_back(bytes(logprobs.top[i].token), logprobs.top[i].logprob);
  }
  return named;
}

// False: the choice is to begin with log probabilities of its prompt, which the first choice of that prompt has not run yet.
bool Completion::IsPromptKnown(size_t choice) const {
  const Request& first = *requests_[choice - choice % static_cast<size_t>(n_)];
  if (!shows_prompt_ || first.prompt_logprobs() == nullptr || first.ended()) return true;
  return static_cast<int64_t>(first.prompt_logprobs()->size()) + 1 >= first.prompt_size();
}

// What a choice that begins with its prompt has before the first token that was drawn.
void Completion::AddPrompt(size_t choice, ApiDelta* delta) {
  const size_t prompt = choice / static_cast<size_t>(n_);
  const Request& first = *requests_[prompt * static_cast<size_t>(n_)];
  delta->parts.push_back({.text = prompts_[prompt]});
  if (top_logprobs_ < 0 || first.prompt_logprobs() == nullptr) return;
  const std::vector<TokenLogprobs>& logprobs = *first.prompt_logprobs();
  const std::span<const int32_t> tokens = first.tokens();
  delta->logprobs.push_back(Named(tokens.front(), {}, 0));
  delta->logprobs.back().logprob.reset();  // nothing is before it
  for (size_t i = 0; i < logprobs.size(); ++i) delta->logprobs.push_back(Named(tokens[i + 1], logprobs[i], top_logprobs_));
}

std::vector<ApiDelta> Completion::Collect() {
  told_ended_.resize(requests_.size());
  told_prompt_.resize(requests_.size());
  std::vector<ApiDelta> deltas;
  for (size_t i = 0; i < requests_.size(); ++i) {
    Request& request = *requests_[i];
    if (!IsPromptKnown(i)) continue;
    std::vector<RequestEvent> events = request.TakeEvents();
    const bool ended = request.ended() && !told_ended_[i];
    if (events.empty() && !ended) continue;
    told_ended_[i] = request.ended();
    ApiDelta& delta = deltas.emplace_back(ApiDelta{.choice = i, .ended = ended});
    if (shows_prompt_ && !told_prompt_[i]) {
      told_prompt_[i] = true;
      AddPrompt(i, &delta);
    }
    for (RequestEvent& event : events) {
      if (event.token >= 0) ++delta.tokens;
      if (event.token >= 0 && answer_.logprobs) delta.logprobs.push_back(Named(event.token, event.logprobs, top_logprobs_));
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
    if (std::exchange(next.continue_last, false)) {
      next.messages.back().content += answer.content;
      next.messages.back().tool_calls = answer.calls;
    } else {
      next.messages.push_back({.role = "assistant",
                               .content = answer.content,
                               .reasoning = answer.reasoning,
                               .tool_calls = answer.calls,
                               .tool_call_id = {},
                               .name = {}});
    }
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
  other.continue_last = false;
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

// As vLLM has them: of each token an object of tokens by their ids, the token itself among them; null for the first.
OrderedJson Completion::PromptLogprobsJson(size_t choice) const {
  const Request& first = *requests_[choice - choice % static_cast<size_t>(n_)];
  const std::span<const int32_t> tokens = first.tokens();
  const auto entry = [&](int32_t token, double logprob, int64_t rank) {
    const std::string text = Named(token, {}, 0).bytes;
    return OrderedJson{{"logprob", FiniteLogprob(logprob)}, {"rank", rank}, {"decoded_token", text}};
  };
  OrderedJson list = OrderedJson::array({nullptr});
  for (const TokenLogprobs& logprobs : *first.prompt_logprobs()) {
    const int32_t token = tokens[list.size()];
    OrderedJson of = OrderedJson::object();
    of[std::to_string(token)] = entry(token, logprobs.logprob, logprobs.rank);
    for (size_t i = 0; i < logprobs.top.size() && static_cast<int32_t>(i) < prompt_logprobs_; ++i) {
      const TokenLogprob& top = logprobs.top[i];
      if (top.token != token) of[std::to_string(top.token)] = entry(top.token, top.logprob, static_cast<int64_t>(i) + 1);
    }
    list.push_back(std::move(of));
  }
  return list;
}

OrderedJson Completion::Answer() const {
  ApiAnswer answer = answer_;
  answer.usage = usage();
  const size_t shown = chat_.messages.empty() ? answer.choices.size() : 1;  // a chat has one prompt
  for (size_t i = 0; prompt_logprobs_ >= 0 && i < shown; ++i) answer.choices[i].prompt_logprobs = PromptLogprobsJson(i);
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
