// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_talk.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "engine/app/console.h"
#include "engine/app/draft.h"
#include "engine/app/hub_models.h"
#include "engine/app/interrupt.h"
#include "engine/app/output_files.h"
#include "engine/app/prompt_bar.h"
#include "engine/app/ranks.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"

namespace tally::app {
namespace {

bool IsSystem(const ChatMessage& message) { return message.role == "system"; }

// The last message of a user; the end where there is none.
std::vector<ChatMessage>::const_iterator LastUser(const std::vector<ChatMessage>& messages) {
  const auto found = std::find_if(messages.rbegin(), messages.rend(), [](const ChatMessage& m) { return m.role == "user"; });
  return found == messages.rend() ? messages.end() : std::prev(found.base());
}

// Two conversations in one file would each lose the other's turns. The file itself is replaced whenever it is written, so the lock is one
// beside it. Where there can be none (a folder that is not ours, a file system without locks) a session goes without.
Status LockSession(const std::string& session, FileLock& lock) {
  std::error_code none;
  const std::string file = std::filesystem::weakly_canonical(session, none).string();
  if (lock.Take((none ? session : file) + ".lock", 0600, FileLock::After::kRemove) != EWOULDBLOCK) return {};
  return BadInput(Printable(session) + ": another chat has this session open; end it, or go on with a copy of the file");
}

// kBadInput: a model of the hub that would have to be fetched, in the middle of a conversation.
Status CheckIsHere(const std::string& given) {
  TALLY_ASSIGN_OR_RETURN(const hub::Settings settings, HubSettings());
  std::optional<hub::Name> name = HubName(given);
  if (!name) {
    TALLY_ASSIGN_OR_RETURN(name, CachedShortName(settings, given));
  }
  if (!name) return {};
  const Status here = hub::FindCached(settings, *name, hub::Want::kWeights).status();
  return here.ok() ? here : BadInput(here.message() + "; `tally pull " + name->text() + "` fetches it");
}

}  // namespace

Result<std::unique_ptr<Talk>> Talk::Begin(const ChatFlags& flags) {
  TALLY_RETURN_IF_ERROR(CheckGeneration(flags.sampling, flags.tokens));
  std::unique_ptr<Talk> talk(new Talk(flags));
  TALLY_ASSIGN_OR_RETURN(talk->engine_options_, ToEngineOptions(flags.model));
  TALLY_ASSIGN_OR_RETURN(talk->draft_, ReadDraft(flags.draft, talk->engine_options_));
  TALLY_ASSIGN_OR_RETURN(GivenGrammar given, ReadGrammar(flags.grammar));
  talk->grammar_ = std::move(given.grammar);
  TALLY_ASSIGN_OR_RETURN(const ChatRequest request, RequestOf(flags));
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(flags.model.model, flags.model.yes));
  if (flags.session) {
    TALLY_RETURN_IF_ERROR(CheckOutputFile("--session", *flags.session, path,
                                          {flags.file, flags.system_file, flags.tools, flags.chat_template}, true));
    TALLY_RETURN_IF_ERROR(LockSession(*flags.session, talk->lock_));
  }
  TALLY_ASSIGN_OR_RETURN(talk->chat_model_, talk->MakeChatModel(flags.model.model, path, request, flags.chat_template));
  TALLY_RETURN_IF_ERROR(talk->OpenSession(request));
  talk->kept_ = talk->messages();
  return talk;
}

Result<Talk::ChatModel> Talk::MakeChatModel(const std::string& name, const std::string& path, const ChatRequest& request,
                                            const std::optional<std::string>& chat_template) {
  ChatModel chat_model = {.name = name, .path = path, .chat_template = chat_template};
  const double begin = MonotonicSeconds();
  LoadOptions load;
  load.before_weights = [&](const Model& model) { return FindFormat(request, model, &chat_model); };
  TALLY_ASSIGN_OR_RETURN(chat_model.loaded.model, LoadModelOnly(name, engine_options_, std::move(load)));
  TALLY_ASSIGN_OR_RETURN(chat_model.loaded.engine, NewEngine(chat_model.loaded.model, engine_options_));
  if (chat_model_.conversation == nullptr) NoteThreads(engine_options_.threads);
  chat_model.loaded.seconds = MonotonicSeconds() - begin;
  TALLY_ASSIGN_OR_RETURN(chat_model.conversation, NewConversation(*chat_model.loaded.engine, chat_model.format));
  return chat_model;
}

