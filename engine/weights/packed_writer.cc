// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/packed_writer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>

#include "engine/base/aligned.h"
#include "engine/base/checked.h"
#include "engine/base/checksum.h"
#include "engine/machine/machine.h"
#include "engine/weights/load_state.h"

namespace tally {
namespace {

constexpr uint64_t kWriteBytes = uint64_t{8} << 20;  // at a time

// Slices of a weight in a window; or of one slice that is larger than a window, bytes [skip, skip + bytes), from one checksum's block on.
struct HeldSlices {
  WeightId weight = kNoWeight;
  int64_t first = 0, slices = 0;
  uint64_t at = 0, stride = 0;  // of the slices in the window
  uint64_t skip = 0, bytes = 0;
};

// Items of a job that are packed into a window.
struct PackItems {
  const Job* job = nullptr;
  int64_t first_item = 0, items = 0;
};

// What is packed together and then written.
struct PackWindow {
  struct Part {
    uint64_t offset = 0, at = 0, bytes = 0;  // in the data, in the window
  };
  std::vector<PackItems> items;
  std::vector<HeldSlices> slices;
  std::vector<Part> parts;  // one after another in the window
  uint64_t bytes = 0;
};

class WindowMaker {
 public:
  // cut_jobs: takes jobs that windows point to.
  WindowMaker(const WeightPlan& plan, const PackedLayout& layout, uint64_t most, std::deque<Job>& cut_jobs)
      : plan_(plan), layout_(layout), most_(most), cut_jobs_(cut_jobs) {
    for (const ExpertRecords& record : layout.records()) {
      for (const ExpertRecords::Part& part : record.parts) in_records_.insert(part.weight);
    }
  }

  // In the order of the jobs; those of a layer's experts together, as a record has parts of several.
  std::vector<PackWindow> Make(const std::vector<Job>& jobs) {
    std::map<int32_t, std::vector<const Job*>> of_experts;
    for (const Job& job : jobs) {
      if (InRecords(job)) of_experts[job.weights[0]->layer].push_back(&job);
    }
    for (const Job& job : jobs) {
      if (!InRecords(job)) {
        AddDense(job);
        continue;
      }
      const auto found = of_experts.find(job.weights[0]->layer);
      if (found == of_experts.end()) continue;
      AddRecords(found->first, found->second);
      of_experts.erase(found);
    }
    Close();
    return std::move(windows_);
  }

 private:
  bool InRecords(const Job& job) const { return in_records_.contains(job.weights[0]->view.id); }

  void Close() {
    if (open_.bytes > 0) windows_.push_back(std::move(open_));
    open_ = {};
  }

  // Items after which a slice can be cut: they have packed whole blocks of it, and nothing beyond. 0: it cannot.
  static int64_t ItemsOfCut(const Job& job) {
    const PlannedWeight& w = *job.weights[0];
    if (job.weights.size() > 1 || w.vector() || w.transposed() || job.block % kPanelRows != 0)
      return 0;  // transposed: items cut all panels
    return static_cast<int64_t>(kPackedBlock / std::gcd(BytesOfItem(job), kPackedBlock));
  }
  static uint64_t BytesOfItem(const Job& job) {
    const PlannedWeight& w = *job.weights[0];
    const int64_t units = w.view.layout == WeightLayout::kPanel16 ? job.block / kPanelRows : job.block;
    return static_cast<uint64_t>(units) * w.view.panel_stride;
  }

