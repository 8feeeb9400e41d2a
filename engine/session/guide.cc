// SPDX-License-Identifier: Apache-2.0
#include "engine/session/guide.h"

#include <algorithm>
#include <array>
#include <bit>

#include "engine/recipe/recipe.h"

namespace tally {
namespace {

constexpr size_t kContext = 16;       // tokens before forced ones that are cut again with them
constexpr size_t kFewestForced = 2;   // bytes worth cutting
constexpr size_t kMostForced = 2048;  // bytes of one jump

std::string BytesOf(const Vocabulary& vocabulary, std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) text += vocabulary.bytes(token);
  return text;
}

// Texts that may follow, for finding out what they do to the tokens before them: of each kind of character one.
std::vector<std::string> Samples(const std::array<uint64_t, 4>& first) {
  const auto has = [&](uint8_t byte) { return (first[byte / 64] >> (byte % 64) & 1) != 0; };
  std::vector<std::string> samples;
  for (const char* text : {"a", "s", "A", "0", " ", "  ", "\"", "\\n", ",", "}",        "]",
                           "{", "[", ":", ".", "-", "_",  "\n", "'",   "/", "\xc3\xa9", "\xe4\xb8\xad"}) {
    if (has(static_cast<uint8_t>(text[0]))) samples.emplace_back(text);
  }
  for (int byte = 0; byte < 256 && samples.empty(); ++byte) {
    if (has(static_cast<uint8_t>(byte))) samples.emplace_back(1, static_cast<char>(byte));
  }
  return samples;
}

}  // namespace

std::vector<int32_t> EndTokens(const Model& model) {
  std::vector<int32_t> ends = model.recipe().eos_tokens;
  if (model.tokenizer() != nullptr) {
    for (const int32_t id : model.tokenizer()->eos()) ends.push_back(id);
  }
  return ends;
}

Guide::Guide(const Model& model, std::shared_ptr<Grammar> grammar)
    : tokenizer_(*model.tokenizer()), vocabulary_(model.vocabulary()), cursor_(std::move(grammar), vocabulary_) {}

std::span<const uint64_t> Guide::Mask() {
  mask_ = cursor_.Mask();
  return *mask_;
}

int32_t Guide::Only() {
  int32_t only = -1;
  const std::span<const uint64_t> mask = Mask();
  for (size_t w = 0; w < mask.size(); ++w) {
    if (mask[w] == 0) continue;
    if (only >= 0 || !std::has_single_bit(mask[w])) return -1;
    only = static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(mask[w])));
  }
  return only;
}

bool Guide::Take(int32_t token) {
  if (!cursor_.Take(token)) return false;
  recent_.push_back(token);
  if (recent_.size() > 4 * kContext) {
    recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kContext));
  }
  return true;
}

size_t Guide::Allowed(std::span<const int32_t> tokens) const {
  GrammarCursor cursor = cursor_;
  size_t n = 0;
  while (n < tokens.size() && cursor.Take(tokens[n]) && !cursor.ended()) ++n;
  return n;
}

std::vector<int32_t> Guide::Forced() const {
  const std::string forced = cursor_.Forced(kMostForced);
  if (forced.size() < kFewestForced) return {};
  GrammarCursor after = cursor_;
  after.TakeBytes(forced);
  // SentencePiece puts a space before a text: an end of line takes it, and both are dropped.
  const std::string before = tokenizer_.DropsLeadingSpace() ? "\n" : "";
  const size_t from = recent_.size() - std::min(recent_.size(), kContext);
  const std::span<const int32_t> known = std::span(recent_).subspan(from);
  const std::string text = BytesOf(*vocabulary_, known) + forced;
  // The tokens of the text after those that are there; none: the tokenizer would have cut what is there otherwise.
  const auto cut = [&](const std::string& end) -> std::vector<int32_t> {
    const Result<std::vector<int32_t>> ids = tokenizer_.EncodeSegments(std::vector<TextSegment>{{.text = before + text + end}});
    if (!ids.ok()) return {};
    size_t first = 0;
    if (!before.empty()) {  // up to the end of line
      std::string start;
      while (first < ids->size() && start.find('\n') == std::string::npos) start += vocabulary_->bytes((*ids)[first++]);
      if (start.empty() || start.back() != '\n') return {};
    }
    for (const int32_t token : known) {
      if (first == ids->size() || (*ids)[first++] != token) return {};
    }
    return {ids->begin() + static_cast<std::ptrdiff_t>(first), ids->end()};
  };
  std::vector<int32_t> tokens = cut("");
  if (tokens.empty()) return {};
  if (after.IsComplete()) return tokens;
  tokens.pop_back();  // the text that follows may lengthen it
  for (const std::string& sample : Samples(after.FirstBytes())) {
    if (tokens.empty()) break;
    const std::vector<int32_t> with = cut(sample);
    tokens.resize(static_cast<size_t>(std::ranges::mismatch(tokens, with).in1 - tokens.begin()));
  }
  return tokens;
}

}  // namespace tally
