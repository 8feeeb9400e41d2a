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

// How answers are drawn, and how long they may be.
struct AnswerSettings {
  SamplingOptions sampling = {};
  bool seed_drawn = false;
  int64_t tokens = -1;  // the most of an answer; below 0: until the context is full
};

class Talk {
 public:
  // Loads the model, finds its template and tries it. kBadInput: what is wrong with one of them, with a tool or with the session;
  // another chat has the session. `flags` must outlive the talk.
  static Result<std::unique_ptr<Talk>> Begin(const ChatFlags& flags);

  ~Talk() { hits_.Keep(); }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;

  // Another model, with the conversation so far: its own template, or --chat-template where it has none. On an error all is as before,
  // unless is_over(). While it loads, the model before is kept as well; where that leaves no room, it is loaded again after an error.
  Status Switch(const std::string& given);
  // A model that made way for another could not be loaded again: nothing but the end is left.
  bool is_over() const { return !over_.ok(); }

  const AnswerSettings& answers() const { return answers_; }
  // From the next answer on. `restart`: draws begin anew from the seed. kBadInput: one of them is out of range; nothing is changed.
  Status SetAnswers(const AnswerSettings& answers, bool restart);

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

  Conversation& conversation() const { return *chat_model_.conversation; }
  const std::vector<ChatMessage>& messages() const { return conversation().messages(); }
  const std::optional<LastTurn>& last() const { return last_; }
  const ChatFlags& flags() const { return flags_; }
  const std::string& model_name() const { return chat_model_.name; }  // as given
  const std::string& model_path() const { return chat_model_.path; }
  const Model& model() const { return *chat_model_.loaded.model; }
  const Engine& engine() const { return *chat_model_.loaded.engine; }
  const Ledger& ledger() const { return chat_model_.loaded.engine->ledger(); }
  bool drafts() const { return draft_ > 0; }
  const ChatTemplateSource& source() const { return chat_model_.source; }
  std::string FormatDescription() const { return chat_model_.format->Description(); }

 private:
  // A model, its engine and its conversation.
  struct ChatModel {
    std::string name = {}, path = {};
    std::optional<std::string> chat_template = {};  // none: the checkpoint's own
    Loaded loaded = {};
    ChatTemplateSource source = {};
    std::shared_ptr<const ChatFormat> format = {};
    std::unique_ptr<Conversation> conversation = {};  // before the engine that it is of
  };

  explicit Talk(const ChatFlags& flags) : flags_(flags), answers_{flags.sampling, flags.seed_drawn, flags.tokens} {}
  // Loads it. `request`: a conversation that its template is tried with, before there are weights.
  Result<ChatModel> MakeChatModel(const std::string& name, const std::string& path, const ChatRequest& request,
                                  const std::optional<std::string>& chat_template);
  // The template and its format, tried: all that can be wrong with them before there are weights.
  Status FindFormat(ChatRequest request, const Model& model, ChatModel* chat_model);
  bool SessionIsThere() const;
  Status OpenSession(const ChatRequest& request);
  // The conversation and `messages` after it.
  ChatRequest RequestWith(const std::vector<ChatMessage>& messages);
  Result<std::vector<PromptSegment>> PromptOf(const std::vector<ChatMessage>& messages) {
    return chat_model_.format->Render(RequestWith(messages));
  }
  // Says what of `request` reaches no prompt, and that calls will not be found in answers; each of it once.
  void NoteWhatIsLost(const ChatFormat& format, const ChatRequest& request);
  Result<Turn> SayOnce(const std::vector<ChatMessage>& messages);
  bool MadeRoom();  // as on_full_context chooses

  const ChatFlags& flags_;
  FileLock lock_;  // of the session
  AnswerSettings answers_;
  EngineOptions engine_options_ = {};
  ChatModel chat_model_ = {};
  Status over_ = {};
  std::vector<ChatMessage> results_;  // of tools, until all are there
  std::vector<ChatMessage> kept_;     // last seen by Keep
  std::optional<LastTurn> last_;
  std::set<std::string> noted_;  // by NoteWhatIsLost
  int64_t draft_ = 0;            // RequestOptions::draft
  std::shared_ptr<Grammar> grammar_;
  RunHits hits_;        // of all turns
  uint64_t draws_ = 0;  // answers that were drawn: each has a seed of its own
};

}  // namespace tally::app
