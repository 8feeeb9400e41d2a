// SPDX-License-Identifier: Apache-2.0
#include "engine/text/json_steps.h"

#include <algorithm>

#include "engine/text/text_tokenizer.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

constexpr int kMaxNesting = 8;          // of Sequence in Sequence
constexpr size_t kMaxTemplateIds = 64;  // tokens around a text; published templates have two

Result<int64_t> Count(const Json& object, const char* key, const std::string& where) {
  const Json& value = Member(object, key);
  if (!value.is_number_unsigned()) return BadInput(where + "." + key + ": expected a count");
  return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
}

// {"String": text} or {"Regex": expression}
struct TextPattern {
  bool regex = false;
  std::string text;
};
Result<TextPattern> ReadPattern(const Json& node, const std::string& where) {
  const Json& pattern = Member(node, "pattern");
  if (pattern.size() != 1) return BadInput(where + ".pattern: expected a String or a Regex");
  for (const bool regex : {false, true}) {
    const Json& text = Member(pattern, regex ? "Regex" : "String");
    if (!text.is_string()) continue;
    if (text.get_ref<const std::string&>().empty()) return BadInput(where + ".pattern: is empty");
    return TextPattern{regex, text.get<std::string>()};
  }
  return BadInput(where + ".pattern: expected a String or a Regex");
}

Result<SplitBehavior> ReadBehavior(const Json& node, const std::string& where) {
  const Json& value = Member(node, "behavior");
  const std::pair<const char*, SplitBehavior> known[] = {{"Removed", SplitBehavior::kRemoved},
                                                         {"Isolated", SplitBehavior::kIsolated},
                                                         {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                                         {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                                         {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [name, behavior] : known) {
    if (value.is_string() && value.get_ref<const std::string&>() == name) return behavior;
  }
  return BadInput(where + ".behavior: expected Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Status AddSplit(const Json& node, const std::string& where, PreTokenizer* pre) {
  PreStep step;
  TALLY_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(node, where));
  TALLY_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(node, where));
  TALLY_ASSIGN_OR_RETURN(step.invert, Flag(node, "invert", false, where));
  if (pattern.regex) {
    step.kind = PreStep::Kind::kRegex;
    TALLY_ASSIGN_OR_RETURN(step.regex, Pattern::Compile(pattern.text, where + ".pattern"));
  } else {
    step.kind = PreStep::Kind::kLiteral;
    step.literal = std::move(pattern.text);
  }
  pre->Add(std::move(step));
  return {};
}

Status TooManySteps(const std::string& where) {
  return BadInput(where + ": more than " + std::to_string(kMaxTextSteps) + " steps");
}

// Checks the replacement of a space in Metaspace.
Status CheckReplacement(const std::string& text, const std::string& where) {
  const Utf8Char c = ReadUtf8(text, 0);
  if (c.code >= 0 && c.bytes == text.size()) return {};
  return BadInput(where + ".replacement: expected one character");
}

// "prepend_scheme", or the "add_prefix_space" of before 0.15. Shared by Metaspace as pre-tokenizer and as
// decoder.
Result<PreStep::Prepend> ReadPrepend(const Json& node, const std::string& where) {
  const Json& scheme = Member(node, "prepend_scheme");
  if (scheme.is_null()) {
    TALLY_ASSIGN_OR_RETURN(const bool prefix, Flag(node, "add_prefix_space", true, where));
    return prefix ? PreStep::Prepend::kAlways : PreStep::Prepend::kNever;
  }
  if (scheme == "always") return PreStep::Prepend::kAlways;
  if (scheme == "never") return PreStep::Prepend::kNever;
  if (scheme == "first") return PreStep::Prepend::kFirst;
  return BadInput(where + ".prepend_scheme: expected always, never or first");
}

}  // namespace

const Json& Member(const Json& object, std::string_view key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(std::string(key));
  return found == object.end() ? null : *found;
}

Result<bool> Flag(const Json& object, const char* key, bool otherwise, const std::string& where) {
  const Json& value = Member(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_boolean()) return BadInput(where + "." + key + ": expected true or false");
  return value.get<bool>();
}

Result<std::string> Text(const Json& object, const char* key, const std::string& where) {
  const Json& value = Member(object, key);
  if (!value.is_string()) return BadInput(where + "." + key + ": expected a string");
  return value.get<std::string>();
}

Result<int32_t> Id(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || (value.is_number_unsigned() && value.get<uint64_t>() >= kMaxTokens) ||
      value.get<int64_t>() < 0 || value.get<int64_t>() >= kMaxTokens) {
    return BadInput(where + ": expected a token id from 0 to " + std::to_string(kMaxTokens - 1));
  }
  return static_cast<int32_t>(value.get<int64_t>());
}

