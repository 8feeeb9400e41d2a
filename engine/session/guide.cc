// SPDX-License-Identifier: Apache-2.0
#include "engine/session/guide.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "engine/chat/marks.h"
#include "engine/recipe/recipe.h"
#include "engine/session/sampling.h"

namespace tally {
namespace {

constexpr size_t kContext = 16;       // tokens before forced ones that are cut again with them
constexpr size_t kFewestForced = 2;   // bytes worth cutting
constexpr size_t kMostForced = 2048;  // bytes of one jump

std::string BytesOf(const Vocabulary& vocabulary, std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) text += vocabulary.bytes(token);
  return text;
}

// Texts that may follow, for finding out what they do to the tokens before them: of each kind of character one.
std::vector<std::string> Samples(const std::array<uint64_t, 4>& first) {
  const auto has = [&](uint8_t byte) { return (first[byte / 64] >> (byte % 64) & 1) != 0; };
  std::vector<std::string> samples;
  for (const char* text : {"a", "s", "A", "0", " ", "  ", "\"", "\\n", ",", "}",        "]",
                           "{", "[", ":", ".", "-", "_",  "\n", "'",   "/", "\xc3\xa9", "\xe4\xb8\xad"}) {
    if (has(static_cast<uint8_t>(text[0]))) samples.emplace_back(text);
  }
  for (int byte = 0; byte < 256 && samples.empty(); ++byte) {
    if (has(static_cast<uint8_t>(byte))) samples.emplace_back(1, static_cast<char>(byte));
  }
  return samples;
}

// -1: the mark is no single token.
int32_t TokenOf(const Tokenizer& tokenizer, const std::string& mark) {
  if (mark.empty()) return -1;
  const Result<std::vector<int32_t>> ids =
      tokenizer.EncodeSegments(std::vector<TextSegment>{{.text = mark, .parse_special = true}});
  return ids.ok() && ids->size() == 1 ? ids->front() : -1;
}

}  // namespace

std::vector<int32_t> EndTokens(const Model& model) {
  std::vector<int32_t> ends = model.recipe().eos_tokens;
  if (model.tokenizer() != nullptr) {
    for (const int32_t id : model.tokenizer()->eos()) ends.push_back(id);
  }
  return ends;
}

Status Guide::Check(const Model& model, const GuideOptions& options) {
  if (options.grammar != nullptr && options.start.channels) {
    const std::string& end = options.start.channels->thinking_end;
    return SpelledMarks(model, end) != end ? Status()
                                           : BadInput("the vocabulary lacks the marks of harmony: its content cannot be held");
  }
  if (!options.may_call || options.grammar == nullptr) return {};
  if (options.calls != nullptr && options.calls->must) return {};
  const auto is_token = [&](const std::string& mark) { return TokenOf(*model.tokenizer(), mark) >= 0; };
  if (std::ranges::any_of(options.start.call_marks, is_token)) return {};
  return BadInput(
      "answers of this model cannot be held to a format while it may call tools: its calls begin with no token of their own");
}

Guide::Guide(const Model& model, GuideOptions options)
    : tokenizer_(*model.tokenizer()),
      vocabulary_(model.vocabulary()),
      options_(std::move(options)),
      cursor_(options_.grammar != nullptr ? options_.grammar : options_.calls->grammar, vocabulary_) {
  const AnswerStart& start = options_.start;
  const bool must = options_.calls != nullptr && options_.calls->must;
  if (must) cursor_ = GrammarCursor(options_.calls->grammar, vocabulary_);
  is_free_ = options_.grammar == nullptr && !must;
  cursor_.Prepare();
  if (options_.calls != nullptr && !must) {
    calls_begin_.emplace(options_.calls->grammar, vocabulary_);
    calls_begin_->Prepare();
  }
  thinking_ = TokenOf(tokenizer_, start.thinking_begin);
  if (options_.may_call && !must && !is_free_) {
    for (const std::string& mark : start.call_marks) {
      if (const int32_t token = TokenOf(tokenizer_, mark); token >= 0) call_marks_.push_back(token);
    }
  }
  may_be_calls_ = is_free_;
  place_ = is_free_ ? Place::kFree : Place::kContent;
  if (start.channels && !must) {
    place_ = Place::kChannels;
    if (!is_free_) HoldHeaders(model);
  } else if (start.in_thinking) {
    place_ = Place::kThinking;
  } else if (!is_free_ && (thinking_ >= 0 || !call_marks_.empty())) {
    place_ = Place::kStart;
  }
}

