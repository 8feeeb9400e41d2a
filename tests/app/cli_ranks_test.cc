// SPDX-License-Identifier: Apache-2.0
// tally tokenize --ranks: vocabularies without a model.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/app/runner.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

class CliRanks : public testing::Test {
 protected:
  void SetUp() override {
    // The 256 bytes and "ab".
    static constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string lines;
    for (int b = 0; b < 256; ++b) {
      lines += std::string{kDigits[b >> 2], kDigits[(b & 3) << 4]} + "== " + std::to_string(b) + "\n";
    }
    ranks_ = folder_.Write("mine.tiktoken", lines + "YWI= 256\n");
  }
  Ended Tokenize(std::vector<std::string> arguments, const RunOptions& options = {}) const {
    arguments.insert(arguments.begin(), {"tokenize", "--ranks", ranks_, "--pattern", "r50k"});
    return Tally(arguments, options);
  }
  static void ExpectRefused(const Ended& e, const std::string& part) {
    EXPECT_EQ(e.code, 2);
    EXPECT_EQ(e.out, "");
    EXPECT_TRUE(IsOneLine(e.err)) << e.err;
    EXPECT_NE(e.err.find(part), std::string::npos) << e.err;
  }
  TempFolder folder_;
  std::string ranks_;
};

TEST_F(CliRanks, ThereAndBack) {
  EXPECT_EQ(Tokenize({"cab", "--ids"}).out, "99,256\n");
  EXPECT_EQ(Tokenize({"cab"}).out, "99\t\"c\"\n256\t\"ab\"\n");
  EXPECT_EQ(Tokenize({"", "--ids"}).out, "\n");
  EXPECT_EQ(Tokenize({"--decode", "99,256"}).out, "cab\n");
  const std::string text = std::string("ab\0c\r\n\n", 7) + "\xF0\x9F\x99\x82";
  const std::string file = folder_.Write("text", text), ids = folder_ / "ids", back = folder_ / "back";
  EXPECT_EQ(Tokenize({"-f", file, "--ids"}, {.stdout_file = ids}).code, 0);
  EXPECT_EQ(ReadAll(ids), "256,0,99,13,10,10,240,159,153,130\n");
  EXPECT_EQ(Tokenize({"--tokens-file", "-"}, {.stdin_file = ids, .stdout_file = back}).code, 0);
  EXPECT_EQ(ReadAll(back), text);
  ExpectRefused(Tokenize({"-f", folder_.Write("text", "a\xFF"), "--ids"}), "/text: byte 1 (line 1) is 0xFF, which is not UTF-8");
  EXPECT_NE(Tokenize({"ab", "--json"}).out.find("mine.tiktoken"), std::string::npos);
}

TEST_F(CliRanks, BadUseIsRefused) {
  ExpectRefused(Tally({"tokenize", "--ranks", ranks_, "ab"}), "mine.tiktoken: not named for an encoding");
  ExpectRefused(Tally({"tokenize", "--ranks", ranks_, "--pattern", "r51k", "ab"}), "'r51k' is not known");
  ExpectRefused(Tally({"tokenize", "--ranks", folder_.path(), "--pattern", "r50k", "ab"}), folder_.path());
  ExpectRefused(Tally({"tokenize", "--ranks", folder_ / "none", "--pattern", "r50k", "ab"}), "/none");
  ExpectRefused(Tally({"tokenize", "--ranks", folder_.Write("bad", "YQ== 0\nYQ= 1\n"), "--pattern", "r50k", "ab"}),
                "/bad: line 2: ");
  ExpectRefused(Tally({"tokenize", "--pattern", "r50k", "model", "ab"}), "--pattern is for --ranks");
  ExpectRefused(Tally({"tokenize"}), "give one of TEXT");
  ExpectRefused(Tokenize({}), "TEXT");
  ExpectRefused(Tokenize({"model", "ab"}), "takes the place of MODEL");
  ExpectRefused(Tokenize({"ab", "--decode", "1"}), "give one of");
  ExpectRefused(Tokenize({"--decode", "1", "--tokens-file", folder_.Write("ids", "1")}), "give one of");
  ExpectRefused(Tokenize({"--decode", "257"}), "--decode: token 257 is beyond the vocabulary of 257");
  ExpectRefused(Tokenize({"--tokens-file", folder_.Write("ids", "1,x")}), "/ids: 'x' is not a token id");
}

TEST_F(CliRanks, WarAndPeaceComesBackByteForByte) {
  const std::string shared = TALLY_SOURCE_DIR "/../shared/", novel = shared + "text/war-and-peace.txt";
  for (const char* name : {"r50k", "cl100k", "o200k"}) {
    const std::string file = shared + "tokenizers/tiktoken/" + name + "_base.tiktoken";
    for (const std::string& path : {file, novel}) {
      if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent";
    }
    const std::string ids = folder_ / "ids", back = folder_ / "back";
    EXPECT_EQ(Tally({"tokenize", "--ranks", file, "-f", novel, "--ids"}, {.stdout_file = ids}).code, 0);
    EXPECT_EQ(Tally({"tokenize", "--ranks", file, "--tokens-file", ids}, {.stdout_file = back}).code, 0);
    EXPECT_TRUE(ReadAll(back) == ReadAll(novel)) << name;
  }
}

}  // namespace
}  // namespace tally
