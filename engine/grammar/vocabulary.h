// SPDX-License-Identifier: Apache-2.0
// The bytes of a model's tokens as a tree, which a mask walks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/export.h"

namespace tally {

// Tokens that stand for no text (control tokens, added ones) are spelled as their name between these two bytes, which no UTF-8 has. So only
// a grammar that names them allows them.
inline constexpr uint8_t kFirstOfToken = 0xfe, kLastOfToken = 0xff;
TALLY_API std::string SpelledToken(std::string_view name);

// Does not change: any number of threads may use one at once.
class TALLY_API Vocabulary {
 public:
  // tokens[i]: the bytes of token i, SpelledToken of one that stands for no text; empty: a grammar never allows it. `ends`: tokens that end
  // an answer.
  Vocabulary(std::vector<std::string> tokens, std::vector<int32_t> ends);

  size_t size() const { return tokens_.size(); }
  size_t words() const { return (tokens_.size() + 63) / 64; }  // of a mask
  std::string_view bytes(int32_t token) const { return tokens_[static_cast<size_t>(token)]; }
  std::span<const int32_t> ends() const { return ends_; }
  uint32_t longest() const { return longest_; }  // bytes of a token
  bool IsNamed(int32_t token) const { return !bytes(token).empty() && static_cast<uint8_t>(bytes(token)[0]) == kFirstOfToken; }
  int32_t TokenNamed(std::string_view spelled) const;  // SpelledToken of one; -1: there is none

  // A text that tokens begin with. In the order of the tree: the nodes below one follow it. Node 0 is the empty text.
  struct Node {
    uint32_t size = 1;   // nodes of it and below it
    int32_t token = -1;  // of these bytes; -1: none
    uint16_t depth = 0;  // bytes
    uint8_t byte = 0;    // the last
  };
  std::span<const Node> nodes() const { return nodes_; }
  // Of tokens with the same bytes, the first, which nodes have; and the next of them, -1: none.
  std::span<const int32_t> repeated() const { return repeated_; }
  int32_t Same(int32_t token) const { return same_[static_cast<size_t>(token)]; }

 private:
  std::vector<std::string> tokens_;
  std::map<std::string, int32_t, std::less<>> named_;  // SpelledToken's
  std::vector<int32_t> ends_, same_, repeated_;
  std::vector<Node> nodes_;
  uint32_t longest_ = 0;
};

}  // namespace tally
