// SPDX-License-Identifier: Apache-2.0
// Pre-tokenization cuts a text into pieces; a model merges within a piece only. It is a list of steps, each applied to every piece of
// the step before (Hugging Face "Sequence"; the expression lists of llama.cpp).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/normalizer.h"
#include "engine/text/pattern.h"

namespace tally {

// What a splitting step does with the delimiters that it finds (Hugging Face SplitDelimiterBehavior).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreStep {
  // kToAlphabet: what follows cuts text written in GPT-2's alphabet of bytes, up to kFromAlphabet.
  enum class Kind { kRegex, kLiteral, kDigits, kPunctuation, kPrependSpace, kMetaspace, kToAlphabet, kFromAlphabet };
  enum class Prepend { kAlways, kNever, kFirst };
  Kind kind = Kind::kRegex;
  Pattern regex = {};        // kRegex
  std::string literal = {};  // kLiteral: the delimiter; kMetaspace: the replacement of a space
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;                 // kRegex, kLiteral: the text between matches is the delimiter
  Prepend prepend = Prepend::kAlways;  // kMetaspace
  bool split = true;                   // kMetaspace
};

class PreTokenizer {
 public:
  using Sink = std::function<Status(std::string_view piece)>;

  void Add(PreStep step) { steps_.push_back(std::move(step)); }
  Status AddRegex(std::string_view regex, const std::string& where);  // isolated matches
  size_t size() const { return steps_.size(); }
  bool Has(PreStep::Kind kind) const;
  const std::vector<PreStep>& steps() const { return steps_; }

  // Calls `sink` with each non-empty piece in order. `at_start`: `text` begins the whole text to be encoded.
  // Pieces are views into `text` or into memory that lives until `sink` returns. The input of each step is subtracted from `growth`,
  // because steps that cut and prepend in turn multiply the text. A step that exceeds it is an error.
  Status Run(std::string_view text, bool at_start, Matcher& matcher, Growth& growth, const Sink& sink) const;

 private:
  struct Walk;  // the arguments of Run that all steps share
  Status RunFrom(size_t step, std::string_view text, bool at_start, Walk& walk) const;

  std::vector<PreStep> steps_;
};

// The pre-tokenizers that GGUF names by tokenizer.ggml.pre.
struct NamedPreTokenizer {
  PreTokenizer pre;
  bool ignore_merges = false;  // a piece that is a token is that token
  bool add_bos = false;        // if tokenizer.ggml.add_bos_token is absent
};
// An unknown name is an error whose line `where` begins.
Result<NamedPreTokenizer> PreTokenizerByName(std::string_view name, const std::string& where);

// The GGUF names, best first, whose pre-tokenizer cuts as `pre` does: by the same expressions, or by equivalent ones. Names of tiktoken's
// encodings are not among them.
std::vector<std::string_view> PreTokenizerNames(const PreTokenizer& pre, bool ignore_merges);

// The expression of GPT-2 (openai/gpt-2, encoder.py), which ByteLevel uses.
extern const char* const kGpt2Pattern;

}  // namespace tally
