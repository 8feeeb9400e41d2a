// SPDX-License-Identifier: Apache-2.0
// The API of ollama (https://github.com/ollama/ollama/blob/main/docs/api.md): bodies of /api/chat and /api/generate, their answers, whole
// and as the lines of a stream, and what /api/tags, /api/ps and /api/show say of a model. Internal to serve.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "engine/serve/api_answer.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_request.h"
#include "engine/serve/api_stream.h"
#include "engine/serve/model_pool.h"

namespace tally {

struct ServedModel;

// --- bodies

// The rest of the body, without its object `options`. A prompt of /api/generate is the message of a user, or with `raw` a text to be
// completed. An empty prompt, or no messages, is ApiRequest::load.
void ReadOllamaBody(ApiObject& body, const OrderedJson& json, ApiRequest* request);
// num_predict and num_ctx of `options`.
void ReadOllamaLimits(ApiObject& options, ApiRequest* request);
// What the model says to the body: an error if it asks for thinking and the template has none. A num_ctx above the context is added to
// what is ignored, or is an error if the reading is strict.
[[nodiscard]] std::optional<ApiError> CheckOllama(const ServedModel& model, ApiRequest* request, bool strict);

// --- names: NAME and NAME:latest are the same

std::string_view WithoutLatest(std::string_view name);
// As lists of models have it: NAME:latest, unless the name has a tag.
std::string OllamaName(std::string_view served);
// As an answer has it: as it was asked for, if it is the served one.
std::string OllamaName(std::string_view asked, const std::string& served);

// --- answers

OrderedJson OllamaAnswerJson(const ApiAnswer& answer, OrderedJson bill);
std::unique_ptr<ApiStream> NewOllamaStream();
// The answer to ApiRequest::load.
OrderedJson OllamaLoadedJson(ApiEndpoint endpoint, const std::string& model);
// {"error": MESSAGE}
OrderedJson OllamaErrorJson(const ApiError& error);

// --- models

// The model that a body of /api/show asks for.
[[nodiscard]] std::optional<ApiError> ReadOllamaName(const OrderedJson& json, std::string* name);
// An element of /api/tags, or of /api/ps if `running`. `served`: null if it is not in memory, and little is known. `started`: of the
// server, seconds since 1970.
OrderedJson OllamaModelJson(const ModelPool::Figures& figures, const ServedModel* served, int64_t started, bool running);
OrderedJson OllamaShowJson(const ModelPool::Figures& figures, const ServedModel* served, int64_t started);

}  // namespace tally
