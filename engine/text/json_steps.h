// SPDX-License-Identifier: Apache-2.0
// The components of a tokenizer.json, each read by itself: normalizers, pre-tokenizers, post-processors,
// decoders. Errors begin with `where`, the component's place in the file; a type that is not supported is
// named.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/normalizer.h"
#include "engine/text/pretokenizer.h"
#include "loaders/inventory/side_files.h"

namespace tally {

using Json = nlohmann::json;

// The JSON object in a file, within limits of size and depth; a key that appears twice is an error.
Result<Json> ParseJsonFile(const SideFiles& files, const std::string& name);
// A member; null if `object` is no object or has none of that name.
const Json& Member(const Json& object, std::string_view key);
// "type", or nothing.
std::string Type(const Json& node);
Status UnsupportedType(const Json& node, const std::string& where);
// Members of a known type.
Result<bool> Flag(const Json& object, const char* key, bool otherwise, const std::string& where);
Result<std::string> Text(const Json& object, const char* key, const std::string& where);
// A token id.
Result<int32_t> Id(const Json& value, const std::string& where);

// How tokens decode: rules for each token, then for the joined text.
struct DecodePlan {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replace;
  bool fused = false;
  bool drop_leading_space = false;
  std::string metaspace;  // the replacement of a Metaspace that drops spaces; else empty
};

// The readers append to their last arguments. A null node means no steps, but is an error for a decoder.
Status ReadNormalizer(const Json& node, const std::string& where, int depth, Normalizer* normalizer);
// Sets *byte_level if the model works on bytes of the pieces.
Status ReadPreTokenizer(const Json& node, const std::string& where, int depth, PreTokenizer* pre, bool* byte_level);
// The ids before and after a text, below `vocab_size`.
Status ReadPostProcessor(const Json& node, const std::string& where, int depth, size_t vocab_size, std::vector<int32_t>* prefix,
                         std::vector<int32_t>* suffix);
Status ReadDecoder(const Json& node, const std::string& where, int depth, DecodePlan* plan);

}  // namespace tally
