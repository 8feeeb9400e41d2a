// SPDX-License-Identifier: Apache-2.0
#include "engine/session/guide.h"

#include <algorithm>
#include <array>
#include <bit>

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

Guide::Guide(const Model& model, GuideOptions options)
    : tokenizer_(*model.tokenizer()),
      vocabulary_(model.vocabulary()),
      cursor_(options.call != nullptr ? options.call->names : options.grammar, vocabulary_),
      options_(std::move(options)) {
  cursor_.Prepare();
  if (options_.call != nullptr) {
    for (const auto& [name, grammar] : options_.call->arguments) GrammarCursor(grammar, vocabulary_).Prepare();
  }
  const AnswerStart& start = options_.start;
  thinking_ = TokenOf(tokenizer_, start.thinking_begin);
  if (options_.may_call && options_.call == nullptr) {
    for (const std::string& mark : start.call_marks) {
      if (const int32_t token = TokenOf(tokenizer_, mark); token >= 0) calls_.push_back(token);
    }
  }
  BeginContent();
  thinking_end_ = start.thinking_end;
  if (start.channels && options_.call != nullptr) {
    analysis_ = TokenOf(tokenizer_, "analysis");
    thinking_end_ = "<|end|>";
  } else if (start.channels) {
    place_ = Place::kChannels;
  } else if (start.in_thinking) {
    place_ = Place::kThinking;
  } else if (thinking_ >= 0 || !calls_.empty()) {
    place_ = Place::kStart;
  }
}

std::vector<int32_t> Guide::TokensOf(const std::string& text) const {
  if (text.empty()) return {};
  Result<std::vector<int32_t>> ids = tokenizer_.EncodeSegments(std::vector<TextSegment>{{.text = text, .parse_special = true}});
  return ids.ok() ? std::move(ids).value() : std::vector<int32_t>();
}

void Guide::BeginContent() {
  place_ = Place::kContent;
  if (options_.call == nullptr) return;
  queue_ = TokensOf(options_.call->frame.marks);
  part_ = Part::kName;
}

// The grammar of now is at its end: goes on with what follows it. False: nothing does.
bool Guide::NextPart() {
  const CallFrame* const frame = options_.call == nullptr ? nullptr : &options_.call->frame;
  switch (part_) {
    case Part::kName: {
      const auto arguments = options_.call->arguments.find(name_);
      if (arguments == options_.call->arguments.end()) return false;
      queue_ = TokensOf(frame->name_marks);
      cursor_ = GrammarCursor(arguments->second, vocabulary_);
      part_ = Part::kArguments;
      return true;
    }
    case Part::kArguments:
      queue_ = TokensOf(frame->after + frame->end_marks);
      part_ = Part::kEnd;
      return !queue_.empty();
    default: return false;
  }
}

bool Guide::IsComplete() const {
  if (place_ != Place::kContent || !queue_.empty()) return false;
  return part_ == Part::kEnd || (part_ == Part::kNone && cursor_.IsComplete());
}

Status Guide::Check(const Model& model, const GuideOptions& options) {
  if (options.call != nullptr) {  // what TokensOf will be asked for
    const CallFrame& frame = options.call->frame;
    for (const std::string& text : {frame.marks, frame.name_marks, frame.after + frame.end_marks}) {
      TALLY_RETURN_IF_ERROR(
          model.tokenizer()->EncodeSegments(std::vector<TextSegment>{{.text = text, .parse_special = true}}).status());
    }
    return {};
  }
  const auto is_token = [&](const std::string& mark) { return TokenOf(*model.tokenizer(), mark) >= 0; };
  if (!options.may_call || options.start.channels || std::ranges::any_of(options.start.call_marks, is_token)) return {};
  return BadInput(
      "answers of this model cannot be held to a format while it may call tools: its calls begin with no token of their own");
}

bool Guide::IsEnd(int32_t token) const { return std::ranges::find(vocabulary_->ends(), token) != vocabulary_->ends().end(); }

std::span<const uint64_t> Guide::Mask() {
  const auto allow = [&](int32_t token) { more_[static_cast<size_t>(token) / 64] |= uint64_t{1} << (token % 64); };
  switch (place_) {
    case Place::kContent: break;
    case Place::kFree: return {};
    case Place::kStart: {
      more_ = *cursor_.Mask();
      if (!queue_.empty()) {
        more_.assign(vocabulary_->words(), 0);
        allow(queue_.front());
      }
      if (thinking_ >= 0 && before_.empty()) allow(thinking_);
      for (const int32_t token : calls_) allow(token);
      return more_;
    }
    case Place::kThinking:
    case Place::kChannels:  // anything but an end
      if (more_.empty()) more_ = MaskWithout(vocabulary_->size(), vocabulary_->ends());
      return more_;
  }
  if (!queue_.empty()) {
    more_.assign(vocabulary_->words(), 0);
    allow(queue_.front());
    return more_;
  }
  mask_ = cursor_.Mask();
  if (!MayThink()) return *mask_;
  more_ = *mask_;
  allow(analysis_);
  return more_;
}

