// SPDX-License-Identifier: Apache-2.0
// /tokenize and /detokenize: their bodies, and their answers without an engine. Internal to serve.
#pragma once

#include <optional>

#include "engine/serve/api_error.h"
#include "engine/session/model.h"

namespace tally {

// {"content": TEXT, "add_special", "parse_special", "with_pieces"} -> {"tokens": [ID or {"id", "piece"}]}
[[nodiscard]] std::optional<ApiError> TokenizeBody(const Model& model, const OrderedJson& json, OrderedJson* answer);
// {"tokens": [ID]} -> {"content": TEXT}
[[nodiscard]] std::optional<ApiError> DetokenizeBody(const Model& model, const OrderedJson& json, OrderedJson* answer);

}  // namespace tally
