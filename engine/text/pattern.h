// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizers: what published pre-tokenizers and normalizers use of the Oniguruma dialect
// (github.com/kkos/oniguruma, doc/RE, Ruby syntax), run by PCRE2.
//
// Accepted are characters, ., ^ and $ at lines, |, classes without classes in them, the groups (...), (?:...), (?i:...), (?=...)
// and (?!...), the quantifiers ? * + (greedy, lazy, possessive) and {n} {n,} {n,m}, and the escapes \s \S \w \W \d \D \p{...}
// \P{...} \r \n \t \f \x{...} \uHHHH and those of punctuation. All of them mean what they mean in Oniguruma. Everything else is
// refused, among it what the two engines read differently (isolated flags, {n}?, {n,m}+, nested classes, \h, \p under (?i:)).
//
// Time is bounded by a budget that all searches of a Matcher share. The match limit of PCRE2 alone does not bound time: it counts
// backtracks, not bytes, and restarts at each start position. So the compiled expression has a callout (pcre2callout) wherever it
// may backtrack, which charges the bytes read since the last one and stops the search when the budget is spent. Callouts and the
// match limit work with JIT. The depth and heap limits do not: with JIT the size of its stack bounds memory, without it the heap
// limit does.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace tally {

class Pattern {
 public:
  // Errors begin with `where` and name the construct and its byte in `regex`.
  static Result<Pattern> Compile(std::string_view regex, const std::string& where);

  struct Code;  // the compiled expression, shared by copies
  const Code* code() const { return code_.get(); }
  const std::string& source() const { return source_; }

 private:
  std::shared_ptr<const Code> code_;
  std::string source_;
};

// Searches texts one after another, with scratch memory of its own. Not to be shared by threads.
class Matcher {
 public:
  // `text_bytes`: the size of the text that the searches cut; their budget grows with it.
  explicit Matcher(size_t text_bytes);
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher();

  // The first match in `text` that begins at or after `from`, from <= text.size(). `text` is well-formed UTF-8. A search beyond the
  // budget or the memory limit is an error that names the expression.
  struct Match {
    bool found = false;
    size_t begin = 0, end = 0;  // bytes
  };
  Result<Match> Find(const Pattern& pattern, std::string_view text, size_t from);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tally
