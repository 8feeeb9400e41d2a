// SPDX-License-Identifier: Apache-2.0
#include "loaders/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/studies/logits.h"
#include "tests/session/fake_engine.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

class NpyTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return folder_ / name; }
  TempFolder folder_;
};

// Reads as numpy.lib.format's documentation says; the shape must be spelled as Python spells it.
std::vector<float> Read(const std::string& path, int64_t rows, int64_t cols) {
  const std::string bytes = ReadAll(path);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const size_t length = static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  const std::string header = bytes.substr(10, length);
  EXPECT_EQ(header.back(), '\n');
  const std::string shape = "(" + std::to_string(rows) + ", " + std::to_string(cols) + ")";
  EXPECT_EQ(header.find("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }"), 0u) << header;
  EXPECT_EQ(header.find_last_not_of(" \n"), header.find('}'));
  std::vector<float> values((bytes.size() - 10 - length) / 4);
  EXPECT_EQ(bytes.size(), 10 + length + 4 * static_cast<size_t>(rows * cols));
  std::memcpy(values.data(), bytes.data() + 10 + length, values.size() * 4);
  return values;
}

TEST_F(NpyTest, RowsAndHeader) {
  const std::vector<float> x = {1, 2, 3, 99, -4, 5.5f, 6, 99};  // stride 4
  auto writer = NpyWriter::Create(Path("x.npy"), 3);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append({x.data(), 2, 3, 4}).ok());
  ASSERT_TRUE(writer->Append({x.data(), 1, 3, 4}).ok());
  ASSERT_TRUE(writer->Close().ok());
  EXPECT_EQ(Read(Path("x.npy"), 3, 3), (std::vector<float>{1, 2, 3, -4, 5.5f, 6, 1, 2, 3}));
  auto again = NpyWriter::Reopen(Path("x.npy"), 3, 3);
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(again->Append({x.data() + 4, 1, 3}).ok());
  ASSERT_TRUE(again->Close().ok());
  EXPECT_EQ(Read(Path("x.npy"), 4, 3), (std::vector<float>{1, 2, 3, -4, 5.5f, 6, 1, 2, 3, -4, 5.5f, 6}));
}

std::set<std::string> Names(const fs::path& directory) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.insert(entry.path().filename().string());
  return names;
}

