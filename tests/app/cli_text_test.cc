// SPDX-License-Identifier: Apache-2.0
// Text through the command line, on a small checkpoint of our own: prompts, files, special tokens, streaming, stop strings, ends,
// and what a signal or a broken model leaves behind.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/app/runner.h"
#include "tests/app/text_model.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Ids = std::vector<int32_t>;

const std::string kAfterC =
    "de\xc3\xa9"
    "fghijklmnopqrstuvwxyz";  // what follows "abc", to the end

class CliText : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new fs::path(fs::path(testing::TempDir()) / ("cli_text_" + std::to_string(getpid())));
    fs::create_directories(*directory_);
    const Status written = TextModel::Write(Model());
    ASSERT_TRUE(written.ok()) << written.message();
  }
  static void TearDownTestSuite() {
    fs::remove_all(*directory_);
    delete directory_;
  }
  static std::string Path(const std::string& name) { return (*directory_ / name).string(); }
  static std::string Model() { return Path("text.gguf"); }
  static std::string Written(const std::string& name, const std::string& text) {
    std::ofstream(Path(name), std::ios::binary) << text;
    return Path(name);
  }
  // tally run, greedy, on the model.
  static Ended Run(std::vector<std::string> arguments, const RunOptions& options = {}) {
    arguments.insert(arguments.begin(), {"run", Model(), "--temp", "0"});
    return Tally(arguments, options);
  }
  static Json RunJson(std::vector<std::string> arguments) {
    arguments.push_back("--json");
    const Ended e = Run(std::move(arguments));
    EXPECT_EQ(e.code, 0) << e.err;
    return Json::parse(e.out, nullptr, false);
  }
  static fs::path* directory_;
};
fs::path* CliText::directory_ = nullptr;

TEST_F(CliText, PromptAndEnd) {
  const Json j = RunJson({"-p", "abc"});
  EXPECT_EQ(j.at("prompt_tokens"), 3);  // <|begin|>, "ab", "c"
  EXPECT_EQ(j.at("text"), kAfterC);
  EXPECT_EQ(j.at("tokens").size(), kAfterC.size());  // a byte each, the end token not among them
  EXPECT_EQ(j.at("finish"), "end of text");
  const Ended e = Run({"-p", "abc"});
  EXPECT_EQ(e.out, kAfterC + "\n");
  EXPECT_NE(e.err.find("ended: end of text"), std::string::npos) << e.err;
  EXPECT_EQ(RunJson({"-p", ""}).at("text"), "abcd" + kAfterC.substr(1));  // the start token alone
  EXPECT_EQ(RunJson({"-p", "[a,b]", "-n", "2"}).at("text"), "ab");        // brackets in a text are text
}

TEST_F(CliText, SpecialTokensInThePrompt) {
  // A text is a text, unless it is said otherwise: for `run` as for `tokenize`.
  const std::string file = Written("turn.txt", "<|turn|>\n");
  for (const std::vector<std::string>& prompt : {std::vector<std::string>{"-p", "<|turn|>"}, {"-f", file}}) {
    std::vector<std::string> arguments = prompt;
    arguments.insert(arguments.end(), {"-n", "3"});
    Json j = RunJson(arguments);
    EXPECT_EQ(j.at("prompt_tokens"), 9);
    EXPECT_EQ(j.at("text"), "abc");
    arguments.push_back("--special");
    j = RunJson(arguments);
    EXPECT_EQ(j.at("prompt_tokens"), 2);
    EXPECT_EQ(j.at("text"), "xyz");
  }
  EXPECT_EQ(Tally({"tokenize", Model(), "<|turn|>", "--ids"}).out, "257,60,124,116,117,114,110,124,62\n");
  EXPECT_EQ(Tally({"tokenize", Model(), "<|turn|>", "--ids", "--special"}).out, "257,259\n");
  EXPECT_EQ(Tally({"tokenize", Model(), "--decode", "[256, 99]"}).out, "abc\n");
}

TEST_F(CliText, OneNewlineAtTheEndOfAPromptFileIsDropped) {
  const std::pair<std::string, int> files[] = {{"abc", 3},         {"abc\n", 3}, {"abc\r\n", 3}, {"abc\n\n", 4},
                                               {"abc\r\n\r\n", 5}, {"\nabc", 4}, {"abc\r", 4}};
  for (const auto& [text, tokens] : files) {
    SCOPED_TRACE(Json(text).dump());
    const std::string file = Written("prompt.txt", text);
    EXPECT_EQ(RunJson({"-f", file, "-n", "1"}).at("prompt_tokens"), tokens);
    const Ended e = Run({"-f", "-", "-n", "1", "--json"}, {.stdin_file = file});
    ASSERT_EQ(e.code, 0) << e.err;
    EXPECT_EQ(Json::parse(e.out).at("prompt_tokens"), tokens);
  }
}

