// SPDX-License-Identifier: Apache-2.0
// An answer as server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html), as the endpoints of OpenAI
// and Anthropic stream it, or as lines of JSON, as ollama's do.
#pragma once

#include <memory>
#include <string>

#include "engine/serve/completion.h"

namespace tally {

// The events of one answer, as text to be sent. After End or Fail nothing comes.
class ApiStream {
 public:
  virtual ~ApiStream() = default;
  virtual std::string Begin(const Completion& completion) = 0;
  // The events for `delta`, which the completion has collected.
  virtual std::string Add(const Completion& completion, const ApiDelta& delta) = 0;
  // All choices have ended without an error. A chat's and a completion's last event is [DONE]; usage comes before it, if it or the bill was
  // asked for.
  virtual std::string End(const Completion& completion) = 0;
  virtual std::string Fail(const ApiError& error) = 0;
  // What is sent on a silent stream to keep the connection, and clients ignore: a comment, or the API's own event for it.
  // To be called after Begin.
  virtual std::string Sign() const { return ":\n\n"; }
  virtual const char* ContentType() const { return "text/event-stream"; }
  // Events about prompts that have begun or gone on since the last call, if they were asked for.
  virtual std::string PromptProgress(const Completion&) { return ""; }
};
std::unique_ptr<ApiStream> NewApiStream(const ApiRequest& request);

}  // namespace tally
