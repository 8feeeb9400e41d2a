// Tokens that are found in the text itself, before any cutting: special tokens, user-defined ones, runs of
// spaces.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tally {

struct AddedToken {
  std::string text;
  int32_t id = -1;
  bool special = false;  // found only where the caller parses special tokens
  bool lstrip = false;   // takes the white space before it along
  bool rstrip = false;   // ... after it
};

// A trie. Matches are leftmost, then longest, as in Hugging Face's added vocabulary.
class AddedTokens {
 public:
  void Add(AddedToken token);  // empty texts are ignored; of two equal texts the later counts
  bool empty() const { return tokens_.empty(); }

  struct Match {
    int32_t id = -1;            // -1: none
    size_t begin = 0, end = 0;  // with the white space it takes along
  };
  // The first match at or after `from`, which is also as far as an lstrip may reach back.
  Match Find(std::string_view text, size_t from, bool parse_special) const;

 private:
  std::vector<AddedToken> tokens_;
  bool starts_[256] = {};
  std::unordered_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> plain_, any_;              // by node: index into tokens_, -1 for none
};

}  // namespace tally
