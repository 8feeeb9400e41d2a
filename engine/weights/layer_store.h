// SPDX-License-Identifier: Apache-2.0
// Layers of a model without experts that is larger than memory: the matrices of some layers are read from disk for every step, in their
// order, into slots that they share.
//
// The i-th of these layers has slot i mod 2 for good, so that its weights have fixed addresses. A layer is read as soon as the one before
// it in its slot has run; after the last one come the first ones again, for the next step. What is read depends on nothing but the order.
#pragma once

#include <array>
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

class LayerStore {
 public:
  static constexpr size_t kSlots = 2;

  // `layers`: of LayerRecordsOf. `guarded`: as SlotMemory has it. Begins to read the first ones. kNoRoom: memory or threads.
  static Result<std::unique_ptr<LayerStore>> Create(std::vector<ExpertRecords> layers, bool guarded,
                                                    std::unique_ptr<RecordReader> reader);
  ~LayerStore();
  LayerStore(const LayerStore&) = delete;
  LayerStore& operator=(const LayerStore&) = delete;

  // Bytes of memory that the slots of these layers take, guards not included.
  static uint64_t SlotsBytes(const std::vector<ExpertRecords>& layers);

  const std::vector<ExpertRecords>& layers() const { return records_; }
  // The index in layers() of a layer of the model; -1: it is in memory.
  int64_t IndexOf(int32_t layer) const;
  uint64_t DiskBytes(size_t layer) const { return reads_->reader().bytes(layer); }  // that a step reads of it
  std::span<const uint8_t> memory() const { return memory_.view(); }                // all slots, as kernels see them
  // The layer that is in a slot, or is being read to it. Not during a pass.
  size_t InSlot(size_t slot) const { return slots_[slot].layer; }
  // Where the record of a layer lies, and its weight's first slice; null: the weight is no part of records.
  const uint8_t* RecordOf(size_t layer) const { return memory_.view().data() + layer % kSlots * slot_bytes_; }
  const uint8_t* DataOf(WeightId weight) const;
  // Called on the thread of a pass when a layer has run, before its slot is filled with another: nothing touches it. Null: no more
  // calls. Not during a pass.
  using AfterUse = std::function<void(size_t layer)>;
  void SetAfterUse(AfterUse hook) { after_use_ = std::move(hook); }

  // A step's use of the layers. One at a time in the process: Begin waits for its turn. Where a pass ends before its last layer, the next
  // one reads the first layers again.
  class Pass {
   public:
    // Until the layer is in memory. Layers in their order, each followed by its Free. kUnreadable, naming the layer: it could not be read,
    // twice; the pass then has no further layers.
    Status Wait(size_t layer);
    void Free(size_t layer);  // it has run

   private:
    friend class LayerStore;
    explicit Pass(LayerStore& store) : store_(&store), turn_(store.turn_) {}
    LayerStore* store_;
    std::unique_lock<std::mutex> turn_;
  };
  Pass Begin();

 private:
  struct Slot {
    bool busy = false;  // has a layer that has not run
    size_t layer = 0;
    RecordReads::Read read;
  };
  explicit LayerStore(std::vector<ExpertRecords> records) : records_(std::move(records)) {}
  void StartReads();
  void StartOver();

  const std::vector<ExpertRecords> records_;
  SlotMemory memory_;
  uint64_t slot_bytes_ = 0;
  AfterUse after_use_;
  std::array<Slot, kSlots> slots_;
  size_t next_ = 0;      // the layer that is read next
  size_t expected_ = 0;  // the layer that is to run next; none after an error
  std::mutex turn_;      // held by the pass
  std::unique_ptr<RecordReads> reads_;
};

}  // namespace tally
