// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/call_scanner.h"

#include <cctype>

namespace tally {
namespace {

constexpr std::string_view kBracedBegin = "call:";
constexpr std::string_view kBeforeValue = "{[,:";  // JSON: where a string of Python may begin

bool IsSpace(char c) { return kWhiteSpace.find(c) != kWhiteSpace.npos; }

}  // namespace

CallScanner::CallScanner(const CallFormat& format, CallBody body, const MarkSet& stops)
    : format_(format), body_(body), stops_(stops), in_head_(body != CallBody::kJson) {
  if (body == CallBody::kNamed) {
    head_marks_.Add(format.args_mark);
    head_marks_.Add(format.id_mark);
    head_marks_.Add(format.name_mark);
  }
  if (body == CallBody::kTagged) {
    tag_marks_.Add(format.tags->key_begin);
    tag_marks_.Add(format.tags->end);
  }
}

CallScanner::Found CallScanner::Scan(std::string_view body) {
  if (body_ == CallBody::kTagged) return ScanTags(body);
  if (body_ == CallBody::kJson && body[0] != '{') return Found::kNoCall;
  if (in_head_) {
    const Found found = ScanHead(body);
    if (in_head_) return found;
  }
  return ScanBrackets(body);
}

// Whether `c` may stand at at_, before the first bracket.
bool CallScanner::Heads(char c) const {
  switch (body_) {
    case CallBody::kNamed: return past_head_mark_ || !IsSpace(c);
    case CallBody::kBraced: return at_ < kBracedBegin.size() ? c == kBracedBegin[at_] : !IsSpace(c);
    case CallBody::kPython: return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
    default: return false;
  }
}

// Up to where the arguments begin.
CallScanner::Found CallScanner::ScanHead(std::string_view body) {
  const char bracket = body_ == CallBody::kPython ? '(' : '{';
  while (at_ < body.size()) {
    const MarkSet::Hit stop = stops_.At(body, at_), mark = raw_ ? MarkSet::Hit() : head_marks_.At(body, at_);
    if (stop.fit == Fit::kYes) return Found::kEnd;
    if (mark.fit == Fit::kYes) {
      past_head_mark_ = true;
      past_args_mark_ = past_args_mark_ || mark.mark == format_.args_mark;
      at_ += mark.mark.size();
      continue;
    }
    if (stop.fit == Fit::kPart || mark.fit == Fit::kPart) return Found::kMore;
    if (raw_) {
      ++at_;
      continue;
    }
    const bool quoted = past_head_mark_ && body[at_] == '"';  // the arguments are a JSON string
    if (quoted || body[at_] == bracket) {
      in_head_ = false;
      return Found::kMore;
    }
    if (!Heads(body[at_])) return Found::kNoCall;
    fenced_ = fenced_ || body[at_] == '`';
    raw_ = past_args_mark_ && format_.type_word.empty() && !fenced_ && !IsSpace(body[at_]);
    ++at_;
  }
  return Found::kMore;
}

// Whether the tagged value that at_ is in may hold its end tag here.
bool CallScanner::InCdata(std::string_view body) const {
  if (body_ != CallBody::kTagged || !format_.tags->cdata) return false;
  const std::string_view text = body.substr(value_from_, at_ - value_from_);
  const size_t key_end = text.find(format_.tags->key_end);
  if (key_end == text.npos) return false;
  const std::string_view value = Trimmed(text.substr(key_end + format_.tags->key_end.size()));
  return value.starts_with("<![CDATA[") && value.find("]]>") == value.npos;
}

// Goes behind the string that at_ is in; false: it has not ended yet.
bool CallScanner::SkipString(std::string_view body) {
  const bool escapes = closing_.size() == 1;
  while (at_ < body.size()) {
    const Fit fit = FitAt(body, at_, closing_);
    if (fit == Fit::kPart) return false;
    if (fit == Fit::kYes && !InCdata(body)) {
      at_ += closing_.size();
      closing_ = {};
      return true;
    }
    const size_t step = escapes && body[at_] == '\\' ? 2 : 1;
    if (at_ + step > body.size()) return false;
    at_ += step;
  }
  return false;
}

CallScanner::Found CallScanner::ScanBrackets(std::string_view body) {
  while (at_ < body.size()) {
    if (!closing_.empty()) {
      if (!SkipString(body)) return Found::kMore;
      complete_ = depth_ == 0;
      if (complete_) return Found::kEnd;
      continue;
    }
    const MarkSet::Hit stop = stops_.At(body, at_);
    if (stop.fit == Fit::kYes) return Found::kEnd;
    if (stop.fit == Fit::kPart) return Found::kMore;
    if (body_ == CallBody::kBraced) {
      const Fit quote = FitAt(body, at_, format_.quote);
      if (quote == Fit::kPart) return Found::kMore;
      if (quote == Fit::kYes) {
        at_ += format_.quote.size();
        closing_ = format_.quote;
        continue;
      }
    }
    const char before = before_, c = body[at_++];
    if (!IsSpace(c)) before_ = c;
    switch (c) {
      case '"': closing_ = "\""; break;
      case '\'':
        if (body_ == CallBody::kPython || (body_ != CallBody::kBraced && kBeforeValue.find(before) != kBeforeValue.npos)) {
          closing_ = "'";
        }
        break;
      case '{':
      case '[':
      case '(': ++depth_; break;
      case '}':
      case ']':
      case ')':
        if (--depth_ > 0) break;
        complete_ = true;
        return Found::kEnd;
      default: break;
    }
  }
  return Found::kMore;
}

// Behind the tag that ends the name, or before what ends the whole call.
CallScanner::Found CallScanner::ScanTaggedName(std::string_view body) {
  const CallTags& tags = *format_.tags;
  if (at_ == 0) {
    const Fit fit = FitAt(body, 0, tags.name_begin);
    if (fit != Fit::kYes) return fit == Fit::kPart ? Found::kMore : Found::kNoCall;
    at_ = tags.name_begin.size();
  }
  for (; at_ < body.size(); ++at_) {
    const Fit fit = FitAt(body, at_, tags.name_end);
    const MarkSet::Hit next = tag_marks_.At(body, at_), stop = stops_.At(body, at_);
    if (fit == Fit::kYes || next.fit == Fit::kYes || stop.fit == Fit::kYes) {
      in_head_ = false;
      return Found::kMore;
    }
    if (fit == Fit::kPart || next.fit == Fit::kPart || stop.fit == Fit::kPart) return Found::kMore;
    if (IsSpace(body[at_]) || body[at_] == '<') return Found::kNoCall;
  }
  return Found::kMore;
}

CallScanner::Found CallScanner::ScanTags(std::string_view body) {
  if (in_head_) {
    const Found found = ScanTaggedName(body);
    if (in_head_) return found;
  }
  while (at_ < body.size()) {
    if (!closing_.empty()) {
      if (!SkipString(body)) return Found::kMore;
      continue;
    }
    const MarkSet::Hit tag = tag_marks_.At(body, at_), stop = stops_.At(body, at_);
    if (stop.fit == Fit::kYes) {
      complete_ = true;  // the last value has ended; that the call's own end is missing does no harm
      return Found::kEnd;
    }
    if (tag.fit == Fit::kYes) {
      at_ += tag.mark.size();
      if (tag.mark == format_.tags->key_begin) {
        closing_ = format_.tags->value_end;
        value_from_ = at_;
        continue;
      }
      complete_ = true;
      return Found::kEnd;
    }
    if (tag.fit == Fit::kPart || stop.fit == Fit::kPart) return Found::kMore;
    if (value_from_ > 0 && format_.tags->end.empty() && !IsSpace(body[at_])) {
      complete_ = lacks_end_ = true;
      return Found::kEnd;
    }
    ++at_;
  }
  return Found::kMore;
}

}  // namespace tally
