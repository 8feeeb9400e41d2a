// SPDX-License-Identifier: Apache-2.0
// Several models in one server: which one answers, and how they give way to each other.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/serve/model_pool.h"
#include "tests/app/text_model.h"
#include "tests/serve/served_api.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

const OrderedJson kHi = {{"messages", OrderedJson::array({{{"role", "user"}, {"content", "Hi"}}})}, {"tally", true}};

OrderedJson Hi(const std::string& model) {
  OrderedJson body = kHi;
  body["model"] = model;
  return body;
}

// Says what models are, and holds loads up where a test asks for it.
class Sources {
 public:
  Sources() {
    EXPECT_TRUE(TextModel::Write(path_).ok());
    options_.threads = 1;
    options_.context = 128;
    options_.sequences = 2;
    const Result<MemoryPlan> plan = PlanModel(path_, options_);
    EXPECT_TRUE(plan.ok()) << plan.status().message();
    if (plan.ok()) bytes_ = plan->total();
  }
  uint64_t bytes() const { return bytes_; }  // of each model
  ModelSource Make(const std::string& name) {
    ModelSource source{.name = name, .bytes = bytes_, .context = 128};
    source.load = [this](bool, const std::function<bool()>& stop) -> Result<ReadyModel> {
      ++loads_;
      while (held_ && !stop()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      if (stop()) return Status(StatusCode::kInterrupted, "interrupted");
      if (fails_) return BadInput("the file has gone");
      Result<std::shared_ptr<const Model>> model = LoadModel(path_, options_);
      if (!model.ok()) return model.status();
      Result<std::unique_ptr<Engine>> engine = NewEngine(*model, options_);
      if (!engine.ok()) return engine.status();
      ReadyModel ready;
      ready.engine = std::move(*engine);
      ready.served.sampling.temperature = 0;
      ready.served.chat = ready.served.tool_chat =
          MakeChatSide({.text = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<|turn|>' }}"}, /*native=*/true);
      return ready;
    };
    return source;
  }
  void Hold(bool held) { held_ = held; }
  void Fail(bool fails) { fails_ = fails; }
  int loads() const { return loads_; }

 private:
  TempFolder folder_;
  const std::string path_ = folder_ / "text.gguf";
  EngineOptions options_;
  uint64_t bytes_ = 0;
  std::atomic<bool> held_{false}, fails_{false};
  std::atomic<int> loads_{0};
};

// A server of models a, b, c of which `fit` have room.
class ServedModels {
 public:
  explicit ServedModels(uint64_t fit, double deadline = 0, const std::string& cache = "", double retry = 0) {
    Result<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    ApiServerOptions options;
    options.metrics = true;
    options.pool.bytes = fit * sources.bytes() + sources.bytes() / 2;
    options.pool.cache_folder = cache;
    options.pool.cache_bytes = uint64_t{1} << 30;
    options.pool.retry_seconds = retry;
    options.pool.loop.deadline_seconds = deadline;
    options.log = options.pool.warn = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      log_ += line + "\n";
    };
    std::vector<ModelSource> models;
    for (const char* const name : {"a", "b", "c"}) models.push_back(sources.Make(name));
    Result<std::unique_ptr<ApiServer>> started = ApiServer::Start(std::move(models), std::move(*listener), options);
    EXPECT_TRUE(started.ok()) << started.status().message();
    server = std::move(*started);
  }
  HttpReply Ask(const std::string& model) const { return Post(server->port(), "/v1/chat/completions", Hi(model).dump()); }
  // "loaded unloaded loading", of a, b and c.
  std::string States() const {
    const OrderedJson list = OrderedJson::parse(Get(server->port(), "/v1/models").body);
    std::string states;
    for (const OrderedJson& model : list.at("data"))
      states += (states.empty() ? "" : " ") + model.at("status").at("value").get<std::string>();
    return states;
  }
  static bool Soon(const std::function<bool()>& holds) {
    for (int i = 0; i < 1000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return holds();
  }
  bool Becomes(const std::string& states) const {
    return Soon([&] { return States() == states; });
  }
  bool Logs(const std::string& text) const {
    return Soon([&] {
      const std::lock_guard lock(mutex_);
      return log_.find(text) != std::string::npos;
    });
  }

 private:
  mutable std::mutex mutex_;
  std::string log_;

 public:
  Sources sources;
  std::unique_ptr<ApiServer> server;  // ends before what it uses
};

TEST(ServingModels, TheNameChoosesAndTheLeastRecentlyUsedGivesWay) {
  const ServedModels models(2);
  const uint16_t port = models.server->port();
  EXPECT_EQ(models.States(), "loaded loaded unloaded");  // those that fit, in their order
  for (const char* const name : {"a", "b", "a", "c", "a"}) {
    const OrderedJson answer = OrderedJson::parse(models.Ask(name).body);
    EXPECT_EQ(answer.at("model"), name) << answer;
    EXPECT_EQ(answer.at("choices")[0].at("message").at("content"), "xyz");
    EXPECT_EQ(answer.at("usage").at("tally").at("model"), name);
    EXPECT_TRUE(ServedModels::Soon([&] { return Get(port, "/load").body == "{\"server_load\":0}"; }));  // it is idle again
  }
  EXPECT_EQ(models.States(), "loaded unloaded loaded");  // b was used longest ago
  for (const char* const name : {"a", "b", "c"}) EXPECT_TRUE(models.Logs(std::string(" model=") + name + " prompt=3"));
  EXPECT_EQ(models.sources.loads(), 3);
  const OrderedJson unknown = OrderedJson::parse(models.Ask("d").body).at("error");
  EXPECT_EQ(unknown.at("code"), "model_not_found");
  EXPECT_NE(unknown.at("message").get<std::string>().find("'a', 'b', 'c'"), std::string::npos) << unknown;
  EXPECT_EQ(OrderedJson::parse(models.Ask("").body).at("model"), "a");
  // The endpoints that answer without the engine choose too.
  EXPECT_EQ(Post(port, "/tokenize", R"({"content": "ab", "model": "b"})").body, "{\"tokens\":[256]}");
  EXPECT_EQ(models.States(), "loaded loaded unloaded");
  EXPECT_EQ(OrderedJson::parse(Get(port, "/props").body).at("model_alias"), "b");
  EXPECT_EQ(OrderedJson::parse(Get(port, "/props?model=a").body).at("model_alias"), "a");
  EXPECT_EQ(Get(port, "/slots?model=c").status, 503);
  EXPECT_EQ(Get(port, "/slots?model=d").status, 404);
  const std::string metrics = Get(port, "/metrics").body;
  for (const char* const line :
       {"\ntally_model_loaded{model=\"b\"} 1\n", "\ntally_model_loaded{model=\"c\"} 0\n",
        "\ntally_model_drops_total{model=\"c\"} 1\n", "\ntally_completion_tokens_total{model=\"a\"} 12\n",
        "\ntally_rows_total{model=\"a\",phase=\"decode\"} ",
        "\ntally_requests_total{path=\"/v1/chat/completions\",status=\"200\"} 6\n"}) {
    EXPECT_NE(metrics.find(line), std::string::npos) << line << metrics;
  }
  EXPECT_EQ(metrics.find("tally_rows_total{model=\"c\""), std::string::npos);
  EXPECT_EQ(metrics.find("# TYPE tally_rows_total"), metrics.rfind("# TYPE tally_rows_total"));
}

// Others are answered while a model is loaded; who leaves is gone, who waits too long is told.
TEST(ServingModels, WhileAModelIsLoaded) {
  ServedModels models(2, /*deadline=*/1.5);
  const uint16_t port = models.server->port();
  models.sources.Hold(true);
  TestClient first(port), second(port);
  ASSERT_TRUE(first.Ask("POST", "/v1/chat/completions", Hi("c").dump()));
  ASSERT_TRUE(second.Ask("POST", "/v1/chat/completions", Hi("c").dump()));
  ASSERT_TRUE(models.Becomes("unloaded loaded loading"));
  EXPECT_EQ(models.Ask("b").status, 200);
  EXPECT_TRUE(ServedModels::Soon([&] { return OrderedJson::parse(Get(port, "/load").body).at("server_load") == 2; }));
  first.Close();
  EXPECT_EQ(second.Read().status, 504);
  EXPECT_TRUE(models.Logs(" 499 "));
  models.sources.Hold(false);
  ASSERT_TRUE(models.Becomes("unloaded loaded loaded"));  // nobody waits, and it is there all the same
  EXPECT_EQ(models.Ask("c").status, 200);
}

TEST(ServingModels, ALoadThatFailsIsTriedAgain) {
  ServedModels models(1);
  models.sources.Fail(true);
  const HttpReply failed = models.Ask("b");
  EXPECT_EQ(failed.status, 500);
  EXPECT_NE(failed.body.find("the file has gone"), std::string::npos) << failed.body;
  EXPECT_NE(Get(models.server->port(), "/v1/models/b").body.find("\"failed\":true"), std::string::npos);
  models.sources.Fail(false);
  EXPECT_EQ(models.Ask("b").status, 200);
  EXPECT_EQ(models.States(), "unloaded loaded unloaded");
}

// Good models do not give way again and again to one that cannot be loaded.
TEST(ServingModels, ALoadThatFailsIsNotTriedAgainAtOnce) {
  ServedModels models(1, 0, "", /*retry=*/1000);
  models.sources.Fail(true);
  const HttpReply failed = models.Ask("b");
  EXPECT_EQ(failed.status, 500);
  models.sources.Fail(false);
  EXPECT_EQ(models.Ask("a").status, 200);
  EXPECT_EQ(models.sources.loads(), 3);
  const HttpReply again = models.Ask("b");
  EXPECT_EQ(again.status, 500);
  EXPECT_EQ(again.body, failed.body);
  EXPECT_EQ(models.sources.loads(), 3);
  EXPECT_EQ(models.States(), "loaded unloaded unloaded");
}

TEST(ServingModels, TheServerEndsWhileAModelIsLoaded) {
  ServedModels models(1);
  models.sources.Hold(true);
  TestClient client(models.server->port());
  ASSERT_TRUE(client.Ask("POST", "/v1/chat/completions", Hi("b").dump()));
  ASSERT_TRUE(models.Becomes("unloaded loading unloaded"));
  EXPECT_EQ(models.server->Stop(5), 1u);
  EXPECT_EQ(client.Read().status, 503);
}

// A model that comes back knows what its conversations ran, and each has files of its own.
TEST(ServingModels, PrefixFilesAreEachModelsOwn) {
  const TempFolder folder;
  const ServedModels models(1, 0, folder / "cache");
  const std::string prompt(100, 'q');
  const auto cached = [&](const std::string& model) {
    const std::string body = OrderedJson({{"model", model}, {"prompt", prompt}, {"max_tokens", 2}}).dump();
    const OrderedJson answer = OrderedJson::parse(Post(models.server->port(), "/v1/completions", body).body);
    return answer.at("usage").at("prompt_tokens_details").at("cached_tokens").get<int64_t>();
  };
  EXPECT_EQ(cached("a"), 0);
  EXPECT_EQ(cached("b"), 0);
  EXPECT_GT(cached("a"), 90);
}

// The model answers all the same, and paths are the operator's to know.
TEST(ServingModels, AModelWithoutPrefixFilesIsServed) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "cache");
  std::ofstream(folder / "cache/b") << "no folder";
  const ServedModels models(1, 0, folder / "cache");
  const HttpReply answer = models.Ask("b");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_TRUE(models.Logs("b keeps no conversations: " + folder / "cache/b"));
  EXPECT_EQ(Get(models.server->port(), "/v1/models").body.find("cache"), std::string::npos);
}

TEST(ServingModels, StartIsRefusedByName) {
  Sources sources;
  const auto start = [&](std::vector<ModelSource> models, uint64_t bytes) {
    ApiServerOptions options;
    options.pool.bytes = bytes;
    Result<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok());
    return ApiServer::Start(std::move(models), std::move(*listener), options).status();
  };
  const Status large = start({sources.Make("small"), sources.Make("large")}, sources.bytes() - 1);
  EXPECT_EQ(large.code(), StatusCode::kNoRoom);
  EXPECT_NE(large.message().find("small takes"), std::string::npos) << large.message();
  EXPECT_NE(start({sources.Make("a"), sources.Make("a")}, UINT64_MAX).message().find("two models have the name 'a'"),
            std::string::npos);
  sources.Fail(true);
  EXPECT_NE(start({sources.Make("a"), sources.Make("b")}, UINT64_MAX).message().find("the file has gone"), std::string::npos);
}

