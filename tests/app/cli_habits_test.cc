// SPDX-License-Identifier: Apache-2.0
// What a user of other programs types here: it works, or one line says what to write.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

using Json = nlohmann::json;

const std::string kNoTokenizer = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gpt2/gpt2-a-f32-release-names";

TEST(CliHabits, StandardInputIsThePrompt) {
  const TempFolder dir;
  const std::string file = dir.Write("prompt", "ROMEO:\n");
  const RunOptions piped{.stdin_file = file};
  const std::vector<std::string> tail = {"-n", "6", "--temp", "0"};
  const auto run = [&](std::vector<std::string> options, const RunOptions& how) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), tail.begin(), tail.end());
    return Text(options, how);
  };
  const std::string expected = run({"-p", "ROMEO:"}, {}), nothing = run({}, {});
  EXPECT_NE(expected, nothing);
  EXPECT_EQ(run({}, piped), expected);
  EXPECT_EQ(run({"-p", "-"}, piped), expected);
  EXPECT_EQ(run({"-f", "-"}, piped), expected);
  EXPECT_EQ(run({}, {.wrapper = {"bash", "-c", "printf 'ROMEO:\\n' | \"$@\"", "bash"}}), expected);
  EXPECT_EQ(run({}, {.wrapper = {"bash", "-c", "exec \"$@\" <&-", "bash"}}), nothing) << "a closed one is none";
  // An option is given: it is not read. The rest of it is there for the next command.
  EXPECT_EQ(run({"-p", "ROMEO:"}, {.stdin_file = dir.Write("other", "JULIET:")}), expected);
  const RunOptions next{.stdin_file = file, .wrapper = {"bash", "-c", "\"$@\" >/dev/null 2>&1; cat", "bash"}};
  EXPECT_EQ(Text({"run", "-p", "A", "-n", "1"}, next), "ROMEO:\n");
  EXPECT_EQ(Text({"run", "--prompt-tokens", "1", "-n", "1"}, next), "ROMEO:\n");
  EXPECT_EQ(Text({"run", "-f", file, "-n", "1"}, next), "ROMEO:\n");
  EXPECT_EQ(Text({"count"}, next), "ROMEO:\n");

  EXPECT_EQ(Text({"tokenize", "--ids"}, piped), Text({"tokenize", "demo", "ROMEO:", "--ids"}));
  EXPECT_EQ(Text({"logits"}, piped), Text({"logits", "-p", "ROMEO:"}));
  EXPECT_EQ(Text({"logits", "-p", "-"}, piped), Text({"logits", "-p", "ROMEO:"}));
  EXPECT_EQ(Text({"perplexity", "--json"}, piped), Text({"perplexity", "-f", file, "--json"}));
  const auto compared = [](const std::string& json) { return Json::parse(json).at("compared"); };
  EXPECT_EQ(compared(Text({"audit", "-p", "-", "-n", "1", "--json"}, piped)),
            compared(Text({"audit", "-p", "ROMEO:", "-n", "1", "--json"})));
}

// Nothing comes for a second: whoever sits at the terminal is told what is waited for.
TEST(CliHabits, WaitingForStandardInputIsSaid) {
  const Ended e = Tally({"run", "-n", "1"}, {.terminal = true, .wrapper = {"bash", "-c", "(sleep 4; echo A) | \"$@\"", "bash"}});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_TRUE(e.err.starts_with("reading standard input")) << e.err;
}

