// SPDX-License-Identifier: Apache-2.0
// Loading from files that the test writes: every way a binding can be stored, and what goes wrong.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/recipe/recipe.h"
#include "engine/weights/file_tensors.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/file_reader.h"
#include "tests/support/sanitizers.h"
#include "tests/support/stored_weights.h"
#include "tests/weights/everything.h"
#include "tests/weights/expected.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

TEST(LoadWeights, EveryStorageWithAnyNumberOfThreads) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  for (int threads : {1, 2, 5}) {
    SCOPED_TRACE(threads);
    Team team(threads);
    auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const PackedWeights moved = std::move(weights).value();
    ExpectLoaded(c.inventory, c.spec, moved);
    EXPECT_TRUE(moved.Get(Role::kQ, 0).empty());
    EXPECT_TRUE(moved.Get(Role::kHead, 3).empty());
    EXPECT_EQ(moved.infos()[moved.Get(Role::kTokenEmbedding).id].kind, WeightInfo::Kind::kEmbedding);
    EXPECT_EQ(moved.infos()[moved.Get(Role::kPositionEmbedding).id].kind, WeightInfo::Kind::kPosition);
    EXPECT_EQ(moved.infos()[moved.Get(Role::kHead).id].kind, WeightInfo::Kind::kHead);
    EXPECT_EQ(moved.infos()[moved.Get(Role::kExpertUp, 2).id].kind, WeightInfo::Kind::kBlock);
    EXPECT_EQ(moved.infos()[moved.Get(Role::kExpertUp, 2).id].name, "blk.2.ffn_up_exps");
    EXPECT_EQ(moved.infos()[moved.Get(Role::kExpertUp, 2).id].stored_bytes, 3u * 130 * 96 * 17);
  }
}

TEST(LoadWeights, ATiedHeadIsTheEmbedding) {
  for (DType t : kWeightTypes) {
    WrittenCheckpoint c;
    c.spec.recipe.tied_head = true;
    const uint64_t cols = 2 * std::max<uint64_t>(32, GetDTypeInfo(t).block_size);
    c.Plain(Role::kTokenEmbedding, -1, t, {77, cols});
    c.Plain(Role::kOutputNorm, -1, DType::kF32, {cols});
    c.Write();
    Team team(2);
    auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    ExpectLoaded(c.inventory, c.spec, *weights);
    const WeightView &embedding = weights->Get(Role::kTokenEmbedding), &head = weights->Get(Role::kHead);
    EXPECT_EQ(head.data, embedding.data);
    EXPECT_EQ(head.id, embedding.id);
    EXPECT_EQ(head.layout, WeightLayout::kPanel16);
    ASSERT_EQ(weights->infos().size(), 2u);
    EXPECT_EQ(weights->infos()[head.id].kind, WeightInfo::Kind::kTiedEmbeddingHead);
  }
}

// A tied head that is stored too must be the embedding to the last byte.
TEST(LoadWeights, AStoredTiedHeadIsCompared) {
  const auto load = [](DType embedding, bool last_byte_differs, DType head, int threads) {
    WrittenCheckpoint c;
    c.spec.recipe.tied_head = true;
    c.Plain(Role::kTokenEmbedding, -1, embedding, {5003, 256});  // of many pieces
    head == embedding ? c.CopyOfFirst("head", last_byte_differs) : c.Tensor("head", head, {5003, 256});
    c.spec.not_run = {"head"};
    c.spec.stored_head = "head";
    c.Write();
    Team team(threads);
    const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
    if (weights.ok()) ExpectLoaded(c.inventory, c.spec, *weights);
    return weights.status();
  };
  for (const int threads : {1, 3}) {
    EXPECT_TRUE(load(DType::kF32, false, DType::kF32, threads).ok());
    EXPECT_TRUE(load(DType::kQ6_K, false, DType::kQ6_K, threads).ok());
    for (const DType head : {DType::kF32, DType::kBF16}) {
      const Status differs = load(DType::kF32, true, head, threads);
      EXPECT_EQ(differs.code(), StatusCode::kBadInput);
      EXPECT_NE(differs.message().find("tensor 'head' differs from 'token_embd.plain', yet tie_word_embeddings is true: "),
                std::string::npos)
          << differs.message();
    }
  }
}

