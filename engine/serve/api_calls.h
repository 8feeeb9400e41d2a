// SPDX-License-Identifier: Apache-2.0
// Calls of a request's tools that are held to the tools' schemas: all of a call that must be made, those of strict tools where the model
// may call.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "engine/chat/chat_format.h"
#include "engine/serve/api_error.h"
#include "engine/session/answer_calls.h"

namespace tally {

class GrammarCache;
class Model;

// `content_is_held`: to a grammar; calls that take its place are held too. Null: calls are free.
// Errors: it is not known how the model calls; a schema that cannot be held.
std::optional<ApiError> HoldCalls(const Model& model, GrammarCache& grammars, const ChatRequest& chat, const ChatFormat& format,
                                  std::string_view prompt, bool content_is_held, std::shared_ptr<const AnswerCalls>* calls);

}  // namespace tally
