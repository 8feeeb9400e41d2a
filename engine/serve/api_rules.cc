// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_rules.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/recipe/recipe.h"

namespace tally {
namespace {

constexpr size_t kMostTextBiases = 4096;  // tokens of texts

// Blanks before a word are not part of it: it is forbidden behind a blank in any case.
std::string_view WithoutBlanks(std::string_view word) {
  const size_t begin = word.find_first_not_of(' ');
  return begin == word.npos ? word : word.substr(begin);
}

}  // namespace

std::optional<ApiError> CheckIds(const char* field, std::span<const int32_t> ids, const Model& model) {
  const int32_t vocab = model.recipe().vocab;
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab) continue;
    return ApiError{.message = std::string(field) + " has the token " + std::to_string(id) + ", and the vocabulary has " +
                               std::to_string(vocab),
                    .param = field};
  }
  return std::nullopt;
}

std::optional<ApiError> CheckTokenizer(const char* field, const Model& model) {
  if (model.tokenizer() != nullptr) return std::nullopt;
  ApiError error = model.tokenizer_status().ok() ? ApiError() : ApiErrorOf(model.tokenizer_status());
  if (error.message.empty()) error.message = std::string(field) + " needs a tokenizer, and this model has none";
  error.param = field;
  return error;
}

int64_t ApiRules::tokens() const {
  size_t n = rules.stop.size() + rules.allowed.size() + rules.never.size() + bias.size();
  for (const std::vector<int32_t>& sequence : rules.forbidden) n += sequence.size();
  return static_cast<int64_t>(n);
}

std::optional<ApiError> ResolveRules(const ApiRequest& request, const Model& model, ApiRules* resolved) {
  TokenRules& rules = resolved->rules = request.rules;
  std::vector<std::pair<int32_t, float>> bias = request.logit_bias;
  std::vector<int32_t> ids;
  for (const auto& [token, added] : bias) ids.push_back(token);
  if (std::optional<ApiError> error = CheckIds("logit_bias", ids, model)) return error;
  if (std::optional<ApiError> error = CheckIds("stop_token_ids", rules.stop, model)) return error;
  if (std::optional<ApiError> error = CheckIds("allowed_token_ids", rules.allowed, model)) return error;
  if (!request.text_bias.empty()) {
    if (std::optional<ApiError> error = CheckTokenizer("logit_bias", model)) return error;
  }
  if (!request.bad_words.empty()) {
    if (std::optional<ApiError> error = CheckTokenizer("bad_words", model)) return error;
  }
  for (const auto& [text, added] : request.text_bias) {
    const Result<std::vector<int32_t>> tokens = model.tokenizer()->Encode(text, {.add_special = false, .parse_special = true});
    if (!tokens.ok()) return ApiErrorOf(tokens.status());
    for (const int32_t token : *tokens) bias.emplace_back(token, added);
    if (bias.size() > kMostTextBiases) {
      return ApiError{.message = "logit_bias has texts of more than " + std::to_string(kMostTextBiases) + " tokens",
                      .param = "logit_bias"};
    }
  }
  for (const std::string& word : request.bad_words) {
    const std::string bare(WithoutBlanks(word));
    for (const std::string& text : {bare, " " + bare}) {
      Result<std::vector<int32_t>> tokens = model.tokenizer()->Encode(text, {.add_special = false, .parse_special = false});
      if (!tokens.ok()) return ApiErrorOf(tokens.status());
      if (tokens->empty()) continue;
      if (tokens->size() == 1) {
        rules.never.push_back(tokens->front());
      } else {
        rules.forbidden.push_back(std::move(*tokens));
      }
    }
  }
  for (const auto& [token, added] : bias) {
    if (std::isinf(added)) {
      rules.never.push_back(token);
    } else {
      resolved->bias.emplace_back(token, added);
    }
  }
  return std::nullopt;
}

}  // namespace tally