TEST_F(CliText, StopStrings) {
  const Ended e = Run({"-p", "abc", "--stop", "zzz", "--stop", "hij"});
  EXPECT_EQ(e.out,
            "de\xc3\xa9"
            "fg\n");
  EXPECT_NE(e.err.find("ended: stop string"), std::string::npos) << e.err;
  EXPECT_EQ(Run({"-p", "abc", "--stop", "hxj", "-n", "7"}).out,
            "de\xc3\xa9"
            "fgh\n");  // held back, then all of it
  EXPECT_EQ(RunJson({"-p", "abc", "--stop", "[x,y]"}).at("text"), kAfterC);
}

TEST_F(CliText, IgnoredEndsAreNotDrawn) {
  const Json j = RunJson({"-p", "xy", "--ignore-eos", "-n", "6"});
  EXPECT_EQ(j.at("text"), "z abcd");
  EXPECT_EQ(j.at("finish"), "length");
  // Nor where sampling is wide enough to draw anything.
  const Ended wide = Tally({"run", Model(), "-p", "x", "--ignore-eos", "-n", "500", "--temp", "100", "--top-k", "0", "--top-p",
                            "1", "--min-p", "0", "--json"});
  ASSERT_EQ(wide.code, 0) << wide.err;
  const Ids drawn = Json::parse(wide.out).at("tokens").get<Ids>();
  EXPECT_EQ(drawn.size(), 500u);
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), TextModel::kEnd), 0);
}

TEST_F(CliText, GeneratesUntilTheContextIsFull) {
  for (const char* n : {"-1", "-2"}) {
    const Json j = RunJson({"-p", "abc", "-n", n, "--ctx", "40", "--ignore-eos"});
    EXPECT_EQ(j.at("finish"), "context full");
    EXPECT_EQ(j.at("tokens").size(), 38u);  // positions 3 to 39 hold 37 of them; the last needs none
    EXPECT_EQ(j.at("context"), 40);
  }
}

TEST_F(CliText, SaysWhereTheContextGoesBeyondTheTrainedOne) {
  const std::string note = "a context of 1025 tokens goes beyond the 1024 that the model was trained on\n";
  EXPECT_NE(Run({"-p", "abc", "--ctx", "1025"}).err.find(note), std::string::npos);
  const Ended e = Run({"-p", "abc", "--ctx", "1025", "--json"});
  EXPECT_EQ(e.err, "note: " + note);
  EXPECT_EQ(Run({"-p", "abc", "--ctx", "1024", "--json"}).err, "");
}

TEST_F(CliText, StreamsWhatIsCertain) {
  std::string seen;
  RunOptions options;
  options.on_first_output = [&](pid_t pid) { kill(pid, SIGINT); };  // long before the end, which is minutes away
  const Ended e = Run({"-p", "abc", "--ignore-eos", "-n", "-1", "--ctx", "200000"}, options);
  EXPECT_EQ(e.code, 130);
  EXPECT_TRUE(e.out.starts_with("d")) << e.out.substr(0, 100);
  EXPECT_LT(e.out.size(), 100000u);
  EXPECT_TRUE(e.out.ends_with("\n"));
  EXPECT_NE(e.err.find("ended: interrupted"), std::string::npos) << e.err;
}

// Runs with a signal after a while, and with a longer while until `landed` says that it came where it was meant to.
template <class Landed>
Ended Interrupt(const std::vector<std::string>& arguments, int signal, const Landed& landed) {
  Ended e;
  for (int milliseconds = 100; milliseconds <= 25600; milliseconds *= 2) {
    RunOptions options;
    options.on_start = [&](pid_t pid) {
      std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
      kill(pid, signal);
    };
    e = Tally(arguments, options);
    if (landed(e)) return e;
  }
  ADD_FAILURE() << "no signal landed: " << e.code << " " << e.err;
  return e;
}

TEST_F(CliText, AnInterruptedRunStillGivesItsDocument) {
  const auto in_mid_text = [](const Ended& ended) {  // not while the model was read, and not in the prompt
    const Json document = Json::parse(ended.out, nullptr, false);
    return document.is_object() && document.value("generated_tokens", 0) > 0;
  };
  const Ended e = Interrupt({"run", Model(), "-p", "abc", "--temp", "0", "--ignore-eos", "-n", "-1", "--ctx", "200000", "--json"},
                            SIGINT, in_mid_text);
  EXPECT_EQ(e.code, 130);
  EXPECT_FALSE(e.by_signal);
  const Json j = Json::parse(e.out, nullptr, false);
  ASSERT_FALSE(j.is_discarded()) << e.out.substr(0, 200);
  EXPECT_EQ(j.at("finish"), "interrupted");
  EXPECT_EQ(j.at("prompt_tokens"), 3);
  EXPECT_GT(j.at("generated_tokens"), 0);
  EXPECT_EQ(j.at("generated_tokens"), j.at("tokens").size());
}

