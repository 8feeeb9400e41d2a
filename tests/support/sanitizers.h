// SPDX-License-Identifier: Apache-2.0
// TALLY_SHADOW_MEMORY: this build runs under a sanitizer that keeps memory of its own, what is freed included, so that a test
// that measures the process's memory measures the sanitizer's.
#pragma once

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // g++
#define TALLY_SHADOW_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)  // clang
#define TALLY_SHADOW_MEMORY 1
#endif
#endif
