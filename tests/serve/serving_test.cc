// SPDX-License-Identifier: Apache-2.0
// Many clients at once: fairness, bounds, those that leave, deadlines, the end; and that the bills of all are the ledger.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/serve/served_api.h"
#include "tests/serve/served_demo.h"
#include "tests/session/fake_engine.h"
#include "tests/support/smallest_budget.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

// An engine of scripted tokens, whose steps take as long as the test wants.
class Scripted {
 public:
  explicit Scripted(int64_t at_once = 2, LoopOptions loop = {}, std::vector<std::string> keys = {}) : engine(100, 100'000) {
    engine.logit_rows = at_once;
    engine.on_step = [this] {
      while (held) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(step_milliseconds));
    };
    model.engine = &engine;
    model.name = "scripted";
    model.sampling.temperature = 0;
    api = std::make_unique<ServedApi>(model, ApiServerOptions{.keys = std::move(keys), .pool = {.loop = loop}});
  }
  ~Scripted() { held = false; }

  FakeEngine engine;
  ServedModel model;
  std::atomic<bool> held{false};
  std::atomic<int> step_milliseconds{0};
  std::unique_ptr<ServedApi> api;
};

OrderedJson Tokens(int n) { return {{"prompt", {1, 2}}, {"max_tokens", n}}; }

TEST(Serving, TokensWithoutATokenizer) {
  const Scripted s;
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(3))["choices"][0]["token_ids"], OrderedJson({3, 4, 5}));
  std::vector<int> streamed;
  for (const OrderedJson& chunk : s.api->Stream("/v1/completions", Tokens(5))) {
    for (const OrderedJson& id : chunk["choices"][0].value("token_ids", OrderedJson::array())) streamed.push_back(id);
  }
  EXPECT_EQ(streamed, (std::vector<int>{3, 4, 5, 6, 7}));
}

TEST(Serving, ClientsThatLeaveAreNotServedOn) {
  Scripted s;
  s.step_milliseconds = 2;
  for (const bool stream : {false, true}) {
    TestClient client(s.api->port);
    OrderedJson body = Tokens(50'000);
    body["stream"] = stream;
    ASSERT_TRUE(client.Ask("POST", "/v1/completions", body.dump()));
    EXPECT_TRUE(Becomes([&] { return s.api->Metric("tally_requests_running") == 1; }));
    client.Close();
    EXPECT_TRUE(Becomes([&] { return s.api->Metric("tally_requests_running") == 0; })) << stream;
  }
  EXPECT_EQ(s.api->Metric("tally_requests_cancelled_total"), 2u);
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(3))["status"], 200);
}

