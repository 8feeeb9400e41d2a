// SPDX-License-Identifier: Apache-2.0
#include "engine/session/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/base/checked.h"
#include "engine/base/format.h"

namespace tally {
namespace {

// Needed sizes are rounded up and available sizes down, so that a refusal never shows equal numbers.
std::string Needed(uint64_t bytes) { return GibText(bytes, Rounding::kUp); }

}  // namespace

uint64_t KeptFree(uint64_t available_bytes) { return std::max(uint64_t{1} << 30, available_bytes / 10); }

int64_t LongestContext(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes, uint64_t available_bytes,
                       int64_t limit) {
  const uint64_t fixed = SaturatingAdd(packed_bytes, scratch_bytes);
  if (fixed > available_bytes) return 0;
  int64_t fits = 0, too_long = limit + 1;
  while (too_long - fits > 1) {
    const int64_t middle = fits + (too_long - fits) / 2;
    (kv_bytes(middle) <= available_bytes - fixed ? fits : too_long) = middle;
  }
  return fits;
}

Status CheckMemoryPlan(uint64_t packed_bytes, const KvBytesFn& kv_bytes, uint64_t scratch_bytes, uint64_t available_bytes,
                       int64_t context) {
  const uint64_t kv = kv_bytes(context);
  const uint64_t needed = SaturatingAdd(SaturatingAdd(packed_bytes, scratch_bytes), kv);
  if (needed <= available_bytes) return {};
  const int64_t fits = LongestContext(packed_bytes, kv_bytes, scratch_bytes, available_bytes, context);
  const std::string advice = fits > 0 ? "; a context of " + std::to_string(fits) + " would fit" : "; no context would fit";
  return NoRoom("not enough memory: weights " + Needed(packed_bytes) + " + KV cache " + Needed(kv) + " (context " +
                std::to_string(context) + ") + scratch " + Needed(scratch_bytes) + " = " + Needed(needed) + ", but only " +
                GibText(available_bytes, Rounding::kDown) + " is available" + advice);
}

}  // namespace tally
