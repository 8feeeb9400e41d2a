// SPDX-License-Identifier: Apache-2.0
// Which roles a template prints in which places of a conversation, and conversations brought into a form that it prints. Internal to chat.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "engine/base/status.h"
#include "engine/chat/message.h"

namespace tally {

// True: the template prints such a message as it is.
struct RolePlaces {
  bool developer = true;          // anywhere, in the place that it has
  bool first_system = true;       // a system message at the beginning, whatever follows
  bool second_system = true;      // another one directly behind it
  bool late_system = true;        // one behind messages of other roles, in the place that it has
  bool users_in_a_row = true;     // two messages of users, one after the other
  bool user_after_result = true;  // a user's message directly behind a tool's result
  bool tool = true;               // results of tools. False: they are left out without an error.
  bool operator==(const RolePlaces&) const = default;
};

// `render` gives the text of a short conversation. All is true where the template prints not even a user's message.
RolePlaces FindRolePlaces(const std::function<Result<std::string>(std::vector<ChatMessage>)>& render);

// The same conversation in places that the template prints. What becomes of a message depends on the messages before it alone:
//   - a developer's message is sent as a system message;
//   - system messages at the beginning are joined into one;
//   - other system messages are sent where they stand, as a user's message;
//   - where roles have to alternate, a user's text is joined with the user's message before it, or with the tool's result before it.
// Texts are joined by an empty line. Adds to `notes`, unless it is null, a sentence for each of these that was done.
std::vector<ChatMessage> FitRoles(const std::vector<ChatMessage>& messages, const RolePlaces& places,
                                  std::vector<std::string>* notes);

}  // namespace tally