  // A slice that is larger than a window, in parts.
  bool AddParts(const Job& whole, int64_t slice) {
    Job job = whole;  // with items of a power of two of rows, so that few of them are whole blocks
    job.block = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(whole.block)));
    job.blocks = (job.extent + job.block - 1) / job.block;
    const int64_t cut = ItemsOfCut(job);
    const PlannedWeight& w = *job.weights[0];
    if (cut == 0) return false;
    const uint64_t bytes = BytesOfItem(job) * static_cast<uint64_t>(cut);
    const uint64_t all = RoundUp(w.slice_bytes, kWeightPage);
    if (bytes > most_) return false;
    cut_jobs_.push_back(job);
    const int64_t items = static_cast<int64_t>(most_ / bytes) * cut;
    for (int64_t first = 0; first < job.blocks; first += items) {
      Close();
      const int64_t n = std::min(items, job.blocks - first);
      const uint64_t skip = bytes * static_cast<uint64_t>(first / cut);
      const uint64_t own = n == items && first + n < job.blocks ? bytes * static_cast<uint64_t>(n / cut) : all - skip;
      open_.slices.push_back({w.view.id, slice, 1, 0, own, skip, own});
      open_.parts.push_back({layout_.SliceOf(w.view.id, slice).offset + skip, 0, own});
      open_.bytes = own;
      open_.items.push_back({&cut_jobs_.back(), slice * job.blocks + first, n});
    }
    Close();
    return true;
  }

  void AddDense(const Job& job) {
    uint64_t bytes = 0;  // of a slice of all weights
    for (const PlannedWeight* w : job.weights) bytes += RoundUp(w->slice_bytes, kWeightPage);
    const int64_t slices = job.weights[0]->view.slices;
    if (bytes > most_) {
      int64_t added = 0;
      while (added < slices && AddParts(job, added)) ++added;
      if (added > 0) return;
    }
    if (bytes * static_cast<uint64_t>(slices) > most_ - std::min(most_, open_.bytes)) Close();
    const int64_t fit = std::max<int64_t>(1, static_cast<int64_t>(most_ / bytes));
    for (int64_t first = 0; first < slices; first += fit) {
      const int64_t n = std::min(fit, slices - first);
      if (first > 0) Close();
      for (const PlannedWeight* w : job.weights) {
        const uint64_t stride = RoundUp(w->slice_bytes, kWeightPage), all = stride * static_cast<uint64_t>(n);
        open_.slices.push_back({w->view.id, first, n, open_.bytes, stride, 0, stride});
        open_.parts.push_back({layout_.SliceOf(w->view.id, first).offset, open_.bytes, all});
        open_.bytes += all;
      }
      open_.items.push_back({&job, first * job.blocks, n * job.blocks});
    }
  }

  void AddRecords(int32_t layer, const std::vector<const Job*>& jobs) {
    Close();
    const auto record = std::ranges::find(layout_.records(), layer, &ExpertRecords::layer);
    const size_t index = static_cast<size_t>(record - layout_.records().begin());
    const int64_t fit = std::max<int64_t>(1, static_cast<int64_t>(most_ / record->bytes));
    for (int64_t first = 0; first < record->experts; first += fit, Close()) {
      const int64_t n = std::min(fit, record->experts - first);
      for (const ExpertRecords::Part& part : record->parts) {
        const uint64_t bytes = RoundUp(plan_.weights[part.weight].slice_bytes, kWeightPage);
        open_.slices.push_back({part.weight, first, n, part.offset, record->bytes, 0, bytes});
      }
      open_.bytes = record->bytes * static_cast<uint64_t>(n);
      open_.parts.push_back({layout_.RecordOffset(index, first), 0, open_.bytes});
      for (const Job* job : jobs) open_.items.push_back({job, first * job->blocks, n * job->blocks});
    }
  }

  const WeightPlan& plan_;
  const PackedLayout& layout_;
  const uint64_t most_;
  std::deque<Job>& cut_jobs_;
  std::set<WeightId> in_records_;
  PackWindow open_;
  std::vector<PackWindow> windows_;
};

