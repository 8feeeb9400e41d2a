// SPDX-License-Identifier: Apache-2.0
// A turn as JSON, and a conversation as JSON and Markdown.
#pragma once

#include <string>

#include "engine/app/chat_talk.h"
#include "engine/app/json.h"

namespace tally::app {

// The last turn of `talk`, which must have one.
Json ChatJson(const ChatFlags& flags, const Talk& talk);

// The conversation: model, template, settings, messages as in bodies of requests.
Json ConversationJson(const Talk& talk);
// For people: a heading for each message, thinking quoted, calls in blocks of code.
std::string ConversationMarkdown(const Talk& talk);

}  // namespace tally::app
