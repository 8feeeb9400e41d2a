// SPDX-License-Identifier: Apache-2.0
// tokenizer.ggml.* -> tokenizer. The keys are those of the GGUF specification (ggml/docs/gguf.md, "Tokenizer"). If it is silent (defaults,
// which tokens are found in text, spaces) the tokenizer does as llama.cpp. What it has no key for stands in keys of our own,
// tally.tokenizer.*, which GgufTokenizerKeys writes:
//   normalizer      as in tokenizer.json, before the model's own steps
//   lstrip, rstrip  ids of the tokens that take the white space before or after them along
//   normalized      ids of the tokens that are looked for in normalised text
//   ends            ids of more tokens that end a text than the three of eos_token_id, eot_token_id and eom_token_id
//   space           "first" or "always": where model 'llama' puts a space before text that has none, as Metaspace does
#include <algorithm>
#include <cctype>

#include "engine/base/json.h"
#include "engine/text/bpe.h"
#include "engine/text/json_steps.h"
#include "engine/text/text_tokenizer.h"

namespace tally {
namespace {

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (text.substr(at).starts_with(kSpaceMark)) {
      out.push_back(' ');
      at += kSpaceMark.size();
    } else {
      out.push_back(text[at++]);
    }
  }
  return out;
}

class GgufTokenizerReader {
 public:
  explicit GgufTokenizerReader(const Metadata& metadata) : m_(metadata) {}
  Result<std::unique_ptr<TextTokenizer>> Read();

 private:
  static std::string Key(std::string_view key) { return "tokenizer.ggml." + std::string(key); }
  std::string Where(std::string_view key) const { return m_.source + ": " + Key(key); }
  Status ReadVocabulary();
  Status ReadNormalSteps();
  Result<std::vector<bool>> Marked(const std::string& key) const;
  Status ReadSpecialIds();
  Status NothingToAdd(const std::string& which);
  Status ReadBytePairs();
  Status ReadCharacterPairs(bool add_bos);
  Status MakeModel(BpeOptions options);
  Status ReadScored();
  Status ReadAddedTokens();
  // The id under a key; -1 if the key says that there is none (some writers do so by 2^32 - 1). An id beyond the vocabulary can never be
  // drawn: it is noted, and the key counts as absent, as in llama.cpp.
  Result<int32_t> Id(std::string_view key);
  int32_t AbsentId(std::string_view key) const;
  Result<bool> Flag(std::string_view key, bool otherwise) const;
  void Note(std::string note);

  const Metadata& m_;
  std::string model_;
  std::vector<std::string> tokens_;
  std::vector<int64_t> types_;
  int32_t unknown_ = -1;
  bool add_bos_ = false;
  TextTokenizer::Parts parts_;
};

// SentencePiece's default ids, for files without the keys.
int32_t GgufTokenizerReader::AbsentId(std::string_view key) const {
  if (model_ != "llama") return -1;
  const int32_t id = key == "unknown_token_id" ? 0 : key == "bos_token_id" ? 1 : key == "eos_token_id" ? 2 : -1;
  return id < static_cast<int64_t>(tokens_.size()) ? id : -1;
}

Result<int32_t> GgufTokenizerReader::Id(std::string_view key) {
  TALLY_ASSIGN_OR_RETURN(const auto id, m_.GetInt("tokenizer.ggml." + std::string(key)));
  if (!id) return AbsentId(key);
  if (*id == -1 || *id == 0xFFFFFFFF) return -1;
  if (*id < 0)
    return BadInput(Where(key) + ": token id " + std::to_string(*id) + ", expected 0 to " + std::to_string(tokens_.size() - 1));
  if (*id >= static_cast<int64_t>(tokens_.size())) {
    const int32_t absent = AbsentId(key);
    Note(Key(key) + ": token " + std::to_string(*id) + " is beyond the vocabulary of " + std::to_string(tokens_.size()) +
         (absent < 0 ? "; there is none" : "; SentencePiece's is taken, " + std::to_string(absent)));
    return absent;
  }
  return static_cast<int32_t>(*id);
}

void GgufTokenizerReader::Note(std::string note) {
  std::vector<std::string>& notes = parts_.notes;
  if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(std::move(note));
}

Result<bool> GgufTokenizerReader::Flag(std::string_view key, bool otherwise) const {
  TALLY_ASSIGN_OR_RETURN(const auto flag, m_.GetBool("tokenizer.ggml." + std::string(key)));
  return flag.value_or(otherwise);
}

