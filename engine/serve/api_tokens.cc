// SPDX-License-Identifier: Apache-2.0
#include "engine/serve/api_tokens.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/format.h"
#include "engine/base/utf8_check.h"
#include "engine/serve/api_answer.h"
#include "engine/serve/api_object.h"
#include "engine/serve/api_rules.h"

namespace tally {
namespace {

constexpr size_t kMostTokenText = size_t{4} << 20;  // bytes of a text
constexpr size_t kMostPieces = size_t{128} << 10;   // the same where each token's text is asked for

// Text, or bytes if they are not whole characters.
OrderedJson PieceJson(const std::string& bytes) { return CheckUtf8(bytes, "").ok() ? OrderedJson(bytes) : BytesJson(bytes); }

}  // namespace

std::optional<ApiError> TokenizeBody(const Model& model, const OrderedJson& json, OrderedJson* answer) {
  if (std::optional<ApiError> error = CheckTokenizer("content", model)) return error;
  ApiReading reading;
  ApiObject body(json, "", &reading);
  const std::optional<std::string> content = body.Text("content");
  if (!content) body.Fail("content", "is missing", "missing_required_parameter");
  const bool add = body.Flag("add_special").value_or(false), parse = body.Flag("parse_special").value_or(true);
  const bool pieces = body.Flag("with_pieces").value_or(false);
  if (const size_t most = pieces ? kMostPieces : kMostTokenText; content && content->size() > most) {
    body.Fail("content", "is longer than " + BytesText(most));
  }
  body.Skip({"model"});
  body.End();
  if (reading.error) return reading.error;
  const Tokenizer& tokenizer = *model.tokenizer();
  const Result<std::vector<int32_t>> tokens = tokenizer.Encode(*content, {.add_special = add, .parse_special = parse});
  if (!tokens.ok()) return ApiErrorOf(tokens.status());
  OrderedJson list = OrderedJson::array();
  for (const int32_t id : *tokens) {
    if (!pieces) {
      list.push_back(id);
    } else {
      list.push_back(
          {{"id", id}, {"piece", PieceJson(tokenizer.IsControl(id) ? tokenizer.ControlText(id) : tokenizer.TokenBytes(id))}});
    }
  }
  *answer = {{"tokens", std::move(list)}};
  return std::nullopt;
}

std::optional<ApiError> DetokenizeBody(const Model& model, const OrderedJson& json, OrderedJson* answer) {
  if (std::optional<ApiError> error = CheckTokenizer("tokens", model)) return error;
  ApiReading reading;
  ApiObject body(json, "", &reading);
  const OrderedJson* const list = body.Array("tokens");
  if (list == nullptr) body.Fail("tokens", "is missing", "missing_required_parameter");
  body.Skip({"model"});
  body.End();
  if (reading.error) return reading.error;
  const Tokenizer& tokenizer = *model.tokenizer();
  std::vector<int32_t> tokens;
  size_t bytes = 0;
  for (const OrderedJson& id : *list) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(tokenizer.vocab_size())) {
      body.Fail("tokens", "must be token ids from 0 to " + std::to_string(tokenizer.vocab_size() - 1));
      return reading.error;
    }
    tokens.push_back(id.get<int32_t>());
    bytes += tokenizer.TokenBytes(tokens.back()).size();
  }
  if (bytes > kMostTokenText) return ApiError{.message = "the text would be longer than " + BytesText(kMostTokenText)};
  std::string content = tokenizer.Decode(tokens);
  *answer = {{"content", std::move(content)}};
  return std::nullopt;
}

}  // namespace tally
