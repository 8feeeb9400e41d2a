// SPDX-License-Identifier: Apache-2.0
// Files of ranks (tiktoken) -> tokenizer. Expressions and special tokens are those of openai/tiktoken, tiktoken_ext/openai_public.py.
// cl100k has two published expressions. The one used here is that of other projects' vocabularies and of the npm package. The one of
// newer tiktoken for Python makes one piece of white space with newlines at the very end of a text.
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "engine/base/format.h"
#include "engine/text/bpe.h"
#include "engine/text/text_tokenizer.h"
#include "loaders/inventory/file_reader.h"

namespace tally {
namespace {

// The largest published file has 3.6 MB and 200,000 ranks; its longest token has 128 bytes.
constexpr uint64_t kMaxRanksBytes = uint64_t{64} << 20;
// Ranks go up to this many beyond the number of lines: special tokens stand between those of p50k_base.
constexpr size_t kSpareRanks = 16;

struct SpecialToken {
  std::string text;
  int32_t id;
};

struct Encoding {
  std::string_view name;
  const char* pre;  // what PreTokenizerByName calls its expression
  size_t ranks;
  std::vector<SpecialToken> special;
};

std::vector<SpecialToken> Harmony() {
  std::vector<SpecialToken> tokens = {{"<|startoftext|>", 199998}, {"<|endoftext|>", 199999}, {"<|return|>", 200002},
                                      {"<|constrain|>", 200003},   {"<|channel|>", 200005},   {"<|start|>", 200006},
                                      {"<|end|>", 200007},         {"<|message|>", 200008},   {"<|call|>", 200012}};
  const auto reserve = [&](int32_t id) { tokens.push_back({"<|reserved_" + std::to_string(id) + "|>", id}); };
  for (const int32_t id : {200000, 200001, 200004, 200009, 200010, 200011}) reserve(id);
  for (int32_t id = 200013; id < 201088; ++id) reserve(id);
  tokens.push_back({"<|endofprompt|>", 200018});  // a second name
  return tokens;
}

std::vector<Encoding> Encodings() {
  return {{"r50k_base", "gpt-2", 50256, {{"<|endoftext|>", 50256}}},
          {"p50k_base", "gpt-2", 50280, {{"<|endoftext|>", 50256}}},
          {"cl100k_base",
           "cl100k",
           100256,
           {{"<|endoftext|>", 100257},
            {"<|fim_prefix|>", 100258},
            {"<|fim_middle|>", 100259},
            {"<|fim_suffix|>", 100260},
            {"<|endofprompt|>", 100276}}},
          {"o200k_base", "o200k", 199998, {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}}},
          {"o200k_harmony", "o200k", 199998, Harmony()}};
}

std::optional<Encoding> EncodingByName(std::string_view name) {
  for (Encoding& encoding : Encodings()) {
    if (name == encoding.name || std::string(name) + "_base" == encoding.name) return std::move(encoding);
  }
  return {};
}

std::string KnownEncodings() {
  std::string names;
  for (const Encoding& encoding : Encodings()) names += (names.empty() ? "" : ", ") + std::string(encoding.name);
  return names;
}

// RFC 4648, section 4, padded; false for anything else.
bool FromBase64(std::string_view text, std::string* bytes) {
  bytes->clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  uint32_t bits = 0;
  int held = 0;
  for (const char c : text.substr(0, text.size() - padding)) {
    const int digit = c >= 'A' && c <= 'Z'   ? c - 'A'
                      : c >= 'a' && c <= 'z' ? c - 'a' + 26
                      : c >= '0' && c <= '9' ? c - '0' + 52
                      : c == '+'             ? 62
                      : c == '/'             ? 63
                                             : -1;
    if (digit < 0) return false;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    if ((held += 6) >= 8) bytes->push_back(static_cast<char>(bits >> (held -= 8) & 0xFF));
  }
  return (bits & ((1u << held) - 1)) == 0;  // what is left over must be zeros
}

// Tokens by rank; empty for a rank that no line has.
struct Ranks {
  std::vector<std::string> tokens;
  size_t count = 0;
};

Status ReadLine(std::string_view line, const std::string& where, size_t most, Ranks* ranks) {
  const size_t space = line.find(' ');
  std::string token;
  if (space == line.npos || !FromBase64(line.substr(0, space), &token)) {
    return BadInput(where + ": expected a token in base64, a space and its rank");
  }
  if (token.size() > kMaxTokenBytes) {
    return BadInput(where + ": a token of " + std::to_string(token.size()) + " bytes, at most " + std::to_string(kMaxTokenBytes) +
                    " expected");
  }
  uint32_t rank = 0;
  const std::string_view digits = line.substr(space + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (error != std::errc() || end != digits.data() + digits.size() || rank > most) {
    return BadInput(where + ": rank '" + Printable(digits, 40) + "', expected 0 to " + std::to_string(most) +
                    " in a file of so many lines");
  }
  if (rank >= ranks->tokens.size()) ranks->tokens.resize(rank + 1);
  if (!ranks->tokens[rank].empty()) return BadInput(where + ": rank " + std::to_string(rank) + " for the second time");
  ranks->tokens[rank] = std::move(token);
  ++ranks->count;
  return {};
}

Result<Ranks> ReadRanks(const std::string& path) {
  TALLY_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxRanksBytes));
  Ranks ranks;
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  const size_t most = std::min(lines + kSpareRanks, static_cast<size_t>(kMaxTokens) - 1);
  size_t number = 1;
  for (size_t begin = 0; begin < text.size(); ++number) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) TALLY_RETURN_IF_ERROR(ReadLine(line, path + ": line " + std::to_string(number), most, &ranks));
  }
  if (ranks.count == 0) return BadInput(path + ": has no ranks, expected lines of a token in base64, a space and its rank");
  return ranks;
}

