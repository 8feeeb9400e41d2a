// SPDX-License-Identifier: Apache-2.0
// tally inspect, tokenize and synth; signals; every way of using the commands wrongly.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/sanitizers.h"

namespace tally {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string kModel = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gpt2/gpt2-a-f32-release-names";
const fs::path kShared = fs::path(TALLY_SOURCE_DIR) / ".." / "shared";

std::string ToolsPath(const std::string& name) {
  return (fs::path(testing::TempDir()) / ("cli_tools_" + std::to_string(getpid()) + name)).string();
}

// Exit code 2, nothing on standard output, one line that holds `part`.
void ExpectRefused(const std::vector<std::string>& arguments, const std::string& part, const RunOptions& options = {}) {
  ExpectAdvice(arguments, {part}, options);
}

TEST(CliUsage, Help) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"}, {"run", "--help"}, {"synth", "-h"}}) {
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 0);
    EXPECT_EQ(e.err, "");
    EXPECT_NE(e.out.find("--help"), std::string::npos);
  }
  const std::string help = std::regex_replace(Tally({"run", "--help"}).out, std::regex("\\s+"), " ");  // lines are wrapped
  for (const char* part : {"--repeat-penalty", "--special", "one newline at its end is dropped",
                           "repeat penalty, top-k, temperature, top-p, min-p", "-1 or -2", "-1 draws one"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part;
  }
  EXPECT_NE(Tally({"--version"}).out.find("tally"), std::string::npos);
}

TEST(CliPerplexity, OfATextAndOfTokens) {
  const std::string text = ToolsPath("text"), saved = ToolsPath("saved.npy"), ids = ToolsPath("ids");
  std::ofstream(text) << "There was a king who had a daughter, and she was called the princess.\n";
  std::ofstream(ids) << "1,2,3,4,5";
  const Ended first = Tally({"perplexity", "demo", "-f", text, "--save", saved, "--json"});
  ASSERT_EQ(first.code, 0) << first.err;
  const Json figures = Json::parse(first.out);
  EXPECT_GT(figures.at("perplexity").get<double>(), 1);
  EXPECT_GT(figures.at("bits_per_byte").get<double>(), 0);
  const Ended same = Tally({"perplexity", "demo", "-f", text, "--against", saved, "--threads", "1"});
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_NE(same.out.find("same most likely token 100.000"), std::string::npos) << same.out;
  EXPECT_EQ(Tally({"perplexity", kModel, "--tokens-file", ids}).code, 0);
  ExpectRefused({"perplexity", "demo"}, "-f FILE or --tokens-file");
  ExpectRefused({"perplexity", kModel, "-f", text}, "no tokenizer");
  ExpectRefused({"perplexity", "demo", "-f", text, "--stride", "600"}, "a stride of 600");
  ExpectRefused({"perplexity", "demo", "-f", "/dev/null"}, "at least 2 tokens");
  ExpectRefused({"perplexity", "demo", "-f", text, "--against", text}, "is no .npy file");
  ExpectRefused({"perplexity", "demo", "-f", text, "--save", text}, "was given for something else too");
}