// A pool without a server: the test holds what it gets.
class Pool {
 public:
  Pool(std::vector<ModelSource> models, uint64_t bytes) : given_(models.size()), pool(std::move(models), {.bytes = bytes}) {
    EXPECT_TRUE(pool.Start().ok());
  }
  void Wait(size_t model) {
    const auto go = [this, model](ModelLease lease) {
      const std::lock_guard lock(mutex_);
      given_[model] = std::move(lease);
      changed_.notify_all();
    };
    EXPECT_FALSE(pool.Wait(
        model, {.left = [] { return false; }, .go = go, .fail = [](const ApiError& error) { ADD_FAILURE() << error.message; }}));
  }
  bool Gives(size_t model, int milliseconds = 20'000) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), [&] { return given_[model] != nullptr; });
  }
  // Once it is to give way, whoever holds it.
  bool Leaves(size_t model) {
    return ServedModels::Soon([&] { return pool.Take(model) == nullptr; });
  }
  void Return(size_t model) {
    const std::lock_guard lock(mutex_);
    given_[model] = nullptr;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ModelLease> given_;

 public:
  ModelPool pool;  // ends before what its leases go to
};

// A busy model gives way once it is done, and who asks for it meanwhile has the next turn.
TEST(ModelPool, BusyModelsGiveWayInTurn) {
  Sources sources;
  Pool pool({sources.Make("a"), sources.Make("b")}, sources.bytes() + 1);
  pool.Wait(0);
  ASSERT_TRUE(pool.Gives(0));
  EXPECT_EQ(pool.pool.All()[0].bytes, sources.bytes());  // what was planned before it was loaded
  pool.Wait(1);
  ASSERT_TRUE(pool.Leaves(0));  // no new work for a: b waits for its room
  ModelLease looked = pool.pool.Look(0);
  ASSERT_NE(looked, nullptr);
  EXPECT_EQ(looked->served.name, "a");
  pool.Return(0);
  pool.Wait(0);
  EXPECT_FALSE(pool.Gives(1, 100));
  looked = nullptr;
  EXPECT_TRUE(pool.Gives(1));
  EXPECT_FALSE(pool.Gives(0, 50));
  EXPECT_EQ(pool.pool.All()[0].state, ModelState::kUnloaded);
  EXPECT_EQ(pool.pool.Look(0), nullptr);
  pool.Return(1);
  EXPECT_TRUE(pool.Gives(0));
  EXPECT_EQ(pool.pool.All()[0].drops, 1u);
  pool.Return(0);
}

// A model that was to give way and stays after all takes those that wait for it before the load that it was to make room for.
TEST(ModelPool, WhoWaitsForASparedModelWaitsForNoLoad) {
  Sources sources;
  Pool pool({sources.Make("a"), sources.Make("b"), sources.Make("c")}, 2 * sources.bytes() + 1);
  ModelLease held[] = {pool.pool.Take(0), pool.pool.Take(1)};
  sources.Hold(true);
  pool.Wait(2);
  size_t spared = 0;  // one of them is to give way, until the other is idle
  ASSERT_TRUE(ServedModels::Soon([&] { return pool.pool.Take(spared = 0) == nullptr || pool.pool.Take(spared = 1) == nullptr; }));
  pool.Wait(spared);
  EXPECT_FALSE(pool.Gives(spared, 20));
  held[1 - spared] = nullptr;
  EXPECT_TRUE(pool.Gives(spared));
  EXPECT_TRUE(ServedModels::Soon([&] { return pool.pool.All()[2].state == ModelState::kLoading; }));
  EXPECT_FALSE(pool.Gives(2, 0));
  pool.Return(spared);
  sources.Hold(false);
  EXPECT_TRUE(pool.Gives(2));
  EXPECT_NE(pool.pool.Take(spared), nullptr);
  pool.Return(2);
}

// One busy model keeps no others waiting that do not need its room, and they do not pass for ever.
TEST(ModelPool, WhatNeedsNoBusyModelPasses) {
  Sources sources;
  ModelSource big = sources.Make("big");
  big.bytes *= 2;
  Pool pool({sources.Make("a"), sources.Make("b"), std::move(big), sources.Make("d")}, 2 * sources.bytes() + 1);
  ModelLease a = pool.pool.Take(0);
  ASSERT_NE(a, nullptr);
  pool.Wait(2);
  ASSERT_TRUE(pool.Leaves(0));
  EXPECT_NE(pool.pool.Take(1), nullptr);  // idle, and answers until a is done
  pool.Wait(3);
  ASSERT_TRUE(pool.Gives(3));  // in the place of b
  a = nullptr;
  ASSERT_TRUE(pool.Leaves(3));  // now it is in the way
  pool.Wait(1);
  EXPECT_FALSE(pool.Gives(1, 50));  // a is idle, and its room is kept
  EXPECT_EQ(pool.pool.All()[0].state, ModelState::kLoaded);
  pool.Return(3);
  EXPECT_TRUE(pool.Gives(2));
  pool.Return(2);
  EXPECT_TRUE(pool.Gives(1));
  pool.Return(1);
}

}  // namespace
}  // namespace tally