// While a step lasts, clients whose requests run or wait have their headers, and a sign of the server again and again.
TEST(Serving, StreamsAreNeverSilent) {
  Scripted s(1, {.quiet_seconds = 0.04});
  s.held = true;
  const std::pair<std::string, OrderedJson> asked[] = {
      {"/v1/completions", {{"prompt", {1, 2}}, {"max_tokens", 3}, {"stream", true}}},
      {"/v1/completions", {{"prompt", {1, 2}}, {"max_tokens", 3}, {"stream", true}, {"return_progress", true}}}};
  std::vector<std::unique_ptr<TestClient>> clients;
  for (const auto& [path, body] : asked) {
    clients.push_back(std::make_unique<TestClient>(s.api->port));
    ASSERT_TRUE(clients.back()->Ask("POST", path, body.dump()));
  }
  for (const auto& client : clients) EXPECT_TRUE(client->ReadUntil(":\n\n", 2)) << client->Peek();
  s.held = false;
  EXPECT_EQ(NewApiStream({.endpoint = ApiEndpoint::kMessages})->Sign(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  for (const auto& client : clients) {
    const HttpReply reply = client->Read();
    EXPECT_TRUE(reply.whole);
    EXPECT_EQ(EventsOf(reply.body).back(), "[DONE]");
  }
}

// How far a prompt has run, for those who ask: as it begins, and after each step.
TEST(Serving, ProgressOfPrompts) {
  Scripted s;
  OrderedJson body = {{"prompt", std::vector<int>(20, 1)}, {"max_tokens", 2}, {"return_progress", true}};
  std::vector<int64_t> processed;
  for (const OrderedJson& chunk : s.api->Stream("/v1/completions", body)) {
    if (!chunk.contains("prompt_progress")) continue;
    const OrderedJson& progress = chunk["prompt_progress"];
    EXPECT_EQ(progress["total"], 20);
    EXPECT_EQ(progress["cache"], 0);
    EXPECT_GE(progress["time_ms"], 0);
    EXPECT_EQ(chunk["choices"][0]["text"], "");
    processed.push_back(progress["processed"]);
  }
  EXPECT_EQ(processed, (std::vector<int64_t>{0, 8, 16, 20}));
  body.erase("return_progress");
  for (const OrderedJson& chunk : s.api->Stream("/v1/completions", body)) EXPECT_FALSE(chunk.contains("prompt_progress"));
}

// A client that has read enough gets the usage of what has run; others cannot end its answer.
TEST(Serving, AnswersThatAreCutShort) {
  const std::string one = "Authorization: Bearer first-key-0123456789\r\n",
                    two = "Authorization: Bearer second-key-012345678\r\n";
  Scripted s(1, {}, {"first-key-0123456789", "second-key-012345678"});
  s.step_milliseconds = 2;
  OrderedJson body = Tokens(50'000);
  body["stream"] = body["tally"] = true;
  TestClient streams(s.api->port), waits(s.api->port);
  ASSERT_TRUE(streams.Ask("POST", "/v1/completions", body.dump(), one));
  ASSERT_TRUE(streams.ReadUntil("\"token_ids\":[5]"));
  const std::string text = streams.Peek(), id = text.substr(text.find("cmpl-"), 29);
  EXPECT_EQ(s.api->Ask("/cancel", {{"id", id}}, two)["cancelled"], false);
  EXPECT_EQ(s.api->Ask("/cancel", {{"id", "cmpl-0"}}, one)["cancelled"], false);
  EXPECT_EQ(s.api->Ask("/cancel", OrderedJson::object(), one)["error"]["param"], "id");
  EXPECT_EQ(s.api->Ask("/cancel", {{"id", id}}, one)["cancelled"], true);
  const std::vector<std::string> events = EventsOf(streams.Read().body);
  ASSERT_GT(events.size(), 4u);
  EXPECT_EQ(events.back(), "[DONE]");
  const OrderedJson usage = OrderedJson::parse(events[events.size() - 2])["usage"];
  EXPECT_GE(usage["completion_tokens"], 3);
  EXPECT_LT(usage["completion_tokens"], 50'000);
  EXPECT_EQ(usage["tally"]["prefill"]["rows"].get<int>() + usage["tally"]["decode"]["rows"].get<int>(),
            1 + usage["completion_tokens"].get<int>());
  EXPECT_EQ(OrderedJson::parse(events[events.size() - 3])["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(s.api->Ask("/cancel", {{"id", id}}, one)["cancelled"], false) << "it has ended";
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(3), one)["status"], 200);
}

// What waits is bounded, for one client and for all; who is refused is told when to come again.
TEST(Serving, QueuesAreBounded) {
  const std::string one = "first-key-0123456789", two = "second-key-012345678";
  Scripted s(1, {.most_waiting = 6, .most_waiting_of_client = 3}, {one, two});
  s.held = true;
  std::vector<std::unique_ptr<TestClient>> clients;
  const auto ask = [&](const std::string& key) {
    clients.push_back(std::make_unique<TestClient>(s.api->port));
    EXPECT_TRUE(clients.back()->Ask("POST", "/v1/completions", Tokens(2).dump(), "Authorization: Bearer " + key + "\r\n"));
    return clients.back().get();
  };
  // Some of them run, or are about to; the rest wait, or are refused.
  for (int i = 0; i < 12; ++i) ask(one);
  EXPECT_TRUE(Becomes([&] { return std::ranges::any_of(clients, [](const auto& c) { return c->Readable(0); }); }));
  ask(two);
  s.held = false;
  std::map<int, int> replies;
  for (size_t i = 0; i < 12; ++i) {
    HttpReply reply = clients[i]->Read();
    ++replies[reply.status];
    EXPECT_EQ(reply.headers["retry-after"], reply.status == 429 ? "1" : "");
  }
  EXPECT_GE(replies[429], 1);
  EXPECT_GE(replies[200], 1);
  EXPECT_EQ(replies[200] + replies[429], 12);
  EXPECT_EQ(clients.back()->Read().status, 200) << "another client is not refused";
}

// A client that asks for much does not keep the others waiting.
TEST(Serving, ClientsTakeTurns) {
  const std::string one = "first-key-0123456789", two = "second-key-012345678";
  Scripted s(1, {}, {one, two});
  s.step_milliseconds = 20;
  std::vector<std::unique_ptr<TestClient>> clients;
  const auto ask = [&](const std::string& key) {
    clients.push_back(std::make_unique<TestClient>(s.api->port));
    EXPECT_TRUE(clients.back()->Ask("POST", "/v1/completions", Tokens(20).dump(), "Authorization: Bearer " + key + "\r\n"));
  };
  for (int i = 0; i < 8; ++i) ask(one);
  EXPECT_TRUE(Becomes([&] { return s.api->Metric("tally_requests_waiting", "Authorization: Bearer " + one + "\r\n") >= 5; }));
  ask(two);
  EXPECT_EQ(clients.back()->Read().status, 200);
  size_t ended = 0;
  for (size_t i = 0; i < 8; ++i) ended += clients[i]->Readable(0) ? 1 : 0;
  EXPECT_LE(ended, 5u) << "of 8 that came before";
  s.step_milliseconds = 0;
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(clients[i]->Read().status, 200);
}

TEST(Serving, Deadlines) {
  Scripted s(1, {.deadline_seconds = 0.8});
  s.step_milliseconds = 5;
  const OrderedJson whole = s.api->Ask("/v1/completions", Tokens(10'000));
  EXPECT_EQ(whole["status"], 504);
  EXPECT_EQ(whole["error"]["code"], "deadline_exceeded");
  const std::vector<OrderedJson> events = s.api->Stream("/v1/completions", Tokens(10'000));
  EXPECT_GT(events.size(), 5u);
  EXPECT_EQ(events.back()["error"]["code"], "deadline_exceeded");
  EXPECT_FALSE(s.api->done);
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(3))["status"], 200);
}

// What can be finished within the time is; the rest is told.
TEST(Serving, TheEnd) {
  Scripted s(4);
  s.step_milliseconds = 5;
  TestClient quick(s.api->port), slow(s.api->port), waits(s.api->port);
  std::vector<std::unique_ptr<TestClient>> late;
  OrderedJson endless = Tokens(90'000);
  endless["stream"] = true;
  ASSERT_TRUE(quick.Ask("POST", "/v1/completions", Tokens(40).dump()) && slow.Ask("POST", "/v1/completions", endless.dump()) &&
              waits.Ask("POST", "/v1/completions", Tokens(90'000).dump()));
  EXPECT_TRUE(Becomes([&] { return s.api->Metric("tally_requests_running") == 3; }));
  for (int i = 0; i < 50; ++i) {
    late.push_back(std::make_unique<TestClient>(s.api->port));
    EXPECT_EQ(late.back()->Get("/health").status, 200);
  }
  size_t cut = 0;
  std::thread stop([&] { cut = s.api->server->Stop(2); });
  // Each asks once, as the connection is closed after its answer then.
  int status = 200;
  for (size_t i = 0; i < late.size() && status == 200; ++i) {
    status = late[i]->Get("/health").status;
    if (status == 503) {
      EXPECT_EQ(late[i]->Post("/v1/completions", Tokens(1).dump()).status, 0)
          << "the connection was closed after the last answer";
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  EXPECT_EQ(status, 503);
  EXPECT_EQ(quick.Read().status, 200);
  const HttpReply streamed = slow.Read(), whole = waits.Read();
  stop.join();
  EXPECT_EQ(cut, 2u);
  EXPECT_EQ(whole.status, 503);
  EXPECT_TRUE(streamed.whole);
  EXPECT_NE(EventsOf(streamed.body).back().find("shutting_down"), std::string::npos) << EventsOf(streamed.body).back();
}

// A step that fails: those who wait are told, and the next request is served.
TEST(Serving, DefectsEndRequestsNotTheServer) {
  Scripted s;
  s.engine.fail_at = 2;
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(10))["status"], 500);
  s.engine.fail_at = -1;
  EXPECT_EQ(s.api->Ask("/v1/completions", Tokens(3))["status"], 200);
}

class Demo : public testing::Test {
 protected:
  // What a stream of a chat said.
  static std::string Said(const ServedApi& api, const OrderedJson& body) {
    std::string said;
    for (const OrderedJson& chunk : api.Stream("/v1/completions", body)) said += chunk["choices"][0]["text"];
    return said;
  }

  const ServedDemo demo_;
};

TEST_F(Demo, TheSameAloneAndInCompany) {
  const ServedApi api(demo_.model);
  const auto body = [](int i) {
    return OrderedJson{{"prompt", i % 3 == 0 ? std::string(400, 'a') + "ROMEO:" : "ROMEO:"}, {"seed", i}, {"max_tokens", 40}};
  };
  constexpr int kClients = 8;
  std::vector<std::string> together(kClients);
  std::vector<std::thread> threads;
  threads.reserve(kClients);
  for (int i = 0; i < kClients; ++i) threads.emplace_back([&, i] { together[static_cast<size_t>(i)] = Said(api, body(i)); });
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kClients; ++i) {
    EXPECT_FALSE(together[static_cast<size_t>(i)].empty());
    EXPECT_EQ(together[static_cast<size_t>(i)], Said(api, body(i))) << i;
  }
}

// A server of the same model later: the conversation's next turn runs its new tokens alone, and says the same.
TEST_F(Demo, AConversationOutlivesItsServer) {
  const TempFolder folder;
  ApiServerOptions options;
  options.pool.cache_folder = folder / "cache";
  options.pool.cache_bytes = uint64_t{1} << 30;
  std::vector<std::string> warnings;
  options.pool.warn = [&](const std::string& line) { warnings.push_back(line); };
  OrderedJson body = {{"messages", OrderedJson::array({{{"role", "system"}, {"content", std::string(200, 'a')}},
                                                       {{"role", "user"}, {"content", "Who art thou?"}}})},
                      {"max_tokens", 30},
                      {"seed", 3}};
  OrderedJson first;
  {
    ServedApi api(demo_.model, options);
    first = api.Ask("/v1/chat/completions", body);
    ASSERT_EQ(first["status"], 200) << first;
    api.server->Stop(1);
  }
  body["messages"].push_back(first["choices"][0]["message"]);
  body["messages"].push_back({{"role", "user"}, {"content", "And then?"}});
  body["n"] = 2;  // of one file
  OrderedJson expected;
  {
    const ServedDemo other;
    expected = ServedApi(other.model).Ask("/v1/chat/completions", body);
    EXPECT_EQ(expected["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  }
  const ServedDemo other;
  const ServedApi api(other.model, options);
  const OrderedJson next = api.Ask("/v1/chat/completions", body);
  EXPECT_EQ(next["choices"], expected["choices"]);
  const int64_t prompt = next["usage"]["prompt_tokens"], cached = next["usage"]["prompt_tokens_details"]["cached_tokens"];
  EXPECT_LE(prompt - cached, 40) << prompt;
  EXPECT_TRUE(warnings.empty()) << warnings[0];
}

// Sums of bills are the ledger's, to the integer: FLOPs, rows and bytes of every kind.
void ExpectBillsAreTheLedger(const ServedModel& model, bool streams) {
  const ServedApi api(model);
  std::mutex mutex;
  std::map<std::string, uint64_t> billed;
  const auto add = [&](const OrderedJson& bill) {
    const std::lock_guard lock(mutex);
    for (const char* phase : {"prefill", "decode"}) {
      const OrderedJson& work = bill.at(phase);
      billed["tally_flops_total"] += work.at("flops").get<uint64_t>();
      billed["tally_rows_total"] += work.at("rows").get<uint64_t>();
      EXPECT_GE(bill.at("experts_touched").at("5"), 2);
      EXPECT_LE(bill.at("experts_touched").at("5"), 8);
      for (const auto& [kind, n] : work.at("bytes").items())
        billed["tally_bytes_total{kind=\"" + kind + "\"}"] += n.get<uint64_t>();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 9; ++i) {
    threads.emplace_back([&, i] {
      const OrderedJson body = {{"prompt", std::string(static_cast<size_t>(i) * 20 + 1, 'b')},
                                {"seed", i},
                                {"n", 1 + i % 3},
                                {"max_tokens", 10 + i},
                                {"ignore_eos", true}};
      if (i % 2 == 0) {
        add(api.Ask("/v1/completions", body, "X-Tally: 1\r\n").at("usage").at("tally"));
      } else {
        add(api.Stream("/v1/completions", body, "X-Tally: 1\r\n").back().at("usage").at("tally"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_GT(billed["tally_flops_total"], 0u);
  for (const auto& [name, sum] : billed) {
    uint64_t ledger = 0;
    if (name.find('{') != name.npos) {
      ledger = api.Metric(name);
    } else {
      for (const char* phase : {"prefill", "decode", "mixed"}) ledger += api.Metric(name + "{phase=\"" + phase + "\"}");
    }
    EXPECT_EQ(sum, ledger) << name;
  }
  // A step reads each expert at most once: between 2, of one row, and all 8.
  uint64_t steps = 0;
  for (const char* phase : {"prefill", "decode", "mixed"})
    steps += api.Metric("tally_steps_total{phase=\"" + std::string(phase) + "\"}");
  for (int layer = 0; layer < 6; ++layer) {
    const uint64_t experts = api.Metric("tally_experts_read_total{layer=\"" + std::to_string(layer) + "\"}");
    EXPECT_GE(experts, 2 * steps);
    EXPECT_LE(experts, 8 * steps);
    const std::string label = "{layer=\"" + std::to_string(layer) + "\"}";
    const std::string metrics = Get(api.port, "/metrics").body;
    EXPECT_EQ(metrics.find("tally_expert_hits_total" + label) != metrics.npos, streams);
    if (!streams) continue;
    EXPECT_EQ(api.Metric("tally_expert_hits_total" + label) + api.Metric("tally_expert_misses_total" + label), experts);
    billed["disk"] += api.Metric("tally_expert_disk_bytes_total" + label);
  }
  EXPECT_EQ(billed["disk"], billed["tally_bytes_total{kind=\"weights from disk\"}"]);
  EXPECT_EQ(billed["disk"] > 0, streams);
}

TEST_F(Demo, BillsAreTheLedger) { ExpectBillsAreTheLedger(demo_.model, /*streams=*/false); }

// The same where experts are read from disk.
TEST(Serving, BillsAreTheLedgerUnderABudget) {
  EngineOptions options = ServedDemo::Options();
  options.weights_budget = SmallestBudget(DemoModelPath().value(), options);
  ASSERT_GT(options.weights_budget, 0u);
  ExpectBillsAreTheLedger(ServedDemo(options).model, /*streams=*/true);
}

}  // namespace
}  // namespace tally
