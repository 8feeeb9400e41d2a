// SPDX-License-Identifier: Apache-2.0
// The answer to one body while it is made: the requests that the engine runs for it, one for each choice, and their results so far.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/chat_format.h"
#include "engine/serve/api_answer.h"
#include "engine/serve/api_request.h"
#include "engine/serve/api_rules.h"
#include "engine/session/answer_calls.h"
#include "engine/session/request.h"

namespace tally {

// A chat template, ready to render chats.
struct ChatSide {
  std::shared_ptr<const ChatFormat> format;
  std::vector<std::string> stop;  // an answer ends before any of these, besides those of the body
  uint64_t template_sum = 0;      // Checksum of the template's text
  std::string text = {};          // of the template
};
// kBadInput: a template that cannot be read. `native`: as MakeChatFormat has it.
Result<ChatSide> MakeChatSide(const ChatTemplateSource& source, bool native);

// The model that answers bodies. It does not change: any number of threads may use it at once.
struct ServedModel {
  Engine* engine = nullptr;
  std::string name = {};          // as answers have it
  SamplingOptions sampling = {};  // for fields that a body leaves out; except the seed, which is drawn
  int64_t max_tokens = -1;        // the same; -1: until the context is full
  int64_t draft = 0;              // RequestOptions::draft
  bool parse_special = false;     // special tokens spelled out in a text prompt become tokens
  bool tally = true;              // answers have their bills, unless the body says otherwise
  Result<ChatSide> chat = BadInput("the model has no chat template");  // an error: chats are answered with it
  AnswerFormat format = {};                                            // of bodies that say none
  bool jump = true;                                                    // RequestOptions::jump
  std::shared_ptr<GrammarCache> grammars = std::make_shared<GrammarCache>();
  Result<ChatSide> tool_chat = chat;  // for chats with tools
  // ChatRequest::variables of chats; those of a body win.
  std::map<std::string, std::string> template_variables = {};
  std::string fingerprint = {};  // of the model and the build, as answers have it; empty: they have none
};

// A chat rendered into its prompt. RenderApiChat returns the error of a body that cannot be answered, for one of more than `most_tokens`.
struct RenderedChat {
  const ChatSide* side = nullptr;  // of the model
  ChatRequest chat = {};           // with the model's variables
  std::vector<PromptSegment> segments = {};
  std::vector<int32_t> tokens = {};
  std::vector<std::string> notes = {};  // what was sent in another form than the body has it: a sentence each
};
[[nodiscard]] std::optional<ApiError> RenderApiChat(const ServedModel& model, const ChatRequest& chat, RenderedChat* rendered,
                                                    size_t most_tokens = SIZE_MAX);

// The progress of a choice since the last Collect().
struct ApiDelta {
  size_t choice = 0;
  std::vector<OutputPart> parts = {};
  std::vector<ApiLogprob> logprobs = {};
  int64_t tokens = 0;  // drawn
  bool ended = false;  // nothing more comes
};

class Completion {
 public:
  // The error of a body that cannot be answered: no template, no tokenizer, what the template refuses, more tokens than the
  // context, tools and texts that the template leaves out. `ids` gives the ids of the answer and of its calls. Model and ids must outlive
  // the completion. Does not run the engine: may be called while another thread steps it.
  [[nodiscard]] static std::optional<ApiError> Make(const ServedModel& model, const ApiRequest& request, ApiIds& ids,
                                                    std::unique_ptr<Completion>* made);

  // One for each choice: all choices of the first prompt, then of the next. They may run in any order, and beside requests
  // of other completions.
  std::span<const std::shared_ptr<Request>> requests() const { return requests_; }
  // Takes the events that have come. A choice without any is left out.
  std::vector<ApiDelta> Collect();
  bool ended() const;
  // The status of the first request that failed; ok: none did.
  Status status() const;
  // Id, model and the like, and the choices so far; no usage.
  const ApiAnswer& answer() const { return answer_; }
  const OrderedJson& echo() const { return *echo_; }  // kResponses
  // What was sent in another form than the body has it, and what of a schema says nothing: a sentence each.
  const std::vector<std::string>& notes() const { return notes_; }
  // Tokens so far.
  ApiUsage usage() const;
  // After all choices have ended; null if no bill was asked for.
  OrderedJson BillJson() const;
  // After the completion has ended without an error.
  OrderedJson Answer() const;
  // The likely beginning of a prompt that continues the first choice: for a chat, its history with the answer; else what the choice has
  // run.
  std::vector<int32_t> NextPrompt() const;
  // The first tokens of the first choice's prompt that every chat with the same system messages, tools and settings begins with. Empty:
  // not a chat.
  std::vector<int32_t> SharedBeginning() const;

 private:
  Completion() = default;
  std::optional<ApiError> AddChat(const ServedModel& model, const ApiRequest& request, ApiIds& ids);
  std::optional<ApiError> AddPrompts(const ServedModel& model, const ApiRequest& request);
  void AddPrompt(size_t choice, ApiDelta* delta);
  bool IsPromptKnown(size_t choice) const;
  template <class NewStream>
  std::optional<ApiError> AddChoices(const ServedModel& model, const ApiRequest& request, std::vector<int32_t> tokens,
                                     const NewStream& new_stream);
  int64_t SharedLength(std::span<const int32_t> prompt) const;
  ApiLogprob Named(int32_t token, const TokenLogprobs& logprobs, int32_t most) const;
  OrderedJson PromptLogprobsJson(size_t choice) const;

  std::shared_ptr<Grammar> grammar_;
  std::shared_ptr<const AnswerCalls> calls_;  // of a chat
  AnswerStart start_;                         // of a chat
  ApiRules rules_;
  int64_t prompt_entries_ = 0;                        // log probabilities of prompts that the answer will have
  int32_t top_logprobs_ = -1, prompt_logprobs_ = -1;  // as the body has them
  bool shows_prompt_ = false;                         // choices begin with their prompt
  std::vector<std::string> prompts_;                  // their texts, if shows_prompt_
  ApiAnswer answer_;
  const Tokenizer* tokenizer_ = nullptr;
  std::vector<std::shared_ptr<Request>> requests_;
  std::vector<bool> told_ended_, told_prompt_;  // of each request
  std::vector<int64_t> prompt_tokens_;
  int64_t n_ = 1;       // requests of a prompt
  int64_t tokens_ = 0;  // of the prompts of all requests
  int64_t reasoning_tokens_ = 0;
  bool tally_ = false;
  const ServedModel* model_ = nullptr;
  ChatRequest chat_ = {};               // without messages: no chat
  std::vector<std::string> stop_ = {};  // of the body
  std::vector<std::string> notes_ = {};
  // kResponses, kMessages: all parts in order, neighbours of one kind joined.
  std::vector<OutputPart> parts_;
  // kResponses: fields that the answer repeats as they were sent.
  std::shared_ptr<const OrderedJson> echo_;
};

}  // namespace tally
