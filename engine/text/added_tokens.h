// Tokens that are found in the text itself, before any cutting: special tokens, user-defined ones, runs of
// spaces.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tally {

struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;  // found only where the caller parses special tokens
  bool lstrip = false;   // takes the white space before it along
  bool rstrip = false;   // ... after it
};

// Matches are leftmost, then longest, as in Hugging Face's added vocabulary. Found from the end of the text to its beginning by
// an automaton of the tokens read backwards (Aho and Corasick 1975): at each place the longest token that begins there is then
// known, in time linear in the text whatever the tokens are.
class AddedTokens {
 public:
  void Add(AddedToken token);  // empty texts are ignored; of two equal texts the later counts
  void Build();                // after the last of them, before the first search
  bool empty() const { return tokens_.empty(); }

  struct Match {
    int32_t id = -1;
    size_t begin = 0, end = 0;  // with the white space it takes along
  };
  // All that do not overlap, in order. An lstrip reaches back to the match before it at most.
  std::vector<Match> Find(std::string_view text, bool parse_special) const;

 private:
  // A node stands for an end of tokens. Its children lie side by side, by their byte.
  struct Node {
    uint32_t first_child = 0;
    uint32_t shorter = 0;          // the longest other end that this one begins with, read from the left
    int32_t any = -1, plain = -1;  // the longest token that this end begins with: of all, of those that are not special; index
    uint16_t children = 0;
    uint8_t byte = 0;
  };
  uint32_t Child(uint32_t node, uint8_t byte) const;  // 0: none

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;                // 0: the root
  std::array<uint32_t, 256> from_root_{};  // its children, 0: none
};

}  // namespace tally