std::string Type(const Json& node) {
  const Json& type = Member(node, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

Status UnsupportedType(const Json& node, const std::string& where) {
  if (Type(node).empty()) return BadInput(where + ": expected an object with a type");
  return BadInput(where + ": type '" + Type(node) + "' is not supported");
}

Status ReadNormalizer(const Json& node, const std::string& where, int depth, Normalizer* normalizer) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  NormalStep step;
  if (type == "Sequence") {
    const Json& list = Member(node, "normalizers");
    if (!list.is_array()) return BadInput(where + ".normalizers: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = where + ".normalizers[" + std::to_string(i) + "]";
      TALLY_RETURN_IF_ERROR(ReadNormalizer(list[i], place, depth + 1, normalizer));
    }
    return {};
  }
  if (type == "NFC") {
    step.kind = NormalStep::Kind::kNfc;
  } else if (type == "NFD") {
    step.kind = NormalStep::Kind::kNfd;
  } else if (type == "NFKC") {
    step.kind = NormalStep::Kind::kNfkc;
  } else if (type == "NFKD") {
    step.kind = NormalStep::Kind::kNfkd;
  } else if (type == "Lowercase") {
    step.kind = NormalStep::Kind::kLowercase;
  } else if (type == "Prepend") {
    step.kind = NormalStep::Kind::kPrepend;
    TALLY_ASSIGN_OR_RETURN(step.content, Text(node, "prepend", where));
  } else if (type == "Replace") {
    TALLY_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(node, where));
    TALLY_ASSIGN_OR_RETURN(step.content, Text(node, "content", where));
    step.kind = pattern.regex ? NormalStep::Kind::kReplaceRegex : NormalStep::Kind::kReplaceLiteral;
    if (pattern.regex) {
      TALLY_ASSIGN_OR_RETURN(step.regex, Pattern::Compile(pattern.text, where + ".pattern"));
    } else {
      step.find = std::move(pattern.text);
    }
  } else {
    return UnsupportedType(node, where);
  }
  if (normalizer->size() == kMaxTextSteps) return TooManySteps(where);
  normalizer->Add(std::move(step));
  return {};
}

namespace {

Status AddPreTokenizer(const Json& node, const std::string& where, int depth, PreTokenizer* pre, bool* byte_level) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "Sequence") {
    const Json& list = Member(node, "pretokenizers");
    if (!list.is_array()) return BadInput(where + ".pretokenizers: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = where + ".pretokenizers[" + std::to_string(i) + "]";
      TALLY_RETURN_IF_ERROR(AddPreTokenizer(list[i], place, depth + 1, pre, byte_level));
    }
    return {};
  }
  if (pre->size() == kMaxTextSteps) return TooManySteps(where);
  PreStep step;
  if (*byte_level) {  // its input is text in the byte alphabet
    if (type != "Digits" && type != "Punctuation" && type != "Split") {
      return BadInput(where + ": type '" + type + "' after ByteLevel is not supported");
    }
    if (!pre->Has(PreStep::Kind::kToAlphabet)) pre->Add({.kind = PreStep::Kind::kToAlphabet});
  }
  if (type == "ByteLevel") {
    *byte_level = true;
    TALLY_ASSIGN_OR_RETURN(const bool prefix, Flag(node, "add_prefix_space", true, where));
    TALLY_ASSIGN_OR_RETURN(const bool regex, Flag(node, "use_regex", true, where));
    if (prefix) {
      step.kind = PreStep::Kind::kPrependSpace;
      pre->Add(std::move(step));
    }
    return regex ? pre->AddRegex(kGpt2Pattern, where) : Status();
  }
  if (type == "Split") return AddSplit(node, where, pre);
  if (type == "Digits") {
    step.kind = PreStep::Kind::kDigits;
    TALLY_ASSIGN_OR_RETURN(const bool individual, Flag(node, "individual_digits", false, where));
    step.behavior = individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  } else if (type == "Punctuation") {
    step.kind = PreStep::Kind::kPunctuation;
    if (!Member(node, "behavior").is_null()) {
      TALLY_ASSIGN_OR_RETURN(step.behavior, ReadBehavior(node, where));
    }
  } else if (type == "Metaspace") {
    step.kind = PreStep::Kind::kMetaspace;
    TALLY_ASSIGN_OR_RETURN(step.literal, Text(node, "replacement", where));
    TALLY_RETURN_IF_ERROR(CheckReplacement(step.literal, where));
    TALLY_ASSIGN_OR_RETURN(step.prepend, ReadPrepend(node, where));
    TALLY_ASSIGN_OR_RETURN(step.split, Flag(node, "split", true, where));
  } else {
    return UnsupportedType(node, where);
  }
  pre->Add(std::move(step));
  return {};
}

}  // namespace

Status ReadPreTokenizer(const Json& node, const std::string& where, int depth, PreTokenizer* pre, bool* byte_level) {
  TALLY_RETURN_IF_ERROR(AddPreTokenizer(node, where, depth, pre, byte_level));
  if (pre->Has(PreStep::Kind::kToAlphabet)) pre->Add({.kind = PreStep::Kind::kFromAlphabet});
  return {};
}

