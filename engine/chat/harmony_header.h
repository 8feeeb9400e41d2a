// SPDX-License-Identifier: Apache-2.0
// The text of harmony headers, as models write it. A header has sections, each begun by a token: role, channel, content type.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tally {

inline constexpr std::string_view kHarmonyFunctions = "functions.";  // the namespace of a recipient that is no built-in tool

// What a header says. A later word replaces what an earlier one said.
struct HarmonyHeader {
  std::string channel = {};    // empty: none
  std::string recipient = {};  // of a call; empty: none
};

struct HarmonySection {
  enum class Opener : uint8_t {
    kPrompt,     // none: the answer begins, the prompt said <|start|>assistant
    kStop,       // none: the message before has ended
    kStart,      // <|start|>
    kChannel,    // <|channel|>
    kConstrain,  // <|constrain|>
  };
  enum class Follows : uint8_t {
    kMore,   // perhaps more text
    kToken,  // a token of the same header
    kEnd,    // the end of the message
  };
  Opener opener = Opener::kPrompt;
  std::string_view text = {};
  Follows follows = Follows::kMore;
};

// The bytes at the beginning of the section that belong to the header: all of them, or those before the first word that does not. The
// answer for a text holds for every longer one, unless it was all of them. What these words say is put into `header`; where more may
// follow, only if the answer is not all of them.
size_t HarmonyHeaderBytes(const HarmonySection& section, HarmonyHeader* header);

}  // namespace tally
