// Normalization: what Hugging Face tokenizers and SentencePiece do to text before it is cut.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/pattern.h"

namespace tally {

struct NormalStep {
  enum class Kind { kNfc, kNfd, kNfkc, kNfkd, kLowercase, kPrepend, kReplaceLiteral, kReplaceRegex };
  Kind kind = Kind::kNfc;
  std::string find = {};     // kReplaceLiteral
  Pattern regex = {};        // kReplaceRegex
  std::string content = {};  // kPrepend, kReplace*
};

// The most bytes that a text of `bytes` may become while it is encoded: steps feed one another, so a few of them could ask for
// more than any memory holds. The published ones grow text threefold at most (a space becomes U+2581).
constexpr size_t MostGrown(size_t bytes) { return 64 * bytes + (size_t{64} << 10); }

// A file's normalizer, pre-tokenizer or decoder has at most so many steps; the published ones have ten.
inline constexpr size_t kMaxTextSteps = 64;

class Normalizer {
 public:
  void Add(NormalStep step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }
  // An error that names the step where one grows the text beyond MostGrown.
  Result<std::string> Apply(std::string_view text, Matcher& matcher) const;

 private:
  std::vector<NormalStep> steps_;
};

}  // namespace tally
