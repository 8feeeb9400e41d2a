// SPDX-License-Identifier: Apache-2.0
// Fetching from a hub of the test's own, over sockets: what is right, and what servers and networks do wrong.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>

#include "engine/hub/hub.h"
#include "loaders/loaders.h"
#include "tests/hub/hub_server.h"

namespace tally::hub {
namespace {

namespace fs = std::filesystem;

std::string Noise(size_t bytes, uint32_t seed) {
  std::string text(bytes, '\0');
  for (char& c : text) {
    seed = seed * 1664525 + 1013904223;
    c = static_cast<char>(seed >> 24);
  }
  return text;
}

std::string ReadAll(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class HubPull : public testing::Test {
 protected:
  HubPull() {
    cache_ = fs::path(testing::TempDir()) / ("hub_pull_" + std::to_string(getpid())) /
             testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(cache_);
    server_.files = {{"config.json", {R"({"model_type":"gpt2"})", false}},
                     {"tokenizer.json", {Noise(5000, 1), false}},
                     {"README.md", {"words", false}},
                     {"model.safetensors", {Noise(3'000'000, 2), true}}};
    settings_.endpoint = server_.url();
    settings_.cache = cache_.string();
    settings_.retry_seconds = 0.01;
    settings_.stall_seconds = 10;
  }
  ~HubPull() override { fs::remove_all(cache_); }

  void SetUp() override {
    if (!TALLY_PULL) GTEST_SKIP() << "built without libcurl";
  }

  Result<std::string> Pull(const std::string& choice = "", const ProgressCallback& progress = nullptr) {
    const Result<std::unique_ptr<Hub>> hub = OpenHub(settings_);
    if (!hub.ok()) return hub.status();
    const Result<Plan> plan = (*hub)->MakePlan({"org", "name", choice}, Want::kWeights, nullptr);
    if (!plan.ok()) return plan.status();
    Result<Fetched> fetched = (*hub)->Fetch(*plan, progress);
    if (!fetched.ok()) return fetched.status();
    return fetched->path;
  }
  void ExpectPulled(const std::string& choice = "") {
    const Result<std::string> path = Pull(choice);
    ASSERT_TRUE(path.ok()) << path.status().message();
    for (const auto& [name, file] : server_.files) {
      if (!fs::exists(fs::path(*path) / name)) continue;
      EXPECT_EQ(ReadAll(fs::path(*path) / name), file.bytes) << name;
    }
    EXPECT_EQ(ReadAll(fs::path(*path) / "model.safetensors"), server_.files.at("model.safetensors").bytes);
  }
  // One line with `part`, and no file under the model's name.
  void ExpectRefused(const std::string& part, const std::string& choice = "") {
    const Result<std::string> path = Pull(choice);
    ASSERT_FALSE(path.ok()) << part;
    EXPECT_EQ(path.status().code(), StatusCode::kBadInput);
    EXPECT_NE(path.status().message().find(part), std::string::npos) << path.status().message();
    EXPECT_EQ(path.status().message().find('\n'), std::string::npos) << path.status().message();
    EXPECT_FALSE(fs::exists(Folder() / "snapshots" / HubServer::kCommit / "model.safetensors"));
  }
  fs::path Folder() const { return cache_ / "models--org--name"; }
  fs::path Incomplete() const {
    return Folder() / "blobs" / (Sha256Of(server_.files.at("model.safetensors").bytes) + ".incomplete");
  }
  // Only answers for the weights are changed.
  void OfWeights(std::function<void(const Asked&, size_t, Answer&)> change) {
    server_.meddle = [change = std::move(change)](const Asked& asked, size_t n, Answer& answer) {
      if (asked.path.find("model.safetensors") != std::string::npos) change(asked, n, answer);
    };
  }

  fs::path cache_;
  HubServer server_;
  Settings settings_;
};

TEST_F(HubPull, IntoTheCacheOfHuggingfaceHub) {
  EXPECT_FALSE(FindCached(settings_, {"org", "name", ""}, Want::kWeights).ok());
  ExpectPulled();
  const fs::path snapshot = Folder() / "snapshots" / HubServer::kCommit;
  EXPECT_EQ(ReadAll(Folder() / "refs" / "main"), HubServer::kCommit);
  EXPECT_EQ(fs::read_symlink(snapshot / "model.safetensors"),
            "../../blobs/" + Sha256Of(server_.files.at("model.safetensors").bytes));
  EXPECT_EQ(fs::read_symlink(snapshot / "config.json"), "../../blobs/" + GitSha1Of(server_.files.at("config.json").bytes));
  EXPECT_FALSE(fs::exists(snapshot / "README.md"));
  for (const auto& entry : fs::directory_iterator(Folder() / "blobs")) EXPECT_EQ(entry.path().extension(), "") << entry.path();
  const Result<std::string> found = FindCached(settings_, {"org", "name", ""}, Want::kWeights);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(*found, snapshot.string());
  // Nothing comes twice, and offline nothing is asked.
  const size_t before = server_.hub().asked().size();
  ExpectPulled();
  EXPECT_EQ(server_.hub().asked().size(), before + 1);
  settings_.offline = true;
  EXPECT_FALSE(OpenHub(settings_).ok());
  EXPECT_TRUE(FindCached(settings_, {"org", "name", ""}, Want::kWeights).ok());
}

TEST_F(HubPull, ShardsByTheIndexAndPartsInFolders) {
  server_.files.erase("model.safetensors");
  server_.files["model-00001-of-00002.safetensors"] = {Noise(1000, 3), true};
  server_.files["model-00002-of-00002.safetensors"] = {Noise(1000, 4), true};
  server_.files["consolidated.safetensors"] = {Noise(1000, 5), true};
  server_.files["model.safetensors.index.json"] = {
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})", false};
  server_.files["Q8_0/x-Q8_0-00001-of-00002.gguf"] = {Noise(1000, 6), true};
  server_.files["Q8_0/x-Q8_0-00002-of-00002.gguf"] = {Noise(1000, 7), true};
  const Result<std::string> path = Pull();
  ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_TRUE(fs::exists(fs::path(*path) / "model-00002-of-00002.safetensors"));
  EXPECT_FALSE(fs::exists(fs::path(*path) / "consolidated.safetensors"));
  EXPECT_TRUE(FindCached(settings_, {"org", "name", ""}, Want::kWeights).ok());
  fs::remove(fs::path(*path) / "model-00002-of-00002.safetensors");
  EXPECT_FALSE(FindCached(settings_, {"org", "name", ""}, Want::kWeights).ok());
  EXPECT_EQ(*FindCached(settings_, {"org", "name", ""}, Want::kConfiguration), *path + "/config.json");
  EXPECT_FALSE(FindCached(settings_, {"org", "name", "Q8_0"}, Want::kWeights).ok());
  const Result<std::string> parts = Pull("Q8_0");
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  EXPECT_EQ(*parts, *path + "/Q8_0/x-Q8_0-00001-of-00002.gguf");
  EXPECT_EQ(ReadAll(*parts), server_.files["Q8_0/x-Q8_0-00001-of-00002.gguf"].bytes);
  EXPECT_TRUE(fs::read_symlink(*parts).string().starts_with("../../../blobs/"));
  EXPECT_EQ(*FindCached(settings_, {"org", "name", "Q8_0"}, Want::kWeights), *parts);
}

// A name stands for the same files whatever was pulled before.
TEST_F(HubPull, TheNameAloneIsTheDefaultOfTheRepository) {
  server_.files["x-Q4_K_M.gguf"] = {Noise(1000, 3), true};
  server_.files["x-UD-Q4_K_M.gguf"] = {Noise(1000, 4), true};
  const auto found = [&](const std::string& choice) { return FindCached(settings_, {"org", "name", choice}, Want::kWeights); };
  const Result<std::string> typed = Pull("x-UD-Q4_K_M.gguf");
  ASSERT_TRUE(typed.ok()) << typed.status().message();
  EXPECT_TRUE(found("x-UD-Q4_K_M.gguf").ok());
  ASSERT_FALSE(found("Q4_K_M").ok());  // on the hub it is another file
  EXPECT_NE(found("Q4_K_M").status().message().find("x-Q4_K_M.gguf is not in the cache; there is x-UD-Q4_K_M.gguf"),
            std::string::npos)
      << found("Q4_K_M").status().message();
  ASSERT_TRUE(Pull("Q4_K_M").ok());
  EXPECT_TRUE(found("Q4_K_M").ok());
  ASSERT_FALSE(found("").ok());
  EXPECT_NE(found("").status().message().find("; there are x-Q4_K_M.gguf (1000 bytes), "), std::string::npos)
      << found("").status().message();
  // Of another program's files the rest is not known.
  fs::remove_all(Folder() / ".tally");
  EXPECT_FALSE(found("").ok());
  EXPECT_TRUE(found("x-Q4_K_M.gguf").ok());
  ExpectPulled();
  EXPECT_TRUE(found("").ok());
  EXPECT_TRUE(fs::exists(Folder() / ".tally"));
  const Result<Removal> others = PlanRemoval(settings_, {"org", "name", ""}, /*all=*/true);
  ASSERT_FALSE(others.ok()) << "read beside what was there, and not Tally's";
  EXPECT_NE(others.status().message().find("x-Q4_K_M.gguf"), std::string::npos) << others.status().message();
  fs::remove(Folder() / "snapshots" / HubServer::kCommit / "tokenizer.json");
  EXPECT_NE(found("").status().message().find("tokenizer.json is not in the cache"), std::string::npos);
  // GGUF files alone, and not the one that the name stands for.
  fs::remove_all(cache_);
  server_.files = {{"x-Q4_K_M.gguf", {Noise(1000, 3), true}}, {"x-Q8_0.gguf", {Noise(1000, 4), true}}};
  ASSERT_TRUE(Pull("Q8_0").ok());
  EXPECT_TRUE(found("Q8_0").ok());
  EXPECT_FALSE(found("").ok());
  ASSERT_TRUE(Pull().ok());
  EXPECT_TRUE(found("")->ends_with("x-Q4_K_M.gguf"));
  EXPECT_TRUE(PlanRemoval(settings_, {"org", "name", ""}, /*all=*/true).ok()) << "all of it was fetched";
}

// A file system without symbolic links: the files themselves are in the snapshot.
TEST_F(HubPull, FilesInTheSnapshotAreNotFetchedAgain) {
  ExpectPulled();
  const fs::path blob = Folder() / "blobs" / Sha256Of(server_.files.at("model.safetensors").bytes);
  const fs::path place = Folder() / "snapshots" / HubServer::kCommit / "model.safetensors";
  fs::rename(blob, place);
  const size_t before = server_.hub().asked().size();
  ExpectPulled();
  EXPECT_EQ(server_.hub().asked().size(), before + 1);
  EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(place)));
  fs::remove(place);
  ExpectPulled();
  EXPECT_TRUE(fs::is_symlink(place));
}

