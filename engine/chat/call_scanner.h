// SPDX-License-Identifier: Apache-2.0
// Where the body of a call ends, while it comes.
#pragma once

#include <string_view>

#include "engine/chat/call_format.h"
#include "engine/chat/marks.h"

namespace tally {

// Reads each byte of a body once.
class CallScanner {
 public:
  // All must outlive the scanner. `stops`: marks that end the body wherever they stand, but in strings and in tagged values.
  CallScanner(const CallFormat& format, CallBody body, const MarkSet& stops);

  enum class Found : uint8_t {
    kMore,    // the body goes on, as far as is known
    kEnd,     // before at()
    kNoCall,  // what stands before at() cannot begin a call
  };
  // `body`: what has come of it, from its beginning, more at each call; not empty. Not to be called after kEnd and kNoCall.
  Found Scan(std::string_view body);
  CallBody body() const { return body_; }
  size_t at() const { return at_; }              // bytes that were understood
  bool complete() const { return complete_; }    // kEnd: by the body's own end, not by a mark in the midst of it
  bool lacks_end() const { return lacks_end_; }  // complete, but what follows is neither a call nor the mark that should be there

 private:
  Found ScanHead(std::string_view body);
  Found ScanBrackets(std::string_view body);
  Found ScanTags(std::string_view body);
  Found ScanTaggedName(std::string_view body);
  bool Heads(char c) const;
  bool SkipString(std::string_view body);
  bool InCdata(std::string_view body) const;

  const CallFormat& format_;
  const CallBody body_;
  const MarkSet& stops_;
  MarkSet head_marks_, tag_marks_;

  size_t at_ = 0;
  bool complete_ = false, lacks_end_ = false;
  bool in_head_ = true;  // before the arguments; of a tagged call: in its name
  bool past_head_mark_ = false, past_args_mark_ = false;
  bool fenced_ = false;            // kNamed: a fence (```) stands before the arguments
  bool raw_ = false;               // kNamed: the arguments are no JSON and go on up to the next mark
  int64_t depth_ = 0;              // of brackets
  char before_ = 0;                // the last character outside strings that is no white space
  size_t value_from_ = 0;          // kTagged: behind the last key_begin
  std::string_view closing_ = {};  // of the string or tagged value that at_ is in
};

}  // namespace tally
