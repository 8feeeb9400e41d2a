// SPDX-License-Identifier: Apache-2.0
// Real clients of OpenAI's and Anthropic's APIs (package.json pins them): with a server of the demo model, and with one whose model calls a
// tool and then is done, over and over.
#include <gtest/gtest.h>

#include <string>

#include "tests/serve/scripted_harmony.h"
#include "tests/serve/served_demo.h"
#include "tests/support/npm.h"

namespace tally {
namespace {

// What has failed, or why it cannot be tried.
void RunScript(const std::string& script, uint16_t port) {
  const std::string folder = TALLY_CLIENTS_DIR;
  const std::string missing = InstallNpm(TALLY_SOURCE_DIR "/tests/clients", folder, {"clients.mjs", "tools.mjs", "cases.mjs"});
  if (!missing.empty()) GTEST_SKIP() << missing;
  const TempFolder said;
  const int ended = Shell("cd '" + folder + "' && timeout 120 node " + script + " http://127.0.0.1:" + std::to_string(port) +
                          "/v1 >'" + said / "said" + "' 2>&1");
  EXPECT_EQ(ended, 0) << ReadAll(said / "said");
}

TEST(Clients, OfTheDemo) {
  const ServedDemo demo;
  const ServedApi api(demo.model);
  RunScript("clients.mjs", api.port);
}

TEST(Clients, WithTools) {
  ScriptedHarmony harmony;
  harmony.Say(
      "<|channel|>analysis<|message|>A tool will tell.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
      "<|constrain|>json<|message|>{\"city\":\"Rome\"}<|call|><|channel|>analysis<|message|>Good.<|end|><|start|>assistant<|"
      "channel|>final"
      "<|message|>It is sunny.<|return|>");
  RunScript("tools.mjs", harmony.api().port);
}

}  // namespace
}  // namespace tally
