// tokenizer.json (Hugging Face tokenizers 0.x, "version": "1.0") -> tokenizer. Field meanings and defaults: that project's
// serialisation of its normalizers, pre-tokenizers, models, post-processors and decoders.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "engine/text/bpe.h"
#include "engine/text/text_tokenizer.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

using Json = nlohmann::json;

constexpr int kMaxNesting = 8;  // of Sequence in Sequence

Result<Json> ParseFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return BadInput(path + ": cannot be opened");
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return BadInput(path + ": cannot be read");
  try {
    Json json = Json::parse(std::move(text).str());
    if (!json.is_object()) return BadInput(path + ": expected a JSON object");
    return json;
  } catch (const Json::exception& e) {
    return BadInput(path + ": " + e.what());
  }
}

const Json& Member(const Json& object, const char* key) {
  static const Json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

// Members of a known type; absent or null gives `otherwise`.
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

Result<int64_t> Count(const Json& object, const char* key, const std::string& where) {
  const Json& value = Member(object, key);
  if (!value.is_number_unsigned()) return BadInput(where + "." + key + ": expected a count");
  return static_cast<int64_t>(std::min<uint64_t>(value.get<uint64_t>(), INT64_MAX));
}

// What tokens decode to, as one rule for each token and one for the whole (see the decoders below).
struct DecodePlan {
  bool byte_level = false;
  bool byte_fallback = false;
  std::vector<std::pair<std::string, std::string>> replace;
  bool fused = false;
  bool drop_leading_space = false;
};

class Reader {
 public:
  Reader(std::string path, Json json) : path_(std::move(path)), json_(std::move(json)) {}
  Result<std::unique_ptr<TextTokenizer>> Read();

 private:
  Status ReadVocabulary();
  Status ReadNormalizer(const Json& node, const std::string& where, int depth);
  Status ReadPreTokenizer(const Json& node, const std::string& where, int depth);
  Status ReadModel();
  Status ReadAddedTokens();
  Status ReadPostProcessor(const Json& node, const std::string& where, int depth);
  Status ReadDecoder(const Json& node, const std::string& where, int depth);
  Status ReadConfig();
  Status FillBytes();
  Status AddSplit(const Json& node, const std::string& where);
  Result<int32_t> ConfiguredToken(const Json& config, const char* key, const std::string& path) const;

  std::string path_;
  Json json_;
  StringMap<int32_t> vocab_;          // of the model
  std::vector<std::string> spelling_; // by id
  std::vector<bool> added_;           // by id
  std::vector<bool> model_ids_;       // by id
  bool byte_level_ = false;           // of pre-tokenization
  DecodePlan decode_;
  TextTokenizer::Parts parts_;
};

std::string Type(const Json& node) {
  const Json& type = Member(node, "type");
  return type.is_string() ? type.get<std::string>() : "";
}

Status UnsupportedType(const Json& node, const std::string& where) {
  if (Type(node).empty()) return BadInput(where + ": expected an object with a type");
  return BadInput(where + ": type '" + Type(node) + "' is not supported");
}

Status Reader::ReadVocabulary() {
  const Json& model = Member(json_, "model");
  const std::string where = path_ + ": model";
  if (!model.is_object()) return BadInput(where + ": expected an object");
  // Files of before 0.8 do not name the model; merges tell.
  if (Type(model) != "BPE" && !(Member(model, "type").is_null() && model.contains("merges"))) {
    return UnsupportedType(model, where);
  }
  const Json& vocab = Member(model, "vocab");
  if (!vocab.is_object()) return BadInput(where + ".vocab: expected an object");
  int32_t largest = -1;
  vocab_.reserve(vocab.size());
  for (const auto& [text, value] : vocab.items()) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(value, where + ".vocab['" + text + "']"));
    vocab_.emplace(text, id);
    largest = std::max(largest, id);
  }
  const Json& added = Member(json_, "added_tokens");
  if (!added.is_null() && !added.is_array()) return BadInput(path_ + ": added_tokens: expected a list");
  for (size_t i = 0; i < added.size(); ++i) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(Member(added[i], "id"), path_ + ": added_tokens[" + std::to_string(i) + "].id"));
    largest = std::max(largest, id);
  }
  const auto size = static_cast<size_t>(largest + 1);
  if (size == 0) return BadInput(where + ".vocab: has no token");
  spelling_.resize(size);
  added_.resize(size);
  model_ids_.resize(size);
  parts_.bytes.resize(size);
  parts_.control.resize(size);
  for (const auto& [text, id] : vocab_) {
    const auto at = static_cast<size_t>(id);
    if (model_ids_[at]) {
      return BadInput(where + ".vocab: id " + std::to_string(id) + " is given to '" + std::min(text, spelling_[at]) +
                      "' and to '" + std::max(text, spelling_[at]) + "'");
    }
    model_ids_[at] = true;
    spelling_[at] = text;
  }
  return {};
}