TEST_F(CliText, InterruptedInThePrompt) {
  std::string text;
  for (int i = 0; i < 50000; ++i) text += "x ";
  const std::string file = Written("long.txt", text);
  const Ended e = Interrupt({"run", Model(), "-f", file, "-n", "4", "--ctx", "200000", "--json"}, SIGINT, [](const Ended& ended) {
    const Json j = Json::parse(ended.out, nullptr, false);
    return !j.is_discarded() && j.at("prompt_tokens") > 0;
  });
  EXPECT_EQ(e.code, 130);
  const Json j = Json::parse(e.out);
  EXPECT_EQ(j.at("finish"), "interrupted");
  EXPECT_LT(j.at("prompt_tokens"), 100001);
  EXPECT_EQ(j.at("prompt_tokens").get<int>() % 512, 0);  // whole pieces
  EXPECT_EQ(j.at("generated_tokens"), 0);
  EXPECT_EQ(j.at("tokens").size(), 0u);
}

std::set<std::string> Names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

// What a model or its vocabulary has does not steer the terminal; a pipe gets its bytes.
TEST_F(CliText, EscapeCodesAreShownAtATerminal) {
  const std::vector<std::string> arguments = {"-p", "~", "-n", "3", "-q"};
  EXPECT_EQ(Run(arguments).out,
            "\x1b"
            "ab\n");
  EXPECT_EQ(Tally({"tokenize", Model(), "--decode", "27"}, {.output_terminal = true}).out, "\\x1b\r\n");
  EXPECT_EQ(Run(arguments, {.output_terminal = true, .environment = {"TERM=dumb"}}).out, "\\x1bab\r\n");
}

// Text that is not UTF-8 would reach the model as other text: wherever it comes from, the line names the place and the byte.
TEST_F(CliText, TextThatIsNotUtf8IsRefused) {
  const std::string bad = "abc\nd\xE9", place = ": byte 5 (line 2) is 0xE9, which is not UTF-8",
                    file = Written("latin1.txt", bad);
  const auto refused = [&](std::vector<std::string> arguments, const std::string& name, const RunOptions& options = {}) {
    arguments.insert(arguments.begin() + 1, {"-m", Model()});
    ExpectAdvice(arguments, {name + place}, options);
  };
  for (const char* command : {"run", "chat", "tokenize", "perplexity"}) {
    refused({command, "-f", file}, file);
    refused({command}, "standard input", {.stdin_file = file});
  }
  for (const char* command : {"run", "chat", "logits", "audit", "report"}) refused({command, "-p", bad}, "--prompt");
  refused({"tokenize", bad}, "TEXT");
  for (const char* command : {"run", "chat"}) refused({command, "-p", "a", "--stop", bad}, "--stop");
  refused({"chat", "-p", "a", "--system", bad}, "--system");
  for (const char* option : {"--system-file", "--tools", "--chat-template"}) refused({"chat", "-p", "a", option, file}, file);
  refused({"chat", "-p", "a", "--template-vars", bad}, "--template-vars");
  EXPECT_EQ(Tally({"tokenize", "-m", Model(), "--ids", "--no-bos", "\xC3\xA9"}).out, "195,169\n");
}

TEST_F(CliText, InterruptedLogitsLeaveNoFile) {
  std::string ids = "[97";
  for (int i = 0; i < 60000; ++i) ids += ", 98";
  const std::string tokens = Written("ids.txt", ids + "]\n"), folder = Path("logits");
  fs::create_directories(folder);
  RunOptions options;
  options.on_start = [&](pid_t pid) {
    for (int i = 0; i < 6000 && fs::is_empty(folder); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(fs::is_empty(folder));
    EXPECT_FALSE(fs::exists(folder + "/x.npy"));
    kill(pid, SIGTERM);
  };
  const Ended e = Tally({"logits", Model(), "--tokens-file", tokens, "-o", folder + "/x.npy", "--ctx", "60001"}, options);
  EXPECT_EQ(e.code, 143) << e.err;
  EXPECT_FALSE(e.by_signal);
  EXPECT_EQ(Names(folder), (std::set<std::string>{}));
}

TEST_F(CliText, FailedLogitsLeaveWhatWasThere) {
  const std::string spoilt = Path("spoilt.gguf"), folder = Path("spoilt");
  const Status written = TextModel::Write(spoilt, 'q');
  ASSERT_TRUE(written.ok()) << written.message();
  fs::create_directories(folder);
  std::string tokens;
  for (int i = 0; i < 100; ++i) tokens += "97,";  // more than a step, so that rows have been written
  const std::vector<std::string> command = {"logits", spoilt, "--tokens", tokens + "113", "-o", folder + "/x.npy"};
  for (const bool older : {false, true}) {
    if (older) Written("spoilt/x.npy", "older");
    std::vector<std::string> arguments = command;
    if (older) arguments.push_back("--force");
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2);
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find("not finite"), std::string::npos) << e.err;
    EXPECT_EQ(Names(folder), older ? std::set<std::string>{"x.npy"} : std::set<std::string>{});
  }
  std::ifstream in(folder + "/x.npy");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "older");
}

}  // namespace
}  // namespace tally
