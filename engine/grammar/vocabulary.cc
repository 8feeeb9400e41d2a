// SPDX-License-Identifier: Apache-2.0
#include "engine/grammar/vocabulary.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace tally {

std::string SpelledToken(std::string_view name) {
  std::string spelled(1, static_cast<char>(kFirstOfToken));
  return spelled.append(name) += static_cast<char>(kLastOfToken);
}

namespace {

bool IsSpelled(std::string_view bytes) {
  return bytes.size() > 2 && bytes.find_first_of("\xfe\xff", 1) == bytes.size() - 1 &&
         static_cast<uint8_t>(bytes.front()) == kFirstOfToken && static_cast<uint8_t>(bytes.back()) == kLastOfToken;
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::vector<int32_t> ends)
    : tokens_(std::move(tokens)), ends_(std::move(ends)), same_(tokens_.size(), -1) {
  constexpr size_t kMostBytes = UINT16_MAX;  // a longer token is never allowed
  std::vector<int32_t> order;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].size() > kMostBytes) tokens_[i].clear();
    if (IsSpelled(tokens_[i])) {
      named_.emplace(tokens_[i], static_cast<int32_t>(i));
    } else if (tokens_[i].find_first_of("\xfe\xff") != std::string::npos) {
      tokens_[i].clear();  // a byte that is in no text: it would spell the beginning of a name
    }
    if (!tokens_[i].empty()) order.push_back(static_cast<int32_t>(i));
    longest_ = std::max(longest_, static_cast<uint32_t>(tokens_[i].size()));
  }
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return bytes(a) < bytes(b); });
  nodes_.emplace_back();
  std::vector<uint32_t> path = {0};       // node by depth
  const auto close = [&](size_t depth) {  // nodes deeper than this have all their nodes
    for (; path.size() > depth + 1; path.pop_back())
      nodes_[path.back()].size = static_cast<uint32_t>(nodes_.size()) - path.back();
  };
  std::string_view last;
  int32_t last_token = -1;
  for (const int32_t token : order) {
    const std::string_view text = bytes(token);
    if (last_token >= 0 && text == last) {
      same_[static_cast<size_t>(last_token)] = token;
      if (last_token == nodes_[path.back()].token) repeated_.push_back(last_token);
      last_token = token;
      continue;
    }
    const size_t common = static_cast<size_t>(std::ranges::mismatch(last, text).in1 - last.begin());
    close(common);
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.depth = static_cast<uint16_t>(i + 1), .byte = static_cast<uint8_t>(text[i])});
    }
    nodes_[path.back()].token = token;
    last = text;
    last_token = token;
  }
  close(0);
  nodes_[0].size = static_cast<uint32_t>(nodes_.size());
}

int32_t Vocabulary::TokenNamed(std::string_view spelled) const {
  const auto place = named_.find(spelled);
  return place == named_.end() ? -1 : place->second;
}

}  // namespace tally
