// SPDX-License-Identifier: Apache-2.0
#include "engine/chat/bare_calls.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/chat/call_reader.h"
#include "engine/chat/json_text.h"

namespace tally {
namespace {

// The keys that a call may begin with: JSON with another first key is an answer in JSON, and need not be held back.
bool MayBeginCall(std::string_view body) {
  constexpr size_t kMaxSpace = 64;  // before the key; a model that repeats white space makes no call
  static constexpr std::array<std::string_view, 4> kFirst = {"\"name\"", "\"type\"", "\"parameters\"", "\"arguments\""};
  const size_t key = std::min(body.substr(0, kMaxSpace + 2).find_first_not_of(kWhiteSpace, 1), body.size());
  if (key > kMaxSpace) return false;
  return std::ranges::any_of(kFirst, [&](std::string_view first) { return FitAt(body, key, first) != Fit::kNo; });
}

}  // namespace

// Goes on in the text; false: it is not calls alone.
bool BareCallParser::MayBeCalls() {
  while (at_ < text_.size()) {
    if (!scanner_) {
      if (!StepBetween()) return false;
    } else if (!StepCall()) {
      return false;
    } else if (scanner_) {
      return true;  // the call goes on
    }
  }
  return true;
}

// Of a call in Python.
bool BareCallParser::MayNameTool(std::string_view body) const {
  const size_t bracket = body.find('(');
  return bracket == body.npos ? tools_.AnyBeginsWith(body) : tools_.Has(body.substr(0, bracket));
}

// Goes behind the next character between calls, or begins a call.
bool BareCallParser::StepBetween() {
  const char c = text_[at_];
  if (kWhiteSpace.find(c) != kWhiteSpace.npos) {
    ++at_;
    return true;
  }
  switch (next_) {
    case Next::kAny:
    case Next::kJson:
      if (c == '{') {
        scanner_.emplace(format_, CallBody::kJson, no_stops_);
        next_ = Next::kJson;
        return true;
      }
      if (c == '[' && next_ == Next::kAny) next_ = Next::kItem;
      ++at_;
      return c == ';' || next_ == Next::kItem;
    case Next::kItem:
      scanner_.emplace(format_, c == '{' ? CallBody::kJson : CallBody::kPython, no_stops_);
      next_ = Next::kSeparator;
      return true;
    case Next::kSeparator:
      next_ = c == ',' ? Next::kItem : Next::kEnd;
      ++at_;
      return c == ',' || c == ']';
    case Next::kEnd: return false;
  }
  return false;
}

// Goes on in the call that begins at at_, and behind it once it has ended.
bool BareCallParser::StepCall() {
  const std::string_view body = std::string_view(text_).substr(at_);
  const bool json = scanner_->body() == CallBody::kJson;
  if (!(json ? MayBeginCall(body) : MayNameTool(body))) return false;
  const CallScanner::Found found = scanner_->Scan(body);
  if (found == CallScanner::Found::kMore) return true;
  if (found == CallScanner::Found::kNoCall) return false;
  const std::string_view whole = body.substr(0, scanner_->at());
  std::optional<ToolCall> call = ReadCall(format_, tools_, scanner_->body(), whole, true);
  if (!call || !call->arguments.starts_with('{')) return false;
  if (json && !tools_.Has(call->name) && !NamesArguments(whole)) return false;  // an object that has a name, say of a city
  if (!json && !IsJson(call->arguments)) return false;
  at_ += scanner_->at();
  scanner_.reset();
  calls_.emplace_back(at_, *std::move(call));
  return true;
}

void BareCallParser::HandOver(std::vector<OutputPart>* parts) {
  undecided_ = false;
  others_->Push({text_}, parts);
}

void BareCallParser::Push(OutputPiece piece, std::vector<OutputPart>* parts) {
  if (undecided_ && piece.control) {  // ends the calls, or the answer is of another kind
    if (IsCalls()) {
      Finish(parts);
    } else {
      HandOver(parts);
    }
  }
  if (!undecided_) {
    others_->Push(piece, parts);
    return;
  }
  text_ += piece.text;
  if (!MayBeCalls()) HandOver(parts);
}

void BareCallParser::Finish(std::vector<OutputPart>* parts) {
  if (undecided_ && !IsCalls()) HandOver(parts);
  if (!undecided_) {
    others_->Finish(parts);
    return;
  }
  undecided_ = false;
  size_t begin = 0;
  for (auto& [end, call] : calls_) {
    parts->push_back({OutputPart::Kind::kCall, text_.substr(begin, end - begin), std::move(call)});
    begin = end;
  }
  if (begin < text_.size()) parts->push_back({OutputPart::Kind::kMark, text_.substr(begin)});
}

}  // namespace tally