TEST_F(HubPull, NoProxyGetsTheToken) {
  HttpServer proxy([](const Asked&) { return Answer{502, {}, ""}; });
  setenv("http_proxy", proxy.url().c_str(), 1);
  settings_.token = server_.required_token = "hf_secret";
  ExpectPulled();
  EXPECT_EQ(proxy.asked().size(), 0u);
  settings_.endpoint = "http://hub.invalid";  // what is not this machine goes there, without one
  settings_.retry_seconds = 0.001;
  EXPECT_FALSE(Pull().ok());
  unsetenv("http_proxy");
  ASSERT_GT(proxy.asked().size(), 0u);
  for (const Asked& a : proxy.asked()) EXPECT_EQ(a.Header("authorization"), "");
}

TEST_F(HubPull, TheTokenStaysWithTheHub) {
  settings_.token = server_.required_token = "hf_secret";
  server_.storage_elsewhere = true;
  ExpectPulled();
  for (const Asked& a : server_.hub().asked()) EXPECT_EQ(a.Header("authorization"), "Bearer hf_secret") << a.path;
  ASSERT_GT(server_.storage().asked().size(), 0u);
  for (const Asked& a : server_.storage().asked()) {
    for (const auto& [name, value] : a.headers) EXPECT_EQ(value.find("hf_secret"), std::string::npos) << name;
    EXPECT_EQ(a.path.find("hf_secret"), std::string::npos);
  }
}

