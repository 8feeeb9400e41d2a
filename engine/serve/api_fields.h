// SPDX-License-Identifier: Apache-2.0
// The fields of requests' bodies: one table that says which of them each endpoint reads, ignores and refuses. Answers name the ignored
// ones (X-Tally-Ignored). docs/serve_fields.md has the table. Internal to serve.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tally {

// kCountTokens: /v1/messages/count_tokens, whose body is that of /v1/messages but for max_tokens. kOllamaChat, kOllamaGenerate: /api/chat
// and /api/generate.
enum class ApiEndpoint : uint8_t { kChat, kCompletions, kResponses, kMessages, kCountTokens, kOllamaChat, kOllamaGenerate };
inline constexpr int kApiEndpoints = 7;
inline bool IsAnthropic(ApiEndpoint endpoint) {
  return endpoint == ApiEndpoint::kMessages || endpoint == ApiEndpoint::kCountTokens;
}
inline bool IsOllama(ApiEndpoint endpoint) { return endpoint >= ApiEndpoint::kOllamaChat; }

// A bit an endpoint.
using EndpointSet = uint8_t;
inline constexpr EndpointSet EndpointBit(ApiEndpoint endpoint) {
  return static_cast<EndpointSet>(1u << static_cast<int>(endpoint));
}

// kTaken: the field is read. kHint: it cannot change an answer of this server, and is ignored. kRefused: it would change the answer, and
// the server cannot do it. A field without a row is treated as kHint.
enum class FieldUse : uint8_t { kTaken, kHint, kRefused };

struct ApiField {
  const char* object;  // the place of the object that has it, without indices: "messages[].content[]"; "": the body
  const char* name;
  FieldUse use;
  EndpointSet endpoints;
  const char* nothing = "";  // JSON array: values that mean no more than absence does, as null; neither refused nor named
  const char* why = "";      // of a hint and a refusal
  const char* code = "unsupported_parameter";  // of a refusal
};

// Rows of one object stand together.
std::span<const ApiField> ApiFields();
// The rows of the object at `place`, "messages[2].content[0]".
std::span<const ApiField> ApiFieldsOf(std::string_view place);
// "messages[].content[]"
std::string PlaceWithoutIndices(std::string_view place);

// The error code that tells Anthropic's clients to send all messages with each request, since no conversation is kept here.
inline constexpr const char* kNoThreads = "thread_unsupported_request";

}  // namespace tally