// {"String": text} or {"Regex": expression}
struct TextPattern {
  bool regex = false;
  std::string text;
};
Result<TextPattern> ReadPattern(const Json& node, const std::string& where) {
  const Json& pattern = Member(node, "pattern");
  for (const bool regex : {false, true}) {
    const Json& text = Member(pattern, regex ? "Regex" : "String");
    if (!text.is_string()) continue;
    if (text.get_ref<const std::string&>().empty()) return BadInput(where + ".pattern: is empty");
    return TextPattern{regex, text.get<std::string>()};
  }
  return BadInput(where + ".pattern: expected a String or a Regex");
}

Status Reader::ReadNormalizer(const Json& node, const std::string& where, int depth) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  NormalStep step;
  if (type == "Sequence") {
    const Json& list = Member(node, "normalizers");
    if (!list.is_array()) return BadInput(where + ".normalizers: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      TALLY_RETURN_IF_ERROR(ReadNormalizer(list[i], where + ".normalizers[" + std::to_string(i) + "]", depth + 1));
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
  parts_.normalizer.Add(std::move(step));
  return {};
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

Status Reader::AddSplit(const Json& node, const std::string& where) {
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
  parts_.pre.Add(std::move(step));
  return {};
}

// "prepend_scheme", or the "add_prefix_space" of before 0.15. Shared by Metaspace as pre-tokenizer and as decoder.
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

Status Reader::ReadPreTokenizer(const Json& node, const std::string& where, int depth) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "Sequence") {
    const Json& list = Member(node, "pretokenizers");
    if (!list.is_array()) return BadInput(where + ".pretokenizers: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      TALLY_RETURN_IF_ERROR(ReadPreTokenizer(list[i], where + ".pretokenizers[" + std::to_string(i) + "]", depth + 1));
    }
    return {};
  }
  if (byte_level_) {
    // It would have to cut the byte alphabet's spelling instead of text.
    return BadInput(where + ": type '" + type + "' after ByteLevel is not supported");
  }
  PreStep step;
  if (type == "ByteLevel") {
    byte_level_ = true;
    TALLY_ASSIGN_OR_RETURN(const bool prefix, Flag(node, "add_prefix_space", true, where));
    TALLY_ASSIGN_OR_RETURN(const bool regex, Flag(node, "use_regex", true, where));
    if (prefix) {
      step.kind = PreStep::Kind::kPrependSpace;
      parts_.pre.Add(std::move(step));
    }
    return regex ? parts_.pre.AddRegex(kGpt2Pattern, where) : Status();
  }
  if (type == "Split") return AddSplit(node, where);
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
    if (step.literal.empty()) return BadInput(where + ".replacement: is empty");
    TALLY_ASSIGN_OR_RETURN(step.prepend, ReadPrepend(node, where));
    TALLY_ASSIGN_OR_RETURN(step.split, Flag(node, "split", true, where));
  } else {
    return UnsupportedType(node, where);
  }
  parts_.pre.Add(std::move(step));
  return {};
}

