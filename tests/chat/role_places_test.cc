// SPDX-License-Identifier: Apache-2.0
// Messages of every role in every place: their texts are in the prompt, or the request is refused.
#include "engine/chat/role_places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/app/chat_templates.h"
#include "engine/chat/chat_format.h"
#include "tests/support/temp_folder.h"

namespace tally {
namespace {

// Templates of our own, each with a rule of published ones.
constexpr std::string_view kEnd = "{% endfor %}{{ '<|start|>assistant' if add_generation_prompt }}";
constexpr std::string_view kAny = "{% for m in messages %}{{ '<|start|>' + m.role + '\n' + m.content + '<|stop|>' }}";
constexpr std::string_view kKnownAlone =
    "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant', 'tool'] %}{{ m.role + ':' + m.content }}{% endif %}";
constexpr std::string_view kNoSystem =
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}"
    "{{ m.role + ':' + m.content }}";
constexpr std::string_view kSystemFirst =
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('System message must be at the "
    "beginning.') }}{% endif %}{{ m.role + ':' + m.content }}";
constexpr std::string_view kFirstAlone =
    "{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{% for m in messages %}{% if m.role != 'system' %}"
    "{{ m.role + ':' + m.content }}{% endif %}";
constexpr std::string_view kNoResults =
    "{% for m in messages %}{% if m.role in ['system', 'user', 'assistant'] %}{{ m.role + ':' + m.content }}{% endif %}";
constexpr std::string_view kAlternates =
    "{% if messages[0].role == 'system' %}{% set s = messages[0].content %}{% set rest = messages[1:] %}{% else %}"
    "{% set rest = messages %}{% endif %}{% set ns = namespace(n=0) %}{% for m in rest %}{% if m.role == 'user' or (m.role == "
    "'assistant' and not m.tool_calls) %}{% if (m.role == 'user') != (ns.n % 2 == 0) %}{{ raise_exception('must alternate') }}"
    "{% endif %}{% set ns.n = ns.n + 1 %}{% elif m.role not in ['assistant', 'tool'] %}{{ raise_exception('unknown role') }}"
    "{% endif %}{% endfor %}{% for m in rest %}{% if loop.last and s is defined and m.role == 'user' %}{{ s }}{% endif %}"
    "{{ m.role + ':' + m.content }}";

constexpr std::string_view kCollects =
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content + '|' }}{% endif %}{% endfor %}{% for m in messages %}{% if "
    "m.role "
    "!= 'system' %}{{ m.role + ':' + m.content }}{% endif %}";

struct Named {
  std::string name, text;
};

std::vector<Named> Templates() {
  std::vector<Named> templates;
  for (const std::string_view text :
       {kAny, kKnownAlone, kNoSystem, kSystemFirst, kFirstAlone, kNoResults, kAlternates, kCollects}) {
    templates.push_back({std::string(text), std::string(text) + std::string(kEnd)});
  }
  for (const app::NamedTemplate& named : app::ChatTemplates()) {
    templates.push_back({std::string(named.name), std::string(named.text)});
  }
  const std::filesystem::path shared = std::filesystem::path(TALLY_SOURCE_DIR) / "../shared/templates";
  std::error_code none;
  for (std::filesystem::directory_iterator it(shared, none), end; !none && it != end; it.increment(none)) {
    if (it->path().extension() == ".jinja") templates.push_back({it->path().filename().string(), ReadAll(it->path())});
  }
  return templates;
}

std::string Text(size_t i) { return "xq8text" + std::to_string(i) + "n"; }

// A letter a message: system, developer, user, assistant, assistant that calls, tool.
ChatRequest OfRoles(std::string_view letters) {
  ChatRequest request;
  request.now = 1'760'000'000;
  for (const char letter : letters) {
    ChatMessage& m = request.messages.emplace_back(ChatMessage{.content = Text(request.messages.size())});
    m.role = letter == 's'   ? "system"
             : letter == 'd' ? "developer"
             : letter == 'u' ? "user"
             : letter == 't' ? "tool"
                             : "assistant";
    if (letter == 'c') {
      m.content.clear();
      m.tool_calls = {{"call00001", "now", "{}"}};
      request.tools = {
          R"({"type": "function", "function": {"name": "now", "description": "d", "parameters": {"type": "object", "properties": {}}}})"};
    }
    if (letter == 't') {
      m.tool_call_id = "call00001";
      m.name = "now";
    }
  }
  return request;
}

TEST(RolePlaces, NoTextIsLost) {
  for (const Named& named : Templates()) {
    SCOPED_TRACE(named.name);
    const auto format = MakeChatFormat({.text = named.text, .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
    ASSERT_TRUE(format.ok()) << format.status().message();
    // What the table has beyond what every template takes: a conversation of users and assistants.
    for (const std::string_view letters :
         {"u",    "uau",   "su",     "du",   "ssu", "sdu",  "dsu",  "ddu",  "sddu",   "us",      "ud", "usu", "udu",  "uasu",
          "uadu", "suasu", "sduadu", "suau", "uct", "suct", "ucts", "uctd", "uctsau", "sucduct", "uu", "suu", "uctu", "duuctu"}) {
      const ChatRequest request = OfRoles(letters);
      std::vector<std::string> notes;
      const auto segments = (*format)->Render(request, &notes);
      const bool results = letters.find('t') != letters.npos;
      // Two roles are never refused where a user's text is taken.
      if (!results && letters.find_first_of("sd") != letters.npos) {
        EXPECT_TRUE(segments.ok() || !(*format)->Render(OfRoles("u")).ok()) << letters << ": " << segments.status().message();
      }
      if (!segments.ok()) continue;
      const std::string prompt = JoinSegments(*segments);
      for (size_t i = 0; i < letters.size(); ++i) {
        if (letters[i] == 'c') continue;
        EXPECT_NE(prompt.find(Text(i)), prompt.npos) << letters << ", message " << i << ":\n" << prompt;
      }
      for (const LeftOut& left_out : (*format)->FindLeftOut(request)) {
        EXPECT_NE(left_out.what, LeftOut::What::kContent) << letters << ", message " << left_out.index;
      }
    }
  }
  if (!std::filesystem::exists(std::filesystem::path(TALLY_SOURCE_DIR) / "../shared/templates")) {
    GTEST_SKIP() << "../shared/templates is not here: the templates of this file and of the command passed";
  }
}

std::string Prompt(std::string_view text, std::string_view letters, std::vector<std::string>* notes = nullptr) {
  const auto format = MakeChatFormat({.text = std::string(text) + std::string(kEnd)});
  EXPECT_TRUE(format.ok());
  ChatRequest request = OfRoles(letters);
  request.add_generation_prompt = false;
  for (ChatMessage& m : request.messages) {
    if (!m.content.empty()) m.content = m.role.substr(0, 1) + m.content.substr(7, 1);
  }
  const auto segments = (*format)->Render(request, notes);
  return segments.ok() ? JoinSegments(*segments) : segments.status().message();
}

TEST(RolePlaces, MessagesGoWhereTheTemplatePrintsThem) {
  std::vector<std::string> notes;
  EXPECT_EQ(Prompt(kAny, "dusu", &notes),
            "<|start|>developer\nd0<|stop|><|start|>user\nu1<|stop|><|start|>system\ns2<|stop|><|start|>user\nu3<|stop|>");
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(Prompt(kKnownAlone, "sduadu", &notes), "system:s0system:d1user:u2assistant:a3system:d4user:u5");
  EXPECT_EQ(notes.size(), 1u);
  notes.clear();
  EXPECT_EQ(Prompt(kSystemFirst, "sduasu", &notes), "system:s0\n\nd1user:u2assistant:a3user:s4user:u5");
  EXPECT_EQ(notes.size(), 3u);
  EXPECT_EQ(Prompt(kFirstAlone, "ssuasu"), "s0\n\ns1user:u2assistant:a3user:s4user:u5");
  EXPECT_EQ(Prompt(kNoSystem, "suasu"), "user:s0\n\nu1assistant:a2user:s3\n\nu4");
  EXPECT_EQ(Prompt(kNoSystem, "us"), "user:u0\n\ns1");
  EXPECT_EQ(Prompt(kAlternates, "suasu"), "user:s0\n\nu1assistant:a2user:s3\n\nu4");
  EXPECT_EQ(Prompt(kCollects, "suasu"), "s0|user:u1assistant:a2user:s3user:u4")
      << "what comes later stays behind what came before";
  notes.clear();
  EXPECT_EQ(Prompt(kAlternates, "uuctu", &notes), "user:u0\n\nu1assistant:tool:t3\n\nu4");
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_EQ(Prompt(kAlternates, "ucts"), "user:u0assistant:tool:t2\n\ns3");
  EXPECT_EQ(Prompt(kNoResults, "uct"), "the chat template leaves out messages of the role 'tool'");
}

// What a turn has rendered is the beginning of the next turn's prompt, so that it need not run again.
TEST(RolePlaces, TheBeginningStays) {
  for (const std::string_view text : {kAny, kKnownAlone, kNoSystem, kSystemFirst, kFirstAlone, kAlternates, kCollects}) {
    std::string before;
    for (const std::string_view letters : {"sdus", "sdusa", "sdusasu", "sdusasua", "sdusasuausa"}) {
      const std::string prompt = Prompt(text, letters);
      EXPECT_TRUE(prompt.starts_with(before)) << text << "\n" << letters << "\n" << before << "\n" << prompt;
      before = prompt;
    }
  }
}

TEST(RolePlaces, IdsOfNineLettersWhereTheTemplateWantsThem) {
  const std::string calls =
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ raise_exception('9') }}{% endif %}"
      "{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{{ m.content }}{% endfor %}";
  const auto format = MakeChatFormat({.text = calls});
  EXPECT_TRUE((*format)->ShortCallIds());
  ChatRequest request = OfRoles("ucuc");  // of another server's ids, two of them alike
  request.messages[1].tool_calls[0].id = request.messages[3].tool_calls[0].id = "call_0123456789abcdef";
  std::vector<std::string> notes;
  EXPECT_TRUE((*format)->Render(request, &notes).ok());
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_FALSE((*MakeChatFormat({.text = std::string(kAny) + std::string(kEnd)}))->ShortCallIds());
}

}  // namespace
}  // namespace tally
