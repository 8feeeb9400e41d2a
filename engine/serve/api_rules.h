// SPDX-License-Identifier: Apache-2.0
// What a body says of tokens, by the vocabulary of the model that answers it. Internal to serve.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/serve/api_request.h"
#include "engine/session/model.h"

namespace tally {

// An error that names the field of an id beyond the vocabulary.
[[nodiscard]] std::optional<ApiError> CheckIds(const char* field, std::span<const int32_t> ids, const Model& model);
// An error that names the field, `field`, for which the model would need a tokenizer.
[[nodiscard]] std::optional<ApiError> CheckTokenizer(const char* field, const Model& model);

struct ApiRules {
  TokenRules rules = {};
  std::vector<std::pair<int32_t, float>> bias = {};
  int64_t tokens() const;  // that they hold
};
// Texts become tokens: a word as it begins a text and behind a space, a bias of each token of its text; minus infinity forbids a token.
// An error names its field.
[[nodiscard]] std::optional<ApiError> ResolveRules(const ApiRequest& request, const Model& model, ApiRules* resolved);

}  // namespace tally
