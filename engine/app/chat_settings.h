// SPDX-License-Identifier: Apache-2.0
// /set of a conversation: how answers are drawn, by the names of options, of ollama and of bodies of requests.
#pragma once

#include <string>

#include "engine/app/chat_talk.h"
#include "engine/app/json.h"

namespace tally::app {

// A line for each: its name, its value, what it means.
std::string SettingLines(const Talk& talk);
Json SettingsJson(const Talk& talk);
// "temperature 0.5": what holds then, as a line. kBadInput: no such setting, or no value of it; nothing is changed.
Result<std::string> SetOne(Talk& talk, const std::string& arguments);

}  // namespace tally::app
