// SPDX-License-Identifier: Apache-2.0
// The input of a conversation at a terminal: messages of one or more lines, and commands.
#pragma once

#include <string>
#include <vector>

#include "engine/app/line_editor.h"

namespace tally::app {

struct ChatInput {
  enum class Kind {
    kMessage,
    kCommand,      // `text` begins behind the slash
    kEnd,          // Ctrl-D
    kInterrupted,  // Ctrl-C; `text`: what had been typed
  };
  Kind kind = Kind::kEnd;
  std::string text = {};
};

// A line that ends in \ goes on in the next; """ at the beginning of a line opens a block, and closes it at the end of one. A line that
// begins with / is a command, with // a message that begins with /.
class ChatReader {
 public:
  explicit ChatReader(LineEditor& editor);
  ChatReader(const ChatReader&) = delete;
  ChatReader& operator=(const ChatReader&) = delete;
  ~ChatReader();  // keeps the lines for later conversations

  ChatInput Read();                            // empty lines and blocks are passed over
  TypedLine Ask(const std::string& question);  // a line that is not kept

 private:
  // The rest of a message whose first line is there. `block`: until """.
  ChatInput ReadRest(std::string text, bool block);

  LineEditor& editor_;
  LineHistory history_;
  std::vector<std::string> typed_;
};

}  // namespace tally::app
