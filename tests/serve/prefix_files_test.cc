// SPDX-License-Identifier: Apache-2.0
// Prefixes on disk: another engine goes on with the same bits and runs what is new, and files of no use do no harm.
#include "engine/serve/prefix_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/session/run_alone.h"
#include "tests/serve/served_api.h"
#include "tests/session/chat_model.h"

namespace tally {
namespace {

using Tokens = std::vector<int32_t>;
constexpr uint64_t kMuch = uint64_t{1} << 30;

Tokens Letters(size_t n, uint64_t seed) {
  Tokens tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<int32_t>('a' + (i * i + seed * (i + 3)) % 26));
  return tokens;
}

struct Ran {
  Tokens tokens;  // prompt and answer
  int64_t reused = 0;
};

// A greedy answer of 8 tokens, remembered under "key".
Ran Answer(Engine& engine, const Tokens& prompt) {
  const RequestOptions options = {.max_tokens = 8, .sampling = {.temperature = 0}, .prefix_key = "key"};
  const auto request = std::make_shared<Request>(engine, prompt, options, NewTextStream(nullptr, false, {}));
  const auto result = RunAlone(engine, request, {}, {}, [](const RequestEvent&) { return true; });
  EXPECT_TRUE(result.ok()) << result.status().message();
  return {Tokens(request->tokens().begin(), request->tokens().end()), request->prompt_reused()};
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".prefix") names.push_back(entry.path().string());
  }
  return names;
}

class PrefixFilesTest : public testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<Engine> NewOne() {
    auto engine = NewEngine(opened_.model, options_);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  std::unique_ptr<PrefixFiles> Files(Engine& engine, uint64_t most = kMuch) {
    auto files =
        PrefixFiles::Open(engine, folder_ / "cache", most, "", [this](const std::string& line) { warnings_.push_back(line); });
    EXPECT_TRUE(files.ok()) << files.status().message();
    return files.ok() ? std::move(files).value() : nullptr;
  }

  const TempFolder folder_;
  const EngineOptions options_ = ChatOptions(4);
  const Opened opened_ = Open(WriteChatModel(folder_, GetParam()), options_);
  std::vector<std::string> warnings_;
};

TEST_P(PrefixFilesTest, AConversationGoesOnAfterARestart) {
  const Tokens prompt = Letters(400, 1);
  Tokens next;
  {
    const auto engine = NewOne();
    const auto files = Files(*engine);
    files->Load("key", prompt);
    next = Answer(*engine, prompt).tokens;
    files->Keep("key", prompt);
    EXPECT_FALSE(files->idle());
    files->WriteOne();
    EXPECT_TRUE(files->idle());
    EXPECT_EQ(files->files(), 1u);
    EXPECT_EQ(PrefixFiles::Open(*engine, folder_ / "cache", kMuch, "", {}).status().code(), StatusCode::kBadInput)
        << "two at once";
  }
  for (const std::string& name : FilesIn(folder_ / "cache")) {
    struct stat about = {};
    ASSERT_EQ(::stat(name.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
  }
  const Tokens more = Letters(20, 7);
  next.insert(next.end(), more.begin(), more.end());
  const auto fresh = NewOne();
  const Ran expected = Answer(*fresh, next);

  const auto engine = NewOne();
  const auto files = Files(*engine);
  files->Load("other", next);
  EXPECT_EQ(engine->Reusable("other", next), 0) << "another key's";
  files->Load("key", next);
  const Ran ran = Answer(*engine, next);
  EXPECT_EQ(ran.tokens, expected.tokens);
  EXPECT_GE(ran.reused, 320);
  EXPECT_LE(ran.reused, 400);
  EXPECT_EQ(engine->KvBytesInUse(), 0u);
  // The longer conversation takes the place of the shorter one.
  files->Keep("key", ran.tokens);
  files->WriteOne();
  EXPECT_EQ(FilesIn(folder_ / "cache").size(), 1u);
  EXPECT_EQ(files->bytes(), std::filesystem::file_size(FilesIn(folder_ / "cache")[0]));
  EXPECT_TRUE(warnings_.empty()) << warnings_[0];
}

TEST_P(PrefixFilesTest, ADamagedFileIsPassedOver) {
  const Tokens prompt = Letters(300, 2);
  {
    const auto engine = NewOne();
    const auto files = Files(*engine);
    Answer(*engine, prompt);
    files->Keep("key", prompt);
    files->WriteOne();
  }
  const std::string name = FilesIn(folder_ / "cache").at(0);
  {
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file.put('x');
    file.put('y');
  }
  const std::string short_name = name.substr(0, name.rfind('-')) + "-cut.prefix", partial = name + ".partial-7-0";
  std::ofstream(short_name) << "TALLYSES";
  std::ofstream(partial) << "TALLYSES";
  std::ofstream(folder_ / "cache/0-0-0.prefix") << "of another model";
  const auto engine = NewOne();
  const auto files = Files(*engine);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("cut short"), std::string::npos) << warnings_[0];
  EXPECT_FALSE(std::filesystem::exists(partial));
  files->Load("key", prompt);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[1].find("checksum"), std::string::npos) << warnings_[1];
  EXPECT_EQ(files->files(), 0u);
  EXPECT_FALSE(std::filesystem::exists(name));
  EXPECT_EQ(Answer(*engine, prompt).reused, 0);
}