// The buffers that go from who packs to who writes and back.
class Exchange {
 public:
  // An empty buffer; null: stopped.
  AnonymousMemory* TakeEmpty() { return Take(empty_); }
  // A packed one with its window; null: none will come.
  std::pair<AnonymousMemory*, const PackWindow*> TakeFull() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !full_.empty() || ended_ || stopped_; });
    if (full_.empty() || stopped_) return {};
    const auto next = full_.front();
    full_.erase(full_.begin());
    return next;
  }
  void GiveEmpty(AnonymousMemory* buffer) {
    const std::lock_guard lock(mutex_);
    empty_.push_back(buffer);
    changed_.notify_all();
  }
  void GiveFull(AnonymousMemory* buffer, const PackWindow* window) {
    const std::lock_guard lock(mutex_);
    full_.emplace_back(buffer, window);
    changed_.notify_all();
  }
  void End() {  // nothing more will be packed
    const std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  AnonymousMemory* Take(std::vector<AnonymousMemory*>& from) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !from.empty() || stopped_; });
    if (stopped_) return nullptr;
    AnonymousMemory* const buffer = from.back();
    from.pop_back();
    return buffer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<AnonymousMemory*> empty_;
  std::vector<std::pair<AnonymousMemory*, const PackWindow*>> full_;
  bool ended_ = false, stopped_ = false;
};

class Packer {
 public:
  Packer(const WeightPlan& plan, const PackedLayout& layout, const TensorReader& reader, Team& team, const WritePacked& write,
         const LoadProgress& progress)
      : plan_(plan), layout_(layout), reader_(reader), team_(team), write_(write), state_(layout.data_bytes(), progress) {}

  Result<std::vector<uint64_t>> Run(uint64_t window_bytes) {
    const std::vector<Job> jobs = MakeJobs(plan_);
    std::deque<Job> cut_jobs;
    const std::vector<PackWindow> windows = WindowMaker(plan_, layout_, window_bytes, cut_jobs).Make(jobs);
    staging_.resize(static_cast<size_t>(team_.threads()));
    for (AlignedBuffer<uint8_t>& buffer : staging_) {
      if (!buffer.Resize(StagingBytes(jobs))) return NoRoom("not enough memory to pack through");
    }
    sums_.resize(layout_.sums());
    for (AnonymousMemory& buffer : buffers_) exchange_.GiveEmpty(&buffer);
    RunBeside(
        1, [&] { WriteAll(); },
        [&](int writers) {
          state_.Guard([&] { PackAll(windows, window_bytes, writers > 0); });
          exchange_.End();
        });
    TALLY_RETURN_IF_ERROR(state_.Finish());
    return std::move(sums_);
  }

 private:
  void PackAll(const std::vector<PackWindow>& windows, uint64_t window_bytes, bool writer) {
    for (const PackWindow& window : windows) {
      state_.Done(0, 0);  // says how far the writer is
      if (state_.stopped()) break;
      AnonymousMemory* const buffer = exchange_.TakeEmpty();
      if (buffer == nullptr) break;
      const bool large = window.bytes > window_bytes;  // alone in memory
      AnonymousMemory* const other = large ? exchange_.TakeEmpty() : nullptr;
      if (other != nullptr) *other = AnonymousMemory();
      Status status = Pack(window, *buffer);
      if (other != nullptr) exchange_.GiveEmpty(other);
      if (!status.ok()) {
        state_.Fail(0, std::move(status));
        break;
      }
      if (state_.stopped()) break;
      if (writer) {
        exchange_.GiveFull(buffer, &window);
      } else {
        WriteWindow(*buffer, window);
        exchange_.GiveEmpty(buffer);
      }
    }
    if (state_.stopped()) exchange_.Stop();
  }