Status GgufTokenizerReader::ReadNormalSteps() {
  constexpr size_t kMost = 10'000;  // values of the document
  const std::string key = "tally.tokenizer.normalizer";
  TALLY_ASSIGN_OR_RETURN(const auto text, m_.GetString(key));
  if (!text) return {};
  const std::string where = m_.source + ": " + key;
  TALLY_ASSIGN_OR_RETURN(const Json json, ReadJson<Json>(where, *text, {.values = kMost}));
  return ReadNormalizer(json, where, 0, &parts_.normalizer);
}

// By id: whether the key of our own lists the token.
Result<std::vector<bool>> GgufTokenizerReader::Marked(const std::string& key) const {
  std::vector<bool> marked(tokens_.size());
  TALLY_ASSIGN_OR_RETURN(const auto ids, m_.GetInts("tally.tokenizer." + key));
  for (const int64_t id : ids.value_or(std::vector<int64_t>())) {
    if (id < 0 || id >= static_cast<int64_t>(tokens_.size())) {
      return BadInput(m_.source + ": tally.tokenizer." + key + ": token id " + std::to_string(id) + ", expected 0 to " +
                      std::to_string(tokens_.size() - 1));
    }
    marked[static_cast<size_t>(id)] = true;
  }
  return marked;
}

Status GgufTokenizerReader::ReadVocabulary() {
  TALLY_ASSIGN_OR_RETURN(auto tokens, m_.GetStrings("tokenizer.ggml.tokens"));
  if (!tokens || tokens->empty()) return BadInput(Where("tokens") + ": expected the list of tokens");
  tokens_ = std::move(*tokens);
  if (static_cast<int64_t>(tokens_.size()) > kMaxTokens) {
    return BadInput(Where("tokens") + ": " + std::to_string(tokens_.size()) + " tokens, at most " + std::to_string(kMaxTokens) +
                    " expected");
  }
  TALLY_ASSIGN_OR_RETURN(auto types, m_.GetInts("tokenizer.ggml.token_type"));
  types_ = types ? std::move(*types) : std::vector<int64_t>(tokens_.size(), kNormal);
  if (types_.size() != tokens_.size()) {
    return BadInput(Where("token_type") + ": " + std::to_string(types_.size()) + " types for " + std::to_string(tokens_.size()) +
                    " tokens");
  }
  for (size_t id = 0; id < types_.size(); ++id) {
    if (types_[id] < kUndefined || types_[id] > kByte) {
      return BadInput(Where("token_type") + ": token " + std::to_string(id) + " is of type " + std::to_string(types_[id]) +
                      ", expected 0 to 6");
    }
  }
  return {};
}

// add_bos_token or add_eos_token is true, and there is no such token: an error, unless its id is beyond the vocabulary.
Status GgufTokenizerReader::NothingToAdd(const std::string& which) {
  TALLY_ASSIGN_OR_RETURN(const auto id, m_.GetInt("tokenizer.ggml." + which + "_token_id"));
  const std::string key = "add_" + which + "_token";
  if (!id || *id == -1 || *id == 0xFFFFFFFF) return BadInput(Where(key) + ": true, but there is no " + which + "_token_id");
  Note(Key(key) + ": true, and not followed");
  return {};
}