TEST(CliQuantize, WritesAModelThatRuns) {
  const std::string out = ToolsPath("small.gguf"), demo = std::string(TALLY_SOURCE_DIR) + "/models/demo/demo.gguf";
  const Ended e = Tally({"quantize", demo, out, "--type", "Q8_0", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(Json::parse(e.out).at("bytes").get<uint64_t>(), fs::file_size(out));
  EXPECT_EQ(Tally({"run", out, "-p", "Once", "-n", "3", "--temp", "0"}).code, 0);
  ExpectRefused({"quantize", out, ToolsPath("again.gguf"), "--type", "Q4_K_M"}, "--requantize");
  const Ended directory = Tally({"quantize", kModel, out, "--type", "F32", "--force"});
  EXPECT_EQ(directory.code, 0) << directory.err;
  EXPECT_EQ(Tally({"run", out, "--prompt-tokens", "1,2", "-n", "2", "--temp", "0"}).code, 0);
  ExpectRefused({"quantize", std::string(TALLY_SOURCE_DIR) + "/tests/goldens/gptj/gptj-a-f32-rotary4-buffers", out, "--force"},
                "gpt-j");
  ExpectRefused({"quantize", demo, out, "--type", "Q7", "--force"}, "'Q7' is no type");
  ExpectRefused({"quantize", demo}, "OUT");
}

TEST(CliUsage, CommandsAndOptions) {
  ExpectRefused(
      {"fly"},
      "run, chat, batch, serve, count, fit, audit, claims, bench, report, pull, list, rm, inspect, perplexity, quantize, "
      "pack, logits, tokenize");
  ExpectRefused({"--fly", "run"}, "--fly");
  ExpectRefused({"run", kModel, "--fly"}, "--fly");
  ExpectRefused({"run", kModel, "one", "two"}, "one");
  ExpectRefused({"run", kModel}, "prompt");
  ExpectRefused({"run", kModel, "-p", "a", "--prompt-tokens", "1"}, "once");
  ExpectRefused({"run", kModel, "-p"}, "-p");
  ExpectRefused({"logits", kModel}, "--tokens");
  ExpectRefused({"tokenize", kModel}, "TEXT");
}

TEST(CliUsage, BadNumbers) {
  const std::vector<std::string> base = {"run", kModel, "--prompt-tokens", "1,2"};
  auto with = [&](const char* option, const char* value) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {option, value});
    return arguments;
  };
  ExpectRefused(with("--temp", "nan"), "temperature");
  ExpectRefused(with("--temp", "inf"), "temperature");
  ExpectRefused(with("--temp", "-1"), "temperature");
  ExpectRefused(with("--temp", "hot"), "hot");
  ExpectRefused(with("--temp", "+"), "'+'");
  ExpectRefused(with("--temp", "+-1"), "'+-1'");
  ExpectRefused(with("--temp", "1e999"), "--temp");
  ExpectRefused(with("-n", "-5"), "-5");
  ExpectRefused(with("-n", "5x"), "5x");
  ExpectRefused(with("-n", "99999999999999999999"), "--tokens");
  ExpectRefused(with("--top-k", "-2"), "top-k");
  ExpectRefused(with("--top-k", "3000000000"), "--top-k");
  ExpectRefused(with("--top-p", "1.5"), "top-p");
  ExpectRefused(with("--min-p", "nan"), "min-p");
  ExpectRefused(with("--repeat-penalty", "0"), "repeat-penalty");
  ExpectRefused(with("--seed", "-2"), "--seed");
  ExpectRefused(with("--seed", "18446744073709551616"), "--seed");
  ExpectRefused(with("--threads", "-1"), "--threads");
  ExpectRefused(with("--threads", "1025"), "--threads must be 0 (all cores) to 1024, not 1025");
  ExpectRefused(with("--ctx", "-1"), "--ctx");
  ExpectRefused(with("--ctx", "3000000000"), "--ctx must be 0 (the model's) to 2147483647, not 3000000000");
  ExpectRefused(with("--ctx", "65"), "the model has learned 64");
  ExpectRefused(with("--ctx", "1"), "context");
  ExpectRefused(with("--activations", "f8"), "auto, f32, bf16, int8");
  ExpectRefused(with("--kv", "q4"), "auto, f32, f16");
  ExpectRefused(with("--impl", "gpu"), "auto, ref, blas");
  ExpectRefused(with("--stop", "x"), "tokenizer");
}

TEST(CliUsage, BadTokens) {
  ExpectRefused({"run", kModel, "--prompt-tokens", "1,x"}, "'x'");
  ExpectRefused({"run", kModel, "--prompt-tokens", "1,-2"}, "'-2'");
  ExpectRefused({"run", kModel, "--prompt-tokens", ","}, "no token ids");
  ExpectRefused({"run", kModel, "--prompt-tokens", "99999999999"}, "'99999999999'");
  ExpectRefused({"run", kModel, "--prompt-tokens", "1,100000"}, "100000");
  ExpectRefused({"logits", kModel, "--tokens", "100000"}, "100000");
  ExpectRefused({"run", kModel, "-p", "text"}, "no tokenizer");
  ExpectRefused({"logits", kModel, "--tokens-file", "/dev/null"}, "no token ids");
}