TEST_F(HubPull, NoErrorHasTheTokenInIt) {
  settings_.token = "hf_secret";
  server_.required_token = "another";  // the answer holds what was sent
  const Result<std::string> path = Pull();
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().message().find("hf_secret"), std::string::npos);
  EXPECT_NE(path.status().message().find("the token has no access"), std::string::npos) << path.status().message();
  // Headers that messages quote.
  server_.required_token = "";
  for (const char* header : {"X-Linked-Etag", "X-Repo-Commit", "X-Linked-Size"}) {
    OfWeights([=](const Asked& asked, size_t, Answer& answer) {
      for (auto& [name, value] : answer.headers) {
        if (name == header) value = asked.Header("authorization");
      }
    });
    const Result<std::string> echoed = Pull();
    ASSERT_FALSE(echoed.ok()) << header;
    EXPECT_EQ(echoed.status().message().find("hf_secret"), std::string::npos) << echoed.status().message();
    EXPECT_NE(echoed.status().message().find("***"), std::string::npos) << echoed.status().message();
  }
  OfWeights([](const Asked&, size_t, Answer& answer) { answer = {302, {{"Location", "http://a/hf_secret<"}}, ""}; });
  EXPECT_EQ(Pull().status().message().find("hf_secret"), std::string::npos);
}

