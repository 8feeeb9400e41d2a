// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/source_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/base/format.h"
#include "engine/machine/machine.h"
#include "engine/weights/item_loader.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

// The stored bytes of a slice, which are read in one go.
struct Stretch {
  const StoredTensor* tensor = nullptr;
  uint64_t offset = 0, size = 0;  // in the tensor
};

// Serves reads from stretches that are in memory.
class Stretches final : public TensorReader {
 public:
  Stretches(std::span<const FileReader> files, uint8_t* memory, uint64_t room)
      : files_(files), at_(memory), end_(memory + room) {}

  Status Load(const Stretch& s) {
    const FileReader& file = files_[s.tensor->file];
    const uint64_t from = s.tensor->offset + s.offset;
    at_ += (from - reinterpret_cast<uintptr_t>(at_)) % kWeightPage;  // pages of the file are pages of the memory
    if (s.size > static_cast<uint64_t>(end_ - at_)) return InternalError("a stretch without room");
    TALLY_RETURN_IF_ERROR(Named(*s.tensor, file.ReadDirect(from, {at_, s.size})));
    held_.push_back({s, at_});
    at_ += s.size;
    return {};
  }

  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const override {
    for (const auto& [stretch, bytes] : held_) {
      if (stretch.tensor != &t || offset < stretch.offset || offset + size > stretch.offset + stretch.size) continue;
      std::memcpy(out, bytes + (offset - stretch.offset), size);
      return {};
    }
    return Named(t, files_[t.file].ReadAt(t.offset + offset, {out, size}));
  }

  std::string FileOf(const StoredTensor& t) const override { return Printable(files_[t.file].path()); }

 private:
  static Status Named(const StoredTensor& t, const Status& status) {
    return status.ok() ? status : Status(status.code(), status.message() + " (tensor " + Quote(t.name) + ")");
  }

  std::span<const FileReader> files_;
  uint8_t *at_, *end_;
  std::vector<std::pair<Stretch, const uint8_t*>> held_;
};

Result<std::vector<FileReader>> OpenFiles(const Inventory& inventory) {
  std::vector<FileReader> files;
  for (const InventoryFile& file : inventory.files) {
    TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(file.path));
    TALLY_RETURN_IF_ERROR(reader.CheckUnchanged(file));
    files.push_back(std::move(reader));
  }
  return files;
}

// Of a thread that reads.
struct Room {
  AnonymousMemory memory;  // for stretches
  AlignedBuffer<uint8_t> staging;
};

// Room for stretches of `most` bytes together, with what puts each on its place in a page.
Status MakeRooms(uint64_t most, uint64_t staging, std::span<Room> rooms) {
  for (Room& room : rooms) {
    TALLY_ASSIGN_OR_RETURN(room.memory, AnonymousMemory::Allocate(most, /*huge=*/true));
    if (!room.staging.Resize(staging)) return NoRoom("not enough memory to read weights through");
  }
  return {};
}

// Offsets of weights' slices in their records.
class PartOffsets {
 public:
  void Add(const ExpertRecords& record) {
    for (const ExpertRecords::Part& part : record.parts) offsets_.emplace_back(part.weight, part.offset);
  }
  void Sort() { std::ranges::sort(offsets_); }
  uint64_t Of(WeightId weight) const {
    return std::ranges::lower_bound(offsets_, weight, {}, &std::pair<WeightId, uint64_t>::first)->second;
  }

 private:
  std::vector<std::pair<WeightId, uint64_t>> offsets_;
};

// A piece is a job of the layer: a matrix, or those that are stored together.
class SourceRecords final : public RecordReader {
 public:
  SourceRecords(std::shared_ptr<const Inventory> inventory, std::shared_ptr<const WeightPlan> plan)
      : inventory_(std::move(inventory)), plan_(std::move(plan)), jobs_(MakeJobs(*plan_, /*streamed=*/true)) {}

  Status Open(const std::vector<ExpertRecords>& records) {
    TALLY_ASSIGN_OR_RETURN(files_, OpenFiles(*inventory_));
    uint64_t most = 0;
    for (const ExpertRecords& layer : records) {
      std::vector<const Job*>& own = jobs_of_.emplace_back();
      offsets_.Add(layer);
      for (const Job& job : jobs_) {
        if (job.weights[0]->layer != layer.layer) continue;
        own.push_back(&job);
        uint64_t bytes = 0;
        for (const Stretch& s : StretchesOf(*job.weights[0], 0)) bytes += s.size + kWeightPage;
        most = std::max(most, bytes);
      }
    }
    offsets_.Sort();
    room_ = most;
    return MakeRooms(most, StagingBytes(jobs_), rooms_);
  }

