// SPDX-License-Identifier: Apache-2.0
#include "engine/text/bpe.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "engine/text/merge.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

struct Alphabet {
  std::array<uint16_t, 256> code{};  // of a byte
  std::array<int16_t, 512> byte{};   // of a code, -1 for none
};

constexpr Alphabet MakeAlphabet() {
  Alphabet a;
  for (auto& b : a.byte) b = -1;
  uint16_t other = 256;
  for (uint16_t b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    a.code[b] = printable ? b : other++;
    a.byte[a.code[b]] = static_cast<int16_t>(b);
  }
  return a;
}
constexpr Alphabet kAlphabet = MakeAlphabet();

// A map from pairs of ids to their merge. Open addressing, at most half full: this look-up is most of the work.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank = kNoMerge;
    int32_t id = -1;
  };

  explicit MergeTable(size_t count = 0) {
    size_t size = 16;
    while (size < 2 * count) size *= 2;
    slots_.resize(size);
  }
  // Reserves nothing: at most `count` different pairs may be set.
  void Set(int32_t left, int32_t right, Merge merge, bool replace) {
    Slot& slot = slots_[Place(left, right)];
    if (slot.merge.rank == kNoMerge || replace) slot = {left, right, merge};
  }
  Merge Find(int32_t left, int32_t right) const { return slots_[Place(left, right)].merge; }

 private:
  struct Slot {
    int32_t left = -1, right = -1;
    Merge merge;
  };
  // Index of the pair's slot, or of the free slot for it.
  size_t Place(int32_t left, int32_t right) const {
    const uint64_t pair = static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
    size_t at = hash_(pair) & (slots_.size() - 1);
    while (slots_[at].merge.rank != kNoMerge && (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return at;
  }
  NumberHash hash_;
  std::vector<Slot> slots_;
};

class Bpe : public TokenModel {
 public:
  explicit Bpe(const BpeOptions& options) : options_(options) {}

  Status Init(const StringMap<int32_t>& vocab, std::span<const std::pair<std::string_view, std::string_view>> merges,
              const std::string& where);
  Status Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const override;

 private:
  Status EncodeCharacters(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const;
  Status EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>* ids) const;
  Status AppendSymbols(std::string_view word, std::vector<MergeSymbol>* symbols) const;
  int32_t CharacterId(std::string_view character) const {
    if (character.size() == 1 && static_cast<uint8_t>(character[0]) < 128) return ascii_[static_cast<uint8_t>(character[0])];
    const auto found = characters_.find(character);
    return found == characters_.end() ? -1 : found->second;
  }

  BpeOptions options_;
  std::array<int32_t, 256> bytes_{};  // byte_level: of each byte; else: of <0xNN>
  std::array<int32_t, 128> ascii_{};  // characters below 128
  StringMap<int32_t> characters_;     // the others
  StringMap<int32_t> whole_;          // ignore_merges: every token
  MergeTable merges_;
  Neighbours neighbours_;
  size_t longest_ = 4;  // bytes of a token, or of an unknown character; 0: neighbouring ones are one token
};

Status Bpe::Init(const StringMap<int32_t>& vocab, std::span<const std::pair<std::string_view, std::string_view>> merges,
                 const std::string& where) {
  bytes_.fill(-1);
  ascii_.fill(-1);
  if (options_.ignore_merges) whole_.reserve(vocab.size());
  const std::vector<bool>* controls = std::exchange(options_.control, nullptr);
  const auto control = [&](int32_t id) {
    return controls != nullptr && static_cast<size_t>(id) < controls->size() && (*controls)[static_cast<size_t>(id)];
  };
  std::string bytes;
  for (const auto& [text, id] : vocab) {
    longest_ = std::max(longest_, text.size());
    if (options_.byte_level) {
      if (!BytesOfAlphabet(text, &bytes)) continue;
      if (bytes.size() == 1) bytes_[static_cast<uint8_t>(bytes[0])] = id;
      if (options_.ignore_merges && !control(id)) whole_.emplace(bytes, id);
      continue;
    }
    if (const int byte = ByteOfToken(text); byte >= 0) bytes_[static_cast<size_t>(byte)] = id;
    const Utf8Char c = ReadUtf8(text, 0);
    if (c.code >= 0 && c.bytes == text.size()) {
      if (c.code < 128) {
        ascii_[static_cast<size_t>(c.code)] = id;
      } else {
        characters_.emplace(text, id);
      }
    }
    if (options_.ignore_merges && !control(id)) whole_.emplace(text, id);
  }
  const bool all_bytes = std::ranges::none_of(bytes_, [](int32_t id) { return id < 0; });
  const bool has_unknown = options_.unknown >= 0 && !(all_bytes && (options_.byte_level || options_.byte_fallback));
  if (has_unknown && options_.fuse_unknown) longest_ = 0;
  if (merges.size() >= kNoMerge) return BadInput(where + ": too many merges");
  merges_ = MergeTable(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    joined.assign(left).append(right);
    const auto a = vocab.find(left), b = vocab.find(right), ab = vocab.find(joined);
    if (a == vocab.end() || b == vocab.end() || ab == vocab.end()) {
      const std::string_view missing = a == vocab.end() ? left : b == vocab.end() ? right : std::string_view(joined);
      return BadInput(where + ": merge " + std::to_string(rank) + " ('" + std::string(left) + "' '" + std::string(right) +
                      "') needs the token '" + std::string(missing) + "', which is not in the vocabulary");
    }
    merges_.Set(a->second, b->second, {static_cast<uint32_t>(rank), ab->second}, options_.last_duplicate);
    if (!options_.byte_level) neighbours_.AddToken(joined);
  }
  return {};
}

Status Bpe::AppendSymbols(std::string_view word, std::vector<MergeSymbol>* symbols) const {
  symbols->clear();
  bool after_unknown = false;
  const auto add = [&](int32_t id, size_t begin) {
    after_unknown = false;
    symbols->push_back(
        {id, static_cast<uint32_t>(begin), static_cast<int32_t>(symbols->size()) - 1, static_cast<int32_t>(symbols->size()) + 1});
  };
  const auto unknown = [&](std::string_view what, size_t begin) -> Status {
    if (options_.unknown < 0) {
      std::string hex;
      for (const char c : what) {
        char two[4];
        std::snprintf(two, sizeof(two), "%02X", static_cast<uint8_t>(c));
        hex += two;
      }
      return BadInput("the tokenizer has no token for the bytes " + hex + " and none for unknown text");
    }
    if (!options_.fuse_unknown || !after_unknown) add(options_.unknown, begin);
    after_unknown = true;
    return {};
  };
  if (options_.byte_level) {
    for (size_t i = 0; i < word.size(); ++i) {
      const int32_t id = bytes_[static_cast<uint8_t>(word[i])];
      if (id >= 0) {
        add(id, i);
      } else {
        TALLY_RETURN_IF_ERROR(unknown(word.substr(i, 1), i));
      }
    }
  } else {
    for (size_t at = 0; at < word.size();) {
      const uint32_t n = ReadUtf8(word, at).bytes;
      const std::string_view character = word.substr(at, n);
      bool bytes = options_.byte_fallback;
      if (const int32_t id = CharacterId(character); id >= 0) {
        add(id, at);
      } else {
        for (const char c : character) bytes = bytes && bytes_[static_cast<uint8_t>(c)] >= 0;
        if (bytes) {
          for (size_t k = 0; k < n; ++k) add(bytes_[static_cast<uint8_t>(character[k])], at + k);
        } else {
          TALLY_RETURN_IF_ERROR(unknown(character, at));
        }
      }
      at += n;
    }
  }
  if (!symbols->empty()) symbols->back().next = -1;
  return {};
}

Status Bpe::EncodeWord(std::string_view word, ModelScratch& scratch, std::vector<int32_t>* ids) const {
  TALLY_RETURN_IF_ERROR(CheckRoom(scratch, ids->size(), word.size(), longest_));
  TALLY_RETURN_IF_ERROR(AppendSymbols(word, &scratch.symbols));
  if (scratch.symbols.empty()) return {};
  MergeSymbols(scratch, [&](const MergeSymbol& left, const MergeSymbol& right) -> MergePair {
    const MergeTable::Merge merge = merges_.Find(left.id, right.id);
    return {merge.rank, merge.id};
  });
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    ids->push_back(scratch.symbols[static_cast<size_t>(i)].id);
  }
  return {};
}

