// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/packed_records.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

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
  std::array<AnonymousMemory, ExpertStore::kReaders> rooms_;  // of each thread
};

}  // namespace

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