Status GgufTokenizerReader::ReadSpecialIds() {
  TALLY_ASSIGN_OR_RETURN(parts_.bos, Id("bos_token_id"));
  TALLY_ASSIGN_OR_RETURN(unknown_, Id("unknown_token_id"));
  std::vector<bool> ends(tokens_.size());
  const auto end_with = [&](int32_t id) {
    if (!ends[static_cast<size_t>(id)]) parts_.eos.push_back(id);
    ends[static_cast<size_t>(id)] = true;
  };
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, Id(key));
    if (id >= 0) end_with(id);
  }
  TALLY_ASSIGN_OR_RETURN(const std::vector<bool> more, Marked("ends"));
  for (size_t id = 0; id < more.size(); ++id) {
    if (more[id]) end_with(static_cast<int32_t>(id));
  }
  const auto has = [&](std::string_view token) { return std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end(); };
  const bool harmony = (has("<|return|>") && has("<|call|>")) || (has("<|flush|>") && has("<|calls|>"));
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (!EndsGeneration(tokens_[id], harmony)) continue;
    types_[id] = kControl;  // some writers have them as plain tokens
    end_with(static_cast<int32_t>(id));
  }
  parts_.control.resize(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) parts_.control[id] = types_[id] == kControl || types_[id] == kUnknown;

  TALLY_ASSIGN_OR_RETURN(const bool add_bos, Flag("add_bos_token", add_bos_));
  TALLY_ASSIGN_OR_RETURN(const bool add_eos, Flag("add_eos_token", false));
  TALLY_ASSIGN_OR_RETURN(const bool add_sep, Flag("add_sep_token", false));
  if (add_sep) return BadInput(Where("add_sep_token") + ": separator tokens are not supported");
  if (add_bos && parts_.bos >= 0) parts_.prefix = {parts_.bos};
  if (add_bos && parts_.bos < 0 && m_.Has("tokenizer.ggml.add_bos_token")) TALLY_RETURN_IF_ERROR(NothingToAdd("bos"));
  if (add_eos) {
    TALLY_ASSIGN_OR_RETURN(const int32_t id, Id("eos_token_id"));
    if (id < 0) TALLY_RETURN_IF_ERROR(NothingToAdd("eos"));
    if (id >= 0) parts_.suffix = {id};
  }
  return {};
}

// Control and unknown tokens are found in text only on request, user-defined ones always.
Status GgufTokenizerReader::ReadAddedTokens() {
  // Phi-3's special tokens take the white space after them along. GGUF has no key for that, so the model's name decides.
  TALLY_ASSIGN_OR_RETURN(const auto name, m_.GetString("general.name"));
  std::string lower = name.value_or("");
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const bool phi3 = lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
  TALLY_ASSIGN_OR_RETURN(const std::vector<bool> lstrip, Marked("lstrip"));
  TALLY_ASSIGN_OR_RETURN(const std::vector<bool> rstrip, Marked("rstrip"));
  TALLY_ASSIGN_OR_RETURN(const std::vector<bool> normalized, Marked("normalized"));
  size_t bytes = 0;
  for (size_t id = 0; id < tokens_.size(); ++id) bytes += normalized[id] ? tokens_[id].size() : 0;
  Matcher matcher(bytes);
  Growth growth(bytes, parts_.normalizer.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const int64_t type = types_[id];
    if (type != kControl && type != kUserDefined && type != kUnknown) continue;
    if (tokens_[id].size() > kMaxTokenBytes) {
      return BadInput(Where("tokens") + ": special token " + std::to_string(id) + " has " + std::to_string(tokens_[id].size()) +
                      " bytes, at most " + std::to_string(kMaxTokenBytes) + " expected");
    }
    AddedToken token;
    token.text = tokens_[id];
    token.id = static_cast<int32_t>(id);
    token.special = type != kUserDefined;
    token.lstrip = lstrip[id];
    token.rstrip = rstrip[id] || (phi3 && token.text != "<unk>" && token.text != "<s>" && token.text != "<|endoftext|>");
    if (!normalized[id]) {
      parts_.raw_tokens.Add(std::move(token));
      continue;
    }
    TALLY_ASSIGN_OR_RETURN(token.text, parts_.normalizer.Apply(token.text, matcher, growth));
    if (token.text.size() > kMaxTokenBytes) {
      return BadInput(Where("tokens") + ": special token " + std::to_string(id) + " has " + std::to_string(token.text.size()) +
                      " bytes once normalized, at most " + std::to_string(kMaxTokenBytes) + " expected");
    }
    parts_.normalized_tokens.Add(std::move(token));
  }
  return {};
}

Status GgufTokenizerReader::ReadBytePairs() {
  TALLY_ASSIGN_OR_RETURN(const auto pre_key, m_.GetString("tokenizer.ggml.pre"));
  const std::string pre = pre_key.value_or("default");
  if (pre == "sarvam-moe" || pre == "gemma4") return ReadCharacterPairs(pre == "gemma4");
  if (!pre_key) Note(Key("pre") + ": absent, so text is cut as 'default' says, which is seldom how the model was trained");
  TALLY_ASSIGN_OR_RETURN(NamedPreTokenizer named, PreTokenizerByName(pre, Where("pre")));
  parts_.pre = std::move(named.pre);
  add_bos_ = named.add_bos;
  TALLY_RETURN_IF_ERROR(ReadSpecialIds());
  TALLY_ASSIGN_OR_RETURN(const bool space_prefix, Flag("add_space_prefix", false));
  if (space_prefix) return BadInput(Where("add_space_prefix") + ": true is not supported for model 'gpt2'");

  BpeOptions options;
  options.ignore_merges = named.ignore_merges;
  TALLY_RETURN_IF_ERROR(MakeModel(options));
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (types_[id] == kNormal && !BytesOfAlphabet(tokens_[id], &parts_.bytes[id])) parts_.bytes[id] = tokens_[id];
  }
  parts_.description = "byte-level BPE (" + pre + "), " + std::to_string(tokens_.size()) + " tokens";
  return {};
}