Status Reader::ReadModel() {
  const Json& model = Member(json_, "model");
  const std::string where = path_ + ": model";
  const Json& dropout = Member(model, "dropout");
  if (!dropout.is_null() && dropout != 0) return BadInput(where + ".dropout: is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& value = Member(model, key);
    if (!value.is_null() && value != "") return BadInput(where + "." + key + ": is not supported");
  }
  BpeOptions options;
  options.byte_level = byte_level_;
  options.last_duplicate = true;
  options.control = &parts_.control;
  TALLY_ASSIGN_OR_RETURN(options.byte_fallback, Flag(model, "byte_fallback", false, where));
  TALLY_ASSIGN_OR_RETURN(options.ignore_merges, Flag(model, "ignore_merges", false, where));
  TALLY_ASSIGN_OR_RETURN(options.fuse_unknown, Flag(model, "fuse_unk", false, where));
  if (const Json& unknown = Member(model, "unk_token"); !unknown.is_null()) {
    TALLY_ASSIGN_OR_RETURN(const std::string text, Text(model, "unk_token", where));
    const auto found = vocab_.find(text);
    if (found == vocab_.end()) return BadInput(where + ".unk_token: '" + text + "' is not in the vocabulary");
    options.unknown = found->second;
  }
  const Json& merges = Member(model, "merges");
  if (!merges.is_array()) return BadInput(where + ".merges: expected a list");
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(merges.size());
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ', 1);
      if (space != text.npos && space + 1 < text.size() && text.find(' ', space + 1) == text.npos) {
        pairs.emplace_back(text.substr(0, space), text.substr(space + 1));
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      pairs.emplace_back(merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>());
      continue;
    }
    return BadInput(where + ".merges[" + std::to_string(pairs.size()) + "]: expected two tokens");
  }
  TALLY_ASSIGN_OR_RETURN(parts_.model, MakeBpe(options, vocab_, pairs, where + ".merges"));
  return {};
}

Status Reader::ReadAddedTokens() {
  const Json& added = Member(json_, "added_tokens");
  Matcher matcher;
  for (size_t i = 0; i < added.size(); ++i) {
    const std::string where = path_ + ": added_tokens[" + std::to_string(i) + "]";
    AddedToken token;
    TALLY_ASSIGN_OR_RETURN(token.id, Id(Member(added[i], "id"), where + ".id"));
    TALLY_ASSIGN_OR_RETURN(token.text, Text(added[i], "content", where));
    TALLY_ASSIGN_OR_RETURN(token.special, Flag(added[i], "special", false, where));
    TALLY_ASSIGN_OR_RETURN(token.lstrip, Flag(added[i], "lstrip", false, where));
    TALLY_ASSIGN_OR_RETURN(token.rstrip, Flag(added[i], "rstrip", false, where));
    TALLY_ASSIGN_OR_RETURN(const bool single_word, Flag(added[i], "single_word", false, where));
    TALLY_ASSIGN_OR_RETURN(const bool normalized, Flag(added[i], "normalized", !token.special, where));
    if (single_word) return BadInput(where + ".single_word: true is not supported");
    if (token.text.size() > kMaxAddedTokenBytes) {
      return BadInput(where + ".content: " + std::to_string(token.text.size()) + " bytes, at most " +
                      std::to_string(kMaxAddedTokenBytes) + " expected");
    }
    const auto id = static_cast<size_t>(token.id);
    if ((added_[id] || model_ids_[id]) && spelling_[id] != token.text) {
      return BadInput(where + ": id " + std::to_string(id) + " belongs to '" + spelling_[id] + "'");
    }
    if (const auto in_vocab = vocab_.find(token.text); in_vocab != vocab_.end() && in_vocab->second != token.id) {
      return BadInput(where + ": '" + token.text + "' has id " + std::to_string(in_vocab->second) + " in the vocabulary");
    }
    spelling_[id] = token.text;
    added_[id] = true;
    parts_.control[id] = token.special;
    if (normalized && parts_.normalizer.size() > 0) {
      // Looked for in normalized text, so normalized itself.
      TALLY_ASSIGN_OR_RETURN(token.text, parts_.normalizer.Apply(token.text, matcher));
      parts_.normalized_tokens.Add(std::move(token));
    } else if (normalized) {
      parts_.normalized_tokens.Add(std::move(token));
    } else {
      parts_.raw_tokens.Add(std::move(token));
    }
  }
  return {};
}

Status Reader::ReadPostProcessor(const Json& node, const std::string& where, int depth) {
  if (node.is_null()) return {};
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "ByteLevel") return {};  // changes offsets only
  if (type == "Sequence") {
    const Json& list = Member(node, "processors");
    if (!list.is_array()) return BadInput(where + ".processors: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      TALLY_RETURN_IF_ERROR(ReadPostProcessor(list[i], where + ".processors[" + std::to_string(i) + "]", depth + 1));
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
    const Json& ids = Member(Member(Member(node, "special_tokens"), name.c_str()), "ids");
    if (!ids.is_array()) return BadInput(where + ".special_tokens: expected ids for '" + name + "'");
    for (const Json& value : ids) {
      TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(value, where + ".special_tokens['" + name + "'].ids"));
      if (static_cast<size_t>(id) >= spelling_.size()) {
        return BadInput(where + ".special_tokens['" + name + "'].ids: no token has id " + std::to_string(id));
      }
      (seen ? after : before).push_back(id);
    }
  }
  if (!seen) return BadInput(where + ".single: expected sequence A");
  // A template within a template: the inner one stands nearer to the text.
  parts_.prefix.insert(parts_.prefix.begin(), before.begin(), before.end());
  parts_.suffix.insert(parts_.suffix.end(), after.begin(), after.end());
  return {};
}

