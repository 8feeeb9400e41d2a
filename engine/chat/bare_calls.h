// SPDX-License-Identifier: Apache-2.0
// Calls without marks: an answer that is JSON calls from beginning to end, as Llama 3 writes them.
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

namespace tally {

// Holds an answer back while it can still be such calls, and leaves every other answer to another parser.
class BareCallParser final : public OutputParser {
 public:
  // `format` must outlive the parser.
  BareCallParser(const CallFormat& format, std::unique_ptr<OutputParser> others) : format_(format), others_(std::move(others)) {}
  void Push(OutputPiece piece, std::vector<OutputPart>* parts) override;
  void Finish(std::vector<OutputPart>* parts) override;

 private:
  bool MayBeCalls();
  void HandOver(std::vector<OutputPart>* parts);

  const CallFormat& format_;
  const std::unique_ptr<OutputParser> others_;
  const MarkSet no_stops_;
  bool undecided_ = true;
  std::string text_;                                // undecided: all of the answer
  size_t at_ = 0;                                   // bytes of it that were looked at: calls and what stands between them
  std::vector<std::pair<size_t, ToolCall>> calls_;  // with their ends
  std::optional<CallScanner> scanner_;              // of the call that begins at at_
};

}  // namespace tally
