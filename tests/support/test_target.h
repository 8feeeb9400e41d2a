// SPDX-License-Identifier: Apache-2.0
// The instruction set that a test program's kernels use.
#pragma once

#include <string_view>

#include "engine/base/status.h"

namespace tally {

// The variable TALLY_TEST_TARGET: a name as `tally bench --target` takes it ("AVX2": without AVX-VNNI and AMX). Empty: not set, kernels
// use what the processor has.
std::string_view TestTarget();
// From now on kernels of this process use at most TestTarget(); those of programs that it starts do not know of it. kBadInput: this
// processor has no such target.
Status UseTestTarget();
// Whether the processor has more than what kernels may use since UseTestTarget.
bool TestTargetIsLess();

}  // namespace tally