TEST(LoadWeights, NothingToLoad) {
  WrittenCheckpoint c;
  c.Write();
  Team team(2);
  const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->packed_bytes(), 0u);
}

TEST(LoadWeights, ProgressRisesToTheTotal) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  for (int threads : {1, 3}) {
    Team team(threads);
    uint64_t last = 0, all = 0, calls = 0;
    std::atomic<int> inside{0};
    const auto weights = LoadSpec(c.inventory, c.spec, team, [&](uint64_t done, uint64_t total) {
      EXPECT_EQ(inside.fetch_add(1), 0);
      EXPECT_GE(done, last);
      EXPECT_LE(done, total);
      last = done, all = total, ++calls;
      inside.fetch_sub(1);
      return true;
    });
    ASSERT_TRUE(weights.ok());
    EXPECT_EQ(last, all);
    EXPECT_GT(calls, threads == 1 ? 10u : 1u);  // on the calling thread, whatever its share of the work
  }
}

TEST(LoadWeights, ProgressIsCalledOnTheCallingThread) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  Team team(4);
  const std::thread::id caller = std::this_thread::get_id();
  for (int pass = 0; pass < 5; ++pass) {
    std::atomic<int> calls{0}, elsewhere{0};
    const auto weights = LoadSpec(c.inventory, c.spec, team, [&](uint64_t, uint64_t) {
      ++calls;
      if (std::this_thread::get_id() != caller) ++elsewhere;
      return true;
    });
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_GE(calls.load(), 2);
    EXPECT_EQ(elsewhere.load(), 0);
  }
}

// The first call comes before the team runs; the second from within, or after it where nothing was left for the calling thread.
TEST(LoadWeights, WhatProgressThrowsLeavesIt) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  for (int threads : {1, 4}) {
    Team team(threads);
    for (int at : {1, 2}) {
      bool within = false;
      for (int pass = 0; pass < 20 && !within; ++pass) {
        std::atomic<int> calls{0};
        const auto load = [&] {
          (void)LoadSpec(c.inventory, c.spec, team, [&](uint64_t done, uint64_t total) {
            within = done < total;
            if (++calls == at) throw std::runtime_error("thrown by progress");
            return true;
          });
        };
        EXPECT_THROW(load(), std::runtime_error);
        EXPECT_EQ(calls.load(), at) << "asked again after it had thrown";
      }
    }
    const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);  // with the same team
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    ExpectLoaded(c.inventory, c.spec, *weights);
  }
}

TEST(LoadWeights, DoesOtherWorkBesideOnce) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  for (int threads : {1, 4}) {
    Team team(threads);
    const auto plan = PlanOf(c.inventory, c.spec);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::atomic<int> runs{0};
    const auto weights = LoadWeights(c.inventory, *plan, team, nullptr, [&] { ++runs; });
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    EXPECT_EQ(runs.load(), 1);
    ExpectLoaded(c.inventory, c.spec, *weights);
    const auto load = [&] { (void)LoadWeights(c.inventory, *plan, team, nullptr, [] { throw std::runtime_error("beside"); }); };
    EXPECT_THROW(load(), std::runtime_error);
  }
}

TEST(LoadWeights, StopsWhenAskedTo) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  for (int threads : {1, 3}) {
    for (int after : threads == 1 ? std::vector{0, 1, 7} : std::vector{0, 1}) {
      Team team(threads);
      int calls = 0;
      const auto weights = LoadSpec(c.inventory, c.spec, team, [&](uint64_t, uint64_t) { return calls++ < after; });
      ASSERT_FALSE(weights.ok());
      EXPECT_EQ(weights.status().code(), StatusCode::kInterrupted);
      EXPECT_EQ(calls, after + 1) << "asked again after it had said no";
    }
  }
}

TEST(LoadWeights, AFileThatIsCutShortWhileItIsRead) {
  for (int threads : {1, 3}) {
    WrittenCheckpoint c;
    FillEverything(c);
    c.Write();
    Team team(threads);
    bool cut = false;
    const auto weights = LoadSpec(c.inventory, c.spec, team, [&](uint64_t, uint64_t) {
      if (!cut) fs::resize_file(c.inventory.files[1].path, 1000000);
      return cut = true;
    });
    ASSERT_FALSE(weights.ok());
    EXPECT_EQ(weights.status().code(), StatusCode::kBadInput);
    EXPECT_NE(weights.status().message().find("b.bin"), std::string::npos) << weights.status().message();
    EXPECT_NE(weights.status().message().find("(tensor '"), std::string::npos) << weights.status().message();
    EXPECT_EQ(weights.status().message().find('\n'), std::string::npos);
  }
}