TEST(CliHabits, OptionsOfOtherPrograms) {
  const std::string expected =
      Text({"run", "demo", "-p", "KING:", "-n", "6", "--threads", "1", "--ctx", "64", "--seed", "7", "--temp", "0.9"});
  EXPECT_EQ(Text({"run", "-m", "demo", "-p", "KING:", "-n", "6", "-t", "1", "-c", "64", "-s", "7", "--temperature", "0.9"}),
            expected);
  EXPECT_EQ(Text({"run", "--model", "demo", "-p", "KING:", "-n", "6", "-t", "1", "--ctx-size", "64", "-s", "7", "--temp", "0.9"}),
            expected);
  for (const char* command : {"logits", "inspect", "audit", "count"}) {
    const std::vector<std::string> more =
        std::string(command) == "logits" ? std::vector<std::string>{"--tokens", "1"} : std::vector<std::string>{};
    std::vector<std::string> named = {command, "-m", kNoTokenizer}, placed = {command, kNoTokenizer};
    named.insert(named.end(), more.begin(), more.end());
    placed.insert(placed.end(), more.begin(), more.end());
    if (std::string(command) == "audit") {
      EXPECT_EQ(Tally(named).code, 0);
      continue;
    }
    EXPECT_EQ(Text(named), Text(placed)) << command;
  }
  const Ended taken =
      Tally({"run", "demo",   "-p", "KING:",  "--n_predict=6", "-ngl",   "99",  "--threads", "1", "--max-model-len", "64", "-fa",
             "on",  "--seed", "7",  "--numa", "distribute",    "--temp", "0.9", "--mlock"});
  EXPECT_EQ(taken.out, expected) << taken.err;
  EXPECT_TRUE(taken.err.starts_with("note: -ngl is ignored: models run on the CPU\nnote: -fa is ignored: ")) << taken.err;
  ExpectAdvice({"run", "-hf", "ggml-org/gpt-oss-20b-GGUF", "-p", "hi"}, {"tally pull ggml-org/gpt-oss-20b-GGUF"});
  ExpectAdvice({"run", "demo", "--cache-type-k=q8_0"}, {"--kv TYPE"});
  ExpectAdvice({"serve", "demo", "--api-key", "x"}, {"--api-key-file FILE"});
  ExpectAdvice({"quantize", "demo", "/tmp/none.gguf", "Q4_K_M"}, {"'Q4_K_M'", "--type Q4_K_M"});
  ExpectAdvice({"quantize", "demo", "Q4_K_M"}, {"OUT", "--type Q4_K_M"});
  ExpectAdvice({"quantize", "demo", "-o", "/tmp/none.gguf"}, {"'-o'", "it is the argument OUT"});
  EXPECT_EQ(Text({"run", "-p", "-hf", "-n", "1", "--temp", "0"}), Text({"run", "-p-hf", "-n", "1", "--temp", "0"})) << "a value";
}

TEST(CliHabits, SlipsAreGuessed) {
  ExpectAdvice({"rnu", "demo"}, {"'rnu'", "did you mean run?"});
  ExpectAdvice({"tokenise", "hi"}, {"did you mean tokenize?"});
  ExpectAdvice({"benchmark"}, {"did you mean bench?"});
  ExpectAdvice({"fly"}, {"'fly'", "run, chat, batch, serve, count, fit"});
  ExpectAdvice({"download", "x"}, {"it is tally pull here"});
  ExpectAdvice({"generate"}, {"tally run"});
  ExpectAdvice({"demo"}, {"tally run demo"});
  ExpectAdvice({"GPT2"}, {"tally count GPT2"});
  ExpectAdvice({"-m", "demo", "-p", "hi"}, {"a command comes first", "tally run -m"});
  ExpectAdvice({"run", "--tempo", "0.5"}, {"'--tempo'", "did you mean --temp?", "tally run --help"});
  ExpectAdvice({"run", "--plot"}, {"it is one of tally count"});
  ExpectAdvice({"run", "--fly"}, {"there is no option '--fly'"});
  ExpectAdvice({"run", "--svg", "x"}, {"it is one of tally count, report ("});
  ExpectAdvice({"run", "demo", "Once upon a time"}, {"'Once upon a time'", "a prompt is -p TEXT"});
  ExpectAdvice({"run", "Once upon a time"}, {"'Once upon a time'", "a prompt is -p TEXT"});
  ExpectAdvice({"run", "llama3"}, {"llama3: there is no such file or directory", "ORG/NAME"});
  ExpectAdvice({"run", "-n"}, {"--tokens takes a value"});
  ExpectAdvice({"run", "-n", "many"}, {"'many' is not a whole number (see"});
  ExpectAdvice({"count", "llama3.1:8b"}, {"'llama3.1:8b'", "the nearest: Llama-3.1-8B"});
  ExpectAdvice({"count", "gpt2", "--type", "Q4_M"}, {"Q4_K_M"});
}

