// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/expert_store.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <tuple>
#include <utility>

#include "engine/base/checked.h"

namespace tally {

Result<std::unique_ptr<ExpertStore>> ExpertStore::Create(std::vector<ExpertRecords> records, std::vector<int64_t> slots,
                                                         bool guarded, std::unique_ptr<RecordReader> reader) {
  if (records.size() != slots.size()) return InternalError("slots of " + std::to_string(slots.size()) + " layers");
  std::unique_ptr<ExpertStore> store(new ExpertStore(std::move(records)));
  uint64_t bytes = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const ExpertRecords& r = store->records_[i];
    if (slots[i] < 1 || slots[i] > r.experts) return InternalError("a layer with " + std::to_string(slots[i]) + " slots");
    bytes = SaturatingAdd(bytes, SaturatingMul(static_cast<uint64_t>(slots[i]), r.bytes));
  }
  TALLY_ASSIGN_OR_RETURN(store->memory_, SlotMemory::Allocate(bytes, guarded));
  uint64_t at = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const ExpertRecords& r = store->records_[i];
    const size_t experts = static_cast<size_t>(r.experts);
    Layer& layer = store->layers_.emplace_back();
    layer.offset = at;
    layer.slots.resize(static_cast<size_t>(slots[i]));
    layer.slot_of.assign(experts, -1);
    layer.wanted.assign(experts, 0);
    layer.keep.assign(experts, false);
    layer.seen.assign(experts, false);
    layer.tables.assign(r.parts.size(), std::vector<const uint8_t*>(experts));
    at += static_cast<uint64_t>(slots[i]) * r.bytes;
  }
  TALLY_ASSIGN_OR_RETURN(store->reads_, RecordReads::Start(std::move(reader)));
  return store;
}

ExpertStore::~ExpertStore() = default;

int64_t ExpertStore::IndexOf(int32_t layer) const {
  const auto at = std::ranges::find(records_, layer, &ExpertRecords::layer);
  return at == records_.end() ? -1 : at - records_.begin();
}

const uint8_t* const* ExpertStore::Table(WeightId weight) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    for (size_t p = 0; p < records_[i].parts.size(); ++p) {
      if (records_[i].parts[p].weight == weight) return layers_[i].tables[p].data();
    }
  }
  return nullptr;
}

Status ExpertStore::Named(size_t layer, int64_t expert, const Status& status) const {
  const StatusCode code = status.code() == StatusCode::kBadInput ? StatusCode::kUnreadable : status.code();
  return {code,
          "layer " + std::to_string(records_[layer].layer) + ", expert " + std::to_string(expert) + ": " + status.message()};
}

void ExpertStore::Put(size_t layer, int64_t slot, int32_t expert) {
  Layer& l = layers_[layer];
  Slot& s = l.slots[static_cast<size_t>(slot)];
  const size_t e = static_cast<size_t>(expert);
  s.expert = expert;
  s.used = l.wanted[e];
  s.kept = l.keep[e];
  s.busy = true;
  l.slot_of[e] = static_cast<int32_t>(slot);
  for (size_t p = 0; p < l.tables.size(); ++p)
    l.tables[p][e] = memory_.view().data() + OffsetOf(layer, slot) + records_[layer].parts[p].offset;
}

void ExpertStore::Drop(size_t layer, int64_t slot) {
  Layer& l = layers_[layer];
  Slot& s = l.slots[static_cast<size_t>(slot)];
  if (s.expert < 0) return;
  const size_t e = static_cast<size_t>(s.expert);
  l.slot_of[e] = -1;
  for (std::vector<const uint8_t*>& table : l.tables) table[e] = nullptr;
  s.expert = -1;
  s.busy = s.kept = false;
}

Status ExpertStore::ForEachRecord(const std::function<void(size_t layer, int64_t expert, const uint8_t* record)>& fn) {
  const std::lock_guard turn(turn_);
  uint64_t most = 0;
  std::vector<std::pair<size_t, int64_t>> all;
  for (size_t i = 0; i < records_.size(); ++i) {
    most = std::max(most, records_[i].bytes);
    for (int64_t e = 0; e < records_[i].experts; ++e) all.emplace_back(i, e);
  }
  std::vector<AnonymousMemory> buffers;
  for (int t = 0; t < reads_->threads(); ++t) {
    TALLY_ASSIGN_OR_RETURN(AnonymousMemory buffer, AnonymousMemory::Allocate(most, /*huge=*/true));
    buffers.push_back(std::move(buffer));
  }
  std::atomic<size_t> next{0};
  std::vector<Status> failed(buffers.size());
  const auto work = [&](size_t t) {
    for (size_t i = next++; i < all.size(); i = next++) {
      const auto& [layer, expert] = all[i];
      for (int p = 0; p < reads_->reader().pieces(layer) && failed[t].ok(); ++p) {
        failed[t] = reads_->reader().Read(layer, expert, p, buffers[t].data(), static_cast<int>(t));
      }
      if (!failed[t].ok()) {
        failed[t] = Named(layer, expert, failed[t]);
        return next.store(all.size());
      }
      fn(layer, expert, buffers[t].data());
    }
  };
  std::atomic<size_t> thread{1};  // the readers have nothing to do meanwhile
  RunBeside(
      static_cast<int>(buffers.size()) - 1, [&] { work(thread++); }, [&](int) { work(0); });
  for (const Status& status : failed) TALLY_RETURN_IF_ERROR(status);
  return {};
}

