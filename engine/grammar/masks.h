// SPDX-License-Identifier: Apache-2.0
// Masks of one vocabulary for the states of one machine. Internal to the grammars.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/grammar/expressions.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/vocabulary.h"

namespace tally {

// A state is a head and what follows it. The tokens that stay within the head are the same whatever follows, and are most of those of a
// string; for others it is kept where they leave the head. A head that is a part counted between bounds needs no walk of its own for each
// count: a walk of the part, any number of times, says of each token how many it is.
class VocabularyMasks {
 public:
  // The expressions are finished and outlive the masks.
  VocabularyMasks(Expressions& e, std::shared_ptr<const Vocabulary> vocabulary);

  const std::shared_ptr<const Vocabulary>& vocabulary() const { return vocabulary_; }
  TokenMask Of(Expr state);
  // The masks of the states that texts reach first, for some milliseconds, unless that was done before.
  void Prepare(Expr root);
  uint64_t bytes() const { return bytes_; }

 private:
  using Mask = std::vector<uint64_t>;
  struct Head {
    Mask within;                    // tokens that do not leave it
    std::vector<uint32_t> leaving;  // nodes whose last byte may be the first of what follows
  };
  struct Part {
    bool is_counted = true;                    // else texts of it do not say how many they are
    std::vector<std::vector<int32_t>> tokens;  // by the number of parts that they begin
    std::map<uint32_t, Mask> within;           // tokens that begin at most so many
    struct Node {
      uint32_t node, count;
    };
    std::array<std::vector<Node>, 256> ends;  // by their last byte, nodes before which so many parts may have ended
  };

  void Add(Expr state, Mask& mask);
  void Walk(uint32_t node, Expr state, Mask& mask);
  bool AddCounted(Expr repeat, Expr tail, Mask& mask);
  const Part& PartOf(Expr part);
  const Mask& Within(Part& part, uint32_t most);

  Expressions& e_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  std::unordered_map<Expr, TokenMask> states_;   // by clipped state
  std::map<std::pair<Expr, Expr>, Head> heads_;  // by clipped head, and the first bytes of what follows
  std::map<ByteSet, Expr> sets_;                 // numbers of sets of first bytes
  std::map<Expr, Part> parts_;
  std::vector<Expr> path_;  // of a walk: states by depth
  uint64_t bytes_ = 0;
  bool prepared_ = false;
};

}  // namespace tally