Status ReadPostProcessor(const Json& node, const std::string& where, int depth, size_t vocab_size, std::vector<int32_t>* prefix,
                         std::vector<int32_t>* suffix) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "Sequence") {
    const Json& list = Member(node, "processors");
    if (!list.is_array()) return BadInput(where + ".processors: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = where + ".processors[" + std::to_string(i) + "]";
      TALLY_RETURN_IF_ERROR(ReadPostProcessor(list[i], place, depth + 1, vocab_size, prefix, suffix));
    }
    return {};
  }
  if (type != "TemplateProcessing") return UnsupportedType(node, where);
  const Json& single = Member(node, "single");
  if (!single.is_array()) return BadInput(where + ".single: expected a list");
  std::vector<int32_t> before, after;
  bool seen = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const std::string place = where + ".single[" + std::to_string(i) + "]";
    if (const Json& sequence = Member(single[i], "Sequence"); !sequence.is_null()) {
      if (Member(sequence, "id") != "A" || seen) return BadInput(place + ": expected sequence A, once");
      seen = true;
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(const std::string name, Text(Member(single[i], "SpecialToken"), "id", place + ".SpecialToken"));
    const Json& ids = Member(Member(Member(node, "special_tokens"), name), "ids");
    if (!ids.is_array()) return BadInput(where + ".special_tokens: expected ids for '" + name + "'");
    if (ids.size() > kMaxTemplateIds - prefix->size() - suffix->size() - before.size() - after.size()) {
      return BadInput(where + ": puts more than " + std::to_string(kMaxTemplateIds) + " tokens around a text");
    }
    for (const Json& value : ids) {
      TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(value, where + ".special_tokens['" + name + "'].ids"));
      if (static_cast<size_t>(id) >= vocab_size) {
        return BadInput(where + ".special_tokens['" + name + "'].ids: no token has id " + std::to_string(id));
      }
      (seen ? after : before).push_back(id);
    }
  }
  if (!seen) return BadInput(where + ".single: expected sequence A");
  // A later template of a Sequence goes around the earlier ones.
  prefix->insert(prefix->begin(), before.begin(), before.end());
  suffix->insert(suffix->end(), after.begin(), after.end());
  return {};
}

Status ReadDecoder(const Json& node, const std::string& where, int depth, DecodePlan* plan) {
  if (node.is_null()) return BadInput(where + ": null (tokens joined by spaces) is not supported");
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "Sequence") {
    const Json& list = Member(node, "decoders");
    if (!list.is_array()) return BadInput(where + ".decoders: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string place = where + ".decoders[" + std::to_string(i) + "]";
      TALLY_RETURN_IF_ERROR(ReadDecoder(list[i], place, depth + 1, plan));
    }
    return {};
  }
  if (type == "Fuse") {
    plan->fused = true;
    return {};
  }
  if (type == "Strip") {
    TALLY_ASSIGN_OR_RETURN(const std::string content, Text(node, "content", where));
    TALLY_ASSIGN_OR_RETURN(const int64_t start, Count(node, "start", where));
    TALLY_ASSIGN_OR_RETURN(const int64_t stop, Count(node, "stop", where));
    if (start == 0 && stop == 0) return {};
    if (!plan->fused || content != " " || start != 1 || stop != 0 || plan->drop_leading_space) {
      return BadInput(where + ": Strip other than of one leading space after Fuse is not supported");
    }
    plan->drop_leading_space = true;
    return {};
  }
  if (plan->replace.size() == kMaxTextSteps) return TooManySteps(where);
  // The other types change single tokens, each the output of the type before.
  if (plan->fused || plan->byte_level || (plan->byte_fallback && type != "ByteFallback")) {
    return BadInput(where + ": type '" + type + "' is not supported in this place");
  }
  if (type == "ByteLevel") {
    if (!plan->replace.empty()) return BadInput(where + ": ByteLevel after Replace is not supported");
    plan->byte_level = true;
  } else if (type == "ByteFallback") {
    plan->byte_fallback = true;
  } else if (type == "Replace") {
    TALLY_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(node, where));
    if (pattern.regex) return BadInput(where + ".pattern: Regex is not supported in a decoder");
    TALLY_ASSIGN_OR_RETURN(std::string content, Text(node, "content", where));
    plan->replace.emplace_back(std::move(pattern.text), std::move(content));
  } else if (type == "Metaspace") {
    TALLY_ASSIGN_OR_RETURN(std::string replacement, Text(node, "replacement", where));
    TALLY_RETURN_IF_ERROR(CheckReplacement(replacement, where));
    TALLY_ASSIGN_OR_RETURN(const PreStep::Prepend prepend, ReadPrepend(node, where));
    plan->drop_leading_space = prepend != PreStep::Prepend::kNever;
    if (plan->drop_leading_space && plan->replace.empty()) plan->metaspace = replacement;
    plan->replace.emplace_back(std::move(replacement), " ");
  } else {
    return UnsupportedType(node, where);
  }
  return {};
}

}  // namespace tally