  Status Pack(const PackWindow& window, AnonymousMemory& buffer) {
    if (buffer.size() < window.bytes || buffer.size() > 2 * RoundUp(window.bytes, kPackWindow)) {
      buffer = AnonymousMemory();  // before the other is had
      TALLY_ASSIGN_OR_RETURN(buffer, AnonymousMemory::Allocate(RoundUp(window.bytes, kHugePageBytes), /*huge=*/true));
    }
    std::vector<const HeldSlices*> held(plan_.weights.size());
    for (const HeldSlices& h : window.slices) {
      held[h.weight] = &h;
      const uint64_t bytes = plan_.weights[h.weight].slice_bytes,
                     end = std::min(bytes - h.skip, h.bytes);  // then what fills the page
      for (int64_t s = 0; s < h.slices; ++s) {
        std::memset(buffer.data() + h.at + static_cast<uint64_t>(s) * h.stride + end, 0, h.bytes - end);
      }
    }
    // The first byte of a slice that is there in part lies outside of the buffer. The items of the window do not write there.
    const PlaceSlice place = [&held, data = reinterpret_cast<uintptr_t>(buffer.data())](const PlannedWeight& w, int64_t slice) {
      const HeldSlices& h = *held[w.view.id];
      return reinterpret_cast<uint8_t*>(data + h.at + static_cast<uint64_t>(slice - h.first) * h.stride - h.skip);
    };
    int64_t items = 0;
    for (const PackItems& job : window.items) items += job.items;
    auto pack = [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end && !state_.stopped(); ++i) {
        int64_t item = i;
        auto job = window.items.begin();
        for (; item >= job->items; ++job) item -= job->items;
        Status status = LoadItem(reader_, place, *job->job, job->first_item + item, staging_[static_cast<size_t>(thread)].data());
        if (!status.ok()) state_.Fail(i, std::move(status));
        if (thread == 0) state_.Done(0, 0);
      }
    };
    team_.Run(items, 1, pack);
    return {};
  }

  void WriteAll() {
    for (;;) {
      const auto [buffer, window] = exchange_.TakeFull();
      if (buffer == nullptr) return;
      WriteWindow(*buffer, *window);
      exchange_.GiveEmpty(buffer);
      if (state_.stopped()) return exchange_.Stop();
    }
  }

  void WriteWindow(const AnonymousMemory& buffer, const PackWindow& window) {
    for (const HeldSlices& h : window.slices) {
      for (int64_t s = h.first; s < h.first + h.slices; ++s) {
        AddSums(h, s, buffer.data() + h.at + static_cast<uint64_t>(s - h.first) * h.stride);
      }
    }
    // Parts that follow one another in the file too are written together.
    for (size_t i = 0; i < window.parts.size();) {
      const PackWindow::Part& first = window.parts[i];
      uint64_t bytes = first.bytes;
      while (++i < window.parts.size() && window.parts[i].offset == first.offset + bytes) bytes += window.parts[i].bytes;
      for (uint64_t at = 0; at < bytes && !state_.stopped(); at += kWriteBytes) {
        const uint64_t n = std::min(kWriteBytes, bytes - at);
        if (Status status = write_(first.offset + at, {buffer.data() + first.at + at, n}); !status.ok()) {
          state_.Fail(0, std::move(status));
          return;
        }
        state_.Done(1, n);
      }
    }
  }

  void AddSums(const HeldSlices& h, int64_t slice, const uint8_t* data) {
    uint64_t sum = layout_.SliceOf(h.weight, slice).first_sum + h.skip / kPackedBlock;
    for (uint64_t at = 0; at < h.bytes; at += kPackedBlock, ++sum) {
      sums_[sum] = BlockChecksum({data + at, std::min(kPackedBlock, h.bytes - at)});
    }
  }

  const WeightPlan& plan_;
  const PackedLayout& layout_;
  const TensorReader& reader_;
  Team& team_;
  const WritePacked& write_;
  LoadState state_;
  std::array<AnonymousMemory, 2> buffers_;
  std::vector<AlignedBuffer<uint8_t>> staging_;  // of each thread
  std::vector<uint64_t> sums_;
  Exchange exchange_;
};

}  // namespace

Result<std::vector<uint64_t>> PackWeights(const WeightPlan& plan, const PackedLayout& layout, const TensorReader& reader,
                                          Team& team, const WritePacked& write, const LoadProgress& progress,
                                          uint64_t window_bytes) {
  return Packer(plan, layout, reader, team, write, progress).Run(window_bytes);
}

}  // namespace tally