ExpertStore::Visit ExpertStore::Begin(size_t layer, std::span<const ExpertUse> uses) {
  Visit visit(*this, layer);
  Layer& l = layers_[layer];
  ++clock_;
  std::vector<std::pair<uint64_t, int32_t>> all;  // (used, expert): in memory, or to be read
  for (const ExpertUse& use : uses) {
    const uint64_t used = clock_ << 24 | static_cast<uint64_t>(use.last_row & 0xFFFFFF);
    const int32_t at = l.slot_of[static_cast<size_t>(use.expert)];
    if (at >= 0) {
      l.slots[static_cast<size_t>(at)].used = used;
      l.slots[static_cast<size_t>(at)].busy = true;
      visit.hits_.push_back(use.expert);
    } else {
      l.wanted[static_cast<size_t>(use.expert)] = used;
      visit.misses_.push_back(use.expert);
      all.emplace_back(used, use.expert);
      if (!l.seen[static_cast<size_t>(use.expert)]) ++visit.first_uses_;
    }
  }
  for (const Slot& s : l.slots) {
    if (s.expert >= 0) all.emplace_back(s.used, s.expert);
  }
  // The slots end with the most recently used; these of the misses come last.
  const size_t kept = std::min(all.size(), l.slots.size());
  std::ranges::sort(all, std::greater());
  for (size_t i = 0; i < all.size(); ++i) {
    const size_t e = static_cast<size_t>(all[i].second);
    const int32_t at = l.slot_of[e];
    if (at >= 0) {
      l.slots[static_cast<size_t>(at)].kept = i < kept;
    } else {
      l.keep[e] = i < kept;
    }
  }
  std::ranges::sort(visit.misses_, {}, [&](int32_t e) { return std::pair(l.wanted[static_cast<size_t>(e)], e); });
  visit.state_.assign(visit.misses_.size(), Visit::State::kWaiting);
  if (visit.hits_.empty()) visit.FreeHits();
  visit.StartReads();
  return visit;
}

ExpertStore::Visit::Visit(Visit&& o) noexcept
    : store_(std::exchange(o.store_, nullptr)),
      layer_(o.layer_),
      turn_(std::move(o.turn_)),
      hits_(std::move(o.hits_)),
      misses_(std::move(o.misses_)),
      state_(std::move(o.state_)),
      next_(o.next_),
      hits_freed_(o.hits_freed_),
      first_uses_(o.first_uses_) {}

ExpertStore::Visit::~Visit() {
  if (store_ == nullptr) return;
  FreeHits();
  for (size_t i = 0; i < next_; ++i) {
    if (state_[i] == State::kReading) (void)Wait(i);
  }
  for (Slot& slot : store_->layers_[layer_].slots) slot.busy = slot.kept = false;
}

void ExpertStore::Visit::FreeHits() {
  if (std::exchange(hits_freed_, true)) return;
  Layer& l = store_->layers_[layer_];
  for (const int32_t e : hits_) l.slots[static_cast<size_t>(l.slot_of[static_cast<size_t>(e)])].busy = false;
  StartReads();
}

// The slot for the next miss: an empty one, or that of the least recently used expert that is not to be kept. If all others are to be kept
// and fewer than two slots are being read, one of those. -1: none now.
int64_t ExpertStore::Visit::FindSlot() const {
  const std::vector<Slot>& slots = store_->layers_[layer_].slots;
  int64_t best = -1;
  size_t reading = 0;
  for (size_t i = 0; i < next_; ++i) reading += state_[i] == State::kReading ? 1 : 0;
  const auto rank = [](const Slot& s) { return std::tuple(s.expert >= 0, s.kept, s.used, s.expert); };
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& s = slots[i];
    if (s.busy || (s.expert >= 0 && s.kept && reading >= 2)) continue;
    if (best < 0 || rank(s) < rank(slots[static_cast<size_t>(best)])) best = static_cast<int64_t>(i);
  }
  return best;
}

void ExpertStore::Visit::StartReads() {
  Layer& l = store_->layers_[layer_];
  for (; next_ < misses_.size(); ++next_) {
    const int64_t slot = FindSlot();
    if (slot < 0) return;
    const int32_t expert = misses_[next_], held = l.slots[static_cast<size_t>(slot)].expert;
    if (store_->before_refill_ && held >= 0) store_->before_refill_(layer_, held);
    store_->Drop(layer_, slot);
    store_->Put(layer_, slot, expert);
    state_[next_] = State::kReading;
    uint8_t* const to = store_->memory_.to_fill() + store_->OffsetOf(layer_, slot);
    store_->reads_->Begin(layer_, expert, to, l.slots[static_cast<size_t>(slot)].read);
  }
}

Status ExpertStore::Visit::Wait(size_t i) {
  Layer& l = store_->layers_[layer_];
  const size_t e = static_cast<size_t>(misses_[i]);
  if (state_[i] != State::kReading) return InternalError("an expert that is not being read is waited for");
  const int64_t at = l.slot_of[e];
  const Status status = store_->reads_->Wait(l.slots[static_cast<size_t>(at)].read);
  if (status.ok()) {
    l.seen[e] = true;
    return {};
  }
  state_[i] = State::kFreed;
  store_->Drop(layer_, at);
  return store_->Named(layer_, misses_[i], status);
}

void ExpertStore::Visit::Free(size_t i) {
  Layer& l = store_->layers_[layer_];
  l.slots[static_cast<size_t>(l.slot_of[static_cast<size_t>(misses_[i])])].busy = false;
  state_[i] = State::kFreed;
  StartReads();
}

}  // namespace tally
