// Pre-tokenization: cutting text into the pieces within which a model may merge. A list of steps, each
// applied to every piece of the step before (Hugging Face "Sequence"; the expression lists of llama.cpp).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status.h"
#include "engine/text/normalizer.h"
#include "engine/text/pattern.h"

namespace tally {

// What becomes of the matches of a splitting step (Hugging Face SplitDelimiterBehavior).
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

struct PreStep {
  enum class Kind { kRegex, kLiteral, kDigits, kPunctuation, kPrependSpace, kMetaspace };
  enum class Prepend { kAlways, kNever, kFirst };
  Kind kind = Kind::kRegex;
  Pattern regex;        // kRegex
  std::string literal;  // kLiteral: what to look for; kMetaspace: what replaces a space
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;                 // kRegex, kLiteral: what does not match is the delimiter
  Prepend prepend = Prepend::kAlways;  // kMetaspace
  bool split = true;                   // kMetaspace
};

class PreTokenizer {
 public:
  using Sink = std::function<Status(std::string_view piece)>;

  void Add(PreStep step) { steps_.push_back(std::move(step)); }
  Status AddRegex(std::string_view regex, const std::string& where);  // isolated matches
  size_t size() const { return steps_.size(); }

  // Calls `sink` with each non-empty piece in order. `at_start`: `text` begins the whole text to be encoded.
  // Pieces are views into `text` or into memory that lives until `sink` returns. Steps that cut and add in turn grow the text
  // with each pair of them: what each is given is taken from `growth`, and more is
  // an error.
  Status Run(std::string_view text, bool at_start, Matcher& matcher, Growth& growth, const Sink& sink) const;

 private:
  struct Walk;  // what does not change from step to step
  Status RunFrom(size_t step, std::string_view text, bool at_start, Walk& walk) const;

  std::vector<PreStep> steps_;
};

// The pre-tokenizers that GGUF names by tokenizer.ggml.pre.
struct NamedPreTokenizer {
  PreTokenizer pre;
  bool ignore_merges = false;  // a piece that is a token is that token
  bool add_bos = false;        // where tokenizer.ggml.add_bos_token is absent
};
// `where` begins the line of the error that an unknown name gives.
Result<NamedPreTokenizer> PreTokenizerByName(std::string_view name, const std::string& where);

// The expression of GPT-2 (openai/gpt-2, encoder.py), which ByteLevel uses.
extern const char* const kGpt2Pattern;

}  // namespace tally
