// SPDX-License-Identifier: Apache-2.0
// Mutants of Cost(): mutate.cmake puts Mutated() before every AddFlops, AddSpecial and AddBytes of the kernels' sources, and one of
// these places at a time adds one too many.
#pragma once

#include <cstdint>
#include <utility>

#include "counters/cost/cost.h"

namespace tally {

// The number of a place in the sources, from 0; a new one at its first call.
int RegisterMutant(const char* file, int line);
// One where this mutant is the active one, else nothing. Notes that the place was reached.
uint64_t MutantExtra(int mutant);

struct MutatedCost {
  Cost& cost;
  uint64_t extra;
  void AddFlops(WorkClass c, uint64_t n, Arith a = Arith::kF32) { cost.AddFlops(c, n + extra, a); }
  void AddSpecial(WorkClass c, uint64_t n) { cost.AddSpecial(c, n + extra); }
  void AddBytes(ByteKind k, uint64_t n) { cost.AddBytes(k, n + extra); }
};

}  // namespace tally

#define TALLY_MUTATED(cost)                                              \
  ::tally::MutatedCost {                                                 \
    cost, ::tally::MutantExtra([] {                                      \
      static const int id = ::tally::RegisterMutant(__FILE__, __LINE__); \
      return id;                                                         \
    }())                                                                 \
  }
