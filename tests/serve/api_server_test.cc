// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_server.h"

#include <gtest/gtest.h>

namespace tally {
namespace {
TEST(ApiServer, Starts) {}
}  // namespace
}  // namespace tally
