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

namespace tally {

using Json = nlohmann::json;

// A member; null where `object` is no object or has none of that name.
const Json& Member(const Json& object, std::string_view key);
// "type", or nothing.
std::string Type(const Json& node);
Status UnsupportedType(const Json& node, const std::string& where);
// Members of a known type.
Result<bool> Flag(const Json& object, const char* key, bool otherwise, const std::string& where);
Result<std::string> Text(const Json& object, const char* key, const std::string& where);
// A token id.
Result<int32_t> Id(const Json& value, const std::string& where);

// What tokens decode to, as one rule for each token and one for the whole.
struct DecodePlan {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replace;
  bool fused = false;
  bool drop_leading_space = false;
  std::string metaspace;  // the replacement of a Metaspace that drops spaces; else empty
};

// All of them append to what they are given; null reads as nothing, but for a decoder, where it is an error.
Status ReadNormalizer(const Json& node, const std::string& where, int depth, Normalizer* normalizer);
// *byte_level becomes true where the pieces are to be taken as bytes.
Status ReadPreTokenizer(const Json& node, const std::string& where, int depth, PreTokenizer* pre, bool* byte_level);
// What goes around a text; ids below `vocab_size`.
Status ReadPostProcessor(const Json& node, const std::string& where, int depth, size_t vocab_size, std::vector<int32_t>* prefix,
                         std::vector<int32_t>* suffix);
Status ReadDecoder(const Json& node, const std::string& where, int depth, DecodePlan* plan);

}  // namespace tally
