// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/file_tensors.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

#include "engine/base/format.h"

namespace tally {
namespace {

constexpr uint64_t kWindowBytes = uint64_t{4} << 20;  // what a disk reads at its full speed, two huge pages
constexpr uint64_t kGap = uint64_t{64} << 10;         // bytes between ranges that are read rather than skipped
constexpr int64_t kMostItems = 8;                     // of a run
constexpr int kReaders = 4;
// Below this rate, reading through the page cache costs no time. It is known after as many bytes.
constexpr double kSlowDisk = .6e9;
constexpr uint64_t kProbe = uint64_t{128} << 20;

uint64_t Down(uint64_t offset) { return offset / kWeightPage * kWeightPage; }
uint64_t PagesOf(const FileRange& r) { return Down(r.offset + r.size + kWeightPage - 1) - Down(r.offset); }

// Sorts the ranges, joins those that touch or nearly do, and returns the bytes of their pages.
uint64_t Join(std::vector<FileRange>* ranges) {
  std::sort(ranges->begin(), ranges->end(),
            [](const FileRange& a, const FileRange& b) { return std::tuple(a.file, a.offset) < std::tuple(b.file, b.offset); });
  size_t n = 0;
  for (const FileRange r : *ranges) {
    if (r.size == 0) continue;
    FileRange* const last = n > 0 ? &(*ranges)[n - 1] : nullptr;
    if (last != nullptr && last->file == r.file && r.offset <= last->offset + last->size + kGap) {
      last->size = std::max(last->size, r.offset + r.size - last->offset);
    } else {
      (*ranges)[n++] = r;
    }
  }
  ranges->resize(n);
  uint64_t bytes = 0;
  for (const FileRange& r : *ranges) bytes += PagesOf(r);
  return bytes;
}

}  // namespace

const uint8_t* Window::Find(const FileRange& range) const {
  for (const Held& h : held_) {
    const bool inside = h.range.file == range.file && range.offset >= h.range.offset &&
                        range.offset + range.size <= h.range.offset + h.range.size;
    if (inside) return h.data + (range.offset - h.range.offset);
  }
  return nullptr;
}

Status FileTensors::Read(const StoredTensor& t, uint64_t offset, uint64_t size, uint8_t* out) const {
  const uint8_t* const held = window_ == nullptr ? nullptr : window_->Find({t.file, t.offset + offset, size});
  if (held != nullptr) {
    std::memcpy(out, held, size);
  } else {
    const Status status = files_[t.file].ReadAt(t.offset + offset, {out, size});
    if (!status.ok()) return {status.code(), status.message() + " (tensor " + Quote(t.name) + ")"};
    if (forget_) files_[t.file].Forget(t.offset + offset, size);
  }
  return head_ != nullptr && &t == embedding_ ? CompareHead(offset, {out, size}) : Status();
}

std::string FileTensors::FileOf(const StoredTensor& t) const { return Printable(files_[t.file].path()); }

// Compares bytes of the embedding with those of the stored head.
Status FileTensors::CompareHead(uint64_t offset, std::span<const uint8_t> bytes) const {
  std::array<uint8_t, size_t{1} << 15> piece;
  for (size_t at = 0; at < bytes.size(); at += piece.size()) {
    const size_t n = std::min(piece.size(), bytes.size() - at);
    TALLY_RETURN_IF_ERROR(Read(*head_, offset + at, n, piece.data()));
    if (std::memcmp(piece.data(), bytes.data() + at, n) != 0) return HeadDiffers(FileOf(*head_), *head_, *embedding_);
  }
  return {};
}

std::vector<ItemRun> MakeRuns(std::span<const Job> jobs, const WeightPlan& plan) {
  std::vector<ItemRun> runs;
  std::vector<TensorRange> tensors;
  int64_t next = 0;
  for (const Job& job : jobs) {
    for (int64_t item = 0; item < job.blocks * job.weights[0]->view.slices; ++item, ++next) {
      tensors.clear();
      AppendRanges(job, item, &tensors);
      std::vector<FileRange> own;
      for (const TensorRange& r : tensors) {
        own.push_back({r.tensor->file, r.tensor->offset + r.offset, r.size});
        if (plan.stored_head == nullptr || r.tensor != plan.embedding) continue;
        own.push_back({plan.stored_head->file, plan.stored_head->offset + r.offset, r.size});
      }
      if (!runs.empty() && runs.back().items < kMostItems) {
        std::vector<FileRange> both = runs.back().ranges;
        both.insert(both.end(), own.begin(), own.end());
        const bool alike = runs.back().ranges.empty() == own.empty();
        if (alike && Join(&both) <= kWindowBytes) {
          runs.back().ranges = std::move(both);
          ++runs.back().items;
          continue;
        }
      }
      if (Join(&own) > kWindowBytes) own.clear();
      runs.push_back({next, 1, std::move(own)});
    }
  }
  return runs;
}

ReadAhead::ReadAhead(const std::vector<FileReader>& files, const std::vector<ItemRun>& runs, bool may_cache)
    : files_(files), runs_(runs), may_cache_(may_cache) {
  const size_t n = std::min<size_t>(kMostReadAhead / kWindowBytes, runs.size());
  Result<AnonymousMemory> memory = AnonymousMemory::Allocate(n * kWindowBytes, /*huge=*/true);
  if (n == 0 || !memory.ok()) return;
  memory_ = std::move(memory).value();
  windows_.resize(n);
  for (size_t i = 0; i < n; ++i) {
    windows_[i].room_ = memory_.data() + i * kWindowBytes;
    free_.push_back(&windows_[i]);
  }
}

int ReadAhead::readers() const { return static_cast<int>(std::min<size_t>(kReaders, windows_.size())); }

bool ReadAhead::IsCold(const ItemRun& run) const {
  uint64_t bytes = 0, cached = 0;
  for (const FileRange& r : run.ranges) {
    const FileReader& file = files_[r.file];
    if (!file.direct() || file.direct_alignment() > kWeightPage || r.offset + r.size > file.size()) return false;
    bytes += r.size;
    cached += file.CachedBytes(r.offset, r.size);
  }
  if (2 * cached >= bytes) return false;
  const uint64_t read = bytes_.load(std::memory_order_relaxed);
  const double seconds = 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / kReaders;
  return !may_cache_ || read < kProbe || static_cast<double>(read) >= kSlowDisk * seconds;
}

// False: a read failed. Who loads the run then reads from the files, meets the error again, and reports it.
bool ReadAhead::Fill(const ItemRun& run, Window* window) {
  const auto begin = std::chrono::steady_clock::now();
  window->held_.clear();
  uint64_t at = 0, bytes = 0;
  for (const FileRange& r : run.ranges) {
    const uint64_t from = Down(r.offset), pages = PagesOf(r), size = std::min(pages, files_[r.file].size() - from);
    if (!files_[r.file].ReadDirect(from, {window->room_ + at, size}).ok()) return false;
    window->held_.push_back({{r.file, from, size}, window->room_ + at});
    at += pages;
    bytes += size;
  }
  const auto spent = std::chrono::steady_clock::now() - begin;
  bytes_.fetch_add(bytes, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<uint64_t>(std::chrono::nanoseconds(spent).count()), std::memory_order_relaxed);
  return true;
}

void ReadAhead::Expect(int readers) {
  std::lock_guard lock(mutex_);
  readers_ += readers;
}

void ReadAhead::Read() {
  std::unique_lock lock(mutex_);
  while (!stopped_ && next_ < runs_.size()) {
    const ItemRun& run = runs_[next_++];
    lock.unlock();
    bool cold = IsCold(run);
    lock.lock();
    Window* window = nullptr;
    if (cold) {
      freed_.wait(lock, [&] { return stopped_ || !free_.empty(); });
      if (stopped_) break;
      window = free_.back();
      free_.pop_back();
      lock.unlock();
      cold = Fill(run, window);
      lock.lock();
      if (!cold) free_.push_back(std::exchange(window, nullptr));
    }
    read_.push_back({&run, window});
    ready_.notify_one();
  }
  --readers_;
  ready_.notify_all();
}

std::optional<ReadAhead::Taken> ReadAhead::Take() {
  std::unique_lock lock(mutex_);
  ready_.wait(lock, [&] { return stopped_ || !read_.empty() || readers_ == 0; });
  if (stopped_) return std::nullopt;
  if (!read_.empty()) {
    const Taken taken = read_.front();
    read_.pop_front();
    return taken;
  }
  if (next_ < runs_.size()) return Taken{&runs_[next_++], nullptr};
  return std::nullopt;
}

void ReadAhead::GiveBack(Window* window) {
  if (window == nullptr) return;
  {
    std::lock_guard lock(mutex_);
    free_.push_back(window);
  }
  freed_.notify_one();
}

void ReadAhead::Stop() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  ready_.notify_all();
  freed_.notify_all();
}

}  // namespace tally
