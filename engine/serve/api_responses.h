// SPDX-License-Identifier: Apache-2.0
// The answers of /v1/responses (https://platform.openai.com/docs/api-reference/responses/object), whole, and as the events of a stream
// (.../responses-streaming).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/chat/output.h"
#include "engine/serve/api_answer.h"

namespace tally {

// The items of an answer: thinking, text and calls, in the order in which they come. Their ids are made of the response's.
class ResponseOutput {
 public:
  explicit ResponseOutput(const std::string& response_id);
  // Adds `parts` to the items. Appends the events, {"type", ...} without sequence_number, to `events`, unless it is null.
  void Add(std::span<const OutputPart> parts, std::vector<OrderedJson>* events);
  // Ends the answer. `logprobs`: of all its tokens, for its last text.
  void Finish(bool complete, std::span<const ApiLogprob> logprobs, std::vector<OrderedJson>* events);
  const OrderedJson& items() const { return items_; }

 private:
  void Open(OutputPart::Kind kind, std::vector<OrderedJson>* events);
  void Close(const char* status, std::vector<OrderedJson>* events);
  void AddText(const OutputPart& part, std::vector<OrderedJson>* events);
  void AddCall(const ToolCall& call, std::vector<OrderedJson>* events);
  std::string NewId(const char* prefix) const;
  // An event of the item that comes last.
  OrderedJson Event(const char* type, bool of_content) const;

  const std::string digits_;  // of the response's id
  OrderedJson items_ = OrderedJson::array();
  bool open_ = false;  // the last item goes on
  OutputPart::Kind kind_ = OutputPart::Kind::kContent;
  std::string text_;  // of the open item
};

// "completed", or "incomplete" if the answer was cut.
const char* ResponseStatus(const ApiAnswer& answer);

// `echo`: fields of the body, which the response repeats as they were sent. `status`: "in_progress" has no usage.
OrderedJson ResponseJson(const ApiAnswer& answer, const OrderedJson& echo, OrderedJson items, const char* status,
                         OrderedJson bill = {});

}  // namespace tally
