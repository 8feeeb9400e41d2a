// SPDX-License-Identifier: Apache-2.0
// The answers of /v1/messages (https://docs.anthropic.com/en/api/messages), whole, and as the events of a stream
// (https://docs.anthropic.com/en/docs/build-with-claude/streaming).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/chat/output.h"
#include "engine/serve/api_answer.h"

namespace tally {

// The content blocks of an answer: thinking, text and calls, in the order in which they come.
class AnthropicOutput {
 public:
  // Adds `parts` to the blocks. Appends the events to `events`, unless it is null.
  void Add(std::span<const OutputPart> parts, std::vector<OrderedJson>* events);
  // Ends the answer.
  void Finish(std::vector<OrderedJson>* events);
  const OrderedJson& blocks() const { return blocks_; }

 private:
  void Open(OrderedJson block, std::vector<OrderedJson>* events);
  void Close(std::vector<OrderedJson>* events);
  void AddText(const OutputPart& part, std::vector<OrderedJson>* events);
  void AddCall(const ToolCall& call, std::vector<OrderedJson>* events);
  // An event of the block that comes last.
  OrderedJson Event(const char* type) const;
  OrderedJson Delta(const char* type, const char* name, const std::string& text) const;

  OrderedJson blocks_ = OrderedJson::array();
  bool open_ = false;  // the last block goes on
  OutputPart::Kind kind_ = OutputPart::Kind::kContent;
  std::string text_;  // of the open block
};

// The message; before its request has ended it has no stop_reason.
OrderedJson AnthropicMessageJson(const ApiAnswer& answer, OrderedJson blocks, bool ended, OrderedJson bill = {});
// {"stop_reason", "stop_sequence"}
OrderedJson AnthropicStopJson(const ApiChoice& choice);
// input_tokens are those that had to run, beside cache_read_input_tokens. `bill` becomes the member "tally" unless it is null.
OrderedJson AnthropicUsageJson(const ApiUsage& usage, OrderedJson bill = {});
// {"type": "error", "error": {"type", "message"}}; kNoThreads also has "details".
OrderedJson AnthropicErrorJson(const ApiError& error);

}  // namespace tally