// Harmony: the answer begins with a header.
void Guide::HoldHeaders(const Model& model) {
  const AnswerChannels& channels = *options_.start.channels;
  const std::string end = SpelledMarks(model, channels.thinking_end);
  std::map<std::string, Place> after;
  for (const std::string& header : channels.thinking_headers) after[end + SpelledMarks(model, header)] = Place::kMessage;
  for (const std::string& header : channels.content_headers) after[end + SpelledMarks(model, header)] = Place::kContent;
  if (calls_begin_) {
    for (const auto& [name, header] : options_.calls->headers) after[end + header] = Place::kChannels;
  } else if (options_.may_call) {
    for (const std::string& header : channels.call_headers) after[end + SpelledMarks(model, header)] = Place::kFree;
  }
  std::vector<std::string> texts;
  for (const auto& [text, place] : after) texts.push_back(text);
  const Result<std::shared_ptr<Grammar>> grammar = Grammar::FromChoices(texts);
  place_ = grammar.ok() ? Place::kHeader : Place::kContent;  // the latter: more names than a grammar may have
  if (!grammar.ok()) return;
  const GrammarCursor begin(*grammar, vocabulary_);
  headers_ = std::make_shared<const Headers>(Headers{begin, std::exchange(cursor_, begin), std::move(after), end});
  cursor_.TakeBytes(end);
  before_ = end;
}

bool Guide::IsComplete() const { return place_ == Place::kContent && cursor_.IsComplete(); }

bool Guide::is_full() const {
  const auto is_full = [](const auto& of) { return of != nullptr && of->is_full(); };
  return is_full(options_.grammar) || (options_.calls != nullptr && is_full(options_.calls->grammar));
}

bool Guide::IsEnd(int32_t token) const { return std::ranges::find(vocabulary_->ends(), token) != vocabulary_->ends().end(); }

std::span<const uint64_t> Guide::Mask() {
  const auto allow = [&](int32_t token) { more_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); };
  switch (place_) {
    case Place::kFree: MaskFree(); return more_;
    case Place::kThinking:
    case Place::kChannels:  // anything but an end: what is held is to follow
      if (is_free_) return {};
      if (more_.empty()) more_ = MaskWithout(vocabulary_->size(), vocabulary_->ends());
      return more_;
    case Place::kMessage:  // text, and what ends it
      if (more_.empty()) {
        std::vector<int32_t> others(vocabulary_->ends().begin(), vocabulary_->ends().end());
        for (int32_t token = 0; token < static_cast<int32_t>(vocabulary_->size()); ++token) {
          if (vocabulary_->IsNamed(token) && !headers_->end.starts_with(vocabulary_->bytes(token))) others.push_back(token);
        }
        more_ = MaskWithout(vocabulary_->size(), others);
      }
      return more_;
    default: break;
  }
  mask_ = cursor_.Mask();
  if (place_ != Place::kStart && gap_.empty()) return *mask_;
  more_ = *mask_;
  for (const int32_t token : gap_) allow(token);
  if (place_ == Place::kStart) {
    if (thinking_ >= 0) allow(thinking_);
    for (const int32_t token : call_marks_) allow(token);
  }
  return more_;
}

int32_t Guide::Only() {
  int32_t only = -1;
  const std::span<const uint64_t> mask = Mask();
  for (size_t w = 0; w < mask.size(); ++w) {
    if (mask[w] == 0) continue;
    if (only >= 0 || !std::has_single_bit(mask[w])) return -1;
    only = static_cast<int32_t>(w * 64 + static_cast<size_t>(std::countr_zero(mask[w])));
  }
  return only;
}