TEST_F(NpyTest, AFileHasItsNameOnlyWhenItIsComplete) {
  const float x[3] = {1, 2, 3};
  std::ofstream(Path("x.npy")) << "older";
  {
    auto writer = NpyWriter::Create(Path("x.npy"), 3);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    ASSERT_TRUE(writer->Append({x, 1, 3}).ok());
    EXPECT_EQ(ReadAll(Path("x.npy")), "older");
    EXPECT_EQ(Names(folder_.path()).size(), 2u);
  }
  EXPECT_EQ(ReadAll(Path("x.npy")), "older");  // not closed: as if nothing had been
  EXPECT_EQ(Names(folder_.path()), (std::set<std::string>{"x.npy"}));
  auto writer = NpyWriter::Create(Path("x.npy"), 3);
  ASSERT_TRUE(writer->Append({x, 1, 3}).ok() && writer->Close().ok());
  EXPECT_EQ(Read(Path("x.npy"), 1, 3), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(Names(folder_.path()), (std::set<std::string>{"x.npy"}));
}

TEST_F(NpyTest, TwoWritersAndLeftoversDoNotMeet) {
  const float x[2] = {1, 2};
  std::ofstream(Path("x.npy.partial-0")) << "of one that was killed";
  auto a = NpyWriter::Create(Path("x.npy"), 1), b = NpyWriter::Create(Path("x.npy"), 1);
  ASSERT_TRUE(a.ok() && b.ok());
  ASSERT_TRUE(a->Append({x, 1, 1}).ok() && b->Append({x + 1, 1, 1}).ok());
  ASSERT_TRUE(a->Close().ok());
  EXPECT_EQ(Read(Path("x.npy"), 1, 1), (std::vector<float>{1}));
  ASSERT_TRUE(b->Close().ok());
  EXPECT_EQ(Read(Path("x.npy"), 1, 1), (std::vector<float>{2}));
  EXPECT_EQ(Names(folder_.path()), (std::set<std::string>{"x.npy", "x.npy.partial-0"}));
}

TEST_F(NpyTest, LinksAreFollowed) {
  const float x[1] = {1};
  std::ofstream(Path("x.npy")) << "older";
  fs::create_symlink("x.npy", Path("link.npy"));
  auto writer = NpyWriter::Create(Path("link.npy"), 1);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  ASSERT_TRUE(writer->Append({x, 1, 1}).ok() && writer->Close().ok());
  EXPECT_TRUE(fs::is_symlink(Path("link.npy")));
  EXPECT_EQ(Read(Path("x.npy"), 1, 1), (std::vector<float>{1}));
  fs::create_symlink("nowhere", Path("dangling"));
  EXPECT_NE(NpyWriter::Create(Path("dangling"), 1).status().message().find("leads nowhere"), std::string::npos);
}

TEST_F(NpyTest, AWrongNumberOfColumnsIsOurFault) {
  const float x[2] = {};
  auto writer = NpyWriter::Create(Path("x.npy"), 3);
  EXPECT_EQ(writer->Append({x, 1, 2}).code(), StatusCode::kInternal);
}

TEST_F(NpyTest, Failures) {
  EXPECT_EQ(NpyWriter::Create(Path("missing/x.npy"), 3).status().code(), StatusCode::kBadInput);
  EXPECT_NE(NpyWriter::Create(folder_.path(), 3).status().message().find(folder_.path()), std::string::npos);
}

TEST_F(NpyTest, DevicesAreWrittenAndLeftAlone) {
  const auto expect_device = [](const char* path) {
    EXPECT_EQ(fs::status(path).type(), fs::file_type::character) << path;
    for (const std::string& name : Names("/dev")) EXPECT_EQ(name.find(".partial"), std::string::npos) << name;
  };
  const float x[3] = {};
  auto null = NpyWriter::Create("/dev/null", 3);
  ASSERT_TRUE(null.ok()) << null.status().message();
  EXPECT_TRUE(null->Append({x, 1, 3}).ok() && null->Close().ok());
  expect_device("/dev/null");
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  auto full = NpyWriter::Create("/dev/full", 3);
  ASSERT_TRUE(full.ok()) << full.status().message();
  EXPECT_EQ(full->Close().code(), StatusCode::kNoRoom);
  { auto unfinished = NpyWriter::Create("/dev/full", 3); }
  expect_device("/dev/full");
}

TEST_F(NpyTest, LogitsOfEveryPositionInPieces) {
  FakeEngine engine(50);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 19; ++i) tokens.push_back(i * 2);
  std::vector<int32_t> best;
  LogitsCallbacks callbacks;
  callbacks.take = [&](int64_t first, Mat<const float> logits) -> Status {
    EXPECT_EQ(first, static_cast<int64_t>(best.size()));
    for (int64_t r = 0; r < logits.rows; ++r) best.push_back(Argmax({logits.Row(r), 50}));
    return {};
  };
  ASSERT_TRUE(RunLogits(engine, tokens, callbacks).ok());
  ASSERT_EQ(best.size(), tokens.size());
  for (size_t i = 0; i < best.size(); ++i) EXPECT_EQ(best[i], tokens[i] + 1);
  EXPECT_EQ(engine.live_sequences(), 0u);
  EXPECT_EQ(engine.ledger().steps(Phase::kDecode), 0u);
  best.clear();
  engine.logit_rows = 3;  // fewer than a batch
  ASSERT_TRUE(RunLogits(engine, tokens, callbacks).ok());
  EXPECT_EQ(best.size(), tokens.size());
  callbacks.take = [](int64_t, Mat<const float>) -> Status { return BadInput("enough"); };
  EXPECT_EQ(RunLogits(engine, tokens, callbacks).message(), "enough");
  callbacks.interrupted = [] { return true; };
  EXPECT_EQ(RunLogits(engine, tokens, callbacks).code(), StatusCode::kInterrupted);
  EXPECT_EQ(RunLogits(engine, std::vector<int32_t>{50}, callbacks).code(), StatusCode::kBadInput);
}

TEST_F(NpyTest, OpDumpNamesFilesAndAppendsSteps) {
  auto dump = OpDump::Create(Path("deep/dump"));
  ASSERT_TRUE(dump.ok());
  const float x[4] = {1, 2, 3, 4};
  for (int step = 0; step < 2; ++step) {
    dump->BeginStep();
    dump->Write({3, Component::kAttnQNorm}, "norm", {x, 2, 2});
    dump->Write({3, Component::kFfnGateUp}, "matmul", {x, 1, 4});
    dump->Write({3, Component::kFfnGateUp}, "matmul", {x + 2, 1, 2});
    dump->Write({-1, Component::kHead}, "matmul", {x, 1, 3});
  }
  ASSERT_TRUE(dump->status().ok()) << dump->status().message();
  EXPECT_EQ(dump->files(), 4u);
  EXPECT_EQ(Read(Path("deep/dump/blk.3.attn_q_norm.norm.npy"), 4, 2), (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(Read(Path("deep/dump/blk.3.ffn_gate_up.matmul.npy"), 2, 4), (std::vector<float>{1, 2, 3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(Read(Path("deep/dump/blk.3.ffn_gate_up.matmul.1.npy"), 2, 2), (std::vector<float>{3, 4, 3, 4}));
  EXPECT_EQ(Read(Path("deep/dump/head.matmul.npy"), 2, 3), (std::vector<float>{1, 2, 3, 1, 2, 3}));
  std::ofstream(Path("file")).put('x');
  EXPECT_EQ(OpDump::Create(Path("file")).status().code(), StatusCode::kBadInput);
  EXPECT_EQ(OpDump::Create(Path("file") + "/x").status().code(), StatusCode::kBadInput);
}

}  // namespace
}  // namespace tally
