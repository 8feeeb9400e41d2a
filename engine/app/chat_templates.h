// SPDX-License-Identifier: Apache-2.0
// Chat templates for models that come without one, by the names of the formats.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tally::app {

struct NamedTemplate {
  std::string_view name;
  std::string_view text;  // Jinja
};
std::span<const NamedTemplate> ChatTemplates();
const NamedTemplate* FindChatTemplate(std::string_view name);  // null: there is none of that name
std::string ChatTemplateNames();                               // "harmony, chatml, ..."

}  // namespace tally::app
