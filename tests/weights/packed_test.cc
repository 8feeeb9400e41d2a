// SPDX-License-Identifier: Apache-2.0
// Packed files: what is read from them is what is loaded from their source, and what is wrong with them is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/weights/file_tensors.h"
#include "engine/weights/fingerprint.h"
#include "engine/weights/packed_file.h"
#include "engine/weights/packed_writer.h"
#include "loaders/loaders.h"
#include "tests/weights/everything.h"
#include "tests/weights/written.h"

namespace tally {
namespace {

using ChangeHeader = std::function<void(PackedHeader& header)>;

// The packed file of a checkpoint, as bytes.
std::string PackedBytes(const WrittenCheckpoint& c, uint64_t window_bytes = kPackWindow, const ChangeHeader& change = {}) {
  const auto plan = PlanOf(c.inventory, c.spec);
  EXPECT_TRUE(plan.ok()) << plan.status().message();
  const auto layout = PackedLayout::Of(*plan, "test");
  EXPECT_TRUE(layout.ok());
  std::vector<FileReader> files;
  for (const InventoryFile& f : c.inventory.files) files.push_back(FileReader::Open(f.path).value());
  const FileTensors reader(files, *plan, /*forget=*/false);
  PackedHeader header;
  header.layout_version = kPackedLayoutVersion;
  header.family = kPackedFamily;
  header.weights = layout->weights();
  header.data_bytes = layout->data_bytes();
  for (const PlannedHostVector& v : plan->host_vectors) {
    header.buffers.push_back({v.source->name, std::vector<uint8_t>(v.source->bytes)});
    EXPECT_TRUE(reader.Read(*v.source, 0, v.source->bytes, header.buffers.back().bytes.data()).ok());
  }
  std::string data(layout->data_bytes(), '\x55');
  std::vector<bool> written(data.size() / kWeightPage);
  const WritePacked write = [&](uint64_t offset, std::span<const uint8_t> bytes) -> Status {
    std::memcpy(data.data() + offset, bytes.data(), bytes.size());
    for (uint64_t page = offset / kWeightPage; page < (offset + bytes.size()) / kWeightPage; ++page) {
      EXPECT_FALSE(written[page]) << "page " << page << " twice";
      written[page] = true;
    }
    return {};
  };
  Team team(3);
  auto sums = PackWeights(*plan, *layout, reader, team, write, nullptr, window_bytes);
  EXPECT_TRUE(sums.ok()) << sums.status().message();
  EXPECT_EQ(std::count(written.begin(), written.end(), false), 0);
  header.sums = std::move(sums).value();
  if (change) change(header);
  return EncodePackedHeader(c.inventory, header).value() + data;
}

class PackedFiles : public testing::Test {
 protected:
  void SetUp() override {
    FillEverything(c_);
    c_.Write();
  }
  std::string Write(const std::string& bytes) const {
    const std::string path = folder_ / "m.tally";
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  // What is wrong with a file of these bytes when its weights are loaded.
  std::string Error(const std::string& bytes) const {
    const auto inventory = ReadPacked(Write(bytes));
    if (!inventory.ok()) return inventory.status().message();
    Team team(2);
    const auto loaded = LoadSpec(*inventory, c_.spec, team, nullptr);
    EXPECT_EQ(loaded.status().code(), StatusCode::kBadInput);
    return loaded.status().message();
  }
  void ExpectError(const std::string& bytes, const std::vector<std::string>& parts) const {
    const std::string error = Error(bytes);
    for (const std::string& part : parts) EXPECT_NE(error.find(part), std::string::npos) << error << "\nlacks " << part;
    EXPECT_NE(error.find("m.tally"), std::string::npos) << error;
  }

  WrittenCheckpoint c_;
  TempFolder folder_;
};

TEST_F(PackedFiles, HoldWhatTheSourceGives) {
  Team team(2);
  const auto plain = LoadSpec(c_.inventory, c_.spec, team, nullptr);
  ASSERT_TRUE(plain.ok());
  const std::string bytes = PackedBytes(c_);
  // Windows of one slice or of a part of one; of some; of all.
  for (const uint64_t window : {uint64_t{1}, uint64_t{1} << 20, uint64_t{5} << 20}) {
    EXPECT_TRUE(PackedBytes(c_, window) == bytes) << window;
  }
  const auto inventory = ReadCheckpoint(Write(bytes));
  ASSERT_TRUE(inventory.ok()) << inventory.status().message();
  ASSERT_NE(inventory->packed, nullptr);
  ASSERT_EQ(inventory->tensors.size(), c_.inventory.tensors.size());
  for (size_t i = 0; i < inventory->tensors.size(); ++i) {
    const StoredTensor &a = inventory->tensors[i], &b = c_.inventory.tensors[i];
    EXPECT_TRUE(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.offset == b.offset && a.file == b.file);
  }
  for (const InventoryFile& file : c_.inventory.files) std::filesystem::remove(file.path);  // it needs no source
  const auto packed = LoadSpec(*inventory, c_.spec, team, nullptr);
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  ASSERT_EQ(packed->arena().size(), plain->arena().size());
  EXPECT_EQ(std::memcmp(packed->arena().data(), plain->arena().data(), plain->arena().size()), 0);
  EXPECT_EQ(FingerprintOf(*packed, team), FingerprintOf(*plain, team));
  ASSERT_EQ(packed->HostVector(Role::kRopeFactors).size(), 16u);
  EXPECT_TRUE(std::ranges::equal(packed->HostVector(Role::kRopeFactors), plain->HostVector(Role::kRopeFactors)));
  for (size_t i = 0; i < plain->infos().size(); ++i) {
    EXPECT_EQ(packed->infos()[i].stored_bytes, plain->infos()[i].stored_bytes);
    EXPECT_EQ(packed->infos()[i].packed_bytes, plain->infos()[i].packed_bytes);
  }
  const auto guarded = LoadSpec(*inventory, c_.spec, team, nullptr, /*guard=*/true);
  ASSERT_TRUE(guarded.ok()) << guarded.status().message();
  EXPECT_EQ(FingerprintOf(*guarded, team), FingerprintOf(*plain, team));
  const size_t page = SystemPageBytes();
  for (const WeightView& view : guarded->views()) {
    const uint64_t slice = guarded->infos()[view.id].packed_bytes / guarded->infos()[view.id].slices;
    for (int64_t s = 0; s < view.slices; ++s) {
      const uint8_t* const end = view.Slice(s) + slice;
      EXPECT_TRUE(std::all_of(end, end + page, [](uint8_t x) { return x == 0; })) << guarded->infos()[view.id].name;
    }
  }
}

TEST_F(PackedFiles, RecordsOfExperts) {
  const std::string bytes = PackedBytes(c_);
  const auto inventory = ReadPacked(Write(bytes));
  ASSERT_TRUE(inventory.ok());
  const auto plan = PlanOf(*inventory, c_.spec);
  Team team(2);
  const auto plain = LoadSpec(c_.inventory, c_.spec, team, nullptr);
  const auto file = PackedFile::Open(*inventory, *plan);
  ASSERT_TRUE(file.ok()) << file.status().message();
  const std::vector<ExpertRecords> expected = ExpertRecordsOf(*plan);
  ASSERT_EQ(file->records().size(), expected.size());
  uint64_t most = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const ExpertRecords &a = file->records()[i], &b = expected[i];
    EXPECT_TRUE(a.layer == b.layer && a.bytes == b.bytes && a.experts == b.experts && a.parts.size() == b.parts.size());
    for (size_t p = 0; p < b.parts.size(); ++p) {
      EXPECT_TRUE(a.parts[p].weight == b.parts[p].weight && a.parts[p].offset == b.parts[p].offset);
    }
    most = std::max(most, b.bytes);
  }
  const auto room = AnonymousMemory::Allocate(most, false);
  ASSERT_TRUE(room.ok());
  const auto expect_record = [&](const PackedFile& from, size_t layer, int64_t expert) {
    const Status read = from.ReadRecord(layer, expert, room->data());
    ASSERT_TRUE(read.ok()) << read.message();
    for (const ExpertRecords::Part& part : expected[layer].parts) {
      const uint64_t slice = plan->weights[part.weight].slice_bytes;
      EXPECT_EQ(std::memcmp(room->data() + part.offset, plain->views()[part.weight].Slice(expert), slice), 0);
    }
  };
  for (size_t layer = 0; layer < expected.size(); ++layer) {
    for (int64_t e = 0; e < expected[layer].experts; ++e) expect_record(*file, layer, e), expect_record(*file, layer, e);
  }

