// SPDX-License-Identifier: Apache-2.0
// tally chat: a conversation with a model.
#include <unistd.h>

#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/app/chat_commands.h"
#include "engine/app/chat_input.h"
#include "engine/app/chat_options.h"
#include "engine/app/chat_report.h"
#include "engine/app/chat_talk.h"
#include "engine/app/commands.h"
#include "engine/app/console.h"
#include "engine/app/interrupt.h"
#include "engine/app/json.h"
#include "engine/app/syntax.h"
#include "engine/base/format.h"
#include "engine/base/utf8_check.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

Status SayAsUser(Talk& talk, std::string text) { return talk.Say({{.role = "user", .content = std::move(text)}}); }

// One message and its answer.
Result<int> AnswerOnce(const ChatFlags& flags, Talk& talk, std::string message) {
  TALLY_RETURN_IF_ERROR(SayAsUser(talk, std::move(message)));
  if (flags.json) PrintJson(ChatJson(flags, talk));
  TALLY_RETURN_IF_ERROR(talk.Close());
  return Interrupted() ? InterruptExitCode() : 0;
}

void Greet(const ChatFlags& flags, const Talk& talk) {
  if (flags.quiet) return;
  const size_t messages = talk.messages().size(), width = OutputWidth(0);
  // How the conversation is written matters where somebody has chosen it, and how the model calls where it has tools.
  const std::string format = flags.chat_template || flags.tools ? "; " + talk.FormatDescription() : "";
  std::string text = Paragraph(
      "", Printable(talk.model().Description()) + format + "; a context of " + Thousands(talk.engine().context()) + " tokens",
      width, 0);
  if (flags.session && messages > 0) text += Printable(*flags.session) + ": " + std::to_string(messages) + " messages\n";
  Note(Dim(text + Paragraph("", "/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends.", width, 0)));
}

// Whether an answer is `word` or its beginning, in letters of any size.
bool Means(std::string answer, std::string_view word) {
  for (char& c : answer) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  while (answer.ends_with(' ')) answer.pop_back();
  return !answer.empty() && word.starts_with(answer);
}

// `over`: the conversation is to end.
FullContext AskAboutContext(ChatReader& reader, int64_t context, bool* over) {
  Note("The context of " + Thousands(context) + " tokens is full.\n");
  for (;;) {
    const TypedLine line = reader.Ask("[f]orget the oldest turns, [r]eset, or [q]uit? ");
    *over = line.kind == TypedLine::Kind::kEnd || Means(line.text, "quit") || Terminated();
    if (*over || line.kind == TypedLine::Kind::kInterrupted) return FullContext::kGiveUp;
    if (Means(line.text, "forget")) return FullContext::kForgetOldest;
    if (Means(line.text, "reset")) return FullContext::kReset;
  }
}

// What is wrong with a turn is said, and the conversation goes on.
void SayAndGoOn(Talk& talk, std::string message) {
  if (const Status text = CheckUtf8(message, "the message is not sent"); !text.ok()) return Note(text.message() + "\n");
  const Status said = SayAsUser(talk, std::move(message));
  if (!said.ok()) return Note(Printable(said.message()) + "\n");
  if (talk.last()->LeftNoTrace()) Note("the message was dropped\n");
}

void KeepAndGoOn(Talk& talk) {
  if (const Status kept = talk.Keep(); !kept.ok()) Note(Printable(kept.message()) + "; the session is not kept\n");
}

// Until somebody ends it, or `over`.
void Converse(Talk& talk, ChatReader& reader, const bool& over) {
  bool asked_to_end = false;  // by Ctrl-C at an empty line
  while (!over && !Terminated() && PrintedAll()) {
    ChatInput input = reader.Read();
    const bool at_empty_line = input.kind == ChatInput::Kind::kInterrupted && input.text.empty();
    if (input.kind == ChatInput::Kind::kEnd || (at_empty_line && asked_to_end)) return;
    asked_to_end = at_empty_line;
    if (at_empty_line && !Terminated()) Note("(Ctrl-C once more, or Ctrl-D, ends)\n");
    if (input.kind == ChatInput::Kind::kCommand && (!RunChatCommand(talk, input.text) || talk.is_over())) return;
    if (input.kind == ChatInput::Kind::kMessage) SayAndGoOn(talk, std::move(input.text));
    TakeInterrupt();  // it has stopped the answer
    KeepAndGoOn(talk);
  }
}

Result<int> RunChat(const ChatFlags& flags) {
  TALLY_ASSIGN_OR_RETURN(std::optional<std::string> message, FirstMessage(flags));
  const bool at_terminal = ::isatty(STDIN_FILENO) == 1 && !flags.json;
  if (!message && !at_terminal) return BadInput("there is no message: give -p TEXT or -f FILE, or type at a terminal");
  TALLY_ASSIGN_OR_RETURN(const std::unique_ptr<Talk> talk, Talk::Begin(flags));
  if (Interrupted()) return Status(StatusCode::kInterrupted, "interrupted");  // while the engine was made or the session read
  if (!at_terminal) return AnswerOnce(flags, *talk, std::move(*message));
  if (!BeginConversation()) return InternalError("no pipe for signals");
  const std::unique_ptr<LineEditor> editor = NewLineEditor();
  Status closed;
  {
    ChatReader reader(*editor);
    bool over = false;
    talk->on_full_context = [&] { return AskAboutContext(reader, talk->engine().context(), &over); };
    Greet(flags, *talk);
    if (message) {
      SayAndGoOn(*talk, std::move(*message));
      TakeInterrupt();
      KeepAndGoOn(*talk);
    }
    Converse(*talk, reader, over);
    closed = talk->Close();
    // What cannot be kept in one place may be in another.
    if (!closed.ok() && !talk->is_over() && !Terminated() && PrintedAll()) {
      Note(Printable(closed.message()) + "\n/save FILE keeps the conversation elsewhere; it is lost if you end without\n");
      over = false;
      Converse(*talk, reader, over);
      closed = talk->Close();
    }
  }
  TALLY_RETURN_IF_ERROR(closed);
  return Terminated() ? InterruptExitCode() : 0;
}

}  // namespace

Action AddChat(Command& app) {
  auto flags = std::make_shared<ChatFlags>();
  Command c = app.Add("chat", "Talk with a model at the terminal, and say what each answer cost");
  AddChatFlags(c, *flags);
  c.Footer(
      "At a terminal the conversation goes on until Ctrl-D; /help lists what can be typed besides messages. Where standard input "
      "is "
      "no terminal, it is one message, which gets one answer.");
  AddExamples(c, {"tally chat -p \"What news from Rome?\" </dev/null",
                  "echo \"Who art thou?\" | tally chat --system \"A street in Verona.\" --json"});
  return [flags] { return Report(RunChat(*flags)); };
}

}  // namespace tally::app
