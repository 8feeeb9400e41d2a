// SPDX-License-Identifier: Apache-2.0
// libFuzzer's entry for one target: TALLY_FUZZ_TARGET is its name in targets.h.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tally::fuzz::TALLY_FUZZ_TARGET.run({reinterpret_cast<const char*>(data), size});
  return 0;
}