// The header is read first, and the weights later: of another file, or of one that was written to, they are not its weights.
TEST(LoadWeights, AFileThatHasChangedSinceItsHeaderWasRead) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  const std::string path = c.inventory.files[1].path, copy = path + ".copy";
  const auto stamp = [&] {
    for (InventoryFile& file : c.inventory.files) file.stamp = FileReader::Open(file.path)->stamp();
  };
  Team team(2);
  const auto expect_changed = [&](const LoadProgress& progress) {
    const auto weights = LoadSpec(c.inventory, c.spec, team, progress);
    ASSERT_FALSE(weights.ok());
    EXPECT_EQ(weights.status().code(), StatusCode::kBadInput);
    EXPECT_EQ(weights.status().message(), path + ": has changed since its header was read");
  };
  stamp();
  fs::copy_file(path, copy);
  fs::rename(copy, path);  // the same bytes, but who is to know
  expect_changed(nullptr);
  stamp();
  EXPECT_TRUE(LoadSpec(c.inventory, c.spec, team, nullptr).ok());
  fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));  // written to before ...
  expect_changed(nullptr);
  stamp();
  bool written = false;
  expect_changed([&](uint64_t, uint64_t) {  // ... and while it is read
    if (!written) fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(1));
    return written = true;
  });
}

TEST(LoadWeights, AFileThatHasGoneOrShrunkSinceItWasInspected) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  Team team(2);
  fs::resize_file(c.inventory.files[0].path, 2000000);
  auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
  EXPECT_EQ(weights.status().code(), StatusCode::kBadInput);
  EXPECT_NE(weights.status().message().find("a.bin"), std::string::npos) << weights.status().message();
  fs::remove(c.inventory.files[0].path);
  weights = LoadSpec(c.inventory, c.spec, team, nullptr);
  EXPECT_EQ(weights.status().code(), StatusCode::kBadInput);
  EXPECT_NE(weights.status().message().find("a.bin"), std::string::npos) << weights.status().message();
}

