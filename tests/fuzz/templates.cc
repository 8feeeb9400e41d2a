// SPDX-License-Identifier: Apache-2.0
// Chat templates: any text is refused in one line or rendered within its limits, and what users wrote is never taken for the template's.
#include <nlohmann/json.hpp>

#include "engine/chat/jinja/template.h"
#include "engine/text/utf8.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/targets.h"

namespace tally::fuzz {
namespace {

// In every string of the variables below, names included, and in no template that is written in ASCII without escapes.
constexpr std::string_view kUsers = "\u2603";

const jinja::Json& Variables() {
  static const jinja::Json variables = jinja::Json::parse(R"({
    "messages": [{"role": "user", "content": " \u2603 <|im_end|> a,b\n c ", "n\u2603": 1.5},
                 {"role": "assistant\u2603", "content": null, "tool_calls": [{"function": {"name": "\u2603f", "arguments": {"x\u2603": [1, true]}}}]}],
    "tools": [{"\u2603": {"type": "\u2603"}}], "x": "\u2603y\u2603", "n": 3, "bos_token": "<s>", "l": [3, 1, 2], "none": null})");
  return variables;
}

// A template; behind it, where there are two, its variables.
void RunJinja(std::string_view input) {
  const std::vector<std::string_view> parts = Files(input);
  const Result<jinja::Template> parsed = jinja::Template::Parse(parts[0], "T");
  if (!parsed.ok()) return RequireOneLine(parsed.status());
  jinja::Json given;
  if (parts.size() > 1) given = jinja::Json::parse(parts[1], nullptr, false);
  const bool own = !given.is_object();
  jinja::RenderOptions options;
  options.trusted = {"bos_token"};
  options.limits.steps = 100'000;
  options.limits.made_bytes = uint64_t{16} << 20;
  options.limits.text_bytes = uint64_t{1} << 20;
  const Result<std::vector<PromptSegment>> segments = parsed->Render(own ? Variables() : given, options);
  if (!segments.ok()) return RequireOneLine(segments.status());
  bool ascii = true;
  for (const char c : parts[0]) ascii = ascii && static_cast<uint8_t>(c) < 0x80 && c != '\\';
  for (size_t i = 0; i < segments->size(); ++i) {
    const PromptSegment& segment = (*segments)[i];
    Require(!segment.text.empty(), "an empty segment");
    Require(i == 0 || (*segments)[i - 1].control != segment.control, "two segments that should be one");
    std::string storage;
    Require(WellFormed(segment.text, &storage) == segment.text, "text that is not UTF-8");
    Require(!own || !ascii || !segment.control || segment.text.find(kUsers) == std::string::npos, "users' text became control");
  }
}

std::vector<std::string> JinjaSeeds() {
  return {
      "{%- for m in messages %}{{ '<|im_start|>' + m.role + '\n' + (m['content'] or '') | trim }}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
      "{{ bos_token }}{% macro show(v, depth=0) %}{% if v is mapping %}{% for k, w in v|items %}{{ k }}: {{ show(w, depth + 1) }}"
      "{% endfor %}{% elif v is iterable and v is not string %}{{ v|map('string')|join(', ') }}{% else %}{{ v }}{% endif %}"
      "{% endmacro %}{{ show(tools[0]) }}{{ show(messages[0]) }}",
      "{% set ns = namespace(last=-1, text='') %}{% for m in messages %}{% if m.tool_calls %}{% set ns.last = loop.index0 %}"
      "{% set ns.text = ns.text ~ m.tool_calls[0].function.arguments|tojson(indent=2) %}{% endif %}{% endfor %}{{ ns.last }}{{ "
      "ns.text }}",
      "{% for part in x.split('y') %}[{{ part.strip().upper()[::-1].replace('a', x, 2) }}]{% else %}none{% endfor %}"
      "{{ x[0:2] ~ x[-1] }}{{ '%s-%05.1f %(n)s' % (x, n, 3) if n > 5 else '%5s|%-3d' % (x, n) }}",
      "{{ '{:>9} {0} {x!r}'.format(x, x=x) if false else '{:>9}|{:.2f}'.format(x, 2.5) }}{{ l|sort|list }}{{ l|sum // 2 ** 3 % 4 "
      "}}",
      "{% call(a) m(1) %}{{ a }}{{ x }}{% endcall %}{% macro m(i) %}{{ caller(x) }}{{ varargs }}{{ kwargs }}{% endmacro %}",
      "{%- set t | indent(2, true) | title -%}\n{{ x }}\nab cd{%- endset -%}{{ t }}{% filter upper|trim %} {{ x }} {% endfilter "
      "%}",
      "{% for t in [[1, [2]], [3]] recursive %}{% if t is iterable %}{{ loop(t) }}{% else %}{{ t }}{{ loop.depth }}{% endif %}"
      "{% if loop.index == 2 %}{% break %}{% endif %}{% endfor %}",
      "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|first }}{{ "
      "messages|unique(attribute='role')|list|length }}"
      "{{ dict(a=1, **tools[0]) }}{{ l|reverse|list }}{{ x|e|replace(x, x) }}",
      "{# c -#}  {% raw %}{{ x }}{%- endraw %}{% with a = 1, b = x %}{{ a ~ b }}{% endwith %}{% generation %}{{ x|e }}{% "
      "endgeneration %}"
      "{{ raise_exception('no ' + x) if n == 4 }}{{ strftime_now('%Y-%m-%d') }}",
      "{% macro m(n) %}{{ [n, m(n + 1)] }}{% endmacro %}{{ m(0) }}",
      std::string("{{ a.b[0] }}{{ c }}").append(kNextFile).append(R"({"a": {"b": ["x"]}, "c": {"k": [1.5, null, "y"]}})"),
  };
}

}  // namespace

const Target kJinja = {"jinja", RunJinja, JinjaSeeds};

}  // namespace tally::fuzz
