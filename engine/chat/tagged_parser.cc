// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/tagged_parser.h"

#include <algorithm>
#include <utility>

#include "engine/chat/call_reader.h"

namespace tally {
namespace {

using Kind = OutputPart::Kind;

// White space that is held back for the mark that may follow; of more, what goes beyond is text.
constexpr size_t kMaxSpace = 64;
// A name that comes later in a body is read when the call ends.
constexpr size_t kNameWithin = 512;

constexpr std::string_view kFence = "```", kFenceOfJson = "```json";

// The size of the fence that stands at `at`; npos: more text is needed to tell.
size_t FenceAt(std::string_view text, size_t at) {
  const Fit fence = FitAt(text, at, kFence), json = FitAt(text, at, kFenceOfJson);
  if (json == Fit::kPart) return text.npos;
  return json == Fit::kYes ? kFenceOfJson.size() : fence == Fit::kYes ? kFence.size() : 0;
}

}  // namespace

TaggedParser::TaggedParser(const CallFormat& format, const Tags& thinking, Begun begun, ToolTypes types, bool calls)
    : format_(format), thinking_(thinking), types_(std::move(types)), calls_(calls), thinks_(begun == Begun::kThinking) {
  AddMarks();
  if (begun != Begun::kSection) return;
  state_ = State::kSection;
  section_ = &format_.sections[0];
}

void TaggedParser::AddMarks() {
  thinking_marks_.Add(thinking_.begin);
  thinking_marks_.Add(thinking_.end);
  thought_marks_.Add(thinking_.end);
  thinking_end_.Add(thinking_.end);
  const auto add_call_mark = [&](const Tags& marks) {
    content_marks_.Add(marks.begin);
    thought_marks_.Add(marks.begin);
    section_marks_.Add(marks.begin);
    section_marks_.Add(marks.end);
  };
  if (calls_) {
    for (const Tags& group : format_.groups) add_call_mark(group);
    for (const CallSection& section : format_.sections) add_call_mark(section.marks);
    content_marks_.Add(format_.unmarked);
  }
  for (const std::string_view mark : format_.others) content_marks_.Add(mark);

  all_marks_ = {thinking_.begin,   thinking_.end,   format_.header.begin, format_.header.end,
                format_.args_mark, format_.id_mark, format_.name_mark,    format_.quote};
  for (const Tags& group : format_.groups) all_marks_.insert(all_marks_.end(), {group.begin, group.end});
  for (const CallSection& section : format_.sections) {
    all_marks_.insert(all_marks_.end(), {section.marks.begin, section.marks.end});
  }
  all_marks_.insert(all_marks_.end(), format_.others.begin(), format_.others.end());
  if (const CallTags* tags = format_.tags; tags != nullptr) {
    all_marks_.insert(all_marks_.end(), {tags->name_begin, tags->name_end, tags->key_begin, tags->key_end, tags->value_begin,
                                         tags->value_end, tags->end, tags->element});
  }
}

void TaggedParser::Push(OutputPiece piece, std::vector<OutputPart>* parts) {
  parts_ = parts;
  const auto has_piece = [&](std::string_view mark) { return mark.find(piece.text) != mark.npos; };
  if (piece.control && std::ranges::none_of(all_marks_, has_piece)) {
    Settle();
    Append(Kind::kMark, piece.text);
    BeginFresh();
    return;
  }
  text_ += piece.text;
  while (Step()) {
  }
  text_.erase(0, at_);
  searched_ -= std::min(searched_, at_);
  at_ = 0;
}

void TaggedParser::Finish(std::vector<OutputPart>* parts) {
  parts_ = parts;
  Settle();
}

void TaggedParser::Append(Kind kind, std::string_view text) {
  if (text.empty()) return;
  parts_->push_back({kind, std::string(text)});
  has_content_ = has_content_ || kind == Kind::kContent;
}

void TaggedParser::BeginFresh() {
  fresh_ = marked_ = true;
  line_began_ = false;
}

// Of the `space` bytes of white space behind a mark, those that separate it from the first content.
size_t TaggedParser::SeparatingSpace(size_t space) {
  const std::string_view text = Rest().substr(0, space);
  size_t end = 0;
  if (!line_began_) {
    const size_t line = text.find('\n');
    if (line == text.npos) return space;
    line_began_ = true;
    end = line + 1;
  }
  for (size_t i = end; i < space && i - end <= kMaxSpace; ++i) {
    if (text[i] == '\n') end = i + 1;
  }
  return end;
}

size_t TaggedParser::LeadingSpace() const { return std::min(Rest().find_first_not_of(kWhiteSpace), Rest().size()); }

void TaggedParser::Take(Kind kind, size_t size) {
  Append(kind, Rest().substr(0, size));
  at_ += size;
}

bool TaggedParser::Step() {
  switch (state_) {
    case State::kText: return StepText();
    case State::kSection: return StepSection();
    case State::kCall: return StepCall();
    case State::kDoubt: return StepDoubt();
  }
  return false;
}

bool TaggedParser::StepText() {
  if (fresh_) {
    const size_t space = LeadingSpace();
    size_t kept = space;
    if (thinks_) {
      kept = 0;
    } else if (has_content_) {
      kept = space % (kMaxSpace + 1);
    } else if (marked_) {
      kept = space - SeparatingSpace(space);
    }
    Take(Kind::kMark, space - kept);
    fresh_ = kept <= kMaxSpace;
  }
  if (fresh_) {
    const size_t kept = LeadingSpace();
    const MarkSet::Hit hit = thinking_marks_.At(Rest(), kept);
    if (hit.fit == Fit::kPart) return false;
    if (hit.fit == Fit::kYes) {
      thinks_ = hit.mark == thinking_.begin;
      Take(Kind::kMark, kept + hit.mark.size());
      BeginFresh();
      return true;
    }
    if (const Fit header = TakeHeader(kept); header != Fit::kNo) {
      if (header == Fit::kYes) BeginFresh();
      return header == Fit::kYes;
    }
  }
  const MarkSet::Hit hit = (thinks_ ? thought_marks_ : content_marks_).Find(Rest());
  size_t text_end = Rest().substr(0, hit.at).find_last_not_of(kWhiteSpace) + 1;  // npos + 1 is 0
  text_end += (hit.at - text_end) / (kMaxSpace + 1) * (kMaxSpace + 1);
  if (text_end > 0) {
    Take(TextKind(), text_end);
    fresh_ = false;
  }
  if (hit.fit != Fit::kYes) return false;
  const size_t space = hit.at - text_end;
  if (thinks_ && hit.mark != thinking_.end && !format_.calls_in_thinking) {
    state_ = State::kDoubt;
    trial_ = std::make_unique<TaggedParser>(format_, thinking_, Begun::kNothing, types_, calls_);
    space_ = space;
    tried_ = passed_ = 0;
    return true;
  }
  if (hit.mark == format_.unmarked || section_marks_.Has(hit.mark)) {
    lead_ = hit.mark == format_.unmarked ? space : space + hit.mark.size();
    called_ = false;
    state_ = State::kSection;
    section_ = SectionOf(hit.mark);
    if (section_ == nullptr) section_ = &format_.sections[0];
    return true;
  }
  Take(Kind::kMark, space + hit.mark.size());
  if (hit.mark == thinking_.end) thinks_ = false;
  if (hit.mark == thinking_.begin) thinks_ = true;
  BeginFresh();
  return true;
}

// A header behind `space` bytes.
Fit TaggedParser::TakeHeader(size_t space) {
  const Tags& header = format_.header;
  const Fit begins = header.begin.empty() || thinks_ ? Fit::kNo : FitAt(Rest(), space, header.begin);
  if (begins != Fit::kYes) return begins;
  const size_t end = Rest().find_first_of(" \t\r\n<", space + header.begin.size());
  if (end == Rest().npos) return Rest().size() > kNameWithin ? Fit::kNo : Fit::kPart;
  const Fit ends = FitAt(Rest(), end, header.end);
  if (ends == Fit::kYes) Take(Kind::kMark, end + header.end.size());
  return ends;
}

// A call mark in thinking: a call that is complete ends the thinking, unless that ends later as it should. So all is held back from the
// mark on until the thinking's end mark, the end of the output, or what makes it no call. Bytes are tried one by one: what comes of them
// does not depend on the cuts.
bool TaggedParser::StepDoubt() {
  const MarkSet::Hit end = thinking_end_.Find(Rest(), std::max(space_ + tried_, searched_ - std::min(searched_, at_)));
  searched_ = at_ + end.at;
  while (space_ + tried_ < end.at) {
    if (trial_->complete_call_) {
      tried_ = end.at - space_;
      break;
    }
    std::vector<OutputPart> parts;
    trial_->Push({Rest().substr(space_ + tried_, 1)}, &parts);
    ++tried_;
    for (const OutputPart& part : parts) passed_ += part.text.size();
    if (trial_->state_ == State::kText && !trial_->complete_call_ && passed_ > 0) {
      EndDoubt(false);
      return true;
    }
  }
  if (end.fit != Fit::kYes) return false;
  passed_ = tried_;
  EndDoubt(false);
  return true;
}

void TaggedParser::EndDoubt(bool is_call) {
  trial_.reset();
  state_ = State::kText;
  if (is_call) {
    thinks_ = false;
    return;
  }
  fresh_ = false;
  Take(TextKind(), Rest().substr(0, space_ + passed_).find_last_not_of(kWhiteSpace) + 1);
}

// The section that the mark begins, or null.
const CallSection* TaggedParser::SectionOf(std::string_view mark) const {
  const auto begins = [&](const CallSection& section) { return section.marks.begin == mark; };
  const auto section = std::ranges::find_if(format_.sections, begins);
  return section == format_.sections.end() ? nullptr : &*section;
}

// Whether the mark ends the section, or the group around it. The end of a section without calls may begin another.
bool TaggedParser::Leaves(std::string_view mark) const {
  const auto ends = [&](const Tags& group) { return group.end == mark; };
  if (!format_.groups[0].begin.empty()) return std::ranges::any_of(format_.groups, ends);
  return mark == section_->marks.end && (called_ || SectionOf(mark) == nullptr);
}

// Calls and what may stand between them: behind a call also a '}', as models write one too many.
bool TaggedParser::StepSection() {
  const std::string_view text = Rest();
  while (lead_ < text.size()) {
    const MarkSet::Hit hit = section_marks_.At(text, lead_);
    if (hit.fit == Fit::kPart) return false;
    if (hit.fit == Fit::kYes) {
      lead_ += hit.mark.size();
      if (Leaves(hit.mark)) {
        LeaveSection();
        return true;
      }
      if (const CallSection* section = SectionOf(hit.mark); section != nullptr) section_ = section;
      continue;
    }
    const size_t fence = section_->body == CallBody::kPython ? 0 : FenceAt(text, lead_);
    const Fit word = format_.content_word.empty() ? Fit::kNo : FitAt(text, lead_, format_.content_word);
    if (fence == text.npos || word == Fit::kPart) return false;
    if (fence > 0) {
      lead_ += fence;
    } else if (format_.between.find(text[lead_]) != text.npos || (called_ && text[lead_] == '}')) {
      ++lead_;
    } else if (word == Fit::kYes) {
      Take(Kind::kMark, std::exchange(lead_, 0) + format_.content_word.size());
      state_ = State::kText;
      BeginFresh();
      return true;
    } else {
      scanner_.emplace(format_, text[lead_] == '{' ? CallBody::kJson : section_->body, section_marks_);
      early_.reset();
      shown_ = 0;
      state_ = State::kCall;
      return true;
    }
  }
  if (called_) Take(Kind::kMark, std::exchange(lead_, 0));
  return false;
}

// What stands before the end of a section, or before the text that ends it.
void TaggedParser::LeaveSection() {
  Take(called_ ? Kind::kMark : TextKind(), std::exchange(lead_, 0));
  fresh_ = false;
  if (called_) BeginFresh();
  state_ = State::kText;
}

bool TaggedParser::StepCall() {
  const std::string_view body = Rest().substr(lead_);
  const CallScanner::Found found = scanner_->Scan(body);
  if (found == CallScanner::Found::kMore) {
    ShowEarly(body.substr(0, scanner_->at()));
    return false;
  }
  const size_t size = scanner_->at();
  std::optional<ToolCall> call;
  if (found == CallScanner::Found::kEnd) {
    call = ReadCall(format_, types_, scanner_->body(), body.substr(0, size), scanner_->complete());
  }
  EndCall(size, std::move(call), scanner_->complete());
  if (scanner_->lacks_end() && state_ == State::kSection) LeaveSection();
  return true;
}

// A body whose name is read is a call whatever follows.
void TaggedParser::ShowEarly(std::string_view body) {
  if (!early_) {
    if (body.size() > kNameWithin) return;
    early_ = ReadCall(format_, types_, scanner_->body(), body, false);
    if (!early_) return;
    Take(Kind::kMark, std::exchange(lead_, 0));
  }
  Append(Kind::kCall, body.substr(shown_));
  shown_ = body.size();
}

// The body ends after `size` bytes: a call, or text.
void TaggedParser::EndCall(size_t size, std::optional<ToolCall> call, bool complete) {
  if (!call && early_) {
    call = std::move(early_);
    call->arguments = Rest().substr(lead_, size);
  }
  if (!call) {
    LeaveSection();
    Take(TextKind(), size);
    fresh_ = fresh_ && size == 0;
    return;
  }
  Take(Kind::kMark, std::exchange(lead_, 0));
  parts_->push_back({Kind::kCall, std::string(Rest().substr(shown_, size - shown_)), std::move(call)});
  at_ += size;
  called_ = true;
  complete_call_ = complete_call_ || complete;
  state_ = State::kSection;
}

void TaggedParser::Settle() {
  while (state_ == State::kDoubt) {
    const bool is_call = trial_->complete_call_;
    if (!is_call) passed_ = Rest().size() - space_;
    EndDoubt(is_call);
    while (Step()) {
    }
  }
  if (state_ == State::kCall) {
    const std::string_view body = Rest().substr(lead_);
    EndCall(body.size(), ReadCall(format_, types_, scanner_->body(), body, false), false);
  }
  if (state_ == State::kSection) {
    if (Rest().substr(lead_) == kFence) lead_ += kFence.size();
    LeaveSection();
  }
  if (fresh_ && (marked_ || thinks_)) Take(Kind::kMark, LeadingSpace());
  Take(TextKind(), Rest().size());
  text_.clear();
  at_ = searched_ = 0;
}

}  // namespace tally
