// SPDX-License-Identifier: Apache-2.0
// The chat page in Chromium (chat.mjs), with a server that gives scripted answers (mock_server.mjs). Screenshots stay in the build folder.
#include <fstream>

#include "engine/page/chat_page.h"
#include "engine/page/live_figures.h"
#include "tests/browser/chromium.h"
#include "tests/page/sample_live.h"
#include "tests/serve/served_demo.h"

namespace tally {
namespace {

class ChatBrowser : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string missing = PrepareBrowser({"chat.mjs", "chat_answers.mjs", "chat_window.mjs", "mock_server.mjs"});
        !missing.empty())
      GTEST_SKIP() << missing;
    folder_.Write("chat.html", MakeChatPage().html);
    folder_.Write("policy.txt", MakeChatPage().content_security_policy);
    std::string live;
    for (uint64_t n = 0; n < 60; ++n) live += LiveEvent(page::SampleLive(n), n == 0 ? LiveParts::kAll : LiveParts::kChanging);
    folder_.Write("live.txt", live);
  }

  TempFolder folder_;
};

TEST_F(ChatBrowser, AConversation) {
  if (!TALLY_MARKDOWN) GTEST_SKIP() << "the script's answers are markdown, which this build shows as text";
  // The server ends with the shell that starts it.
  const std::string command = "cd '" + std::string(kBrowserFolder) + "' && { node mock_server.mjs '" + folder_.path() + "' >'" +
                              folder_ / "url" + "' & server=$!; trap 'kill $server' EXIT; for i in $(seq 100); do [ -s '" +
                              folder_ / "url" + "' ] && break; sleep 0.1; done; node chat.mjs \"$(command -v " + Chromium() +
                              ")\" '" + kScreenshots + "' \"$(cat '" + folder_ / "url" + "')\" --scripted" +
                              (TALLY_MATHS ? " --maths" : "") + "; }";
  const int ended = Shell(command + " >'" + folder_ / "said" + "' 2>&1");
  EXPECT_EQ(ended, 0) << ReadAll(folder_ / "said");
}

// The page and its server as they are, with the demo model.
TEST_F(ChatBrowser, TheServersOwn) {
  const ServedDemo demo;
  ApiServerOptions options;
  options.pool.roofs = page::SampleLive(0).roofs;
  const ServedApi api(demo.model, options);
  api.Ask("/v1/completions", {{"prompt", "ROMEO:"}, {"max_tokens", 8}});  // so that there is something to show
  const int ended =
      Shell("cd '" + std::string(kBrowserFolder) + "' && node chat.mjs \"$(command -v " + Chromium() + ")\" '" + folder_.path() +
            "' http://127.0.0.1:" + std::to_string(api.port) + "/ >'" + folder_ / "said" + "' 2>&1");
  EXPECT_EQ(ended, 0) << ReadAll(folder_ / "said");
}

}  // namespace
}  // namespace tally
