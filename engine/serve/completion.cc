// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/completion.h"

#include <algorithm>
#include <ctime>
#include <random>
#include <set>
#include <utility>

#include "engine/session/output_stream.h"

namespace tally {
namespace {

// Of 32 bits, which every reader of JSON keeps.
uint64_t DrawSeed() { return std::random_device{}(); }

RequestOptions OptionsOf(const ServedModel& model, const ApiRequest& request, uint64_t seed) {
  RequestOptions options = {.max_tokens = request.max_tokens.value_or(model.max_tokens),
                            .sampling = model.sampling,
                            .ignore_eos = request.ignore_eos,
                            .prefix_key = std::string()};
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

// Of the calls in a conversation: those of its answer are others.
std::set<std::string> CallIdsOf(const ChatRequest& chat) {
  std::set<std::string> ids;
  for (const ChatMessage& message : chat.messages) {
    for (const ToolCall& call : message.tool_calls) ids.insert(call.id);
  }
  return ids;
}

Status CheckTokenizer(const Model& model, const std::string& what) {
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  return model.tokenizer() != nullptr ? Status() : BadInput(what + " needs a tokenizer, and this model has none");
}

}  // namespace

Result<ChatSide> MakeChatSide(const ChatTemplateSource& source, bool native) {
  TALLY_ASSIGN_OR_RETURN(std::unique_ptr<ChatFormat> format, MakeChatFormat(source, native));
  return ChatSide{std::move(format), source.stop};
}

std::optional<ApiError> Completion::Make(const ServedModel& model, const ApiRequest& request, ApiIds& ids,
                                         std::unique_ptr<Completion>* made) {
  std::unique_ptr<Completion> completion(new Completion);
  const bool chat = request.endpoint == ApiEndpoint::kChat;
  completion->n_ = request.n;
  completion->answer_ = {.endpoint = request.endpoint,
                         .id = ids.Next(chat ? "chatcmpl-" : "cmpl-"),
                         .model = model.name,
                         .created = std::time(nullptr),
                         .seed = request.seed ? *request.seed : DrawSeed(),
                         .token_ids = model.engine->model().tokenizer() == nullptr};
  std::optional<ApiError> error = chat ? completion->AddChat(model, request) : completion->AddPrompts(model, request);
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
        .param = request.endpoint == ApiEndpoint::kChat ? "messages" : "prompt",
        .code = "context_length_exceeded"};
  }
  for (int64_t i = 0; i < request.n; ++i) {
    const RequestOptions options = OptionsOf(model, request, answer_.seed + static_cast<uint64_t>(i));
    if (i == 0) {
      if (const Status fits = Request::Check(*model.engine, tokens, options); !fits.ok()) return ApiErrorOf(fits);
      prompt_tokens_.push_back(size);
    }
    requests_.push_back(std::make_shared<Request>(*model.engine, tokens, options, new_stream()));
    answer_.choices.push_back({.result = &requests_.back()->result()});
  }
  return std::nullopt;
}

std::optional<ApiError> Completion::AddChat(const ServedModel& model, const ApiRequest& request) {
  const Model& loaded = model.engine->model();
  if (const Status status = CheckTokenizer(loaded, "a chat"); !status.ok()) return ApiErrorOf(status);
  ChatRequest chat = request.chat;
  chat.now = answer_.created;
  const Result<ChatSide>& side = chat.tools.empty() ? model.chat : model.tool_chat;
  if (!side.ok()) return ApiErrorOf(side.status());
  const Result<std::vector<PromptSegment>> segments = side->format->Render(chat);
  if (!segments.ok()) {
    ApiError error = ApiErrorOf(segments.status());
    error.param = "messages";
    return error;
  }
  if (!chat.tools.empty()) {
    for (const LeftOut& left_out : side->format->FindLeftOut(chat)) {
      if (left_out.what != LeftOut::What::kTool) continue;
      return ApiError{.message = "tools is not supported: the chat template leaves them out",
                      .param = "tools",
                      .code = "unsupported_parameter"};
    }
  }
  std::vector<TextSegment> texts;
  for (const PromptSegment& segment : *segments) texts.push_back({segment.text, segment.control});
  Result<std::vector<int32_t>> tokens = loaded.tokenizer()->EncodeSegments(texts);
  if (!tokens.ok()) return ApiErrorOf(tokens.status());
  std::vector<std::string> stop = side->stop;
  stop.insert(stop.end(), request.stop.begin(), request.stop.end());
  const std::string prompt = JoinSegments(*segments);
  const std::set<std::string> call_ids = CallIdsOf(chat);
  return AddChoices(model, request, std::move(*tokens), [&] {
    return NewAnswerStream(*loaded.tokenizer(), side->format->NewParser(prompt, chat.tools), stop, call_ids);
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
      Result<std::vector<int32_t>> encoded =
          tokenizer->Encode(prompt.text, {.add_special = true, .parse_special = model.parse_special});
      if (!encoded.ok()) return ApiErrorOf(encoded.status());
      tokens = std::move(*encoded);
    }
    const bool at_start = BeginsText(tokenizer, tokens);
    std::optional<ApiError> error =
        AddChoices(model, request, std::move(tokens), [&] { return NewTextStream(tokenizer, at_start, request.stop); });
    if (error) return error;
  }
  return std::nullopt;
}

void Completion::Collect() {
  for (size_t i = 0; i < requests_.size(); ++i) {
    for (const RequestEvent& event : requests_[i]->TakeEvents()) answer_.choices[i].answer.Add(event.parts);
  }
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
  ApiUsage usage;
  for (size_t p = 0; p < prompt_tokens_.size(); ++p) {
    const size_t first = p * static_cast<size_t>(n_);
    usage.prompt_tokens += prompt_tokens_[p];
    usage.cached_tokens += requests_[first]->prompt_reused();
  }
  for (const std::shared_ptr<Request>& request : requests_) {
    usage.completion_tokens += static_cast<int64_t>(request->result().tokens.size());
  }
  return usage;
}

OrderedJson Completion::Answer() const {
  ApiAnswer answer = answer_;
  answer.usage = usage();
  return AnswerJson(answer, BillJson(requests_));
}

}  // namespace tally