TEST_F(HubPull, CutConnectionsGoOn) {
  for (const bool elsewhere : {false, true}) {
    fs::remove_all(cache_);
    server_.storage_elsewhere = elsewhere;
    OfWeights([](const Asked&, size_t, Answer& answer) { answer.cut_after = 400'000; });  // every time
    ExpectPulled();
  }
  size_t resumed = 0;
  for (const Asked& a : server_.storage().asked()) resumed += !a.Header("range").empty();
  EXPECT_GE(resumed, 3u);
}

TEST_F(HubPull, NoProgressIsGivenUp) {
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.cut_after = 0; });
  ExpectRefused("given up after 5 attempts");
  EXPECT_EQ(server_.hub().Count("model.safetensors"), 5u);
}

TEST_F(HubPull, WhatCameStaysForTheNextCall) {
  bool stop = false;
  const Result<std::string> path = Pull("", [&](const Progress& p) {
    stop = stop || p.done > 1'000'000;
    return !stop;
  });
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(path.status().code(), StatusCode::kInterrupted);
  const uint64_t left = fs::file_size(Incomplete());
  EXPECT_GT(left, 900'000u);
  const size_t before = server_.hub().asked().size();
  ExpectPulled();
  EXPECT_FALSE(fs::exists(Incomplete()));
  const std::vector<Asked> asked = server_.hub().asked();
  ASSERT_EQ(asked.size(), before + 2);
  EXPECT_EQ(asked.back().Header("range"), "bytes=" + std::to_string(left) + "-");
}

TEST_F(HubPull, AServerWithoutRanges) {
  server_.ranges = false;
  OfWeights([](const Asked&, size_t n, Answer& answer) { answer.cut_after = n == 0 ? 400'000 : SIZE_MAX; });
  ExpectPulled();
  EXPECT_EQ(server_.hub().Count("model.safetensors"), 2u);
}

TEST_F(HubPull, AServerWithoutRangesThatAlwaysCutsIsGivenUp) {
  server_.ranges = false;
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.cut_after = 400'000; });
  ExpectRefused("given up after 5 attempts");
  EXPECT_LE(server_.hub().Count("model.safetensors"), 6u);
}

TEST_F(HubPull, ASpoiltRemainderIsFetchedAgain) {
  fs::create_directories(Incomplete().parent_path());
  std::ofstream(Incomplete(), std::ios::binary) << Noise(1'000'000, 99);
  ExpectPulled();
  fs::remove_all(cache_);
  fs::create_directories(Incomplete().parent_path());
  std::ofstream(Incomplete(), std::ios::binary) << Noise(4'000'000, 99);  // longer than the file
  ExpectPulled();
}

TEST_F(HubPull, AWrongDigest) {
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.body[1000] ^= 1; });
  ExpectRefused("SHA-256");
  EXPECT_FALSE(fs::exists(Incomplete()));
  fs::remove_all(cache_);
  server_.meddle = [](const Asked& asked, size_t, Answer& answer) {
    if (asked.path.ends_with("/config.json")) answer.body[0] = '[';
  };
  ExpectRefused("git SHA-1");
}

TEST_F(HubPull, LiesAboutLengths) {
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.content_length = 2'999'999; });
  ExpectRefused("the server has 2999999 bytes; the hub's list says 3000000");
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.content_length = 4'000'000; });
  ExpectRefused("the server has 4000000 bytes");
  OfWeights([](const Asked&, size_t, Answer& answer) {  // no length, and more than there should be
    answer.content_length = -2;
    answer.body += "more";
  });
  ExpectRefused("sends more than the 3000000 bytes");
  EXPECT_LE(fs::file_size(Incomplete()), 3'000'000u);
  fs::remove_all(cache_);
  OfWeights([](const Asked& asked, size_t, Answer& answer) {
    if (asked.Header("range").empty()) {
      answer.cut_after = 2'000'000;
    } else {
      answer.headers[0].second = "bytes 0-2999999/3000000";
    }
  });
  ExpectRefused("asked for the bytes from");
  fs::remove_all(cache_);
  OfWeights([](const Asked&, size_t, Answer& answer) { answer.headers.emplace_back("X-Junk", std::string(200'000, 'x')); });
  ExpectRefused("127.0.0.1");
}

TEST_F(HubPull, HeadersThatContradictTheList) {
  const auto with = [&](const std::string& name, const std::string& value) {
    OfWeights([=](const Asked&, size_t, Answer& answer) {
      for (auto& [key, v] : answer.headers) {
        if (key == name) v = value;
      }
    });
  };
  with("X-Linked-Etag", '"' + std::string(64, 'a') + '"');
  ExpectRefused("the answer is of another file");
  with("X-Linked-Size", "12");
  ExpectRefused("a file of '12' bytes");
  with("X-Repo-Commit", std::string(40, 'f'));
  ExpectRefused("another revision");
}

TEST_F(HubPull, AnswersThatAreErrors) {
  const auto all = [&](int status, std::vector<std::pair<std::string, std::string>> headers = {}) {
    server_.meddle = [=](const Asked&, size_t, Answer& answer) { answer = {status, headers, "nothing for you"}; };
    return server_.hub().asked().size();
  };
  size_t before = all(401);
  ExpectRefused("or set HF_TOKEN");
  EXPECT_EQ(server_.hub().asked().size(), before + 1);  // no second attempt
  all(403, {{"X-Error-Code", "GatedRepo"}});
  ExpectRefused("wants its terms accepted first: at 127.0.0.1:");
  all(404);
  ExpectRefused("knows no such repository (answer 404)");
  before = all(503);
  ExpectRefused("answers 503: it has trouble of its own; later; given up after 5 attempts");
  EXPECT_EQ(server_.hub().asked().size(), before + 5);
  before = all(429, {{"Retry-After", "100000"}});
  ExpectRefused("it asks to wait 100000 seconds");
  EXPECT_EQ(server_.hub().asked().size(), before + 1);
  all(302);
  ExpectRefused("answers 302");
  all(200);
  ExpectRefused("not valid JSON");
  OfWeights([](const Asked&, size_t, Answer& answer) { answer = {404, {{"X-Error-Code", "EntryNotFound"}}, ""}; });
  ExpectRefused("has no such file there");
}

TEST_F(HubPull, AnswersThatPass) {
  server_.meddle = [](const Asked&, size_t n, Answer& answer) {
    if (n == 0) answer = {503, {}, "busy"};
    if (n == 1) answer = {429, {{"Retry-After", "1"}}, "slowly"};
    if (n == 2) answer = {500, {}, ""};
  };
  settings_.retry_seconds = 0.001;
  server_.files.erase("tokenizer.json");
  const auto begin = std::chrono::steady_clock::now();
  ExpectPulled();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));  // three paths, each asked to wait one
}

TEST_F(HubPull, ASilentServerIsLeft) {
  settings_.stall_seconds = 0.5;
  OfWeights([](const Asked&, size_t n, Answer& answer) {
    answer.silent = n == 0;
    answer.cut_after = n == 0 ? 1'000'000 : SIZE_MAX;
  });
  ExpectPulled();
}

TEST_F(HubPull, NobodyListens) {
  {
    HttpServer gone([](const Asked&) { return Answer(); });
    settings_.endpoint = gone.url();
  }
  ExpectRefused("given up after 5 attempts");
  settings_.endpoint = "http://no-such-host.invalid";
  ExpectRefused("no-such-host.invalid");
}

TEST_F(HubPull, RedirectsThatAreNotFollowed) {
  const auto to = [&](const std::string& location) {
    OfWeights([=](const Asked&, size_t, Answer& answer) { answer = {302, {{"Location", location}}, ""}; });
  };
  to("file:///etc/passwd");
  ExpectRefused("is no address of http or https");
  to("http://user:word@127.0.0.1/x");
  ExpectRefused("a user's name or password");
  to("/org/name/resolve/" + std::string(HubServer::kCommit) + "/model.safetensors");
  ExpectRefused("more than 8 redirects");
  // Relative, on the same host: the hub's way for small files.
  server_.meddle = [](const Asked& asked, size_t, Answer& answer) {
    if (asked.path.ends_with("/resolve/" + std::string(HubServer::kCommit) + "/config.json")) {
      answer = {307, {{"Location", "/elsewhere/config.json"}, {"X-Repo-Commit", HubServer::kCommit}}, "Temporary Redirect"};
    } else if (asked.path == "/elsewhere/config.json") {
      answer = {200, {}, R"({"model_type":"gpt2"})"};
    }
  };
  ExpectPulled();
}

TEST_F(HubPull, RoomOnTheDiskIsLookedAtFirst) {
  nlohmann::json listing = server_.Listing();
  for (auto& f : listing["siblings"]) {
    if (f["rfilename"] == "model.safetensors") f["lfs"]["size"] = uint64_t{1} << 60;
  }
  server_.meddle = [=](const Asked& asked, size_t, Answer& answer) {
    if (asked.path.starts_with("/api/")) answer.body = listing.dump();
  };
  ExpectRefused("1.01 EiB are to come");
  EXPECT_EQ(server_.hub().asked().size(), 1u);
}

TEST_F(HubPull, PathsThatLeadOutAreRefused) {
  for (const char* path : {"../../../evil", "/tmp/evil", "a/../../evil"}) {
    server_.meddle = [=, this](const Asked& asked, size_t, Answer& answer) {
      nlohmann::json listing = server_.Listing();
      listing["siblings"].push_back({{"rfilename", path}, {"size", 1}, {"blobId", std::string(40, 'a')}});
      if (asked.path.starts_with("/api/")) answer.body = listing.dump();
    };
    ExpectRefused("is no path of a file in a repository");
    EXPECT_FALSE(fs::exists(cache_));
  }
}

TEST_F(HubPull, TwoAtOnceFetchOnce) {
  OfWeights([](const Asked&, size_t, Answer&) { std::this_thread::sleep_for(std::chrono::milliseconds(400)); });
  std::vector<Result<std::string>> paths(2, Status());
  bool waited[2] = {};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      paths[i] = Pull("", [&waited, i](const Progress& p) {
        waited[i] = waited[i] || p.waiting;
        return true;
      });
    });
  }
  for (std::thread& t : threads) t.join();
  for (const auto& path : paths) ASSERT_TRUE(path.ok()) << path.status().message();
  EXPECT_EQ(*paths[0], *paths[1]);
  EXPECT_EQ(server_.hub().Count("model.safetensors"), 1u);
  EXPECT_TRUE(waited[0] || waited[1]);
  EXPECT_EQ(ReadAll(*paths[0] + "/model.safetensors"), server_.files.at("model.safetensors").bytes);
}

