// SPDX-License-Identifier: Apache-2.0
// Experts of a model that is larger than memory: each layer has slots for some of its experts, and reads others from disk when rows choose
// them.
//
// A slot holds one record (records.h). What is dropped for an expert that is read is the least recently used of its layer, as if the rows
// of a step ran one after another; decisions depend on the chosen experts alone, never on time, so that two runs agree. What a kernel
// computes does not depend on them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/base/status.h"
#include "engine/weights/record_reads.h"
#include "engine/weights/records.h"

namespace tally {

// An expert that rows of a step chose. last_row: the last of these.
struct ExpertUse {
  int32_t expert = 0;
  int32_t last_row = 0;
};

class ExpertStore {
 public:
  // slots: of each layer, at least 1 and at most its experts. `guarded`: pages of slots may be protected for an audit, so that they are
  // filled through a view of their own, and none is huge. kNoRoom: memory or threads.
  static Result<std::unique_ptr<ExpertStore>> Create(std::vector<ExpertRecords> layers, std::vector<int64_t> slots, bool guarded,
                                                     std::unique_ptr<RecordReader> reader);
  ~ExpertStore();
  ExpertStore(const ExpertStore&) = delete;
  ExpertStore& operator=(const ExpertStore&) = delete;

  const std::vector<ExpertRecords>& layers() const { return records_; }
  // The index in layers() of a layer of the model; -1: none.
  int64_t IndexOf(int32_t layer) const;
  uint64_t DiskBytes(size_t layer) const { return reads_->reader().bytes(layer); }
  int64_t slots(size_t layer) const { return static_cast<int64_t>(layers_[layer].slots.size()); }
  // As kernels see them: all slots, layer by layer; each has a record's bytes.
  std::span<const uint8_t> memory() const { return memory_.view(); }
  // Where the slices of the weight are (WeightView::slots); null if it is in no record.
  const uint8_t* const* Table(WeightId weight) const;
  // Called on the thread of a visit before a slot changes hands: nothing touches it, and what it holds is still there. Null: no more calls.
  // Not during a visit.
  using BeforeRefill = std::function<void(size_t layer, int32_t expert)>;
  void SetBeforeRefill(BeforeRefill hook) { before_refill_ = std::move(hook); }

  // Reads every record once, past the slots; calls fn(layer, expert, record) for each from RecordReader::kThreads threads at a time,
  // `record` laid out as a slot. Between visits. kUnreadable, naming layer and expert.
  Status ForEachRecord(const std::function<void(size_t layer, int64_t expert, const uint8_t* record)>& fn);

  // The use of a layer's experts by a step. One at a time in the process: Begin waits for its turn.
  class Visit {
   public:
    Visit(Visit&& o) noexcept;
    Visit& operator=(Visit&&) = delete;
    ~Visit();  // waits for reads that have begun
    // Experts that are in memory, ascending.
    std::span<const int32_t> hits() const { return hits_; }
    // The others, in the order in which they are to be used.
    std::span<const int32_t> misses() const { return misses_; }
    uint64_t first_uses() const { return first_uses_; }  // misses that were never read before
    // The work on the hits is done: their slots may be taken. To be called before the first Wait.
    void FreeHits();
    // Until misses()[i] is in memory; i ascending, each once. kUnreadable, naming layer and expert: it could not be read, twice.
    Status Wait(size_t i);
    void Free(size_t i);  // the work on it is done

   private:
    friend class ExpertStore;
    enum class State : uint8_t { kWaiting, kReading, kFreed };
    Visit(ExpertStore& store, size_t layer) : store_(&store), layer_(layer), turn_(store.turn_) {}
    void StartReads();
    int64_t FindSlot() const;

    ExpertStore* store_;
    size_t layer_;
    std::unique_lock<std::mutex> turn_;
    std::vector<int32_t> hits_, misses_;
    std::vector<State> state_;  // of misses_
    size_t next_ = 0;           // the first miss that is not being read
    bool hits_freed_ = false;
    uint64_t first_uses_ = 0;
  };
  // uses: ascending by expert, each once.
  Visit Begin(size_t layer, std::span<const ExpertUse> uses);

 private:
  struct Slot {
    int32_t expert = -1;  // -1: empty
    uint64_t used = 0;    // larger: later
    bool busy = false;    // in use by the visit
    bool kept = false;    // among the most recently used ones at the end of the visit
    RecordReads::Read read;
  };
  struct Layer {
    uint64_t offset = 0;  // of the first slot
    std::vector<Slot> slots;
    std::vector<int32_t> slot_of;                     // [experts]; -1: not in memory
    std::vector<uint64_t> wanted;                     // [experts]: Slot::used of those that the visit reads
    std::vector<bool> keep;                           // [experts]: the same for Slot::kept
    std::vector<bool> seen;                           // [experts]: was read before
    std::vector<std::vector<const uint8_t*>> tables;  // [parts][experts]
  };

  explicit ExpertStore(std::vector<ExpertRecords> records) : records_(std::move(records)) {}
  uint64_t OffsetOf(size_t layer, int64_t slot) const {
    return layers_[layer].offset + static_cast<uint64_t>(slot) * records_[layer].bytes;
  }
  Status Named(size_t layer, int64_t expert, const Status& status) const;  // an error of the expert's record
  void Put(size_t layer, int64_t slot, int32_t expert);
  void Drop(size_t layer, int64_t slot);

  const std::vector<ExpertRecords> records_;
  SlotMemory memory_;
  BeforeRefill before_refill_;
  std::vector<Layer> layers_;
  uint64_t clock_ = 0;  // visits
  std::mutex turn_;     // held by the visit
  std::unique_ptr<RecordReads> reads_;
};

}  // namespace tally
