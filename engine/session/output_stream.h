// SPDX-License-Identifier: Apache-2.0
// Takes the tokens of an answer apart: tokens -> control tokens and whole characters -> parts, cut before a stop string. Internal to the
// session.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/chat/output.h"
#include "engine/text/tokenizer.h"

namespace tally {

// One answer. Text that may be the beginning of a stop string, or of a character, is held back.
class OutputStream {
 public:
  virtual ~OutputStream() = default;
  // Appends the parts that became certain with the token. After a stop string nothing is appended.
  virtual void Push(int32_t token, std::vector<OutputPart>* parts) = 0;
  // The answer has ended: appends what was held back. `end_token`: the one that ended it, or -1.
  virtual void Finish(int32_t end_token, std::vector<OutputPart>* parts) = 0;
  virtual bool stopped() const = 0;             // a stop string came
  virtual const std::string& stop() const = 0;  // that string; empty: none did
};

// True if the token after `prompt` begins a text: the prompt has only control tokens, such as a start token. `tokenizer` may be null.
bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt);

// Plain text, as content. `tokenizer` may be null: no parts. `at_start`: the first token begins the text.
std::unique_ptr<OutputStream> NewTextStream(const Tokenizer* tokenizer, bool at_start, const std::vector<std::string>& stop);

// An answer in a conversation, which `parser` takes apart; stop strings cut its content. Every call gets an id: the model's, or 9 letters
// and digits of ours that are not in `call_ids`.
std::unique_ptr<OutputStream> NewAnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser,
                                              const std::vector<std::string>& stop, std::set<std::string> call_ids);

}  // namespace tally
