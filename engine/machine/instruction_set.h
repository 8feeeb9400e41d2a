// SPDX-License-Identifier: Apache-2.0
// The instruction sets that kernels were compiled for: whether this processor has one; and restricting the process to a lower one, to
// measure on one machine what another would do.
#pragma once

#include <string_view>

#include "engine/base/status.h"

namespace tally {

// From now on kernels and measured peaks use at most the instructions of Highway's target `name` ("AVX2"), "AMX": AVX3_DL with
// matrix tiles, "AVX2_VNNI": AVX2 with dot products of bytes, or of an ArmTargetName (base/byte_dot.h). To be called before a model is
// loaded. kBadInput: this processor has no such target; the message lists those it has.
Status LimitInstructionSet(std::string_view name);
bool InstructionSetIsLimited();

// Before any kernel runs. kBadInput: this processor has none of the instruction sets that kernels were compiled for; names them and it.
Status CheckInstructionSet();

}  // namespace tally
