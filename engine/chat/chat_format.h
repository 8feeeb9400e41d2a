// SPDX-License-Identifier: Apache-2.0
// The format of a model's chats: renders a conversation into a prompt, and parses the model's output into an answer.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"
#include "engine/base/status.h"
#include "engine/chat/message.h"
#include "engine/chat/output.h"
#include "engine/grammar/call_notation.h"

namespace tally {

// A chat template as found.
struct ChatTemplateSource {
  std::string name = {};    // of several in a checkpoint, "tool_use"; empty: the default one
  std::string text = {};    // Jinja
  std::string origin = {};  // for messages: "FILE: tokenizer.chat_template", "DIR/chat_template.jinja"
  // bos_token, eos_token and the like, spelled as in the vocabulary: variables of the template.
  std::map<std::string, std::string> special_tokens = {};
  // An answer ends before any of these strings. For models that were not trained to end an answer with a token.
  std::vector<std::string> stop = {};
  std::vector<std::string> additional_special_tokens = {};  // a variable of the template too, where there are any
};

// A part of a request that the prompt lacks.
struct LeftOut {
  enum class What : uint8_t {
    kTool,     // a tool
    kCalls,    // calls of an assistant's message
    kContent,  // the text of a message
  };
  What what = What::kTool;
  size_t index = 0;  // in ChatRequest::tools, else in ChatRequest::messages
  bool operator==(const LeftOut&) const = default;
};

// Answers that are messages, as harmony has them. Each has a header, which `message_begin` begins and `header_end` ends. `channel` is
// followed by the channel's name, which is `content` for the content; `recipient` by the function that a message is a call of.
//
// Where the content is held to a grammar, headers are too: to these, whole but for the name in a call. Behind a header of thinking comes
// any text, up to `thinking_end`, then another header.
struct AnswerChannels {
  std::string message_begin = {}, channel = {}, header_end = {};
  std::string content = {}, recipient = {};
  std::vector<std::string> thinking_headers = {}, content_headers = {}, call_headers = {};
  std::string thinking_end = {};  // of a message, and what precedes the next header
};

// What may stand in an answer before its content. Marks are spelled as in the vocabulary.
struct AnswerStart {
  std::string thinking_begin = {}, thinking_end = {};  // empty: the model does not think
  bool in_thinking = false;                            // the prompt ends within it
  std::vector<std::string> call_marks = {};            // that begin calls; empty: calls have no marks, or there are none
  bool calls_in_thinking = false;                      // calls may be made within it
  std::optional<AnswerChannels> channels = {};
};

// Does not change: any number of threads may use one at once.
class TALLY_API ChatFormat {
 public:
  virtual ~ChatFormat() = default;
  // Adds to `notes`, unless it is null, a sentence for each kind of message that is sent in another form than the request has it.
  // kBadInput: what the template refuses (raise_exception, an unsupported role), with the template's message; a role that it leaves out
  // and that cannot be sent otherwise; what it does wrong (an undefined value, a type error), with its line; a tool that is no JSON;
  // limits on steps and output; a message that is to be continued and is not the assistant's, has calls, or is left out.
  Result<std::vector<PromptSegment>> Render(const ChatRequest& request, std::vector<std::string>* notes = nullptr) const;
  // What Render leaves out of a request that it renders: templates ignore what they do not know. Thinking is not among it: most formats
  // drop that of earlier turns. Empty also where it cannot be found out.
  virtual std::vector<LeftOut> FindLeftOut(const ChatRequest& request) const {
    (void)request;
    return {};
  }
  // Whether calls of tools are found in answers: it is known how the model writes them.
  virtual bool ReadsCalls() const { return true; }
  // Whether calls need ids of 9 letters and digits.
  virtual bool ShortCallIds() const { return false; }
  // A parser of the answer that follows `prompt`, which Render made of `request`: the prompt may end within the thinking, and the schemas
  // of the request's tools say which types arguments have. Unless MayCall(request), calls are text.
  virtual std::unique_ptr<OutputParser> NewParser(std::string_view prompt, const ChatRequest& request) const = 0;
  // Of an answer that follows `prompt`, which Render made of `request`. One that continues a message is within its content.
  AnswerStart StartOf(std::string_view prompt, const ChatRequest& request) const;
  // How the model writes calls: the first is the usual one. `json`: the arguments as JSON, where it writes them otherwise. None: it is not
  // known.
  virtual std::vector<CallNotation> CallNotations(bool json) const {
    (void)json;
    return {};
  }
  // Of prompt and answers: "harmony", "Jinja, calls of Qwen".
  virtual std::string Description() const = 0;

 protected:
  // Of an answer that begins a message.
  virtual AnswerStart WholeStartOf(std::string_view prompt) const {
    (void)prompt;
    return {};
  }
  // Render of a request without continue_last.
  virtual Result<std::vector<PromptSegment>> RenderWhole(const ChatRequest& request, std::vector<std::string>* notes) const = 0;
};

// By the template's text: harmony is rendered natively (harmony.h) unless `native` is false; the others run their Jinja (jinja_format.h).
// Answers are parsed by the marks that the template uses (harmony.h, tool_formats.h). kBadInput: a template that cannot be read, with
// its line.
TALLY_API Result<std::unique_ptr<ChatFormat>> MakeChatFormat(const ChatTemplateSource& source, bool native = true);

}  // namespace tally