  // A read error, or damage, is read again; a second one is named. What was sound once is not checked again.
  std::atomic<int> failures{0}, damages{0};
  const PackedFile::ReadBytes read = [&](uint64_t offset, std::span<uint8_t> out) -> Status {
    if (failures > 0 && failures-- > 0) return BadInput("m.tally: cannot be read: Input/output error");
    std::memcpy(out.data(), bytes.data() + offset, out.size());
    if (damages > 0 && damages-- > 0) out[out.size() - 1] ^= 1;
    return {};
  };
  const auto faulty = PackedFile::Open(*inventory, *plan, read);
  ASSERT_TRUE(faulty.ok());
  failures = 1;
  expect_record(*faulty, 0, 2);
  damages = 1;
  expect_record(*faulty, 1, 3);
  for (std::atomic<int>* const fault : {&failures, &damages}) {
    *fault = 2;
    const Status status = faulty->ReadRecord(2, 4, room->data());
    EXPECT_EQ(status.code(), StatusCode::kBadInput);
    for (const std::string& part : {std::string("m.tally"), std::string("at byte "),
                                    std::string(fault == &failures ? "Input/output error" : "checksum does not agree")}) {
      EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
    }
    EXPECT_EQ(*fault, 0);
  }
}

TEST_F(PackedFiles, DamageIsNamed) {
  const std::string bytes = PackedBytes(c_);
  ExpectError(bytes.substr(0, bytes.size() - 1), {"truncated", std::to_string(bytes.size())});
  ExpectError(bytes.substr(0, 40), {"truncated"});
  ExpectError(bytes + "x", {"expected " + std::to_string(bytes.size())});
  const auto flipped = [&](size_t at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 4);
    return changed;
  };
  ExpectError(flipped(20), {"first page"});
  ExpectError(flipped(4096 + 100), {"header", "checksum"});
  ExpectError(flipped(bytes.size() - 1), {"at byte ", "have changed", "checksum"});
  const auto inventory = ReadPacked(Write(bytes));
  ASSERT_TRUE(inventory.ok());
  const size_t data = inventory->packed->data_offset;
  ExpectError(flipped(data + 4096), {"at byte " + std::to_string(data) + " have changed"});
  std::string other = bytes;
  other[8] = 9;
  ExpectError(other, {"version 9", "reads version 1", "tally pack"});
}

TEST_F(PackedFiles, OthersAreRefusedByName) {
  const auto changed = [&](const ChangeHeader& change) { return PackedBytes(c_, kPackWindow, change); };
  ExpectError(changed([](PackedHeader& h) { h.layout_version = 7; }), {"layout 7", "layout 1", "tally pack"});
  ExpectError(changed([](PackedHeader& h) { h.family = "panel32"; }), {"'panel32'", "'panel16'"});
  ExpectError(changed([](PackedHeader& h) { h.rank = 1, h.ranks = 4, h.own_experts = true; }),
              {"process 2 of 4 (--split experts)", "all of the model"});
  ExpectError(changed([](PackedHeader& h) { h.weights[0].dtype = DType::kBF16; }),
              {"'token_embd'", "BF16 [1, 1500, 512]", "F16 [1"});
  ExpectError(changed([](PackedHeader& h) { h.weights[0].role = "none"; }), {"holds no weight 'token_embd'"});
  ExpectError(changed([](PackedHeader& h) { h.weights[1].slices = 2; }), {"header is damaged", "checksums"});
  ExpectError(changed([](PackedHeader& h) { h.weights[1].slice_bytes = UINT64_MAX; }), {"no size that it can have"});
  ExpectError(changed([](PackedHeader& h) { h.sums.pop_back(); }), {"header is damaged", "checksums"});
  ExpectError(changed([](PackedHeader& h) { h.buffers.clear(); }), {"holds no tensor 'rope_freqs.plain'"});
}

TEST_F(PackedFiles, ChangedUnderTheReader) {
  const std::string bytes = PackedBytes(c_), path = Write(bytes);
  const auto inventory = ReadPacked(path);
  ASSERT_TRUE(inventory.ok());
  const auto plan = PlanOf(*inventory, c_.spec);
  const auto held = PackedFile::Open(*inventory, *plan);
  ASSERT_TRUE(held.ok());
  std::filesystem::remove(path);  // does no harm to who has it open
  const auto room = AnonymousMemory::Allocate(held->records()[0].bytes, false);
  EXPECT_TRUE(held->ReadRecord(0, 0, room->data()).ok());
  Write(bytes);
  EXPECT_NE(PackedFile::Open(*inventory, *plan).status().message().find("has changed since"), std::string::npos);
}

TEST_F(PackedFiles, StoppedAndFailedReads) {
  const auto inventory = ReadPacked(Write(PackedBytes(c_)));
  ASSERT_TRUE(inventory.ok());
  Team team(2);
  const auto stopped = LoadSpec(*inventory, c_.spec, team, [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kInterrupted);
  uint64_t last = 0, all = 0;
  const auto progress = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, last);
    last = done, all = total;
    return true;
  };
  ASSERT_TRUE(LoadSpec(*inventory, c_.spec, team, progress).ok());
  EXPECT_EQ(last, all);
  EXPECT_EQ(all, inventory->packed->data_bytes);
}

