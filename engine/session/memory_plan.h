// Does the model fit? Asked before anything large is allocated.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/base/export.h"
#include "engine/base/status.h"

namespace tally {

// The memory a model and an engine take, in bytes, checked against the machine before anything is allocated: LoadModel checks its
// weights with an engine of the same options, NewEngine its engine beside the weights and the model's other engines.
struct MemoryPlan {
  uint64_t packed_weights = 0, kv = 0, scratch = 0;  // scratch: activations of a batch and its rows of logits, kernel scratch
  uint64_t total() const { return packed_weights + kv + scratch; }
  uint64_t available = 0;  // when it was checked; an engine's: the weights included
  int64_t context = 0;     // KV positions of a sequence
};

// Bytes of KV cache at a context of `positions`; must not fall as positions rise. With windows it is not a
// straight line.
using KvBytesFn = std::function<uint64_t(int64_t positions)>;

// Ok if packed weights + kv_bytes(context) + scratch fit into `available` bytes (AvailableMemoryBytes(),
// before the weights are loaded). Otherwise kBadInput: one line with the sizes in GiB and the longest context
// that would fit, if any.
TALLY_API Status CheckMemoryPlan(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes,
                                 uint64_t available_bytes, int64_t context);

// The longest context of at most `limit` positions that fits; 0 if none does.
TALLY_API int64_t LongestContext(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes,
                                 uint64_t available_bytes, int64_t limit);

}  // namespace tally
