// SPDX-License-Identifier: Apache-2.0
#include "engine/session/conversation.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "engine/session/generation.h"
#include "engine/session/session_file.h"
#include "engine/session/stop_filter.h"
#include "engine/session/turn_cache.h"

namespace tally {
namespace {

// The answer of one turn: tokens -> control tokens and whole characters -> the format's parser -> parts -> cut before a stop string ->
// the listener.
class AnswerStream {
 public:
  AnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser, const std::vector<ChatMessage>& history,
               const TurnOptions& options)
      : tokenizer_(tokenizer),
        parser_(std::move(parser)),
        options_(options),
        stops_(options.stop),
        decoder_(tokenizer, /*at_start=*/false) {
    for (const ChatMessage& message : history) {
      for (const ToolCall& call : message.tool_calls) call_ids_.insert(call.id);
    }
  }

  // A reason: the listener wants no more, or a stop string came.
  std::optional<FinishReason> Push(int32_t token) {
    if (tokenizer_.IsControl(token)) {
      PushControl(token);
    } else {
      PushText(decoder_.Push(token));
    }
    CutAtStop();
    if (!Deliver()) return FinishReason::kInterrupted;
    return stops_.stopped() ? std::optional(FinishReason::kStop) : std::nullopt;
  }
  // `end_token`: the one that ended the answer, or -1. What was held back comes, even if the listener wants no more.
  void Finish(int32_t end_token) {
    if (end_token >= 0) PushControl(end_token);
    PushText(decoder_.Finish());
    parser_->Finish(&parts_);
    CutAtStop();
    if (std::string held = stops_.Finish(); !held.empty()) parts_.push_back({.text = std::move(held)});
    Deliver();
  }
  const ChatAnswer& answer() const { return answer_; }
  bool stopped() const { return stops_.stopped(); }  // a stop string came

 private:
  void PushText(const std::string& text) {
    if (!text.empty()) parser_->Push({text, false}, &parts_);
  }
  void PushControl(int32_t token) {
    PushText(decoder_.Finish());
    const std::string text = tokenizer_.IsControl(token) ? tokenizer_.ControlText(token) : tokenizer_.TokenBytes(token);
    parser_->Push({text, true}, &parts_);
  }
  // Nine letters and digits, as templates of Mistral demand, and new to the conversation: call00001.
  std::string NewCallId() {
    for (;; ++next_call_) {
      const std::string digits = std::to_string(next_call_);
      std::string id = "call" + std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits;
      if (!call_ids_.contains(id)) return id;
    }
  }
  // Of the parts before the first stop string the content that cannot be part of one stays; what comes after it is dropped.
  void CutAtStop() {
    for (auto part = parts_.begin(); part != parts_.end(); ++part) {
      if (stops_.stopped()) {
        parts_.erase(part, parts_.end());
        return;
      }
      if (part->kind == OutputPart::Kind::kContent) {
        part->text = stops_.Push(part->text);
      } else if (std::string held = stops_.Finish(); !held.empty()) {
        part = std::next(parts_.insert(part, {.text = std::move(held)}));
      }
    }
  }
  bool Deliver() {
    for (OutputPart& part : parts_) {
      if (!part.call) continue;
      if (part.call->id.empty()) part.call->id = NewCallId();
      call_ids_.insert(part.call->id);
    }
    answer_.Add(parts_);
    if (!parts_.empty() && listening_ && options_.on_parts) listening_ = options_.on_parts(parts_);
    parts_.clear();
    return listening_;
  }

  const Tokenizer& tokenizer_;
  std::unique_ptr<OutputParser> parser_;
  const TurnOptions& options_;
  StopFilter stops_;
  std::set<std::string> call_ids_;  // of the history and of this answer
  size_t next_call_ = 1;            // ids of those before it are taken
  StreamingDecoder decoder_;
  std::vector<OutputPart> parts_;  // not delivered yet
  ChatAnswer answer_;
  bool listening_ = true;  // false after the listener returned false
};

bool BeginsConversation(const ChatMessage& message) { return message.role == "system" || message.role == "developer"; }
bool OfUser(const ChatMessage& message) { return message.role == "user"; }

// A prompt as text and as tokens.
struct Prompt {
  std::string text;
  std::vector<int32_t> tokens;
};

class FormattedConversation final : public Conversation {
 public:
  FormattedConversation(Engine& engine, std::shared_ptr<const ChatFormat> format)
      : engine_(engine), tokenizer_(*engine.model().tokenizer()), format_(std::move(format)), cache_(engine) {}

