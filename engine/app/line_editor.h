// SPDX-License-Identifier: Apache-2.0
// Lines that somebody types at the terminal of standard input.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tally::app {

struct TypedLine {
  enum class Kind {
    kLine,
    kEnd,          // Ctrl-D, or the terminal is gone
    kInterrupted,  // Ctrl-C, which is taken, or a signal that asks for an end
  };
  Kind kind = Kind::kEnd;
  // Without its end; a paste may hold '\n'. Of an interrupted line what had been typed, where that is known.
  std::string text = {};
};

class LineEditor {
 public:
  virtual ~LineEditor() = default;
  // Behind `prompt`, which goes to standard error. Wants BeginConversation (interrupt.h).
  virtual TypedLine Read(const std::string& prompt) = 0;
  // What the keys for earlier lines bring back, oldest first.
  virtual void Remember(const std::string& line) = 0;
};

// With libedit (https://www.thrysoee.dk/editline): keys, earlier lines, and pastes that stay one line whatever they hold. Without it, or
// where the terminal cannot move its cursor, the system's own line.
std::unique_ptr<LineEditor> NewLineEditor();

// The lines that earlier conversations have kept: chat_history in StateFolder (state_folder.h).
class LineHistory {
 public:
  // Empty where there is none.
  std::vector<std::string> Read() const;
  // Adds lines to what is kept by then, and drops the oldest and what was pasted as several. That it cannot be written is no error.
  void Append(const std::vector<std::string>& lines) const;
};

}  // namespace tally::app
