// SPDX-License-Identifier: Apache-2.0
// tally chat: one message from a pipe or an option, and conversations at a terminal.
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/app/terminal.h"
#include "tests/app/text_model.h"
#include "tests/support/open_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;
using Strings = std::vector<std::string>;

unsigned Mode(const std::string& path) {
  struct stat info {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

class CliChat : public testing::Test {
 protected:
  CliChat() : model_(folder_ / "text.gguf") {
    EXPECT_TRUE(TextModel::Write(model_).ok());
    turn_ = Template("turn.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<|turn|>' }}");
  }
  std::string Template(const std::string& name, const std::string& text) {
    folder_.Write(name, text);
    return folder_ / name;
  }
  Json Answer(Strings arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), "chat");
    arguments.emplace_back("--json");
    const Ended e = Tally(arguments, options);
    EXPECT_EQ(e.code, 0) << e.err;
    EXPECT_EQ(e.err, "");
    return e.code == 0 ? Json::parse(e.out) : Json();
  }
  Strings environment() const { return {"XDG_STATE_HOME=" + folder_.path()}; }

  TempFolder folder_;
  std::string model_;  // TextModel: it has no template
  std::string turn_;   // a template: the contents, then <|turn|>, after which it says "xyz"
};

TEST_F(CliChat, GivenInputIsOneMessage) {
  folder_.Write("input", "Good morrow.\nWhat news?\n");
  const Ended piped = Tally({"chat"}, {.stdin_file = folder_ / "input"});
  ASSERT_EQ(piped.code, 0) << piped.err;
  EXPECT_GT(piped.out.size(), 2u);
  EXPECT_EQ(piped.out.find("\n\n"), std::string::npos) << "the demo's speeches end before an empty line";
  for (const char* part : {"prompt ", "answer ", "the first after ", "1,759,284 parameters", " MFLOP", "context ", " of 1,024"}) {
    EXPECT_NE(piped.err.find(part), std::string::npos) << part << ": " << piped.err;
  }
  const Ended given = Tally({"chat", "-q", "-p", "Good morrow.\nWhat news?"});
  EXPECT_EQ(given.out, piped.out);
  EXPECT_EQ(given.err, "");
  ExpectAdvice({"chat"}, {"there is no message", "-p TEXT"});
  ExpectAdvice({"chat", "-p", "a", "-f", turn_}, {"give the first message once"});
}

TEST_F(CliChat, OneJsonDocument) {
  const Json j = Answer({"-p", "Good morrow.", "--system", "Verona."});
  EXPECT_EQ(j.at("prompt"), "<|endoftext|>Verona.\n\nJULIET:\nGood morrow.\n\nROMEO:\n");
  EXPECT_EQ(j.at("prompt_token_ids").size(), j.at("prompt_tokens"));
  EXPECT_EQ(j.at("reused_tokens"), 0);
  EXPECT_EQ(j.at("finish"), "stop string");
  EXPECT_NE(j.at("answer"), "");
  ASSERT_EQ(j.at("messages").size(), 3u);
  EXPECT_EQ(j.at("messages").at(0), Json({{"role", "system"}, {"content", "Verona."}}));
  EXPECT_EQ(j.at("messages").at(2), Json({{"role", "assistant"}, {"content", j.at("answer")}}));
  EXPECT_EQ(j.at("generated_tokens"), j.at("tokens").size());
  EXPECT_EQ(j.at("context_used").get<size_t>() + 1, j.at("prompt_token_ids").size() + j.at("tokens").size());
  EXPECT_GT(j.at("flops_per_token"), 0);
  const Json names = Answer({"-p", "Ay.", "--template-vars", R"({"user": "NURSE", "speaker": "PETER"})"});
  EXPECT_EQ(names.at("prompt"), "<|endoftext|>NURSE:\nAy.\n\nPETER:\n");
}

