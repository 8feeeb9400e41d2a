// SPDX-License-Identifier: Apache-2.0
// What is no fault of the bytes: pipes, directories, empty and unreadable files, files cut under the reader, full disks, outputs
// that cannot be written, a signal in mid-load. Each is one line, or a clean end; see also tests/app/cli_tools_test.cc for every
// command whose standard output is /dev/full, closed or without a reader.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "engine/api/tally.h"
#include "tests/app/runner.h"
#include "tests/loaders/raw_files.h"
#include "tests/models/spec_tools.h"
#include "tests/models/synthetic_files.h"
#include "tests/siege/siege.h"
#include "tests/support/sanitizers.h"

namespace tally::siege {
namespace {

namespace fs = std::filesystem;
using namespace synthetic;

// Without the divisors of the rope frequencies: tensors are zero here, and those may not be.
Inventory SoundLlama() { return WithoutTensors(GgufLlama(), "rope_freqs.weight"); }

// A name in the folder that is given as the model, and the line that it gives.
void ExpectLine(const TempFolder& folder, const std::string& name, const std::string& line) {
  for (const char* command : {"inspect", "logits", "run", "bench", "tokenize"}) {
    SCOPED_TRACE(command);
    std::vector<std::string> arguments = {command, folder / name};
    if (command == std::string("logits")) arguments.insert(arguments.end(), {"--tokens", "0"});
    if (command == std::string("run")) arguments.insert(arguments.end(), {"--prompt-tokens", "0"});
    if (command == std::string("tokenize")) arguments.push_back("text");
    const Ended e = Tally(arguments);
    EXPECT_EQ(e.code, 2);
    EXPECT_EQ(e.out, "");
    EXPECT_EQ(e.err, "tally: " + In(folder, line) + "\n");
  }
}

TEST(SiegeFiles, Pipe) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "m.gguf").c_str(), 0600), 0);
  ExpectLine(folder, "m.gguf", "DIR/m.gguf: expected a regular file, found a pipe");
}

TEST(SiegeFiles, Directory) {
  const TempFolder folder;
  fs::create_directory(folder / "m.gguf");
  ExpectLine(folder, "m.gguf", "DIR/m.gguf: expected a Hugging Face directory, but it has no config.json");
}

TEST(SiegeFiles, Empty) {
  const TempFolder folder;
  folder.Write("m.gguf", "");
  ExpectLine(folder, "m.gguf", "DIR/m.gguf: the file is empty");
}

TEST(SiegeFiles, LinkToItself) {
  const TempFolder folder;
  fs::create_symlink("m.gguf", folder / "m.gguf");
  ExpectLine(folder, "m.gguf", "DIR/m.gguf: cannot be opened: Too many levels of symbolic links");
}

// root reads everything, so the test becomes another user for a moment.
TEST(SiegeFiles, Unreadable) {
  const TempFolder folder;
  const std::string path = folder.Write("m.gguf", GgufOf(SoundLlama()).Make());
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  const bool root = geteuid() == 0;
  ASSERT_TRUE(!root || seteuid(65534) == 0);
  const Status file = LoadModel(path, {}).status();
  const Status inside = LoadModel(path + "/m.gguf", {}).status();
  ASSERT_TRUE(!root || seteuid(0) == 0);
  EXPECT_EQ(file.message(), path + ": cannot be opened: Permission denied");
  EXPECT_EQ(inside.message(), path + "/m.gguf: cannot be opened: Not a directory");
  EXPECT_EQ(file.code(), StatusCode::kBadInput);
}

// Each file of a directory, by the command.
TEST(SiegeFiles, UnreadableInADirectory) {
  RunOptions nobody;
  if (geteuid() == 0) nobody.wrapper = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
  if (Tally({"--version"}, nobody).code != 0) GTEST_SKIP() << "no other user may run " << TALLY_BINARY;
  const TempFolder folder;
  const Inventory model = HfLlama();
  folder.Write("config.json", ConfigOf(model));
  folder.Write("generation_config.json", "{}");
  folder.Write("model.safetensors", SafetensorsOf(HeaderOf(model, 0, model.tensors.size())));
  folder.Write("tokenizer.json", R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"decoder":{"type":"Fuse"}})");
  folder.Write("tokenizer_config.json", "{}");
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const auto names = {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"};
  for (const char* name : names) ASSERT_EQ(chmod((folder / name).c_str(), 0644), 0);
  const std::string as_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups test -r '" + folder.path() + "/config.json'";
  if (geteuid() == 0 && std::system(as_nobody.c_str()) != 0) GTEST_SKIP() << "no other user may enter " << folder.path();
  const std::vector<std::string> logits = {"logits", folder.path(), "--tokens", "0"}, text = {"tokenize", folder.path(), "a"};
  EXPECT_EQ(Tally(logits, nobody).err, "");
  for (const char* name : names) {
    ASSERT_EQ(chmod((folder / name).c_str(), 0), 0);
    const Ended e = Tally(std::string_view(name).starts_with("tokenizer") ? text : logits, nobody);
    EXPECT_EQ(e.code, 2);
    EXPECT_EQ(e.out, "");
    EXPECT_EQ(e.err, "tally: " + folder.path() + "/" + name + ": cannot be opened: Permission denied\n");
    ASSERT_EQ(chmod((folder / name).c_str(), 0644), 0);
  }
}

