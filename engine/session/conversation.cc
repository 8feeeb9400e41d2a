// SPDX-License-Identifier: Apache-2.0
#include "engine/session/conversation.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/session/output_stream.h"
#include "engine/session/run_alone.h"
#include "engine/session/scoped_sequence.h"
#include "engine/session/session_file.h"
#include "engine/session/unique_ids.h"

namespace tally {
namespace {

bool BeginsConversation(const ChatMessage& message) { return message.role == "system" || message.role == "developer"; }
bool OfUser(const ChatMessage& message) { return message.role == "user"; }

// A prompt as text and as tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

class FormattedConversation final : public Conversation {
 public:
  FormattedConversation(Engine& engine, std::shared_ptr<const ChatFormat> format, std::string prefix_key)
      : engine_(engine),
        tokenizer_(*engine.model().tokenizer()),
        format_(std::move(format)),
        prefix_key_(std::move(prefix_key)) {}

  const std::vector<ChatMessage>& messages() const override { return messages_; }
  void SetMessages(std::vector<ChatMessage> messages) override { messages_ = std::move(messages); }
  ChatRequest& settings() override { return settings_; }
  Result<Turn> Say(std::vector<ChatMessage> messages, const TurnOptions& options) override;
  bool Undo() override;
  void Reset() override { messages_.erase(AfterBeginning(), messages_.end()); }
  Result<bool> ForgetOldest() override;
  int64_t tokens() const override { return engine_.Reusable(prefix_key_, ran_); }
  Status Save(const std::string& path) const override;
  Status SaveMessages(const std::string& path) const override {
    return WriteSession(path, {messages_, settings_}, engine_, /*sequence=*/-1);
  }
  Status Load(const std::string& path) override;

 private:
  // The first message after those of system and developer.
  std::vector<ChatMessage>::iterator AfterBeginning() {
    return std::find_if_not(messages_.begin(), messages_.end(), BeginsConversation);
  }
  Result<Prompt> Render(const std::vector<ChatMessage>& messages, bool answer_begins) const;
  CallOptions Calls(const TurnOptions& options);
  Result<Turn> Answer(const Prompt& prompt, const TurnOptions& options);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<const ChatFormat> format_;
  const std::string prefix_key_;
  UniqueIds ids_;
  std::vector<int32_t> ran_;  // tokens of the last turn, the reused beginning included
  std::vector<ChatMessage> messages_;
  ChatRequest settings_;  // without messages
};

Result<Prompt> FormattedConversation::Render(const std::vector<ChatMessage>& messages, bool answer_begins) const {
  ChatRequest request = settings_;
  request.messages = messages;
  request.add_generation_prompt = answer_begins;
  TALLY_ASSIGN_OR_RETURN(const std::vector<PromptSegment> segments, format_->Render(request));
  std::vector<TextSegment> texts;
  for (const PromptSegment& segment : segments) texts.push_back({segment.text, segment.control});
  Prompt prompt{.text = JoinSegments(segments), .tokens = {}};
  TALLY_ASSIGN_OR_RETURN(prompt.tokens, tokenizer_.EncodeSegments(texts));
  return prompt;
}

Result<Turn> FormattedConversation::Say(std::vector<ChatMessage> messages, const TurnOptions& options) {
  std::vector<ChatMessage> all = messages_;
  std::move(messages.begin(), messages.end(), std::back_inserter(all));
  TALLY_ASSIGN_OR_RETURN(const Prompt prompt, Render(all, true));
  const int64_t most = engine_.MostPositions();
  if (static_cast<int64_t>(prompt.tokens.size()) >= most) {
    return NoRoom("the conversation has " + std::to_string(prompt.tokens.size()) + " tokens, and the " +
                  (most < engine_.context() ? "KV cache's " : "context of ") + std::to_string(most) +
                  " has no room for an answer");
  }
  TALLY_ASSIGN_OR_RETURN(Turn turn, Answer(prompt, options));
  if (turn.generated.finish == FinishReason::kInterrupted && turn.generated.tokens.empty()) return turn;  // in the prompt
  all.push_back({.role = "assistant",
                 .content = turn.answer.content,
                 .reasoning = turn.answer.reasoning,
                 .tool_calls = turn.answer.calls,
                 .tool_call_id = {},
                 .name = {}});
  messages_ = std::move(all);
  return turn;
}

CallOptions FormattedConversation::Calls(const TurnOptions& options) {
  CallOptions calls{.new_id = options.new_call_id, .most = settings_.most_calls};
  if (!calls.new_id) {
    calls.new_id = [this, is_short = format_->ShortCallIds()] { return is_short ? ids_.NextShort() : ids_.Next("call_"); };
  }
  for (const ChatMessage& message : messages_) {
    for (const ToolCall& call : message.tool_calls) calls.used_ids.insert(call.id);
  }
  return calls;
}

// Runs the prompt and the answer. The history is the caller's.
Result<Turn> FormattedConversation::Answer(const Prompt& prompt, const TurnOptions& options) {
  const RequestOptions of_request = {.max_tokens = options.max_tokens,
                                     .sampling = options.sampling,
                                     .prefix_key = prefix_key_,
                                     .draft = options.draft,
                                     .grammar = options.grammar,
                                     .start = format_->StartOf(prompt.text, settings_),
                                     .may_call = MayCall(settings_),
                                     .jump = options.jump};
  TALLY_RETURN_IF_ERROR(Request::Check(engine_, prompt.tokens, of_request));
  Turn turn;
  const auto request = std::make_shared<Request>(
      engine_, prompt.tokens, of_request,
      NewAnswerStream(tokenizer_, format_->NewParser(prompt.text, settings_), options.stop, Calls(options)));
  bool listening = true;
  const auto listen = [&](const RequestEvent& event) {
    turn.answer.Add(event.parts);
    if (listening && options.on_parts && !event.parts.empty()) listening = options.on_parts(event.parts);
    return listening;
  };
  Result<GenerateResult> generated = RunAlone(engine_, request, options.prompt_progress, options.interrupted, listen);
  ran_.assign(request->tokens().begin(), request->tokens().end());
  TALLY_ASSIGN_OR_RETURN(turn.generated, std::move(generated));
  turn.reused_tokens = request->prompt_reused();
  return turn;
}

bool FormattedConversation::Undo() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), OfUser);
  if (last == messages_.rend()) return false;
  messages_.erase(std::prev(last.base()), messages_.end());
  return true;
}

