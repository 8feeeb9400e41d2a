// SPDX-License-Identifier: Apache-2.0
// tiktoken's BPE: a token's rank is the order of its merge, whichever two neighbours make it.
#include <limits>

#include "engine/text/bpe.h"
#include "engine/text/merge.h"

namespace tally {
namespace {

class RankedBpe : public TokenModel {
 public:
  explicit RankedBpe(std::span<const std::string> tokens) : pairs_(256 * 256, -1) {
    bytes_.fill(-1);
    tokens_.reserve(tokens.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      const std::string& token = tokens[i];
      const auto id = static_cast<int32_t>(i);
      longest_ = std::max(longest_, token.size());
      if (token.size() == 1) bytes_[static_cast<uint8_t>(token[0])] = id;
      if (token.size() == 2) pairs_[Pair(token)] = id;
      if (!token.empty()) tokens_.emplace(token, id);
    }
  }

  Status Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const override {
    if (piece.size() > std::numeric_limits<int32_t>::max()) return BadInput("a piece of text is longer than 2 GiB");
    return CachedWord(piece, scratch, ids,
                      [&](std::string_view word, std::vector<int32_t>* out) { return EncodeWord(word, scratch, out); });
  }

 private:
  static size_t Pair(std::string_view two) { return static_cast<uint8_t>(two[0]) * 256u + static_cast<uint8_t>(two[1]); }

  // -1: no token.
  int32_t Find(std::string_view bytes) const {
    if (bytes.size() == 2) return pairs_[Pair(bytes)];
    if (bytes.size() > longest_) return -1;
    const auto found = tokens_.find(bytes);
    return found == tokens_.end() ? -1 : found->second;
  }

  Status EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>* ids) const {
    if (const int32_t whole = Find(word); whole >= 0) {  // even if no sequence of merges makes it
      ids->push_back(whole);
      return {};
    }
    TALLY_RETURN_IF_ERROR(CheckRoom(scratch, ids->size(), word.size(), longest_));
    std::vector<MergeSymbol>& symbols = scratch.symbols;
    symbols.clear();
    for (size_t i = 0; i < word.size(); ++i) {
      const auto at = static_cast<int32_t>(i);
      symbols.push_back({bytes_[static_cast<uint8_t>(word[i])], static_cast<uint32_t>(i), at - 1, at + 1});
    }
    symbols.back().next = -1;
    MergeSymbols(scratch, [&](const MergeSymbol& left, const MergeSymbol& right) -> MergePair {
      const size_t end = right.next < 0 ? word.size() : symbols[static_cast<size_t>(right.next)].begin;
      const int32_t id = Find(word.substr(left.begin, end - left.begin));
      return id < 0 ? MergePair{} : MergePair{static_cast<uint32_t>(id), id};
    });
    for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) ids->push_back(symbols[static_cast<size_t>(i)].id);
    return {};
  }

  std::array<int32_t, 256> bytes_;
  std::vector<int32_t> pairs_;  // tokens of two bytes, by Pair
  StringMap<int32_t> tokens_;
  size_t longest_ = 1;
};

}  // namespace

std::unique_ptr<TokenModel> MakeRankedBpe(std::span<const std::string> tokens) { return std::make_unique<RankedBpe>(tokens); }

}  // namespace tally
