// SPDX-License-Identifier: Apache-2.0
// Chat templates: the Jinja that transformers renders them with, in which
// jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True) is extended by loop controls, generation blocks,
// tojson, raise_exception and strftime_now (https://huggingface.co/docs/transformers/chat_templating_writing).
//
// What it does not have: include, import, extends and autoescape; integers beyond 64 bits; Markup except in sums, *, slices, changes
// of case and |trim; the filters filesizeformat, pprint, random, striptags, urlize, wordwrap and xmlattr.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/value.h"
#include "engine/chat/message.h"

namespace tally::jinja {

struct RenderOptions {
  int64_t now = 0;  // seconds since 1970, for strftime_now
  // Variables whose strings are the template's own text: bos_token and the like.
  std::set<std::string> trusted = {};
  // Roles of messages (member `role` of the items of `messages`) that are the template's own text: templates make special tokens of
  // them, <|{{ message.role }}|>. Other roles are not trusted.
  std::span<const std::string_view> roles = {};
  Limits limits = {};
};

struct Program;  // a parsed template

// Does not change: any number of threads may render it at once.
class Template {
 public:
  // `origin` begins the messages of errors: "ORIGIN: line 3: ...". kBadInput for whatever the text has wrong.
  static Result<Template> Parse(std::string_view text, std::string origin);

  // `variables` is an object. kBadInput: what raise_exception says, a wrong operation, a limit; with its line.
  Result<std::vector<PromptSegment>> Render(const Json& variables, const RenderOptions& options) const;

 private:
  std::string origin_;
  std::shared_ptr<const Program> program_;
};

}  // namespace tally::jinja
