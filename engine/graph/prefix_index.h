// SPDX-License-Identifier: Apache-2.0
// Which blocks hold which tokens: for each key a tree of tokens, of which each node names the blocks of its positions.
//
// A node stands for kTokens tokens that follow those of its parent, or for fewer, and then it has no children. The tokens of no node
// begin with those of a sibling. Tokens are compared, never hashed; rows that are more than tokens are symbols (row_symbols.h). A node
// names one block for each slot, or none: slots are groups of layers, and the blocks of a group within kTokens positions. It also names
// states: what recurrent layers know after some of its tokens, at most one for each position. The index owns neither blocks nor states.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/kernels/kv_store/kv_layout.h"

namespace tally {

class PrefixIndex {
 public:
  static constexpr int64_t kTokens = kKvBlock;
  static constexpr int32_t kNone = -1;

  explicit PrefixIndex(size_t slots = 0) : slots_(slots) {}

  struct State {
    int64_t at = 0;  // positions
    int32_t id = kNone;
  };
  // The known beginning of `tokens`: `length` tokens, those of `nodes` in order; the last node may match only with its first ones.
  // `states`: all known states after some of `tokens`, ascending. A few may be missing if many nodes begin alike.
  struct Path {
    std::vector<int32_t> nodes;
    int64_t length = 0;
    std::vector<State> states;
  };
  Path Find(std::string_view key, std::span<const int32_t> tokens) const;

  int32_t Root(std::string_view key);  // a node without tokens; made if missing
  // Finds or makes the child of `parent` for `tokens` (1 to kTokens of them). If a child stands for exactly these tokens, returns it. If
  // a child stands for the first ones of them, extends it to all of them. Else makes a new child. kNone: a child's tokens begin with
  // these and are more; nothing changes.
  struct Entry {
    int32_t node = kNone;
    int64_t known = 0;  // tokens of the child before the call; its blocks hold no others
  };
  Entry Enter(int32_t parent, std::span<const int32_t> tokens);

  int32_t block(int32_t node, size_t slot) const { return At(node).blocks[slot]; }
  void SetBlock(int32_t node, size_t slot, int32_t id) { nodes_[static_cast<size_t>(node)].blocks[slot] = id; }
  int64_t begin(int32_t node) const { return At(node).begin; }  // the position of its first token
  int64_t end(int32_t node) const { return At(node).begin + static_cast<int64_t>(At(node).tokens.size()); }
  std::span<const int32_t> tokens(int32_t node) const { return At(node).tokens; }
  int32_t parent(int32_t node) const { return At(node).parent; }
  // A number is used again after its node is gone, but with another generation.
  uint64_t generation(int32_t node) const { return At(node).generation; }
  bool Exists(int32_t node, uint64_t generation) const {
    return node >= 0 && static_cast<size_t>(node) < nodes_.size() && At(node).generation == generation;
  }

  // The node's tokens include position at - 1, and it has no state there.
  void AddState(int32_t node, int64_t at, int32_t id) { nodes_[static_cast<size_t>(node)].states.push_back({at, id}); }
  void RemoveState(int32_t node, int32_t id);
  std::span<const State> states(int32_t node) const { return At(node).states; }

  // Removes a node and all below it, and calls `drop` for the blocks that they name and `drop_state` for the states. Then as Prune, of
  // its parent.
  void Remove(int32_t node, const std::function<void(size_t slot, int32_t id)>& drop,
              const std::function<void(int32_t id)>& drop_state);
  // Removes a node that has neither blocks, states nor children, then its parent if that is now the same, and so on.
  void Prune(int32_t node);

  size_t nodes() const { return nodes_.size() - free_.size(); }
  void ForEach(const std::function<void(int32_t node)>& f) const;  // of all nodes, roots included
  size_t slots() const { return slots_; }
  Status Verify() const;  // kInternal: what contradicts the above. For tests

 private:
  struct Node {
    int32_t parent = kNone;
    int64_t begin = 0;
    uint64_t generation = 0;  // 0: no node
    std::vector<int32_t> tokens, blocks;
    std::vector<State> states;
    std::vector<int32_t> children;  // by their tokens, in lexicographic order
    std::string key;                // of a root
  };
  const Node& At(int32_t node) const { return nodes_[static_cast<size_t>(node)]; }
  int32_t New(int32_t parent, std::span<const int32_t> tokens);
  void Delete(int32_t node);
  size_t Place(const Node& parent, std::span<const int32_t> tokens) const;
  int64_t Common(int32_t node, std::span<const int32_t> tokens) const;
  template <class Visit>
  void Beside(const Node& parent, std::span<const int32_t> tokens, const Visit& visit) const;
  Entry Best(const Node& parent, std::span<const int32_t> tokens) const;
  void AddStates(const Node& parent, std::span<const int32_t> tokens, std::vector<State>& states) const;
  bool Complete(int32_t node) const;

  size_t slots_;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_;
  uint64_t generation_ = 0;
  std::map<std::string, int32_t, std::less<>> roots_;
};

}  // namespace tally
