// SPDX-License-Identifier: Apache-2.0
#include "engine/weights/layer_store.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tally {

Result<std::unique_ptr<LayerStore>> LayerStore::Create(std::vector<ExpertRecords> layers, bool guarded,
                                                       std::unique_ptr<RecordReader> reader) {
  std::unique_ptr<LayerStore> store(new LayerStore(std::move(layers)));
  if (store->records_.size() < kSlots) return InternalError("fewer streamed layers than slots");
  for (const ExpertRecords& r : store->records_) store->slot_bytes_ = std::max(store->slot_bytes_, r.bytes);
  TALLY_ASSIGN_OR_RETURN(store->memory_, SlotMemory::Allocate(kSlots * store->slot_bytes_, guarded));
  TALLY_ASSIGN_OR_RETURN(store->reads_, RecordReads::Start(std::move(reader)));
  store->StartReads();
  return store;
}

LayerStore::~LayerStore() = default;

uint64_t LayerStore::SlotsBytes(const std::vector<ExpertRecords>& layers) {
  uint64_t most = 0;
  for (const ExpertRecords& r : layers) most = std::max(most, r.bytes - r.guards);
  return kSlots * most;
}

int64_t LayerStore::IndexOf(int32_t layer) const {
  const auto at = std::ranges::find(records_, layer, &ExpertRecords::layer);
  return at == records_.end() ? -1 : at - records_.begin();
}

const uint8_t* LayerStore::DataOf(WeightId weight) const {
  for (size_t i = 0; i < records_.size(); ++i) {
    for (const ExpertRecords::Part& part : records_[i].parts) {
      if (part.weight == weight) return RecordOf(i) + part.offset;
    }
  }
  return nullptr;
}

void LayerStore::StartReads() {
  for (Slot* slot = &slots_[next_ % kSlots]; !slot->busy; slot = &slots_[next_ % kSlots]) {
    slot->busy = true;
    slot->layer = next_;
    reads_->Begin(next_, 0, memory_.to_fill() + next_ % kSlots * slot_bytes_, slot->read);
    next_ = (next_ + 1) % records_.size();
  }
}

void LayerStore::StartOver() {
  for (Slot& slot : slots_) {
    if (slot.busy) (void)reads_->Wait(slot.read);
    slot.busy = false;
  }
  next_ = expected_ = 0;
  StartReads();
}

LayerStore::Pass LayerStore::Begin() {
  Pass pass(*this);
  if (expected_ != 0) StartOver();
  return pass;
}

Status LayerStore::Pass::Wait(size_t layer) {
  Slot& slot = store_->slots_[layer % kSlots];
  if (!slot.busy || slot.layer != layer) return InternalError("a layer that is not being read is waited for");
  const Status status = store_->reads_->Wait(slot.read);
  if (status.ok()) return {};
  store_->expected_ = store_->records_.size();
  const StatusCode code = status.code() == StatusCode::kBadInput ? StatusCode::kUnreadable : status.code();
  return {code, "layer " + std::to_string(store_->records_[layer].layer) + ": " + status.message()};
}

void LayerStore::Pass::Free(size_t layer) {
  if (store_->after_use_) store_->after_use_(layer);
  store_->slots_[layer % kSlots].busy = false;
  store_->expected_ = (layer + 1) % store_->records_.size();
  store_->StartReads();
}

}  // namespace tally
