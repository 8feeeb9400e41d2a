// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_sampling.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/format.h"

namespace tally {
namespace {

constexpr size_t kLongestText = 1024;  // bytes of a stop string or a word
constexpr int64_t kMostLogprobs = 20;
constexpr size_t kMostBiases = 1024, kMostWords = 1024, kMostStopIds = 1024, kMostAllowed = size_t{1} << 18;
constexpr double kMostBias = 100, kMostPenalty = 2;

// -1 asks for a drawn seed, as elsewhere in Tally.
void ReadSeed(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const seed = body.Take("seed");
  if (seed == nullptr) return;
  if (seed->is_number_unsigned()) {
    request->seed = seed->get<uint64_t>();
  } else if (!seed->is_number_integer() || seed->get<int64_t>() != -1) {
    body.Fail("seed", "must be a whole number from 0 to 18446744073709551615, or -1: one is drawn");
  }
}

std::vector<int32_t> ReadIds(ApiObject& body, const char* name, size_t most) {
  const OrderedJson* const list = body.Array(name);
  std::vector<int32_t> ids;
  if (list == nullptr) return ids;
  if (list->size() > most) body.Fail(name, "has more than " + std::to_string(most) + " tokens");
  for (size_t i = 0; i < list->size() && body.ok(); ++i) {
    const OrderedJson& id = (*list)[i];
    if (!id.is_number_unsigned() || id.get<uint64_t>() > static_cast<uint64_t>(INT32_MAX)) {
      body.Fail(name, "must be an array of token ids", "invalid_type");
    } else {
      ids.push_back(id.get<int32_t>());
    }
  }
  return ids;
}

void ReadBadWords(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const list = body.Array("bad_words");
  if (list == nullptr) return;
  if (list->size() > kMostWords) return body.Fail("bad_words", "has more than " + std::to_string(kMostWords) + " words");
  for (const OrderedJson& word : *list) {
    if (!word.is_string()) return body.Fail("bad_words", "must be an array of strings", "invalid_type");
    request->bad_words.push_back(word.get<std::string>());
    if (request->bad_words.back().empty() || request->bad_words.back().size() > kLongestText) {
      return body.Fail("bad_words", "must be strings of 1 to " + std::to_string(kLongestText) + " bytes");
    }
  }
}

// One bias, of a token's id or of a text's tokens. `name`: the key, for messages.
void AddBias(ApiObject& body, const OrderedJson& key, const OrderedJson& value, ApiRequest* request) {
  const std::string name = key.is_string() ? key.get<std::string>() : key.dump();
  const bool never = value == false;
  if (!never && (!value.is_number() || !(std::fabs(value.get<double>()) <= kMostBias))) {
    return body.Fail("logit_bias", "gives the token " + Printable(name, 40) + " the bias " + Printable(value.dump(), 40) +
                                       ": expected a number from -100 to 100, or false");
  }
  const float bias = never ? -std::numeric_limits<float>::infinity() : value.get<float>();
  if (key.is_number_unsigned() && key.get<uint64_t>() <= static_cast<uint64_t>(INT32_MAX)) {
    request->logit_bias.emplace_back(key.get<int32_t>(), bias);
  } else if (key.is_string() && !name.empty() && name.size() <= kLongestText) {
    request->text_bias.emplace_back(name, bias);
  } else {
    body.Fail("logit_bias", "has the key " + Quote(name) + ", which is no token id and no text");
  }
}

// OpenAI's object of ids; llama.cpp's list of pairs, whose first may be a text.
void ReadBias(ApiObject& body, ApiRequest* request) {
  const OrderedJson* const biases = body.Take("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object() && !biases->is_array()) {
    return body.Fail("logit_bias", "must be an object, or an array of pairs", "invalid_type");
  }
  if (biases->size() > kMostBiases) {
    return body.Fail("logit_bias", "has more than " + std::to_string(kMostBiases) + " tokens");
  }
  if (biases->is_array()) {
    for (const OrderedJson& pair : *biases) {
      if (!pair.is_array() || pair.size() != 2) return body.Fail("logit_bias", "must be an array of pairs", "invalid_type");
      AddBias(body, pair[0], pair[1], request);
    }
    return;
  }
  for (const auto& [name, value] : biases->items()) {
    int32_t token = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data(), end, token);
    if (error != std::errc() || at != end || token < 0) {
      return body.Fail("logit_bias", "has the key " + Quote(name) + ", which is no token id");
    }
    AddBias(body, OrderedJson(static_cast<uint64_t>(token)), value, request);
  }
}

// The number of `name`; -1: none.
int32_t ReadNumber(ApiObject& body, const char* name) {
  const OrderedJson* const number = body.Take(name);
  if (number == nullptr || *number == false) return -1;
  if (number->is_number_integer() && *number >= 0 && *number <= kMostLogprobs) return number->get<int32_t>();
  body.Fail(name, "must be a whole number from 0 to " + std::to_string(kMostLogprobs));
  return -1;
}

// A chat has a flag, and the number beside it.
void ReadChatLogprobs(ApiObject& body, ApiRequest* request) {
  if (body.Flag("logprobs").value_or(false)) request->top_logprobs = 0;
  const std::optional<int64_t> top = body.Whole("top_logprobs", 0, kMostLogprobs);
  if (!top || (*top == 0 && request->top_logprobs < 0)) return;
  if (request->endpoint != ApiEndpoint::kResponses && request->top_logprobs < 0) {
    return body.Fail("top_logprobs", "needs logprobs to be true");
  }
  request->top_logprobs = static_cast<int32_t>(*top);
}

}  // namespace

