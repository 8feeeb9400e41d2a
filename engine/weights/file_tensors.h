// SPDX-License-Identifier: Apache-2.0
// Reads the files of a checkpoint for a load: what the page cache holds from there, the rest at the disk's own speed by threads that read
// ahead of those that pack.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/machine/machine.h"
#include "engine/weights/item_loader.h"
#include "engine/weights/plan.h"
#include "loaders/inventory/file_reader.h"

namespace tally {

// Most bytes that are read ahead, in all windows together.
inline constexpr uint64_t kMostReadAhead = uint64_t{48} << 20;

// Bytes [offset, offset + size) of a file.
struct FileRange {
  size_t file = 0;
  uint64_t offset = 0, size = 0;
};

// Ranges of files that were read into memory, each from a page on. One thread at a time uses it.
class Window {
 public:
  struct Held {
    FileRange range;
    const uint8_t* data = nullptr;  // of its first byte
  };
  // Null: the window does not hold all of it.
  const uint8_t* Find(const FileRange& range) const;

 private:
  friend class ReadAhead;
  uint8_t* room_ = nullptr;
  std::vector<Held> held_;
};

// Reads tensors from a window where it holds them, else from their file.
class FileTensors final : public TensorReader {
 public:
  // `forget`: the system is told to drop its copy of what was read. The arguments must outlive this.
  FileTensors(const std::vector<FileReader>& files, const WeightPlan& plan, bool forget, const Window* window = nullptr)
      : files_(files), head_(plan.stored_head), embedding_(plan.embedding), window_(window), forget_(forget) {}
  // kBadInput, besides what FileReader has: bytes of the embedding are not those of the head that is stored beside it.
  Status Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const override;
  std::string FileOf(const StoredTensor& t) const override;

 private:
  Status CompareHead(uint64_t offset, std::span<const uint8_t> bytes) const;

  const std::vector<FileReader>& files_;
  const StoredTensor *head_, *embedding_;  // the head that is stored beside a tied embedding; null: none
  const Window* window_;
  bool forget_;
};

// Items that a thread loads at a time, and the ranges of files that they read.
struct ItemRun {
  int64_t first_item = 0, items = 0;
  std::vector<FileRange> ranges;  // sorted; empty: more than a window holds
};

// The runs of a load, in order. Two threads that write to one huge page for the first time would both clear it: a run has several pages.
std::vector<ItemRun> MakeRuns(std::span<const Job> jobs, const WeightPlan& plan);

// Some threads (Read) read runs ahead, others (Take) load them; each run is taken once. A run of which the page cache holds most, or that
// cannot be read past it, is given out without a window.
class ReadAhead {
 public:
  // `may_cache`: there is room for copies of the files. A disk that is slow enough for it is then read through the page cache, so that the
  // next load finds them there. The arguments must outlive this.
  ReadAhead(const std::vector<FileReader>& files, const std::vector<ItemRun>& runs, bool may_cache);

  int readers() const;  // that are of use
  // So many calls of Read are under way or will be. Before the first Take.
  void Expect(int readers);
  // The work of a reader; returns when all runs are read or Stop was called. Without readers, Take gives runs out itself.
  void Read();
  struct Taken {
    const ItemRun* run = nullptr;
    Window* window = nullptr;  // null: read from the files
  };
  // Waits for a run. Empty: all were taken, or Stop was called.
  std::optional<Taken> Take();
  void GiveBack(Window* window);  // null: nothing happens
  void Stop();

 private:
  bool IsCold(const ItemRun& run) const;
  bool Fill(const ItemRun& run, Window* window);

  const std::vector<FileReader>& files_;
  const std::vector<ItemRun>& runs_;
  const bool may_cache_;
  AnonymousMemory memory_;
  std::vector<Window> windows_;

  std::mutex mutex_;
  std::condition_variable ready_, freed_;
  std::deque<Taken> read_;  // not taken
  std::vector<Window*> free_;
  size_t next_ = 0;  // run to read
  int readers_ = 0;  // that are expected, or in Read
  bool stopped_ = false;
  std::atomic<uint64_t> bytes_{0}, nanoseconds_{0};  // of direct reads, summed over readers
};

}  // namespace tally
