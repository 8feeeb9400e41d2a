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

class Normalizer {
 public:
  void Add(NormalStep step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }
  Result<std::string> Apply(std::string_view text, Matcher& matcher) const;

 private:
  std::vector<NormalStep> steps_;
};

}  // namespace tally