  int pieces(size_t layer) const override { return static_cast<int>(jobs_of_[layer].size()); }

  uint64_t bytes(size_t layer) const override {
    uint64_t sum = 0;
    for (const Job* job : jobs_of_[layer]) {
      for (const Stretch& s : StretchesOf(*job->weights[0], 0)) sum += s.size;
    }
    return sum;
  }

  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int thread) const override {
    const Job& job = *jobs_of_[layer][static_cast<size_t>(piece)];
    Room& own = rooms_[static_cast<size_t>(thread)];
    Stretches reader(files_, own.memory.data(), room_);
    for (const Stretch& s : StretchesOf(*job.weights[0], expert)) TALLY_RETURN_IF_ERROR(reader.Load(s));
    const PlaceSlice place = [&](const PlannedWeight& w, int64_t) { return slot + offsets_.Of(w.view.id); };
    for (int64_t block = 0; block < job.blocks; ++block) {
      TALLY_RETURN_IF_ERROR(LoadItem(reader, place, job, expert * job.blocks + block, own.staging.data()));
    }
    for (const Stretch& s : StretchesOf(*job.weights[0], expert)) {  // a checkpoint has no checksums
      TALLY_RETURN_IF_ERROR(files_[s.tensor->file].CheckUnchanged(inventory_->files[s.tensor->file]));
    }
    return {};
  }

 private:
  static std::vector<Stretch> StretchesOf(const PlannedWeight& w, int64_t slice) {
    std::vector<Stretch> stretches;
    const auto add = [&](const StoredTensor* t, bool whole) {
      const uint64_t size = whole ? t->bytes : t->bytes / static_cast<uint64_t>(w.all_slices);
      stretches.push_back({t, whole ? 0 : size * static_cast<uint64_t>(w.held.slices.begin + slice), size});
    };
    for (const std::vector<const StoredTensor*>* tensors : {&w.sources, &w.scales}) {
      if (tensors->empty()) continue;
      if (w.source_per_slice) {
        add((*tensors)[static_cast<size_t>(slice)], true);
      } else {
        for (const StoredTensor* t : *tensors) add(t, false);
      }
    }
    return stretches;
  }

  const std::shared_ptr<const Inventory> inventory_;
  const std::shared_ptr<const WeightPlan> plan_;
  const std::vector<Job> jobs_;
  std::vector<FileReader> files_;
  std::vector<std::vector<const Job*>> jobs_of_;  // [layers]
  PartOffsets offsets_;
  uint64_t room_ = 0;
  mutable std::array<Room, kThreads> rooms_;  // each is one thread's
};

// A piece is some items of a job of the layer.
class SourceLayers final : public RecordReader {
 public:
  SourceLayers(std::shared_ptr<const Inventory> inventory, std::shared_ptr<const WeightPlan> plan)
      : inventory_(std::move(inventory)), plan_(std::move(plan)), jobs_(MakeJobs(*plan_, /*streamed=*/true)) {}

  Status Open(const std::vector<ExpertRecords>& layers) {
    TALLY_ASSIGN_OR_RETURN(files_, OpenFiles(*inventory_));
    for (const ExpertRecords& record : layers) {
      offsets_.Add(record);
      Layer& layer = layers_.emplace_back();
      for (const Job& job : jobs_) {
        if (job.weights[0]->layer == record.layer) Cut(job, layer);
      }
      for (const Piece& piece : layer.pieces) {
        uint64_t bytes = 0;
        for (const Stretch& s : piece.stretches) {
          bytes += s.size + kWeightPage;
          layer.bytes += s.size;
        }
        room_ = std::max(room_, bytes);
      }
    }
    offsets_.Sort();
    return MakeRooms(room_, StagingBytes(jobs_), rooms_);
  }

  int pieces(size_t layer) const override { return static_cast<int>(layers_[layer].pieces.size()); }
  uint64_t bytes(size_t layer) const override { return layers_[layer].bytes; }

