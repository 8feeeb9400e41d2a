// SPDX-License-Identifier: Apache-2.0
// Compares the pages of packed weights that a step was charged with and those it touched; internal to the studies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "counters/ledger/ledger.h"
#include "engine/base/status.h"
#include "engine/machine/page_watch.h"
#include "engine/studies/audit.h"
#include "engine/weights/weights.h"

namespace tally {

// The pages of packed weights that a step touched.
struct TouchedPages {
  std::vector<bool> arena;  // a bit for each page of PackedWeights::arena()
  // Of each (layer of the store, expert; 0 of whole layers) that was in a slot: a bit for each page of its record. What was touched is the
  // union over all the times that a slot held it.
  std::map<std::pair<size_t, int32_t>, std::vector<bool>> records;
};

// Watches the pages of guarded weights, those of slots too: a slot's pages are taken before it is filled with another expert, so that each
// touch is of the expert that was there. No other engine may run the model while it lives.
class WeightWatch {
 public:
  // kBadInput: weights without guards, and errors of PageWatch.
  static Result<std::unique_ptr<WeightWatch>> New(const PackedWeights& weights);
  ~WeightWatch();
  WeightWatch(const WeightWatch&) = delete;
  WeightWatch& operator=(const WeightWatch&) = delete;

  size_t page_bytes() const { return watch_->page_bytes(); }
  Status Start();
  // What was touched since Start. Errors of PageWatch. kInternal: pages of a slot that held nothing were touched.
  Result<TouchedPages> Stop();

 private:
  explicit WeightWatch(const PackedWeights& weights) : weights_(weights) {}
  // Moves what was touched of the record, which is in a slot, to touched_.
  void TakeRecord(size_t layer, int32_t expert);
  // The first page of a record's slot, counted from the store's first; the record is in one.
  size_t FirstPage(size_t layer, int32_t expert) const;
  size_t RecordPages(size_t layer) const;
  // Calls fn(layer, expert) for each record that is in a slot.
  template <class Fn>
  void ForEachInSlots(const Fn& fn) const;
  void AddRecord(size_t layer, int32_t expert, const std::vector<bool>& pages);

  const PackedWeights& weights_;
  std::unique_ptr<PageWatch> watch_;
  size_t arena_pages_ = 0;
  TouchedPages touched_;
  Status failed_;  // of a hook's call
};

// One row for each weight that was charged in the ledger's last step or has a touched page. The ledger's table must be weights.infos().
std::vector<PageRow> ComparePages(const Ledger& ledger, const PackedWeights& weights, size_t page_bytes,
                                  const TouchedPages& touched);

}  // namespace tally