TEST(CliUsage, MissingAndWrongFiles) {
  for (const char* command : {"inspect", "tokenize", "run", "logits", "bench"}) {
    std::vector<std::string> arguments = {command, "/nowhere/model.gguf"};
    if (command == std::string("tokenize")) arguments.push_back("text");
    if (command == std::string("run")) arguments.insert(arguments.end(), {"--prompt-tokens", "1"});
    if (command == std::string("logits")) arguments.insert(arguments.end(), {"--tokens", "1"});
    ExpectRefused(arguments, "/nowhere/model.gguf");
  }
  ExpectRefused({"run", kModel, "-f", "/nowhere/prompt.txt"}, "/nowhere/prompt.txt");
  ExpectRefused({"run", kModel, "-f", "/"}, "directory");
  const std::string evil = ToolsPath("evil\nname\x1b[31m");  // stays one line, and drives no terminal
  ExpectRefused({"inspect", evil}, "name\\x1b[31m");
  ExpectRefused({"logits", kModel, "--tokens", "1", "-o", "/nowhere/x.npy"}, "/nowhere/x.npy");
  ExpectRefused({"logits", kModel, "--tokens", "1", "--dump", "/dev/null/x"}, "/dev/null/x");
  ExpectRefused({"synth", "gpt2", "/nowhere/x.gguf"}, "/nowhere");
  ExpectRefused({"synth", "gpt3", ToolsPath("x.gguf")}, "the nearest: gpt2");
  const std::string gguf = kModel + "/model.gguf";  // nothing that is read is written over
  const auto before = fs::last_write_time(gguf);
  ExpectRefused({"synth", "gpt2", gguf, "--vocab-from", gguf, "--force"}, "would be overwritten");
  ExpectRefused({"logits", gguf, "--tokens", "1", "-o", gguf}, "is a file of the model");
  ExpectRefused({"logits", kModel, "--tokens", "1", "-o", kModel + "/model.safetensors"}, "is a file of the model");
  EXPECT_EQ(fs::last_write_time(gguf), before);
  const std::string ids = ToolsPath("ids.txt");
  std::ofstream(ids) << "1,2";
  ExpectRefused({"logits", kModel, "--tokens-file", ids, "-o", ids}, "given for something else too");
  fs::remove(ids);
  ExpectRefused({"logits", kModel, "--tokens", "1", "-o", ""}, "--out: the name of the file to write is empty");
  ExpectRefused({"logits", kModel, "--tokens", "1", "--ledger", ""}, "--ledger: the name of the file to write is empty");
  ExpectRefused({"synth", "gpt2", ToolsPath("x.gguf"), "--type", "Q7"}, "Q8_0");
  ExpectRefused({"synth", "gpt2", ToolsPath("x.gguf"), "--layers", "-1"}, "layers");
}

TEST(CliUsage, OutputThatCannotBeWritten) {
  const std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"inspect", kModel},
      {"inspect", kModel, "--json"},
      {"run", kModel, "--prompt-tokens", "1", "-n", "4", "--json"},
      {"run", kModel, "--prompt-tokens", "1", "-n", "4"},
      {"logits", kModel, "--tokens", "1"},
      {"tokenize", "demo", "text"},
      {"count", kModel + "/model.gguf"},
      {"audit", kModel, "-n", "1"},
      {"synth", kModel + "/config.json", ToolsPath("x.gguf"), "--type", "f32", "--force"},
      {"bench", kModel, "-p", "2", "-n", "1", "--repetitions", "1"}};
  for (const auto& arguments : commands) {
    if (fs::exists("/dev/full"))
      ExpectRefused(arguments, "standard output cannot be written: No space left", {.stdout_file = "/dev/full"});
    if (arguments[0] == "bench") continue;  // it takes seconds
    ExpectRefused(arguments, "standard output cannot be written", {.stdout_file = "-"});
    // A reader that has left, as of `| head`, needs no line: the code is that of a program that SIGPIPE ended.
    const Ended left = Tally(arguments, {.no_reader = true});
    EXPECT_EQ(left.code, 141) << arguments[0];
    EXPECT_EQ(left.err, "") << arguments[0];
  }
  fs::remove(ToolsPath("x.gguf"));
  if (!fs::exists("/dev/full")) return;
  ExpectRefused({"logits", kModel, "--tokens", "1", "-o", "/dev/full"}, "/dev/full");
  EXPECT_EQ(fs::status("/dev/full").type(), fs::file_type::character);
  EXPECT_EQ(Tally({"logits", kModel, "--tokens", "1", "-o", "/dev/null"}).code, 0);
  EXPECT_EQ(fs::status("/dev/null").type(), fs::file_type::character);
}