TEST(CliHabits, HelpAndVersion) {
  EXPECT_EQ(Text({"help"}), Text({"--help"}));
  const Ended bare = Tally({});
  EXPECT_EQ(bare.code, 2);
  EXPECT_EQ(bare.out, Text({"--help"}));
  EXPECT_EQ(bare.err, "");
  EXPECT_EQ(Text({"help", "run"}), Text({"run", "--help"}));
  EXPECT_NE(Text({"help", "run"}).find("  --draft TEXT "), std::string::npos) << "CLI11 ends the name of a type at a colon";
  EXPECT_EQ(Text({"version"}), Text({"--version"}));
  ExpectAdvice({"help", "rnu"}, {"did you mean run?"});
}

// What made a document stands in it.
TEST(CliHabits, DocumentsSayWhatMadeThem) {
  const std::string version = Text({"--version"});
  const RunOptions day{.environment = {"SOURCE_DATE_EPOCH=86400"}};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"count", "gpt2", "--json"}, {"run", "-p", "A", "-n", "1", "--json"}, {"inspect", "--json"}}) {
    const Json maker = Json::parse(Text(arguments, day)).at("tally");
    EXPECT_EQ(version.find("tally " + maker.at("version").get<std::string>() + "\n"), 0u) << maker;
    EXPECT_NE(version.find("commit    " + maker.at("commit").get<std::string>() + "\n"), std::string::npos) << maker;
    EXPECT_EQ(maker.at("date"), "1970-01-02");
  }
  EXPECT_NE(Text({"count", "gpt2", "--format", "csv"}, day).find(",1970-01-02\n"), std::string::npos);
}

TEST(CliHabits, ThreadsGetAWord) {
  const auto err = [](const char* threads) { return Tally({"run", "-p", "A", "-n", "1", "-q", "-t", threads}).err; };
  EXPECT_NE(err("1000").find("note: 1,000 threads on "), std::string::npos);
  EXPECT_NE(err("0").find("note: -t 0 takes "), std::string::npos);
  EXPECT_EQ(err("1"), "");
}

// The name of a model that is known by its configuration, where weights are needed.
TEST(CliHabits, NamesWithoutWeights) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"run", "gpt-oss-20b", "-p", "hi"},
                                                    {"run", "-m", "GPT-OSS-20B"},
                                                    {"bench", "gpt2"},
                                                    {"audit", "gpt2"},
                                                    {"logits", "gpt2", "--tokens", "1"},
                                                    {"tokenize", "gpt2", "hi"},
                                                    {"perplexity", "gpt2", "-f", "/dev/null"},
                                                    {"inspect", "gpt2"}}) {
    ExpectAdvice(arguments, {"tally synth", "tally pull ORG/NAME", "tally count"});
  }
}

TEST(CliHabits, AReaderThatLeavesEndsUsQuietly) {
  const auto piped = [](const std::string& command) {
    return Tally({}, {.wrapper = {"bash", "-c", command + "; exit ${PIPESTATUS[0]}", "bash"}});
  };
  // The reader has left before anything is written. Nothing is said.
  for (const char* command : {"count gpt2 --layers", "count gpt2 --json", "inspect demo --full"}) {
    const Ended e = piped("{ sleep 0.2; \"$@\" " + std::string(command) + "; } | true");
    EXPECT_EQ(e.code, 141) << command;
    EXPECT_EQ(e.err, "") << command;
  }
  // Whatever head reads, the rest is not waited for.
  const Ended e = piped("\"$@\" run -n 900 --temp 0 --ctx 1000 </dev/null | head -n 1");
  EXPECT_EQ(e.code, 141);
  EXPECT_EQ(e.err, "");
  EXPECT_FALSE(e.out.empty());
}

TEST(CliHabits, TokenizeTakesTheBundledModel) {
  const std::string expected = Text({"tokenize", "demo", "O Romeo", "--ids"});
  EXPECT_EQ(Text({"tokenize", "O Romeo", "--ids"}), expected);
  EXPECT_EQ(Text({"tokenize", "-m", "demo", "O Romeo", "--ids"}), expected);
  std::string ids = expected;
  ids.pop_back();
  EXPECT_EQ(Text({"tokenize", "--decode", ids}), "O Romeo\n");
  EXPECT_EQ(Text({"tokenize", "demo", "--decode", ids}), "O Romeo\n");
  ExpectAdvice({"tokenize", "demo"}, {"give one of TEXT"});
  ExpectAdvice({"tokenize", "nowhere/model.gguf"}, {"give one of TEXT"});
  ExpectAdvice({"tokenize", "nowhere/model.gguf", "hi"}, {"nowhere/model.gguf"});
}