// Gemma 4's and Sarvam's, as llama.cpp (src/llama-vocab.cpp): merges of characters, text cut between line ends and all else, characters
// without a token as bytes.
Status GgufTokenizerReader::ReadCharacterPairs(bool add_bos) {
  add_bos_ = add_bos;
  TALLY_RETURN_IF_ERROR(ReadSpecialIds());
  TALLY_ASSIGN_OR_RETURN(const bool space_prefix, Flag("add_space_prefix", false));
  if (space_prefix) return BadInput(Where("add_space_prefix") + ": true is not supported for merges of characters");
  parts_.normalizer.Add({.kind = NormalStep::Kind::kReplaceLiteral, .find = " ", .content = std::string(kSpaceMark)});
  TALLY_RETURN_IF_ERROR(parts_.pre.AddRegex("[^\\n]+|[\\n]+", Where("model")));
  BpeOptions options;
  options.byte_level = false;
  options.byte_fallback = options.fuse_unknown = true;
  TALLY_RETURN_IF_ERROR(MakeModel(options));
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const int byte = types_[id] == kByte ? ByteOfToken(tokens_[id]) : -1;
    if (types_[id] == kNormal) parts_.bytes[id] = Unescaped(tokens_[id]);
    if (byte >= 0) parts_.bytes[id] = std::string(1, static_cast<char>(byte));
  }
  parts_.description = "BPE of characters, " + std::to_string(tokens_.size()) + " tokens";
  return {};
}

// The model of tokens and merges.
Status GgufTokenizerReader::MakeModel(BpeOptions options) {
  TALLY_ASSIGN_OR_RETURN(const auto merges, m_.GetStrings("tokenizer.ggml.merges"));
  if (!merges) return BadInput(Where("merges") + ": expected the list of merges");
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  pairs.reserve(merges->size());
  for (const std::string& merge : *merges) {
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos || space + 1 == merge.size()) {
      return BadInput(Where("merges") + ": merge " + std::to_string(pairs.size()) + " is '" + merge +
                      "', expected two tokens with a space between");
    }
    pairs.emplace_back(std::string_view(merge).substr(0, space), std::string_view(merge).substr(space + 1));
  }
  StringMap<int32_t> vocabulary;
  vocabulary.reserve(tokens_.size());
  for (size_t id = 0; id < tokens_.size(); ++id) {
    // Of two equal spellings the later counts, as in llama.cpp.
    vocabulary.insert_or_assign(tokens_[id], static_cast<int32_t>(id));
  }
  options.unknown = unknown_;
  options.control = &parts_.control;
  TALLY_ASSIGN_OR_RETURN(parts_.model, MakeBpe(options, vocabulary, pairs, Where("merges")));
  return {};
}