// A writer that fails, as of a full disk, ends the packing with its error.
TEST_F(PackedFiles, AWriterThatFails) {
  const auto plan = PlanOf(c_.inventory, c_.spec);
  const auto layout = PackedLayout::Of(*plan, "test");
  std::vector<FileReader> files;
  for (const InventoryFile& f : c_.inventory.files) files.push_back(FileReader::Open(f.path).value());
  const FileTensors reader(files, *plan, /*forget=*/false);
  for (const int after : {0, 1, 7}) {
    std::atomic<int> left{after};
    const WritePacked write = [&](uint64_t, std::span<const uint8_t>) { return left-- > 0 ? Status() : NoRoom("no space left"); };
    Team team(2);
    const auto sums = PackWeights(*plan, *layout, reader, team, write, nullptr, uint64_t{1} << 20);
    EXPECT_EQ(sums.status().code(), StatusCode::kNoRoom);
    EXPECT_EQ(sums.status().message(), "no space left");
  }
  Team team(2);
  const auto stopped = PackWeights(
      *plan, *layout, reader, team, [](uint64_t, std::span<const uint8_t>) { return Status(); },
      [](uint64_t, uint64_t) { return false; });
  EXPECT_EQ(stopped.status().code(), StatusCode::kInterrupted);
}

}  // namespace
}  // namespace tally
