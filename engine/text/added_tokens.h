// SPDX-License-Identifier: Apache-2.0
// Tokens that are searched for in a text before it is cut: special tokens, user-defined ones, runs of spaces.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct ByteRange {
  size_t begin = 0, end = 0;
};

struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;  // found only if it lies within a range in which the caller parses special tokens
  bool lstrip = false;   // a match includes the white space before the token
  bool rstrip = false;   // a match includes the white space after the token
};

// Matches are leftmost, then longest, as in Hugging Face's added vocabulary. An automaton of the reversed tokens (Aho and Corasick
// 1975) reads the text from its end to its beginning. So the longest token that begins at each place is known in time linear in the
// text.
class AddedTokens {
 public:
  void Add(AddedToken token);  // empty texts are ignored; of two equal texts the later counts
  void Build();                // after the last of them, before the first search
  bool empty() const { return tokens_.empty(); }
  const std::vector<AddedToken>& tokens() const { return tokens_; }

  struct Match {
    int32_t id = -1;
    size_t begin = 0, end = 0;  // bytes, stripped white space included
  };
  // The matches, in order and without overlap. An lstrip ends at the match before it. `special`: where special tokens are parsed,
  // in order and apart from one another.
  std::vector<Match> Find(std::string_view text, std::span<const ByteRange> special) const;

 private:
  // A node stands for a suffix of tokens. Its children are adjacent, sorted by byte.
  struct Node {
    uint32_t first_child = 0;
    uint32_t shorter = 0;          // the node of the longest other suffix that this one begins with
    int32_t any = -1, plain = -1;  // the longest token that this suffix begins with: any, not special
    uint16_t children = 0;
    uint8_t byte = 0;
  };
  uint32_t Child(uint32_t node, uint8_t byte) const;  // 0: none

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                // 0: the root
  std::array<uint32_t, 256> from_root_{};  // its children, 0: none
};

}  // namespace tally
