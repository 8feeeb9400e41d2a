#include "engine/text/added_tokens.h"

#include "engine/text/utf8.h"

namespace tally {

void AddedTokens::Add(AddedToken token) {
  if (token.text.empty()) return;
  if (plain_.empty()) {
    plain_.push_back(-1);
    any_.push_back(-1);
  }
  uint32_t node = 0;
  for (const char c : token.text) {
    const auto [edge, fresh] =
        edges_.try_emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c), static_cast<uint32_t>(plain_.size()));
    if (fresh) {
      plain_.push_back(-1);
      any_.push_back(-1);
    }
    node = edge->second;
  }
  starts_[static_cast<uint8_t>(token.text[0])] = true;
  const int32_t index = static_cast<int32_t>(tokens_.size());
  any_[node] = index;
  plain_[node] = token.special ? -1 : index;
  tokens_.push_back(std::move(token));
}

AddedTokens::Match AddedTokens::Find(std::string_view text, size_t from, bool parse_special) const {
  if (tokens_.empty()) return {};
  const std::vector<int32_t>& ends = parse_special ? any_ : plain_;
  for (size_t at = from; at < text.size(); ++at) {
    if (!starts_[static_cast<uint8_t>(text[at])]) continue;
    int32_t best = -1;
    size_t end = at;
    uint32_t node = 0;
    for (size_t i = at; i < text.size(); ++i) {
      const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      if (ends[node] >= 0) {
        best = ends[node];
        end = i + 1;
      }
    }
    if (best < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(best)];
    Match match{token.id, at, end};
    while (token.lstrip && match.begin > from) {
      const Utf8Char c = ReadUtf8Before(text, match.begin);
      if (!IsUnicodeSpace(c.code)) break;
      match.begin -= c.bytes;
    }
    while (token.rstrip && match.end < text.size()) {
      const Utf8Char c = ReadUtf8(text, match.end);
      if (!IsUnicodeSpace(c.code)) break;
      match.end += c.bytes;
    }
    return match;
  }
  return {};
}

}  // namespace tally