TEST_P(PrefixFilesTest, TheOldestGoWhereAllTakeTooMuch) {
  const auto engine = NewOne();
  uint64_t one = 0;
  {
    const auto files = Files(*engine);
    Answer(*engine, Letters(300, 3));
    files->Keep("key", Letters(300, 3));
    files->WriteOne();
    one = files->bytes();
  }
  const uint64_t most = 3 * one + one / 2;
  const auto files = Files(*engine, most);
  for (uint64_t seed = 4; seed < 9; ++seed) {
    Answer(*engine, Letters(300, seed));
    files->Keep("key", Letters(300, seed));
    files->WriteOne();
    EXPECT_LE(files->bytes(), most);
  }
  EXPECT_GE(files->files(), 2u);
  const auto other = NewOne();
  const auto small = PrefixFiles::Open(*other, folder_ / "small", one / 2, "", [](const std::string&) {});
  ASSERT_TRUE(small.ok());
  Answer(*other, Letters(300, 3));
  (*small)->Keep("key", Letters(300, 3));
  (*small)->WriteOne();
  EXPECT_EQ((*small)->files(), 0u);
}

// A server of the same model later: neither a system prompt that it knows nor a whole prompt runs again, and answers are the same.
TEST_P(PrefixFilesTest, AnotherServerKnowsSharedBeginnings) {
  const auto letters = [](size_t n, uint64_t seed) {
    const Tokens tokens = Letters(n, seed);
    return std::string(tokens.begin(), tokens.end());
  };
  const auto body = [&](uint64_t system, uint64_t user) {
    return OrderedJson{{"messages", OrderedJson::array({{{"role", "system"}, {"content", letters(300, system)}},
                                                        {{"role", "user"}, {"content", letters(60, user)}}})},
                       {"max_tokens", 12},
                       {"temperature", 0}};
  };
  struct Answered {
    int64_t prompt = 0, cached = 0;
    std::string text;
  };
  const auto ask = [](const ServedApi& api, const OrderedJson& question) {
    const OrderedJson answer = api.Ask("/v1/chat/completions", question);
    EXPECT_EQ(answer["status"], 200) << answer;
    return Answered{answer["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens_details"]["cached_tokens"],
                    answer["choices"][0]["message"]["content"]};
  };
  const auto served = [](Engine& engine) {
    ServedModel model;
    model.engine = &engine;
    model.chat = model.tool_chat = MakeChatSide(
        {.text = "{% for m in messages %}<|turn|>{{ m.role }}:{{ m.content }}<|end|>{% endfor %}<|turn|>"}, /*native=*/true);
    EXPECT_TRUE(model.chat.ok());
    return model;
  };
  ApiServerOptions options;
  options.pool.cache_folder = folder_ / "cache";
  options.pool.cache_bytes = kMuch;
  Answered first;
  {
    const auto engine = NewOne();
    const ServedModel model = served(*engine);
    ServedApi api(model, options);
    first = ask(api, body(1, 10));
    EXPECT_EQ(first.cached, 0);
    EXPECT_GE(ask(api, body(1, 11)).cached, 300) << "without a restart";
    api.server->Stop(1);
  }
  const auto fresh = NewOne();
  const Answered expected = ask(ServedApi(served(*fresh)), body(1, 12));
  const auto engine = NewOne();
  const ServedModel model = served(*engine);
  const ServedApi api(model, options);
  const Answered other = ask(api, body(1, 12)), again = ask(api, body(1, 10));
  EXPECT_GE(other.cached, 300);
  EXPECT_EQ(other.text, expected.text);
  EXPECT_GE(again.cached, again.prompt - 40);
  EXPECT_EQ(again.text, first.text);
}

// The files of a turn replace those of the turns before, and leave what others begin with.
TEST_P(PrefixFilesTest, FilesOfAConversation) {
  const auto engine = NewOne();
  const auto files = Files(*engine);
  const bool whole = GetParam() == std::string_view(kWindow) || GetParam() == std::string_view(kConv);
  Tokens conversation;
  for (const uint64_t turn : {1, 2}) {
    const Tokens more = Letters(300, turn);
    conversation.insert(conversation.end(), more.begin(), more.end());
    RequestOptions options = {.max_tokens = 8, .sampling = {.temperature = 0}, .prefix_key = "key"};
    options.shared_beginning = 150;
    const auto request = std::make_shared<Request>(*engine, conversation, options, NewTextStream(nullptr, false, {}));
    ASSERT_TRUE(RunAlone(*engine, request, {}, {}, [](const RequestEvent&) { return true; }).ok());
    const Tokens ran(request->tokens().begin(), request->tokens().end());
    files->Keep("key", Tokens(ran.begin(), ran.begin() + request->prompt_size() - 1), {}, PrefixUse::kPrompt);
    files->Keep("key", Tokens(ran.begin(), ran.begin() + 150), {}, PrefixUse::kBeginning);
    files->Keep("key", ran);
    while (!files->idle()) files->WriteOne();
    EXPECT_EQ(files->files(), whole ? 3u : 1u) << turn;
    conversation = ran;
  }
  EXPECT_EQ(std::ranges::count_if(FilesIn(folder_ / "cache"), [](const auto& n) { return n.ends_with("-beginning.prefix"); }),
            whole ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(Layers, PrefixFilesTest, testing::Values(kFull, kWindow, kLatent, kConv), [](const auto& param) {
  return std::string(param.param).substr(0, std::string(param.param).find('/'));
});

}  // namespace
}  // namespace tally
