// SPDX-License-Identifier: Apache-2.0
// Takes the tokens of an answer apart: tokens -> control tokens and whole characters -> parts, cut before a stop string.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/chat/output.h"
#include "engine/text/tokenizer.h"

namespace tally {

// One answer. Text that may be the beginning of a stop string, or of a character, is held back.
class TALLY_API OutputStream {
 public:
  virtual ~OutputStream() = default;
  // Appends the parts that became certain with the token. After it has stopped nothing is appended.
  virtual void Push(int32_t token, std::vector<OutputPart>* parts) = 0;
  // The answer has ended: appends what was held back. `end_token`: the one that ended it, or -1.
  virtual void Finish(int32_t end_token, std::vector<OutputPart>* parts) = 0;
  virtual bool stopped() const = 0;             // a stop string came, or the last call that there may be
  virtual const std::string& stop() const = 0;  // that string; empty: none did
};

// True if the token after `prompt` begins a text: the prompt has only control tokens, such as a start token. `tokenizer` may be null.
TALLY_API bool BeginsText(const Tokenizer* tokenizer, std::span<const int32_t> prompt);

struct StopOptions {
  std::vector<std::string> shown = {};  // stop strings that stay in the text which they end
  int64_t after = 0;                    // the first so many tokens end nothing
};

// Plain text, as content. `tokenizer` may be null: no parts. `at_start`: the first token begins the text.
TALLY_API std::unique_ptr<OutputStream> NewTextStream(const Tokenizer* tokenizer, bool at_start,
                                                      const std::vector<std::string>& stop, const StopOptions& options = {});

// How calls get their ids, and how many there may be.
struct CallOptions {
  std::function<std::string()> new_id = {};  // gives no id twice
  std::set<std::string> used_ids = {};       // of the calls in the conversation
  std::optional<int64_t> most = {};          // the answer stops after so many calls; none or 0: it does not
};
// An answer in a conversation, which `parser` takes apart; stop strings cut its content. Every call gets an id: the model's, where it
// writes one that is not used yet, else a new one.
TALLY_API std::unique_ptr<OutputStream> NewAnswerStream(const Tokenizer& tokenizer, std::unique_ptr<OutputParser> parser,
                                                        const std::vector<std::string>& stop, CallOptions calls,
                                                        const StopOptions& options = {});

}  // namespace tally