Status Talk::FindFormat(ChatRequest request, const Model& model, ChatModel* chat_model) {
  TALLY_RETURN_IF_ERROR(model.tokenizer_status());
  if (model.tokenizer() == nullptr) {
    return BadInput(chat_model->name + ": the model has no tokenizer, and no conversation without");
  }
  TALLY_ASSIGN_OR_RETURN(chat_model->source,
                         FindTemplate(chat_model->chat_template, chat_model->name, model, !request.tools.empty()));
  TALLY_ASSIGN_OR_RETURN(chat_model->format,
                         MakeChatFormat(chat_model->source, /*native=*/!IsTemplateFile(chat_model->chat_template)));
  // A template that cannot work must not wait for the first message. With a session it is tried when that is read, with its variables.
  if (chat_model_.conversation == nullptr && SessionIsThere()) return {};
  if (request.messages.empty() || request.messages.back().role != "user") {
    request.messages.push_back({.role = "user", .content = "Hello"});
  }
  TALLY_RETURN_IF_ERROR(chat_model->format->Render(request).status());
  NoteWhatIsLost(*chat_model->format, request);
  return {};
}

Status Talk::Switch(const std::string& given) {
  if (Ranks() != nullptr) return BadInput("/model: not possible with several processes");
  TALLY_RETURN_IF_ERROR(CheckIsHere(given));
  TALLY_ASSIGN_OR_RETURN(const std::string path, ModelPath(given));
  ChatRequest request = conversation().settings();
  request.messages = messages();
  const std::vector<ChatMessage> history = request.messages;
  const ChatModel before = {.name = chat_model_.name, .path = chat_model_.path, .chat_template = chat_model_.chat_template};
  const auto make = [&]() -> Result<ChatModel> {
    Result<ChatModel> own = MakeChatModel(given, path, request, {});
    const bool lacks = !own.ok() && own.status().code() == StatusCode::kBadInput && flags_.chat_template.has_value();
    return lacks ? MakeChatModel(given, path, request, flags_.chat_template) : std::move(own);
  };
  const auto take = [&](ChatModel chat_model) {
    request.messages = {};
    chat_model.conversation->settings() = request;
    chat_model.conversation->SetMessages(history);
    chat_model_.conversation.reset();  // before its engine
    chat_model_ = std::move(chat_model);
  };
  Result<ChatModel> next = make();
  Status failed = next.status();
  if (failed.code() == StatusCode::kNoRoom) {
    chat_model_ = {};
    next = make();
    failed = next.status();
    if (!next.ok()) {
      TakeInterrupt();
      Result<ChatModel> back = MakeChatModel(before.name, before.path, request, before.chat_template);
      if (!back.ok()) return over_ = back.status();
      take(std::move(back).value());
    }
  }
  TALLY_RETURN_IF_ERROR(failed);
  take(std::move(next).value());
  results_.clear();
  last_.reset();
  kept_.clear();  // the session's file is still the other model's
  return {};
}

Status Talk::SetAnswers(const AnswerSettings& answers, bool restart) {
  TALLY_RETURN_IF_ERROR(CheckGeneration(answers.sampling, answers.tokens));
  answers_ = answers;
  if (restart) draws_ = 0;
  return {};
}

bool Talk::SessionIsThere() const {
  std::error_code ignored;
  return flags_.session && std::filesystem::exists(*flags_.session, ignored);
}

Status Talk::OpenSession(const ChatRequest& request) {
  if (!SessionIsThere()) {
    conversation().settings() = request;
    conversation().SetMessages(request.messages);
    return {};
  }
  TALLY_RETURN_IF_ERROR(Load(*flags_.session));
  // What was given now holds; the rest is as it was kept.
  ChatRequest& settings = conversation().settings();
  settings.now = request.now;
  if (flags_.tools) settings.tools = request.tools;
  if (!flags_.effort.empty()) settings.reasoning_effort = request.reasoning_effort;
  if (request.thinking) settings.thinking = request.thinking;
  for (const auto& [name, value] : request.variables) settings.variables[name] = value;
  if (!request.messages.empty()) SetSystemPrompt(request.messages.front().content);
  // The model's own template has been tried by a session that has messages; another one is, where a user's message can come next.
  const bool begun = LastUser(messages()) != messages().end();
  const bool answered = begun && messages().back().role == "assistant" && messages().back().tool_calls.empty();
  if (begun && !(flags_.chat_template && answered)) return {};
  return PromptOf({{.role = "user", .content = "Hello"}}).status();
}

