// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/jinja/template.h"

#include <algorithm>
#include <utility>

#include "engine/base/format.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/parser.h"

namespace tally::jinja {

struct Program {
  Body body;
};

namespace {

constexpr size_t kLongestMessage = 1000;

Status WithOrigin(const std::string& origin, const Status& status) {
  return {status.code(), Printable(origin + ": " + status.message(), kLongestMessage)};
}

// `messages` with those of their roles that are among `roles` trusted.
Result<Value> TrustRoles(Budget* budget, Value messages, std::span<const std::string_view> roles) {
  if (roles.empty() || !messages.IsList()) return messages;
  const Value key = Value::Literal("role");
  TALLY_ASSIGN_OR_RETURN(const std::string hash, HashKey(budget, key));
  Values items = messages.sequence()->items;
  for (Value& item : items) {
    const Value* const role = item.dict() == nullptr ? nullptr : item.dict()->FindName("role");
    if (role == nullptr || !role->IsString()) continue;
    const auto known = std::ranges::find(roles, role->text().bytes());
    if (known == roles.end()) continue;
    Dict changed = *item.dict();
    changed.Set(hash, key, Value::Literal(std::string(*known)));
    TALLY_ASSIGN_OR_RETURN(item, MakeDict(budget, std::move(changed)));
  }
  return MakeList(budget, std::move(items));
}

}  // namespace

Result<Template> Template::Parse(std::string_view text, std::string origin) {
  Result<Body> body = ParseTemplate(text);
  if (!body.ok()) return WithOrigin(origin, body.status());
  Template made;
  made.origin_ = std::move(origin);
  made.program_ = std::make_shared<const Program>(Program{std::move(*body)});
  return made;
}

Result<std::vector<PromptSegment>> Template::Render(const Json& variables, const RenderOptions& options) const {
  if (!variables.is_object()) return InternalError("the variables of a template are an object");
  Runtime run(options.limits, options.now);
  std::vector<std::pair<std::string, Value>> values;
  for (const auto& [name, json] : variables.items()) {
    Result<Value> value = FromJson(&run.budget, json, options.trusted.count(name) > 0);
    if (value.ok() && name == "messages") value = TrustRoles(&run.budget, std::move(*value), options.roles);
    if (!value.ok()) return WithOrigin(origin_, BadInput("variable " + Quote(name) + ": " + value.status().message()));
    values.emplace_back(name, std::move(*value));
  }
  const Result<Text> text = Interpreter(&run).Render(program_->body, values);
  if (!text.ok()) return WithOrigin(origin_, text.status());
  std::vector<PromptSegment> segments = text->Segments(kMaxSegments + 1);
  if (segments.size() > kMaxSegments) {
    return WithOrigin(origin_,
                      BadInput("more than " + std::to_string(kMaxSegments) + " changes between the template's text and others'"));
  }
  return segments;
}

}  // namespace tally::jinja
