// SPDX-License-Identifier: Apache-2.0
// tokenizer.json (Hugging Face tokenizers 0.x, "version": "1.0") -> tokenizer. Field meanings and defaults:
// that project's serialisation of its normalizers, pre-tokenizers, models, post-processors and decoders.
#include <algorithm>

#include "engine/base/format.h"
#include "engine/base/json.h"
#include "engine/text/bpe.h"
#include "engine/text/json_steps.h"
#include "engine/text/text_tokenizer.h"
#include "loaders/inventory/side_files.h"

namespace tally {
namespace {

// The largest published tokenizer.json has 33 MB and some three million values. A parsed value takes up to 70 bytes for one byte of
// the file.
constexpr uint64_t kMaxJsonBytes = uint64_t{256} << 20;
constexpr size_t kMaxValues = size_t{1} << 24;
// Ids are below kIdsPerToken times the number of named tokens plus kSpareIds. Published vocabularies have holes.
constexpr size_t kIdsPerToken = 4, kSpareIds = 4096;
// All decoded tokens together have at most kGrowthOfTokens times the bytes of their spellings plus kSpareBytes. All normalized added
// tokens together have at most kGrowthOfTokens times the bytes of their contents plus kSpareAddedBytes.
constexpr size_t kGrowthOfTokens = 4, kSpareBytes = size_t{1} << 20, kSpareAddedBytes = size_t{1} << 16;

}  // namespace

Result<Json> ParseJsonFile(const SideFiles& files, const std::string& name) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, files.Read(name, kMaxJsonBytes));
  return ReadJson<Json>(Printable(files.PathOf(name)), text, {.values = kMaxValues});
}

namespace {

class JsonTokenizerReader {
 public:
  JsonTokenizerReader(const SideFiles& files, const std::string& name, Json json)
      : files_(files), path_(files.PathOf(name)), json_(std::move(json)) {}
  Result<std::unique_ptr<TextTokenizer>> Read();

 private:
  Status ReadVocabulary();
  Status ReadModel();
  Status ReadAddedTokens();
  Status ReadConfig();
  Status FillBytes();
  void FillFirstBytes(int32_t id);
  Result<int32_t> ConfiguredToken(const Json& config, const char* key, const std::string& path) const;

  const SideFiles& files_;
  std::string path_;
  Json json_;
  StringMap<int32_t> vocab_;           // of the model
  StringMap<int32_t> added_ids_;       // of the added tokens
  std::vector<std::string> spelling_;  // by id
  std::vector<bool> added_;            // by id
  std::vector<bool> model_ids_;        // by id
  bool byte_level_ = false;            // of pre-tokenization
  DecodePlan decode_;
  TextTokenizer::Parts parts_;
};

// Files older than 0.8 do not name the type.
std::string ModelType(const Json& model) {
  if (!Member(model, "type").is_null()) return Type(model);
  if (model.contains("merges")) return "BPE";
  if (Member(model, "vocab").is_array()) return "Unigram";
  return model.contains("continuing_subword_prefix") ? "WordPiece" : "";
}

Status JsonTokenizerReader::ReadVocabulary() {
  const Json& model = Member(json_, "model");
  const std::string where = path_ + ": model";
  if (!model.is_object()) return BadInput(where + ": expected an object");
  if (const std::string type = ModelType(model); type != "BPE") {
    std::string what = type == "Unigram"     ? "SentencePiece's, as in T5 and XLM-RoBERTa"
                       : type == "WordPiece" ? "BERT's"
                       : type == "WordLevel" ? "whole words"
                                             : "";
    if (what.empty()) return UnsupportedType(model, where);
    return BadInput(where + ": type '" + type + "' is not supported (" + what + "): BPE is. Token ids need no tokenizer");
  }
  const Json& vocab = Member(model, "vocab");
  if (!vocab.is_object()) return BadInput(where + ".vocab: expected an object");
  const Json& added = Member(json_, "added_tokens");
  if (!added.is_null() && !added.is_array()) return BadInput(path_ + ": added_tokens: expected a list");
  // Tables are as long as the largest id, so ids are limited by the number of tokens.
  const size_t named = vocab.size() + added.size();
  size_t size = 0;
  const auto take = [&](const Json& value, const std::string& place) -> Result<int32_t> {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(value, place));
    if (static_cast<size_t>(id) >= kIdsPerToken * named + kSpareIds) {
      return BadInput(place + ": " + std::to_string(id) + " in a file that names " + std::to_string(named) + " tokens");
    }
    size = std::max(size, static_cast<size_t>(id) + 1);
    return id;
  };
  vocab_.reserve(vocab.size());
  for (const auto& [text, value] : vocab.items()) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, take(value, where + ".vocab['" + text + "']"));
    vocab_.emplace(text, id);
  }
  for (size_t i = 0; i < added.size(); ++i) {
    const Result<int32_t> id = take(Member(added[i], "id"), path_ + ": added_tokens[" + std::to_string(i) + "].id");
    if (!id.ok()) return id.status();
  }
  if (size == 0) return BadInput(where + ".vocab: has no token");
  spelling_.resize(size);
  added_.resize(size);
  model_ids_.resize(size);
  parts_.bytes.resize(size);
  parts_.control.resize(size);
  for (const auto& [text, value] : vocab.items()) {  // in the order of their texts
    const auto at = static_cast<size_t>(value.get<int64_t>());
    if (model_ids_[at]) {
      return BadInput(where + ".vocab: id " + std::to_string(at) + " is given to '" + spelling_[at] + "' and to '" + text + "'");
    }
    model_ids_[at] = true;
    spelling_[at] = text;
  }
  return {};
}

