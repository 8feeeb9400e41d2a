// SPDX-License-Identifier: Apache-2.0
// What the loaders' tests share: files for them, and what an error must be.
#pragma once

#include <gtest/gtest.h>

#include <initializer_list>
#include <string_view>

#include "engine/base/status.h"
#include "tests/loaders/raw_files.h"
#include "tests/support/temp_folder.h"

namespace tally {

// The line an error is must hold each of `parts`, be one line, and be of the bad-input kind.
inline void ExpectBadInput(const Status& status, std::initializer_list<std::string_view> parts) {
  EXPECT_EQ(status.code(), StatusCode::kBadInput) << status.message();
  for (const std::string_view part : parts) {
    EXPECT_NE(status.message().find(part), std::string::npos) << "expected '" << part << "' in: " << status.message();
  }
  for (const char c : status.message()) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << status.message();
}

}  // namespace tally
