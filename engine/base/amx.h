// SPDX-License-Identifier: Apache-2.0
// Intel's matrix tiles (AMX): whether kernels may use them. Intel SDM volume 1, chapter 18; Linux, Documentation/arch/x86/xstate.rst.
#pragma once

namespace tally {

// Processor and operating system have tiles of int8 and bf16, and the system has granted them to this process. The first call asks.
bool AmxAvailable();
// Whether kernels of the target AVX3_DL use tiles: AmxAvailable() unless UseAmx(false) was called last.
bool AmxInUse();
// Not while kernels run. `use` without AmxAvailable() has no effect.
void UseAmx(bool use);

}  // namespace tally
