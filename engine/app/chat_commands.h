// SPDX-License-Identifier: Apache-2.0
// What is typed behind a slash in a conversation.
#pragma once

#include <string>

#include "engine/app/chat_talk.h"

namespace tally::app {

// Runs "undo", "save FILE" ... and says what came of it. False: the conversation is over.
bool RunChatCommand(Talk& talk, const std::string& line);

}  // namespace tally::app