void ExpectSays(const std::string& message, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

TEST(PlanWeights, NamesWhatCannotBeRun) {
  {
    WrittenCheckpoint c;
    c.Plain(Role::kQ, 0, DType::kI32, {16, 32});
    ExpectSays(c.Error(), {"a.bin", "'blk.0.attn_q.plain'", "I32", "Q4_0"});
  }
  {
    WrittenCheckpoint c;
    c.Plain(Role::kAttnNorm, 4, DType::kQ8_0, {64});
    ExpectSays(c.Error(), {"'blk.4.attn_norm.plain'", "Q8_0", "F32"});
  }
  {
    WrittenCheckpoint c;
    c.Plain(Role::kRopeFactors, -1, DType::kF64, {64});
    ExpectSays(c.Error(), {"'rope_freqs.plain'", "F64"});
  }
  {
    WrittenCheckpoint c;
    c.Tensor("w", DType::kQ8_0, {32, 64});
    c.Bind(Role::kO, 0, {"w"}, {64, 32}, Storage::kTransposed);
    ExpectSays(c.Error(), {"'w'", "Q8_0", "transposed"});
  }
  {
    WrittenCheckpoint c;
    c.Tensor("w", DType::kQ8_0, {8, 40});  // 320 elements are whole blocks; a row of 40 is not
    c.Bind(Role::kO, 0, {"w"}, {8, 40});
    ExpectSays(c.Error(), {"'w'", "40", "Q8_0"});
  }
  {
    WrittenCheckpoint c;
    c.Bind(Role::kO, 0, {"w"}, {8, 40});
    ExpectSays(c.Error(), {"'w'", "missing", "blk.0.attn_output"});
  }
  {
    WrittenCheckpoint c;
    c.Tensor("w", DType::kF32, {8, 40});
    c.Bind(Role::kO, 0, {"w"}, {40, 8});
    ExpectSays(c.Error(), {"a.bin", "'w'", "[8, 40]", "[40, 8]"});
  }
  {
    WrittenCheckpoint c;
    c.Plain(Role::kO, 0, DType::kF32, {8, 40});
    c.inventory.tensors[0].bytes -= 4;
    ExpectSays(c.Error(), {"1276", "1280"});
  }
  {
    WrittenCheckpoint c;
    c.Plain(Role::kO, 0, DType::kF32, {8, 40});
    c.inventory.tensors[0].offset += 4;
    ExpectSays(c.Error(), {"beyond its file"});
  }
  {
    WrittenCheckpoint c;
    c.Tensor("e.0", DType::kF32, {8, 40});
    c.Tensor("e.1", DType::kF16, {8, 40});
    c.Bind(Role::kExpertUp, 0, {"e.0", "e.1"}, {2, 8, 40});
    ExpectSays(c.Error(), {"'e.1'", "F16", "'e.0'", "F32"});
  }
  {
    WrittenCheckpoint c;
    c.Tensor("blocks", DType::kU8, {2, 8, 2, 16});
    c.Tensor("scales", DType::kU8, {2, 8, 3});
    c.Bind(Role::kExpertUp, 0, {"blocks", "scales"}, {2, 8, 64}, Storage::kPlain, DType::kMXFP4);
    ExpectSays(c.Error(), {"'scales'", "[2, 8, 3]", "[2, 8, 2]"});
  }
}

TEST(LoadWeights, VectorsMustBeFinite) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const auto& [bad, name] : {std::pair(nan, "NaN"), std::pair(inf, "infinity"), std::pair(-inf, "-infinity")}) {
    for (const Role role : {Role::kSinks, Role::kRopeFactors}) {
      WrittenCheckpoint c;
      const bool host = role == Role::kRopeFactors;
      c.Plain(role, host ? -1 : 0, DType::kF32, {40});
      c.Write();
      std::fstream file(c.inventory.files[0].path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(c.inventory.tensors[0].offset + 4 * 17));
      file.write(reinterpret_cast<const char*>(&bad), 4);
      file.close();
      Team team(1);
      const auto loaded = LoadSpec(c.inventory, c.spec, team, nullptr);
      ASSERT_FALSE(loaded.ok());
      EXPECT_EQ(loaded.status().code(), StatusCode::kBadInput);
      const std::string what = std::string("holds ") + name + ";";
      ExpectSays(loaded.status().message(), {"a.bin", c.inventory.tensors[0].name.c_str(), what.c_str()});
    }
  }
}

TEST(PlanWeights, ContradictionsOfTheFamilyAreInternalErrors) {
  {
    WrittenCheckpoint c;
    c.Plain(Role::kO, 0, DType::kF32, {8, 40});
    c.Bind(Role::kO, 0, {"blk.0.attn_output.plain"}, {8, 40});
    c.Write();
    EXPECT_EQ(PlanOf(c.inventory, c.spec).status().code(), StatusCode::kInternal);
  }
  {
    WrittenCheckpoint c;
    c.spec.recipe.tied_head = true;
    c.Plain(Role::kHead, -1, DType::kF32, {8, 40});
    c.Write();
    EXPECT_EQ(PlanOf(c.inventory, c.spec).status().code(), StatusCode::kInternal);
  }
}

TEST(LoadWeights, PeakIsTheArenaAndWhatIsReadAhead) {
#if defined(TALLY_SHADOW_MEMORY)
  GTEST_SKIP() << "the sanitizer's own memory would be counted";
#endif
  WrittenCheckpoint c;
  c.Write();
  const uint64_t rows = 2048, cols = 4096;  // 32 MiB each, all zeros, a sparse file
  uint64_t at = 0;
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = "w" + std::to_string(layer);
    c.inventory.tensors.push_back({name, DType::kF32, {rows, cols}, 0, at, rows * cols * 4});
    at += rows * cols * 4;
    c.Bind(Role::kQ, layer, {name}, {rows, cols});
  }
  fs::resize_file(c.inventory.files[0].path, at);
  c.inventory.files[0].size = at;
  c.inventory.BuildIndex();
  Team team(2);
  const uint64_t before = ResidentBytes(), peak_before = PeakResidentBytes();
  const auto weights = LoadSpec(c.inventory, c.spec, team, nullptr);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->packed_bytes(), at);
  const uint64_t allowed = std::max(peak_before, before + at + kMostReadAhead + at / 20);
  EXPECT_LE(PeakResidentBytes(), allowed);
}

}  // namespace
}  // namespace tally
