// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_routes.h"

#include <string_view>

namespace tally {
namespace {

constexpr std::string_view kVersionPrefix = "/v1", kModelsPath = "/v1/models";

// Errors below /api are ollama's, whatever is asked for there.
constexpr std::string_view kOllamaPrefix = "/api";

constexpr Target kTargets[] = {{Route::kComplete, "POST", ApiEndpoint::kChat, "/v1/chat/completions"},
                               {Route::kComplete, "POST", ApiEndpoint::kCompletions, "/v1/completions"},
                               {Route::kComplete, "POST", ApiEndpoint::kResponses, "/v1/responses"},
                               {Route::kComplete, "POST", ApiEndpoint::kMessages, "/v1/messages"},
                               {Route::kCountTokens, "POST", ApiEndpoint::kCountTokens, "/v1/messages/count_tokens"},
                               {Route::kCountTokens, "POST", ApiEndpoint::kResponses, "/v1/responses/input_tokens"},
                               {Route::kModels, "GET", {}, kModelsPath},
                               {Route::kProps, "GET", {}, "/props"},
                               {Route::kSlots, "GET", {}, "/slots"},
                               {Route::kVersion, "GET", {}, "/version"},
                               {Route::kLoad, "GET", {}, "/load"},
                               {Route::kRoot, "GET", {}, "/"},
                               {Route::kHealth, "GET", {}, "/health"},
                               {Route::kLive, "GET", {}, "/live"},
                               {Route::kMetrics, "GET", {}, "/metrics"},
                               {Route::kTokenize, "POST", {}, "/tokenize"},
                               {Route::kDetokenize, "POST", {}, "/detokenize"},
                               {Route::kTemplate, "POST", {}, "/apply-template"},
                               {Route::kCancel, "POST", {}, "/cancel"},
                               {Route::kComplete, "POST", ApiEndpoint::kOllamaChat, "/api/chat"},
                               {Route::kComplete, "POST", ApiEndpoint::kOllamaGenerate, "/api/generate"},
                               {Route::kOllamaTags, "GET", ApiEndpoint::kOllamaChat, "/api/tags"},
                               {Route::kOllamaPs, "GET", ApiEndpoint::kOllamaChat, "/api/ps"},
                               {Route::kOllamaShow, "POST", ApiEndpoint::kOllamaChat, "/api/show"},
                               {Route::kOllamaVersion, "GET", ApiEndpoint::kOllamaChat, "/api/version"}};

constexpr std::string_view kNoFiles = "nothing is stored here for clients", kNoEmbeddings = "this server has no embeddings",
                           kNoAudio = "this server has no audio", kNoImages = "this server makes no images",
                           kNoRanks = "this server has no reranking",
                           kNoState = "clients change nothing here but their own answers",
                           kNoModels = "which models there are is for whoever starts the server: `tally pull` fetches one";
constexpr NotServed kNotServed[] = {
    {"/v1/embeddings", kNoEmbeddings},
    {"/embeddings", kNoEmbeddings},
    {"/embedding", kNoEmbeddings},
    {"/api/embed", kNoEmbeddings},
    {"/api/embeddings", kNoEmbeddings},
    {"/pooling", kNoEmbeddings},
    {"/classify", kNoEmbeddings},
    {"/score", kNoRanks},
    {"/v1/score", kNoRanks},
    {"/rerank", kNoRanks},
    {"/reranking", kNoRanks},
    {"/v1/rerank", kNoRanks},
    {"/v1/reranking", kNoRanks},
    {"/v2/rerank", kNoRanks},
    {"/v1/audio", kNoAudio},
    {"/v1/realtime", kNoAudio},
    {"/v1/images", kNoImages},
    {"/v1/videos", kNoImages},
    {"/v1/moderations", "this server has no moderation"},
    {"/v1/files", kNoFiles},
    {"/v1/uploads", kNoFiles},
    {"/v1/vector_stores", kNoFiles},
    {"/v1/batches", "batches of requests are run by `tally batch FILE`"},
    {"/v1/messages/batches", "batches of requests are run by `tally batch FILE`"},
    {"/v1/fine_tuning", "models are not trained here"},
    {"/v1/evals", kNoFiles},
    {"/v1/assistants", kNoFiles},
    {"/v1/threads", kNoFiles},
    {"/v1/conversations", "no conversation is kept here: send all of its messages with each request"},
    {"/v1/responses", "no answer is kept here: send all of a conversation's items with each request"},
    {"/v1/chat/completions", "no answer is kept here"},
    {"/completion", "llama.cpp's own completions are not served: /v1/completions is"},
    {"/infill", "this server fills nothing in"},
    {"/lora-adapters", "this server has no adapters"},
    {"/v1/load_lora_adapter", "this server has no adapters"},
    {"/v1/unload_lora_adapter", "this server has no adapters"},
    {"/sleep", kNoState},
    {"/wake_up", kNoState},
    {"/reset_prefix_cache", kNoState},
    {"/api/pull", kNoModels},
    {"/api/push", kNoModels},
    {"/api/create", kNoModels},
    {"/api/copy", kNoModels},
    {"/api/delete", kNoModels},
    {"/api/blobs", kNoFiles},
};

bool IsAtOrBelow(std::string_view path, std::string_view at) {
  return path.starts_with(at) && (path.size() == at.size() || path[at.size()] == '/');
}

}  // namespace

Target TargetOf(std::string_view path) {
  for (const Target& target : kTargets) {
    // What has /v1 is also served without.
    if (target.path == path || (target.path.starts_with(kVersionPrefix) && target.path.substr(kVersionPrefix.size()) == path)) {
      return target;
    }
  }
  for (const std::string_view models : {kModelsPath, kModelsPath.substr(kVersionPrefix.size())}) {
    if (path.size() > models.size() + 1 && IsAtOrBelow(path, models)) {
      return {Route::kModel, "GET", {}, "/v1/models/NAME", path.substr(models.size() + 1)};
    }
  }
  if (IsAtOrBelow(path, kOllamaPrefix)) return {.endpoint = ApiEndpoint::kOllamaChat};
  return {.endpoint =
              IsAtOrBelow(path, "/v1/messages") || IsAtOrBelow(path, "/messages") ? ApiEndpoint::kMessages : ApiEndpoint::kChat};
}

std::span<const NotServed> PathsNotServed() { return kNotServed; }

std::string_view WhyNotServed(std::string_view path) {
  for (const NotServed& other : kNotServed) {
    if (IsAtOrBelow(path, other.path)) return other.why;
  }
  return {};
}

}  // namespace tally