TEST_F(CliChat, AModelWithoutATemplateTakesNoOther) {
  ExpectAdvice({"chat", model_, "-p", "a"}, {model_, "no chat template", "--chat-template FILE|NAME", "chatml"});
  ExpectAdvice({"chat", model_, "-p", "a", "--chat-template", "chatlm"}, {"'chatlm'", "no such file", "chatml"});
  EXPECT_EQ(Answer({model_, "-p", "a", "--chat-template", turn_}).at("answer"), "xyz");
  for (const char* name : {"chatml", "llama3", "gemma", "mistral", "zephyr"}) {
    const Json j = Answer({model_, "-p", "Hello there", "--system", "Be kind", "--chat-template", name, "-n", "1"});
    const std::string prompt = j.at("prompt");
    EXPECT_LT(prompt.find("Be kind"), prompt.find("Hello there")) << prompt;
    EXPECT_EQ(j.at("template"), std::string("--chat-template ") + name);
  }
  EXPECT_NE(
      Answer({"-p", "Hi", "--chat-template", "harmony", "-n", "1"}).at("prompt").get<std::string>().find("<|message|>Hi<|end|>"),
      std::string::npos);
}

TEST_F(CliChat, TemplatesThatDoNotWork) {
  const std::string broken = Template("broken.jinja", "a\n{% if %}"),
                    refusing = Template("no.jinja", "{{ raise_exception('never') }}");
  ExpectAdvice({"chat", "-p", "a", "--chat-template", broken}, {broken, "line 2"});
  ExpectAdvice({"chat", "-p", "a", "--chat-template", refusing}, {"never"});
  ExpectAdvice({"chat", "-p", "a", "--template-vars", "[1]"}, {"--template-vars", "expected an object"});
  ExpectAdvice({"chat", "-p", "a", "--reasoning-effort", "much"}, {"low, medium, high"});
}

// A context for which there is no memory is refused before the weights are read, and a template before that.
TEST_F(CliChat, TemplatesAreRefusedBeforeWeightsAreRead) {
  const std::string refusing = Template("no.jinja", "{{ raise_exception('never') }}");
  const Strings huge = {"chat", model_, "-p", "a", "-c", "2000000000"};
  const auto with = [&](const std::string& name) {
    Strings arguments = huge;
    arguments.insert(arguments.end(), {"--chat-template", name});
    return arguments;
  };
  ExpectAdvice(with(turn_), {"memory"});
  ExpectAdvice(huge, {"no chat template"});
  ExpectAdvice(with("chatlm"), {"no such file"});
  ExpectAdvice(with(Template("broken.jinja", "{% if %}")), {"line 1"});
  ExpectAdvice(with(refusing), {"never"});
}

TEST_F(CliChat, SpecialTokensThatAreTypedStayText) {
  const Json j = Answer({model_, "-p", "<|turn|>", "--chat-template", turn_});
  EXPECT_EQ(j.at("prompt"), "<|turn|><|turn|>");
  const auto ids = j.at("prompt_token_ids").get<std::vector<int32_t>>();
  EXPECT_EQ(std::ranges::count(ids, TextModel::kTurn), 1);
  EXPECT_EQ(ids.size(), std::string("<|turn|>").size() + 1);
  EXPECT_EQ(j.at("prompt_tokens"), ids.size());
  const Ended shown = Tally({"chat", model_, "-p", "<|turn|>", "--chat-template", turn_, "--show-prompt", "-q"});
  EXPECT_EQ(shown.err, "<|turn|><|turn|>\n");
  EXPECT_EQ(shown.out, "xyz\n");
}