Status JsonTokenizerReader::ReadModel() {
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
      const size_t space = text.find(' ');
      if (space != text.npos && space > 0 && space + 1 < text.size() && text.find(' ', space + 1) == text.npos) {
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

Status JsonTokenizerReader::ReadAddedTokens() {
  const Json& added = Member(json_, "added_tokens");
  size_t bytes = 0;
  for (const Json& token : added)
    bytes += Member(token, "content").is_string() ? token["content"].get_ref<const std::string&>().size() : 0;
  Growth growth(bytes, parts_.normalizer.size(), kGrowthOfTokens * bytes + kSpareAddedBytes);
  Matcher matcher(bytes);
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
    if (token.text.size() > kMaxTokenBytes) {
      return BadInput(where + ".content: " + std::to_string(token.text.size()) + " bytes, at most " +
                      std::to_string(kMaxTokenBytes) + " expected");
    }
    const auto id = static_cast<size_t>(token.id);
    if ((added_[id] || model_ids_[id]) && spelling_[id] != token.text) {
      return BadInput(where + ": id " + std::to_string(id) + " belongs to '" + spelling_[id] + "'");
    }
    if (const auto in_vocab = vocab_.find(token.text); in_vocab != vocab_.end() && in_vocab->second != token.id) {
      return BadInput(where + ": '" + token.text + "' has id " + std::to_string(in_vocab->second) + " in the vocabulary");
    }
    if (const auto [other, fresh] = added_ids_.emplace(token.text, token.id); !fresh && other->second != token.id) {
      return BadInput(where + ": '" + token.text + "' has id " + std::to_string(other->second) + " already");
    }
    spelling_[id] = token.text;
    added_[id] = true;
    parts_.control[id] = token.special;
    if (normalized && parts_.normalizer.size() > 0) {
      // The token is searched for in normalized text, so it is normalized too.
      Result<std::string> text = parts_.normalizer.Apply(token.text, matcher, growth);
      if (!text.ok()) return {text.status().code(), where + ".content: normalizer: " + text.status().message()};
      token.text = std::move(*text);
      if (token.text.size() > kMaxTokenBytes) {
        return BadInput(where + ".content: " + std::to_string(token.text.size()) + " bytes once normalized, at most " +
                        std::to_string(kMaxTokenBytes) + " expected");
      }
      parts_.normalized_tokens.Add(std::move(token));
    } else if (normalized) {
      parts_.normalized_tokens.Add(std::move(token));
    } else {
      parts_.raw_tokens.Add(std::move(token));
    }
  }
  return {};
}

// The decoder Metaspace drops all replacements of spaces in the first token; other decoders drop one space.
void JsonTokenizerReader::FillFirstBytes(int32_t id) {
  const std::string &text = spelling_[static_cast<size_t>(id)], &bytes = parts_.bytes[static_cast<size_t>(id)];
  std::string first;
  size_t done = 0;
  for (size_t at; (at = text.find(decode_.metaspace, done)) != text.npos; done = at + decode_.metaspace.size()) {
    first.append(text, done, at - done);
  }
  first.append(text, done);
  if (first != std::string_view(bytes).substr(bytes.starts_with(' ') ? 1 : 0)) parts_.first_bytes.emplace(id, std::move(first));
}

Status JsonTokenizerReader::FillBytes() {
  Normalizer replace;
  for (const auto& [find, content] : decode_.replace) {
    replace.Add({.kind = NormalStep::Kind::kReplaceLiteral, .find = find, .content = content});
  }
  size_t all = 0;
  for (const std::string& text : spelling_) all += text.size();
  Matcher matcher(all);
  Growth growth(all, replace.size(), kGrowthOfTokens * all + kSpareBytes);
  for (size_t id = 0; id < spelling_.size(); ++id) {
    std::string& bytes = parts_.bytes[id];
    if (parts_.control[id]) continue;
    if (decode_.byte_level) {
      // Added tokens are spelled out, not written in the byte alphabet.
      if (added_[id] || !BytesOfAlphabet(spelling_[id], &bytes)) bytes = spelling_[id];
      continue;
    }
    Result<std::string> text = replace.Apply(spelling_[id], matcher, growth);
    if (!text.ok()) return {text.status().code(), path_ + ": decoder, over all tokens: " + text.status().message()};
    bytes = std::move(*text);
    if (!decode_.metaspace.empty() && decode_.replace.size() == 1) FillFirstBytes(static_cast<int32_t>(id));
    if (const int byte = ByteOfToken(bytes, /*any_case=*/true); decode_.byte_fallback && byte >= 0)
      bytes.assign(1, static_cast<char>(byte));
  }
  return {};
}

// A token that tokenizer_config.json names, as a string or as an object with a content.
Result<int32_t> JsonTokenizerReader::ConfiguredToken(const Json& config, const char* key, const std::string& path) const {
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

Status JsonTokenizerReader::ReadConfig() {
  const std::string name = "tokenizer_config.json", path = files_.PathOf(name);
  int32_t eos = -1;
  if (files_.Has(name)) {
    TALLY_ASSIGN_OR_RETURN(const Json config, ParseJsonFile(files_, name));
    TALLY_ASSIGN_OR_RETURN(parts_.bos, ConfiguredToken(config, "bos_token", path));
    TALLY_ASSIGN_OR_RETURN(eos, ConfiguredToken(config, "eos_token", path));
    // These classes of transformers replace the file's template by their own.
    const Json& given = Member(config, "tokenizer_class");
    const std::string cls = given.is_string() ? given.get<std::string>() : "";
    if (cls.starts_with("LlamaTokenizer") || cls.starts_with("GemmaTokenizer") || cls.starts_with("CohereTokenizer")) {
      TALLY_ASSIGN_OR_RETURN(const bool add_bos, Flag(config, "add_bos_token", true, path + ": config"));
      TALLY_ASSIGN_OR_RETURN(const bool add_eos, Flag(config, "add_eos_token", false, path + ": config"));
      if ((add_bos && parts_.bos < 0) || (add_eos && eos < 0)) {
        return BadInput(path + ": " + (add_bos && parts_.bos < 0 ? "bos_token" : "eos_token") +
                        ": expected, as it is to be added");
      }
      parts_.prefix = add_bos ? std::vector<int32_t>{parts_.bos} : std::vector<int32_t>{};
      parts_.suffix = add_eos ? std::vector<int32_t>{eos} : std::vector<int32_t>{};
    }
  } else if (parts_.prefix.size() == 1) {
    parts_.bos = parts_.prefix[0];
  }
  if (eos >= 0) parts_.eos.push_back(eos);
  const auto has = [&](std::string_view text) { return std::find(spelling_.begin(), spelling_.end(), text) != spelling_.end(); };
  const bool harmony = (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>"));
  for (size_t id = 0; id < spelling_.size(); ++id) {
    const auto number = static_cast<int32_t>(id);
    if (parts_.control[id]) parts_.control_text.emplace(number, spelling_[id]);
    if (parts_.control[id] && number != eos && EndsGeneration(spelling_[id], harmony)) parts_.eos.push_back(number);
  }
  return {};
}

Result<std::unique_ptr<TextTokenizer>> JsonTokenizerReader::Read() {
  TALLY_RETURN_IF_ERROR(ReadVocabulary());
  TALLY_RETURN_IF_ERROR(ReadNormalizer(Member(json_, "normalizer"), path_ + ": normalizer", 0, &parts_.normalizer));
  TALLY_RETURN_IF_ERROR(
      ReadPreTokenizer(Member(json_, "pre_tokenizer"), path_ + ": pre_tokenizer", 0, &parts_.pre, &byte_level_));
  TALLY_RETURN_IF_ERROR(ReadAddedTokens());
  TALLY_RETURN_IF_ERROR(ReadModel());
  TALLY_RETURN_IF_ERROR(ReadPostProcessor(Member(json_, "post_processor"), path_ + ": post_processor", 0, spelling_.size(),
                                          &parts_.prefix, &parts_.suffix));
  TALLY_RETURN_IF_ERROR(ReadDecoder(Member(json_, "decoder"), path_ + ": decoder", 0, &decode_));
  TALLY_RETURN_IF_ERROR(FillBytes());
  TALLY_RETURN_IF_ERROR(ReadConfig());
  parts_.drops_leading_space = decode_.drop_leading_space;
  parts_.description =
      std::string(byte_level_ ? "byte-level BPE" : "BPE") + " (tokenizer.json), " + std::to_string(spelling_.size()) + " tokens";
  return std::make_unique<TextTokenizer>(std::move(parts_));
}

}  // namespace

Result<std::unique_ptr<TextTokenizer>> TextTokenizerFromJson(const SideFiles& files, const std::string& name) {
  TALLY_ASSIGN_OR_RETURN(Json json, ParseJsonFile(files, name));
  Result<std::unique_ptr<TextTokenizer>> read = JsonTokenizerReader(files, name, std::move(json)).Read();
  if (!read.ok()) return OneLine(read.status());
  return read;
}

}  // namespace tally