// A model of some MiB, sparse: all its weights are zero.
std::string Large(const TempFolder& folder, uint64_t rows) {
  RawGguf g = GgufOf(SoundLlama());
  RawTensor* embedding = nullptr;
  for (RawTensor& t : g.tensors) embedding = t.name == "token_embd.weight" ? &t : embedding;
  embedding->ne = {12, rows};
  embedding->offset = (g.data_bytes + 31) / 32 * 32;
  const uint64_t size = embedding->offset + rows * 12 * 4;
  g.data_bytes = 32;
  const std::string head = g.Make();
  const std::string path = folder.Write("m.gguf", head);
  fs::resize_file(path, head.size() - 32 + size);
  return path;
}

TEST(SiegeFiles, CutWhileItIsRead) {
  const TempFolder folder;
  const std::string path = Large(folder, 1 << 20);  // 48 MiB
  const uint64_t size = fs::file_size(path);
  EngineOptions options;
  options.threads = 1;
  EXPECT_TRUE(LoadModel(path, options).ok());
  bool cut = false;
  const auto cut_file = [&](uint64_t, uint64_t) {
    if (!std::exchange(cut, true)) fs::resize_file(path, size - (20 << 20));
    return true;
  };
  const Status status = LoadModel(path, options, {.progress = cut_file}).status();
  EXPECT_TRUE(cut);
  EXPECT_EQ(status.code(), StatusCode::kBadInput);
  EXPECT_EQ(status.message(), path + ": the file has become shorter: it had " + std::to_string(size) +
                                  " bytes when it was opened and ends before byte " + std::to_string(size - (20 << 20) + 1) +
                                  " now (tensor 'token_embd.weight')");
}

// SIGTERM when the weights are being read: the kernel counts the bytes that the process has read.
TEST(SiegeFiles, TerminatedInMidLoad) {
  if (!std::ifstream("/proc/self/io")) GTEST_SKIP() << "the kernel does not say what a process has read";
  const TempFolder folder;
  const std::string path = Large(folder, 8 << 20);  // 384 MiB
  const std::vector<std::vector<std::string>> commands = {
      {"logits", path, "--tokens", "0"}, {"run", path, "--prompt-tokens", "0"}, {"bench", path}, {"audit", path}};
  for (const auto& arguments : commands) {
    SCOPED_TRACE(arguments[0]);
    RunOptions options;
    bool sent = false;
    options.on_start = [&](pid_t pid) {
      while (!sent && !HasEnded(pid)) {
        std::ifstream io("/proc/" + std::to_string(pid) + "/io");
        std::string key;
        uint64_t read = 0;
        if (!(io >> key >> read)) return;
        if (read > (8 << 20)) sent = kill(pid, SIGTERM) == 0;
      }
    };
    const Ended e = Tally(arguments, options);
    EXPECT_TRUE(sent) << e.err;
    EXPECT_FALSE(e.by_signal);
    EXPECT_EQ(e.code, 143);
    EXPECT_EQ(e.out, "");
    EXPECT_EQ(e.err, "tally: loading was interrupted\n");
  }
}

// A disk of 256 KiB, mounted on the folder for the command alone. `script` is a shell's: $0 is the folder, "$@" the command.
Ended OnSmallDisk(const TempFolder& folder, const std::string& script, const std::vector<std::string>& arguments) {
  RunOptions options;
  options.wrapper = {"unshare",
                     "--mount",
                     "--propagation",
                     "private",
                     "sh",
                     "-c",
                     "mount -t tmpfs -o size=256k tally \"$0\" || exit 99; " + script,
                     folder.path()};
  return Tally(arguments, options);
}

