// SPDX-License-Identifier: Apache-2.0
// Calls without marks: an answer that is calls from beginning to end, as Llama writes them. It is JSON calls, with white space and `;`
// between them, or one list of calls in Python or JSON: [f(a=1, b="x"), g()].
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat/call_format.h"
#include "engine/chat/call_scanner.h"
#include "engine/chat/marks.h"
#include "engine/chat/output.h"
#include "engine/chat/tool_types.h"

namespace tally {

// Holds an answer back while it can still be such calls, and leaves every other answer to another parser: also one of calls whose
// arguments are not well-formed.
class BareCallParser final : public OutputParser {
 public:
  // `format` must outlive the parser. Calls in Python are of `tools` alone.
  BareCallParser(const CallFormat& format, ToolTypes tools, std::unique_ptr<OutputParser> others)
      : format_(format), tools_(std::move(tools)), others_(std::move(others)) {}
  void Push(OutputPiece piece, std::vector<OutputPart>* parts) override;
  void Finish(std::vector<OutputPart>* parts) override;

 private:
  // What comes next.
  enum class Next : uint8_t {
    kAny,        // JSON or a list
    kJson,       // JSON, or the end
    kItem,       // a call of the list
    kSeparator,  // what follows a call of the list
    kEnd,        // nothing: the list has ended
  };
  bool MayBeCalls();
  bool MayNameTool(std::string_view body) const;
  bool StepBetween();
  bool StepCall();
  bool IsCalls() const { return !scanner_ && (next_ == Next::kJson || next_ == Next::kEnd); }
  void HandOver(std::vector<OutputPart>* parts);

  const CallFormat& format_;
  const ToolTypes tools_;
  const std::unique_ptr<OutputParser> others_;
  const MarkSet no_stops_;
  bool undecided_ = true;
  std::string text_;  // undecided: all of the answer
  size_t at_ = 0;     // bytes of it that were looked at: calls and what stands between them
  Next next_ = Next::kAny;
  std::vector<std::pair<size_t, ToolCall>> calls_;  // with their ends
  std::optional<CallScanner> scanner_;              // of the call that begins at at_
};

}  // namespace tally