// Checks the whole file: a token for every byte, no token twice, no rank missing except those of special tokens.
Status CheckRanks(const Ranks& ranks, const std::vector<SpecialToken>& special, const std::string& path) {
  StringMap<size_t> seen;
  seen.reserve(ranks.count);
  for (const SpecialToken& token : special) {
    const auto id = static_cast<size_t>(token.id);
    if (id < ranks.tokens.size() && !ranks.tokens[id].empty()) {
      return BadInput(path + ": rank " + std::to_string(id) + " is the id of " + token.text);
    }
  }
  for (size_t rank = 0; rank < ranks.tokens.size(); ++rank) {
    const std::string& token = ranks.tokens[rank];
    if (token.empty()) {
      if (std::none_of(special.begin(), special.end(), [&](const auto& s) { return static_cast<size_t>(s.id) == rank; })) {
        return BadInput(path + ": no line has rank " + std::to_string(rank) + ", expected all of 0 to " +
                        std::to_string(ranks.tokens.size() - 1));
      }
      continue;
    }
    const auto [other, fresh] = seen.emplace(token, rank);
    if (!fresh) {
      return BadInput(path + ": ranks " + std::to_string(other->second) + " and " + std::to_string(rank) +
                      " have the same token '" + Printable(token, 40) + "'");
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (!seen.contains(std::string(1, static_cast<char>(byte)))) {
      return BadInput(path + ": no token for the byte " + std::to_string(byte) + ", expected one for each of the 256");
    }
  }
  return {};
}

Result<std::unique_ptr<Tokenizer>> Build(const std::string& path, Encoding encoding, Ranks ranks) {
  TextTokenizer::Parts parts;
  TALLY_ASSIGN_OR_RETURN(NamedPreTokenizer named, PreTokenizerByName(encoding.pre, path));
  parts.pre = std::move(named.pre);
  parts.model = MakeRankedBpe(ranks.tokens);
  parts.bytes = std::move(ranks.tokens);
  parts.control.resize(parts.bytes.size());
  const bool harmony = encoding.name == "o200k_harmony";
  for (SpecialToken& token : encoding.special) {
    const auto id = static_cast<size_t>(token.id);
    if (id >= parts.bytes.size()) {
      parts.bytes.resize(id + 1);
      parts.control.resize(id + 1);
    }
    parts.control[id] = true;
    if (EndsGeneration(token.text, harmony)) parts.eos.push_back(token.id);
    parts.control_text.emplace(token.id, token.text);
    parts.raw_tokens.Add({.text = std::move(token.text), .id = token.id, .special = true});
  }
  parts.description = "tiktoken's BPE (" + std::string(encoding.name) + "), " + std::to_string(ranks.count) + " ranks, " +
                      std::to_string(parts.bytes.size()) + " ids";
  return std::unique_ptr<Tokenizer>(std::make_unique<TextTokenizer>(std::move(parts)));
}

Result<std::unique_ptr<Tokenizer>> Read(const std::string& path, const std::string& name) {
  const std::string file = std::filesystem::path(path).filename().string();
  std::optional<Encoding> encoding = EncodingByName(name.empty() ? file.substr(0, file.find('.')) : name);
  if (!encoding && !name.empty()) return BadInput("encoding '" + name + "' is not known, expected one of " + KnownEncodings());
  TALLY_ASSIGN_OR_RETURN(Ranks ranks, ReadRanks(path));
  if (!encoding) return BadInput(path + ": not named for an encoding, expected one to be given: " + KnownEncodings());
  if (ranks.count != encoding->ranks) {
    if (name.empty()) {
      return BadInput(path + ": " + std::to_string(ranks.count) + " ranks, expected the " + std::to_string(encoding->ranks) +
                      " of " + std::string(encoding->name));
    }
    encoding->special.clear();
  }
  TALLY_RETURN_IF_ERROR(CheckRanks(ranks, encoding->special, path));
  return Build(path, std::move(*encoding), std::move(ranks));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> TokenizerFromRanks(const std::string& path, const std::string& encoding) {
  Result<std::unique_ptr<Tokenizer>> read = Read(path, encoding);
  if (!read.ok()) return OneLine(read.status());
  return read;
}

}  // namespace tally