// What standard error did not take was not said: no success, though there is nowhere left to say so.
TEST(CliUsage, BooksThatCannotBeWritten) {
  std::vector<std::string> redirections = {"2>&-"};
  if (fs::exists("/dev/full")) redirections.push_back("2>/dev/full");
  for (const std::string& to : redirections) {
    SCOPED_TRACE(to);
    const RunOptions lost{.wrapper = {"bash", "-c", "exec \"$@\" " + to, "bash"}};
    const Ended e = Tally({"run", "demo", "-n", "1"}, lost);
    EXPECT_EQ(e.code, 2);
    EXPECT_FALSE(e.out.empty());
    EXPECT_EQ(Tally({"run", "demo", "-n", "1", "--json"}, lost).code, 0);  // they are on standard output
  }
}

// A shell's `<&-`: no text is not an empty text.
TEST(CliUsage, StandardInputThatIsClosed) {
  const RunOptions closed{.wrapper = {"bash", "-c", "exec \"$@\" <&-", "bash"}};
  const std::string line = "standard input: cannot be read: Bad file descriptor";
  ExpectRefused({"tokenize", "demo", "-f", "-", "--ids"}, line, closed);
  ExpectRefused({"tokenize", "demo", "--tokens-file", "-"}, line, closed);
  ExpectRefused({"run", "demo", "-f", "-", "-n", "1"}, line, closed);
  ExpectRefused({"logits", kModel, "--tokens-file", "-"}, line, closed);
  EXPECT_EQ(Tally({"tokenize", "demo", "-f", "-", "--ids"}).code, 0);  // /dev/null is one
  EXPECT_EQ(Tally({"logits", kModel, "--tokens", "1"}, closed).code, 0);
}

// Before anything is loaded, with the numbers, and what would fit.
TEST(CliUsage, MoreMemoryThanThereIs) {
  const std::string model = std::string(TALLY_SOURCE_DIR) + "/tests/goldens/llama/llama-a-f32-gqa-untied";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", model, "--prompt-tokens", "1"}, {"logits", model, "--tokens", "1"}, {"bench", model}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--ctx", "2147483647", "--kv", "f32"});
    ExpectRefused(arguments, "not enough memory");
    ExpectRefused(arguments, "would fit");
  }
}

