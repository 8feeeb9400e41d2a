// SPDX-License-Identifier: Apache-2.0
// The types that the tools of a conversation declare for their parameters. Formats that write arguments as bare text say nothing of a
// value's type: `90210` may be a number or a string.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

// Any of the JsonType's below, ored; 0 where nothing is known.
using JsonTypes = uint8_t;
enum JsonType : JsonTypes {
  kJsonString = 1,
  kJsonNumber = 2,  // integers too
  kJsonBoolean = 4,
  kJsonObject = 8,
  kJsonArray = 16,
  kJsonNull = 32,
};

class ToolTypes {
 public:
  ToolTypes() = default;
  // `tools`: those of the ChatRequest. Of a schema `type`, `enum`, `const`, `properties`, `items`, OpenAPI's `nullable`, `anyOf`, `oneOf`,
  // `allOf` and `$ref` to a place of the same parameters are understood; a schema of which that says nothing declares nothing.
  explicit ToolTypes(const std::vector<std::string>& tools);
  JsonTypes Of(std::string_view tool, std::string_view parameter) const;
  bool Has(std::string_view tool) const { return tools_.contains(tool); }
  bool Has(std::string_view tool, std::string_view parameter) const;  // whatever its type
  bool AnyBeginsWith(std::string_view text) const;                    // the name of a tool

 private:
  std::map<std::string, std::map<std::string, JsonTypes, std::less<>>, std::less<>> tools_;
};

// Bare text as JSON: the JSON that it spells, or else a string. True, False and None are understood, and Python's lists and dictionaries
// for a parameter that is an array or an object and never a string: templates print values so. Text for a parameter that may be a
// string is a string, unless it spells JSON of another type that the parameter may have.
std::string BareTextToJson(std::string_view text, JsonTypes declared);

}  // namespace tally