bool Guide::Take(int32_t token) {
  switch (place_) {
    case Place::kFree: return TakeFree(token);
    case Place::kContent: return TakeContent(token);
    case Place::kHeader: return TakeHeldHeader(token);
    case Place::kMessage:
      if (IsEnd(token)) return false;
      if (!vocabulary_->IsNamed(token)) return true;
      if (!headers_->end.starts_with(vocabulary_->bytes(token))) return false;
      cursor_ = headers_->begin;
      before_.clear();
      place_ = Place::kHeader;
      return TakeHeldHeader(token);
    case Place::kStart:
      if (token == thinking_) {
        place_ = Place::kThinking;
        more_.clear();  // that was the mask of the place before
        return true;
      }
      if (std::ranges::find(call_marks_, token) != call_marks_.end()) {
        if (calls_begin_) return BeginCalls(vocabulary_->bytes(token));
        place_ = Place::kFree;
        return true;
      }
      if (!TakeContent(token)) return false;
      place_ = Place::kContent;
      return true;
    default: return TakeBefore(token);
  }
}

bool Guide::TakeContent(int32_t token) {
  if (!cursor_.Take(token)) {
    if (std::ranges::find(gap_, token) == gap_.end()) return false;
    recent_.assign(1, token);
  } else if (vocabulary_->IsNamed(token)) {
    recent_.clear();
  } else {
    recent_.push_back(token);
    if (recent_.size() > 4 * kContext) recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kContext));
  }
  gap_.clear();
  return true;
}

bool Guide::TakeHeldHeader(int32_t token) {
  if (!TakeContent(token)) return false;
  before_ += vocabulary_->bytes(token);
  const auto after = headers_->after.find(before_);
  if (after == headers_->after.end()) return true;
  if (after->second == Place::kChannels) return BeginCalls(before_.substr(headers_->end.size()));
  if (after->second == Place::kContent) cursor_ = headers_->content;
  place_ = after->second;
  more_.clear();
  return true;
}

// Calls begin with these bytes. False: the grammar of calls does not allow them.
bool Guide::BeginCalls(std::string_view bytes) {
  GrammarCursor calls = *calls_begin_;
  if (!calls.TakeBytes(bytes)) return false;
  cursor_ = std::move(calls);
  place_ = Place::kContent;
  recent_.clear();
  gap_.clear();
  return true;
}

// The token's bytes where `n` bytes of the sign are there: white space may precede a sign at the beginning.
std::string_view Guide::BytesBehind(const CallSign& sign, size_t n, int32_t token) const {
  std::string_view bytes = vocabulary_->bytes(token);
  if (sign.at_beginning && n == 0) bytes.remove_prefix(std::min(bytes.find_first_not_of(kWhiteSpace), bytes.size()));
  return bytes;
}

// Each sign of calls that the text so far ends within, and how much of it is there.
std::vector<std::pair<const CallSign*, size_t>> Guide::Begun() const {
  std::vector<std::pair<const CallSign*, size_t>> begun;
  const std::string_view text = Trimmed(before_);
  for (const CallSign& sign : options_.calls->signs) {
    const std::string_view whole = sign.text;
    if (sign.at_beginning) {
      const std::string_view read =
          text.empty() ? text : std::string_view(before_).substr(before_.find_first_not_of(kWhiteSpace));
      if (is_whole_ && read.size() < whole.size() && whole.starts_with(read)) begun.emplace_back(&sign, read.size());
      continue;
    }
    for (size_t n = std::min(before_.size(), whole.size() - 1) + 1; n-- > 0;) {
      if (before_.ends_with(whole.substr(0, n))) begun.emplace_back(&sign, n);
    }
  }
  return begun;
}

// Of the tokens that complete a sign of which `n` bytes are there, those that go on as no call does.
const std::vector<int32_t>& Guide::WrongBehind(const CallSign& sign, size_t n) {
  const auto [place, is_new] = wrong_.try_emplace({&sign, n});
  const std::string_view rest = std::string_view(sign.text).substr(n);
  if (!is_new) return place->second;
  if (const int32_t named = vocabulary_->TokenNamed(rest); named >= 0) {  // nothing goes on behind it
    GrammarCursor calls = *calls_begin_;
    if (!calls.TakeBytes(sign.text)) place->second.push_back(named);
    return place->second;
  }
  for (int32_t token = 0; token < static_cast<int32_t>(vocabulary_->size()); ++token) {
    const std::string_view bytes = BytesBehind(sign, n, token);
    if (!bytes.starts_with(rest)) continue;
    GrammarCursor calls = *calls_begin_;
    if (!calls.TakeBytes(sign.text.substr(0, n).append(bytes))) place->second.push_back(token);
  }
  return place->second;
}