Status Reader::ReadDecoder(const Json& node, const std::string& where, int depth) {
  if (node.is_null()) return BadInput(where + ": null (tokens joined by spaces) is not supported");
  if (depth > kMaxNesting) return BadInput(where + ": nested too deep");
  const std::string type = Type(node);
  if (type == "Sequence") {
    const Json& list = Member(node, "decoders");
    if (!list.is_array()) return BadInput(where + ".decoders: expected a list");
    for (size_t i = 0; i < list.size(); ++i) {
      TALLY_RETURN_IF_ERROR(ReadDecoder(list[i], where + ".decoders[" + std::to_string(i) + "]", depth + 1));
    }
    return {};
  }
  if (type == "Fuse") {
    decode_.fused = true;
    return {};
  }
  if (type == "Strip") {
    TALLY_ASSIGN_OR_RETURN(const std::string content, Text(node, "content", where));
    TALLY_ASSIGN_OR_RETURN(const int64_t start, Count(node, "start", where));
    TALLY_ASSIGN_OR_RETURN(const int64_t stop, Count(node, "stop", where));
    if (start == 0 && stop == 0) return {};
    if (!decode_.fused || content != " " || start != 1 || stop != 0 || decode_.drop_leading_space) {
      return BadInput(where + ": Strip other than of one leading space after Fuse is not supported");
    }
    decode_.drop_leading_space = true;
    return {};
  }
  // The others work on single tokens, each on what the one before it made.
  if (decode_.fused || decode_.byte_level || (decode_.byte_fallback && type != "ByteFallback")) {
    return BadInput(where + ": type '" + type + "' is not supported in this place");
  }
  if (type == "ByteLevel") {
    if (!decode_.replace.empty()) return BadInput(where + ": ByteLevel after Replace is not supported");
    decode_.byte_level = true;
  } else if (type == "ByteFallback") {
    decode_.byte_fallback = true;
  } else if (type == "Replace") {
    TALLY_ASSIGN_OR_RETURN(TextPattern pattern, ReadPattern(node, where));
    if (pattern.regex) return BadInput(where + ".pattern: Regex is not supported in a decoder");
    TALLY_ASSIGN_OR_RETURN(std::string content, Text(node, "content", where));
    decode_.replace.emplace_back(std::move(pattern.text), std::move(content));
  } else if (type == "Metaspace") {
    TALLY_ASSIGN_OR_RETURN(std::string replacement, Text(node, "replacement", where));
    if (replacement.empty()) return BadInput(where + ".replacement: is empty");
    TALLY_ASSIGN_OR_RETURN(const PreStep::Prepend prepend, ReadPrepend(node, where));
    decode_.replace.emplace_back(std::move(replacement), " ");
    decode_.drop_leading_space = prepend != PreStep::Prepend::kNever;
  } else {
    return UnsupportedType(node, where);
  }
  return {};
}

