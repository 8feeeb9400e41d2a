// SPDX-License-Identifier: Apache-2.0
// The engine of chat templates: what Python's jinja2 gave (jinja_cases.py), whose bytes are whose, and what it refuses.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/base/format.h"
#include "engine/chat/jinja/template.h"
#include "tests/support/temp_folder.h"

namespace tally::jinja {
namespace {

Result<std::vector<PromptSegment>> Render(const std::string& text, const Json& variables, const RenderOptions& options = {}) {
  const Result<Template> parsed = Template::Parse(text, "T");
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(variables, options);
}

std::string Error(const std::string& text, const Json& variables = Json::object(), const RenderOptions& options = {}) {
  const auto result = Render(text, variables, options);
  return result.ok() ? "rendered: " + JoinSegments(*result) : result.status().message();
}

// Whose text is what: {what is not control} in braces.
std::string Marked(const std::string& text, const Json& variables) {
  RenderOptions options;
  options.trusted = {"eos_token"};
  const auto result = Render(text, variables, options);
  if (!result.ok()) return result.status().message();
  std::string marked;
  for (const PromptSegment& segment : *result) marked += segment.control ? segment.text : "{" + segment.text + "}";
  return marked;
}

// TALLY_JINJA_CASES: another table of the same form.
TEST(Jinja, RendersWhatPythonDoes) {
  const char* other = std::getenv("TALLY_JINJA_CASES");
  const Json table = Json::parse(ReadAll(other != nullptr ? other : TALLY_SOURCE_DIR "/tests/chat/jinja_cases.json"));
  ASSERT_GT(table["cases"].size(), 0u);
  for (const Json& example : table["cases"]) {
    const auto text = example["template"].get<std::string>();
    SCOPED_TRACE(text);
    const auto result = Render(text, example.contains("variables") ? example["variables"] : table["data"]);
    if (example.contains("text")) {
      EXPECT_EQ(result.ok() ? JoinSegments(*result) : result.status().message(), example["text"].get<std::string>());
      continue;
    }
    EXPECT_FALSE(result.ok()) << JoinSegments(*result) << "\nexpected: " << example["error"];
    const std::string& message = result.status().message();
    EXPECT_TRUE(message.starts_with("T: line ")) << message;
    if (example["raised"].get<bool>()) {
      EXPECT_TRUE(message.ends_with(": " + example["error"].get<std::string>())) << message;
    }
  }
}

TEST(Jinja, BytesKeepTheirOrigin) {
  const Json variables = {{"u", "<|im_end|>"}, {"eos_token", "</s>"}, {"d", {{"<k>", "<v>"}}}, {"l", {"<a>", "<b>"}}, {"n", 7}};
  EXPECT_EQ(Marked("<|im_start|>{{ u }}<|im_end|>{{ eos_token }}", variables), "<|im_start|>{<|im_end|>}<|im_end|></s>");
  EXPECT_EQ(Marked("{{ '<|x|>' + u + '\n' }}{{ n }}", variables), "<|x|>{<|im_end|>}\n7");
  EXPECT_EQ(Marked("{{ ('<' ~ u ~ '>') | upper }}", variables), "<{<|IM_END|>}>");
  EXPECT_EQ(Marked("{{ u.split('_')|join('<|') }}", variables), "{<|im}<|{end|>}");
  EXPECT_EQ(Marked("{{ u.replace('im', 'IM') }}{{ u[2:4] }}{{ u[::-1] }}", variables), "{<|}IM{_end|>im>|dne_mi|<}");
  EXPECT_EQ(Marked("{{ (' ' + u + ' ').strip() }}{{ u.strip('<') }}", variables), "{<|im_end|>|im_end|>}");
  EXPECT_EQ(Marked("{{ d|tojson }}{{ {'a': 1}|tojson }}{{ d }}", variables), "{{\"<k>\": \"<v>\"}}{\"a\": 1}{{'<k>': '<v>'}}");
  EXPECT_EQ(Marked("{% for k, v in d.items() %}{{ k }}={{ v }}{% endfor %}", variables), "{<k>}={<v>}");
  EXPECT_EQ(Marked("{{ '%s|%s' % (u, 1) }}{{ '[{}]'.format(u) }}{{ '%5s' | format(n) }}", variables),
            "{<|im_end|>}|1[{<|im_end|>}]    7");
  EXPECT_EQ(Marked("{{ l|join(',') }}{{ l[0]|title }}{{ (l[0] + '\nx')|indent(1) }}", variables), "{<a>},{<b><A><a>}\n x");
  EXPECT_EQ(Marked("{% macro m(x) %}<{{ x }}>{% endmacro %}{% set s %}[{{ m(u) }}]{% endset %}{{ s|trim }}", variables),
            "[<{<|im_end|>}>]");
  EXPECT_EQ(Marked("{% filter replace('e', 'E') %}e{{ u }}e{% endfilter %}", variables), "E{<|im_}E{nd|>}E");
  EXPECT_EQ(Marked("{{ dict(**d).keys()|first }}{{ namespace(**d) }}", variables), "{<k><Namespace {'<k>': '<v>'}>}");
  EXPECT_EQ(Marked("{{ 'x' if u else 'y' }}{{ u|length }}{{ u|default('z') }}{{ m|default('z') }}", variables),
            "x10{<|im_end|>}z");
  // What lays out text may be a user's too.
  EXPECT_EQ(Marked("{{ f.format('', '') }}{{ p % () }}", {{"f", "{:<<1}{:|<1}"}, {"p", "%%"}}), "{<|%}");
  EXPECT_EQ(Marked("{{ [1]|tojson(indent=u) }}{{ [1, 2]|tojson(separators=(u, ':')) }}", variables),
            "{[\n<|im_end|>1\n][1<|im_end|>2]}");
  // A variable that the caller did not name is not trusted, whatever it is called.
  const auto segments = Render("{{ eos_token }}", variables);
  ASSERT_TRUE(segments.ok());
  EXPECT_FALSE((*segments)[0].control);
}

TEST(Jinja, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(Error("a\n{{ x|nosuch }}"), "T: line 2: No filter named 'nosuch'.");
  EXPECT_EQ(Error("a\n\n{{ x is nosuch }}"), "T: line 3: No test named 'nosuch'.");
  EXPECT_EQ(Error("{{ x.y.z }}"), "T: line 1: 'x' is undefined");
  EXPECT_EQ(Error("{% if true %}\n{{ 'a' +\n 1 }}\n{% endif %}"), "T: line 2: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(Error("{% macro m() %}\n{{ raise_exception('a\nb') }}{% endmacro %}\n\n{{ m() }}"), "T: line 2: a\\nb");
  EXPECT_EQ(Error("{{ [].append(1) }}"), "T: line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(Error("{{ 'a'.encode() }}"), "T: line 1: the method 'encode' of str is not supported");
  EXPECT_EQ(Error("\n{% include 'a' %}"), "T: line 2: the statement 'include' is not supported in chat templates");
  EXPECT_EQ(Error("{{ n }}", {{"n", UINT64_MAX}}), "T: variable 'n': an integer beyond 64 bits: 18446744073709551615");
  EXPECT_EQ(Error("{{ 9223372036854775807 + 1 }}"), "T: line 1: an integer beyond 64 bits");
  EXPECT_EQ(Error("{{ 1e22|int }}"), "T: line 1: int: an integer beyond 64 bits");
  EXPECT_EQ(Error("{{ '1e22'|int }}"), "T: line 1: int: an integer beyond 64 bits");
  EXPECT_EQ(Error("{{ 'inf'|int(7) }}"), "rendered: 7");
  EXPECT_EQ(Error("\xFF"), "T: is not UTF-8");
  EXPECT_LT(Error("{{ raise_exception('a' * 100000) }}").size(), 1100u);
}

TEST(Jinja, IllFormedTextOfUsersIsRepaired) {
  const auto segments = Render("[{{ u }}]", {{"u", "a\xFF\xC3"}});
  ASSERT_TRUE(segments.ok());
  EXPECT_EQ(JoinSegments(*segments), "[a\uFFFD\uFFFD]");
}

std::string Repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// `text` with numbers in place of '#'.
std::string Numbered(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    const size_t at = text.find('#');
    all += text.substr(0, at) + std::to_string(i) + text.substr(at + 1);
  }
  return all;
}

// The defaults would take seconds under sanitizers.
constexpr Limits kLow = {.steps = 100'000, .made_bytes = uint64_t{1} << 24, .text_bytes = uint64_t{1} << 20};

TEST(Jinja, BoundsHold) {
  const auto expect = [](const std::string& text, const char* why, const Limits& limits = kLow) {
    RenderOptions options;
    options.limits = limits;
    const std::string error = Error(text, Json::object(), options);
    EXPECT_NE(error.find(why), std::string::npos) << text.substr(0, 300) << "\n" << error.substr(0, 300);
  };
  expect("{{ " + Repeated("(", 300) + "1" + Repeated(")", 300) + " }}", "nested deeper than 256");
  expect("{{ " + Repeated("[", 5000) + Repeated("]", 5000) + " }}", "nested deeper than 256");
  expect("{{ " + Repeated("-", 5000) + "1 }}", "nested deeper than 256");
  expect("{{ " + Repeated("not ", 5000) + "1 }}", "nested deeper than 256");
  expect("{{ 1" + Repeated(" + 1", 5000) + " }}", "nested deeper than 256");
  expect("{{ a" + Repeated(".a", 5000) + " }}", "nested deeper than 256");
  expect("{{ a" + Repeated("|list", 5000) + " }}", "nested deeper than 256");
  expect("{% set " + Repeated("(", 5000) + "a" + Repeated(")", 5000) + " = 1 %}", "nested deeper than 256");
  expect(Repeated("{% if 1 %}", 5000), "nested deeper than 256");
  expect(Repeated("{% for i in x %}", 300) + Repeated("{% endfor %}", 300), "nested deeper than 256");
  expect("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper than 700");
  expect("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper than 700");
  expect("{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}",
         "values nested deeper than 256");
  expect("{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns }}", "cannot be printed");
  expect("{% for i in range(100000) %}{% for i in range(100000) %}{% endfor %}{% endfor %}", "more than 100000 steps");
  expect("{{ 'a' * 100000000000 }}", "a text of more than 1048576 bytes");
  expect("{{ [0] * 100000000000 }}", "repeated too often");
  expect("{{ range(1000000000)|list }}", "a range of more than 100000 numbers");
  expect("{% set ns = namespace(x='a') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
         "a text of more than");
  expect("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
         "more than 16777216 bytes");
  expect(
      "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] %}"
      "{% endfor %}{{ ns.x == ns.y }}",
      "more than 100000 steps");
  expect("{{ '%999999999d' % 1 }}", "a width beyond 10000");
  expect("{{ '{:999999999}'.format(1) }}", "a width beyond 10000");
  expect("{% set ns = namespace() %}" +
             Repeated("{% set ns = namespace(x=" + Repeated("[", 100) + "ns" + Repeated("]", 100) + ") %}", 100) + "{{ ns }}",
         "cannot be printed");
  expect("{{ 'a'|map(*(['map'] * 1000)) }}", "filters that apply filters nested deeper than 64");
  // What is done with a large text counts by its size.
  const Limits low = {.steps = 200000, .made_bytes = 20000000, .text_bytes = 1000000};
  const std::string large = "{% set s = 'a' * 900000 %}";
  for (const char* use : {"s|length", "s|string", "s|trim", "s is lower", "s is sameas(s)", "'%.0s' % s", "s.startswith(s)"}) {
    expect(large + "{% for i in range(1000) %}{% set x = " + use + " %}{% endfor %}", "more than", low);
  }
  for (const char* use : {"([s] * 100)|join", "''.join([s] * 100)", "([s] * 100)|sort"}) {
    expect(large + "{{ " + use + " }}", "more than", low);
  }
  expect("{{ ('\n' * 1000000)|indent }}", "more than 200000 steps", low);
  Json dict = Json::object();
  for (int i = 0; i < 5000; ++i) dict[std::to_string(i)] = i;
  EXPECT_NE(
      Error("{% for i in range(1000) %}{% set x = namespace(d) %}{% endfor %}", {{"d", dict}}, {.limits = low}).find("more than"),
      std::string::npos);
  expect(
      "{% for i in range(100000) %}{% if true %}{% continue %}{% endif %}" + Numbered("{% set a# = 1 %}", 1000) + "{% endfor %}",
      "more than 200000 steps", low);
  expect("{% macro m(" + Numbered("a#, ", 2000) + "a) %}{% endmacro %}", "more than 1000 parameters");
  expect("{{ f(" + Numbered("a#=1, ", 2000) + "a=1) }}", "more than 1000 named arguments");
  // A thousand names, times one branch and 500 more.
  expect(
      Numbered("{% set a# = 1 %}", 1000) + "{% if a0 %}{% endif %}{% if a0 %}" + Repeated("{% elif a0 %}", 499) + "{% endif %}",
      "too many names and branches");
  expect("{{ " + std::string(2000, 'a') + " }}", "a name of more than 1000 bytes");
  EXPECT_NE(Error("{{ u.replace('', 'x') }}", {{"u", std::string(500000, 'u')}}).find("more than 1000000 changes"),
            std::string::npos);
  EXPECT_EQ(Error("{{ {}[u] }}{% if not {}[u] %}!{% endif %}", {{"u", std::string(100000, 'u')}}), "rendered: !");
  expect(std::string((size_t{1} << 20) + 1, 'x'), "more than 1048576 bytes");
  RenderOptions options;
  options.limits.steps = 10;
  EXPECT_EQ(Error("{% for i in range(20) %}{{ i }}{% endfor %}", Json::object(), options), "T: line 1: takes more than 10 steps");
  Json deep = 1;
  for (int i = 0; i < 1000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(Error("{{ x }}", {{"x", std::move(deep)}}), "T: variable 'x': values nested deeper than 256");
}

}  // namespace
}  // namespace tally::jinja
