// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/packed_records.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/machine/machine.h"

namespace tally {
namespace {

constexpr uint64_t kLargePart = uint64_t{4} << 20;  // records with smaller parts are read as one

class PackedRecords final : public RecordReader {
 public:
  PackedRecords(PackedFile file, const std::vector<ExpertRecords>& slots) : file_(std::move(file)), slots_(slots) {}

  // Slots of plans with guards have their parts elsewhere than the file: a record goes through memory of the thread.
  Status MakeRoom(const WeightPlan& plan) {
    uint64_t most = 0;
    for (size_t layer = 0; layer < slots_.size(); ++layer) {
      std::vector<uint64_t>& bytes = part_bytes_.emplace_back();
      for (const ExpertRecords::Part& part : slots_[layer].parts) bytes.push_back(plan.weights[part.weight].slice_bytes);
      most = std::max(most, file_.records()[layer].bytes);
    }
    guarded_ = plan.guarded;
    if (!guarded_) return {};
    for (AnonymousMemory& room : rooms_) {
      TALLY_ASSIGN_OR_RETURN(room, AnonymousMemory::Allocate(most, /*huge=*/true));
    }
    return {};
  }

  int pieces(size_t layer) const override {
    const ExpertRecords& record = file_.records()[layer];
    const bool large = record.bytes / record.parts.size() >= kLargePart;
    return large && !guarded_ ? static_cast<int>(record.parts.size()) : 1;
  }
  uint64_t bytes(size_t layer) const override { return file_.records()[layer].bytes; }

  Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int thread) const override {
    const ExpertRecords& record = file_.records()[layer];
    if (!guarded_ && pieces(layer) == 1) return file_.ReadRecord(layer, expert, slot);
    const size_t part = static_cast<size_t>(piece);
    if (!guarded_) return file_.ReadPart(layer, expert, part, slot + slots_[layer].parts[part].offset);
    const uint8_t* const room = rooms_[static_cast<size_t>(thread)].data();
    TALLY_RETURN_IF_ERROR(file_.ReadRecord(layer, expert, rooms_[static_cast<size_t>(thread)].data()));
    for (size_t i = 0; i < record.parts.size(); ++i) {
      std::memcpy(slot + slots_[layer].parts[i].offset, room + record.parts[i].offset, part_bytes_[layer][i]);
    }
    return {};
  }

 private:
  const PackedFile file_;
  const std::vector<ExpertRecords> slots_;  // as they are in memory
  std::vector<std::vector<uint64_t>> part_bytes_;
  bool guarded_ = false;
  std::array<AnonymousMemory, RecordReader::kThreads> rooms_;  // of each thread
};

// A piece is a run of extents that follow one another in the file and in the slot.
class PackedLayers final : public RecordReader {
 public:
  explicit PackedLayers(PackedFile file) : file_(std::move(file)) {}

  Status FindPieces(const WeightPlan& plan, const std::vector<ExpertRecords>& layers) {
    guarded_ = plan.guarded;
    uint64_t most = 0;
    for (const ExpertRecords& record : layers) {
      Layer& layer = layers_.emplace_back();
      const auto part_of = [&](WeightId id) { return std::ranges::find(record.parts, id, &ExpertRecords::Part::weight); };
      layer.extents = file_.ExtentsOf(plan, [&](const PlannedWeight& w, int64_t) {
        return w.layer == record.layer && part_of(w.view.id) != record.parts.end();
      });
      for (size_t i = 0; i < layer.extents.size(); ++i) {
        const PackedFile::Extent& e = layer.extents[i];
        const PlannedWeight& w = plan.weights[e.weight];
        const uint64_t to = part_of(e.weight)->offset + static_cast<uint64_t>(e.slice) * w.view.slice_stride + e.begin;
        layer.bytes += e.bytes;
        if (!layer.pieces.empty() && !guarded_) {
          Piece& last = layer.pieces.back();
          const PackedFile::Extent& before = layer.extents[i - 1];
          if (before.offset + before.bytes == e.offset && last.to + last.bytes == to && last.bytes + e.bytes <= kMostBytes) {
            last.bytes += e.bytes;
            ++last.extents;
            continue;
          }
        }
        layer.pieces.push_back(
            {.first = i, .extents = 1, .to = to, .bytes = e.bytes, .own = std::min(e.bytes, w.slice_bytes - e.begin)});
        most = std::max(most, e.bytes);
      }
      layer.checked = std::make_unique<std::atomic<bool>[]>(layer.pieces.size());
    }
    if (!guarded_) return {};
    for (AnonymousMemory& room : rooms_) {
      TALLY_ASSIGN_OR_RETURN(room, AnonymousMemory::Allocate(most, /*huge=*/true));
    }
    return {};
  }

