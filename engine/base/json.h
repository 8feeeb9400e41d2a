// SPDX-License-Identifier: Apache-2.0
// JSON that comes from outside, read within limits. nlohmann's parser keeps its own stack, it does not recurse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "engine/base/status.h"

namespace tally {

struct JsonLimits {
  int depth = 64;             // of objects and arrays in one another
  size_t values = SIZE_MAX;   // scalars, objects and arrays
  size_t members = SIZE_MAX;  // of one object
  bool object = true;         // the document must be an object
  bool non_finite = false;    // NaN, Infinity and -Infinity are numbers, as Python's json writes them
};
// For nlohmann::ordered_json, which searches for each member among the others.
inline constexpr JsonLimits kOrderedJsonLimits = {.values = size_t{1} << 20, .members = 4096, .object = false};

// Non-negative integers are uint64_t, negative ones int64_t; integers beyond 64 bits are doubles.
using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string>;

// Receives the events of a document. An error stops the reading and is what ParseJson returns, with the place put in front.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual Status Key(std::string key) = 0;
  virtual Status Scalar(JsonScalar value) = 0;
  virtual Status Begin(bool object) = 0;  // an object, or an array
  virtual Status End() = 0;
};

// No document is built. kBadInput, one line: `place` (a file's name, or what the text is), and what is wrong: no JSON, beyond the
// limits, a key that an object has twice; errors of the handler.
Status ParseJson(const std::string& place, std::string_view text, const JsonLimits& limits, JsonHandler& handler);
// Without a handler.
Status CheckJson(const std::string& place, std::string_view text, const JsonLimits& limits);

// The document, as a nlohmann::basic_json. It is built after the whole text has been checked. kBadInput: as ParseJson.
template <class Json>
Result<Json> ReadJson(const std::string& place, std::string_view text, const JsonLimits& limits) {
  TALLY_RETURN_IF_ERROR(CheckJson(place, text, limits));
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

}  // namespace tally
