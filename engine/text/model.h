// SPDX-License-Identifier: Apache-2.0
// The part of a tokenizer that turns one piece of text into ids, and what such models share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace tally {

// One symbol of a piece that is being merged: a doubly linked list in an array.
struct MergeSymbol {
  int32_t id;      // -1: not a token
  uint32_t begin;  // first byte in the piece
  int32_t prev, next;
};

// The merge of two neighbouring symbols. A lower key is merged sooner.
inline constexpr uint32_t kNoMerge = 0xFFFFFFFF;
struct MergePair {
  uint32_t key = kNoMerge;
  int32_t id = -1;
};

// The state of one Encode call from piece to piece. Not to be shared by threads.
struct ModelScratch {
  std::vector<MergeSymbol> symbols;
  std::vector<MergePair> pairs;
  std::vector<uint64_t> heap;
  // Ids of words that were encoded before, as ranges of cached_ids.
  StringMap<std::pair<uint32_t, uint32_t>> cache;
  std::vector<int32_t> cached_ids;
  size_t most_ids = SIZE_MAX;  // of the whole text
};

// kNoRoom: a text of which `ids` are known has more than the most.
inline Status CheckRoom(const ModelScratch& scratch, size_t ids) {
  if (ids <= scratch.most_ids) return {};
  return {StatusCode::kNoRoom, "the text has more than " + std::to_string(scratch.most_ids) + " tokens"};
}
// The same before a word of so many bytes is encoded. longest: the most bytes of a token; 0: any number.
inline Status CheckRoom(const ModelScratch& scratch, size_t ids, size_t bytes, size_t longest) {
  return CheckRoom(scratch, longest == 0 ? ids : ids + (bytes + longest - 1) / longest);
}

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  // Appends the ids of `piece` (well-formed UTF-8 whose cuts may lie anywhere between characters). May give up with kNoRoom when there are
  // more than the most, or must be.
  virtual Status Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const = 0;
};

// Which characters stand side by side in some token that merging can make. Where two neighbours of a text do
// not, no merge crosses, so a text without pre-tokenizer can be cut there without changing its tokens.
class Neighbours {
 public:
  void AddToken(std::string_view token);
  bool Has(int32_t left, int32_t right) const;

 private:
  bool ascii_[128][128] = {};
  std::unordered_set<uint64_t, NumberHash> others_;
};

// Limits of the cache: bytes of a word, ids of all words.
inline constexpr size_t kMaxCachedWord = 64;
inline constexpr size_t kMaxCachedIds = 1 << 20;

// Runs encode(word, ids) through the cache of `scratch`.
template <class F>
Status CachedWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>* ids, const F& encode) {
  TALLY_RETURN_IF_ERROR(CheckRoom(scratch, ids->size()));
  if (word.size() > kMaxCachedWord) return encode(word, ids);
  if (const auto found = scratch.cache.find(word); found != scratch.cache.end()) {
    const auto [first, count] = found->second;
    ids->insert(ids->end(), scratch.cached_ids.begin() + first, scratch.cached_ids.begin() + first + count);
    return {};
  }
  const size_t before = ids->size();
  TALLY_RETURN_IF_ERROR(encode(word, ids));
  const size_t count = ids->size() - before;
  if (scratch.cached_ids.size() + count <= kMaxCachedIds) {
    scratch.cache.emplace(word, std::pair(static_cast<uint32_t>(scratch.cached_ids.size()), static_cast<uint32_t>(count)));
    scratch.cached_ids.insert(scratch.cached_ids.end(), ids->begin() + static_cast<ptrdiff_t>(before), ids->end());
  }
  return {};
}

}  // namespace tally
