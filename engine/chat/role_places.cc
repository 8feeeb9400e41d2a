// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/role_places.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "engine/chat/marks.h"

namespace tally {
namespace {

constexpr std::string_view kCallId = "abcdef123";

std::string Needle(size_t index) { return "xq7role" + std::to_string(index) + "n"; }

// A letter a message: system, developer, user, assistant, assistant that calls, tool. Each text is a needle.
std::vector<ChatMessage> Conversation(std::string_view letters) {
  std::vector<ChatMessage> messages;
  for (const char letter : letters) {
    ChatMessage& message = messages.emplace_back(ChatMessage{.content = Needle(messages.size())});
    switch (letter) {
      case 's': message.role = "system"; break;
      case 'd': message.role = "developer"; break;
      case 'u': message.role = "user"; break;
      case 't':
        message.role = "tool";
        message.tool_call_id = kCallId;
        message.name = "probe";
        break;
      default: message.role = "assistant"; break;
    }
    if (letter != 'c') continue;
    message.content.clear();
    message.tool_calls = {{std::string(kCallId), "probe", "{}"}};
  }
  return messages;
}

void Join(std::string* text, const std::string& more) {
  if (!text->empty() && !more.empty()) *text += "\n\n";
  *text += more;
}

bool Begins(const ChatMessage& message) { return message.role == "system" || message.role == "developer"; }

void Say(const char* note, std::vector<std::string>* notes) {
  if (notes != nullptr && std::ranges::find(*notes, note) == notes->end()) notes->emplace_back(note);
}

constexpr const char* kOfDeveloper =
    "developer messages are sent as system messages: the chat template does not take them everywhere";
constexpr const char* kJoined = "system messages at the beginning are joined: the chat template takes one";
constexpr const char* kUsersJoined = "users' messages are joined with the one before: the chat template wants roles to alternate";
constexpr const char* kAsUser = "system messages are sent in place, as a user's text: the chat template does not take them there";

}  // namespace

RolePlaces FindRolePlaces(const std::function<Result<std::string>(std::vector<ChatMessage>)>& render) {
  enum class Outcome : uint8_t { kRefused, kLeftOut, kMoved, kPrinted };  // kMoved: not in the order of the messages
  const auto outcome = [&](std::string_view letters) {
    const std::vector<ChatMessage> messages = Conversation(letters);
    const Result<std::string> text = render(messages);
    if (!text.ok()) return Outcome::kRefused;
    bool in_order = true;
    for (size_t last = 0; const ChatMessage& message : messages) {
      const size_t at = text->find(message.content);
      if (at == text->npos) return Outcome::kLeftOut;
      if (message.content.empty()) continue;
      in_order = in_order && at >= last;
      last = at;
    }
    return in_order ? Outcome::kPrinted : Outcome::kMoved;
  };
  const auto prints = [&](std::initializer_list<std::string_view> conversations) {
    return std::ranges::all_of(conversations, [&](std::string_view letters) { return outcome(letters) >= Outcome::kMoved; });
  };
  // A later message that moves to the beginning would change what the turns before it were run with.
  const auto prints_in_place = [&](std::initializer_list<std::string_view> conversations) {
    return std::ranges::all_of(conversations, [&](std::string_view letters) { return outcome(letters) == Outcome::kPrinted; });
  };
  RolePlaces places;
  if (!prints({"u"})) return places;
  const Outcome with_result = outcome("uct");
  const bool results = with_result >= Outcome::kMoved;
  places.tool = with_result != Outcome::kLeftOut;
  places.developer = prints({"du", "sdu", "dsu"}) && prints_in_place({"uadu"}) && (!results || prints_in_place({"uctdu"}));
  places.first_system = prints({"su", "suau"}) && (!results || prints({"suct"}));
  places.second_system = prints({"ssu", "ssuau"});
  places.late_system = prints_in_place({"us", "usau", "uasu"}) && prints({"suasu"}) && (!results || prints_in_place({"ucts"}));
  places.users_in_a_row = prints({"uu", "uauu"});
  places.user_after_result = !results || prints({"uctu"});
  return places;
}

std::vector<ChatMessage> FitRoles(const std::vector<ChatMessage>& messages, const RolePlaces& places,
                                  std::vector<std::string>* notes) {
  std::vector<ChatMessage> fitted;
  ChatMessage* first_system = nullptr;  // of the beginning
  bool beginning = true;
  fitted.reserve(messages.size());
  for (ChatMessage message : messages) {
    beginning = beginning && Begins(message);
    if (message.role == "developer" && !places.developer) {
      message.role = "system";
      Say(kOfDeveloper, notes);
    }
    if (beginning && places.first_system && message.role == "system") {
      if (first_system != nullptr && !places.second_system) {
        Join(&first_system->content, message.content);
        Say(kJoined, notes);
        continue;
      }
      first_system = &fitted.emplace_back(std::move(message));
      continue;
    }
    const bool moves = message.role == "system" && (beginning || !places.late_system);
    if (moves) {
      if (Trimmed(message.content).empty()) continue;
      message.role = "user";
      Say(kAsUser, notes);
    }
    ChatMessage* const last = fitted.empty() ? nullptr : &fitted.back();
    const bool user = last != nullptr && message.role == "user";
    if ((user && last->role == "user" && !places.users_in_a_row) || (user && last->role == "tool" && !places.user_after_result)) {
      Join(&last->content, message.content);
      if (!moves) Say(kUsersJoined, notes);
      continue;
    }
    fitted.push_back(std::move(message));
  }
  return fitted;
}

}  // namespace tally
