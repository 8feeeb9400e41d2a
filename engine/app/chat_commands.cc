// SPDX-License-Identifier: Apache-2.0
#include "engine/app/chat_commands.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/app/chat_report.h"
#include "engine/app/chat_settings.h"
#include "engine/app/console.h"
#include "engine/app/json.h"
#include "engine/app/output_files.h"
#include "engine/app/usage.h"
#include "engine/base/format.h"
#include "engine/base/utf8_check.h"
#include "engine/render/words.h"

namespace tally::app {
namespace {

struct ChatCommand {
  std::string_view name, arguments, description;
  void (*run)(Talk& talk, const std::string& arguments);  // null: ends the conversation
};

// Cuts the first word off.
std::string FirstWord(std::string* text) {
  const size_t end = std::min(text->find_first_of(" \t"), text->size());
  std::string word = text->substr(0, end);
  text->erase(0, std::min(text->find_first_not_of(" \t", end), text->size()));
  return word;
}

// ~/ is the home folder, as in a shell.
std::string PathOf(const std::string& typed) {
  const char* const home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  return typed.starts_with("~/") && home != nullptr ? home + typed.substr(1) : typed;
}

// The result of a command, or its error. The conversation continues after either.
void Tell(const Status& status, const std::string& done) { Note(status.ok() ? done : Printable(status.message()) + "\n"); }

void Reset(Talk& talk, const std::string&) {
  talk.Reset();
  Note("the conversation begins anew\n");
}

void System(Talk& talk, const std::string& text) {
  if (const Status utf8 = CheckUtf8(text, "the system prompt stays"); !utf8.ok()) return Tell(utf8, "");
  if (!text.empty()) {
    talk.SetSystemPrompt(text);
    return Note("it holds from the next message on\n");
  }
  const std::string prompt = talk.SystemPrompt();
  Note(prompt.empty() ? "there is no system prompt\n" : Readable(prompt) + "\n");
}

// kBadInput: also a file that is there and not empty.
Status WriteConversation(const std::string& path, const std::string& text, const Talk& talk) {
  if (const Status free = CheckMayReplace(path, false); !free.ok())
    return BadInput(Quote(path) + " is there: /save takes another name");
  TALLY_RETURN_IF_ERROR(CheckOutputFile("/save", path, talk.model_path(), {}, false));
  errno = 0;
  std::FILE* const file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return CannotWrite(path, errno);
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const int reason = errno;
  const bool closed = std::fclose(file) == 0;
  if (whole && closed) return {};
  std::remove(path.c_str());
  return CannotWrite(path, whole ? errno : reason);
}

void Save(Talk& talk, const std::string& typed) {
  if (typed.empty()) return Note("/save FILE, FILE.md or FILE.json\n");
  const std::string path = PathOf(typed);
  const bool markdown = path.ends_with(".md"), json = path.ends_with(".json");
  const Status saved = markdown ? WriteConversation(path, ConversationMarkdown(talk), talk)
                       : json   ? WriteConversation(path, JsonText(ConversationJson(talk)) + "\n", talk)
                                : talk.Save(path);
  Tell(saved, "saved: " + Printable(path) + (markdown || json ? ", to be read; /load takes sessions alone\n" : "\n"));
}

void SetCommand(Talk& talk, const std::string& arguments) {
  if (arguments.empty()) return Note(SettingLines(talk));
  const Result<std::string> set = SetOne(talk, arguments);
  Tell(set.status(), set.ok() ? *set : "");
}

void ModelCommand(Talk& talk, const std::string& given) {
  if (given.empty()) return Note(Printable(talk.model_name()) + ": " + Printable(talk.model().Description()) + "\n");
  const Status status = talk.Switch(PathOf(given));
  if (talk.is_over()) return Note(Printable(status.message()) + ": no model is left\n");
  Tell(status, Printable(talk.model().Description()) + "; a context of " + Thousands(talk.engine().context()) + " tokens\n");
  if (status.ok() && talk.flags().session)
    Note("note: " + Printable(*talk.flags().session) + " is this model's from now on: start with it to go on\n");
  if (!status.ok()) Note("the model stays " + Printable(talk.model_name()) + "\n");
}

void Show(Talk& talk, const std::string&) {
  const size_t width = OutputWidth(0);
  const std::string system = talk.SystemPrompt();
  Note(Paragraph("model", Printable(talk.model_name()) + ": " + Printable(talk.model().Description()), width) +
       Paragraph("file", Printable(talk.model_path()), width) +
       Paragraph("template", Printable(talk.source().origin) + "; " + Printable(talk.FormatDescription()), width) +
       Paragraph("context",
                 Thousands(talk.engine().context()) + " tokens, " + Thousands(talk.conversation().tokens()) + " used by " +
                     Counted(static_cast<int64_t>(talk.messages().size()), "message"),
                 width) +
       (system.empty() ? "" : Paragraph("system", Printable(system, 200), width)) + SettingLines(talk));
}

void Load(Talk& talk, const std::string& path) {
  if (path.empty()) return Note("/load FILE\n");
  const Status status = talk.Load(PathOf(path));
  const size_t messages = talk.conversation().messages().size();
  Tell(status, "loaded: " + std::to_string(messages) + (messages == 1 ? " message, " : " messages, ") +
                   books::WithThousands(static_cast<uint64_t>(talk.conversation().tokens())) + " tokens in the cache\n");
}

void Undo(Talk& talk, const std::string&) {
  const std::optional<std::string> forgotten = talk.Undo();
  Note(forgotten ? "forgotten: " + Printable(*forgotten, 60) + "\n" : "there is nothing to forget\n");
}

void Retry(Talk& talk, const std::string&) {
  const Result<bool> said = talk.Retry();
  Tell(said.status(), said.ok() && !*said ? "there is no message yet\n" : "");
}

void Books(Talk& talk, const std::string&) {
  if (!talk.last()) return Note("there is no turn yet\n");
  Note(RunTables(talk.last()->figures.books, talk.model().Description()));
}

void Tools(Talk& talk, const std::string&) {
  const std::vector<std::string>& tools = talk.conversation().settings().tools;
  std::string text = tools.empty() ? "the model has no tools (--tools FILE)\n" : "";
  for (const std::string& tool : tools) text += "  " + ToolText(tool) + "\n";
  for (const ToolCall& call : talk.OpenCalls()) text += "waits for a result: " + CallLine(call) + "\n";
  Note(text);
}

void Tool(Talk& talk, const std::string& arguments) {
  std::string result = arguments;
  const std::string name = FirstWord(&result);
  if (name.empty()) return Note("/tool NAME RESULT\n");
  if (const Status utf8 = CheckUtf8(result, "the result is not sent"); !utf8.ok()) return Tell(utf8, "");
  Tell(talk.AnswerCall(name, std::move(result)), "");
}

void Help(Talk& talk, const std::string& arguments);

constexpr ChatCommand kCommands[] = {
    {"help", "", "this list", Help},
    {"reset", "", "begin anew; the system prompt stays", Reset},
    {"system", "[TEXT]", "set the system prompt, or show it", System},
    {"set", "[NAME VALUE]", "temperature, seed ...; alone: what holds", SetCommand},
    {"model", "[NAME]", "go on with another model", ModelCommand},
    {"show", "", "model, template, context, settings", Show},
    {"save", "FILE", "keep the conversation; .md, .json: to read", Save},
    {"load", "FILE", "go on with one that was kept", Load},
    {"undo", "", "forget the last message and its answer", Undo},
    {"retry", "", "have the last message answered once more", Retry},
    {"books", "", "all figures of the last turn", Books},
    {"tools", "", "the tools, and calls that wait for a result", Tools},
    {"tool", "NAME RESULT", "give the result of a call", Tool},
    {"quit", "", "end; so does Ctrl-D", nullptr},
};

// As ollama and llama.cpp name them.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"?", "help"}, {"bye", "quit"}, {"clear", "reset"}, {"exit", "quit"}, {"regen", "retry"}};

void Help(Talk&, const std::string&) {
  constexpr size_t kDescriptions = 22;  // their column
  const size_t width = OutputWidth(0);
  std::string text;
  for (const ChatCommand& command : kCommands) {
    const std::string title =
        "  /" + std::string(command.name) + (command.arguments.empty() ? "" : " ") + std::string(command.arguments);
    text += Paragraph(title, command.description, width, kDescriptions);
  }
  Note(text +
       Paragraph("", "A line that ends in \\ goes on in the next. \"\"\" opens a message of several lines, and closes it.", width,
                 0) +
       Paragraph("", "A message that begins with / is typed with two. Ctrl-C stops an answer.", width, 0));
}

void NoteUnknown(const std::string& name) {
  std::vector<std::string> names;
  std::string list;
  for (const ChatCommand& command : kCommands) {
    names.emplace_back(command.name);
    list += (list.empty() ? "/" : ", /") + names.back();
  }
  const std::optional<std::string> near = Nearest(name, names);
  const std::string text = "there is no /" + Printable(name) + (near ? ": did you mean /" + *near + "?" : "") + " (" + list + ")";
  Note(Paragraph("", text, OutputWidth(0), 0));
}

}  // namespace

bool RunChatCommand(Talk& talk, const std::string& line) {
  std::string arguments = line;
  std::string name = FirstWord(&arguments);
  for (const auto& [other, ours] : kOtherNames) {
    if (name == other) name = ours;
  }
  arguments.resize(arguments.find_last_not_of(" \t") + 1);
  const auto* const command = std::ranges::find(kCommands, name, &ChatCommand::name);
  if (command == std::end(kCommands)) {
    NoteUnknown(name);
    return true;
  }
  if (command->run == nullptr) return false;
  command->run(talk, arguments);
  return true;
}

}  // namespace tally::app