// Cuts a piece at places that no merge can cross. The piece may be a whole text.
Status Bpe::EncodeCharacters(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const {
  const auto encode = [&](std::string_view word, std::vector<int32_t>* out) { return EncodeWord(word, scratch, out); };
  size_t begin = 0, at = 0;
  int32_t left = -1;  // the character before, -1 if it has no token (its bytes might merge, unknowns might fuse)
  while (at < piece.size()) {
    const Utf8Char c = ReadUtf8(piece, at);
    const int32_t right = CharacterId(piece.substr(at, c.bytes)) >= 0 ? c.code : -1;
    if (left >= 0 && right >= 0 && !neighbours_.Has(left, right)) {
      TALLY_RETURN_IF_ERROR(CachedWord(piece.substr(begin, at - begin), scratch, ids, encode));
      begin = at;
    }
    left = right;
    at += c.bytes;
  }
  return CachedWord(piece.substr(begin), scratch, ids, encode);
}

Status Bpe::Encode(std::string_view piece, ModelScratch& scratch, std::vector<int32_t>* ids) const {
  if (piece.size() > std::numeric_limits<int32_t>::max()) return BadInput("a piece of text is longer than 2 GiB");
  if (options_.ignore_merges) {
    if (const auto found = whole_.find(piece); found != whole_.end()) {
      ids->push_back(found->second);
      return {};
    }
  }
  if (!options_.byte_level) return EncodeCharacters(piece, scratch, ids);
  return CachedWord(piece, scratch, ids,
                    [&](std::string_view word, std::vector<int32_t>* out) { return EncodeWord(word, scratch, out); });
}

}  // namespace

bool BytesOfAlphabet(std::string_view token, std::string* bytes) {
  bytes->clear();
  for (size_t at = 0; at < token.size();) {
    const Utf8Char c = ReadUtf8(token, at);
    if (c.code < 0 || c.code >= static_cast<int32_t>(kAlphabet.byte.size())) return false;
    const int16_t byte = kAlphabet.byte[static_cast<size_t>(c.code)];
    if (byte < 0) return false;
    bytes->push_back(static_cast<char>(byte));
    at += c.bytes;
  }
  return true;
}

std::string AlphabetOfBytes(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) AppendUtf8(kAlphabet.code[static_cast<uint8_t>(c)], &out);
  return out;
}

int ByteOfToken(std::string_view token, bool any_case) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9'               ? c - '0'
                      : c >= 'A' && c <= 'F'             ? c - 'A' + 10
                      : any_case && c >= 'a' && c <= 'f' ? c - 'a' + 10
                                                         : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

Result<std::unique_ptr<TokenModel>> MakeBpe(const BpeOptions& options, const StringMap<int32_t>& vocab,
                                            std::span<const std::pair<std::string_view, std::string_view>> merges,
                                            const std::string& where) {
  auto bpe = std::make_unique<Bpe>(options);
  TALLY_RETURN_IF_ERROR(bpe->Init(vocab, merges, where));
  return std::unique_ptr<TokenModel>(std::move(bpe));
}

}  // namespace tally
