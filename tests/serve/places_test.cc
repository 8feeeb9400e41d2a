// SPDX-License-Identifier: Apache-2.0
// Where a server is reached: a Unix socket, and paths behind a prefix.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "engine/base/file_lock.h"
#include "tests/serve/served_api.h"
#include "tests/serve/text_served.h"

namespace tally {
namespace {

namespace fs = std::filesystem;

// As a server that was killed leaves it.
void LeaveSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  path.copy(to.sun_path, sizeof to.sun_path - 1);
  EXPECT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  EXPECT_EQ(listen(fd, 1), 0);
  close(fd);
}

TEST(UnixSocket, AnswersWithoutAPort) {
  const TextServed text;
  const std::string path = text.folder() / "socket";
  LeaveSocket(path);
  std::vector<std::string> log;
  {
    const ServedApi api(text.model, {.log = [&](const std::string& line) { log.push_back(line); }}, path);
    EXPECT_EQ(api.port, 0);
    struct stat file {};
    ASSERT_EQ(lstat(path.c_str(), &file), 0);
    const mode_t mask = umask(0);
    umask(mask);
    EXPECT_EQ(file.st_mode & 0777, 0777 & ~mask);
    TestClient client(path);
    ASSERT_TRUE(client.connected());
    EXPECT_EQ(OrderedJson::parse(client.Post("/v1/completions", R"({"prompt": "w"})").body)["choices"][0]["text"], "xyz");
    EXPECT_EQ(client.Get("/v1/models").status, 200) << "the connection goes on";
    EXPECT_EQ(client.Get("/v1/models", "Host: evil.example\r\n").status, 403) << "a proxy may let names of others through";
    const Result<Listener> second = Listener::OpenUnix(path);
    ASSERT_FALSE(second.ok()) << "somebody answers there";
    EXPECT_NE(second.status().message().find("another program answers"), std::string::npos) << second.status().message();
    EXPECT_TRUE(fs::exists(path));
  }
  EXPECT_FALSE(fs::exists(path)) << "it is removed at the end";
  ASSERT_EQ(log.size(), 3u);
  const std::string posted = " unix:" + std::to_string(getuid()) + " POST";
  EXPECT_EQ(std::ranges::count_if(log, [&](const std::string& line) { return line.find(posted) != std::string::npos; }), 1);
}

TEST(UnixSocket, LeavesAloneWhatIsNotItsOwn) {
  const TempFolder folder;
  const std::string path = folder / "socket", moved = folder / "moved";
  std::ofstream(path) << "text";
  EXPECT_FALSE(Listener::OpenUnix(path).ok());
  EXPECT_TRUE(fs::is_regular_file(path));
  fs::remove(path);
  {
    FileLock other;  // of a server between its look at what is there and its listening
    ASSERT_EQ(other.Take(path + ".opening", 0600, FileLock::After::kRemove), 0);
    const Result<Listener> late = Listener::OpenUnix(path);
    ASSERT_FALSE(late.ok());
    EXPECT_NE(late.status().message().find("begins to listen"), std::string::npos) << late.status().message();
  }
  {
    const Result<Listener> first = Listener::OpenUnix(path);
    ASSERT_TRUE(first.ok()) << first.status().message();
    EXPECT_TRUE(first->loopback());
    fs::rename(path, moved);
    const Result<Listener> other = Listener::OpenUnix(path);
    ASSERT_TRUE(other.ok()) << other.status().message();
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".opening"));
  EXPECT_TRUE(fs::exists(moved)) << "the first one's path was another's";
  for (const std::string& bad : {std::string(), folder / std::string(120, 'x'), folder / "no such/socket", folder / ""}) {
    const Result<Listener> listener = Listener::OpenUnix(bad);
    ASSERT_FALSE(listener.ok()) << bad;
    EXPECT_EQ(listener.status().code(), StatusCode::kBadInput);
  }
}

TEST(PathPrefix, HoldsAllPaths) {
  const TextServed text;
  const std::string key = "0123456789abcdef", bearer = "Authorization: Bearer " + key + "\r\n";
  const ServedApi api(text.model, {.keys = {key}, .prefix = "/llm"});
  const OrderedJson chat = {{"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}};
  EXPECT_EQ(api.Ask("/llm/v1/chat/completions", chat, bearer)["choices"][0]["message"]["content"], "xyz");
  EXPECT_EQ(Get(api.port, "/llm/v1/models/text", bearer).status, 200);
  EXPECT_EQ(Get(api.port, "/llm/v1/models").status, 401);
  // Without a key, as without the prefix.
  EXPECT_EQ(Get(api.port, "/llm/").status, 200);
  EXPECT_EQ(Get(api.port, "/llm/health").status, 200);
  HttpReply sent = Get(api.port, "/llm");
  EXPECT_EQ(sent.status, 308);
  EXPECT_EQ(sent.headers["location"], "/llm/");
  for (const char* path : {"/", "/health", "/v1/models", "/llmx/v1/models", "/llm/llm/", "/llm/nothing"}) {
    const HttpReply outside = Get(api.port, path, bearer);
    EXPECT_EQ(outside.status, 404) << path;
    EXPECT_NE(outside.body.find(path), std::string::npos) << outside.body;
  }
  EXPECT_NE(Get(api.port, "/v1/models", bearer).body.find("begin with /llm/"), std::string::npos);
  EXPECT_EQ(Get(api.port, "/v1/models").status, 401) << "who has no key is not told";
  EXPECT_EQ(api.Ask("/api/chat", chat, bearer)["error"], "'/api/chat' is not served: all paths begin with /llm/");
}

TEST(PathPrefix, IsAPath) {
  for (const auto& [given, read] :
       {std::pair{"", ""}, {"/", ""}, {"/llm", "/llm"}, {"/llm/", "/llm"}, {"/a-b/c.d", "/a-b/c.d"}}) {
    const Result<std::string> prefix = ReadPathPrefix("--path-prefix", given);
    ASSERT_TRUE(prefix.ok()) << given;
    EXPECT_EQ(*prefix, read);
  }
  for (const char* bad : {"llm", "//", "/a//b", "/..", "/a/./b", "/a b", "/a?b", "/%20", "http://x"}) {
    const Result<std::string> prefix = ReadPathPrefix("--path-prefix", bad);
    ASSERT_FALSE(prefix.ok()) << bad;
    EXPECT_TRUE(prefix.status().message().starts_with("--path-prefix: ")) << prefix.status().message();
  }
}

}  // namespace
}  // namespace tally
