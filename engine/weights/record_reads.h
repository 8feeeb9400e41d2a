// SPDX-License-Identifier: Apache-2.0
// Records that threads read from disk while others compute. A record is what is read in one go: an expert of a layer, or the matrices of a
// whole layer (records.h).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "engine/base/status.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"

namespace tally {

// Brings records to memory.
class RecordReader {
 public:
  static constexpr int kThreads = 4;  // that read: enough for the rate of the disks that we have measured

  virtual ~RecordReader() = default;
  // Pieces of a record of the layer, which threads read side by side; at least 1.
  virtual int pieces(size_t layer) const = 0;
  virtual uint64_t bytes(size_t layer) const = 0;  // that a record of the layer takes on disk
  // Reads one of them to its place in a slot. `expert`: 0 of whole layers. Any of kThreads threads, by number. Errors name file and place.
  virtual Status Read(size_t layer, int64_t expert, int piece, uint8_t* slot, int thread) const = 0;
};

// The threads that read. A piece that cannot be read is tried once more.
class RecordReads {
 public:
  // A record that is being read: its owner keeps it in place until Wait has returned.
  struct Read {
    int pieces_left = 0;
    Status status;
  };

  // kNoRoom: threads.
  static Result<std::unique_ptr<RecordReads>> Start(std::unique_ptr<RecordReader> reader);
  ~RecordReads();  // reads that have begun end; others do not begin
  RecordReads(const RecordReads&) = delete;
  RecordReads& operator=(const RecordReads&) = delete;

  const RecordReader& reader() const { return *reader_; }
  int threads() const { return threads_.count(); }
  // Begins to read a record into `slot`. Any thread.
  void Begin(size_t layer, int64_t expert, uint8_t* slot, Read& read);
  // Until the record is in memory. The error of one of its pieces.
  Status Wait(Read& read);

 private:
  struct Task {
    Read* read = nullptr;
    size_t layer = 0;
    int64_t expert = 0;
    uint8_t* slot = nullptr;
    int piece = 0;
  };
  explicit RecordReads(std::unique_ptr<RecordReader> reader) : reader_(std::move(reader)) {}
  void RunTasks(int thread);

  const std::unique_ptr<RecordReader> reader_;
  std::mutex mutex_;  // of the members below, and of reads
  std::condition_variable work_, done_;
  std::deque<Task> tasks_;
  bool stop_ = false;
  WaitingThreads threads_;
};

// Memory that records are read to.
class SlotMemory {
 public:
  SlotMemory() = default;
  // `guarded`: its pages may be protected for an audit, so that it is filled through a view of its own, and no page is huge. kNoRoom: no
  // memory.
  static Result<SlotMemory> Allocate(uint64_t bytes, bool guarded);
  std::span<const uint8_t> view() const { return {view_, bytes_}; }  // as kernels read it
  uint8_t* to_fill() const { return mirrored_.size() > 0 ? mirrored_.data() : memory_.data(); }

 private:
  AnonymousMemory memory_;
  MirroredMemory mirrored_;  // in its place, if guarded
  const uint8_t* view_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace tally
