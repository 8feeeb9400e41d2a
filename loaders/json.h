// SPDX-License-Identifier: Apache-2.0
// JSON out of untrusted files, as a stream of events: no document is built, and nesting, length and duplicate
// keys are checked on the way (nlohmann's parser keeps its own stack, it does not recurse).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "loaders/inventory/inventory.h"

namespace tally::internal {

// Non-negative integers are uint64_t, negative ones int64_t; integers beyond 64 bits are doubles.
using JsonScalar = std::variant<std::nullptr_t, bool, int64_t, uint64_t, double, std::string>;

// Receives the events. An error stops the parse and is what ParseJson returns, with the file's name put in
// front.
class JsonHandler {
 public:
  virtual ~JsonHandler() = default;
  virtual Status Key(std::string key) = 0;
  virtual Status Scalar(JsonScalar value) = 0;
  virtual Status Begin(bool object) = 0;  // an object, or an array
  virtual Status End() = 0;
};

// `place` goes in front of every message: a file name, perhaps with a part of the file. The top level must be
// an object.
Status ParseJson(const std::string& place, std::string_view text, int max_depth, JsonHandler& handler);

// Reads a JSON file and adds its values to `metadata`, keys flattened with dots and `prefix` in front of
// them. Arrays of scalars of one kind become vectors (integers and fractions mixed: doubles). Of other arrays, of objects and of null
// Metadata knows that they are there (IsOther, IsNull). Keys for which `skip` is not empty and the key is `skip` or under it are left
// out.
Status ReadJsonMetadata(const std::string& path, std::string_view prefix, std::string_view skip, Metadata* metadata);
// The same of a text. `place` goes in front of every message.
Status ParseJsonMetadata(const std::string& place, std::string_view text, std::string_view prefix, std::string_view skip,
                         Metadata* metadata);

}  // namespace tally::internal
