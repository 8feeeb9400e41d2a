// SPDX-License-Identifier: Apache-2.0
// Reads pieces of stored tensors and packs them: the work of loading, cut into items that any thread may do.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/weights/plan.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// The most that an item reads at a time: large enough to keep a disk busy, small enough to be packed from the caches.
inline constexpr uint64_t kStagingBytes = uint64_t{1} << 20;

// Where the bytes of tensors come from.
class TensorReader {
 public:
  virtual ~TensorReader() = default;
  // Bytes [offset, offset + size) of a tensor. Any thread.
  virtual Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const = 0;
  virtual std::string FileOf(const StoredTensor& t) const = 0;  // for messages
};

// The first byte of a packed slice of a weight.
using PlaceSlice = std::function<uint8_t*(const PlannedWeight& w, int64_t slice)>;

// A job loads one weight, or all striped weights of one tensor: its rows are read once, and each weight packs its own. A slice is
// loaded in items of up to `block` units; item i of a job is block i % blocks of slice i / blocks.
struct Job {
  std::vector<const PlannedWeight*> weights;
  int64_t extent = 0;  // units of a slice: rows; input rows if transposed; 1 for a vector
  int64_t block = 0;   // units of an item
  int64_t blocks = 0;  // items of a slice
  int64_t first_item = 0;
  // Bytes of a unit in the staging buffer: those read; widened: also its f32; transposed with striped outputs: also the outputs of one
  // weight; FP8: also its blocks.
  uint64_t bytes_per_unit = 0;
  bool widened = false;  // quantised rows that are transposed: an item is staged as a whole
};

// The weights of the plan that are streamed, or the others; in file order, so that files are read from front to back. Points into the plan.
std::vector<Job> MakeJobs(const WeightPlan& plan, bool streamed = false);
// Of the staging buffer that LoadItem needs for items of these jobs.
uint64_t StagingBytes(std::span<const Job> jobs);

// Reads and packs an item. Any thread, each with a staging buffer of its own. Items write to different bytes, so that several may run at a
// time. kBadInput: a vector with values that are not finite; errors of the reader.
Status LoadItem(const TensorReader& reader, const PlaceSlice& place, const Job& job, int64_t item, uint8_t* staging);

// Bytes [offset, offset + size) of a tensor.
struct TensorRange {
  const StoredTensor* tensor = nullptr;
  uint64_t offset = 0, size = 0;
};
// Appends what LoadItem reads for the item, perhaps with bytes that lie between; nothing of tensors that it reads little of. A wish for who
// reads ahead: other reads are right too.
void AppendRanges(const Job& job, int64_t item, std::vector<TensorRange>* ranges);

// Rejects non-finite vectors (norms, biases, sinks). A clamp or softmax could hide an infinity; one in a matrix shows in the logits.
Status CheckFinite(const std::string& file, const StoredTensor& t, std::span<const float> values);

}  // namespace tally