  int pieces(size_t layer) const override { return static_cast<int>(layers_[layer].pieces.size()); }
  uint64_t bytes(size_t layer) const override { return layers_[layer].bytes; }

  Status Read(size_t layer, int64_t, int piece, uint8_t* slot, int thread) const override {
    const Layer& own = layers_[layer];
    const Piece& p = own.pieces[static_cast<size_t>(piece)];
    std::atomic<bool>& checked = own.checked[static_cast<size_t>(piece)];
    uint8_t* const to = guarded_ ? rooms_[static_cast<size_t>(thread)].data() : slot + p.to;
    const bool check = !checked.load(std::memory_order_relaxed);
    TALLY_RETURN_IF_ERROR(file_.ReadExtents(std::span(own.extents).subspan(p.first, p.extents), check, to));
    checked.store(true, std::memory_order_relaxed);
    if (guarded_) std::memcpy(slot + p.to, to, p.own);
    return {};
  }

 private:
  static constexpr uint64_t kMostBytes = uint64_t{4} << 20;  // of a piece
  struct Piece {
    size_t first = 0, extents = 0;
    uint64_t to = 0, bytes = 0;  // in the slot; of guarded slots, where no slice ends on a page, an extent's
    uint64_t own = 0;            // of a guarded one: without what fills the slice's last page
  };
  struct Layer {
    std::vector<PackedFile::Extent> extents;
    std::vector<Piece> pieces;
    uint64_t bytes = 0;
    std::unique_ptr<std::atomic<bool>[]> checked;  // [pieces]: its checksums have agreed
  };
  const PackedFile file_;
  std::vector<Layer> layers_;
  bool guarded_ = false;
  std::array<AnonymousMemory, kThreads> rooms_;  // of each thread, with guards
};

}  // namespace

Result<std::unique_ptr<RecordReader>> OpenPackedLayers(const Inventory& inventory, const WeightPlan& plan,
                                                       const std::vector<ExpertRecords>& layers, PackedFile::ReadBytes read) {
  TALLY_ASSIGN_OR_RETURN(PackedFile file, PackedFile::Open(inventory, plan, std::move(read)));
  auto reader = std::make_unique<PackedLayers>(std::move(file));
  TALLY_RETURN_IF_ERROR(reader->FindPieces(plan, layers));
  return std::unique_ptr<RecordReader>(std::move(reader));
}

Result<std::unique_ptr<RecordReader>> OpenPackedRecords(const Inventory& inventory, const WeightPlan& plan,
                                                        const std::vector<ExpertRecords>& records, PackedFile::ReadBytes read) {
  TALLY_ASSIGN_OR_RETURN(PackedFile file, PackedFile::Open(inventory, plan, std::move(read)));
  if (file.records().size() != records.size()) return InternalError("records of another plan");
  for (size_t i = 0; i < records.size(); ++i) {
    const ExpertRecords &own = file.records()[i], &slots = records[i];
    if (own.layer != slots.layer || own.experts != slots.experts || own.parts.size() != slots.parts.size()) {
      return InternalError("records of another plan");
    }
    for (size_t p = 0; p < own.parts.size(); ++p) {
      if (own.parts[p].weight != slots.parts[p].weight) return InternalError("records of another plan");
    }
  }
  auto reader = std::make_unique<PackedRecords>(std::move(file), records);
  TALLY_RETURN_IF_ERROR(reader->MakeRoom(plan));
  return std::unique_ptr<RecordReader>(std::move(reader));
}

}  // namespace tally
