// SPDX-License-Identifier: Apache-2.0
// One turn as JSON.
#pragma once

#include "engine/app/chat_talk.h"
#include "engine/app/json.h"

namespace tally::app {

// The last turn of `talk`, which must have one.
Json ChatJson(const ChatFlags& flags, const Talk& talk);

}  // namespace tally::app
