// SPDX-License-Identifier: Apache-2.0
// A conversation of `tally chat`: its turns, shown and counted, and what its commands do to it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/api/tally.h"
#include "engine/app/chat_options.h"
#include "engine/app/chat_screen.h"
#include "engine/base/file_lock.h"
#include "engine/base/status.h"

namespace tally::app {

// What to do where the context has no room for a turn.
enum class FullContext { kForgetOldest, kReset, kGiveUp };

struct LastTurn {
  // Whether it was interrupted before its answer began: the history is as before.
  bool LeftNoTrace() const { return turn.generated.finish == FinishReason::kInterrupted && turn.generated.tokens.empty(); }

  Turn turn;
  TurnFigures figures;
  std::vector<PromptSegment> prompt;
};

class Talk {
 public:
  // Loads the model, finds its template and tries it. kBadInput: what is wrong with one of them, with a tool or with the session;
  // another chat has the session. `flags` must outlive the talk.
  static Result<std::unique_ptr<Talk>> Begin(const ChatFlags& flags);

  // Asked where a turn has no room; null: the turn fails with a line that names -c.
  std::function<FullContext()> on_full_context = {};

  // A user's message, or results of tools: runs the turn, shows the answer and what it cost. Where the turn fails, the conversation is
  // as before.
  Status Say(const std::vector<ChatMessage>& messages);
  // The last message of a user once more, with other random draws. False: there is none.
  Result<bool> Retry();
  // Takes a result of the tool that the model has called. When all calls have theirs, the model goes on. kBadInput: no such call.
  Status AnswerCall(std::string_view tool, std::string result);
  // Calls of the last answer that have no result yet.
  std::vector<ToolCall> OpenCalls() const;

  // Of the conversation so far; empty: it has none.
  std::string SystemPrompt() const;
  void SetSystemPrompt(const std::string& text);
  std::optional<std::string> Undo();  // the message that was forgotten; none: there is none
  void Reset();
  Status Load(const std::string& path);
  Status Save(const std::string& path) const;  // kBadInput: also a file of the model
  // --session: the messages, where they are others than the file's; what a kill leaves.
  Status Keep();
  // --session: the messages and the KV cache, after the last turn.
  Status Close() const;

  Conversation& conversation() { return *conversation_; }
  const std::vector<ChatMessage>& messages() const { return conversation_->messages(); }
  const std::optional<LastTurn>& last() const { return last_; }
  const Model& model() const { return *loaded_.model; }
  const Engine& engine() const { return *loaded_.engine; }
  bool drafts() const { return draft_ > 0; }
  const ChatTemplateSource& source() const { return source_; }
  std::string FormatDescription() const { return format_->Description(); }

 private:
  explicit Talk(const ChatFlags& flags) : flags_(flags) {}
  // The template and its format, tried: all that can be wrong with them before there are weights.
  Status FindFormat(ChatRequest request, const Model& model);
  bool SessionIsThere() const;
  Status OpenSession(const ChatRequest& request);
  // The conversation and `messages` after it.
  ChatRequest RequestWith(const std::vector<ChatMessage>& messages);
  Result<std::vector<PromptSegment>> PromptOf(const std::vector<ChatMessage>& messages) {
    return format_->Render(RequestWith(messages));
  }
  // Says what of `request` reaches no prompt, and that calls will not be found in answers; each of it once.
  void NoteWhatIsLost(const ChatRequest& request);
  Result<Turn> SayOnce(const std::vector<ChatMessage>& messages);
  bool MadeRoom();  // as on_full_context chooses

  const ChatFlags& flags_;
  FileLock lock_;  // of the session
  std::string model_path_;
  Loaded loaded_;
  ChatTemplateSource source_;
  std::shared_ptr<const ChatFormat> format_;
  std::unique_ptr<Conversation> conversation_;
  std::vector<ChatMessage> results_;  // of tools, until all are there
  std::vector<ChatMessage> kept_;     // last seen by Keep
  std::optional<LastTurn> last_;
  std::set<std::string> noted_;  // by NoteWhatIsLost
  int64_t draft_ = 0;            // RequestOptions::draft
  std::shared_ptr<Grammar> grammar_;
  uint64_t draws_ = 0;  // answers that were drawn: each has a seed of its own
};

}  // namespace tally::app