ChatRequest Talk::RequestWith(const std::vector<ChatMessage>& messages) {
  ChatRequest request = conversation().settings();
  request.messages = conversation().messages();
  request.messages.insert(request.messages.end(), messages.begin(), messages.end());
  request.add_generation_prompt = true;
  return request;
}

void Talk::NoteWhatIsLost(const ChatFormat& format, const ChatRequest& request) {
  const auto note = [&](const std::string& text) {
    if (noted_.insert(text).second) Note("note: " + text + "\n");
  };
  std::vector<std::string> notes;
  if (format.Render(request, &notes).ok()) std::ranges::for_each(notes, note);
  for (const LeftOut& left_out : format.FindLeftOut(request)) {
    switch (left_out.what) {
      case LeftOut::What::kTool: note("the chat template leaves out tools: the model does not know of them (--tools)"); break;
      case LeftOut::What::kCalls: note("the chat template leaves out calls of tools that the model has made"); break;
      case LeftOut::What::kContent: {
        const ChatMessage& message = request.messages[left_out.index];
        note("the chat template leaves out the text of messages of the role " + Quote(message.role) +
             (message.tool_calls.empty() ? "" : " that call tools"));
        break;
      }
    }
  }
  if (!request.tools.empty() && !format.ReadsCalls()) {
    note("how this model calls tools is not known: calls stay text in its answers");
  }
}

Result<Turn> Talk::SayOnce(const std::vector<ChatMessage>& messages) {
  TurnOptions options;
  options.max_tokens = answers_.tokens < 0 ? -1 : answers_.tokens;
  options.sampling = answers_.sampling;
  options.sampling.seed += draws_++;
  options.stop = chat_model_.source.stop;
  options.stop.insert(options.stop.end(), flags_.stop.begin(), flags_.stop.end());
  options.draft = draft_;
  options.grammar = grammar_;
  options.jump = !flags_.grammar.no_jump;
  options.interrupted = Interrupted;
  PromptBar bar(*chat_model_.loaded.engine);
  options.prompt_progress = [&](int64_t done, int64_t total) { bar.Show(done, total); };
  AnswerScreen screen(/*show_thinking=*/!flags_.quiet);
  if (!flags_.json) options.on_parts = [&](std::span<const OutputPart> parts) { return screen.Show(parts); };
  chat_model_.loaded.engine->ledger().Reset();  // the figures are the turn's
  Result<Turn> turn = conversation().Say(messages, options);
  bar.Wipe();
  screen.End();
  hits_.Add(*chat_model_.loaded.engine);
  return turn;
}

Status Talk::Say(const std::vector<ChatMessage>& messages) {
  results_.clear();
  LastTurn last;
  for (;;) {
    const ChatRequest request = RequestWith(messages);
    TALLY_ASSIGN_OR_RETURN(last.prompt, chat_model_.format->Render(request));
    NoteWhatIsLost(*chat_model_.format, request);
    if (flags_.show_prompt && !flags_.json) Note(Dim(Readable(JoinSegments(last.prompt))) + "\n");
    Result<Turn> turn = SayOnce(messages);
    if (turn.ok()) {
      last.turn = std::move(*turn);
      break;
    }
    if (turn.status().code() != StatusCode::kNoRoom) return turn.status();
    if (!on_full_context) return NoRoom(turn.status().message() + ": -c N makes the context larger");
    if (!MadeRoom()) return Status(StatusCode::kInterrupted, "the message was dropped");
  }
  Engine& engine = *chat_model_.loaded.engine;
  const GenerateResult& generated = last.turn.generated;
  last.figures = {.books = BooksOf(chat_model_.loaded, generated, answers_.sampling, answers_.seed_drawn),
                  .reused_tokens = last.turn.reused_tokens,
                  .context_used = conversation().tokens(),
                  .context = engine.context()};
  last.figures.books.seed += draws_ - 1;
  if (!flags_.json && !flags_.quiet) Note(Dim(TurnLine(last.figures, OutputWidth(0))));
  last_ = std::move(last);
  return last_->turn.generated.error;
}

