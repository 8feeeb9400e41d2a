// SPDX-License-Identifier: Apache-2.0
// What the commands say of themselves: help, examples, manual pages and completions, which are all written from one source.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/app/lines.h"
#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Names = std::set<std::string>;

std::string QuietText(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  const Ended e = Tally(arguments, options);
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(e.err, "");
  return e.out;
}

// The lines below the heading, up to an empty one.
std::vector<std::string> Section(const std::string& help, const std::string& heading) {
  std::vector<std::string> section;
  bool inside = false;
  for (const std::string& line : LinesOf(help)) {
    if (inside && line.empty()) break;
    if (inside) section.push_back(line);
    inside = inside || line == heading + ":";
  }
  return section;
}

std::vector<std::string> Commands() {
  std::vector<std::string> names;
  for (const std::string& line : Section(QuietText({"--help"}), "Commands"))
    names.push_back(line.substr(2, line.find(' ', 2) - 2));
  EXPECT_GE(names.size(), 14u);
  return names;
}

Names OptionsOf(const std::string& help) {
  Names names;
  const std::regex name("--?[A-Za-z][a-z0-9-]*");
  for (const std::string& line : Section(help, "Options")) {
    if (!line.starts_with("  -")) continue;
    const std::string title = line.substr(0, line.find("  ", 2));
    for (std::sregex_iterator at(title.begin(), title.end(), name), end; at != end; ++at) names.insert(at->str());
  }
  EXPECT_TRUE(names.contains("--help")) << help;
  return names;
}

std::vector<std::string> ExamplesOf(const std::string& command) {
  std::vector<std::string> examples;
  for (const std::string& line : Section(QuietText({command, "--help"}), "Examples")) examples.push_back(line.substr(2));
  return examples;
}

// What stands between two marks; fails where they are not there.
std::string Between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin);
  EXPECT_NE(from, std::string::npos) << begin;
  if (from == std::string::npos) return "";
  return text.substr(from + begin.size(), text.find(end, from + begin.size()) - from - begin.size());
}

bool IsHere(const std::string& program) {
  return Tally({}, {.wrapper = {"bash", "-c", "command -v " + program + " >/dev/null", "bash"}}).code == 0;
}

TEST(CliWords, HelpFitsTheScreen) {
  const std::string help = QuietText({"--help"});
  const std::vector<std::string> commands = Commands();
  EXPECT_LE(LinesOf(help).size(), commands.size() + 9) << help;
  EXPECT_EQ(commands[0] + " " + commands[1] + " " + commands[2], "run chat batch");
  for (const int columns : {60, 200}) {
    for (const std::string& command : commands) {
      const std::string shown = QuietText({command, "--help"}, {.output_terminal = true, .columns = columns});
      for (const std::string& line : LinesOf(shown.substr(0, shown.find("Examples:")))) {
        EXPECT_LE(line.size(), static_cast<size_t>(std::min(columns, 100))) << command << ": " << line;
      }
    }
  }
}

// Of a command's part of docs/commands.md the second block of code holds its examples.
TEST(CliWords, ExamplesAreThoseOfTheDocs) {
  const std::string docs = ReadAll(std::string(TALLY_SOURCE_DIR) + "/docs/commands.md");
  for (const std::string& command : Commands()) {
    std::vector<std::vector<std::string>> blocks;
    bool inside = false;
    for (const std::string& line : LinesOf(Between(docs, "\n## " + command + "\n", "\n## "))) {
      const bool code = line.starts_with("    ");
      if (code && !inside) blocks.emplace_back();
      if (code) blocks.back().push_back(line.substr(4));
      inside = code;
    }
    const std::vector<std::string> examples = ExamplesOf(command);
    EXPECT_EQ(examples.size(), 2u) << command;
    ASSERT_GE(blocks.size(), 2u) << command;
    EXPECT_EQ(blocks[1], examples) << "docs/commands.md, " << command;
  }
}

TEST(CliWords, ExamplesRun) {
  const TempFolder home;
  std::filesystem::create_directories(home / ".config/fish/completions");
  // They take the network, gigabytes, a measurement of seconds, or man, or do not end.
  const std::vector<std::string> left_out = {
      "tally pull",          "tally synth",     "tally bench", "tally fit gpt-oss-20b", "tally rm",
      "tally report before", "tally man run |", "tally serve", "tally pack gpt-oss-20b"};
  int run = 0;
  for (const std::string& command : Commands()) {
    for (std::string example : ExamplesOf(command)) {
      const auto begins = [&](const std::string& with) { return example.starts_with(with); };
      if (std::any_of(left_out.begin(), left_out.end(), begins)) continue;
      const std::string line = std::regex_replace(example, std::regex("/tmp/"), home.path() + "/");
      const std::string script = "tally() { '" TALLY_BINARY "' \"$@\"; }; cd '" TALLY_SOURCE_DIR "' && set -e; " + line;
      const Ended e =
          Tally({}, {.environment = {"HOME=" + home.path(), "XDG_CACHE_HOME=" + home.path()}, .wrapper = {"bash", "-c", script}});
      EXPECT_EQ(e.code, 0) << example << ": " << e.err;
      ++run;
    }
  }
  EXPECT_GE(run, 18);
}

