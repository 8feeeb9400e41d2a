// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/aligned.h"
#include "engine/machine/parallel.h"
#include "engine/weights/file_tensors.h"
#include "engine/weights/item_loader.h"
#include "engine/weights/load_state.h"
#include "engine/weights/pack.h"
#include "engine/weights/packed_file.h"
#include "engine/weights/plan.h"
#include "engine/weights/weights.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

// `beside`: one thread runs it before it loads.
Status RunJobs(const std::vector<FileReader>& files, const WeightPlan& plan, bool forget, const PlaceSlice& place, Team& team,
               const LoadProgress& progress, const std::function<void()>& beside) {
  const std::vector<Job> jobs = MakeJobs(plan);
  uint64_t total = 0;
  for (const Job& job : jobs) {
    const uint64_t slices = static_cast<uint64_t>(job.weights[0]->view.slices);
    total += slices * static_cast<uint64_t>(job.extent) * job.bytes_per_unit;
  }
  const uint64_t staging_bytes = StagingBytes(jobs);
  std::vector<AlignedBuffer<uint8_t>> staging(static_cast<size_t>(team.threads()));
  for (AlignedBuffer<uint8_t>& buffer : staging) {
    if (!buffer.Resize(staging_bytes))
      return NoRoom("not enough memory for " + std::to_string(staging_bytes) + " bytes to load through");
  }
  LoadState state(total, progress);
  const std::vector<ItemRun> runs = MakeRuns(jobs, plan);
  ReadAhead ahead(files, runs, !forget);
  const auto load = [&](int thread, int64_t i, const Window* window) {
    const auto after = std::upper_bound(jobs.begin(), jobs.end(), i, [](int64_t v, const Job& j) { return v < j.first_item; });
    const Job& job = *(after - 1);
    const int64_t item = i - job.first_item, first = item % job.blocks * job.block;
    const FileTensors reader(files, plan, forget, window);
    if (Status status = LoadItem(reader, place, job, item, staging[static_cast<size_t>(thread)].data()); !status.ok()) {
      state.Fail(i, std::move(status));
      return;
    }
    state.Done(thread, static_cast<uint64_t>(std::min(job.block, job.extent - first)) * job.bytes_per_unit);
  };
  // A free thread takes the next run of items, so that files are read from front to back.
  std::atomic<bool> idle{!beside};
  auto load_runs = [&](int thread, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (!idle.exchange(true, std::memory_order_relaxed)) {
        state.Guard(beside);
      } else if (const auto taken = ahead.Take()) {
        for (int64_t i = 0; i < taken->run->items && !state.stopped(); ++i)
          load(thread, taken->run->first_item + i, taken->window);
        ahead.GiveBack(taken->window);
      }
      if (state.stopped()) ahead.Stop();
    }
  };
  state.Done(0, 0);
  if (state.stopped()) ahead.Stop();
  RunBeside(
      ahead.readers(), [&] { ahead.Read(); },
      [&](int readers) {
        ahead.Expect(readers);
        team.Run(static_cast<int64_t>(runs.size()) + (beside ? 1 : 0), 1, load_runs);
      });
  return state.Finish();
}

}  // namespace