bool Talk::MadeRoom() {
  const size_t before = messages().size();
  Result<bool> forgot = false;
  switch (on_full_context()) {
    case FullContext::kGiveUp: return false;
    case FullContext::kReset:
      conversation().Reset();
      forgot = messages().size() < before;
      break;
    case FullContext::kForgetOldest: forgot = conversation().ForgetOldest(); break;
  }
  if (forgot.ok() && *forgot) return true;
  Note(forgot.ok() ? "nothing is left to forget: the message alone has no room (-c N makes the context larger)\n"
                   : Printable(forgot.status().message()) + "\n");
  return false;
}

Result<bool> Talk::Retry() {
  const std::vector<ChatMessage> before = conversation().messages();
  const auto user = LastUser(before);
  if (user == before.end()) return false;
  conversation().Undo();
  const Status said = Say({*user});
  if (!said.ok() || last_->LeftNoTrace()) conversation().SetMessages(before);
  TALLY_RETURN_IF_ERROR(said);
  return true;
}

std::vector<ToolCall> Talk::OpenCalls() const {
  const std::vector<ChatMessage>& messages = conversation().messages();
  if (messages.empty() || messages.back().role != "assistant") return {};
  std::vector<ToolCall> open = messages.back().tool_calls;
  for (const ChatMessage& result : results_) {
    const auto answered = std::ranges::find_if(
        open, [&](const ToolCall& call) { return call.id == result.tool_call_id && call.name == result.name; });
    if (answered != open.end()) open.erase(answered);
  }
  return open;
}

Status Talk::AnswerCall(std::string_view tool, std::string result) {
  const std::vector<ToolCall> open = OpenCalls();
  const auto call = std::ranges::find(open, tool, &ToolCall::name);
  if (call == open.end()) return BadInput("no call of " + Quote(tool) + " waits for a result");
  results_.push_back({.role = "tool", .content = std::move(result), .tool_call_id = call->id, .name = call->name});
  if (open.size() > 1) return {};
  return Say(std::exchange(results_, {}));
}

std::string Talk::SystemPrompt() const {
  const std::vector<ChatMessage>& messages = conversation().messages();
  return !messages.empty() && IsSystem(messages.front()) ? messages.front().content : "";
}

void Talk::SetSystemPrompt(const std::string& text) {
  std::vector<ChatMessage> messages = conversation().messages();
  if (!messages.empty() && IsSystem(messages.front())) messages.erase(messages.begin());
  messages.insert(messages.begin(), {.role = "system", .content = text});
  conversation().SetMessages(std::move(messages));
}

std::optional<std::string> Talk::Undo() {
  const std::vector<ChatMessage>& messages = conversation().messages();
  const auto user = LastUser(messages);
  if (user == messages.end()) return std::nullopt;
  std::string forgotten = user->content;
  results_.clear();
  conversation().Undo();
  return forgotten;
}

void Talk::Reset() {
  results_.clear();
  conversation().Reset();
}

Status Talk::Load(const std::string& path) {
  TALLY_RETURN_IF_ERROR(conversation().Load(path));
  results_.clear();
  last_.reset();
  return {};
}

Status Talk::Save(const std::string& path) const {
  TALLY_RETURN_IF_ERROR(CheckOutputFile("/save", path, chat_model_.path, {}, true));
  FileLock lock;
  if (!flags_.session || !SameFile(*flags_.session, path)) TALLY_RETURN_IF_ERROR(LockSession(path, lock));
  return conversation().Save(path);
}

Status Talk::Keep() {
  if (is_over() || !flags_.session || messages() == kept_) return {};
  kept_ = messages();  // also where the file cannot be written: that is said once
  return conversation().SaveMessages(*flags_.session);
}

Status Talk::Close() const {
  TALLY_RETURN_IF_ERROR(over_);
  return flags_.session ? conversation().Save(*flags_.session) : Status();
}

}  // namespace tally::app