Result<bool> FormattedConversation::ForgetOldest() {
  std::vector<ChatMessage> rest = messages_;
  const auto begin = AfterBeginning() - messages_.begin();
  bool forgot = false;
  while (rest.begin() + begin != rest.end()) {
    const auto next = std::find_if(rest.begin() + begin + 1, rest.end(), OfUser);
    rest.erase(rest.begin() + begin, next);
    forgot = true;
    if (rest.begin() + begin == rest.end()) break;
    TALLY_ASSIGN_OR_RETURN(const Prompt prompt, Render(rest, false));
    if (static_cast<int64_t>(prompt.tokens.size()) <= engine_.MostPositions() / 2) break;
  }
  messages_ = std::move(rest);
  return forgot;
}

Status FormattedConversation::Save(const std::string& path) const {
  // How the next prompt will begin, as far as the history alone says.
  std::vector<ChatMessage> next = messages_;
  next.push_back({.role = "user", .content = "?"});
  const Result<Prompt> prompt = Render(next, false);
  std::vector<int32_t> tokens = prompt.ok() ? prompt->tokens : ran_;
  TALLY_ASSIGN_OR_RETURN(const ScopedSequence sequence, ScopedSequence::For(engine_, prefix_key_, tokens));
  tokens.resize(static_cast<size_t>(engine_.Length(sequence.id())));
  return WriteSession(path, {messages_, settings_, std::move(tokens)}, engine_, sequence.id());
}

Status FormattedConversation::Load(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const SessionFile file, SessionFile::Open(path, engine_));
  const SessionState& state = file.state();
  if (!state.tokens.empty()) {
    TALLY_ASSIGN_OR_RETURN(const int32_t imported, file.ImportCache(engine_));
    const ScopedSequence sequence = ScopedSequence::Own(engine_, imported);
    engine_.Remember(sequence.id(), prefix_key_, state.tokens, /*states=*/1);
  }
  ran_ = state.tokens;
  messages_ = state.messages;
  settings_ = state.settings;
  return {};
}

}  // namespace

Result<std::unique_ptr<Conversation>> NewConversation(Engine& engine, std::shared_ptr<const ChatFormat> format,
                                                      std::string prefix_key) {
  if (engine.model().tokenizer() == nullptr) {
    TALLY_RETURN_IF_ERROR(engine.model().tokenizer_status());
    return BadInput("a conversation needs a tokenizer, and this model has none");
  }
  return std::unique_ptr<Conversation>(std::make_unique<FormattedConversation>(engine, std::move(format), std::move(prefix_key)));
}

}  // namespace tally