TEST(CliInspect, TextAndJson) {
  const Ended text = Tally({"inspect", kModel});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("gpt2"), std::string::npos);
  EXPECT_NE(text.out.find("Hugging Face"), std::string::npos);
  const Ended e = Tally({"inspect", kModel + "/model.gguf", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  EXPECT_EQ(j.at("format"), "gguf");
  EXPECT_EQ(j.at("family"), "gpt2");
  EXPECT_EQ(j.at("metadata").at("general.architecture"), "gpt2");
  uint64_t elements = 0, bytes = 0;
  for (const Json& t : j.at("tensors")) {
    uint64_t n = 1;
    for (const auto d : t.at("shape").get<std::vector<uint64_t>>()) n *= d;
    EXPECT_EQ(t.at("elements"), n);
    elements += n;
    bytes += t.at("bytes").get<uint64_t>();
  }
  EXPECT_EQ(j.at("totals").at("elements"), elements);
  EXPECT_EQ(j.at("totals").at("bytes"), bytes);
}

// Of some ops there is nothing to show, and of those no file.
TEST(CliLogits, DumpsNoEmptyArrays) {
  for (const std::string& model : {kModel, std::string("demo")}) {
    SCOPED_TRACE(model);
    const std::string folder = ToolsPath("dump");
    const Ended e = Tally({"logits", model, "--tokens", "1,2,3", "--dump", folder, "--json"});
    ASSERT_EQ(e.code, 0) << e.err;
    size_t files = 0;
    for (const auto& entry : fs::directory_iterator(folder)) {
      ++files;
      EXPECT_EQ(entry.path().extension(), ".npy");
      EXPECT_GT(entry.file_size(), 128u) << entry.path();  // the header's
    }
    EXPECT_GT(files, 10u);
    EXPECT_EQ(Json::parse(e.out).at("dump").at("files"), files);
    fs::remove_all(folder);
  }
}

TEST(CliTokenize, ThereAndBack) {
  const fs::path vocab = kShared / "tokenizers/llama.cpp-vocabs/ggml-vocab-gpt-2.gguf";
  if (!fs::exists(vocab)) GTEST_SKIP() << vocab << " is not here";
  const std::string text = "Hello, w\xc3\xb6rld!";
  const Ended e = Tally({"tokenize", vocab.string(), text, "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const auto ids = Json::parse(e.out).at("tokens").get<std::vector<int32_t>>();
  const Ended line = Tally({"tokenize", vocab.string(), text, "--ids"});
  std::string joined;
  for (const int32_t id : ids) joined += (joined.empty() ? "" : ",") + std::to_string(id);
  EXPECT_EQ(line.out, joined + "\n");
  EXPECT_EQ(Tally({"tokenize", vocab.string(), "--decode", joined}).out, text + "\n");
  EXPECT_EQ(Tally({"tokenize", vocab.string(), "[a,b]", "--ids"}).code, 0);
  EXPECT_EQ(Tally({"tokenize", vocab.string(), "<|endoftext|>", "--special", "--ids"}).out, "50256\n");
  ExpectRefused({"tokenize", vocab.string(), "--decode", "50257"}, "50257");
}

TEST(CliSynth, WritesAModelThatRuns) {
  const std::string path = ToolsPath("synth.gguf");
  Ended e = Tally({"synth", "gpt2", path, "--layers", "1", "--type", "q4_0", "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  const Json j = Json::parse(e.out);
  EXPECT_EQ(j.at("bytes"), fs::file_size(path));
  EXPECT_EQ(Json::parse(Tally({"inspect", path, "--json"}).out).at("totals").at("elements"), j.at("parameters"));
  e = Tally({"run", path, "--prompt-tokens", "1,2,3", "-n", "4", "--json"});
  EXPECT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(Json::parse(e.out).at("parameters").at("total"), j.at("parameters"));
  // All its matrices take int8 activations, which OpenBLAS does not multiply.
  const std::string note = "note: --impl blas was asked for and OpenBLAS never ran";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"run", path, "--prompt-tokens", "1", "-n", "1", "--json"},
        {"logits", path, "--tokens", "1", "--json"},
        {"bench", path, "-p", "4", "-n", "1", "--repetitions", "1", "--json"}}) {
    std::vector<std::string> blas = command;
    blas.insert(blas.end(), {"--impl", "blas"});
    e = Tally(blas);
    EXPECT_EQ(e.code, 0);
    EXPECT_TRUE(e.err.starts_with(note)) << e.err;
    EXPECT_TRUE(e.err.ends_with("(--activations f32)\n")) << e.err;
    if (command[0] == "bench") continue;  // it takes a second
    blas.insert(blas.end(), {"--activations", "f32"});
    e = Tally(blas);
    EXPECT_EQ(e.code, 0);
    EXPECT_EQ(e.err, "");
    EXPECT_EQ(Tally(command).err, "");
  }
  fs::remove(path);
}

class CliSignals : public testing::Test {
 protected:
  // Large enough to generate for longer than a signal needs.
  static void SetUpTestSuite() {
    path_ = new std::string(ToolsPath("signals.gguf"));
    ASSERT_EQ(Tally({"synth", "gpt2", *path_, "--layers", "4", "--type", "q8_0"}).code, 0);
  }
  static void TearDownTestSuite() {
    fs::remove(*path_);
    delete path_;
  }
  static std::string* path_;
};
std::string* CliSignals::path_ = nullptr;

TEST_F(CliSignals, EndCleanlyWithTheBooks) {
  for (const int signal : {SIGINT, SIGTERM}) {
    RunOptions options;
    options.on_first_output = [&](pid_t pid) { kill(pid, signal); };
    const Ended e = Tally({"run", *path_, "--prompt-tokens", "1,2,3", "-n", "1000", "--ignore-eos"}, options);
    EXPECT_FALSE(e.by_signal);
    EXPECT_EQ(e.code, 128 + signal);
    EXPECT_NE(e.err.find("ended: interrupted"), std::string::npos) << e.err;
    EXPECT_NE(e.err.find("active(all)"), std::string::npos);
    EXPECT_TRUE(e.out.ends_with("\n"));
  }
}

// A command that is sent SIGTERM so many milliseconds after it began to handle it ends by itself, with the code that belongs to the
// signal. What it says is one line, or the books of what it did.
void ExpectTerminated(const std::vector<std::string>& arguments, int milliseconds) {
  SCOPED_TRACE(arguments[0] + ", " + std::to_string(milliseconds) + " ms");
  RunOptions options;
  bool handled = false;
  options.on_start = [&](pid_t pid) {
    handled = WaitUntilHandled(pid, SIGTERM);
    usleep(static_cast<useconds_t>(milliseconds) * 1000);
    kill(pid, SIGTERM);
  };
  const Ended e = Tally(arguments, options);
  EXPECT_TRUE(handled);
  EXPECT_FALSE(e.by_signal);
  EXPECT_EQ(e.code, 143);
  EXPECT_TRUE(e.err.empty() || e.err.find("tally: ") == e.err.npos || IsOneLine(e.err)) << e.err;
}

#define TALLY_SKIP_WITHOUT_SIGCGT() \
  if (!HandledSignals("self")) GTEST_SKIP() << "the kernel does not say which signals a process handles"

// Loading included.
TEST_F(CliSignals, AtAnyMoment) {
  TALLY_SKIP_WITHOUT_SIGCGT();
  for (const int milliseconds : {0, 1, 5, 15, 40, 100}) {
    ExpectTerminated({"run", *path_, "--prompt-tokens", "1,2,3", "-n", "1000", "--ignore-eos", "--json"}, milliseconds);
  }
}

TEST_F(CliSignals, InEveryCommandThatRunsAModel) {
  TALLY_SKIP_WITHOUT_SIGCGT();
  const std::string fifo = ToolsPath("nobody-reads");
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  ExpectTerminated({"audit", *path_, "-n", "1000"}, 400);
  ExpectTerminated({"bench", *path_, "-p", "500", "-n", "500", "--repetitions", "1000"}, 400);
  ExpectTerminated({"logits", *path_, "--tokens", "1,2,3", "--ledger", fifo}, 400);
  fs::remove(fifo);
}

// Loaded where it is asked for, and then it must be what its name says.
TEST(CliUsage, OpenBlasThatIsNone) {
  const std::string folder = ToolsPath("no-openblas");
  fs::create_directory(folder);
  const RunOptions hidden{.wrapper = {"env", OtherLibraryAs("libopenblas.so.0", folder)}};
  const std::vector<std::string> run = {"run", kModel, "--prompt-tokens", "1", "-n", "1", "--json", "--activations", "f32"};
  EXPECT_EQ(Tally(run, hidden).code, 0);
  std::vector<std::string> blas = run;
  blas.insert(blas.end(), {"--impl", "blas"});
  ExpectRefused(blas, "OpenBLAS cannot be used: libopenblas.so.0 lacks cblas_sgemm", hidden);
  EXPECT_TRUE(Json::parse(Tally(blas).out).at("used_blas"));
  fs::remove_all(folder);
}

// Whatever address space is left, something is said, and the process ends (where it did not, ctest's limit speaks). OpenBLAS,
// once it is loaded, tries for its buffers for as long as it likes.
TEST(CliUsage, LittleAddressSpace) {
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory does not fit";
#endif
  int done = 0, refused = 0;
  for (const int mib : {16, 20, 22, 24, 26, 28, 32, 40, 48, 64, 128, 1024}) {
    for (const char* impl : {"auto", "blas"}) {
      if (std::string(impl) == "blas" && mib > 32 && mib < 1024) continue;
      SCOPED_TRACE(std::string(impl) + ", MiB: " + std::to_string(mib));
      const Ended e = Tally({"run", "demo", "-p", "ROMEO:", "-n", "2", "--activations", "f32", "--threads", "1", "--impl", impl},
                            {.wrapper = {"bash", "-c", "ulimit -v " + std::to_string(mib * 1024) + "; exec \"$@\"", "bash"}});
      // Constructors of libraries, GnuTLS's and Highway's, before which nothing of ours can be called; they abort.
      if (e.err.starts_with("Error in GnuTLS initialization")) continue;
      if (mib <= 22 && e.err.starts_with("terminate called without an active exception")) continue;
      EXPECT_FALSE(e.by_signal);
      done += e.code == 0 ? 1 : 0;
      if (e.code == 0 || e.code == 127) continue;  // 127: not even the libraries found room
      ++refused;
      EXPECT_EQ(e.code, 2);
      EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    }
  }
  EXPECT_GE(done, 2);
  EXPECT_GE(refused, 2);
}

// 200 stacks of 8 MiB in 390 MiB, where two of them find room.
TEST(CliUsage, ThreadsThatTheSystemRefuses) {
#if !defined(__GLIBC__)
  GTEST_SKIP() << "threads take so much address space with glibc only";
#endif
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory does not fit";
#endif
  const RunOptions little{.wrapper = {"bash", "-c", "ulimit -s 8192; ulimit -v 400000; exec \"$@\"", "bash"}};
  for (const std::vector<std::string>& command : {std::vector<std::string>{"run", "demo", "-p", "ROMEO:", "-n", "2"},
                                                  {"logits", "demo", "--tokens", "1,2"},
                                                  {"bench", "demo", "-p", "2", "-n", "1", "--repetitions", "1"},
                                                  {"audit", "demo", "-n", "1"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--threads", "200"});
    ExpectRefused(arguments, "the system refuses to start 200 threads", little);
  }
  const Ended e = Tally({"run", "demo", "-p", "ROMEO:", "-n", "2", "--threads", "2"}, little);
  EXPECT_EQ(e.code, 0) << e.err;
  // Wherever the limit lies, the run is done or refused.
  for (int kib = 160000; kib < 460000; kib += 5000) {
    const std::string limit = "ulimit -s 8192; ulimit -v " + std::to_string(kib) + "; exec \"$@\"";
    const Ended near =
        Tally({"run", "demo", "-p", "ROMEO:", "-n", "1", "--threads", "24"}, {.wrapper = {"bash", "-c", limit, "bash"}});
    EXPECT_TRUE(near.code == 0 || near.code == 2) << kib << ": " << near.code << " " << near.err;
  }
}

// A file as large as the process may write: one line, and nothing is left.
TEST(CliUsage, OutputBeyondTheLimitOfTheProcess) {
  const std::string folder = ToolsPath("limited");
  fs::create_directory(folder);
  const Ended e = Tally({"logits", kModel, "--tokens", "1,2,3,4,5,6,7,8,9,10,11,12", "-o", folder + "/x.npy"},
                        {.wrapper = {"bash", "-c", "ulimit -f 1; exec \"$@\"", "bash"}});
  EXPECT_EQ(e.code, 2) << e.err;
  EXPECT_TRUE(IsOneLine(e.err)) << e.err;
  EXPECT_NE(e.err.find("File too large"), std::string::npos) << e.err;
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace tally
