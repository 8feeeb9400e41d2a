// SPDX-License-Identifier: Apache-2.0
// The bodies of OpenAI's /v1/chat/completions, /v1/completions and /v1/responses and of Anthropic's /v1/messages, read into what an
// engine's requests need (https://platform.openai.com/docs/api-reference/chat/create, .../completions/create, .../responses/create,
// https://docs.anthropic.com/en/api/messages); of ollama's /api/chat and /api/generate (api_ollama.h).
//
// api_fields.h has the table of fields. What would change the answer and cannot be done is refused by name. What changes no answer is
// ignored, and so is a field that is not known: both are named. Fields of llama.cpp's and vLLM's servers are taken too. One field is ours:
// tally, whether the answer's usage says what it cost.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/message.h"
#include "engine/serve/api_error.h"
#include "engine/serve/api_fields.h"
#include "engine/serve/api_format.h"
#include "engine/session/token_rules.h"

namespace tally {

// The endpoint of OpenAI's paths "/v1/chat/completions", "/v1/completions" and "/v1/responses"; none: another path.
std::optional<ApiEndpoint> ApiEndpointOf(std::string_view path);

// Text, or token ids.
struct ApiPromptPart {
  std::string text = {};
  std::optional<std::vector<int32_t>> tokens = {};
  bool parse_special = false;  // special tokens spelled out in the text become tokens, whatever the server's options say
};
using ApiPrompt = std::vector<ApiPromptPart>;  // at least one

// A field that was absent or null has no value here, and the server's own holds.
struct ApiRequest {
  ApiEndpoint endpoint = ApiEndpoint::kChat;
  std::string model = {};
  ChatRequest chat = {};  // `now` is for the server to set
  // Not empty: texts are completed, and there is no chat. Only of kCompletions, which has at least one, and of kOllamaGenerate.
  std::vector<ApiPrompt> prompts = {};
  int64_t n = 1;  // choices of each prompt
  std::optional<int64_t> max_tokens = {};
  std::vector<std::string> stop = {};
  std::optional<uint64_t> seed = {};  // choice i takes seed + i
  std::optional<double> temperature = {}, top_p = {}, min_p = {}, repeat_penalty = {}, presence_penalty = {},
                        frequency_penalty = {};
  std::optional<int32_t> top_k = {}, repeat_last_n = {};
  bool ignore_eos = false;
  TokenRules rules = {};                    // `never` and `forbidden` are for the server to set
  std::vector<std::string> bad_words = {};  // their tokens, as they begin a text or follow a space, never stand in the answer
  bool include_stop = false;                // what stops an answer stays in it
  AnswerFormat format = {};
  std::vector<std::pair<int32_t, float>> logit_bias = {};     // minus infinity: the token is never drawn
  std::vector<std::pair<std::string, float>> text_bias = {};  // the same of all tokens of a text
  int32_t top_logprobs = -1;                                  // -1: no log probabilities; else so many beside each token's
  int32_t prompt_logprobs = -1;                               // the same of the prompt's tokens
  bool echo_prompt = false;                                   // kCompletions: the answer begins with the prompt
  bool return_token_ids = false;                              // the answer has the ids of prompt and answer
  bool add_special = true;                                    // kCompletions: texts begin with the model's start token
  bool stream = false, stream_usage = false;
  bool usage_always = false;            // every chunk of a stream has the usage so far
  bool return_progress = false;         // a stream tells how far its prompt has run; not of kResponses and kMessages
  std::optional<bool> tally = {};       // the bill stands in the answer's usage
  bool load = false;                    // ollama's: nothing is asked but that the model is loaded
  std::optional<int64_t> context = {};  // ollama's: positions that the client expects
  // kResponses: fields of the body that the answer repeats.
  std::shared_ptr<const OrderedJson> echo = {};
  // Fields of the body that were ignored, "verbosity", "messages[].parsed": each once, printable ASCII without commas.
  std::vector<std::string> ignored = {};
  double arrived = 0;  // MonotonicSeconds(); for the server to set
  // For the server to set: prefixes are shared among requests of equal keys, and clients have equal shares.
  std::string prefix_key = {}, client = {};
};

inline constexpr int64_t kMostApiChoices = 1024;  // of all prompts of a body together

// The error of a body that is refused; `*request` is then of no use. `strict`: a field that would be ignored is refused.
[[nodiscard]] std::optional<ApiError> ParseApiRequest(ApiEndpoint endpoint, const OrderedJson& body, ApiRequest* request,
                                                      bool strict = false);

}  // namespace tally