Status GgufTokenizerReader::ReadScored() {
  add_bos_ = true;
  TALLY_RETURN_IF_ERROR(ReadSpecialIds());
  TALLY_ASSIGN_OR_RETURN(const bool squeeze, Flag("remove_extra_whitespaces", false));
  if (squeeze) return BadInput(Where("remove_extra_whitespaces") + ": true is not supported for model 'llama'");
  TALLY_ASSIGN_OR_RETURN(const bool space_prefix, Flag("add_space_prefix", true));
  TALLY_ASSIGN_OR_RETURN(auto scores, m_.GetDoubles("tokenizer.ggml.scores"));
  if (!scores) scores.emplace(tokens_.size(), 0.0);  // as llama.cpp: the leftmost pair that makes a token is merged
  if (scores->size() != tokens_.size()) {
    return BadInput(Where("scores") + ": expected " + std::to_string(tokens_.size()) + " scores, one for each token");
  }
  std::vector<ScoredToken> scored(tokens_.size());
  std::array<int32_t, 256> bytes;
  bytes.fill(-1);
  for (size_t id = 0; id < tokens_.size(); ++id) {
    const int64_t type = types_[id];
    scored[id] = {tokens_[id], static_cast<float>((*scores)[id]), type == kNormal || type == kUserDefined};
    if (tokens_[id].size() > kMaxTokenBytes) {  // each merge looks at the whole of what it would make
      return BadInput(Where("tokens") + ": token " + std::to_string(id) + " has " + std::to_string(tokens_[id].size()) +
                      " bytes, at most " + std::to_string(kMaxTokenBytes) + " expected");
    }
    if (scored[id].score != scored[id].score) {
      return BadInput(Where("scores") + ": the score of token " + std::to_string(id) + " is not a number");
    }
    if (type == kNormal) parts_.bytes[id] = Unescaped(tokens_[id]);
    if (type != kByte) continue;
    const int byte = ByteOfToken(tokens_[id]);
    if (byte < 0) {
      return BadInput(Where("tokens") + ": byte token " + std::to_string(id) + " is '" + tokens_[id] +
                      "', expected <0x00> to <0xFF>");
    }
    bytes[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
    parts_.bytes[id] = std::string(1, static_cast<char>(byte));
  }
  TALLY_ASSIGN_OR_RETURN(parts_.model, MakeScoredBpe(scored, bytes, unknown_));
  TALLY_ASSIGN_OR_RETURN(const auto space, m_.GetString("tally.tokenizer.space"));
  if (space) {
    if (*space != "first" && *space != "always") {
      return BadInput(m_.source + ": tally.tokenizer.space: expected 'first' or 'always'");
    }
    PreStep step;
    step.kind = PreStep::Kind::kMetaspace;
    step.literal = kSpaceMark;
    step.prepend = *space == "first" ? PreStep::Prepend::kFirst : PreStep::Prepend::kAlways;
    step.split = false;
    parts_.pre.Add(std::move(step));
  } else {
    // The space that is put before the text is also put before every stretch that follows a special token.
    if (space_prefix) parts_.normalizer.Add({.kind = NormalStep::Kind::kPrepend, .content = " "});
    parts_.normalizer.Add({.kind = NormalStep::Kind::kReplaceLiteral, .find = " ", .content = std::string(kSpaceMark)});
  }
  parts_.drops_leading_space = space_prefix;
  parts_.description = "SentencePiece BPE, " + std::to_string(tokens_.size()) + " tokens";
  return {};
}

Result<std::unique_ptr<TextTokenizer>> GgufTokenizerReader::Read() {
  TALLY_ASSIGN_OR_RETURN(const auto model, m_.GetString("tokenizer.ggml.model"));
  if (!model) return BadInput(Where("model") + ": expected 'gpt2', 'llama' or 'gemma4'");
  model_ = *model;
  if (model_ != "gpt2" && model_ != "llama" && model_ != "gemma4") {
    const std::string what = model_ == "bert" ? " (WordPiece)" : model_ == "t5" ? " (SentencePiece's Unigram)" : "";
    return BadInput(Where("model") + ": tokenizer model '" + model_ + "' is not supported" + what +
                    ", expected 'gpt2', 'llama' or 'gemma4'");
  }
  TALLY_RETURN_IF_ERROR(ReadVocabulary());
  parts_.bytes.resize(tokens_.size());
  TALLY_RETURN_IF_ERROR(ReadNormalSteps());
  TALLY_RETURN_IF_ERROR(model_ == "gpt2" ? ReadBytePairs() : model_ == "llama" ? ReadScored() : ReadCharacterPairs(true));
  for (size_t id = 0; id < tokens_.size(); ++id) {
    if (types_[id] == kUserDefined) parts_.bytes[id] = tokens_[id];  // spelled out, whatever the alphabet
    if (parts_.control[id]) parts_.control_text.emplace(static_cast<int32_t>(id), tokens_[id]);
  }
  TALLY_RETURN_IF_ERROR(ReadAddedTokens());
  return std::make_unique<TextTokenizer>(std::move(parts_));
}

}  // namespace

Result<std::unique_ptr<TextTokenizer>> TextTokenizerFromGguf(const Metadata& metadata) {
  Result<std::unique_ptr<TextTokenizer>> read = GgufTokenizerReader(metadata).Read();
  if (!read.ok()) return OneLine(read.status());
  return read;
}

}  // namespace tally
