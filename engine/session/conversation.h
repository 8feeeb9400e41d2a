// SPDX-License-Identifier: Apache-2.0
// A conversation with a model: its history, the prompt of each turn, and each answer, divided into thinking, content and calls while it
// is generated. A turn does not run the beginning of its prompt again if a sequence of the same prefix key has run it and the KV cache
// still holds it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/chat/chat_format.h"
#include "engine/session/engine.h"
#include "engine/session/generate.h"

namespace tally {

struct TurnOptions {
  int64_t max_tokens = -1;  // of the answer; -1: until the context is full
  SamplingOptions sampling = {};
  std::vector<std::string> stop = {};     // the answer's content ends before any of these (`finish` is kStop)
  int64_t draft = 0;                      // RequestOptions::draft
  std::shared_ptr<Grammar> grammar = {};  // RequestOptions::grammar, for the content
  bool jump = true;                       // RequestOptions::jump
  // Makes the id of a call, never the same twice. Null: unique ids of 9 letters and digits if the format wants those, else of "call_" and
  // 24 hexadecimal digits.
  std::function<std::string()> new_call_id = {};
  // The answer as it comes. Returning false stops it (`finish` is kInterrupted); it is not called again.
  std::function<bool(std::span<const OutputPart> parts)> on_parts = {};
  std::function<void(int64_t done, int64_t total)> prompt_progress = {};  // of the prompt's tokens that are run
  std::function<bool()> interrupted = {};                                 // polled between prefill chunks and tokens; true: stop
};

struct Turn {
  ChatAnswer answer = {};         // every call has an id: the model's, or a new one
  GenerateResult generated = {};  // prompt_tokens: those that were run; no text
  int64_t reused_tokens = 0;      // of the prompt, whose KV was there already
};

class TALLY_API Conversation {
 public:
  virtual ~Conversation() = default;

  // The messages so far. What a program puts here is rendered by the next turn.
  virtual const std::vector<ChatMessage>& messages() const = 0;
  virtual void SetMessages(std::vector<ChatMessage> messages) = 0;
  // Everything of the request but its messages: tools, effort, thinking, variables, the date.
  virtual ChatRequest& settings() = 0;

  // Adds `messages` to the history: a message of the user, results of tools, or none if the history already ends with them. Then runs the
  // prompt and generates the assistant's answer, and adds it to the history too, as far as it was generated. On an error, and if the
  // prompt is interrupted (`finish` is kInterrupted and there are no tokens), the history is unchanged.
  // kNoRoom: the prompt leaves no room in the context or the KV cache; no sequence or memory is left. kBadInput: what the format refuses; a
  // sampling option out of range; errors of Step in the prompt. An error of a later Step ends the answer, as in Generate.
  virtual Result<Turn> Say(std::vector<ChatMessage> messages, const TurnOptions& options) = 0;

  // Forgets the last user message and what came after it; false: there is none.
  virtual bool Undo() = 0;
  // Forgets all messages but the system's and developer's at the beginning.
  virtual void Reset() = 0;
  // Forgets the oldest turn, and further ones until the rest takes at most half of Sequences::MostPositions. A turn is a user message with
  // all messages up to the next one. What Reset keeps is kept. False: there is no turn to forget. Errors are the format's.
  virtual Result<bool> ForgetOldest() = 0;

  virtual int64_t tokens() const = 0;  // of the last turn, its prompt included, in the KV cache

  // A session file: messages, settings, tokens and KV cache, with the format's version, the model's identity and a checksum
  // (session_file.h). Save replaces a session file in one step and refuses to replace any other. SaveMessages leaves the tokens and the
  // cache out: a small file, after which the next turn runs the whole prompt. After Load the next turn gives the same bits as without,
  // by an engine of the same options and instruction set. kBadInput: no session file, damaged, of another version, model or KV type,
  // longer than the context; messages and settings are as before. kNoRoom: no sequence or memory is left for the cache.
  virtual Status Save(const std::string& path) const = 0;
  virtual Status SaveMessages(const std::string& path) const = 0;
  virtual Status Load(const std::string& path) = 0;
};

// `engine` must outlive the conversation, which takes one of its sequences during a turn. `prefix_key`: conversations and requests of the
// same key share the KV cache of equal beginnings (RequestOptions). So the time to an answer reveals whether another one of that key has
// run the same beginning.
// kBadInput: a model without a tokenizer.
TALLY_API Result<std::unique_ptr<Conversation>> NewConversation(Engine& engine, std::shared_ptr<const ChatFormat> format,
                                                                std::string prefix_key = {});

}  // namespace tally