TEST(CliHabits, LogitsOfAText) {
  std::string ids = Text({"tokenize", "ROMEO:", "--ids"});
  ids.pop_back();
  EXPECT_EQ(Text({"logits", "-p", "ROMEO:"}), Text({"logits", "--tokens", ids}));
  ExpectAdvice({"logits", "-p", "hi", "--tokens", "1"}, {"once", "-p TEXT"});
  ExpectAdvice({"logits"}, {"-p TEXT, --prompt-tokens 1,2,3 or --tokens-file FILE"});
  ExpectAdvice({"logits", kNoTokenizer, "-p", "hi"}, {kNoTokenizer, "tokenizer"});
}

TEST(CliHabits, PlainText) {
  const auto coloured = [](std::vector<std::string> environment) {
    const Ended e = Tally({"count", "gpt2", "--plot"}, {.output_terminal = true, .environment = std::move(environment)});
    EXPECT_EQ(e.code, 0) << e.err;
    EXPECT_NE(e.out.find("active(all)"), std::string::npos) << e.out;
    return e.out.find('\x1b') != std::string::npos;
  };
  EXPECT_TRUE(coloured({"NO_COLOR="}));  // empty is unset
  EXPECT_FALSE(coloured({"NO_COLOR=1"}));
  EXPECT_FALSE(coloured({"NO_COLOR=", "TERM=dumb"}));
  EXPECT_FALSE(coloured({"NO_COLOR=", "TERM="}));
  const Ended dumb = Tally({"run", "-p", "A", "-n", "2"}, {.terminal = true, .environment = {"TERM=dumb"}});
  EXPECT_EQ(dumb.err.find('\x1b'), std::string::npos) << dumb.err;
  EXPECT_EQ(dumb.err.find("loading"), std::string::npos) << dumb.err;
}

// The prompt is read in pieces: each moves the bar, with an estimate once there is something to go by. Only at a terminal.
TEST(CliHabits, ALongPromptShowsItsProgress) {
  const TempFolder dir;
  std::string tokens = "1";
  for (int i = 2; i < 600; ++i) tokens += "," + std::to_string(i % 1000);
  const std::vector<std::string> run = {"run", "--prompt-tokens", tokens, "-n", "1"};
  std::vector<std::string> slow = run;
  slow.insert(slow.end(), {"--impl", "ref", "-t", "1"});
  const Ended seen = Tally(slow, {.terminal = true});
  EXPECT_EQ(seen.code, 0) << seen.err;
  const size_t begin = seen.err.find("prompt ["), later = seen.err.rfind("prompt [");
  EXPECT_NE(begin, std::string::npos) << seen.err;
  EXPECT_LT(begin, later) << seen.err;
  EXPECT_NE(seen.err.find(" of 599 tokens"), std::string::npos) << seen.err;
  EXPECT_NE(seen.err.find(" s left"), std::string::npos) << seen.err;
  EXPECT_GT(seen.err.find("active(all)"), seen.err.rfind("\r\x1b[K")) << "wiped before the books";
  // The bar moves while a piece is run, too.
  const Ended one =
      Tally({"run", "--prompt-tokens", tokens.substr(0, tokens.find(",200")), "-n", "1", "--impl", "ref", "-t", "1"},
            {.terminal = true});
  std::set<std::string> shown;
  for (size_t at = 0; (at = one.err.find("%", at)) != one.err.npos; ++at) shown.insert(one.err.substr(at - 3, 3));
  EXPECT_NE(one.err.find(" of 199 tokens"), std::string::npos) << one.err;
  EXPECT_GT(shown.size(), 3u) << one.err;
  const Ended piped = Tally(run);
  EXPECT_EQ(piped.err.find("prompt ["), std::string::npos) << piped.err;
  EXPECT_EQ(piped.err.find('\r'), std::string::npos);
  EXPECT_EQ(Tally({"run", "-p", "A", "-n", "1"}, {.terminal = true}).err.find("prompt ["), std::string::npos)
      << "a short one does not";
}

}  // namespace
}  // namespace tally
