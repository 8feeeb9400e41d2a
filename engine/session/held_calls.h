// SPDX-License-Identifier: Apache-2.0
// Calls of a chat's tools that are held to the tools' schemas: all of a call that must be made, those of strict tools where the model
// may call.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/export.h"
#include "engine/chat/chat_format.h"
#include "engine/grammar/grammar_cache.h"
#include "engine/session/answer_calls.h"

namespace tally {

class Model;

struct CallsError {
  std::string field = {};    // "tools", or "tool_choice"
  std::string message = {};  // one line, which begins with the field
  bool unsupported = false;  // by this model, whatever the schemas are
};
// Sets `calls` for RequestOptions::calls of the answer to `chat` that follows `prompt`, which `format` rendered; null: calls are free.
// `content_is_held`: to a grammar; calls that take its place are held too. An error: it is not known how the model calls; a schema that
// cannot be held; two tools of one name.
TALLY_API std::optional<CallsError> HoldCalls(const Model& model, GrammarCache& grammars, const ChatRequest& chat,
                                              const ChatFormat& format, std::string_view prompt, bool content_is_held,
                                              std::shared_ptr<const AnswerCalls>* calls);

}  // namespace tally
