// SPDX-License-Identifier: Apache-2.0
#include "engine/text/added_tokens.h"

#include <algorithm>
#include <numeric>

#include "engine/text/utf8.h"

namespace tally {

void AddedTokens::Add(AddedToken token) {
  if (!token.text.empty()) tokens_.push_back(std::move(token));
}

void AddedTokens::Build() {
  nodes_.assign(1, {});
  from_root_.fill(0);
  std::vector<uint32_t> order(tokens_.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const std::string &x = tokens_[a].text, &y = tokens_[b].text;
    return std::lexicographical_compare(x.rbegin(), x.rend(), y.rbegin(), y.rend(),
                                        [](char p, char q) { return static_cast<uint8_t>(p) < static_cast<uint8_t>(q); });
  });
  // The tokens that end with a node's suffix are a range of `order`. Nodes are sorted by length, so a shorter one is complete.
  struct Range {
    uint32_t begin, end, length;
  };
  std::vector<Range> ranges = {{0, static_cast<uint32_t>(order.size()), 0}};
  for (uint32_t n = 0; n < nodes_.size(); ++n) {
    uint32_t at = ranges[n].begin;
    const uint32_t end = ranges[n].end, length = ranges[n].length;
    const auto byte_of = [&](uint32_t i) {
      const std::string& text = tokens_[order[i]].text;
      return static_cast<uint8_t>(text[text.size() - 1 - length]);
    };
    nodes_[n].any = nodes_[nodes_[n].shorter].any;
    nodes_[n].plain = nodes_[nodes_[n].shorter].plain;
    for (; at < end && tokens_[order[at]].text.size() == length; ++at) {  // of equal tokens the last counts
      const auto index = static_cast<int32_t>(order[at]);
      nodes_[n].any = index;
      nodes_[n].plain = tokens_[order[at]].special ? nodes_[nodes_[n].shorter].plain : index;
    }
    nodes_[n].first_child = static_cast<uint32_t>(nodes_.size());
    while (at < end) {
      const uint8_t byte = byte_of(at);
      const uint32_t begin = at;
      while (at < end && byte_of(at) == byte) ++at;
      const auto child = static_cast<uint32_t>(nodes_.size());
      Node node;
      node.byte = byte;
      if (n == 0) {
        from_root_[byte] = child;
      } else {
        uint32_t from = nodes_[n].shorter;
        while (from != 0 && Child(from, byte) == 0) from = nodes_[from].shorter;
        node.shorter = Child(from, byte);
      }
      nodes_.push_back(node);
      ranges.push_back({begin, at, length + 1});
      ++nodes_[n].children;
    }
  }
}

uint32_t AddedTokens::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return from_root_[byte];
  const auto first = nodes_.begin() + nodes_[node].first_child, last = first + nodes_[node].children;
  const auto found = std::lower_bound(first, last, byte, [](const Node& n, uint8_t b) { return n.byte < b; });
  return found != last && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin()) : 0;
}

std::vector<AddedTokens::Match> AddedTokens::Find(std::string_view text, std::span<const ByteRange> special) const {
  std::vector<Match> matches;
  if (tokens_.empty()) return matches;
  std::vector<std::pair<size_t, int32_t>> begins;  // places where tokens begin, last first, and the longest token there
  uint32_t node = 0;
  for (size_t at = text.size(); at-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[at]);
    uint32_t next = Child(node, byte);
    while (next == 0 && node != 0) {
      node = nodes_[node].shorter;
      next = Child(node, byte);
    }
    node = next;
    while (!special.empty() && special.back().begin > at) special = special.first(special.size() - 1);
    int32_t longest = nodes_[node].any;
    if (longest >= 0 && tokens_[static_cast<size_t>(longest)].special &&
        (special.empty() || at + tokens_[static_cast<size_t>(longest)].text.size() > special.back().end)) {
      longest = nodes_[node].plain;
    }
    if (longest >= 0) begins.emplace_back(at, longest);
  }
  size_t done = 0;
  for (auto it = begins.rbegin(); it != begins.rend(); ++it) {
    if (it->first < done) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(it->second)];
    Match match{token.id, it->first, it->first + token.text.size()};
    while (token.lstrip && match.begin > done) {
      const Utf8Char c = ReadUtf8Before(text, match.begin);
      if (!IsUnicodeSpace(c.code)) break;
      match.begin -= c.bytes;
    }
    while (token.rstrip && match.end < text.size()) {
      const Utf8Char c = ReadUtf8(text, match.end);
      if (!IsUnicodeSpace(c.code)) break;
      match.end += c.bytes;
    }
    done = match.end;
    matches.push_back(match);
  }
  return matches;
}

}  // namespace tally