TEST(CliWords, EveryOptionIsEverywhere) {
  const std::string bash = QuietText({"completion", "bash"}), zsh = QuietText({"completion", "zsh"}),
                    fish = QuietText({"completion", "fish"});
  for (const std::string& command : Commands()) {
    const Names options = OptionsOf(QuietText({command, "--help"}));
    std::istringstream words(Between(bash, "    " + command + ")\n      options='", "'"));
    EXPECT_EQ(Names(std::istream_iterator<std::string>(words), {}), options) << command;
    const std::string page = QuietText({"man", command}), zsh_part = Between(zsh, "    " + command + ")\n", ";;");
    std::string fish_part;
    for (const std::string& line : LinesOf(fish)) {
      if (line.starts_with("complete -c tally -n '__tally_command " + command + "'")) fish_part += line + "\n";
    }
    for (const std::string& option : options) {
      SCOPED_TRACE(command + " " + option);
      EXPECT_NE(page.find("\\fB" + std::regex_replace(option, std::regex("-"), "\\-") + "\\fR"), std::string::npos) << page;
      EXPECT_TRUE(std::regex_search(zsh_part, std::regex("[)*]" + option + "[=+]?\\["))) << zsh_part;
      const bool is_long = option.starts_with("--");
      EXPECT_NE(fish_part.find((is_long ? " -l " : " -s ") + option.substr(is_long ? 2 : 1) + " "), std::string::npos)
          << fish_part;
    }
    for (const std::string& example : ExamplesOf(command)) {
      EXPECT_NE(page.find(".SH EXAMPLES"), std::string::npos) << command;
      EXPECT_NE(page.find(example.substr(0, example.find_first_of("-\"~<|>"))), std::string::npos) << command << ": " << example;
    }
  }
}

TEST(CliWords, ManualPages) {
  const TempFolder dir;
  const std::string pages = dir / "man1";
  EXPECT_EQ(QuietText({"man", "-o", pages}), "");
  EXPECT_EQ(ReadAll(pages + "/tally.1"), QuietText({"man"}));
  for (const std::string& command : Commands())
    EXPECT_EQ(ReadAll(pages + "/tally-" + command + ".1"), QuietText({"man", command}));
  ExpectAdvice({"man", "rnu"}, {"did you mean run?"});
  ExpectAdvice({"man", "run", "-o", pages}, {"leave COMMAND out"});
  ExpectAdvice({"man", "-o", "/dev/null/man1"}, {"/dev/null/man1"});
  const auto checked = [&](const std::string& check) {
    return Tally({}, {.wrapper = {"bash", "-c", "cd '" + pages + "' && " + check}});
  };
  if (!IsHere("mandoc") && !IsHere("groff")) GTEST_SKIP() << "neither mandoc nor groff is here: manual pages are not checked";
  if (IsHere("mandoc")) {  // A page has no date: it is of a version. A paragraph is a line.
    EXPECT_EQ(checked("mandoc -T lint -W style *.1 2>&1 | grep -v 'missing date\\|longer than 80 bytes' || true").out, "");
  }
  if (IsHere("groff")) {
    EXPECT_EQ(checked("groff -man -ww -z *.1 2>&1").out, "");
  }
}

// A folder with files of several kinds, as the shells' tests see it.
class Completion : public testing::Test {
 protected:
  Completion() {
    for (const char* file : {"small.gguf", "config.json", "notes.txt", "two words.gguf"}) dir_.Write(file, "");
    std::filesystem::create_directories(dir_ / "checkpoint");
    std::filesystem::create_directories(dir_ / "hub/models--Qwen--Qwen3-0.6B");
  }
  // The last of the words is the one at the cursor.
  Names Bash(std::vector<std::string> words) {
    words.insert(words.begin(), "tally");
    const std::string script =
        R"(source <("$1" completion bash) && shift && cd "$FOLDER" && COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
      _tally; printf '%s\n' "${COMPREPLY[@]}")";
    return Offered(QuietText(words, {.environment = environment_, .wrapper = {"bash", "--norc", "-c", script, "bash"}}));
  }
  Names Fish(const std::string& line) {
    const std::string script = "cd $FOLDER; $argv[1] completion fish | source; complete -C '" + line + "'";
    return Offered(QuietText({}, {.environment = environment_, .wrapper = {"fish", "--no-config", "-c", script}}));
  }
  TempFolder dir_;
  std::vector<std::string> environment_ = {"FOLDER=" + dir_.path(), "HF_HUB_CACHE=" + (dir_ / "hub"), "HOME=" + dir_.path()};

 private:
  static Names Offered(const std::string& out) {
    Names names;
    for (const std::string& line : LinesOf(out)) {
      if (!line.empty()) names.insert(line.substr(0, line.find('\t')));  // fish: a description behind
    }
    return names;
  }
};