Status Reader::FillBytes() {
  Matcher matcher;
  Normalizer replace;
  for (const auto& [find, content] : decode_.replace) {
    replace.Add({.kind = NormalStep::Kind::kReplaceLiteral, .find = find, .content = content});
  }
  for (size_t id = 0; id < spelling_.size(); ++id) {
    std::string& bytes = parts_.bytes[id];
    if (parts_.control[id]) continue;
    if (decode_.byte_level) {
      // Added tokens are spelled out, not written in the byte alphabet.
      if (added_[id] || !BytesOfAlphabet(spelling_[id], &bytes)) bytes = spelling_[id];
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(bytes, replace.Apply(spelling_[id], matcher));
    if (const int byte = ByteOfToken(bytes); decode_.byte_fallback && byte >= 0) bytes.assign(1, static_cast<char>(byte));
  }
  return {};
}

// A token that tokenizer_config.json names, as a string or as an object with a content.
Result<int32_t> Reader::ConfiguredToken(const Json& config, const char* key, const std::string& path) const {
  const Json* value = &Member(config, key);
  if (value->is_object()) value = &Member(*value, "content");
  if (value->is_null()) return -1;
  if (!value->is_string()) return BadInput(path + ": " + key + ": expected a string");
  const auto& text = value->get_ref<const std::string&>();
  for (size_t id = 0; id < spelling_.size(); ++id) {
    if (added_[id] && spelling_[id] == text) return static_cast<int32_t>(id);
  }
  if (const auto found = vocab_.find(text); found != vocab_.end()) return found->second;
  return BadInput(path + ": " + key + ": '" + text + "' is not in " + path_);
}

Status Reader::ReadConfig() {
  const size_t slash = path_.rfind('/');
  const std::string path = (slash == path_.npos ? "" : path_.substr(0, slash + 1)) + "tokenizer_config.json";
  int32_t eos = -1;
  if (std::ifstream(path).good()) {
    TALLY_ASSIGN_OR_RETURN(const Json config, ParseFile(path));
    TALLY_ASSIGN_OR_RETURN(parts_.bos, ConfiguredToken(config, "bos_token", path));
    TALLY_ASSIGN_OR_RETURN(eos, ConfiguredToken(config, "eos_token", path));
    // These classes of transformers put their own template in the place of the file's.
    const Json& name = Member(config, "tokenizer_class");
    const std::string cls = name.is_string() ? name.get<std::string>() : "";
    if (cls.starts_with("LlamaTokenizer") || cls.starts_with("GemmaTokenizer") || cls.starts_with("CohereTokenizer")) {
      TALLY_ASSIGN_OR_RETURN(const bool add_bos, Flag(config, "add_bos_token", true, path + ": config"));
      TALLY_ASSIGN_OR_RETURN(const bool add_eos, Flag(config, "add_eos_token", false, path + ": config"));
      if ((add_bos && parts_.bos < 0) || (add_eos && eos < 0)) {
        return BadInput(path + ": " + (add_bos && parts_.bos < 0 ? "bos_token" : "eos_token") + ": expected, as it is to be added");
      }
      parts_.prefix = add_bos ? std::vector<int32_t>{parts_.bos} : std::vector<int32_t>{};
      parts_.suffix = add_eos ? std::vector<int32_t>{eos} : std::vector<int32_t>{};
    }
  } else if (parts_.prefix.size() == 1) {
    parts_.bos = parts_.prefix[0];
  }
  if (eos >= 0) parts_.eos.push_back(eos);
  const auto has = [&](std::string_view text) { return std::find(spelling_.begin(), spelling_.end(), text) != spelling_.end(); };
  const bool harmony = has("<|return|>") && has("<|call|>");
  for (size_t id = 0; id < spelling_.size(); ++id) {
    const auto number = static_cast<int32_t>(id);
    if (parts_.control[id] && number != eos && EndsGeneration(spelling_[id], harmony)) parts_.eos.push_back(number);
  }
  return {};
}

Result<std::unique_ptr<TextTokenizer>> Reader::Read() {
  TALLY_RETURN_IF_ERROR(ReadVocabulary());
  TALLY_RETURN_IF_ERROR(ReadNormalizer(Member(json_, "normalizer"), path_ + ": normalizer", 0));
  TALLY_RETURN_IF_ERROR(ReadPreTokenizer(Member(json_, "pre_tokenizer"), path_ + ": pre_tokenizer", 0));
  TALLY_RETURN_IF_ERROR(ReadAddedTokens());
  TALLY_RETURN_IF_ERROR(ReadModel());
  TALLY_RETURN_IF_ERROR(ReadPostProcessor(Member(json_, "post_processor"), path_ + ": post_processor", 0));
  TALLY_RETURN_IF_ERROR(ReadDecoder(Member(json_, "decoder"), path_ + ": decoder", 0));
  TALLY_RETURN_IF_ERROR(FillBytes());
  TALLY_RETURN_IF_ERROR(ReadConfig());
  parts_.drops_leading_space = decode_.drop_leading_space;
  parts_.description = std::string(byte_level_ ? "byte-level BPE" : "BPE") + " (tokenizer.json), " +
                       std::to_string(spelling_.size()) + " tokens";
  return std::make_unique<TextTokenizer>(std::move(parts_));
}

}  // namespace

Result<std::unique_ptr<TextTokenizer>> TextTokenizerFromJson(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(Json json, ParseFile(path));
  return Reader(path, std::move(json)).Read();
}

}  // namespace tally
