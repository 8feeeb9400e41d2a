// SPDX-License-Identifier: Apache-2.0
// Packed weights in memory: reading and packing.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "counters/cost/site.h"
#include "engine/base/status.h"
#include "engine/kernels/weight_view.h"
#include "engine/machine/machine.h"
#include "engine/machine/parallel.h"
#include "engine/weights/expert_store.h"
#include "engine/weights/layer_store.h"
#include "engine/weights/plan.h"
#include "loaders/inventory/inventory.h"

namespace tally {

// Where the streamed weights of a plan are: one of the two, or none if the plan has none.
struct WeightStores {
  std::unique_ptr<ExpertStore> experts = nullptr;
  std::unique_ptr<LayerStore> layers = nullptr;
};

// All weights of a model in one arena of anonymous memory. Each slice starts on a page; if guarded, it ends at a page boundary
// and an unused page follows.
class PackedWeights {
 public:
  // The view of a role's weight; an empty view, with its type, if the shard holds none of it, or if the model has none. layer: -1 for roles
  // outside the layers.
  const WeightView& Get(Role role, int32_t layer = -1) const;
  // Indexed by WeightView::id; ready for Ledger::SetWeights.
  const std::vector<WeightInfo>& infos() const { return infos_; }
  // The views of infos(), in the same order.
  const std::vector<WeightView>& views() const { return views_; }
  std::span<const uint8_t> arena() const { return {arena_.data(), arena_.size()}; }
  bool guarded() const { return guarded_; }
  // Bytes of the arena without guards. Includes page padding, unlike infos()[i].packed_bytes.
  uint64_t packed_bytes() const { return packed_bytes_; }
  // Values of a buffer, which no kernel reads (kRopeFactors, kXieluBeta). Empty if absent.
  std::span<const float> HostVector(Role role, int32_t layer = -1) const;
  // Of experts, or of layers, that are read from disk; null: there are none.
  ExpertStore* experts() const { return stores_.experts.get(); }
  LayerStore* layers() const { return stores_.layers.get(); }

 private:
  friend class WeightLoader;
  AnonymousMemory arena_;
  WeightStores stores_;
  struct Entry {
    Role role;
    int32_t layer;
    WeightView view;
  };
  std::vector<Entry> entries_;  // sorted by (layer, role)
  struct HostValues {
    Role role;
    int32_t layer;
    std::vector<float> values;
  };
  std::vector<HostValues> host_vectors_;
  std::vector<WeightInfo> infos_;
  std::vector<WeightView> views_;
  bool guarded_ = false;
  uint64_t packed_bytes_ = 0;
  WeightView none_;
};

// Bytes read and packed so far. Returning false stops the load (kInterrupted). Called on the thread that called LoadWeights;
// exceptions pass through LoadWeights.
using LoadProgress = std::function<bool(uint64_t done_bytes, uint64_t total_bytes)>;

// Reads and packs every weight of the plan, in parallel on the team. `plan` was made from `inventory`. What the page cache holds of the
// files is read from there; the rest past it, at the disk's own speed, by threads that read ahead. Memory: plan.packed_bytes(), a staging
// buffer of at most 1 MiB per thread, and up to kMostReadAhead (48 MiB) of cold files. Where the weights and the files do not fit the free
// memory together, the system is told to drop its copies of what was read, which would take the room of huge pages. kBadInput: a head that
// is stored beside the embedding it is tied to and is not a copy of it, byte for byte. kNoRoom: not enough memory. `beside`: other work for
// one of the threads, done when this returns; its exceptions pass through too.
Result<PackedWeights> LoadWeights(const Inventory& inventory, const WeightPlan& plan, Team& team, const LoadProgress& progress,
                                  const std::function<void()>& beside = {}, WeightStores stores = {});

}  // namespace tally
