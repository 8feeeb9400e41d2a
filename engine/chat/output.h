// SPDX-License-Identifier: Apache-2.0
// What a model writes as an answer, taken apart while it comes: thinking, content, tool calls, and the marks between them.
//
// Every parser has an answer for every input. What does not follow the format becomes content, or a call with raw text; nothing is
// an error and nothing is lost: the texts of all parts, joined, are the texts of all pieces.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/chat/message.h"

namespace tally {

// A piece of the model's output: a control token, spelled as in the vocabulary ("<|channel|>"), or whole characters of text.
struct OutputPiece {
  std::string_view text;
  bool control = false;
};

struct OutputPart {
  enum class Kind : uint8_t {
    kContent,    // of the answer
    kReasoning,  // thinking
    kCall,       // raw text of a tool call, as it comes; `call` is set on the part that completes the call
    kMark,       // syntax of the format: headers, tags, white space that belongs to them
  };
  Kind kind = Kind::kContent;
  std::string text = {};  // a stretch of the output, unchanged; may be empty where `call` is set
  std::optional<ToolCall> call = {};
};

// One answer. Not to be used by two threads at once.
class TALLY_API OutputParser {
 public:
  virtual ~OutputParser() = default;
  // Appends the parts that became certain. Text that may be the beginning of a mark is held back.
  virtual void Push(OutputPiece piece, std::vector<OutputPart>* parts) = 0;
  // The output has ended, wherever that is: appends what was held back.
  virtual void Finish(std::vector<OutputPart>* parts) = 0;
};

// All parts of an answer together.
struct ChatAnswer {
  std::string content = {}, reasoning = {};
  std::vector<ToolCall> calls = {};
  TALLY_API void Add(const std::vector<OutputPart>& parts);
};

}  // namespace tally