class WeightLoader {
 public:
  static Result<PackedWeights> Load(const Inventory& inventory, const WeightPlan& plan, Team& team, const LoadProgress& progress,
                                    const std::function<void()>& beside, WeightStores stores) {
    if (inventory.packed != nullptr) return LoadPacked(inventory, plan, progress, beside, std::move(stores));
    std::vector<FileReader> files;
    uint64_t file_bytes = 0;
    for (const InventoryFile& file : inventory.files) {
      TALLY_ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(file.path));
      TALLY_RETURN_IF_ERROR(reader.CheckUnchanged(file));
      files.push_back(std::move(reader));
      file_bytes += file.size;
    }
    // See LoadWeights. The copies could not stay whole for the next load either.
    const bool forget = plan.arena_bytes + file_bytes > AvailableMemoryBytes();
    PackedWeights weights;
    TALLY_RETURN_IF_ERROR(Allocate(plan, weights));
    const FileTensors reader(files, plan, forget);
    TALLY_RETURN_IF_ERROR(RunJobs(files, plan, forget, PlacesIn(weights), team, progress, beside));
    if (!plan.guarded) weights.arena_.CollapseToHugePages();
    for (const PlannedHostVector& v : plan.host_vectors) {
      std::vector<uint8_t> bytes(v.source->bytes);
      TALLY_RETURN_IF_ERROR(reader.Read(*v.source, 0, bytes.size(), bytes.data()));
      TALLY_RETURN_IF_ERROR(AddHostVector(v, bytes, reader.FileOf(*v.source), weights));
    }
    for (size_t i = 0; i < files.size(); ++i) TALLY_RETURN_IF_ERROR(files[i].CheckUnchanged(inventory.files[i]));
    TALLY_RETURN_IF_ERROR(SetViews(plan, std::move(stores), weights));
    return weights;
  }

 private:
  static Result<PackedWeights> LoadPacked(const Inventory& inventory, const WeightPlan& plan, const LoadProgress& progress,
                                          const std::function<void()>& beside, WeightStores stores) {
    TALLY_ASSIGN_OR_RETURN(const PackedFile file, PackedFile::Open(inventory, plan));
    PackedWeights weights;
    TALLY_RETURN_IF_ERROR(Allocate(plan, weights));
    TALLY_RETURN_IF_ERROR(file.ReadSlices(plan, PlacesIn(weights), progress, beside));
    if (!plan.guarded) weights.arena_.CollapseToHugePages();
    for (const PlannedHostVector& v : plan.host_vectors) {
      TALLY_ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, file.Buffer(*v.source));
      TALLY_RETURN_IF_ERROR(AddHostVector(v, bytes, inventory.path, weights));
    }
    TALLY_RETURN_IF_ERROR(SetViews(plan, std::move(stores), weights));
    return weights;
  }

  static Status Allocate(const WeightPlan& plan, PackedWeights& weights) {
    weights.guarded_ = plan.guarded;
    weights.packed_bytes_ = plan.packed_bytes();
    if (plan.arena_bytes == 0) return {};
    TALLY_ASSIGN_OR_RETURN(weights.arena_, AnonymousMemory::Allocate(plan.arena_bytes, /*huge=*/!plan.guarded));
    if (plan.guarded) weights.arena_.RefuseHugePages();
    return {};
  }

  static PlaceSlice PlacesIn(const PackedWeights& weights) {
    return [arena = weights.arena_.data()](const PlannedWeight& w, int64_t slice) -> uint8_t* {
      if (w.streamed) return nullptr;
      return arena + w.arena_offset + static_cast<uint64_t>(slice) * w.view.slice_stride;
    };
  }

  static Status AddHostVector(const PlannedHostVector& v, std::span<const uint8_t> bytes, const std::string& file,
                              PackedWeights& weights) {
    std::vector<float> values(v.source->elements());
    WidenToF32(v.source->dtype, static_cast<int64_t>(values.size()), 1, bytes.data(), values.data());
    TALLY_RETURN_IF_ERROR(CheckFinite(file, *v.source, values));
    weights.host_vectors_.push_back({v.role, v.layer, std::move(values)});
    return {};
  }

  static Status SetViews(const WeightPlan& plan, WeightStores stores, PackedWeights& weights) {
    for (const PlannedWeight& w : plan.weights) {
      weights.infos_.push_back(w.info);
      WeightView view = w.view;
      view.data = weights.arena_.data() + w.arena_offset;
      if (w.streamed) {
        if (stores.experts == nullptr && stores.layers == nullptr) return InternalError("streamed weights without a store");
        view.data = stores.layers != nullptr ? stores.layers->DataOf(view.id) : stores.experts->memory().data();
        view.slots = stores.experts != nullptr ? stores.experts->Table(view.id) : nullptr;
      }
      weights.views_.push_back(view);
      weights.entries_.push_back({w.role, w.layer, view});
      if (w.role == Role::kTokenEmbedding && plan.tied_head) weights.entries_.push_back({Role::kHead, -1, view});
    }
    for (const WeightPlan::NotHeld& w : plan.not_held) {
      weights.entries_.push_back({w.role, w.layer, w.view});
      if (w.role == Role::kTokenEmbedding && plan.tied_head) weights.entries_.push_back({Role::kHead, -1, w.view});
    }
    std::sort(weights.entries_.begin(), weights.entries_.end(), [](const PackedWeights::Entry& a, const PackedWeights::Entry& b) {
      return std::tuple(a.layer, a.role) < std::tuple(b.layer, b.role);
    });
    weights.stores_ = std::move(stores);
    return {};
  }
};

const WeightView& PackedWeights::Get(Role role, int32_t layer) const {
  const auto key = std::tuple(layer, role);
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), key,
                                   [](const Entry& e, const auto& k) { return std::tuple(e.layer, e.role) < k; });
  return at != entries_.end() && std::tuple(at->layer, at->role) == key ? at->view : none_;
}

std::span<const float> PackedWeights::HostVector(Role role, int32_t layer) const {
  for (const HostValues& v : host_vectors_) {
    if (v.role == role && v.layer == layer) return v.values;
  }
  return {};
}

Result<PackedWeights> LoadWeights(const Inventory& inventory, const WeightPlan& plan, Team& team, const LoadProgress& progress,
                                  const std::function<void()>& beside, WeightStores stores) {
  return WeightLoader::Load(inventory, plan, team, progress, beside, std::move(stores));
}

}  // namespace tally
