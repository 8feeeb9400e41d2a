// SPDX-License-Identifier: Apache-2.0
// Real clients of OpenAI's API (clients.mjs; package.json pins them) with a server of the demo model.
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/served_demo.h"
#include "tests/support/npm.h"

namespace tally {
namespace {

TEST(Clients, OfOpenAisApi) {
  const std::string folder = TALLY_CLIENTS_DIR;
  const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/clients", folder, {"clients.mjs"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  const ServedDemo demo;
  const ServedApi api(demo.model);
  const TempFolder said;
  const int ended = Shell("cd '" + folder + "' && timeout 120 node clients.mjs http://127.0.0.1:" + std::to_string(api.port) +
                          "/v1 >'" + said / "said" + "' 2>&1");
  EXPECT_EQ(ended, 0) << ReadAll(said / "said");
}

}  // namespace
}  // namespace tally
