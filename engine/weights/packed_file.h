// SPDX-License-Identifier: Apache-2.0
// Packed files: the weights of a model as they lie in memory, so that loading is reading. loaders/inventory/packed_header.h describes
// the file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/weights/item_loader.h"
#include "engine/weights/plan.h"
#include "engine/weights/records.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/inventory.h"
#include "loaders/inventory/packed_header.h"

namespace tally {

// Raised when the bytes of a slice change for the same weight: a packed file of another version is refused.
inline constexpr uint32_t kPackedLayoutVersion = 1;
// The instruction families that share a layout of panels. There is one (weight_view.h).
inline constexpr std::string_view kPackedFamily = "panel16";

PackedWeight PackedWeightOf(const PlannedWeight& w);

// Where the slices of weights lie in the data of a packed file: first the slices of dense weights, in the plan's order, then the records of
// experts, in order of layer and expert. Everything starts on a page of kWeightPage bytes. The same for plans with and without guards.
class PackedLayout {
 public:
  PackedLayout() = default;
  // kBadInput: sizes that no file can have. `place`: the file's name, for messages.
  static Result<PackedLayout> Of(const WeightPlan& plan, const std::string& place);
  static Result<PackedLayout> Of(std::vector<PackedWeight> weights, const std::string& place);

  struct Piece {
    uint64_t offset = 0;  // in the data
    uint64_t bytes = 0;   // of the packed slice, without what fills its last page
    uint64_t first_sum =
        0;  // index of its first checksum; each covers kPackedBlock bytes of the slice with its filled page, or what is left
  };
  Piece SliceOf(size_t weight, int64_t slice) const;

  // The layers with experts, as ExpertRecordsOf gives them; Part::weight is an index into weights().
  const std::vector<ExpertRecords>& records() const { return records_; }
  uint64_t RecordOffset(size_t layer, int64_t expert) const;  // in the data
  const std::vector<PackedWeight>& weights() const { return weights_; }
  uint64_t dense_bytes() const { return dense_bytes_; }
  uint64_t data_bytes() const { return data_bytes_; }
  uint64_t sums() const { return sums_; }  // number of checksums

 private:
  struct Place {
    uint64_t offset = 0, stride = 0;         // of slices
    uint64_t first_sum = 0, sum_stride = 0;  // of a slice's
  };
  std::vector<PackedWeight> weights_;
  std::vector<Place> places_;  // of each weight
  std::vector<ExpertRecords> records_;
  std::vector<uint64_t> record_offsets_;  // of each layer's first record
  uint64_t dense_bytes_ = 0, data_bytes_ = 0, sums_ = 0;
};

// Reads a packed file. Holds it open: removing or replacing it does no harm. Movable; all const members may be called from any thread.
class PackedFile {
 public:
  // Bytes [offset, offset + out.size()) of the file.
  using ReadBytes = std::function<Status(uint64_t offset, std::span<uint8_t> out)>;

  // `inventory` was read from the packed file, and `plan` made from it. Points into neither afterwards. kBadInput, naming the file: it has
  // changed since its header was read, has another version, family or shard, or does not hold the plan's weights with the plan's shapes
  // and types (it may hold more). `read`: in place of reading the file, for tests of read errors.
  static Result<PackedFile> Open(const Inventory& inventory, const WeightPlan& plan, ReadBytes read = {});
  PackedFile(PackedFile&&) noexcept;
  PackedFile& operator=(PackedFile&&) noexcept;
  ~PackedFile();

  // The plan's layers with experts, in the order of ExpertRecordsOf(plan). Part::weight is the plan's; offsets and bytes are those of the
  // file, which equal ExpertRecordsOf's where the plan has no guards.
  const std::vector<ExpertRecords>& records() const;
  // Reads the record of an expert of records()[layer] into `out`, records()[layer].bytes bytes on a page boundary, by one direct read.
  // Checks its checksums at its first read in this object's life, and at each read that nobody has written to the file since its header was
  // read. A read error, or a checksum that does not agree, is read once more; then the error (kBadInput) names file and offset. `out` is
  // undefined then.
  Status ReadRecord(size_t layer, int64_t expert, uint8_t* out) const;
  // The same for one of the record's parts alone, with what fills its last page; `out` is where the part begins.
  Status ReadPart(size_t layer, int64_t expert, size_t part, uint8_t* out) const;

  // A part of a slice of the plan's: as much as is read at a time.
  struct Extent {
    WeightId weight = kNoWeight;
    int64_t slice = 0;
    uint64_t begin = 0, bytes = 0;  // in the slice with its filled page
    uint64_t offset = 0;            // in the file's data
    uint64_t first_sum = 0;         // index of its first checksum
  };
  // Those of all slices of the plan's weights that are wanted, from front to back in the file.
  std::vector<Extent> ExtentsOf(const WeightPlan& plan,
                                const std::function<bool(const PlannedWeight&, int64_t slice)>& wanted) const;
  // Reads extents that follow one another in the file into `out`, a page boundary, by one direct read. `check`: their checksums too. A read
  // error, or a checksum that does not agree, is read once more; then the error (kBadInput) names file and offset.
  Status ReadExtents(std::span<const Extent> extents, bool check, uint8_t* out) const;

  // Reads all slices of the plan that `place` has a place for (null: none, such as experts that a store reads), on several threads of
  // its own besides the caller's, checks them and puts them there. `plan`: as Open had it. Places that start on pages, as those of plans
  // without guards do, get what fills a slice's last page too: zeros. progress, beside: as LoadWeights has them, with bytes of the file;
  // both on the calling thread.
  Status ReadSlices(const WeightPlan& plan, const PlaceSlice& place, const LoadProgress& progress,
                    const std::function<void()>& beside = {}) const;
  // The stored bytes of a tensor that is no weight (WeightPlan::host_vectors). kBadInput: the file has none, or other ones.
  Result<std::span<const uint8_t>> Buffer(const StoredTensor& t) const;

 private:
  PackedFile();
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tally
