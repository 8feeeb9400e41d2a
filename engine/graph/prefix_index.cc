// SPDX-License-Identifier: Apache-2.0
#include "engine/graph/prefix_index.h"

#include <algorithm>

namespace tally {
namespace {

constexpr size_t kMostTried = 32;  // children tried on either side, if many agree for equally long

}  // namespace

int32_t PrefixIndex::New(int32_t parent, std::span<const int32_t> tokens) {
  int32_t node = static_cast<int32_t>(nodes_.size());
  if (free_.empty()) {
    nodes_.emplace_back();
  } else {
    node = free_.back();
    free_.pop_back();
  }
  nodes_[static_cast<size_t>(node)] = {.parent = parent,
                                       .begin = parent == kNone ? 0 : end(parent),
                                       .generation = ++generation_,
                                       .tokens = {tokens.begin(), tokens.end()},
                                       .blocks = std::vector<int32_t>(slots_, kNone),
                                       .states = {},
                                       .children = {},
                                       .key = {}};
  if (parent != kNone) nodes_[static_cast<size_t>(node)].tokens.reserve(kTokens);  // it may grow token by token
  return node;
}

// Deletes a node without children.
void PrefixIndex::Delete(int32_t node) {
  const Node& gone = At(node);
  if (gone.parent == kNone) {
    roots_.erase(gone.key);
  } else {
    std::vector<int32_t>& siblings = nodes_[static_cast<size_t>(gone.parent)].children;
    siblings.erase(siblings.begin() + static_cast<std::ptrdiff_t>(Place(At(gone.parent), gone.tokens)));
  }
  nodes_[static_cast<size_t>(node)] = {};
  free_.push_back(node);
}

// The first child whose tokens are not less than these.
size_t PrefixIndex::Place(const Node& parent, std::span<const int32_t> tokens) const {
  const auto at = std::lower_bound(
      parent.children.begin(), parent.children.end(), tokens,
      [&](int32_t child, std::span<const int32_t> than) { return std::ranges::lexicographical_compare(At(child).tokens, than); });
  return static_cast<size_t>(at - parent.children.begin());
}

// Tokens that a node and these both begin with.
int64_t PrefixIndex::Common(int32_t node, std::span<const int32_t> tokens) const {
  return std::ranges::mismatch(At(node).tokens, tokens).in2 - tokens.begin();
}

bool PrefixIndex::Complete(int32_t node) const { return std::ranges::find(At(node).blocks, kNone) == At(node).blocks.end(); }

// Calls visit(child) for the children on either side of the tokens' place, nearest first: these agree for longest. A visit that returns
// false ends its side.
template <class Visit>
void PrefixIndex::Beside(const Node& parent, std::span<const int32_t> tokens, const Visit& visit) const {
  const size_t place = Place(parent, tokens), last = std::min(parent.children.size(), place + kMostTried);
  for (size_t i = place; i < last && visit(parent.children[i]);) ++i;
  for (size_t i = place; i + kMostTried > place && i > 0 && visit(parent.children[i - 1]);) --i;
}

// The child that agrees with the tokens for longest, and for how long. Among equals, one that names all its blocks.
PrefixIndex::Entry PrefixIndex::Best(const Node& parent, std::span<const int32_t> tokens) const {
  Entry best;
  Beside(parent, tokens, [&](int32_t child) {
    const int64_t common = Common(child, tokens);
    if (common < best.known || common == 0) return false;
    if (common > best.known || !Complete(best.node)) best = {child, common};
    return !Complete(best.node);
  });
  return best;
}

// The states of children after some of the tokens.
void PrefixIndex::AddStates(const Node& parent, std::span<const int32_t> tokens, std::vector<State>& states) const {
  Beside(parent, tokens, [&](int32_t child) {
    const int64_t common = Common(child, tokens);
    for (const State& state : At(child).states) {
      if (state.at - At(child).begin <= common) states.push_back(state);
    }
    return common > 0;
  });
}

PrefixIndex::Path PrefixIndex::Find(std::string_view key, std::span<const int32_t> tokens) const {
  Path path;
  const auto root = roots_.find(key);
  if (root == roots_.end()) return path;
  for (int32_t node = root->second; !tokens.empty();) {
    const std::span<const int32_t> piece = tokens.first(std::min<size_t>(tokens.size(), kTokens));
    const Entry next = Best(At(node), piece);
    if (next.known == 0) break;
    AddStates(At(node), piece, path.states);
    path.nodes.push_back(next.node);
    path.length += next.known;
    if (next.known < kTokens) break;
    tokens = tokens.subspan(kTokens);
    node = next.node;
  }
  std::ranges::sort(path.states, {}, &State::at);
  return path;
}

int32_t PrefixIndex::Root(std::string_view key) {
  if (const auto root = roots_.find(key); root != roots_.end()) return root->second;
  const int32_t node = New(kNone, {});
  nodes_[static_cast<size_t>(node)].key = key;
  roots_.emplace(key, node);
  return node;
}

PrefixIndex::Entry PrefixIndex::Enter(int32_t parent, std::span<const int32_t> tokens) {
  const size_t place = Place(At(parent), tokens);
  const std::vector<int32_t>& children = At(parent).children;
  if (place < children.size() && Common(children[place], tokens) == static_cast<int64_t>(tokens.size())) {
    const int32_t child = children[place];
    if (At(child).tokens.size() > tokens.size()) return {};
    return {child, static_cast<int64_t>(tokens.size())};
  }
  if (place > 0) {
    Node& before = nodes_[static_cast<size_t>(children[place - 1])];
    const size_t known = before.tokens.size();
    if (Common(children[place - 1], tokens) == static_cast<int64_t>(known)) {
      before.tokens.assign(tokens.begin(), tokens.end());  // its place among the siblings stays
      return {children[place - 1], static_cast<int64_t>(known)};
    }
  }
  const int32_t child = New(parent, tokens);  // moves nodes
  std::vector<int32_t>& siblings = nodes_[static_cast<size_t>(parent)].children;
  siblings.insert(siblings.begin() + static_cast<std::ptrdiff_t>(place), child);
  return {child, 0};
}

void PrefixIndex::RemoveState(int32_t node, int32_t id) {
  std::erase_if(nodes_[static_cast<size_t>(node)].states, [id](const State& state) { return state.id == id; });
}

void PrefixIndex::Remove(int32_t node, const std::function<void(size_t slot, int32_t id)>& drop,
                         const std::function<void(int32_t id)>& drop_state) {
  const int32_t parent = At(node).parent;
  std::vector<int32_t> below = {node};
  for (size_t i = 0; i < below.size(); ++i) {
    below.insert(below.end(), At(below[i]).children.begin(), At(below[i]).children.end());
  }
  for (; !below.empty(); below.pop_back()) {
    for (size_t slot = 0; slot < slots_; ++slot) {
      if (const int32_t id = block(below.back(), slot); id != kNone) drop(slot, id);
    }
    for (const State& state : At(below.back()).states) drop_state(state.id);
    Delete(below.back());
  }
  if (parent != kNone) Prune(parent);
}

void PrefixIndex::Prune(int32_t node) {
  while (node != kNone && At(node).children.empty() && At(node).states.empty() &&
         std::ranges::all_of(At(node).blocks, [](int32_t id) { return id == kNone; })) {
    const int32_t parent = At(node).parent;
    Delete(node);
    node = parent;
  }
}

void PrefixIndex::ForEach(const std::function<void(int32_t node)>& f) const {
  for (size_t node = 0; node < nodes_.size(); ++node) {
    if (At(static_cast<int32_t>(node)).generation != 0) f(static_cast<int32_t>(node));
  }
}

Status PrefixIndex::Verify() const {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    const std::string name = "node " + std::to_string(i);
    if (node.generation == 0) continue;
    if (node.parent == kNone && !node.tokens.empty()) return InternalError(name + " is a root with tokens");
    if (node.parent != kNone && (node.tokens.empty() || node.begin != end(node.parent))) {
      return InternalError(name + " has no tokens, or begins elsewhere than its parent ends");
    }
    if (!node.children.empty() && node.parent != kNone && node.tokens.size() != kTokens) {
      return InternalError(name + " is not full and has children");
    }
    for (const State& state : node.states) {
      if (state.at <= node.begin || state.at > end(static_cast<int32_t>(i)))
        return InternalError(name + " has a state elsewhere");
      if (std::ranges::count_if(node.states, [&](const State& other) { return other.at == state.at; }) > 1) {
        return InternalError(name + " has two states at one position");
      }
    }
    for (size_t c = 0; c < node.children.size(); ++c) {
      const Node& child = At(node.children[c]);
      if (child.generation == 0 || child.parent != static_cast<int32_t>(i))
        return InternalError(name + " has a child of another");
      if (c == 0) continue;
      const std::vector<int32_t>& before = At(node.children[c - 1]).tokens;
      const int64_t common = Common(node.children[c - 1], child.tokens);
      if (!std::ranges::lexicographical_compare(before, child.tokens) || common == static_cast<int64_t>(before.size())) {
        return InternalError(name + " has children out of order, or one that begins with another");
      }
    }
  }
  return {};
}

}  // namespace tally
