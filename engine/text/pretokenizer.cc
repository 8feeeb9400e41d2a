// SPDX-License-Identifier: Apache-2.0
#include "engine/text/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/text/bpe.h"
#include "engine/text/utf8.h"

namespace tally {
namespace {

// Takes the spans of a text in order, delimiters and others, and emits pieces as a behaviour says.
class Splitter {
 public:
  Splitter(SplitBehavior behavior, const std::function<Status(size_t, size_t)>& emit) : behavior_(behavior), emit_(emit) {}

  Status Span(size_t begin, size_t end, bool delimiter) {
    if (begin == end) return Finish();  // an empty match only cuts
    switch (behavior_) {
      case SplitBehavior::kIsolated: return Emit(begin, end);
      case SplitBehavior::kRemoved: return delimiter ? Status() : Emit(begin, end);
      case SplitBehavior::kContiguous:
        if (held_ && held_delimiter_ == delimiter) {
          held_end_ = end;
          return {};
        }
        break;
      case SplitBehavior::kMergedWithPrevious:
        if (held_ && delimiter && !held_delimiter_) {
          held_end_ = end;
          held_delimiter_ = true;  // the next delimiter stands alone
          return {};
        }
        break;
      case SplitBehavior::kMergedWithNext:
        if (held_ && held_delimiter_ && !delimiter) {
          held_end_ = end;
          held_delimiter_ = false;
          return {};
        }
        break;
    }
    TALLY_RETURN_IF_ERROR(Finish());
    held_ = true;
    held_begin_ = begin;
    held_end_ = end;
    held_delimiter_ = delimiter;
    return {};
  }

  Status Finish() {
    if (!held_) return {};
    held_ = false;
    return Emit(held_begin_, held_end_);
  }

 private:
  Status Emit(size_t begin, size_t end) { return emit_(begin, end); }

  SplitBehavior behavior_;
  const std::function<Status(size_t, size_t)>& emit_;
  bool held_ = false, held_delimiter_ = false;
  size_t held_begin_ = 0, held_end_ = 0;
};

Status SplitRegex(const PreStep& step, std::string_view text, Matcher& matcher, Splitter& out) {
  size_t done = 0;  // end of the last span
  size_t search = 0;
  while (search <= text.size()) {
    TALLY_ASSIGN_OR_RETURN(const Matcher::Match match, matcher.Find(step.regex, text, search));
    if (!match.found) break;
    if (match.begin > done) TALLY_RETURN_IF_ERROR(out.Span(done, match.begin, step.invert));
    TALLY_RETURN_IF_ERROR(out.Span(match.begin, match.end, !step.invert));
    done = match.end;
    search = match.end;
    if (match.end == match.begin) search += std::max<uint32_t>(1, ReadUtf8(text, match.end).bytes);
  }
  if (done < text.size()) TALLY_RETURN_IF_ERROR(out.Span(done, text.size(), step.invert));
  return out.Finish();
}

Status SplitLiteral(std::string_view literal, bool invert, std::string_view text, Splitter& out) {
  size_t done = 0;
  for (size_t at; (at = FindText(text, literal, done)) != text.npos; done = at + literal.size()) {
    if (at > done) TALLY_RETURN_IF_ERROR(out.Span(done, at, invert));
    TALLY_RETURN_IF_ERROR(out.Span(at, at + literal.size(), !invert));
  }
  if (done < text.size()) TALLY_RETURN_IF_ERROR(out.Span(done, text.size(), invert));
  return out.Finish();
}

// One span for each character that `is` takes, one for each stretch between.
Status SplitCharacters(bool (*is)(int32_t), std::string_view text, Splitter& out) {
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    if (is(c.code)) {
      if (at > done) TALLY_RETURN_IF_ERROR(out.Span(done, at, false));
      TALLY_RETURN_IF_ERROR(out.Span(at, at + c.bytes, true));
      done = at + c.bytes;
    }
    at += c.bytes;
  }
  if (done < text.size()) TALLY_RETURN_IF_ERROR(out.Span(done, text.size(), false));
  return out.Finish();
}

}  // namespace

Status PreTokenizer::AddRegex(std::string_view regex, const std::string& where) {
  PreStep step;
  TALLY_ASSIGN_OR_RETURN(step.regex, Pattern::Compile(regex, where));
  Add(std::move(step));
  return {};
}

bool PreTokenizer::Has(PreStep::Kind kind) const {
  return std::any_of(steps_.begin(), steps_.end(), [&](const PreStep& step) { return step.kind == kind; });
}

struct PreTokenizer::Walk {
  Matcher& matcher;
  const Sink& sink;
  Growth& growth;
};

Status PreTokenizer::Run(std::string_view text, bool at_start, Matcher& matcher, Growth& growth, const Sink& sink) const {
  Walk walk{matcher, sink, growth};
  return RunFrom(0, text, at_start, walk);
}

Status PreTokenizer::RunFrom(size_t index, std::string_view text, bool at_start, Walk& walk) const {
  if (text.empty()) return {};
  size_t& left = walk.growth.left[index];
  if (text.size() > left) return BadInput("pre-tokenizer: its steps grow the text without end");
  left -= text.size();
  if (index == steps_.size()) return walk.sink(text);
  const PreStep& step = steps_[index];
  const auto emit_piece = [&](std::string_view whole, size_t begin, size_t end) {
    return RunFrom(index + 1, whole.substr(begin, end - begin), at_start && begin == 0, walk);
  };
  const std::function<Status(size_t, size_t)> emit = [&](size_t begin, size_t end) { return emit_piece(text, begin, end); };
  Splitter out(step.behavior, emit);
  switch (step.kind) {
    case PreStep::Kind::kRegex: return SplitRegex(step, text, walk.matcher, out);
    case PreStep::Kind::kLiteral: return SplitLiteral(step.literal, step.invert, text, out);
    case PreStep::Kind::kDigits: return SplitCharacters(IsUnicodeNumber, text, out);
    case PreStep::Kind::kPunctuation: return SplitCharacters(IsUnicodePunctuation, text, out);
    case PreStep::Kind::kPrependSpace: {
      if (text.front() == ' ') return RunFrom(index + 1, text, at_start, walk);
      const std::string longer = " " + std::string(text);
      return RunFrom(index + 1, longer, at_start, walk);
    }
    case PreStep::Kind::kToAlphabet: return RunFrom(index + 1, AlphabetOfBytes(text), at_start, walk);
    case PreStep::Kind::kFromAlphabet: {
      std::string bytes;
      if (!BytesOfAlphabet(text, &bytes)) return InternalError("a pre-tokenizer made text outside the byte alphabet");
      return RunFrom(index + 1, bytes, at_start, walk);
    }
    case PreStep::Kind::kMetaspace: {
      std::string changed;
      changed.reserve(text.size() + text.size() / 4 + step.literal.size());
      const bool wanted = step.prepend == PreStep::Prepend::kAlways || (step.prepend == PreStep::Prepend::kFirst && at_start);
      if (wanted && text.front() != ' ' && !text.starts_with(step.literal)) changed = step.literal;
      for (const char c : text) {
        if (c == ' ') {
          changed += step.literal;
        } else {
          changed.push_back(c);
        }
      }
      if (!step.split) return RunFrom(index + 1, changed, at_start, walk);
      const std::function<Status(size_t, size_t)> emit_changed = [&](size_t begin, size_t end) {
        return emit_piece(changed, begin, end);
      };
      Splitter words(SplitBehavior::kMergedWithNext, emit_changed);
      return SplitLiteral(step.literal, false, changed, words);
    }
  }
  return InternalError("unknown pre-tokenizer step");
}

}  // namespace tally