TEST_F(Completion, OfBash) {
  EXPECT_EQ(Bash({"com"}), Names{"completion"});
  EXPECT_EQ(Bash({"--"}), (Names{"--help", "--version"}));
  EXPECT_TRUE(Bash({""}).contains("run"));
  EXPECT_FALSE(Bash({""}).contains("--help"));
  EXPECT_EQ(Bash({"run", "--top"}), (Names{"--top-k", "--top-p"}));
  EXPECT_EQ(Bash({"nothing", "--"}), Names());
  EXPECT_EQ(Bash({"run", "--kv", "b"}), Names{"bf16"});
  EXPECT_EQ(Bash({"run", "--kv", "=", "b"}), Names{"bf16"});
  EXPECT_EQ(Bash({"run", "--kv", "="}), (Names{"auto", "f32", "f16", "bf16", "q8_0"}));
  EXPECT_EQ(Bash({"run", "--activations", ""}), (Names{"auto", "f32", "bf16", "int8"}));
  EXPECT_EQ(Bash({"logits", "--impl", ""}), (Names{"auto", "ref", "blas"}));
  EXPECT_EQ(Bash({"count", "--format", ""}), (Names{"table", "md", "latex", "csv", "json"}));
  EXPECT_EQ(Bash({"bench", "--kv", "f16,q"}), Names{"f16,q8_0"});
  EXPECT_EQ(Bash({"quantize", "--type", "q8"}), Names{"Q8_0"});
  EXPECT_EQ(Bash({"completion", ""}), (Names{"bash", "zsh", "fish"}));
  EXPECT_EQ(Bash({"help", "ru"}), Names{"run"});
  EXPECT_EQ(Bash({"man", "ru"}), Names{"run"});
  EXPECT_EQ(Bash({"run", "-f", "n"}), Names{"notes.txt"});
  EXPECT_EQ(Bash({"run", "-p", "n"}), Names()) << "a text";
  EXPECT_EQ(Bash({"run", ""}), (Names{"demo", "small.gguf", "two words.gguf", "checkpoint", "hub", "Qwen/Qwen3-0.6B"}));
  EXPECT_EQ(Bash({"run", "-m", "de"}), Names{"demo"});
  EXPECT_EQ(Bash({"run", "demo", "q"}), Names()) << "one model";
  EXPECT_EQ(Bash({"count", "gpt2", "GPT-OSS"}), (Names{"gpt-oss-120b", "gpt-oss-20b"}));
  EXPECT_EQ(Bash({"count", "conf"}), Names{"config.json"});
  EXPECT_EQ(Bash({"synth", "gpt2-x"}), Names{"gpt2-xl"});
  EXPECT_EQ(Bash({"synth", "gpt2", "no"}), Names{"notes.txt"});
}

TEST_F(Completion, OfFish) {
  if (!IsHere("fish")) GTEST_SKIP() << "fish is not here: its completion is not tried";
  EXPECT_TRUE(Fish("tally ").contains("count"));
  EXPECT_EQ(Fish("tally run --top"), (Names{"--top-k", "--top-p"}));
  EXPECT_EQ(Fish("tally run --kv b"), Names{"bf16"});
  EXPECT_EQ(Fish("tally bench --kv f16,q"), Names{"f16,q8_0"});
  EXPECT_EQ(Fish("tally completion z"), Names{"zsh"});
  EXPECT_EQ(Fish("tally run -f no"), Names{"notes.txt"});
  EXPECT_EQ(Fish("tally run -m Qw"), Names{"Qwen/Qwen3-0.6B"});
  EXPECT_TRUE(Fish("tally count gpt-oss").contains("gpt-oss-20b"));
}

TEST_F(Completion, OfZsh) {
  if (!IsHere("zsh")) GTEST_SKIP() << "zsh is not here: its completion is not tried";
  const std::string script = R"(
    autoload -Uz compinit && compinit -D -u && source <("$1" completion zsh) && print -r -- "$_comps[tally]")";
  EXPECT_EQ(QuietText({}, {.environment = environment_, .wrapper = {"zsh", "-f", "-c", script, "zsh"}}), "_tally\n");
}

}  // namespace
}  // namespace tally
