// Entry points of the Highway kernels of the small ops (<op>_hwy.cc); each dispatches to the target that runs
// now.
#pragma once

#include <cstdint>
#include <span>

#include "engine/kernels/norm.h"
#include "engine/kernels/rope.h"
#include "engine/kernels/router.h"

namespace tally {

void RunNormHwy(const NormOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunRopeTableHwy(const RopeTableOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunRopeHwy(const RopeOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunRouteHwy(const RouteOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);
void RunMoeCombineHwy(const MoeCombineOp& op, int64_t begin, int64_t end, std::span<uint8_t> scratch);

}  // namespace tally