// Harmony: behind <|channel|>, before anything of the call.
bool Guide::MayThink() const { return analysis_ >= 0 && part_ == Part::kName && name_.empty() && queue_.empty(); }

int32_t Guide::Only() {
  if (place_ == Place::kFree) return -1;
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
    case Place::kFree: return true;
    case Place::kContent: return TakeContent(token);
    case Place::kStart:
      if (token == thinking_ && before_.empty()) {
        place_ = Place::kThinking;
        return true;
      }
      if (std::ranges::find(calls_, token) != calls_.end()) {
        place_ = Place::kFree;
        return true;
      }
      if (!TakeContent(token)) return false;
      place_ = Place::kContent;
      return true;
    default: return !IsEnd(token) && TakeBefore(token);
  }
}

bool Guide::TakeContent(int32_t token) {
  if (!queue_.empty()) {
    if (token != queue_.front()) return false;
    queue_.erase(queue_.begin());
    recent_.clear();
    if (queue_.empty() && part_ == Part::kEnd) return true;
  } else if (MayThink() && token == analysis_) {
    analysis_ = -1;
    place_ = Place::kThinking;
  } else {
    if (!cursor_.Take(token)) return false;
    recent_.push_back(token);
    if (recent_.size() > 4 * kContext) recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kContext));
    if (part_ == Part::kName) name_ += vocabulary_->bytes(token);
    if (part_ != Part::kNone && cursor_.IsComplete() && NextPart()) recent_.clear();
  }
  return true;
}

// Whether the token ends what precedes the content.
bool Guide::TakeBefore(int32_t token) {
  before_ += tokenizer_.IsControl(token) ? tokenizer_.ControlText(token) : tokenizer_.TokenBytes(token);
  if (place_ == Place::kThinking) {
    const std::string& mark = thinking_end_;
    const size_t end = before_.rfind(mark);
    if (end == before_.npos) {
      if (before_.size() > 4096) before_.erase(0, before_.size() - mark.size());
      return true;
    }
    // Content begins anew after white space, which may be in the mark's own token.
    const std::string rest = before_.substr(end + mark.size());
    const bool is_space = rest.find_first_not_of(" \t\r\n") == rest.npos;
    if (!is_space && (options_.call != nullptr || !cursor_.TakeBytes(rest))) {
      before_.erase(0, end + 1);  // this mark did not end it
      return true;
    }
    place_ = calls_.empty() ? Place::kContent : Place::kStart;
    if (options_.start.channels) queue_ = TokensOf("<|start|>assistant<|channel|>");
    more_.clear();
    return true;
  }
  if (!before_.ends_with("<|message|>")) return true;
  const size_t channel = before_.rfind("<|channel|>");
  const std::string header = channel == before_.npos ? before_ : before_.substr(channel + 11);
  if (header.starts_with("final")) {
    place_ = Place::kContent;
  } else if (options_.may_call &&
             before_.find("to=", before_.rfind("<|start|>") == before_.npos ? 0 : before_.rfind("<|start|>")) != before_.npos) {
    place_ = Place::kFree;
  }
  before_.clear();
  more_.clear();
  return true;
}

size_t Guide::Allowed(std::span<const int32_t> tokens) const {
  Guide guide = *this;
  size_t n = 0;
  while (n < tokens.size() && !IsEnd(tokens[n]) && guide.Take(tokens[n])) ++n;
  return n;
}

std::vector<int32_t> Guide::Forced() const {
  if (place_ != Place::kContent) return {};
  if (!queue_.empty()) return queue_;
  if (MayThink()) return {};
  const std::string forced = cursor_.Forced(kMostForced);
  if (forced.size() < kFewestForced) return {};
  GrammarCursor after = cursor_;
  after.TakeBytes(forced);
  // The last tokens are cut again with what follows. The model may have cut an earlier word otherwise than the tokenizer does: then fewer.
  std::vector<int32_t> tokens;
  for (const size_t context : {kContext, kContext / 4, size_t{1}}) {
    const std::span<const int32_t> known = std::span(recent_).last(std::min(recent_.size(), context));
    tokens = CutBehind(known, forced);
    if (!after.IsComplete() && !tokens.empty()) {
      tokens.pop_back();  // the text that follows may lengthen it
      for (const std::string& sample : Samples(after.FirstBytes())) {
        if (tokens.empty()) break;
        const std::vector<int32_t> with = CutBehind(known, forced + sample);
        tokens.resize(static_cast<size_t>(std::ranges::mismatch(tokens, with).in1 - tokens.begin()));
      }
    }
    if (!tokens.empty() || known.size() == recent_.size()) break;
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
