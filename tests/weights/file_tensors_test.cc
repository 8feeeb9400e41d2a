// SPDX-License-Identifier: Apache-2.0
// Cold files are read past the page cache: the same weights as through it, whatever goes wrong with reading ahead.
#include "engine/weights/file_tensors.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/weights/fingerprint.h"
#include "tests/weights/everything.h"
#include "tests/weights/expected.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// Drops the files from the page cache, where it is one of a disk.
void Chill(const WrittenCheckpoint& c) {
  for (const InventoryFile& file : c.inventory.files) {
    const int fd = open(file.path.c_str(), O_RDONLY);
    fsync(fd);
    close(fd);
    FileReader::Open(file.path)->Forget(0, 0);
  }
}

std::vector<FileReader> FilesOf(const WrittenCheckpoint& c) {
  std::vector<FileReader> files;
  for (const InventoryFile& file : c.inventory.files) files.push_back(FileReader::Open(file.path).value());
  return files;
}

// Keeps what an item reads.
class Recorder final : public TensorReader {
 public:
  explicit Recorder(const TensorReader& reader) : reader_(reader) {}
  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const override {
    reads.push_back({&t, offset, size});
    return reader_.Read(t, offset, size, out);
  }
  std::string FileOf(const StoredTensor& t) const override { return reader_.FileOf(t); }
  mutable std::vector<TensorRange> reads;

 private:
  const TensorReader& reader_;
};

TEST(FileTensors, WhatItemsReadIsKnownBefore) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  const WeightPlan plan = PlanOf(c.inventory, c.spec).value();
  const std::vector<FileReader> files = FilesOf(c);
  const FileTensors tensors(files, plan, false);
  std::vector<uint8_t> arena(plan.arena_bytes);
  const std::vector<Job> jobs = MakeJobs(plan);
  std::vector<uint8_t> staging(StagingBytes(jobs));
  const PlaceSlice place = [&](const PlannedWeight& w, int64_t s) {
    return arena.data() + w.arena_offset + static_cast<uint64_t>(s) * w.view.slice_stride;
  };
  for (const Job& job : jobs) {
    for (int64_t item = 0; item < job.blocks * job.weights[0]->view.slices; ++item) {
      Recorder recorder(tensors);
      ASSERT_TRUE(LoadItem(recorder, place, job, item, staging.data()).ok());
      std::vector<TensorRange> ranges;
      AppendRanges(job, item, &ranges);
      uint64_t read = 0, ahead = 0;
      for (const TensorRange& r : ranges) ahead += r.size;
      for (const TensorRange& r : recorder.reads) {
        read += r.size;
        const bool found = std::any_of(ranges.begin(), ranges.end(), [&](const TensorRange& a) {
          return a.tensor == r.tensor && r.offset >= a.offset && r.offset + r.size <= a.offset + a.size;
        });
        EXPECT_TRUE(found) << r.tensor->name << " item " << item << ": " << r.offset << ", " << r.size;
      }
      EXPECT_LE(ahead, 2 * read) << job.weights[0]->sources[0]->name;
    }
  }
}

TEST(FileTensors, ColdFilesGiveTheSameWeights) {
  for (const bool stored_head : {false, true}) {
    WrittenCheckpoint c;
    if (stored_head) {
      c.spec.recipe.tied_head = true;
      c.Plain(Role::kTokenEmbedding, -1, DType::kF32, {3000, 1024});  // 12 MB: several runs
      c.CopyOfFirst("head", false);
      c.spec.not_run = {"head"};
      c.spec.stored_head = "head";
    } else {
      FillEverything(c);
    }
    c.Write();
    Team one(1), four(4);
    const uint64_t expected = FingerprintOf(LoadSpec(c.inventory, c.spec, one, nullptr).value(), one);
    for (Team* team : {&one, &four}) {
      Chill(c);
      const auto weights = LoadSpec(c.inventory, c.spec, *team, nullptr);
      ASSERT_TRUE(weights.ok()) << weights.status().message();
      EXPECT_EQ(FingerprintOf(*weights, *team), expected);
      if (!stored_head) ExpectLoaded(c.inventory, c.spec, *weights);
    }
  }
}

TEST(FileTensors, ColdFilesThatEndEarly) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  Team team(2);
  const WeightPlan plan = PlanOf(c.inventory, c.spec).value();
  bool cut = false;
  const auto weights = LoadWeights(c.inventory, plan, team, [&](uint64_t, uint64_t) {
    if (!cut) {
      Chill(c);
      fs::resize_file(c.inventory.files[1].path, 1000000);
    }
    return cut = true;
  });
  ASSERT_FALSE(weights.ok());
  const std::string message = weights.status().message();
  EXPECT_NE(message.find("b.bin: the file has become shorter"), std::string::npos) << message;
  EXPECT_NE(message.find("(tensor '"), std::string::npos) << message;
}

// With any number of readers, each run is given out once, and what a window holds is what the file has there.
TEST(ReadAhead, GivesEachRunOnce) {
  WrittenCheckpoint c;
  FillEverything(c);
  c.Write();
  const WeightPlan plan = PlanOf(c.inventory, c.spec).value();
  const std::vector<ItemRun> runs = MakeRuns(MakeJobs(plan), plan);
  ASSERT_GT(runs.size(), 3u);
  for (const int readers : {0, 1, 3}) {
    Chill(c);
    const std::vector<FileReader> files = FilesOf(c);
    ReadAhead ahead(files, runs, false);
    std::set<const ItemRun*> seen;
    int windows = 0;
    RunBeside(
        readers, [&] { ahead.Read(); },
        [&](int started) {
          ahead.Expect(started);
          while (const auto taken = ahead.Take()) {
            EXPECT_TRUE(seen.insert(taken->run).second);
            for (const FileRange& r : taken->run->ranges) {
              if (taken->window == nullptr) continue;
              std::vector<uint8_t> bytes(r.size);
              EXPECT_TRUE(files[r.file].ReadAt(r.offset, bytes).ok());
              const uint8_t* const held = taken->window->Find(r);
              ASSERT_NE(held, nullptr);
              EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), held));
              ++windows;
            }
            ahead.GiveBack(taken->window);
          }
        });
    EXPECT_EQ(seen.size(), runs.size());
    EXPECT_LE(windows, readers == 0 ? 0 : 100000);
  }
  // Readers that wait for a window end when they are told to.
  Chill(c);
  const std::vector<FileReader> files = FilesOf(c);
  ReadAhead ahead(files, runs, false);
  RunBeside(
      2, [&] { ahead.Read(); },
      [&](int started) {
        ahead.Expect(started);
        (void)ahead.Take();
        ahead.Stop();
        EXPECT_FALSE(ahead.Take().has_value());
      });
}

}  // namespace
}  // namespace tally