// A GGUF file of 24 MB, 3 MB of them its header.
std::string BigGguf(const fs::path& folder) {
  fs::create_directories(folder);
  const std::string path = (folder / "x-Q8_0.gguf").string();
  GgufWriter writer;
  writer.Set("general.architecture", std::string("llama"));
  std::vector<std::string> tokens;
  for (int i = 0; i < 150'000; ++i) tokens.push_back("token" + std::to_string(i));
  writer.Set("tokenizer.ggml.tokens", std::move(tokens));
  writer.Set("some.flags", std::vector<bool>{true, false});
  writer.AddTensor("token_embd.weight", DType::kF32, {1000, 5000});
  const Status status =
      writer.Write(path, [](size_t, uint64_t, std::span<uint8_t> piece) { std::fill(piece.begin(), piece.end(), 1); });
  EXPECT_TRUE(status.ok()) << status.message();
  return ReadAll(path);
}

TEST_F(HubPull, HeadersAlone) {
  const std::string gguf = BigGguf(cache_ / "made");
  server_.files = {{"x-Q8_0.gguf", {gguf, true}}};
  for (const bool ranges : {true, false}) {
    server_.ranges = ranges;
    OfWeights(nullptr);
    server_.meddle = [](const Asked&, size_t n, Answer& answer) { answer.cut_after = n == 1 ? 100'000 : SIZE_MAX; };
    const Result<std::unique_ptr<Hub>> hub = OpenHub(settings_);
    ASSERT_TRUE(hub.ok());
    const Result<Plan> plan = (*hub)->MakePlan({"org", "name", ""}, Want::kConfiguration, nullptr);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    EXPECT_TRUE(plan->headers);
    uint64_t fetched = 0;
    std::string path;
    {
      const Result<Fetched> header = (*hub)->Fetch(*plan, [&](const Progress& p) {
        fetched = p.fetched;
        return true;
      });
      ASSERT_TRUE(header.ok()) << header.status().message();
      path = header->path;
      const Result<Inventory> inventory = ReadGguf(path);
      ASSERT_TRUE(inventory.ok()) << inventory.status().message();
      EXPECT_EQ(inventory->tensors.size(), 1u);
      EXPECT_EQ(fs::file_size(path), gguf.size());
      struct stat info;
      ASSERT_EQ(stat(path.c_str(), &info), 0);
      EXPECT_LT(info.st_blocks * 512, 8 << 20);  // the rest is a hole
    }
    EXPECT_FALSE(fs::exists(path));
    if (ranges) {
      EXPECT_LT(fetched, 6u << 20);
      for (const Asked& a : server_.hub().asked()) {
        if (a.path.find("/resolve/") == std::string::npos) continue;
        EXPECT_TRUE(a.Header("range").starts_with("bytes=")) << a.Header("range");
      }
    }
  }
  EXPECT_FALSE(fs::exists(Folder()));
  server_.files["x-Q8_0.gguf"].bytes = Noise(5000, 8);
  const Result<std::unique_ptr<Hub>> hub = OpenHub(settings_);
  const Result<Plan> plan = (*hub)->MakePlan({"org", "name", ""}, Want::kConfiguration, nullptr);
  ASSERT_TRUE(plan.ok());
  const Result<Fetched> header = (*hub)->Fetch(*plan, nullptr);
  ASSERT_FALSE(header.ok());
  EXPECT_NE(header.status().message().find("begins with the letters GGUF"), std::string::npos) << header.status().message();
}

TEST_F(HubPull, AConfigurationAlone) {
  const Result<std::unique_ptr<Hub>> hub = OpenHub(settings_);
  const Result<Plan> plan = (*hub)->MakePlan({"org", "name", ""}, Want::kConfiguration, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->missing, server_.files.at("config.json").bytes.size());
  const Result<Fetched> fetched = (*hub)->Fetch(*plan, nullptr);
  ASSERT_TRUE(fetched.ok()) << fetched.status().message();
  EXPECT_TRUE(fetched->path.ends_with("/config.json"));
  EXPECT_EQ(server_.hub().Count("model.safetensors"), 0u);
  EXPECT_FALSE(FindCached(settings_, {"org", "name", ""}, Want::kWeights).ok());
  EXPECT_TRUE(FindCached(settings_, {"org", "name", ""}, Want::kConfiguration).ok());
}

TEST(GgufHeader, EndsWhereItEnds) {
  const std::string gguf = BigGguf(fs::path(testing::TempDir()) / ("hub_header_" + std::to_string(getpid())));
  const auto header = [&](size_t n) { return GgufHeaderBytes(BytesOf(gguf).first(n), "x"); };
  const Result<std::optional<uint64_t>> whole = header(gguf.size());
  ASSERT_TRUE(whole.ok() && *whole) << whole.status().message();
  EXPECT_LT(gguf.size() - **whole, 20'000'000u + 64);
  EXPECT_EQ(*header(**whole), **whole);
  for (const size_t n : {size_t{0}, size_t{3}, size_t{4}, size_t{20}, size_t{100}, size_t{1'000'000}, size_t{**whole - 1}}) {
    ASSERT_TRUE(header(n).ok()) << n;
    EXPECT_FALSE(*header(n)) << n;
  }
  const auto refused = [&](size_t at, char value) {
    std::string bad = gguf;
    bad[at] = value;
    return !GgufHeaderBytes(BytesOf(bad), "x").ok();
  };
  EXPECT_TRUE(refused(0, 'X'));
  EXPECT_TRUE(refused(4, 9));
  EXPECT_TRUE(refused(15, 1));            // 2^56 tensors
  EXPECT_TRUE(refused(24 + 8 + 20, 77));  // the type of general.architecture
  fs::remove_all(fs::path(testing::TempDir()) / ("hub_header_" + std::to_string(getpid())));
}

}  // namespace
}  // namespace tally::hub