TEST_F(CliChat, ASessionGoesOn) {
  const std::string file = folder_ / "talk.session";
  const Json first = Answer({"-p", "Good morrow.", "--session", file});
  EXPECT_EQ(Mode(file), 0600u);
  chmod(file.c_str(), 0640);
  const Json second = Answer({"-p", "What news?", "--session", file});
  EXPECT_EQ(Mode(file), 0640u) << "a file that is replaced keeps its mode";
  EXPECT_EQ(first.at("messages").size(), 2u);
  ASSERT_EQ(second.at("messages").size(), 4u);
  EXPECT_EQ(second.at("messages").at(1), first.at("messages").at(1));
  EXPECT_GE(second.at("reused_tokens"), first.at("prompt_tokens"));
  EXPECT_EQ(second.at("reused_tokens").get<size_t>() + second.at("prompt_tokens").get<size_t>(),
            second.at("prompt_token_ids").size());
  const std::string refusing = Template("no.jinja", "{{ raise_exception('never') }}");
  ExpectAdvice({"chat", "-p", "a", "--session", file, "--chat-template", refusing}, {"never"});
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  ExpectAdvice({"chat", "-p", "a", "--session", file}, {file});
  ExpectAdvice({"chat", "-p", "a", "--session", folder_ / "none/talk"}, {"none/talk"});
}

