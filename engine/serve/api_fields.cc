// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_fields.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <iterator>

namespace tally {
namespace {

constexpr EndpointSet kC = EndpointBit(ApiEndpoint::kChat), kT = EndpointBit(ApiEndpoint::kCompletions),
                      kR = EndpointBit(ApiEndpoint::kResponses),
                      kM = EndpointBit(ApiEndpoint::kMessages) | EndpointBit(ApiEndpoint::kCountTokens), kOpenAi = kC | kT | kR,
                      kChats = kC | kR | kM, kAll = kOpenAi | kM;
using enum FieldUse;

constexpr const char* kTextAlone = "answers are text";
constexpr const char* kSampler = "there is no such sampler";
constexpr const char* kLength = "max_tokens is the name";
constexpr const char* kResponseLength = "max_output_tokens is the name";
constexpr const char* kStopName = "stop is the name";
constexpr const char* kNotHere = "this endpoint has none";
constexpr const char* kNotKept = "answers are not kept";
constexpr const char* kBookkeeping = "bookkeeping of the client";
constexpr const char* kFound = "what has run is found without it";
constexpr const char* kModelsStyle = "the model is not told";
constexpr const char* kAsked = "the model is asked, not held to it";
constexpr const char* kMoreToSee = "it asks to be shown more";
constexpr const char* kEmpty = R"([[], {}, ""])";
constexpr const char* kOff = "[false]";
constexpr const char* kOn = "[true]";
constexpr const char* kZero = "[0]";
constexpr const char* kOne = "[1]";

// Whoever adds a field that is read adds its row: what has none cannot be read.
constexpr ApiField kFields[] = {
    {"", "model", kTaken, kAll},
    {"", "messages", kTaken, kC | kM},
    {"", "prompt", kTaken, kT},
    {"", "input", kTaken, kR},
    {"", "instructions", kTaken, kR},
    {"", "system", kTaken, kM},
    {"", "tools", kTaken, kChats},
    {"", "tool_choice", kTaken, kChats},
    {"", "parallel_tool_calls", kTaken, kC | kR},
    {"", "reasoning_effort", kTaken, kC},
    {"", "reasoning", kTaken, kR},
    {"", "thinking", kTaken, kM},
    {"", "output_config", kTaken, kM},
    {"", "chat_template_kwargs", kTaken, kChats},
    {"", "add_generation_prompt", kTaken, kC},
    {"", "continue_final_message", kTaken, kC},
    {"", "max_tokens", kTaken, kC | kT | kM},
    {"", "max_completion_tokens", kTaken, kC | kT},
    {"", "max_output_tokens", kTaken, kR},
    {"", "n_predict", kTaken, kC | kT},
    {"", "min_tokens", kTaken, kOpenAi},
    {"", "stop", kTaken, kOpenAi},
    {"", "stop_sequences", kTaken, kM},
    {"", "stop_token_ids", kTaken, kOpenAi},
    {"", "include_stop_str_in_output", kTaken, kOpenAi},
    {"", "allowed_token_ids", kTaken, kOpenAi},
    {"", "bad_words", kTaken, kOpenAi},
    {"", "n", kTaken, kC | kT},
    {"", "seed", kTaken, kAll},
    {"", "temperature", kTaken, kAll},
    {"", "top_p", kTaken, kAll},
    {"", "top_k", kTaken, kAll},
    {"", "min_p", kTaken, kAll},
    {"", "repeat_penalty", kTaken, kAll},
    {"", "repetition_penalty", kTaken, kAll},
    {"", "repeat_last_n", kTaken, kAll},
    {"", "presence_penalty", kTaken, kAll},
    {"", "frequency_penalty", kTaken, kAll},
    {"", "ignore_eos", kTaken, kAll},
    {"", "logit_bias", kTaken, kOpenAi},
    {"", "logprobs", kTaken, kOpenAi},
    {"", "top_logprobs", kTaken, kC | kR},
    {"", "n_probs", kTaken, kC | kT},
    {"", "prompt_logprobs", kTaken, kC | kT},
    {"", "echo", kTaken, kT},
    {"", "return_token_ids", kTaken, kC | kT},
    {"", "add_special_tokens", kTaken, kT},
    {"", "stream", kTaken, kAll},
    {"", "stream_options", kTaken, kOpenAi},
    {"", "return_progress", kTaken, kC | kT},
    {"", "include", kTaken, kR},
    {"", "text", kTaken, kR},
    {"", "metadata", kTaken, kR},
    {"", "user", kTaken, kR},
    {"", "response_format", kTaken, kC | kT},
    {"", "output_format", kTaken, kM},
    {"", "structured_outputs", kTaken, kAll},
    {"", "guided_json", kTaken, kAll},
    {"", "guided_regex", kTaken, kAll},
    {"", "guided_choice", kTaken, kAll},
    {"", "guided_grammar", kTaken, kAll},
    {"", "json_schema", kTaken, kAll},
    {"", "grammar", kTaken, kAll},
    {"", "tally", kTaken, kAll},

    {"", "metadata", kHint, kC | kT | kM, "[{}]", kBookkeeping},
    {"", "user", kHint, kC | kT, "[\"\"]", kBookkeeping},
    {"", "store", kHint, kOpenAi, kOff, "answers are not kept: where an answer has the field, it is false"},
    {"", "service_tier", kHint, kAll, "", kBookkeeping},
    {"", "safety_identifier", kHint, kOpenAi, "", kBookkeeping},
    {"", "client_metadata", kHint, kOpenAi, "[{}]", kBookkeeping},
    {"", "request_id", kHint, kAll, "", "the header X-Request-Id is the name"},
    {"", "prompt_cache_key", kHint, kOpenAi, "", kFound},
    {"", "prompt_cache_retention", kHint, kOpenAi, "", kFound},
    {"", "cache_control", kHint, kAll, "", kFound},
    {"", "cache_prompt", kHint, kAll, kOn, kFound},
    {"", "cache_salt", kHint, kAll, "", "what has run is shared among requests of one key"},
    {"", "id_slot", kHint, kAll, "[-1]", kFound},
    {"", "priority", kHint, kAll, kZero, "clients take turns"},
    {"", "verbosity", kHint, kC, "", kModelsStyle},
    {"", "include_reasoning", kHint, kC, kOn, "thinking stands in a field of its own"},
    {"", "mm_processor_kwargs", kHint, kC, "[{}]", "there are no pictures"},
    {"", "timings_per_token", kHint, kAll, kOff, kMoreToSee},
    {"", "return_progress", kHint, kR | kM, kOff, kMoreToSee},
    {"", "max_tool_calls", kHint, kR, "", "the server calls nothing"},
    {"", "truncation", kHint, kR, "[\"disabled\"]", "input that is too long is an error"},
    {"", "context_management", kHint, kR | kM, kEmpty, "messages are read as they are sent"},
    {"", "betas", kHint, kM, "[[]]", kBookkeeping},
    {"", "anthropic_beta", kHint, kM, "[[]]", kBookkeeping},
    {"", "anthropic_version", kHint, kM, "", kBookkeeping},
    {"", "inference_geo", kHint, kM, "", kBookkeeping},
    {"", "speed", kHint, kM, "", kBookkeeping},
    {"", "diagnostics", kHint, kM, "", kBookkeeping},

    {"", "output_format", kRefused, kOpenAi, "", "response_format is the name, text.format of /v1/responses"},
    {"", "response_format", kRefused, kR | kM, R"([{"type": "text"}])", "text.format is the name, output_format of /v1/messages"},
    {"", "best_of", kRefused, kAll, kOne, "n gives several answers"},
    {"", "n", kRefused, kR | kM, kOne, "there is one answer"},
    {"", "use_beam_search", kRefused, kAll, kOff, kSampler},
    {"", "mirostat", kRefused, kAll, kZero, kSampler},
    {"", "typical_p", kRefused, kAll, kOne, kSampler},
    {"", "tfs_z", kRefused, kAll, kOne, kSampler},
    {"", "top_a", kRefused, kAll, kZero, kSampler},
    {"", "top_n_sigma", kRefused, kAll, "[-1, 0]", kSampler},
    {"", "xtc_probability", kRefused, kAll, kZero, kSampler},
    {"", "dry_multiplier", kRefused, kAll, kZero, kSampler},
    {"", "dynatemp_range", kRefused, kAll, kZero, kSampler},
    {"", "samplers", kRefused, kAll, "[[]]", "the order of samplers is fixed"},
    {"", "logits_processors", kRefused, kAll, "[[]]", kSampler},
    {"", "logit_bias", kRefused, kM, kEmpty, "/v1/messages has none"},
    {"", "min_tokens", kRefused, kM, kZero, kNotHere},
    {"", "n_predict", kRefused, kR | kM, "[-1]", kLength},
    {"", "max_output_tokens", kRefused, kC | kT | kM, "", kLength},
    {"", "max_completion_tokens", kRefused, kM, "", kLength},
    {"", "max_tokens", kRefused, kR, "", kResponseLength},
    {"", "max_completion_tokens", kRefused, kR, "", kResponseLength},
    {"", "stop", kRefused, kM, "[[]]", "stop_sequences is the name"},
    {"", "stop_sequences", kRefused, kOpenAi, "[[]]", kStopName},
    {"", "stop_token_ids", kRefused, kM, "[[]]", kNotHere},
    {"", "include_stop_str_in_output", kRefused, kM, kOff, kNotHere},
    {"", "allowed_token_ids", kRefused, kM, "", kNotHere},
    {"", "bad_words", kRefused, kM, "[[]]", kNotHere},
    {"", "skip_special_tokens", kRefused, kAll, kOn, "special tokens are not shown"},
    {"", "spaces_between_special_tokens", kRefused, kAll, kOn, "special tokens are not shown"},
    {"", "add_special_tokens", kRefused, kC, kOff, "the chat template writes them"},
    {"", "truncate_prompt_tokens", kRefused, kAll, "", "a prompt that is too long is an error"},
    {"", "prompt_logprobs", kRefused, kR | kM, "", kNotHere},
    {"", "top_logprobs", kRefused, kT, kZero, "logprobs is the number"},
    {"", "n_probs", kRefused, kR | kM, kZero, "logprobs is the name"},
    {"", "return_token_ids", kRefused, kR | kM, kOff, "/tokenize is"},
    {"", "return_tokens_as_token_ids", kRefused, kAll, kOff, "/tokenize is"},
    {"", "echo", kRefused, kC | kR, kOff, "answers begin after the prompt"},
    {"", "suffix", kRefused, kOpenAi, "[\"\"]", "text is not filled in before another"},
    {"", "chat_template", kRefused, kC, "", "it is an option of the server"},
    {"", "documents", kRefused, kC, "[[]]", "chat_template_kwargs is, for templates that know documents"},
    {"", "messages", kRefused, kT | kR, "", "it is a field of /v1/chat/completions"},
    {"", "prompt", kRefused, kC | kM, "", "messages is"},
    {"", "prompt", kRefused, kR, "", "no prompts are kept here"},
    {"", "tools", kRefused, kT, "[[]]", "a text has no tools"},
    {"", "functions", kRefused, kAll, "", "tools is"},
    {"", "function_call", kRefused, kAll, R"(["auto", "none"])", "tool_choice is"},
    {"", "modalities", kRefused, kOpenAi, "[[\"text\"]]", kTextAlone},
    {"", "audio", kRefused, kOpenAi, "", kTextAlone},
    {"", "prediction", kRefused, kOpenAi, "", "there is no speculation with a given text"},
    {"", "web_search_options", kRefused, kOpenAi, "", "there is no search"},
    {"", "lora", kRefused, kAll, "[[]]", "there are no adapters"},
    {"", "previous_response_id", kRefused, kR, "", "answers are not kept: send the conversation as input"},
    {"", "conversation", kRefused, kR, "", "conversations are not kept: send the conversation as input"},
    {"", "background", kRefused, kR, kOff, kNotKept},
    {"", "thread", kRefused, kM, "", "conversations are not kept, send all messages", kNoThreads},
    {"", "container", kRefused, kM, "", "no code runs here"},
    {"", "mcp_servers", kRefused, kM, "[[]]", "the server calls no other"},

    {"stream_options", "include_usage", kTaken, kOpenAi},
    {"stream_options", "continuous_usage_stats", kTaken, kC | kT},
    {"stream_options", "include_obfuscation", kHint, kOpenAi, kOff, "lengths of events are not hidden"},
    {"stream_options", "continuous_usage_stats", kHint, kR, kOff, kMoreToSee},

    {"text", "format", kTaken, kR},
    {"text", "verbosity", kHint, kR, "", kModelsStyle},

    {"response_format", "type", kTaken, kC | kT},
    {"response_format", "json_schema", kTaken, kC | kT},
    {"response_format", "schema", kTaken, kC | kT},

    {"response_format.json_schema", "name", kTaken, kC | kT},
    {"response_format.json_schema", "description", kTaken, kC | kT},
    {"response_format.json_schema", "strict", kTaken, kC | kT},
    {"response_format.json_schema", "schema", kTaken, kC | kT},

    {"text.format", "type", kTaken, kR},
    {"text.format", "schema", kTaken, kR},
    {"text.format", "name", kTaken, kR},
    {"text.format", "description", kTaken, kR},
    {"text.format", "strict", kTaken, kR},

    {"output_format", "type", kTaken, kM},
    {"output_format", "schema", kTaken, kM},
    {"output_format", "name", kTaken, kM},
    {"output_format", "description", kTaken, kM},
    {"output_format", "strict", kTaken, kM},

    {"output_config.format", "type", kTaken, kM},
    {"output_config.format", "schema", kTaken, kM},
    {"output_config.format", "name", kTaken, kM},
    {"output_config.format", "description", kTaken, kM},
    {"output_config.format", "strict", kTaken, kM},

    {"structured_outputs", "json", kTaken, kAll},
    {"structured_outputs", "regex", kTaken, kAll},
    {"structured_outputs", "choice", kTaken, kAll},
    {"structured_outputs", "grammar", kTaken, kAll},
    {"structured_outputs", "json_object", kTaken, kAll},
    {"structured_outputs", "disable_fallback", kHint, kAll, "", "there is one implementation"},
    {"structured_outputs", "disable_any_whitespace", kHint, kAll, "", "documents have no white space"},
    {"structured_outputs", "disable_additional_properties", kRefused, kAll, kOff, "additionalProperties of the schema is"},
    {"structured_outputs", "whitespace_pattern", kRefused, kAll, "[\"\"]", "documents have no white space"},
    {"structured_outputs", "structural_tag", kRefused, kAll, "", "tool_choice is"},

    {"reasoning", "effort", kTaken, kR},
    {"reasoning", "summary", kHint, kR, "", "thinking is given whole"},
    {"reasoning", "generate_summary", kHint, kR, "", "thinking is given whole"},

    {"thinking", "type", kTaken, kM},
    {"thinking", "budget_tokens", kHint, kM, "", "no budget is kept"},
    {"thinking", "display", kHint, kM, "", "thinking is given whole"},

    {"output_config", "effort", kTaken, kM},
    {"output_config", "format", kTaken, kM},
    {"output_config", "task_budget", kHint, kM, "", "no budget is kept"},

    {"tool_choice", "type", kTaken, kM},
    {"tool_choice", "name", kTaken, kM},
    {"tool_choice", "disable_parallel_tool_use", kTaken, kM},

    {"system[]", "type", kTaken, kM},
    {"system[]", "text", kTaken, kM},
    {"system[]", "cache_control", kHint, kM, "", kFound},
    {"system[]", "citations", kHint, kM, "[[]]", kBookkeeping},

    {"messages[]", "role", kTaken, kC | kM},
    {"messages[]", "content", kTaken, kC | kM},
    {"messages[]", "name", kTaken, kC},
    {"messages[]", "reasoning_content", kTaken, kC},
    {"messages[]", "reasoning", kTaken, kC},
    {"messages[]", "refusal", kTaken, kC},
    {"messages[]", "tool_calls", kTaken, kC},
    {"messages[]", "tool_call_id", kTaken, kC},
    {"messages[]", "prefix", kTaken, kC},
    {"messages[]", "parsed", kHint, kC, "", "content is read"},
    {"messages[]", "annotations", kHint, kC, kEmpty, kBookkeeping},
    {"messages[]", "cache_control", kHint, kC, "", kFound},
    {"messages[]", "type", kHint, kC, "", kBookkeeping},
    {"messages[]", "function", kHint, kC, "", kBookkeeping},
    {"messages[]", "audio", kRefused, kC, kEmpty, kTextAlone},
    {"messages[]", "function_call", kRefused, kC, kEmpty, "tool_calls is"},

    {"messages[].content[]", "type", kTaken, kC | kM},
    {"messages[].content[]", "text", kTaken, kC | kM},
    {"messages[].content[]", "refusal", kTaken, kC},
    {"messages[].content[]", "thinking", kTaken, kM},
    {"messages[].content[]", "id", kTaken, kM},
    {"messages[].content[]", "name", kTaken, kM},
    {"messages[].content[]", "input", kTaken, kM},
    {"messages[].content[]", "tool_use_id", kTaken, kM},
    {"messages[].content[]", "content", kTaken, kM},
    {"messages[].content[]", "is_error", kHint, kM, kOff, kModelsStyle},
    {"messages[].content[]", "signature", kHint, kM, "[\"\"]", "thinking is read as it is"},
    {"messages[].content[]", "data", kHint, kM, "[\"\"]", "thinking that is hidden cannot be read"},
    {"messages[].content[]", "caller", kHint, kM, "", kBookkeeping},
    {"messages[].content[]", "citations", kHint, kM, "[[]]", kBookkeeping},
    {"messages[].content[]", "annotations", kHint, kC, kEmpty, kBookkeeping},
    {"messages[].content[]", "cache_control", kHint, kC | kM, "", kFound},

    {"messages[].content[].content[]", "type", kTaken, kM},
    {"messages[].content[].content[]", "text", kTaken, kM},
    {"messages[].content[].content[]", "cache_control", kHint, kM, "", kFound},
    {"messages[].content[].content[]", "citations", kHint, kM, "[[]]", kBookkeeping},

    {"messages[].tool_calls[]", "id", kTaken, kC},
    {"messages[].tool_calls[]", "type", kTaken, kC},
    {"messages[].tool_calls[]", "function", kTaken, kC},
    {"messages[].tool_calls[]", "index", kTaken, kC},

    {"messages[].tool_calls[].function", "name", kTaken, kC},
    {"messages[].tool_calls[].function", "arguments", kTaken, kC},
    {"messages[].tool_calls[].function", "parsed_arguments", kHint, kC, "", "arguments is read"},

    {"input[]", "type", kTaken, kR},
    {"input[]", "id", kTaken, kR},
    {"input[]", "status", kTaken, kR},
    {"input[]", "role", kTaken, kR},
    {"input[]", "content", kTaken, kR},
    {"input[]", "call_id", kTaken, kR},
    {"input[]", "name", kTaken, kR},
    {"input[]", "arguments", kTaken, kR},
    {"input[]", "input", kTaken, kR},
    {"input[]", "action", kTaken, kR},
    {"input[]", "output", kTaken, kR},
    {"input[]", "summary", kHint, kR, "[[]]", "content is read"},
    {"input[]", "encrypted_content", kHint, kR, "[\"\"]", "thinking that is hidden cannot be read"},
    {"input[]", "parsed", kHint, kR, "", "content is read"},
    {"input[]", "parsed_arguments", kHint, kR, "", "arguments is read"},
    {"input[]", "phase", kHint, kR, "", kBookkeeping},

    {"input[].content[]", "type", kTaken, kR},
    {"input[].content[]", "text", kTaken, kR},
    {"input[].content[]", "refusal", kTaken, kR},
    {"input[].content[]", "parsed", kHint, kR, "", "text is read"},
    {"input[].content[]", "annotations", kHint, kR, "[[]]", kBookkeeping},
    {"input[].content[]", "logprobs", kHint, kR, "[[]]", kBookkeeping},
    {"input[].content[]", "cache_control", kHint, kR, "", kFound},

    {"input[].output[]", "type", kTaken, kR},
    {"input[].output[]", "text", kTaken, kR},
    {"input[].output[]", "refusal", kTaken, kR},
    {"input[].output[]", "annotations", kHint, kR, "[[]]", kBookkeeping},
    {"input[].output[]", "logprobs", kHint, kR, "[[]]", kBookkeeping},

    {"tools[]", "type", kTaken, kChats},
    {"tools[]", "function", kTaken, kC},
    {"tools[]", "name", kTaken, kR | kM},
    {"tools[]", "description", kTaken, kR | kM},
    {"tools[]", "parameters", kTaken, kR},
    {"tools[]", "input_schema", kTaken, kM},
    {"tools[]", "strict", kTaken, kR | kM},
    {"tools[]", "defer_loading", kHint, kChats, kOff, "all tools are in the prompt"},
    {"tools[]", "cache_control", kHint, kChats, "", kFound},
    {"tools[]", "allowed_callers", kHint, kM, "", "the client calls"},
    {"tools[]", "eager_input_streaming", kHint, kM, kOff, "a call is sent when it is whole"},
    {"tools[]", "input_examples", kHint, kM, "[[]]", kModelsStyle},

    {"tools[].function", "name", kTaken, kC},
    {"tools[].function", "description", kTaken, kC},
    {"tools[].function", "parameters", kTaken, kC},
    {"tools[].function", "strict", kTaken, kC},
};

}  // namespace

std::span<const ApiField> ApiFields() { return kFields; }

std::string PlaceWithoutIndices(std::string_view place) {
  std::string without;
  for (const char c : place) {
    if (without.ends_with('[') && std::isdigit(static_cast<unsigned char>(c)) != 0) continue;
    without += c;
  }
  return without;
}

std::span<const ApiField> ApiFieldsOf(std::string_view place) {
  const std::string object = PlaceWithoutIndices(place);
  const auto belongs = [&](const ApiField& field) { return object == field.object; };
  const ApiField* const begin = std::find_if(std::begin(kFields), std::end(kFields), belongs);
  return {begin, std::find_if_not(begin, std::end(kFields), belongs)};
}

}  // namespace tally
