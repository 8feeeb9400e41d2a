// SPDX-License-Identifier: Apache-2.0
// SentencePiece's BPE (Kudo and Richardson 2018): the scores of the tokens are the order of the merges.
#include <algorithm>
#include <limits>

#include "engine/text/bpe.h"
#include "engine/text/merge.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

class ScoredBpe : public TokenModel {
 public:
  ScoredBpe(std::span<const ScoredToken> tokens, const std::array<int32_t, 256>& bytes, int32_t unknown)
      : bytes_(bytes), unknown_(unknown) {
    // The key of a token is its place among the different scores, highest first.
    std::vector<float> scores;
    for (const ScoredToken& token : tokens) {
      if (token.mergeable) scores.push_back(token.score);
    }
    std::sort(scores.begin(), scores.end(), std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    for (size_t id = 0; id < tokens.size(); ++id) {
      const ScoredToken& token = tokens[id];
      if (!token.mergeable || token.text.empty()) continue;
      const auto place = std::lower_bound(scores.begin(), scores.end(), token.score, std::greater<>());
      // Of two equal spellings the later counts, as in llama.cpp.
      tokens_.insert_or_assign(std::string(token.text),
                               Token{static_cast<uint32_t>(place - scores.begin()), static_cast<int32_t>(id)});
      longest_ = std::max(longest_, token.text.size());
      neighbours_.AddToken(token.text);
    }
  }

  Status Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const override {
    if (piece.size() > std::numeric_limits<int32_t>::max()) return BadInput("a piece of text is longer than 2 GiB");
    const auto encode = [&](std::string_view word, std::vector<int32_t>* out) { return EncodeWord(word, scratch, out); };
    size_t begin = 0;
    int32_t left = -1;
    for (size_t at = 0; at < piece.size();) {
      const Utf8Char c = ReadUtf8(piece, at);
      if (left >= 0 && !neighbours_.Has(left, c.code)) {
        TALLY_RETURN_IF_ERROR(CachedWord(piece.substr(begin, at - begin), scratch, ids, encode));
        begin = at;
      }
      left = c.code;
      at += c.bytes;
    }
    return CachedWord(piece.substr(begin), scratch, ids, encode);
  }

 private:
  struct Token {
    uint32_t key;
    int32_t id;
  };

  const Token* Find(std::string_view text) const {
    if (text.size() > longest_) return nullptr;
    const auto found = tokens_.find(text);
    return found == tokens_.end() ? nullptr : &found->second;
  }

  Status EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>* ids) const {
    TALLY_RETURN_IF_ERROR(CheckRoom(scratch, ids->size(), word.size(), longest_));
    std::vector<MergeSymbol>& symbols = scratch.symbols;
    symbols.clear();
    for (size_t at = 0; at < word.size();) {
      const uint32_t n = ReadUtf8(word, at).bytes;
      const Token* token = Find(word.substr(at, n));
      const auto index = static_cast<int32_t>(symbols.size());
      symbols.push_back({token == nullptr ? -1 : token->id, static_cast<uint32_t>(at), index - 1, index + 1});
      at += n;
    }
    if (symbols.empty()) return {};
    symbols.back().next = -1;
    const auto end_of = [&](const MergeSymbol& symbol) {
      return symbol.next < 0 ? word.size() : size_t{symbols[static_cast<size_t>(symbol.next)].begin};
    };
    MergeSymbols(scratch, [&](const MergeSymbol& left, const MergeSymbol& right) -> MergePair {
      const Token* token = Find(word.substr(left.begin, end_of(right) - left.begin));
      if (token == nullptr) return {};
      return {token->key, token->id};
    });
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
      const MergeSymbol& symbol = symbols[static_cast<size_t>(i)];
      if (symbol.id >= 0) {
        ids->push_back(symbol.id);
        continue;
      }
      const std::string_view character = word.substr(symbol.begin, end_of(symbol) - symbol.begin);
      const bool has_bytes =
          std::all_of(character.begin(), character.end(), [&](char c) { return bytes_[static_cast<uint8_t>(c)] >= 0; });
      if (has_bytes) {
        for (const char c : character) ids->push_back(bytes_[static_cast<uint8_t>(c)]);
      } else if (unknown_ >= 0) {
        ids->push_back(unknown_);
      } else {
        return BadInput("the tokenizer has no tokens for the bytes of '" + std::string(character) +
                        "' and none for unknown text");
      }
    }
    return {};
  }

  StringMap<Token> tokens_;
  size_t longest_ = 4;  // bytes of a token, or of an unknown character
  std::array<int32_t, 256> bytes_;
  int32_t unknown_;
  Neighbours neighbours_;
};

}  // namespace

Result<std::unique_ptr<TokenModel>> MakeScoredBpe(std::span<const ScoredToken> tokens, const std::array<int32_t, 256>& bytes,
                                                  int32_t unknown) {
  for (const ScoredToken& token : tokens) {
    if (token.score != token.score) return BadInput("the score of token '" + std::string(token.text) + "' is not a number");
  }
  return std::unique_ptr<TokenModel>(std::make_unique<ScoredBpe>(tokens, bytes, unknown));
}

}  // namespace tally