TEST_F(CliChat, Tools) {
  folder_.Write("tools.json", R"([{"type": "function", "function": {"name": "get_weather", "parameters": {}}}])");
  const std::string lists = Template("tools.jinja", "{% for t in tools %}{{ t.function.name }};{% endfor %}<|turn|>");
  const Ended e = Tally({"chat", model_, "-p", "a", "--tools", folder_ / "tools.json", "--chat-template", lists, "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(Json::parse(e.out).at("prompt"), "get_weather;<|turn|>");
  EXPECT_EQ(e.err,
            "note: the chat template leaves out the text of messages of the role 'user'\n"
            "note: how this model calls tools is not known: calls stay text in its answers\n");
  for (const char* wrong : {"{", "{}", "[1]", R"([{"function": {"name": 1}}])"}) {
    folder_.Write("wrong.json", wrong);
    ExpectAdvice({"chat", "-p", "a", "--tools", folder_ / "wrong.json"}, {"--tools", "wrong.json"});
  }
}

TEST_F(CliChat, ResultsOfToolsAreGivenAtTheTerminal) {
  const std::string file = folder_ / "calls.session",
                    shows = Template("shows.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}<|turn|>");
  {  // a session whose last answer calls two tools
    const Opened opened = Open(model_, {.context = TextModel::kContext});
    auto format = MakeChatFormat({.text = "-"});
    ASSERT_TRUE(opened.engine != nullptr && format.ok());
    auto chat = NewConversation(*opened.engine, std::move(*format));
    ASSERT_TRUE(chat.ok());
    (*chat)->SetMessages(
        {{.role = "user", .content = "a"}, {.role = "assistant", .tool_calls = {{"1", "left", "{}"}, {"2", "right", "{}"}}}});
    ASSERT_TRUE((*chat)->Save(file).ok());
  }
  Terminal t({"chat", model_, "--session", file, "-q", "--show-prompt", "--chat-template", shows}, environment());
  t.Expect("> ");
  EXPECT_NE(t.Enter("/tools").find("waits for a result: call left {}"), std::string::npos) << t.shown();
  t.Enter("/tool left L");
  EXPECT_EQ(t.Enter("/tools").find("call left"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/tool left L").find("no call of 'left'"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/tool right R R").find("a;;L;R R;<|turn|>"), std::string::npos) << t.shown();
}

TEST_F(CliChat, AMessageThatHasNoRoom) {
  ExpectAdvice({"chat", model_, "-c", "16", "-p", std::string(40, '.'), "--chat-template", turn_}, {"context of 16", "-c N"});
}

TEST_F(CliChat, AtATerminal) {
  const std::string file = folder_ / "talk.session";
  Terminal t({"chat", "-t", "1"}, environment());
  EXPECT_NE(t.Expect("\n> ").find("/help lists the commands"), std::string::npos);
  const std::string turn = t.Enter("Good morrow.");
  EXPECT_NE(turn.find("\x1b[2mprompt "), std::string::npos) << turn;
  EXPECT_NE(turn.find(" a token"), std::string::npos) << turn;
  EXPECT_NE(t.Enter("/books").find("active(all)"), std::string::npos);
  EXPECT_NE(t.Enter("/save " + file).find("saved: "), std::string::npos);
  EXPECT_NE(t.Enter("/save " TALLY_SOURCE_DIR "/models/demo/demo.gguf").find("is a file of the model"), std::string::npos);
  EXPECT_NE(t.Enter("/save " + turn_).find("is no session file; nothing was written"), std::string::npos);
  EXPECT_NE(t.Enter("/undo").find("forgotten: Good morrow."), std::string::npos);
  EXPECT_NE(t.Enter("/undo").find("nothing to forget"), std::string::npos);
  EXPECT_NE(t.Enter("/load " + file).find("loaded: 2 messages"), std::string::npos);
  EXPECT_NE(t.Enter("/retry").find(" reused)"), std::string::npos);
  EXPECT_NE(t.Enter("/system Verona.").find("> "), std::string::npos);
  EXPECT_NE(t.Enter("/system").find("\nVerona."), std::string::npos);
  EXPECT_NE(t.Enter("/load " + model_).find(model_), std::string::npos);
  EXPECT_NE(t.Enter("/rest").find("did you mean /reset? (/help, "), std::string::npos);
  EXPECT_NE(t.Enter("/tool get_weather 3").find("no call of 'get_weather'"), std::string::npos);
  t.Type("/bye\r");  // as ollama names it
  EXPECT_EQ(t.End(), 0);

  EXPECT_EQ(Mode(folder_ / "tally/chat_history"), 0600u);
  EXPECT_TRUE(ReadAll(folder_ / "tally/chat_history").starts_with("Good morrow.\n/books\n"));
}

TEST_F(CliChat, SettingsAndModelsOfAConversation) {
  Terminal t({"chat", "-t", "1", "-n", "12"}, environment());
  t.Expect("\n> ");
  EXPECT_NE(t.Enter("/set").find("temperature        0.8"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/set temp 0").find("temperature        0 "), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/set parameter seed 7").find("seed               7"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/set top_p 7").find("top-p must be"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/set tempo 7").find("no setting 'tempo'"), std::string::npos) << t.shown();
  t.Enter("Good morrow.");
  EXPECT_NE(t.Enter("/model " + model_).find("the model stays demo"), std::string::npos) << "it has no template: " << t.shown();
  EXPECT_NE(t.Enter("/model nowhere").find("the model stays demo"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/model " TALLY_SOURCE_DIR "/models/demo/demo.gguf").find("a context of 1,024 tokens"), std::string::npos)
      << t.shown();
  t.Enter("What news?");
  const std::string shown = t.Enter("/show");
  EXPECT_NE(shown.find("/models/demo/demo.gguf"), std::string::npos) << shown;
  EXPECT_NE(shown.find("used by 4 messages"), std::string::npos) << shown;
  EXPECT_NE(shown.find("temperature        0 "), std::string::npos) << shown;
  t.Enter("/save " + (folder_ / "talk.json"));
  t.Enter("/save " + (folder_ / "talk.md"));
  EXPECT_NE(t.Enter("/save " + (folder_ / "talk.md")).find("is there: /save takes another name"), std::string::npos) << t.shown();
  t.Type("/quit\r");
  EXPECT_EQ(t.End(), 0);
  const Json talk = Json::parse(ReadAll(folder_ / "talk.json"));
  ASSERT_EQ(talk.at("messages").size(), 4u);
  EXPECT_EQ(talk.at("messages").at(2), Json({{"role", "user"}, {"content", "What news?"}}));
  EXPECT_EQ(talk.at("settings").at("seed"), 7);
  EXPECT_EQ(talk.at("settings").at("temperature"), 0.0);
  const std::string page = ReadAll(folder_ / "talk.md");
  EXPECT_NE(page.find("\n## user\n\nGood morrow.\n\n## assistant\n\n"), std::string::npos) << page;
}

// A model of another template takes the conversation over.
TEST_F(CliChat, AnotherModelGoesOn) {
  const std::string shows = Template("shows.jinja", "{% for m in messages %}{{ m.content }};{% endfor %}<|turn|>");
  Terminal t({"chat", model_, "-q", "--show-prompt", "--chat-template", shows}, environment());
  t.Expect("> ");
  t.Enter("a");
  EXPECT_NE(t.Enter("/model demo").find("a context of 1,024 tokens"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("b").find("JULIET:"), std::string::npos) << "its own template: " << t.shown();
  EXPECT_NE(t.Enter("/model " + model_).find(" tokens"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("c").find("a;xyz;b;"), std::string::npos) << "--chat-template, since it has none: " << t.shown();
  t.Type("/quit\r");
  EXPECT_EQ(t.End(), 0);
}

TEST_F(CliChat, ATerminalWithoutLibedit) {
  if (!TALLY_LINE_EDITING) GTEST_SKIP() << "built without libedit";
  Strings hidden = environment();
  hidden.push_back(OtherLibraryAs("libedit.so.2", folder_.path()));
  Terminal t({"chat", "-t", "1"}, hidden);
  EXPECT_NE(t.Expect("\n> ").find("libedit cannot be used: libedit.so.2 lacks el_init; lines are read without editing\r\n"),
            std::string::npos)
      << t.shown();
  EXPECT_NE(t.Enter("/undo").find("nothing to forget"), std::string::npos) << t.shown();
  // What libedit drops arrives here: it is said, and not sent.
  EXPECT_NE(t.Enter("caf\xE9").find("the message is not sent: byte 3 (line 1) is 0xE9, which is not UTF-8"), std::string::npos)
      << t.shown();
  EXPECT_NE(t.Enter("/system caf\xE9").find("the system prompt stays: byte 3 (line 1) is 0xE9"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/undo").find("nothing to forget"), std::string::npos) << t.shown();
  t.Type("/quit\r");
  EXPECT_EQ(t.End(), 0);
}

TEST_F(CliChat, MessagesOfSeveralLines) {
  const std::string shows = Template("shows.jinja", "{{ messages[-1].content | tojson }}<|turn|>");
  Terminal t({"chat", model_, "-q", "--show-prompt", "--chat-template", shows}, environment());
  t.Expect("> ");
  t.Type("one \\\r");
  t.Expect(". ");
  EXPECT_NE(t.Enter("two").find(R"("one \ntwo"<|turn|>)"), std::string::npos) << t.shown();
  t.Type("\"\"\"\r");
  t.Expect(". ");
  t.Type("/one\\\r");
  t.Expect(". ");
  EXPECT_NE(t.Enter("two\"\"\"").find(R"("/one\\\ntwo"<|turn|>)"), std::string::npos) << t.shown();
  t.Type("\"\"\"\"\"\"\r");  // nothing to say
  t.Expect("> ");
  EXPECT_NE(t.Enter("a\tb").find(R"("a\tb"<|turn|>)"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("//quit").find(R"("/quit"<|turn|>)"), std::string::npos) << t.shown();
  // Pasted, at terminals that mark it: control characters but tabs and line ends are dropped.
  EXPECT_TRUE(t.pastes_marked());
  t.Type("(\x1b[200~a\tb\r\rc\x04\x1b[31m\xc3\xa9\r\x1b[201~");
  EXPECT_NE(t.Enter(")").find("\"(a\\tb\\n\\nc[31m\xc3\xa9)\"<|turn|>"), std::string::npos) << t.shown();
  t.Type("\x1b[200~\"\"\"\rone\rtwo\"\"\"\x1b[201~");
  EXPECT_NE(t.Enter("").find(R"("one\ntwo"<|turn|>)"), std::string::npos) << t.shown();
  t.Type("\x04");  // Ctrl-D
  EXPECT_EQ(t.End(), 0);
  EXPECT_FALSE(t.pastes_marked());
}

TEST_F(CliChat, CtrlCStopsTheAnswerOnly) {
  // Without the demo's stop string, by the slow kernels: an answer of many seconds.
  const std::string endless = Template("endless.jinja", "{{ bos_token }}{{ messages[-1].content }}");
  Terminal t({"chat", "-t", "1", "-c", "30000", "--impl", "ref", "--chat-template", endless}, environment());
  t.Expect("\n> ");
  t.Type("Good morrow.\r");
  t.Expect("morrow.\r\n");
  t.Expect("\n");  // a line of the answer
  t.Type("\x03");
  EXPECT_NE(t.Expect("\n> ").find("interrupted"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/undo").find("forgotten"), std::string::npos);
  t.Type("\x03");
  t.Expect("(Ctrl-C once more, or Ctrl-D, ends)");
  t.Expect("> ");
  t.Type("/quit\r");
  EXPECT_EQ(t.End(), 0);

  Terminal twice({"chat"}, environment());
  twice.Expect("\n> ");
  twice.Type("\x03");
  twice.Expect("once more");
  twice.Expect("> ");
  twice.Type("\x03");
  EXPECT_EQ(twice.End(), 0);
}

TEST_F(CliChat, TerminationKeepsTheSession) {
  const std::string file = folder_ / "talk.session";
  Terminal t({"chat", "--session", file}, environment());
  t.Expect("\n> ");
  t.Enter("Good morrow.");
  ExpectAdvice({"chat", "-p", "a", "--session", file}, {file, "another chat has this session open"});
  t.Signal(SIGTERM);
  EXPECT_EQ(t.End(), 143);
  EXPECT_FALSE(std::filesystem::exists(file + ".lock"));
  EXPECT_EQ(Answer({"-p", "What news?", "--session", file}).at("messages").size(), 4u);
}

TEST_F(CliChat, AKillLosesTheRunningTurnOnly) {
  const std::string file = folder_ / "talk.session";
  Terminal t({"chat", "--session", file}, environment());
  t.Expect("\n> ");
  t.Enter("Good morrow.");
  t.Enter("And to thee.");
  t.Enter("/undo");
  t.Signal(SIGKILL);
  EXPECT_EQ(t.End(), 128 + SIGKILL);
  const Json j = Answer({"-p", "What news?", "--session", file});
  ASSERT_EQ(j.at("messages").size(), 4u);
  EXPECT_EQ(j.at("messages").at(0).at("content"), "Good morrow.");
}

// What was said is not lost with the place where it was to be kept.
TEST_F(CliChat, ASessionThatCannotBeKeptCanBeKeptElsewhere) {
  std::filesystem::create_directory(folder_ / "gone");
  Terminal t({"chat", "--session", folder_ / "gone/talk.session"}, environment());
  t.Expect("\n> ");
  t.Enter("Good morrow.");
  std::filesystem::remove_all(folder_ / "gone");
  EXPECT_NE(t.Enter("And to thee.").find("the session is not kept"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/quit").find("/save FILE keeps the conversation elsewhere"), std::string::npos) << t.shown();
  EXPECT_NE(t.Enter("/save " + (folder_ / "here.session")).find("saved: "), std::string::npos) << t.shown();
  t.Type("/quit\r");
  EXPECT_EQ(t.End(), 2);
  EXPECT_EQ(Answer({"-p", "What news?", "--session", folder_ / "here.session"}).at("messages").size(), 6u);
}

TEST_F(CliChat, AFullContextAsks) {
  Terminal t({"chat", model_, "-c", "40", "--chat-template", turn_}, environment());
  t.Expect("\n> ");
  t.Enter(".............");
  t.Enter(".............");
  t.Type(".............\r");
  t.Expect("is full");
  t.Expect("? ");
  EXPECT_NE(t.Enter("Forget").find("xyz"), std::string::npos) << t.shown();
  // One that is too long by itself is dropped.
  t.Type(std::string(50, '.') + "\r");
  t.Expect("? ");
  t.Type("f\rf\rf\r");  // two turns are left
  EXPECT_NE(t.Expect("\n> ").find("nothing is left to forget"), std::string::npos) << t.shown();
  t.Type(std::string(50, '.') + "\r");
  t.Expect("? ");
  t.Type("q\r");
  EXPECT_EQ(t.End(), 0);
}

}  // namespace
}  // namespace tally