// What is left on the disk afterwards comes on standard output.
Ended OnFullDisk(const TempFolder& folder, const std::vector<std::string>& arguments) {
  return OnSmallDisk(folder, R"("$@"; code=$?; ls -A "$0"; exit $code)", arguments);
}

// Not without root, nor where unshare is missing (-1) or refused (1).
bool DisksCanBeMounted() {
  const int code = OnFullDisk(TempFolder(), {"--version"}).code;
  const bool refused = code == 99 || code == -1 || code == 1 || (code != 0 && geteuid() != 0);
  EXPECT_TRUE(code == 0 || refused) << code;
  return !refused;
}

TEST(SiegeFiles, FullDisk) {
  if (!DisksCanBeMounted()) GTEST_SKIP() << "no disk can be mounted here: not root, or no unshare";
  const TempFolder folder;
  const Ended synth = OnFullDisk(folder, {"synth", "gpt2", folder / "x.gguf", "--layers", "1"});
  EXPECT_EQ(synth.code, 2);
  EXPECT_EQ(synth.out, "");
  EXPECT_TRUE(IsOneLine(synth.err)) << synth.err;
  EXPECT_TRUE(synth.err.starts_with("tally: " + folder.path() + "/x.gguf: needs ")) << synth.err;
  EXPECT_TRUE(synth.err.ends_with(" MiB, and its file system has room for 256.00 KiB; nothing was written\n")) << synth.err;

  const TempFolder models;
  const std::string model = Large(models, 1 << 16);  // a row of logits is the whole disk
  const Ended logits = OnFullDisk(folder, {"logits", model, "--tokens", "0,1,2", "-o", folder / "x.npy"});
  EXPECT_EQ(logits.code, 2);
  EXPECT_EQ(logits.out, "");
  EXPECT_EQ(logits.err, "tally: " + folder.path() + "/x.npy: cannot be written: No space left on device\n");

  const Ended dump = OnFullDisk(folder, {"logits", model, "--tokens", "0,1,2", "--dump", folder / "dump"});
  EXPECT_EQ(dump.code, 2);
  EXPECT_TRUE(IsOneLine(dump.err)) << dump.err;
  EXPECT_TRUE(dump.err.ends_with(": cannot be written: No space left on device\n")) << dump.err;
  EXPECT_EQ(dump.out, "") << "nothing is left";

  for (const char* option : {"--ledger", "--csv", "--trace"}) {
    const Ended run = OnFullDisk(
        folder, {"run", model, "--prompt-tokens", "0", "-n", "300", "--ignore-eos", "--ctx", "512", option, folder / "the-file"});
    EXPECT_EQ(run.out.find("the-file"), std::string::npos) << "nothing is left";
    EXPECT_EQ(run.code, 2) << option << run.err;
    ASSERT_NE(run.err.rfind("tally: "), std::string::npos) << run.err;
    EXPECT_TRUE(IsOneLine(run.err.substr(run.err.rfind("tally: ")))) << run.err;
    EXPECT_NE(run.err.find("tally: cannot write '" + folder.path() + "/the-file': No space left on device\n"), std::string::npos)
        << run.err;
  }
}

// Standard output on a full disk, flushed in blocks and by lines.
TEST(SiegeFiles, StandardOutputOnAFullDisk) {
  if (!DisksCanBeMounted()) GTEST_SKIP() << "no disk can be mounted here: not root, or no unshare";
  const TempFolder folder, texts;
  const std::string file = texts.Write("text", std::string(200'000, 'x'));
  std::vector<std::string> ways = {""};
#if !defined(TALLY_SHADOW_MEMORY)  // which must be loaded first
  if (std::system("stdbuf -oL true >/dev/null 2>&1") == 0) ways.emplace_back("stdbuf -oL ");
#endif
  for (const std::string& way : ways) {
    const Ended e = OnSmallDisk(folder, "exec " + way + R"("$@" >"$0/x")", {"tokenize", "demo", "-f", file});
    EXPECT_EQ(e.code, 2) << way;
    EXPECT_EQ(e.err, "tally: standard output cannot be written: No space left on device\n") << way;
  }
}

TEST(SiegeFiles, FullDeviceAsOutput) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TempFolder folder;
  const std::string model = folder.Write("m.gguf", GgufOf(SoundLlama()).Make());
  const Ended e = Tally({"logits", model, "--tokens", "0", "-o", "/dev/full"});
  EXPECT_EQ(e.code, 2);
  EXPECT_EQ(e.out, "");
  EXPECT_EQ(e.err, "tally: /dev/full: cannot be written: No space left on device\n");
}

}  // namespace
}  // namespace tally::siege
