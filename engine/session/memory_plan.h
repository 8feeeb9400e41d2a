// SPDX-License-Identifier: Apache-2.0
// Checks that a model fits in memory, before anything large is allocated.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/base/status.h"

namespace tally {

// Bytes of KV cache at a context of `positions`; must not decrease as positions increase.
using KvBytesFn = std::function<uint64_t(int64_t positions)>;

// Ok if packed weights + kv_bytes(context) + scratch fit into `available` bytes (AvailableMemoryBytes(),
// before the weights are loaded). Otherwise kNoRoom: one line with the sizes in GiB and the longest context
// that would fit, if any.
Status CheckMemoryPlan(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes, uint64_t available_bytes,
                       int64_t context);

// Of the bytes that can be had now, those that a budget of weights leaves to others (EngineOptions::kAutoBudget): a tenth, at least 1 GiB.
uint64_t KeptFree(uint64_t available_bytes);

// The longest context of at most `limit` positions that fits; 0 if none does.
int64_t LongestContext(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes, uint64_t available_bytes,
                       int64_t limit);

}  // namespace tally
