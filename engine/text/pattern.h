// Regular expressions as tokenizers write them (Oniguruma, Ruby syntax), run by PCRE2.
//
// What the two engines read alike is passed on; what they read differently is translated (\s, \w, \v,
// \uHHHH, \p{Script}, {,n}, a(?i)b|c); what has no translation (class intersections, nested classes, \h, \b, \G,
// flags other than i, \p{Lu} and its like under (?i), {n,m}+, {n}?, (*...), comments, conditions, looking far behind)
// is an error that names it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/status.h"

namespace tally {

// The translation alone. `where` begins the error's line.
Result<std::string> TranslatePattern(std::string_view regex, const std::string& where);

class Pattern {
 public:
  static Result<Pattern> Compile(std::string_view regex, const std::string& where);

  struct Code;  // the compiled expression, shared by copies
  const Code* code() const { return code_.get(); }
  const std::string& source() const { return source_; }

 private:
  std::shared_ptr<const Code> code_;
  std::string source_;
};

// The scratch memory of matching, and one search after another. Not to be shared by threads.
class Matcher {
 public:
  Matcher();
  Matcher(const Matcher&) = delete;
  Matcher& operator=(const Matcher&) = delete;
  ~Matcher();

  // Steps for so many bytes of text more: all searches of a matcher share what it has been allowed.
  void Allow(size_t text_bytes);

  // The first match in `text` at or after `from`: found, and where. `text` is well-formed UTF-8. An
  // expression that needs more steps or memory than any sensible one does is an error.
  struct Match {
    bool found = false;
    size_t begin = 0, end = 0;
  };
  Result<Match> Find(const Pattern& pattern, std::string_view text, size_t from);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tally