void ReadSampling(ApiObject& body, ApiRequest* request) {
  request->temperature = body.Number("temperature", 0);
  request->top_p = body.Number("top_p", 0, 1);
  request->min_p = body.Number("min_p", 0, 1);
  if (const auto k = body.Whole("top_k", -1, INT32_MAX)) request->top_k = static_cast<int32_t>(*k);
  if (const auto last = body.Whole("repeat_last_n", -1, INT32_MAX)) request->repeat_last_n = static_cast<int32_t>(*last);
  constexpr double kLeast = 1e-6;
  request->repeat_penalty = body.Number("repeat_penalty", kLeast);
  if (const std::optional<double> penalty = body.Number("repetition_penalty", kLeast)) {
    if (request->repeat_penalty) body.Fail("repetition_penalty", "and repeat_penalty are two names of one field");
    request->repeat_penalty = penalty;
    // vLLM's is a penalty on all tokens so far, llama.cpp's on the last ones.
    if (!request->repeat_last_n) request->repeat_last_n = -1;
  }
  request->presence_penalty = body.Number("presence_penalty", -kMostPenalty, kMostPenalty);
  request->frequency_penalty = body.Number("frequency_penalty", -kMostPenalty, kMostPenalty);
  request->ignore_eos = body.Flag("ignore_eos").value_or(false);
  ReadSeed(body, request);
}

void ReadStop(ApiObject& body, const char* name, size_t most, ApiRequest* request) {
  const OrderedJson* const stop = body.Take(name);
  if (stop == nullptr) return;
  const OrderedJson list = stop->is_array() ? *stop : OrderedJson::array({*stop});
  if (list.size() > most) body.Fail(name, "must be at most " + std::to_string(most) + " strings");
  for (const OrderedJson& text : list) {
    if (!text.is_string()) return body.Fail(name, "must be a string or an array of strings", "invalid_type");
    request->stop.push_back(text.get<std::string>());
    if (request->stop.back().size() > kLongestText) {
      body.Fail(name, "must be strings of at most " + std::to_string(kLongestText) + " bytes");
    }
  }
}

void ReadTokenRules(ApiObject& body, ApiRequest* request) {
  request->rules.min_tokens = body.Whole("min_tokens", 0, INT32_MAX).value_or(0);
  if (request->max_tokens && request->rules.min_tokens > *request->max_tokens) body.Fail("min_tokens", "is more than max_tokens");
  request->rules.stop = ReadIds(body, "stop_token_ids", kMostStopIds);
  request->rules.allowed = ReadIds(body, "allowed_token_ids", kMostAllowed);
  request->include_stop = body.Flag("include_stop_str_in_output").value_or(false);
  ReadBadWords(body, request);
  ReadBias(body, request);
}

void ReadLogprobs(ApiObject& body, ApiRequest* request) {
  const bool text = request->endpoint == ApiEndpoint::kCompletions;
  if (text) {
    request->top_logprobs = ReadNumber(body, "logprobs");
  } else {
    ReadChatLogprobs(body, request);
  }
  if (request->endpoint == ApiEndpoint::kResponses) return;
  if (const std::optional<int64_t> n = body.Whole("n_probs", 0, kMostLogprobs); n && *n > 0) {
    request->top_logprobs = static_cast<int32_t>(*n);
  }
  request->prompt_logprobs = ReadNumber(body, "prompt_logprobs");
  if (request->prompt_logprobs >= 0 && request->stream) body.Fail("prompt_logprobs", "is not for streams");
  request->return_token_ids = body.Flag("return_token_ids").value_or(false);
  if (!text) return;
  request->echo_prompt = body.Flag("echo").value_or(false);
  if (request->echo_prompt && request->top_logprobs >= 0 && request->stream) {
    body.Fail("echo", "with log probabilities is not for streams");
  }
}

}  // namespace tally