// All tokens but those that are no call behind a sign of one; empty: there are none of these.
void Guide::MaskFree() {
  more_.clear();
  if (!may_be_calls_) return;
  for (const auto& [sign, n] : Begun()) {
    for (const int32_t token : WrongBehind(*sign, n)) {
      if (more_.empty()) more_ = MaskWithout(vocabulary_->size(), {});
      more_[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
    }
  }
}

bool Guide::TakeFree(int32_t token) {
  if (!may_be_calls_ || IsEnd(token)) return true;
  if (token == thinking_ && is_whole_ && Trimmed(before_).empty()) {
    place_ = Place::kThinking;
    before_.clear();
    return true;
  }
  for (const auto& [sign, n] : Begun()) {
    const std::string_view bytes = BytesBehind(*sign, n, token);
    if (bytes.starts_with(std::string_view(sign->text).substr(n))) return BeginCalls(sign->text.substr(0, n).append(bytes));
  }
  constexpr size_t kMostBefore = 1024;
  before_ += vocabulary_->bytes(token);
  if (before_.size() > kMostBefore) {
    before_.erase(0, before_.size() - kMostBefore / 2);
    is_whole_ = false;
  }
  return true;
}

bool Guide::TakeBefore(int32_t token) {
  if (IsEnd(token)) return is_free_;
  if (place_ == Place::kThinking && options_.start.calls_in_thinking && calls_begin_) {
    const auto is_sign = [&](const CallSign& sign) { return sign.text == vocabulary_->bytes(token); };
    if (std::ranges::any_of(options_.calls->signs, is_sign)) return BeginCalls(vocabulary_->bytes(token));
  }
  before_ += tokenizer_.IsControl(token) ? tokenizer_.ControlText(token) : tokenizer_.TokenBytes(token);
  if (place_ == Place::kThinking) {
    TakeThinking();
  } else {
    TakeHeader();
  }
  return true;
}

// Content begins if the text so far ends the thinking.
void Guide::TakeThinking() {
  const std::string& mark = options_.start.thinking_end;
  const size_t end = before_.rfind(mark);
  if (end == before_.npos) {
    if (before_.size() > 4096) before_.erase(0, before_.size() - mark.size());
    return;
  }
  // White space may be in the mark's own token.
  const std::string rest = before_.substr(end + mark.size());
  if (!is_free_ && !Trimmed(rest).empty() && !cursor_.TakeBytes(rest)) {
    before_.erase(0, end + 1);  // this mark did not end it
    return;
  }
  place_ = is_free_ ? Place::kFree : call_marks_.empty() ? Place::kContent : Place::kStart;
  thinking_ = -1;
  before_ = rest;
  more_.clear();
  for (const char* feeds : {"\n", "\n\n"}) {
    const int32_t feed = rest.empty() ? TokenOf(tokenizer_, feeds) : -1;
    if (feed >= 0) gap_.push_back(feed);
  }
}

// Harmony: a call begins if the text so far ends a header of one.
void Guide::TakeHeader() {
  const AnswerChannels& channels = *options_.start.channels;
  if (!before_.ends_with(channels.header_end)) return;
  const size_t message = before_.rfind(channels.message_begin);
  const std::string header = std::exchange(before_, "").substr(message == std::string::npos ? 0 : message);
  const size_t channel = header.rfind(channels.channel), recipient = header.find(channels.recipient);
  const bool is_content =
      channel != header.npos && header.substr(channel + channels.channel.size()).starts_with(channels.content);
  if (is_content || !options_.may_call || recipient == header.npos) return;
  const std::string name = header.substr(recipient + channels.recipient.size());
  const auto call = options_.calls->headers.find(name.substr(0, name.find_first_of(" \t\r\n<")));
  if (call != options_.calls->headers.end()) BeginCalls(call->second);
}

size_t Guide::Allowed(std::span<const int32_t> tokens) const {
  Guide guide = *this;
  size_t n = 0;
  while (n < tokens.size() && !IsEnd(tokens[n]) && guide.Take(tokens[n])) ++n;
  return n;
}

std::vector<int32_t> Guide::Forced() const {
  if ((place_ != Place::kContent && place_ != Place::kHeader) || !gap_.empty()) return {};
  const std::string forced = cursor_.Forced(kMostForced);
  if (forced.size() < kFewestForced) return {};
  std::vector<int32_t> tokens;
  std::span<const int32_t> known = recent_;
  for (size_t at = 0; at < forced.size();) {
    const size_t name = forced.find(static_cast<char>(kFirstOfToken), at);
    const std::string text = forced.substr(at, name == forced.npos ? name : name - at);
    if (!text.empty()) {
      std::optional<GrammarCursor> after;
      if (name == forced.npos) {
        after = cursor_;
        after->TakeBytes(forced);
        if (after->IsComplete()) after.reset();
      }
      const std::vector<int32_t> cut = CutOf(known, text, after ? &*after : nullptr);
      tokens.insert(tokens.end(), cut.begin(), cut.end());
      if (name == forced.npos || cut.empty()) break;
    }
    const size_t end = forced.find(static_cast<char>(kLastOfToken), name);
    const int32_t token =
        end == forced.npos ? -1 : vocabulary_->TokenNamed(std::string_view(forced).substr(name, end + 1 - name));
    if (token < 0) break;
    tokens.push_back(token);
    known = {};
    at = end + 1;
  }
  // A tokenizer takes added tokens out of any text, and a grammar has them by their names alone: those are left to the model.
  GrammarCursor cursor = cursor_;
  const auto refused = std::ranges::find_if(tokens, [&](int32_t token) { return !cursor.Take(token); });
  tokens.erase(refused, tokens.end());
  return tokens;
}

// The tokens of `text` behind known ones, without those that the text of `after` could change (null: none follows). The last known tokens
// are cut again with it. The model may have cut an earlier word otherwise than the tokenizer does: then fewer.
std::vector<int32_t> Guide::CutOf(std::span<const int32_t> all, const std::string& text, const GrammarCursor* after) const {
  std::vector<int32_t> tokens;
  for (const size_t context : {kContext, kContext / 4, size_t{1}}) {
    const std::span<const int32_t> known = all.last(std::min(all.size(), context));
    tokens = CutBehind(known, text);
    if (after != nullptr && !tokens.empty()) {
      tokens.pop_back();  // the text that follows may lengthen it
      for (const std::string& sample : Samples(after->FirstBytes())) {
        if (tokens.empty()) break;
        const std::vector<int32_t> with = CutBehind(known, text + sample);
        tokens.resize(static_cast<size_t>(std::ranges::mismatch(tokens, with).in1 - tokens.begin()));
      }
    }
    if (!tokens.empty() || known.size() == all.size()) break;
  }
  return tokens;
}

// The tokens of `text` behind those that are there; none: the tokenizer would have cut these otherwise.
std::vector<int32_t> Guide::CutBehind(std::span<const int32_t> known, const std::string& text) const {
  // SentencePiece puts a space before a text: an end of line takes it, and both are dropped.
  const std::string before = tokenizer_.DropsLeadingSpace() ? "\n" : "";
  const std::string whole = before + BytesOf(*vocabulary_, known) + text;
  const Result<std::vector<int32_t>> ids = tokenizer_.EncodeSegments(std::vector<TextSegment>{{.text = whole}});
  if (!ids.ok()) return {};
  size_t first = 0;
  if (!before.empty()) {  // up to the end of line
    std::string start;
    while (first < ids->size() && start.find('\n') == std::string::npos) start += vocabulary_->bytes((*ids)[first++]);
    if (start.empty() || start.back() != '\n') return {};
  }
  for (const int32_t token : known) {
    if (first == ids->size() || (*ids)[first++] != token) return {};
  }
  return {ids->begin() + static_cast<std::ptrdiff_t>(first), ids->end()};
}

}  // namespace tally