  Status Read(size_t layer, int64_t, int piece, uint8_t* slot, int thread) const override {
    const Piece& p = layers_[layer].pieces[static_cast<size_t>(piece)];
    Room& own = rooms_[static_cast<size_t>(thread)];
    Stretches reader(files_, own.memory.data(), room_);
    for (const Stretch& s : p.stretches) TALLY_RETURN_IF_ERROR(reader.Load(s));
    const PlaceSlice place = [&](const PlannedWeight& w, int64_t slice) {
      return slot + offsets_.Of(w.view.id) + static_cast<uint64_t>(slice) * w.view.slice_stride;
    };
    for (int64_t i = p.begin; i < p.end; ++i) TALLY_RETURN_IF_ERROR(LoadItem(reader, place, *p.job, i, own.staging.data()));
    return {};
  }

 private:
  static constexpr uint64_t kPieceBytes = uint64_t{4} << 20;  // from which on a piece has no further items
  static constexpr uint64_t kGap = uint64_t{64} << 10;        // that is read through
  struct Piece {
    const Job* job = nullptr;
    int64_t begin = 0, end = 0;  // items
    std::vector<Stretch> stretches = {};
  };
  struct Layer {
    std::vector<Piece> pieces;
    uint64_t bytes = 0;
  };

  static void Cut(const Job& job, Layer& layer) {
    const int64_t items = job.blocks * job.weights[0]->view.slices;
    std::vector<TensorRange> ranges;
    for (int64_t i = 0; i < items;) {
      Piece& piece = layer.pieces.emplace_back(Piece{.job = &job, .begin = i});
      ranges.clear();
      for (uint64_t bytes = 0; i < items && bytes < kPieceBytes; ++i) {
        const size_t before = ranges.size();
        AppendRanges(job, i, &ranges);
        if (ranges.size() == before) AddWhole(*job.weights[0], &ranges);
        for (size_t r = before; r < ranges.size(); ++r) bytes += ranges[r].size;
      }
      piece.end = i;
      piece.stretches = Joined(ranges);
    }
  }
  // Of items that read a little of every row.
  static void AddWhole(const PlannedWeight& w, std::vector<TensorRange>* ranges) {
    for (const std::vector<const StoredTensor*>* tensors : {&w.sources, &w.scales}) {
      for (const StoredTensor* t : *tensors) ranges->push_back({t, 0, t->bytes});
    }
  }
  static std::vector<Stretch> Joined(std::vector<TensorRange>& ranges) {
    std::ranges::sort(ranges, [](const TensorRange& a, const TensorRange& b) {
      return std::tuple(a.tensor->file, a.tensor->offset, a.offset) < std::tuple(b.tensor->file, b.tensor->offset, b.offset);
    });
    std::vector<Stretch> stretches;
    for (const TensorRange& r : ranges) {
      if (!stretches.empty() && stretches.back().tensor == r.tensor) {
        Stretch& last = stretches.back();
        if (r.offset <= last.offset + last.size + kGap) {
          last.size = std::max(last.size, r.offset + r.size - last.offset);
          continue;
        }
      }
      stretches.push_back({r.tensor, r.offset, r.size});
    }
    return stretches;
  }

  const std::shared_ptr<const Inventory> inventory_;
  const std::shared_ptr<const WeightPlan> plan_;
  const std::vector<Job> jobs_;
  std::vector<FileReader> files_;
  std::vector<Layer> layers_;
  PartOffsets offsets_;
  uint64_t room_ = 0;
  mutable std::array<Room, kThreads> rooms_;  // each is one thread's
};

}  // namespace

Result<std::unique_ptr<RecordReader>> OpenSourceLayers(std::shared_ptr<const Inventory> inventory,
                                                       std::shared_ptr<const WeightPlan> plan,
                                                       const std::vector<ExpertRecords>& layers) {
  auto reader = std::make_unique<SourceLayers>(std::move(inventory), std::move(plan));
  TALLY_RETURN_IF_ERROR(reader->Open(layers));
  return std::unique_ptr<RecordReader>(std::move(reader));
}

Result<std::unique_ptr<RecordReader>> OpenSourceRecords(std::shared_ptr<const Inventory> inventory,
                                                        std::shared_ptr<const WeightPlan> plan,
                                                        const std::vector<ExpertRecords>& records) {
  auto reader = std::make_unique<SourceRecords>(std::move(inventory), std::move(plan));
  TALLY_RETURN_IF_ERROR(reader->Open(records));
  return std::unique_ptr<RecordReader>(std::move(reader));
}

}  // namespace tally
