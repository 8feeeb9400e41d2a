// SPDX-License-Identifier: Apache-2.0
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

// Limits on the bytes that each step of a normalizer or pre-tokenizer may make of a text of `bytes`, over all stretches of that text
// together. Without limits a few steps that feed one another could exhaust memory. Published steps grow text threefold at most (a space
// becomes U+2581).
struct Growth {
  Growth(size_t text, size_t steps) : Growth(text, steps, 64 * text + (size_t{64} << 10)) {}
  Growth(size_t text, size_t steps, size_t each) : bytes(text), most(each), left(steps + 1, each) {}
  const size_t bytes, most;
  std::vector<size_t> left;  // bytes left of `most`: by step, then for the output of the last
};

// The most steps of a file's normalizer, pre-tokenizer or decoder. Published ones have up to ten.
inline constexpr size_t kMaxTextSteps = 64;

class Normalizer {
 public:
  void Add(NormalStep step) { steps_.push_back(std::move(step)); }
  size_t size() const { return steps_.size(); }
  // The output of each step is subtracted from `growth`. A step that exceeds it is an error that names the step.
  Result<std::string> Apply(std::string_view text, Matcher& matcher, Growth& growth) const;

 private:
  std::vector<NormalStep> steps_;
};

}  // namespace tally