  const std::vector<ChatMessage>& messages() const override { return messages_; }
  void SetMessages(std::vector<ChatMessage> messages) override { messages_ = std::move(messages); }
  ChatRequest& settings() override { return settings_; }
  Result<Turn> Say(std::vector<ChatMessage> messages, const TurnOptions& options) override;
  bool ContextIsFull() const override { return context_is_full_; }
  bool Undo() override;
  void Reset() override { messages_.erase(AfterBeginning(), messages_.end()); }
  Result<bool> ForgetOldest() override;
  int64_t tokens() const override { return static_cast<int64_t>(cache_.tokens().size()); }
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
  Result<Turn> Answer(const Prompt& prompt, const TurnOptions& options);

  Engine& engine_;
  const Tokenizer& tokenizer_;
  std::shared_ptr<const ChatFormat> format_;
  TurnCache cache_;
  std::vector<ChatMessage> messages_;
  ChatRequest settings_;  // without messages
  bool context_is_full_ = false;
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
  context_is_full_ = false;
  std::vector<ChatMessage> all = messages_;
  std::move(messages.begin(), messages.end(), std::back_inserter(all));
  TALLY_ASSIGN_OR_RETURN(const Prompt prompt, Render(all, true));
  context_is_full_ = static_cast<int64_t>(prompt.tokens.size()) >= engine_.context();
  if (context_is_full_) {
    return BadInput("the conversation has " + std::to_string(prompt.tokens.size()) + " tokens, and the context of " +
                    std::to_string(engine_.context()) + " has no room for an answer");
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

// Runs the prompt and the answer. The history is the caller's.
Result<Turn> FormattedConversation::Answer(const Prompt& prompt, const TurnOptions& options) {
  GenerateOptions generate;
  generate.max_tokens = options.max_tokens;
  generate.sampling = options.sampling;
  generate.prompt_progress = options.prompt_progress;
  generate.interrupted = options.interrupted;
  TALLY_RETURN_IF_ERROR(Generation::Check(engine_, prompt.tokens, generate));
  Turn turn;
  TALLY_ASSIGN_OR_RETURN(turn.reused_tokens, cache_.Begin(prompt.tokens));
  Generation generation(engine_, cache_.sequence(), prompt.tokens, generate);
  const Result<bool> ready = generation.Prefill();
  cache_.SetTokens(prompt.tokens);
  TALLY_RETURN_IF_ERROR(ready.status());
  if (*ready) {
    cache_.BeginAnswer();
    AnswerStream answer(tokenizer_, format_->NewParser(prompt.text, settings_.tools), messages_, options);
    generation.Decode([&](int32_t token) { return answer.Push(token); });
    answer.Finish(generation.result().end_token);
    if (answer.stopped()) generation.result().finish = FinishReason::kStop;
    turn.answer = answer.answer();
    std::vector<int32_t> tokens = prompt.tokens;
    tokens.insert(tokens.end(), generation.result().tokens.begin(), generation.result().tokens.end());
    cache_.SetTokens(std::move(tokens));
  }
  turn.generated = std::move(generation.result());
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
    if (static_cast<int64_t>(prompt.tokens.size()) <= engine_.context() / 2) break;
  }
  messages_ = std::move(rest);
  return forgot;
}

Status FormattedConversation::Save(const std::string& path) const {
  // How the next prompt will begin, as far as the history alone says.
  std::vector<ChatMessage> next = messages_;
  next.push_back({.role = "user", .content = "?"});
  const Result<Prompt> prompt = Render(next, false);
  const std::optional<TurnCache::Run> run = cache_.Worth(prompt.ok() ? prompt->tokens : std::vector<int32_t>());
  const std::span<const int32_t> tokens = run ? run->tokens : std::span<const int32_t>();
  const SessionState state = {messages_, settings_, {tokens.begin(), tokens.end()}};
  return WriteSession(path, state, engine_, tokens.empty() ? -1 : run->sequence);
}

Status FormattedConversation::Load(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const SessionFile file, SessionFile::Open(path, engine_));
  const SessionState& state = file.state();
  // What was in the cache makes room. It is run again, should the file's not fit.
  cache_.Clear();
  if (!state.tokens.empty()) {
    TALLY_ASSIGN_OR_RETURN(const int32_t sequence, file.ImportCache(engine_));
    cache_.Adopt(sequence, state.tokens);
  }
  messages_ = state.messages;
  settings_ = state.settings;
  context_is_full_ = false;
  return {};
}

}  // namespace

Result<std::unique_ptr<Conversation>> NewConversation(Engine& engine, std::shared_ptr<const ChatFormat> format) {
  if (engine.model().tokenizer() == nullptr) {
    TALLY_RETURN_IF_ERROR(engine.model().tokenizer_status());
    return BadInput("a conversation needs a tokenizer, and this model has none");
  }
  return std::unique_ptr<Conversation>(std::make_unique<FormattedConversation>(engine, std::move(format)));
}

}  // namespace tally
